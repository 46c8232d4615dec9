//! What a call leaves: its outputs, and the token of its backward.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_replay::CallOutputs;
use graphgrove_storage::{SavedOutputs, SlotIndex, Tensor};
use graphgrove_tree::TokenId;

use crate::engine::Shared;
use crate::{Error, Result};

/// The outputs of a call. What is not taken is let go of when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it lets go of every output"]
pub struct Outputs {
    pub(crate) inner: CallOutputs,
    /// How many of them are for the caller: saved ones come behind.
    pub(crate) returned: usize,
}

impl Outputs {
    /// How many outputs the function has returned.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.returned
    }

    /// Whether the function has returned nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.returned == 0
    }

    /// Takes one output.
    ///
    /// # Errors
    /// [`Error::NoOutput`] if there is none or it was taken before.
    #[inline(always)]
    pub fn take(&mut self, index: usize) -> Result<Tensor> {
        if index < self.returned
            && let Some(tensor) = self.inner.take(SlotIndex::new(index as u32))
        {
            return Ok(tensor);
        }
        Err(self.no_output(index))
    }

    #[cold]
    #[inline(never)]
    fn no_output(&self, index: usize) -> Error {
        Error::NoOutput { index, count: self.returned }
    }

    /// Takes all outputs, of which there must be `N`.
    ///
    /// # Errors
    /// [`Error::OutputCount`], [`Error::NoOutput`] if one was taken before.
    pub fn into_array<const N: usize>(self) -> Result<[Tensor; N]> {
        if N != self.returned {
            return Err(Error::OutputCount { given: self.returned, expected: N });
        }
        let all = self.into_vec()?;
        all.try_into().map_err(|all: Vec<_>| Error::OutputCount { given: all.len(), expected: N })
    }

    /// Takes every output that is left, in order, to the end of a list; none stands for what was taken before.
    ///
    /// It is the cheapest way to have all of them, if the list has room.
    pub fn take_into(&mut self, list: &mut Vec<Option<Tensor>>) {
        let before = list.len();
        self.inner.take_into(list);
        // Outputs behind the returned ones are the backward's, and none of them is to be had here.
        list.truncate(before + self.returned);
    }

    /// Takes all outputs.
    ///
    /// # Errors
    /// [`Error::NoOutput`] if one was taken before.
    pub fn into_vec(mut self) -> Result<Vec<Tensor>> {
        let mut all = Vec::new();
        self.take_into(&mut all);
        let missing = all.iter().position(Option::is_none);
        // It makes the list in place.
        let all = all.into_iter().collect::<Option<Vec<_>>>();
        all.ok_or_else(|| self.no_output(missing.unwrap_or_default()))
    }
}

/// The right to run the backward of one forward call, with all that the forward has saved for it. Dropping it says that the
/// backward will never run.
#[must_use = "dropping it says that the backward will never run"]
pub struct Backward<D: Device> {
    pub(crate) engine: Arc<Shared<D>>,
    /// Which of the engine's pools the forward ran in.
    pub(crate) grove: u64,
    /// None once it is used.
    pub(crate) token: Option<TokenId>,
    pub(crate) saved: Saved,
}

/// What a forward has saved.
pub(crate) enum Saved {
    Nothing,
    /// In slots, which the token holds, in the order in which the function saved them.
    Slots(SavedOutputs, Arc<[SlotIndex]>),
    Tensors(Vec<Tensor>),
}

impl Saved {
    /// How many tensors there are at most.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Slots(_, slots) => slots.len(),
            Self::Tensors(tensors) => tensors.len(),
        }
    }

    /// Gives the tensors away, which alone hold what was saved from here on, so that the backward can give it up.
    pub(crate) fn take_each(self, each: impl FnMut(Tensor)) {
        match self {
            Self::Nothing => {}
            Self::Slots(saved, slots) => saved.take_each(&slots, each),
            Self::Tensors(tensors) => tensors.into_iter().for_each(each),
        }
    }
}

impl<D: Device> Drop for Backward<D> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.engine.discard(self.grove, token);
        }
    }
}

impl<D: Device> std::fmt::Debug for Backward<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backward").field("token", &self.token).finish_non_exhaustive()
    }
}
