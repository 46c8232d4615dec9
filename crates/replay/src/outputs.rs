//! The outputs of a call, on their way to whoever called.

use graphgrove_storage::{Outputs, SlotIndex, TakeAll, Tensor};

/// The outputs of a call. It holds each of them until it is taken; dropping it lets go of the rest.
#[derive(Debug)]
#[must_use = "dropping it lets go of every output"]
#[non_exhaustive]
pub enum CallOutputs {
    /// In one piece: a tensor is made when it is taken.
    Bulk(Outputs),
    /// One by one, as the reference path makes them.
    Each(Vec<Option<Tensor>>),
}

impl CallOutputs {
    /// How many outputs there are, taken ones and those that are not tensors included.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bulk(outputs) => outputs.len(),
            Self::Each(outputs) => outputs.len(),
        }
    }

    /// Whether there are no outputs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one output. There is none to take if it was taken before, is read by the backward alone, or is not a tensor.
    #[inline(always)]
    pub fn take(&mut self, output: SlotIndex) -> Option<Tensor> {
        match self {
            Self::Bulk(outputs) => outputs.take(output),
            Self::Each(outputs) => {
                // By way of a place of its own, so that the compiler need not keep one in memory for the other way.
                let mut taken = None;
                take_made(outputs, output, &mut taken);
                taken.take()
            }
        }
    }

    /// Takes every output that is left, in order; none stands for what cannot be taken.
    pub fn take_all(&mut self) -> impl ExactSizeIterator<Item = Option<Tensor>> {
        match self {
            Self::Bulk(outputs) => Taking::Bulk(outputs.take_all()),
            Self::Each(outputs) => Taking::Each(outputs.iter_mut()),
        }
    }

    /// Takes every output that is left, in order, to the end of a list; none stands for what cannot be taken.
    ///
    /// It is the cheapest way to have all of them: see [`Outputs::take_into`].
    pub fn take_into(&mut self, list: &mut Vec<Option<Tensor>>) {
        match self {
            Self::Bulk(outputs) => outputs.take_into(list),
            Self::Each(outputs) => list.extend(outputs.iter_mut().map(Option::take)),
        }
    }
}

#[cold]
#[inline(never)]
fn take_made(outputs: &mut [Option<Tensor>], output: SlotIndex, into: &mut Option<Tensor>) {
    *into = outputs.get_mut(output.get() as usize).and_then(Option::take);
}

enum Taking<'a> {
    Bulk(TakeAll<'a>),
    Each(std::slice::IterMut<'a, Option<Tensor>>),
}

impl Iterator for Taking<'_> {
    type Item = Option<Tensor>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Bulk(outputs) => outputs.next(),
            Self::Each(outputs) => outputs.next().map(Option::take),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Bulk(outputs) => outputs.size_hint(),
            Self::Each(outputs) => outputs.size_hint(),
        }
    }

    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, start: B, mut each: F) -> B {
        match self {
            Self::Bulk(outputs) => outputs.fold(start, each),
            Self::Each(outputs) => outputs.fold(start, |all, output| each(all, output.take())),
        }
    }
}

impl ExactSizeIterator for Taking<'_> {}
