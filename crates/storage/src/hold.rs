//! References to sheets and holds of slots: the only unsafe code of the crate's core.
//!
//! Both are a pointer without a count of their own to touch. With an `Arc` to the sheet in every handle instead, taking an
//! output costs one more atomic operation, and so do cloning a handle and dropping it; the example `handle_cost` measures
//! both. What makes the pointer valid is the invariant that the module [`sheet`](crate::sheet) states: `refs` is not zero
//! while there is a reference, and not while any slot is held.

use std::ops::{Deref, Range};
use std::ptr::NonNull;

use crate::sheet::{Found, Sheet};
use crate::stale::Stale;
use crate::storage::Spot;
use crate::sync::{Ordering, fence, lock};
use crate::{Epoch, SlotIndex, SlotValue, Taker};

/// Takes one out of the sheet's references, and frees the sheet if it was the last.
///
/// # Safety
/// `sheet` came from [`SheetRef::new`], and the caller owns one of its references and does not use it afterwards.
#[inline]
unsafe fn forget_ref(sheet: NonNull<Sheet>) {
    // SAFETY: the caller's reference keeps the sheet alive until it is taken out by this very operation.
    let before = unsafe { sheet.as_ref() }.refs.fetch_sub(1, Ordering::Release);
    if before == 1 {
        // Acquire, paired with the release of every other reference that went: their uses come before the free.
        fence(Ordering::Acquire);
        // SAFETY: no reference is left, so by the invariant of `refs` nothing is held either and this pointer is the last.
        drop(unsafe { Box::from_raw(sheet.as_ptr()) });
    }
}

/// A counted reference to a sheet, which says nothing about its slots.
pub(crate) struct SheetRef(NonNull<Sheet>);

// SAFETY: a sheet is `Send + Sync`, and its count is atomic: this is an `Arc` whose count others take part in.
unsafe impl Send for SheetRef {}
// SAFETY: as above.
unsafe impl Sync for SheetRef {}

impl SheetRef {
    pub(crate) fn new(sheet: Sheet) -> Self {
        debug_assert_eq!(sheet.refs.load(Ordering::Relaxed), 1);
        Self(NonNull::from(Box::leak(Box::new(sheet))))
    }

    /// Another reference, which the caller has already counted.
    ///
    /// # Safety
    /// One of the sheet's `refs` belongs to nobody, and to this reference from here on.
    #[inline]
    pub(crate) unsafe fn counted(&self) -> Self {
        Self(self.0)
    }

    /// Whether this is the only reference, and nothing is held.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 1
    }

    /// Turns one holder of a slot into a hold.
    ///
    /// # Safety
    /// The slot is held in the run `epoch`, and the caller is one of the holders and gives that up.
    #[inline]
    pub(crate) unsafe fn take_over(&self, slot: SlotIndex, epoch: Epoch) -> Hold {
        Hold { sheet: self.0, slot, epoch }
    }

    /// Turns one holder of each of these slots into a hold, as each is asked for.
    ///
    /// # Safety
    /// As [`take_over`](Self::take_over), for each of the slots that the iterator yields.
    #[inline]
    pub(crate) unsafe fn take_over_each(
        &self,
        slots: Range<u32>,
        epoch: Epoch,
    ) -> impl Iterator<Item = Hold> + use<> {
        // A copy of the pointer, or it would be read anew for each: the compiler cannot know that nobody writes to it.
        let sheet = self.0;
        slots.map(move |slot| Hold { sheet, slot: SlotIndex::new(slot), epoch })
    }

    /// Takes one holder off each of these slots of a word.
    ///
    /// # Safety
    /// The caller is a holder of each of the slots and gives that up.
    pub(crate) unsafe fn release_word(&self, word: u32, slots: u64) {
        if self.deref().release_word(word, slots) {
            // SAFETY: the word's one belonged to the slots that were just cleared; `self` still is a reference.
            unsafe { forget_ref(self.0) };
        }
    }
}

impl Deref for SheetRef {
    type Target = Sheet;

    #[inline]
    fn deref(&self) -> &Sheet {
        // SAFETY: this is a counted reference, so `refs` is not zero and the sheet has not been freed.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for SheetRef {
    #[inline]
    fn clone(&self) -> Self {
        self.refs.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for SheetRef {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the reference was counted, and goes with this drop.
        unsafe { forget_ref(self.0) };
    }
}

/// One holder of one slot in one run: clone and drop are one atomic operation each, and the drop of the last of a slot
/// clears the slot's bit.
pub(crate) struct Hold {
    sheet: NonNull<Sheet>,
    slot: SlotIndex,
    epoch: Epoch,
}

// SAFETY: a hold gives shared access to a sheet, which is `Send + Sync`, and its own bookkeeping is atomic.
unsafe impl Send for Hold {}
// SAFETY: as above.
unsafe impl Sync for Hold {}

impl Hold {
    #[inline]
    pub(crate) fn sheet(&self) -> &Sheet {
        // SAFETY: the slot is held, so its word is not zero, so `refs` is not zero and the sheet has not been freed.
        unsafe { self.sheet.as_ref() }
    }

    #[inline]
    pub(crate) fn slot(&self) -> SlotIndex {
        self.slot
    }

    pub(crate) fn value(&self) -> SlotValue {
        SlotValue { slab: self.sheet().table.id, slot: self.slot, epoch: self.epoch }
    }

    /// Whether this holds on that sheet, in that run, and no closer look at the sheet's past is needed to say that the value is
    /// there.
    #[inline]
    pub(crate) fn is_current_on(&self, sheet: &Sheet, epoch: Epoch) -> bool {
        std::ptr::eq(self.sheet.as_ptr(), sheet) && self.epoch == epoch && sheet.is_current(epoch)
    }

    /// A reference to the sheet that holds no slot.
    pub(crate) fn sheet_ref(&self) -> SheetRef {
        self.sheet().refs.fetch_add(1, Ordering::Relaxed);
        SheetRef(self.sheet)
    }

    /// Notes who was given this.
    pub(crate) fn note(&self, taker: Taker) {
        lock(&self.sheet().takers).note(self.slot, self.epoch, taker);
    }

    /// Where the value is, unless it is gone.
    #[inline]
    pub(crate) fn find(&self) -> Result<Spot, Box<Stale>> {
        let sheet = self.sheet();
        let found =
            if sheet.is_current(self.epoch) { Found::Here } else { sheet.look(self.slot, self.epoch)? };
        Ok(match found {
            Found::Here => Spot::Slot(sheet.table.place(self.slot)),
            Found::Moved(block) => Spot::Moved(block),
        })
    }
}

impl Clone for Hold {
    #[inline]
    fn clone(&self) -> Self {
        self.sheet().hold_again(self.slot);
        Self { sheet: self.sheet, slot: self.slot, epoch: self.epoch }
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        if self.sheet().release(self.slot) {
            // SAFETY: this hold cleared the last bit of its word, so the word's one is its to take out, and the sheet is not
            // used afterwards.
            unsafe { forget_ref(self.sheet) };
        }
    }
}
