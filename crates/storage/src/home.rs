//! Which thread this is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// The number of this thread; that of [`NOBODY`](Self::NOBODY) once it is ending.
    #[inline]
    pub(crate) fn current() -> Self {
        match NUMBER.with(Cell::get) {
            0 => Self::assign(),
            number => Self(number),
        }
    }

    #[cold]
    fn assign() -> Self {
        if LEAVING.try_with(|_| ()).is_err() {
            return Self::NOBODY; // Nobody would look after what it is the home of.
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.with(|of| of.set(number));
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
        // Loom ends its statics, the list of orphans among them, before what its first thread has of its own.
        #[cfg(not(loom))]
        end_thread();
    }
}

/// What a thread does when it ends; loom's models say themselves when that is.
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "it is public for loom's models alone"))]
pub fn end_thread() {
    // What is dropped later, by other destructors, goes as it does elsewhere: nobody would look after it any more.
    NUMBER.with(|of| of.set(0));
    // Under the lock in any case: if it looked at how many orphans there are, it might not see a slab that goes meanwhile,
    // and whoever drops that might not see what has gone here.
    orphans::sweep_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    /// Says when it goes whether its thread is the one with a number, and what the thread's number is.
    struct Late(Option<ThreadNumber>, Sender<(bool, ThreadNumber)>);

    impl Drop for Late {
        fn drop(&mut self) {
            let is_it = self.0.is_some_and(|number| ThreadNumber::is_current(number.get()));
            self.1.send((is_it, ThreadNumber::current())).unwrap();
        }
    }

    thread_local! { static LATE: Cell<Option<Late>> = const { Cell::new(None) }; }

    #[test]
    fn each_thread_has_a_number_that_stays() {
        let ask = || (ThreadNumber::current(), ThreadNumber::current());
        let here = ask();
        let elsewhere = thread::spawn(ask).join().unwrap();
        let later = thread::spawn(ask).join().unwrap();
        assert!(here.0 == here.1 && elsewhere.0 == elsewhere.1 && later.0 == later.1);
        assert!(here != elsewhere && here != later && elsewhere != later);
        assert!(ThreadNumber::is_current(here.0.get()) && !ThreadNumber::is_current(later.0.get()));
        assert!(!ThreadNumber::is_current(ThreadNumber::NOBODY.get()));
    }

    #[test]
    fn a_thread_that_has_looked_after_what_it_leaves_is_the_home_of_nothing() {
        let (sender, late) = channel();
        let thread = thread::spawn(move || {
            LATE.set(None); // It was there before the number, so it goes after it.
            let number = ThreadNumber::current();
            LATE.set(Some(Late(Some(number), sender)));
            assert!(ThreadNumber::is_current(number.get()));
        });
        thread.join().unwrap();
        assert_eq!(late.recv(), Ok((false, ThreadNumber::NOBODY)));
    }
}
