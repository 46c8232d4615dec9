//! The bits and counts behind the handles of one slab.
//!
//! A slab has one sheet in use. Handles point at the sheet that they were made on, and a sheet is given a new run only
//! when nothing holds any of its slots. So no bit and no count ever means two runs, and the drop of an old handle cannot
//! touch what a newer one holds.
//!
//! # Holds
//!
//! A slot is *held* by handles, by outputs that wait to be taken, by saved outputs. Its bit in `held` says whether anybody
//! does. Its count in `extra` says how many do beyond the first, so that a whole slab can be handed back without touching a
//! count: zero is right for a slot with one holder, and for one with none. Its bit in `shared` says whether the count can be
//! anything else, so that 64 slots that nobody cloned a handle of are let go of without a look at a count.
//!
//! # The home of a run
//!
//! A locked instruction for each handle that goes is most of what a handle costs. So the thread that begins a run is its
//! *home*, and notes what goes there in words that no other thread writes: a plain store, without a locked instruction. A
//! slot is dead when its bit in `held` is cleared, by a locked instruction as anywhere, or its bit in `gone` is set, at home.
//! Whoever finds itself the last of a word clears the bits in `held` of all that has gone.
//!
//! # Why a sheet is never freed too early
//!
//! `refs` counts the sheet's references ([`SheetRef`](crate::hold::SheetRef)) and, as one each, the words of `held` that
//! are not zero. A holder's bit is set for as long as it holds, its word is not zero then, and so `refs` is not zero either.
//! Whoever clears the last bit of a word takes the word's one out of `refs`, as the very last thing it does with the sheet;
//! and whoever only notes at home that its slot has gone does nothing with the sheet afterwards ([`Release`]).
//!
//! Two that go from a word at the same moment, one at home and one elsewhere, may each find the other there. The word's one
//! stays in `refs` then, although all of the word is dead, until the slab [tidies](Sheet::tidy) it or, if that has gone, the
//! list of [orphans](crate::orphans) does.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::block::Block;
use crate::hold::ORPHAN;
use crate::home::ThreadNumber;
use crate::release::Release;
use crate::stale::{Cause, Stale};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use crate::table::Table;
use crate::takers::Takers;
use crate::word::Word;
use crate::{Epoch, Ledger, SlotIndex, Step, Tensor};

/// Set in a sheet's epoch when some of its handles are stale or moved: no handle's epoch has it, so each looks closer.
const LOOK: u64 = 1 << 63;

/// It begins where a cache line does: if what a run writes is spread over one line more, handing 320 outputs back takes 40 ns
/// instead of 28.
#[repr(align(64))]
pub(crate) struct Sheet {
    /// The run whose handles are valid, or that with [`LOOK`] set.
    epoch: AtomicU64,
    /// The number of the run's home thread.
    home: AtomicU64,
    pub(crate) refs: AtomicUsize,
    pub(crate) words: Box<[Word]>,
    extra: Box<[AtomicU32]>,
    /// The outputs that wait to be taken and whose taking needs more than [`Word::waiting`] says: those that own no slots, and
    /// all of a run whose takers are noted. Only the one `Outputs` of the run touches these words.
    pub(crate) waiting_slow: Box<[AtomicU64]>,
    /// Outputs in memory of others, in their order; those that wait to be taken are still there.
    pub(crate) borrowed: Mutex<Vec<Borrowed>>,
    /// Outputs in memory of others that the backward reads. Only the one `SavedOutputs` of the run touches it.
    pub(crate) saved_elsewhere: Mutex<Vec<(SlotIndex, Tensor)>>,
    /// One while the run's `Outputs` exists.
    outputs: AtomicU32,
    /// One while the run's `SavedOutputs` exists.
    saved: AtomicU32,
    past: Mutex<Past>,
    pub(crate) takers: Mutex<Takers>,
    pub(crate) table: Arc<Table>,
    pub(crate) ledger: Arc<Ledger>,
}

/// An output in memory of others, until it is taken.
pub(crate) type Borrowed = (SlotIndex, Option<Tensor>);

/// What a handle finds when its epoch is not the sheet's any more.
#[derive(Default)]
struct Past {
    made_in: Step,
    /// In the order of the slots.
    fates: Vec<(SlotIndex, Fate)>,
    /// A (slot, n) pair means: n times somebody has the slot's address and cannot be told of a new one.
    pins: SmallVec<[(SlotIndex, usize); 1]>,
}

/// Who keeps a slot's memory alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Tensors and storages that somebody has, views included. Those that the function left elsewhere while it was recorded
    /// count as one together.
    pub handles: u32,
    /// Outputs that were handed back and not taken.
    pub waiting: u32,
    /// Whether the backward still needs it.
    pub saved: bool,
}

impl Holders {
    /// Whether nobody does.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.handles == 0 && self.waiting == 0 && !self.saved
    }
}

impl Past {
    fn find(&self, sheet: &Sheet, slot: SlotIndex, epoch: Epoch) -> Result<Found, Box<Stale>> {
        let at = self.fates.binary_search_by_key(&slot, |(of, _)| *of);
        match at.ok().and_then(|at| self.fates.get(at)) {
            None => Ok(Found::Here),
            Some((_, Fate::Moved(block))) => Ok(Found::Moved(Arc::clone(block))),
            Some((_, Fate::Gone(cause))) => Err(Box::new(Stale {
                producer: Arc::clone(&sheet.table.producer),
                slot,
                epoch,
                made_in: self.made_in,
                cause: Cause::clone(cause),
            })),
        }
    }

    fn add_pins(&mut self, slot: SlotIndex, pins: usize) {
        match self.pins.iter_mut().find(|(of, _)| *of == slot) {
            Some((_, count)) => *count += pins,
            None => self.pins.push((slot, pins)),
        }
    }
}

/// What became of a slot's value.
#[derive(Clone)]
pub(crate) enum Fate {
    Gone(Arc<Cause>),
    Moved(Arc<Block>),
}

/// Where a handle's value is.
pub(crate) enum Found {
    Here,
    Moved(Arc<Block>),
}

impl Sheet {
    /// A sheet on which nothing is held, with one reference.
    pub(crate) fn new(table: Arc<Table>, ledger: Arc<Ledger>) -> Self {
        let words = table.words.len();
        Self {
            epoch: AtomicU64::new(LOOK),
            home: AtomicU64::new(ThreadNumber::NOBODY.get()),
            refs: AtomicUsize::new(1),
            words: (0..words).map(|_| Word::new()).collect(),
            extra: (0..table.outputs.len()).map(|_| AtomicU32::new(0)).collect(),
            waiting_slow: (0..words).map(|_| AtomicU64::new(0)).collect(),
            borrowed: Mutex::new(Vec::new()),
            saved_elsewhere: Mutex::new(Vec::new()),
            outputs: AtomicU32::new(0),
            saved: AtomicU32::new(0),
            past: Mutex::default(),
            takers: Mutex::default(),
            table,
            ledger,
        }
    }

    #[inline]
    pub(crate) fn held_word(&self, word: u32) -> u64 {
        self.words.get(word as usize).map_or(0, Word::held)
    }

    pub(crate) fn is_held(&self, slot: SlotIndex) -> bool {
        self.held_word(slot.word()) & slot.bit() != 0
    }

    #[inline]
    pub(crate) fn nothing_held(&self) -> bool {
        self.words.iter().all(|word| word.held() == 0)
    }

    /// Whether a handle is the only holder that the slot has had in this run.
    #[inline]
    pub(crate) fn is_sole_handle(&self, slot: SlotIndex) -> bool {
        let at = slot.word() as usize;
        let Some(word) = self.words.get(at) else { return false };
        let is_set = |bits: u64| bits & slot.bit() != 0;
        let is_saved = || {
            self.table.saved.get(at).is_some_and(|saved| is_set(*saved))
                && self.saved.load(Ordering::Relaxed) != 0
        };
        // A slot that has never had several waits as the output that owns it, if it waits.
        is_set(word.held() & !word.waiting.load(Ordering::Relaxed))
            && word.shared_of(slot.bit()) == 0
            && !self.waiting_slow.get(at).is_some_and(|bits| is_set(bits.load(Ordering::Relaxed)))
            && !is_saved()
    }

    /// Who holds the slot. With handles in use on other threads it is a picture of the moment, and may be blurred.
    pub(crate) fn holders(&self, slot: SlotIndex) -> Holders {
        if !self.is_held(slot) {
            return Holders::default();
        }
        let all =
            self.extra.get(slot.place()).map_or(0, |extra| extra.load(Ordering::Acquire)).saturating_add(1);
        let waits = |output: SlotIndex| {
            let at = output.word() as usize;
            let is_set = |bits: Option<&AtomicU64>| {
                bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & output.bit() != 0)
            };
            is_set(self.words.get(at).map(|word| &word.waiting)) || is_set(self.waiting_slow.get(at))
        };
        let waiting = self.table.outputs_on(slot).filter(|&output| waits(output)).count() as u32;
        let is_saved = self.table.saved.get(slot.word() as usize).is_some_and(|bits| bits & slot.bit() != 0);
        let saved = is_saved && self.saved.load(Ordering::Relaxed) != 0;
        Holders { handles: all.saturating_sub(waiting + u32::from(saved)), waiting, saved }
    }

    /// Says that the run's `Outputs` is gone, and does not touch the sheet's words any more.
    pub(crate) fn outputs_gone(&self) {
        self.outputs.store(0, Ordering::Release);
    }

    /// Says that the run's `SavedOutputs` is gone, and does not touch the sheet's words any more.
    pub(crate) fn saved_gone(&self) {
        self.saved.store(0, Ordering::Release);
    }

    /// Whether the sheet can begin another run: nothing is held, and nothing is left that could take or let go of
    /// anything by the bits of the last run.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        // With the caller's reference alone, no word is held and neither `Outputs` nor `SavedOutputs` are left. Acquire, paired
        // with the release of each reference that went.
        self.refs.load(Ordering::Acquire) == 1 || self.is_free_at_second_sight()
    }

    #[cold]
    fn is_free_at_second_sight(&self) -> bool {
        let is_free = self.nothing_held()
            && self.outputs.load(Ordering::Acquire) == 0
            && self.saved.load(Ordering::Acquire) == 0;
        if is_free {
            // What has gone before the look above is tidied up after it, or a word's one would stay in `refs` for ever.
            self.tidy();
        }
        is_free
    }

    /// Takes out of the references what the last holders of a word have left there. The caller has a reference itself. Returns
    /// whether this has taken out the last one but that.
    pub(crate) fn tidy(&self) -> bool {
        let mut is_last = false;
        for _ in self.words.iter().filter(|word| word.tidy()) {
            self.ledger.remove_words(1);
            is_last |= self.refs.fetch_sub(1, Ordering::Release) & !ORPHAN == 2;
        }
        is_last
    }

    /// Says that from here on all threads let go of handles alike. Returns whether another thread was the home until now: it
    /// may be letting go of one as if it still were.
    pub(crate) fn leave_home(&self) -> bool {
        let nobody = ThreadNumber::NOBODY.get();
        let home = self.home.swap(nobody, Ordering::Relaxed);
        home != nobody && !ThreadNumber::is_current(home)
    }

    /// Begins a run: the slots are held, by outputs that wait and by the backward, as the table says.
    ///
    /// The sheet must be free, which also makes the plain stores right: nobody else can be writing these words. The caller
    /// makes the one `Outputs` of the run, and its `SavedOutputs` if anything is saved, each with one of the references
    /// that this counts.
    #[inline]
    pub(crate) fn begin(&self, epoch: Epoch) {
        debug_assert!(self.is_free());
        if self.epoch.load(Ordering::Relaxed) & LOOK != 0 {
            self.forget_fates();
        }
        let saved = u32::from(self.table.has_saved);
        // The epoch first: who is told by a bit that a slot is held is told by the epoch that it is another value.
        self.epoch.store(epoch.get(), Ordering::Relaxed);
        self.home.store(ThreadNumber::current().get(), Ordering::Relaxed);
        for (word, begin) in self.words.iter().zip(&self.table.words) {
            word.begin(begin);
        }
        for (waiting, returned) in self.waiting_slow.iter().zip(&self.table.returned_aliases) {
            waiting.store(*returned, Ordering::Relaxed);
        }
        if self.ledger.notes_takers() {
            self.slow_down();
        }
        for (slot, extra) in &self.table.shared {
            if let Some(count) = self.extra.get(slot.place()) {
                count.store(*extra, Ordering::Relaxed);
            }
        }
        self.outputs.store(1, Ordering::Relaxed);
        self.saved.store(saved, Ordering::Relaxed);
        self.refs.fetch_add(1 + saved as usize + self.table.own_words as usize, Ordering::Relaxed);
        self.ledger.add_words(self.table.own_words);
    }

    /// Lets all outputs of a run that is beginning wait where taking them is noted.
    #[cold]
    fn slow_down(&self) {
        for (Word { waiting: fast, .. }, slow) in self.words.iter().zip(&self.waiting_slow) {
            let all = slow.load(Ordering::Relaxed) | fast.load(Ordering::Relaxed);
            slow.store(all, Ordering::Relaxed);
            fast.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets what became of the handles of the last run, or those of the next one would find it.
    #[cold]
    fn forget_fates(&self) {
        let over = std::mem::take(&mut lock(&self.past).fates);
        drop(over); // Without the lock, since what owns a copy may be anybody's.
    }

    /// Adds a holder to a slot that the caller holds.
    #[inline]
    pub(crate) fn hold_again(&self, slot: SlotIndex) {
        let (Some(word), Some(extra)) = (self.words.get(slot.word() as usize), self.extra.get(slot.place()))
        else {
            return;
        };
        word.share(slot.bit());
        // Relaxed, as for any reference count: the caller's own hold keeps the slot held meanwhile.
        if extra.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            // Only leaking handles two thousand million times leads here, and going on would free memory in use.
            std::process::abort();
        }
    }

    /// What letting go of slots of a word touches.
    #[inline]
    pub(crate) fn release_of(&self, word: u32) -> Option<Release<'_>> {
        let at = word;
        let word = self.words.get(at as usize)?;
        Some(Release { home: &self.home, word, at, extra: &self.extra })
    }

    /// Whether every handle of the last run is valid without a closer look: the one compare on every access.
    ///
    /// Relaxed, since nothing is read by way of it: whoever finds that something was touched looks closer, under the lock under
    /// which it was noted.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) & LOOK == 0
    }

    /// The last run, which is that of every hold.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch.load(Ordering::Relaxed) & !LOOK)
    }

    /// Whether the sheet's last run is this one, whatever became of its slots.
    pub(crate) fn is_in_run(&self, epoch: Epoch) -> bool {
        self.epoch() == epoch
    }

    /// Looks for the value of a slot whose handle is not valid at first sight.
    #[cold]
    pub(crate) fn look(&self, slot: SlotIndex, epoch: Epoch) -> Result<Found, Box<Stale>> {
        lock(&self.past).find(self, slot, epoch)
    }

    /// Settles what became of slots, save for pinned ones. From here on no handle of them reads the pool.
    ///
    /// Returns the slots that are pinned. If there are any and `all` is set, nothing is settled.
    pub(crate) fn settle(
        &self,
        epoch: Epoch,
        made_in: Step,
        mut fates: Vec<(SlotIndex, Fate)>,
        all: bool,
    ) -> SmallVec<[SlotIndex; 1]> {
        let mut past = lock(&self.past);
        let pinned: SmallVec<[SlotIndex; 1]> = past.pins.iter().map(|(slot, _)| *slot).collect();
        let pinned: SmallVec<[SlotIndex; 1]> =
            fates.iter().map(|(slot, _)| *slot).filter(|slot| pinned.contains(slot)).collect();
        if !pinned.is_empty() && all {
            return pinned;
        }
        fates.retain(|(slot, _)| !pinned.contains(slot));
        past.made_in = made_in;
        if past.fates.is_empty() {
            past.fates = fates;
        } else {
            past.fates.extend(fates);
        }
        past.fates.sort_by_key(|(slot, _)| *slot);
        self.epoch.store(epoch.get() | LOOK, Ordering::Relaxed);
        pinned
    }

    /// Pins a slot that the caller holds, where its value is. Under the lock that settling takes too, so that a slot is
    /// either pinned or settled first.
    pub(crate) fn pin(&self, slot: SlotIndex, epoch: Epoch) -> Result<Found, Box<Stale>> {
        let mut past = lock(&self.past);
        let found = past.find(self, slot, epoch)?;
        if matches!(found, Found::Here) {
            past.add_pins(slot, 1);
        }
        Ok(found)
    }

    /// Adds pins that were taken before the slot was one. The slot is held and its value is here.
    pub(crate) fn add_pins(&self, slot: SlotIndex, pins: usize) {
        if pins > 0 {
            lock(&self.past).add_pins(slot, pins);
        }
    }

    /// Takes back one [`pin`](Self::pin) that found the value here.
    pub(crate) fn unpin(&self, slot: SlotIndex) {
        let mut past = lock(&self.past);
        let Some(at) = past.pins.iter().position(|(of, _)| *of == slot) else { return };
        let left = past.pins.get_mut(at).map_or(0, |(_, count)| {
            *count -= 1;
            *count
        });
        if left == 0 {
            past.pins.swap_remove(at);
        }
    }

    pub(crate) fn is_pinned(&self, slot: SlotIndex) -> bool {
        lock(&self.past).pins.iter().any(|(of, _)| *of == slot)
    }

    /// Lets copies go that nobody holds a handle of any more, and returns how many.
    pub(crate) fn sweep(&self) -> usize {
        let is_over = |slot, fate: &Fate| matches!(fate, Fate::Moved(_)) && !self.is_held(slot);
        let over: Vec<_> =
            lock(&self.past).fates.extract_if(.., |(slot, fate)| is_over(*slot, fate)).collect();
        over.len() // The copies go without the lock, since what owns one may be anybody's.
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        debug_assert!(self.nothing_held(), "a sheet was freed that is still held");
    }
}
