//! The outputs of one run, on their way to whoever called.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::hold::SheetRef;
use crate::sync::{Ordering, lock};
use crate::word::Word;
use crate::{Epoch, OutputClass, SlotIndex, Storage, Taker, Tensor};

/// The outputs that a run handed back. It holds each of them until it is taken; dropping it lets go of the rest, in bulk.
#[must_use = "dropping it lets go of every output"]
pub struct Outputs {
    sheet: SheetRef,
}

impl Outputs {
    /// The outputs of a run that has just begun on the sheet, with the reference that was counted for them.
    pub(crate) fn new(sheet: SheetRef) -> Self {
        Self { sheet }
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
    pub fn epoch(&self) -> Epoch {
        self.sheet.epoch()
    }

    /// What an output is; none if there is no such output.
    #[must_use]
    pub fn class(&self, output: SlotIndex) -> Option<OutputClass> {
        self.sheet.table.output(output).map(|planned| planned.class)
    }

    /// Takes one output. There is none to take if it was taken before, is read by the backward alone, or is not a tensor.
    #[inline(always)]
    #[track_caller]
    pub fn take(&mut self, output: SlotIndex) -> Option<Tensor> {
        let word = self.sheet.words.get(output.word() as usize)?;
        let waiting = word.waiting.load(Ordering::Relaxed);
        if waiting & output.bit() == 0 {
            return self.take_slowly(output, Location::caller());
        }
        word.waiting.store(waiting & !output.bit(), Ordering::Relaxed);
        // SAFETY: the output waited, so these outputs were one holder of its slot, and have just ceased to be.
        let hold = unsafe { self.sheet.take_over(output) };
        Some(Tensor::recorded(Storage::from(hold)))
    }

    /// As [`take_at`](Self::take_at). What it makes has a place of its own here, so that the compiler need not keep one in
    /// memory for outputs that are taken fast.
    #[inline(always)]
    fn take_slowly(&self, output: SlotIndex, at: &'static Location<'static>) -> Option<Tensor> {
        let mut made = None;
        self.take_at(output, at, &mut made);
        made.take()
    }

    /// Takes an output that owns no slot, or whose taker is noted.
    #[cold]
    #[inline(never)]
    fn take_at(&self, output: SlotIndex, at: &'static Location<'static>, into: &mut Option<Tensor>) {
        let Some(tensor) = self.let_go_of(output) else { return };
        if self.sheet.ledger.notes_takers()
            && let Some(hold) = tensor.storage().hold()
        {
            let producer = Arc::clone(&self.sheet.table.producer);
            hold.note(Taker { producer, output, at, times: 1 });
        }
        *into = Some(tensor);
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
                let hold = unsafe { self.sheet.take_over(output) };
                Some(Tensor::recorded(Storage::from(hold)))
            }
            OutputClass::Sibling(owner) => {
                // SAFETY: the table counts one holder of the owner's slot for each output that waits on it; this one has
                // just ceased to wait.
                let hold = unsafe { self.sheet.take_over(owner) };
                Some(Tensor::checked(Storage::from(hold), view))
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

    /// Takes every output that is left, in order, to the end of a list; none stands for what cannot be taken.
    ///
    /// It leaves the same as extending the list by [`take_all`](Self::take_all), but makes room once, and takes 64 outputs that
    /// all wait without a look at each.
    pub fn take_into(&mut self, list: &mut Vec<Option<Tensor>>) {
        let length = self.len() as u32;
        list.reserve(length as usize);
        for word in 0..length.div_ceil(64) {
            let outputs = 64 * word..length.min(64 * (word + 1));
            let all = u64::MAX >> (64 - outputs.len());
            let waiting = self.sheet.words.get(word as usize).map(|word| &word.waiting);
            if let Some(waiting) = waiting.filter(|waiting| waiting.load(Ordering::Relaxed) == all) {
                waiting.store(0, Ordering::Relaxed);
                // SAFETY: the outputs waited when their word was taken off the sheet, so these outputs were one holder of the
                // slot of each, and have just ceased to be; the range has each output of the word once.
                let holds = unsafe { self.sheet.take_over_each(outputs) };
                list.extend(holds.map(|hold| Some(Tensor::recorded(Storage::from(hold)))));
            } else {
                list.extend(outputs.map(|output| self.take(SlotIndex::new(output))));
            }
        }
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
            && let Some(word) = self.outputs.sheet.words.get(output.word() as usize)
        {
            self.left = word.waiting.load(Ordering::Relaxed);
            word.waiting.store(0, Ordering::Relaxed);
        }
        if self.left & output.bit() == 0 {
            return Some(self.outputs.take_slowly(output, self.at));
        }
        self.left &= !output.bit();
        // SAFETY: the output waited when its word was taken off the sheet, so these outputs were one holder of its slot; its
        // bit in `left` stood for that, and has just been cleared.
        let hold = unsafe { self.outputs.sheet.take_over(output) };
        Some(Some(Tensor::recorded(Storage::from(hold))))
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
                let hold = unsafe { self.outputs.sheet.take_over(output) };
                all = each(all, Some(Tensor::recorded(Storage::from(hold))));
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
        if let Some(word) = word.and_then(|word| self.outputs.sheet.words.get(word))
            && self.left != 0
        {
            word.waiting.store(self.left, Ordering::Relaxed);
        }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let table = &self.sheet.table;
        for (word, Word { waiting, .. }) in (0..).zip(&self.sheet.words) {
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
        write!(f, "Outputs({} of {} in {})", self.len(), self.sheet.table.producer, self.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Ledger, PlannedOutput, Readers, Slab, Step};
    use graphgrove_device::DevicePtr;

    fn slot(number: u32) -> SlotIndex {
        SlotIndex::new(number)
    }

    /// A slab of 150 outputs, of which the second 64 hold one that only the backward reads, an alias, and a value.
    fn slab() -> Slab {
        let layout = || Layout::of::<f32>(&[8]).unwrap();
        let planned = (0..150).map(|number| match number {
            70 => PlannedOutput::alias(OutputClass::Sibling(slot(69)), layout(), 0),
            71 => PlannedOutput::not_tensor(),
            _ => {
                let fresh = PlannedOutput::fresh(DevicePtr::new(0x1000 + 512 * number), 512, layout());
                fresh.read_by(if number == 72 { Readers::Backward } else { Readers::Caller })
            }
        });
        Slab::new(&Ledger::new(), "F", 0, planned.collect()).unwrap()
    }

    fn outputs(slab: &mut Slab) -> Outputs {
        slab.hand_back(Step::new(1), |_, _| None).unwrap().outputs
    }

    #[test]
    fn a_list_gets_what_taking_one_after_the_other_gives() {
        let (mut slab, mut same) = (slab(), slab());
        for taken in [vec![], vec![3], vec![64, 130], vec![70], vec![69, 149]] {
            let (mut outputs, mut others) = (outputs(&mut slab), outputs(&mut same));
            for &output in &taken {
                drop((outputs.take(slot(output)), others.take(slot(output))));
            }
            let mut list = vec![None];
            outputs.take_into(&mut list);
            let expected: Vec<_> = others.take_all().collect();
            assert_eq!(list.len(), 151);
            for (output, (got, expected)) in list[1..].iter().zip(&expected).enumerate() {
                let seen = |tensor: &Option<Tensor>| {
                    tensor.as_ref().map(|tensor| (tensor.address().unwrap(), tensor.signature()))
                };
                assert_eq!(seen(got), seen(expected), "output {output} with {taken:?} taken before");
            }
            let live = |slab: &Slab| slab.live().collect::<Vec<_>>();
            drop((outputs, others));
            assert_eq!(live(&slab), live(&same));
            drop((list, expected));
            assert_eq!((live(&slab), live(&same)), (vec![], vec![]));
        }
    }

    #[test]
    fn an_output_is_taken_into_one_list_only() {
        let mut slab = slab();
        let mut outputs = outputs(&mut slab);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        outputs.take_into(&mut first);
        outputs.take_into(&mut second);
        assert_eq!(first.iter().flatten().count(), 148);
        assert_eq!((second.len(), second.iter().flatten().count()), (150, 0));
        first.truncate(1);
        assert_eq!(slab.live().collect::<Vec<_>>(), [slot(0)]);
    }
}
