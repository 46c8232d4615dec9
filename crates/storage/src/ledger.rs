//! What all slabs of one owner share.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::sync::{AtomicU64, Ordering};

/// What the slabs of one owner have in common: whether anything at all is held, and what must outlive the last handle.
///
/// The last of the owner, its slabs and the handles to go drops the ledger and with it the keeper, which is typically the
/// owner of the memory that the handles point into. So memory is returned when nobody can reach it any more, and not before.
pub struct Ledger {
    /// Liveness words that are not zero, over all slabs; those whose handles are stale count too.
    held_words: AtomicU64,
    /// Whether takers are noted. It guards nothing, so loom need not see it.
    notes_takers: AtomicBool,
    _keeper: Option<Box<dyn Any + Send + Sync>>,
}

impl Ledger {
    /// A ledger that keeps nothing alive: the caller sees to it that memory outlives the handles.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with(None)
    }

    /// A ledger that keeps `keeper` alive until the last handle is gone.
    #[must_use]
    pub fn keeping(keeper: impl Any + Send + Sync) -> Arc<Self> {
        Self::with(Some(Box::new(keeper)))
    }

    fn with(keeper: Option<Box<dyn Any + Send + Sync>>) -> Arc<Self> {
        let notes_takers = AtomicBool::new(false);
        Arc::new(Self { held_words: AtomicU64::new(0), notes_takers, _keeper: keeper })
    }

    /// Whether to note, from each slab's next run on, where in the program its outputs are [taken](crate::Slab::takers).
    ///
    /// It is off at first. Taking an output costs several times as much while it is on, and one instruction while it is off.
    pub fn note_takers(&self, on: bool) {
        self.notes_takers.store(on, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn notes_takers(&self) -> bool {
        self.notes_takers.load(Ordering::Relaxed)
    }

    /// Whether nothing in any slab is held: no handle, no outputs that wait to be taken, no saved outputs. It takes the
    /// same time however many slabs there are.
    ///
    /// `true` is certain. `false` may be late: where the last two handles of 64 outputs went at the same time on two threads, it
    /// may last until their slab is [swept](crate::Slab::sweep) or dropped, or comes upon it when it runs again.
    #[must_use]
    #[inline]
    pub fn all_dead(&self) -> bool {
        self.held_words.load(Ordering::Acquire) == 0
    }

    pub(crate) fn add_words(&self, words: u64) {
        self.held_words.fetch_add(words, Ordering::Relaxed);
    }

    pub(crate) fn remove_words(&self, words: u64) {
        self.held_words.fetch_sub(words, Ordering::Release);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("all_dead", &self.all_dead()).finish_non_exhaustive()
    }
}
