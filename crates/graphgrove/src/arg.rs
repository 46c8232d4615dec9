//! The inputs of a call.

use graphgrove_device::Device;
use graphgrove_replay::{AsInput, Input};
use graphgrove_storage::Tensor;

/// One input of a call. [`args!`](crate::args) makes an array of them.
pub enum Arg<'a, D: Device> {
    /// A tensor that the caller keeps.
    Kept(&'a Tensor),
    /// A tensor that the caller gives up: if this is its last handle, the call may use its memory.
    Given(Tensor),
    /// Host memory that the device can reach, read when the work gets there.
    Host(&'a D::HostBuffer),
    /// A value that is no tensor: each value is recorded by itself.
    Value(u64),
}

impl<D: Device> AsInput<D> for Arg<'_, D> {
    #[inline]
    fn as_input(&self) -> Input<'_, D> {
        match self {
            Self::Kept(tensor) => Input::kept(tensor),
            Self::Given(tensor) => Input::given_up(tensor),
            Self::Host(buffer) => Input::Host(*buffer),
            Self::Value(value) => Input::Value(*value),
        }
    }

    #[inline]
    fn is_tensor_and(&self, holds: impl FnOnce(&Tensor) -> bool) -> bool {
        match self {
            Self::Kept(tensor) => holds(tensor),
            Self::Given(tensor) => holds(tensor),
            Self::Host(_) | Self::Value(_) => false,
        }
    }
}

impl<D: Device> Arg<'_, D> {
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Kept(tensor) => Some(tensor),
            Self::Given(tensor) => Some(tensor),
            Self::Host(_) | Self::Value(_) => None,
        }
    }
}

impl<'a, D: Device> Arg<'a, D> {
    pub(crate) fn host(&self) -> Option<&'a D::HostBuffer> {
        match self {
            Self::Host(buffer) => Some(buffer),
            Self::Kept(_) | Self::Given(_) | Self::Value(_) => None,
        }
    }
}

impl<'a, D: Device> From<&'a Tensor> for Arg<'a, D> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Kept(tensor)
    }
}

impl<D: Device> From<Tensor> for Arg<'_, D> {
    fn from(tensor: Tensor) -> Self {
        Self::Given(tensor)
    }
}

impl<D: Device> From<u64> for Arg<'_, D> {
    fn from(value: u64) -> Self {
        Self::Value(value)
    }
}

/// The inputs of a call: `args![&kept, given_up, 3_u64]`.
#[macro_export]
macro_rules! args {
    ($($input:expr),* $(,)?) => { [$($crate::Arg::from($input)),*] };
}
