//! The outputs of one run, on their way to whoever called.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::hold::SheetRef;
use crate::storage::Kind;
use crate::sync::{Ordering, lock};
use crate::{Epoch, OutputClass, SlotIndex, Storage, Taker, Tensor};

/// The outputs that a run handed back. It holds each of them until it is taken; dropping it lets go of the rest, in bulk.
#[must_use = "dropping it lets go of every output"]
pub struct Outputs {
    sheet: SheetRef,
    epoch: Epoch,
}

impl Outputs {
    /// The outputs of a run that has just begun on the sheet, with the reference that was counted for them.
    pub(crate) fn new(sheet: SheetRef, epoch: Epoch) -> Self {
        Self { sheet, epoch }
    }

    pub(crate) const fn sheet(&self) -> &SheetRef {
        &self.sheet
    }

    /// How many outputs there are, taken ones and those that are not tensors included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sheet.table.outputs.len()
    }

    /// Whether the node has no outputs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The run that made the outputs.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What an output is; none if there is no such output.
    #[must_use]
    pub fn class(&self, output: SlotIndex) -> Option<OutputClass> {
        self.sheet.table.output(output).map(|planned| planned.class)
    }

    /// Takes one output. There is none to take if it was taken before, is read by the backward alone, or is not a tensor.
    #[inline]
    #[track_caller]
    pub fn take(&mut self, output: SlotIndex) -> Option<Tensor> {
        self.take_at(output, Location::caller())
    }

    #[inline]
    fn take_at(&mut self, output: SlotIndex, at: &'static Location<'static>) -> Option<Tensor> {
        let word = self.sheet.waiting.get(output.word() as usize)?;
        let waiting = word.load(Ordering::Relaxed);
        if waiting & output.bit() == 0 {
            return self.take_slowly(output, at);
        }
        word.store(waiting & !output.bit(), Ordering::Relaxed);
        // SAFETY: the output waited, so these outputs were one holder of its slot, and have just ceased to be.
        let hold = unsafe { self.sheet.take_over(output, self.epoch) };
        Some(Tensor::recorded(Storage(Kind::Slot(hold))))
    }

    /// Takes an output that owns no slot, or whose taker is noted.
    #[cold]
    fn take_slowly(&self, output: SlotIndex, at: &'static Location<'static>) -> Option<Tensor> {
        let tensor = self.let_go_of(output)?;
        if self.sheet.ledger.notes_takers()
            && let Some(hold) = tensor.storage().hold()
        {
            let producer = Arc::clone(&self.sheet.table.producer);
            hold.note(Taker { producer, output, at, times: 1 });
        }
        Some(tensor)
    }

    /// Takes an output that does not wait where taking it is fast.
    fn let_go_of(&self, output: SlotIndex) -> Option<Tensor> {
        let sheet = &*self.sheet;
        let word = sheet.waiting_slow.get(output.word() as usize)?;
        let waiting = word.load(Ordering::Relaxed);
        if waiting & output.bit() == 0 {
            return None;
        }
        word.store(waiting & !output.bit(), Ordering::Relaxed);
        let planned = sheet.table.output(output)?;
        let view = planned.layout.clone().map(|layout| (layout, sheet.table.place(output).offset));
        match planned.class {
            OutputClass::Fresh => {
                // SAFETY: the output waited, so these outputs were one holder of its slot, and have just ceased to be.
                let hold = unsafe { self.sheet.take_over(output, self.epoch) };
                Some(Tensor::recorded(Storage(Kind::Slot(hold))))
            }
            OutputClass::Sibling(owner) => {
                // SAFETY: the table counts one holder of the owner's slot for each output that waits on it; this one has
                // just ceased to wait.
                let hold = unsafe { self.sheet.take_over(owner, self.epoch) };
                Some(Tensor::checked(Storage(Kind::Slot(hold)), view))
            }
            OutputClass::Empty => Some(Tensor::checked(Storage::empty(), view)),
            OutputClass::NotTensor => None,
            _ => {
                let mut borrowed = lock(&sheet.borrowed);
                let at = borrowed.binary_search_by_key(&output, |(of, _)| *of).ok()?;
                borrowed.get_mut(at)?.1.take()
            }
        }
    }

    /// Takes every output that is left, in order; none stands for what cannot be taken.
    #[track_caller]
    pub fn take_all(&mut self) -> TakeAll<'_> {
        let at = Location::caller();
        TakeAll { length: self.len() as u32, next: 0, left: 0, at, outputs: self }
    }
}

/// Takes outputs one after the other, 64 of them off the sheet at a time. What it does not come to stays to be taken.
#[derive(Debug)]
pub struct TakeAll<'a> {
    outputs: &'a mut Outputs,
    next: u32,
    length: u32,
    /// The outputs of the word of `next - 1` that are off the sheet and not taken yet.
    left: u64,
    /// Whose they will be.
    at: &'static Location<'static>,
}

impl Iterator for TakeAll<'_> {
    type Item = Option<Tensor>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.length {
            return None;
        }
        let output = SlotIndex::new(self.next);
        self.next += 1;
        if output.bit() == 1
            && let Some(word) = self.outputs.sheet.waiting.get(output.word() as usize)
        {
            self.left = word.load(Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
        }
        if self.left & output.bit() == 0 {
            return Some(self.outputs.take_slowly(output, self.at));
        }
        self.left &= !output.bit();
        // SAFETY: the output waited when its word was taken off the sheet, so these outputs were one holder of its slot; its
        // bit in `left` stood for that, and has just been cleared.
        let hold = unsafe { self.outputs.sheet.take_over(output, self.outputs.epoch) };
        Some(Some(Tensor::recorded(Storage(Kind::Slot(hold)))))
    }

    /// As [`next`](Self::next) until the end, with a look at the sheet for each word instead of each output.
    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(mut self, start: B, mut each: F) -> B {
        let mut all = start;
        while self.next < self.length {
            let Some(output) = self.next() else { break };
            all = each(all, output);
            let word_ends = self.length.min(self.next.next_multiple_of(64));
            while self.next < word_ends {
                let output = SlotIndex::new(self.next);
                if self.left & output.bit() == 0 {
                    break;
                }
                self.next += 1;
                self.left &= !output.bit();
                // SAFETY: as in `next`: the bit in `left` stood for one holder of the slot, and has just been cleared.
                let hold = unsafe { self.outputs.sheet.take_over(output, self.outputs.epoch) };
                all = each(all, Some(Tensor::recorded(Storage(Kind::Slot(hold)))));
            }
        }
        all
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.length - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for TakeAll<'_> {}

impl Drop for TakeAll<'_> {
    fn drop(&mut self) {
        let word = self.next.checked_sub(1).map(|last| SlotIndex::new(last).word() as usize);
        if let Some(word) = word.and_then(|word| self.outputs.sheet.waiting.get(word))
            && self.left != 0
        {
            word.store(self.left, Ordering::Relaxed);
        }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let table = &self.sheet.table;
        for (word, waiting) in (0..).zip(&self.sheet.waiting) {
            let left = waiting.load(Ordering::Relaxed);
            if left != 0 {
                waiting.store(0, Ordering::Relaxed);
                // SAFETY: each of these outputs waited, so this was one holder of its slot, and has just ceased to be.
                unsafe { self.sheet.release_word(word, left) };
            }
        }
        for (word, waiting) in (0..).zip(&self.sheet.waiting_slow) {
            let left = waiting.load(Ordering::Relaxed);
            for output in SlotIndex::in_word(word, left) {
                drop(self.let_go_of(output));
            }
        }
        if !table.sourced.is_empty() {
            // Each is dropped without the lock, since what owns its memory may be anybody's.
            while let Some(borrowed) = { lock(&self.sheet.borrowed).pop() } {
                drop(borrowed);
            }
        }
        self.sheet.outputs_gone();
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outputs({} of {} in {})", self.len(), self.sheet.table.producer, self.epoch)
    }
}
