//! What a backward reads, held by its token.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::hold::SheetRef;
use crate::sync::lock;
use crate::{Epoch, OutputClass, SlotIndex, Storage, Taker, Tensor};

/// The outputs of one run that its backward reads. It holds them all until it is dropped, which lets go of them in bulk.
///
/// It belongs with the token of the pending backward: both go together. A tensor made from it counts by itself and may
/// outlive it.
#[must_use = "dropping it lets go of everything that the backward reads"]
pub struct SavedOutputs {
    sheet: SheetRef,
}

impl SavedOutputs {
    /// The saved outputs of a run that has just begun on the sheet, with the reference that was counted for them.
    pub(crate) fn new(sheet: SheetRef) -> Self {
        Self { sheet }
    }

    /// The run that made the outputs.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.sheet.epoch()
    }

    /// The outputs that are saved.
    pub fn outputs(&self) -> impl Iterator<Item = SlotIndex> {
        let outputs = (0..).map(SlotIndex::new).zip(&self.sheet.table.outputs);
        outputs.filter(|(_, planned)| planned.readers.backward()).map(|(output, _)| output)
    }

    /// A tensor of a saved output; none if it is not saved or not a tensor.
    #[must_use]
    #[track_caller]
    pub fn tensor(&self, output: SlotIndex) -> Option<Tensor> {
        let tensor = self.make(output)?;
        if self.sheet.ledger.notes_takers()
            && let Some(hold) = tensor.storage().hold()
        {
            let producer = Arc::clone(&self.sheet.table.producer);
            hold.note(Taker { producer, output, at: Location::caller(), times: 1 });
        }
        Some(tensor)
    }

    /// Takes these saved outputs, in this order, as tensors that hold them from here on, and lets go of all others. One that is not
    /// saved or not a tensor is left out.
    ///
    /// It costs less than a [`tensor`](Self::tensor) of each and a drop: what held an output becomes its tensor.
    #[track_caller]
    pub fn take_each(self, outputs: &[SlotIndex], mut each: impl FnMut(Tensor)) {
        if self.sheet.ledger.notes_takers() {
            outputs.iter().filter_map(|output| self.tensor(*output)).for_each(each);
            return;
        }
        let mut taking = Taking::of(self, outputs);
        for &output in outputs {
            if taking.is_taken_over(output) {
                // SAFETY: the saved outputs were a holder of the slot, and have just ceased to be.
                let hold = unsafe { taking.saved.sheet.take_over(output) };
                each(Tensor::recorded(Storage::from(hold)));
            } else if let Some(tensor) = taking.saved.make(output) {
                each(tensor);
            }
        }
    }

    fn make(&self, output: SlotIndex) -> Option<Tensor> {
        let planned = self.sheet.table.output(output).filter(|planned| planned.readers.backward())?;
        let view = planned.layout.clone().map(|layout| (layout, self.sheet.table.place(output).offset));
        let owner = match planned.class {
            OutputClass::Fresh => output,
            OutputClass::Sibling(owner) => owner,
            OutputClass::Empty => return Some(Tensor::checked(Storage::empty(), view)),
            OutputClass::NotTensor => return None,
            _ => {
                let elsewhere = lock(&self.sheet.saved_elsewhere);
                return elsewhere.iter().find(|(of, _)| *of == output).map(|(_, tensor)| tensor.clone());
            }
        };
        self.sheet.hold_again(owner);
        // SAFETY: the saved outputs are a holder of the slot, so it is held; the holder taken over was added just now.
        let hold = unsafe { self.sheet.take_over(owner) };
        Some(Tensor::checked(Storage::from(hold), view))
    }
}

/// Saved outputs of which some are being taken over.
struct Taking {
    saved: ManuallyDrop<SavedOutputs>,
    /// By word, the slots that are asked for by one output alone: those can be taken over.
    once: SmallVec<[u64; 4]>,
    /// By word, the slots that were taken over.
    gone: SmallVec<[u64; 4]>,
}

impl Taking {
    fn of(saved: SavedOutputs, outputs: &[SlotIndex]) -> Self {
        let words = saved.sheet.table.saved.len();
        let (mut once, gone) = (SmallVec::from_elem(0, words), SmallVec::from_elem(0, words));
        let mut again: SmallVec<[u64; 4]> = SmallVec::from_elem(0, words);
        for &output in outputs {
            let planned = saved.sheet.table.output(output).filter(|planned| planned.readers.backward());
            let owner = match planned.map(|planned| planned.class) {
                Some(OutputClass::Fresh) => output,
                Some(OutputClass::Sibling(owner)) => {
                    // A tensor of a part of the slot is made while the slot is held.
                    if let Some(again) = again.get_mut(owner.word() as usize) {
                        *again |= owner.bit();
                    }
                    continue;
                }
                _ => continue,
            };
            let word = owner.word() as usize;
            if let (Some(once), Some(again)) = (once.get_mut(word), again.get_mut(word)) {
                *again |= *once & owner.bit();
                *once |= owner.bit();
            }
        }
        for (once, again) in once.iter_mut().zip(again) {
            *once &= !again;
        }
        Self { saved: ManuallyDrop::new(saved), once, gone }
    }

    /// Whether the holder of an output's slot becomes the output's tensor. It then is no holder of these any more.
    fn is_taken_over(&mut self, output: SlotIndex) -> bool {
        let word = output.word() as usize;
        let (Some(once), Some(gone)) = (self.once.get(word), self.gone.get_mut(word)) else { return false };
        *gone |= once & output.bit();
        once & output.bit() != 0
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let_go(&self.saved.sheet, &self.gone);
        // SAFETY: this is the end of the saved outputs, whose own drop does not run, so the reference is dropped once.
        unsafe { std::ptr::drop_in_place(&raw mut self.saved.sheet) };
    }
}

impl Drop for SavedOutputs {
    fn drop(&mut self) {
        let_go(&self.sheet, &[]);
    }
}

/// Lets go of all that the saved outputs of a sheet hold, but for these slots.
fn let_go(sheet: &SheetRef, gone: &[u64]) {
    for (word, saved) in (0..).zip(&sheet.table.saved) {
        let slots = saved & !gone.get(word as usize).copied().unwrap_or(0);
        if slots != 0 {
            // SAFETY: the table counts the backward as one holder of each of these slots, which ends here.
            unsafe { sheet.release_word(word, slots) };
        }
    }
    if !sheet.table.sourced.is_empty() {
        // Each is dropped without the lock, since what owns its memory may be anybody's.
        while let Some(saved) = { lock(&sheet.saved_elsewhere).pop() } {
            drop(saved);
        }
    }
    sheet.saved_gone();
}

impl fmt::Debug for SavedOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let saved: Vec<_> = self.outputs().map(SlotIndex::get).collect();
        write!(f, "SavedOutputs({saved:?} of {} in {})", self.sheet.table.producer, self.epoch())
    }
}
