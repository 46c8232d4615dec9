//! The liveness of 64 slots.

use crate::sync::{AtomicU64, Ordering};
use crate::table::Begin;

/// What is known of 64 slots of a sheet, a bit each. See [`sheet`](crate::sheet) for what a holder is, and what the home of a
/// run.
#[repr(align(32))]
pub(crate) struct Word {
    /// The slots that anybody holds, and those of `gone`.
    held: AtomicU64,
    /// The slots that were let go of at home. Only the home thread writes it, without a locked instruction.
    gone: AtomicU64,
    /// The slots that have had more than one holder at a time in this run. A count is looked at for these alone.
    shared: AtomicU64,
    /// The outputs that own slots and wait to be taken. Only the one `Outputs` of the run writes it.
    pub(crate) waiting: AtomicU64,
}

impl Word {
    /// A word of which nothing is held.
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { held: zero(), gone: zero(), shared: zero(), waiting: zero() }
    }

    /// The slots that anybody holds.
    #[inline]
    pub(crate) fn held(&self) -> u64 {
        // Acquire: who sees a slot dead also sees whatever its last holder did before letting go.
        self.held.load(Ordering::Acquire) & !self.gone.load(Ordering::Acquire)
    }

    /// Begins a run. Nothing is held, so nobody else writes here.
    #[inline]
    pub(crate) fn begin(&self, begin: &Begin) {
        // Release: who watches a slot and sees this beside the last run's `held` is told by the epoch that it is another value.
        self.gone.store(0, Ordering::Release);
        self.shared.store(begin.shared, Ordering::Relaxed);
        self.waiting.store(begin.returned, Ordering::Relaxed);
        self.held.store(begin.own, Ordering::Release);
    }

    /// Says that a slot is about to have one more holder. The caller is one of them.
    ///
    /// Relaxed: whoever gets the new holder gets it from whoever made it, who has come by here. So no holder of a slot that
    /// has others finds it not shared.
    #[inline]
    pub(crate) fn share(&self, slot: u64) {
        if self.shared_of(slot) == 0 {
            self.shared.fetch_or(slot, Ordering::Relaxed);
        }
    }

    /// Those of some slots that the caller holds that may have other holders.
    #[inline]
    pub(crate) fn shared_of(&self, slots: u64) -> u64 {
        self.shared.load(Ordering::Relaxed) & slots
    }

    /// Lets go of slots whose last holder the caller is. Returns whether nothing of the word is held then; if it is not, the
    /// caller has nothing to do with the word any more.
    #[inline]
    pub(crate) fn let_go(&self, slots: u64, is_home: bool) -> bool {
        if !is_home {
            // With what has gone at home meanwhile, or nobody might be the last.
            return self.clear(slots | self.gone.load(Ordering::Acquire));
        }
        let gone = self.gone.load(Ordering::Relaxed);
        debug_assert_eq!(gone & slots, 0, "a slot was let go of twice");
        let gone = gone | slots;
        // Others only ever clear bits, so what is not held here is not held.
        if self.held.load(Ordering::Relaxed) & !gone == 0 {
            return self.clear(gone);
        }
        // Release, for whoever sees the slots dead. It is the last that the caller does here.
        self.gone.store(gone, Ordering::Release);
        false
    }

    /// Clears slots that nobody holds but for the caller. Returns whether nothing is held then.
    #[inline]
    fn clear(&self, slots: u64) -> bool {
        self.held.fetch_and(!slots, Ordering::AcqRel) & !slots == 0
    }

    /// Clears what has gone at home. Returns whether nothing is held then, and something was.
    ///
    /// It is for a word whose last two holders went at the same moment, at home and elsewhere, and did not see each other go.
    #[cold]
    pub(crate) fn tidy(&self) -> bool {
        let gone = self.gone.load(Ordering::Acquire);
        let held = self.held.load(Ordering::Relaxed);
        // A word of which nothing has gone is left alone, or the look at it would slow its holders down.
        held & gone != 0 && {
            let before = self.held.fetch_and(!gone, Ordering::AcqRel);
            before & gone != 0 && before & !gone == 0
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A word of a run with three slots.
    fn word() -> Word {
        let word = Word::new();
        word.begin(&Begin { own: 0b111, returned: 0b111, shared: 0 });
        word
    }

    /// The bits of `held` and of `gone`.
    fn bits(word: &Word) -> (u64, u64) {
        (word.held.load(Ordering::Relaxed), word.gone.load(Ordering::Relaxed))
    }

    #[test]
    fn what_goes_at_home_is_noted_and_what_goes_elsewhere_clears_that_too() {
        let word = word();
        assert!(!word.let_go(0b001, true));
        assert_eq!((bits(&word), word.held()), ((0b111, 0b001), 0b110));
        assert!(!word.let_go(0b010, false));
        assert_eq!((bits(&word), word.held()), ((0b100, 0b001), 0b100));
        assert!(word.let_go(0b100, true), "the last clears at home too");
        assert_eq!((bits(&word).0, word.held()), (0, 0));
    }

    #[test]
    fn the_last_of_a_word_is_told_so_wherever_it_goes() {
        for (first, last) in [(true, true), (true, false), (false, true), (false, false)] {
            let word = word();
            assert!(!word.let_go(0b101, first));
            assert!(word.let_go(0b010, last));
            assert_eq!((bits(&word).0, word.held(), word.tidy()), (0, 0, false));
        }
    }

    #[test]
    fn a_word_whose_last_two_did_not_see_each_other_go_is_tidied_once() {
        // What went elsewhere has cleared some of what had gone at home, or none, or there was no more.
        for (held, gone) in [(0b010, 0b011), (0b011, 0b011), (0b010, 0b010)] {
            let word = word();
            word.held.store(held, Ordering::Relaxed);
            word.gone.store(gone, Ordering::Relaxed);
            assert_eq!(word.held(), 0);
            assert!(word.tidy());
            assert_eq!(bits(&word).0, 0);
            assert!(!word.tidy());
        }
    }

    #[test]
    fn a_word_that_is_held_is_tidied_of_what_has_gone_and_is_not_over() {
        let word = word();
        assert!(!word.tidy());
        assert!(!word.let_go(0b001, true));
        assert!(!word.tidy());
        assert_eq!(bits(&word), (0b110, 0b001));
        assert!(!word.tidy());
        assert_eq!((bits(&word).0, word.held()), (0b110, 0b110));
    }
}
