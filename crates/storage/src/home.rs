//! Which thread this is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
use crate::orphans;
use crate::sync::per_thread;

/// The number of a thread. No other one has it, later ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNumber(u64);

per_thread! {
    /// Zero until the thread is asked for its number.
    static NUMBER: Cell<u64> = Cell::new(0);
}
per_thread! { static LEAVING: Leaving = Leaving; }

// It is an identity and not part of any protocol between threads, so loom need not see it.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl ThreadNumber {
    /// What no thread has.
    pub(crate) const NOBODY: Self = Self(u64::MAX);

    /// The number of this thread.
    #[inline]
    pub(crate) fn current() -> Self {
        match NUMBER.with(Cell::get) {
            0 => Self::assign(),
            number => Self(number),
        }
    }

    #[cold]
    fn assign() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.with(|of| of.set(number));
        // If the thread is ending already, nothing that it has left behind is looked at by it.
        let _ = LEAVING.try_with(|_| ());
        Self(number)
    }

    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// Whether a number is that of this thread. A thread that was never asked for its number has none.
    #[inline]
    pub(crate) fn is_current(number: u64) -> bool {
        NUMBER.with(Cell::get) == number
    }
}

/// Looks, when a thread ends, after what it was the home of.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        // Loom ends its statics, the list among them, before what its first thread has of its own.
        #[cfg(not(loom))]
        orphans::sweep();
    }
}
