//! What a backward reads, held by its token.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

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

impl Drop for SavedOutputs {
    fn drop(&mut self) {
        for (word, slots) in (0..).zip(&self.sheet.table.saved) {
            if *slots != 0 {
                // SAFETY: the table counts the backward as one holder of each of these slots, which ends here.
                unsafe { self.sheet.release_word(word, *slots) };
            }
        }
        if !self.sheet.table.sourced.is_empty() {
            // Each is dropped without the lock, since what owns its memory may be anybody's.
            while let Some(saved) = { lock(&self.sheet.saved_elsewhere).pop() } {
                drop(saved);
            }
        }
        self.sheet.saved_gone();
    }
}

impl fmt::Debug for SavedOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let saved: Vec<_> = self.outputs().map(SlotIndex::get).collect();
        write!(f, "SavedOutputs({saved:?} of {} in {})", self.sheet.table.producer, self.epoch())
    }
}
