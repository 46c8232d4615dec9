//! A call, as whoever makes it describes it.

use std::fmt;

use graphgrove_device::{Device, HostMemory};
use graphgrove_storage::{Step, Tensor};

use crate::ParamSet;

/// One call of a recorded function. It borrows everything, so making one allocates nothing.
///
/// Its inputs are [`Input`]s, or whatever else [can be seen as one](AsInput): who has inputs of his own need not copy them.
pub struct Call<'a, D: Device, I = Input<'a, D>> {
    /// The parameters, if the function has any.
    pub params: Option<&'a ParamSet>,
    /// All other inputs, in the function's own order.
    pub inputs: &'a [I],
    /// The stream on which the call runs. It may be another one at each call.
    pub stream: &'a D::Stream,
    /// The step of the program in which the call runs. Only reports use it.
    pub step: Step,
}

impl<'a, D: Device> Call<'a, D> {
    /// A call without parameters.
    #[must_use]
    pub const fn new(stream: &'a D::Stream, step: Step, inputs: &'a [Input<'a, D>]) -> Self {
        Self { params: None, inputs, stream, step }
    }
}

impl<'a, D: Device, I> Call<'a, D, I> {
    /// The same call with parameters.
    #[must_use]
    pub const fn with_params(self, params: &'a ParamSet) -> Self {
        Self { params: Some(params), ..self }
    }
}

impl<'a, D: Device, I: AsInput<D>> Call<'a, D, I> {
    /// One of the call's own inputs.
    #[inline]
    pub(crate) fn input(&self, input: usize) -> Option<Input<'a, D>> {
        self.inputs.get(input).map(AsInput::as_input)
    }

    /// A tensor among all inputs: those of the call first, then the parameters.
    #[must_use]
    #[inline]
    pub fn tensor(&self, input: usize) -> Option<&'a Tensor> {
        match self.input(input) {
            Some(given) => given.tensor(),
            None => self.params?.tensors().get(input - self.inputs.len()),
        }
    }
}

impl<D: Device, I> Clone for Call<'_, D, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device, I> Copy for Call<'_, D, I> {}

impl<D: Device, I: AsInput<D>> fmt::Debug for Call<'_, D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<Input<'_, D>> = self.inputs.iter().map(AsInput::as_input).collect();
        write!(f, "Call({inputs:?}, params {:?}, {})", self.params.map(ParamSet::version), self.step)
    }
}

/// What can be seen as an input of a call.
pub trait AsInput<D: Device> {
    /// The input. It has to be the same one for as long as the call is borrowed.
    fn as_input(&self) -> Input<'_, D>;

    /// Whether it is a tensor of which this holds. It is asked of every input that is copied or patched, so a match of one's own is
    /// worth its lines: the tensor as an option costs a comparison more, and so does the input as a whole.
    #[inline]
    fn is_tensor_and(&self, holds: impl FnOnce(&Tensor) -> bool) -> bool {
        self.as_input().tensor().is_some_and(holds)
    }
}

impl<D: Device> AsInput<D> for Input<'_, D> {
    #[inline]
    fn as_input(&self) -> Input<'_, D> {
        *self
    }

    #[inline]
    fn is_tensor_and(&self, holds: impl FnOnce(&Tensor) -> bool) -> bool {
        match self {
            Self::Tensor { tensor, .. } => holds(tensor),
            Self::Host(_) | Self::Value(_) => false,
        }
    }
}

/// One input of a call.
pub enum Input<'a, D: Device> {
    /// A tensor on the device.
    Tensor {
        /// The tensor.
        tensor: &'a Tensor,
        /// Whether the caller drops it once the call has returned. If no other handle of its storage exists, the storage dies
        /// with the call, and the recording may write over it.
        given_up: bool,
    },
    /// Host memory that the device can reach, which is copied when the work gets there. Whatever lies in it then is what the
    /// recorded work sees.
    Host(&'a D::HostBuffer),
    /// A value that is no tensor: another value is another recording.
    Value(u64),
}

impl<'a, D: Device> Input<'a, D> {
    /// A tensor that the caller keeps.
    #[must_use]
    pub const fn kept(tensor: &'a Tensor) -> Self {
        Self::Tensor { tensor, given_up: false }
    }

    /// A tensor that the caller gives up.
    #[must_use]
    pub const fn given_up(tensor: &'a Tensor) -> Self {
        Self::Tensor { tensor, given_up: true }
    }

    /// The tensor, if it is one.
    #[must_use]
    pub const fn tensor(&self) -> Option<&'a Tensor> {
        match self {
            Self::Tensor { tensor, .. } => Some(tensor),
            Self::Host(_) | Self::Value(_) => None,
        }
    }
}

impl<D: Device> Clone for Input<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for Input<'_, D> {}

impl<D: Device> fmt::Debug for Input<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor { tensor, given_up } => {
                write!(f, "{tensor:?}{}", if *given_up { " given up" } else { "" })
            }
            Self::Host(buffer) => write!(f, "Host({} bytes)", buffer.bytes()),
            Self::Value(value) => write!(f, "Value({value})"),
        }
    }
}
