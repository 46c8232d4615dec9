//! References to sheets and holds of slots: the only unsafe code of the crate's core.
//!
//! Both are a pointer without a count of their own to touch. With an `Arc` to the sheet in every handle instead, taking an
//! output costs one more atomic operation, and so do cloning a handle and dropping it; the example `handle_cost` measures
//! both. What makes the pointer valid is the invariant that the module [`sheet`](crate::sheet) states: `refs` is not zero
//! while there is a reference, and not while any slot is held.

use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

use crate::sheet::{Found, Sheet};
use crate::stale::Stale;
use crate::storage::Spot;
use crate::sync::{Ordering, fence, lock};
use crate::{Epoch, SlotIndex, SlotValue, Taker, orphans};

/// Takes one out of the sheet's references, and frees the sheet if it was the last.
///
/// # Safety
/// `sheet` came from [`SheetRef::new`], and the caller owns one of its references and does not use it afterwards.
#[inline]
unsafe fn forget_ref(sheet: NonNull<Sheet>) {
    // SAFETY: the caller's reference keeps the sheet alive until it is taken out by this very operation.
    let before = unsafe { sheet.as_ref() }.refs.fetch_sub(1, Ordering::Release);
    // One comparison for both: an orphan's references are negative.
    if before.cast_signed() <= 1 {
        // SAFETY: the references that are left are these, and the caller does not use the sheet afterwards.
        unsafe { free_or_sweep(sheet, before - 1) };
    }
}

/// Frees a sheet to which no reference is left, or only that of the list of orphans; or has the list look at it. It is a
/// function of its own so that letting go of a handle need not save registers for it.
///
/// # Safety
/// `sheet` came from [`SheetRef::new`], and `left` references are left to it. It is not used afterwards.
#[cold]
#[inline(never)]
unsafe fn free_or_sweep(sheet: NonNull<Sheet>, left: usize) {
    match left & !ORPHAN {
        0 => {}
        1 => return orphans::free(sheet.addr().get()),
        _ => return orphans::look_at(sheet.addr().get()),
    }
    // Acquire, paired with the release of every other reference that went: their uses come before the free.
    fence(Ordering::Acquire);
    // SAFETY: no reference is left, so by the invariant of `refs` nothing is held either and this pointer is the last.
    drop(unsafe { Box::from_raw(sheet.as_ptr()) });
}

/// Takes the one of a word of which nothing is held any more out of the sheet's references.
///
/// # Safety
/// As [`forget_ref`]: the word's one belongs to the caller, who has let go of the last slot of the word.
#[inline]
unsafe fn forget_word(sheet: NonNull<Sheet>) {
    // SAFETY: the word's one is still in the sheet's references, so the sheet is still there.
    unsafe { sheet.as_ref() }.ledger.remove_words(1);
    // SAFETY: the word's one is the caller's, who does not use the sheet afterwards.
    unsafe { forget_ref(sheet) };
}

/// Set in the references of a sheet on the list of [`orphans`].
pub(crate) const ORPHAN: usize = 1 << (usize::BITS - 1);

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
        self.refs.load(Ordering::Acquire) & !ORPHAN == 1
    }

    /// As [`is_sole`](Self::is_sole), after a look at each word for what its last holders have left undone. It is not for
    /// orphans, which another thread may be about to let go of.
    #[cold]
    pub(crate) fn is_over(&self) -> bool {
        self.tidy();
        self.is_sole()
    }

    /// Where the sheet lies.
    pub(crate) fn address(&self) -> usize {
        self.0.addr().get()
    }

    /// Marks the sheet as one on the list of orphans.
    pub(crate) fn orphan(&self) {
        self.refs.fetch_or(ORPHAN, Ordering::Relaxed);
    }

    /// Turns one holder of a slot into a hold.
    ///
    /// # Safety
    /// The slot is held, and the caller is one of the holders and gives that up.
    #[inline]
    pub(crate) unsafe fn take_over(&self, slot: SlotIndex) -> Hold {
        Hold { sheet: self.0, slot: u64::from(slot.get()) }
    }

    /// Turns one holder of each of these slots into a hold, as each is asked for.
    ///
    /// # Safety
    /// As [`take_over`](Self::take_over), for each of the slots that the iterator yields.
    #[inline]
    pub(crate) unsafe fn take_over_each(&self, slots: Range<u32>) -> impl Iterator<Item = Hold> + use<> {
        // A copy of the pointer, or it would be read anew for each: the compiler cannot know that nobody writes to it.
        let sheet = self.0;
        slots.map(move |slot| Hold { sheet, slot: u64::from(slot) })
    }

    /// Takes one holder off each of these slots of a word.
    ///
    /// # Safety
    /// The caller is a holder of each of the slots and gives that up.
    pub(crate) unsafe fn release_word(&self, word: u32, slots: u64) {
        if self.release_of(word).is_some_and(|word| word.release(slots)) {
            // SAFETY: the word's one belonged to the slots that were just cleared; `self` still is a reference.
            unsafe { forget_word(self.0) };
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
///
/// Its run is that of its sheet, which begins no other one while a slot is held.
#[repr(C)]
pub(crate) struct Hold {
    sheet: NonNull<Sheet>,
    /// The slot's number, in a whole word: with room to spare, the compiler copies what lies there.
    slot: u64,
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
        SlotIndex::new(self.slot as u32)
    }

    /// The hold as plain words, which are worth a holder.
    #[inline]
    pub(crate) fn into_parts(self) -> (NonNull<Sheet>, u64) {
        let hold = ManuallyDrop::new(self);
        (hold.sheet, hold.slot)
    }

    /// The hold that became these words.
    ///
    /// # Safety
    /// They came from [`into_parts`](Self::into_parts), and no other hold is made of them.
    #[inline]
    pub(crate) unsafe fn from_parts(sheet: NonNull<Sheet>, slot: u64) -> Self {
        Self { sheet, slot }
    }

    pub(crate) fn value(&self) -> SlotValue {
        SlotValue { slab: self.sheet().table.id, slot: self.slot(), epoch: self.epoch() }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.sheet().epoch()
    }

    /// Whether this holds on that sheet, and no closer look at the sheet's past is needed to say that the value is there.
    #[inline]
    pub(crate) fn is_untouched_on(&self, sheet: &Sheet) -> bool {
        std::ptr::eq(self.sheet.as_ptr(), sheet) && sheet.is_untouched()
    }

    /// A reference to the sheet that holds no slot.
    pub(crate) fn sheet_ref(&self) -> SheetRef {
        self.sheet().refs.fetch_add(1, Ordering::Relaxed);
        SheetRef(self.sheet)
    }

    /// Notes who was given this.
    pub(crate) fn note(&self, taker: Taker) {
        lock(&self.sheet().takers).note(self.slot(), self.epoch(), taker);
    }

    /// Where the value is, unless it is gone.
    #[inline]
    pub(crate) fn find(&self) -> Result<Spot, Box<Stale>> {
        let sheet = self.sheet();
        let found = if sheet.is_untouched() { Found::Here } else { sheet.look(self.slot(), self.epoch())? };
        Ok(match found {
            Found::Here => Spot::Slot(sheet.table.place(self.slot())),
            Found::Moved(block) => Spot::Moved(block),
        })
    }
}

impl Clone for Hold {
    #[inline]
    fn clone(&self) -> Self {
        self.sheet().hold_again(self.slot());
        Self { sheet: self.sheet, slot: self.slot }
    }
}

impl Drop for Hold {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(word) = self.sheet().release_of(self.slot().word()) else { return };
        match word.release_sole(self.slot()) {
            Some(false) => {}
            // SAFETY: this hold was the last of its word, so the word's one is its to take out, and the sheet is not used
            // afterwards.
            Some(true) => unsafe { forget_word(self.sheet) },
            // SAFETY: this is a holder of the slot, and gives that up.
            None => unsafe { release_shared(self.sheet, self.slot()) },
        }
    }
}

/// Takes one holder off a slot that may have others. It is a function of its own so that letting go of a handle that has no
/// others need not save registers for it.
///
/// # Safety
/// The caller is a holder of the slot and gives that up.
#[inline(never)]
unsafe fn release_shared(sheet: NonNull<Sheet>, slot: SlotIndex) {
    // SAFETY: the caller holds the slot, so the sheet is there.
    let Some(word) = unsafe { sheet.as_ref() }.release_of(slot.word()) else { return };
    if word.release(slot.bit()) {
        // SAFETY: the word's one belonged to the slot that was just let go of, and the sheet is not used afterwards.
        unsafe { forget_word(sheet) };
    }
}
