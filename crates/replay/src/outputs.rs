//! The outputs of a call, on their way to whoever called.

use graphgrove_storage::{Outputs, SlotIndex, Tensor};

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
    #[inline]
    pub fn take(&mut self, output: SlotIndex) -> Option<Tensor> {
        match self {
            Self::Bulk(outputs) => outputs.take(output),
            Self::Each(outputs) => outputs.get_mut(output.get() as usize)?.take(),
        }
    }

    /// Takes every output that is left, in order; none stands for what cannot be taken.
    pub fn take_all(&mut self) -> impl Iterator<Item = Option<Tensor>> {
        (0..self.len() as u32).map(|output| self.take(SlotIndex::new(output)))
    }
}
