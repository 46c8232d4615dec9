//! Letting go of slots.

use crate::SlotIndex;
use crate::home::ThreadNumber;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::word::Word;

/// What letting go of slots of one word touches.
///
/// It is atomics alone. As soon as a holder has let go, whoever was the last may free the sheet, and a function to which a
/// reference to the sheet itself was passed promises that it is there until the function returns; no such promise goes with
/// what others may change at any time.
#[derive(Clone, Copy)]
pub(crate) struct Release<'a> {
    /// The number of the run's home thread.
    pub(crate) home: &'a AtomicU64,
    pub(crate) word: &'a Word,
    /// The place of the word.
    pub(crate) at: u32,
    /// The counts of all slots of the sheet.
    pub(crate) extra: &'a [AtomicU32],
}

impl Release<'_> {
    /// Takes the holder off a slot that has had no other one in this run, and returns as [`release`](Self::release); none for a
    /// slot that has had several, which is as it was.
    #[inline]
    pub(crate) fn release_sole(self, slot: SlotIndex) -> Option<bool> {
        let is_home = ThreadNumber::is_current(self.home.load(Ordering::Relaxed));
        (self.word.shared_of(slot.bit()) == 0).then(|| self.word.let_go(slot.bit(), is_home))
    }

    /// Takes one holder off each of these slots. Returns whether nothing of the word is held then: the caller has to take the
    /// word's one out of the sheet's references. In any case it may not touch the sheet otherwise, unless it has a reference.
    pub(crate) fn release(self, slots: u64) -> bool {
        let shared = self.word.shared_of(slots);
        let over = SlotIndex::in_word(self.at, shared)
            .filter(|&slot| self.take_one_off(slot))
            .fold(slots & !shared, |bits, slot| bits | slot.bit());
        // Many at once are worth a locked instruction, which leaves nothing to be tidied up.
        over != 0 && self.word.let_go(over, false)
    }

    /// Takes one holder off a slot that has had several. Returns whether it was the last: the caller then has to let go of the
    /// slot.
    fn take_one_off(self, slot: SlotIndex) -> bool {
        let Some(extra) = self.extra.get(slot.place()) else { return false };
        // A sole holder sees zero here, and nobody can add one meanwhile: that takes a hold.
        if extra.load(Ordering::Acquire) == 0 {
            return true;
        }
        if extra.fetch_sub(1, Ordering::AcqRel) != 0 {
            return false;
        }
        extra.store(0, Ordering::Relaxed); // The others let go between the two lines above, so the count wrapped.
        true
    }
}
