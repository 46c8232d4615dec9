//! What can go wrong in a call.

use graphgrove_device::DeviceError;
use graphgrove_pool::PoolError;
use graphgrove_replay::Mismatch;
use graphgrove_storage::DType;

use crate::Layers;

/// The result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was refused. A call that fails leaves the engine as it was before the call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused or broke.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The pool has no room.
    #[error(transparent)]
    Pool(PoolError),
    /// A tensor or its storage refused; for instance its value is gone.
    #[error(transparent)]
    Storage(graphgrove_storage::Error),
    /// A replay refused.
    #[error(transparent)]
    Replay(graphgrove_replay::Error),
    /// The tree refused a transition.
    #[error(transparent)]
    Tree(graphgrove_tree::Error),
    /// Layers without one below them.
    #[error("the layers {layers} leave out one below them")]
    Layers {
        /// The layers that were asked for.
        layers: Layers,
    },
    /// A call was made by a function that is running, or while another part of the same call holds the engine.
    ///
    /// This is seen on the thread of the running call only. A call of the same engine on another thread, [`Engine::stats`] and the like
    /// included, waits until the running one is over; a function that waits in turn for that thread, by joining it for instance, waits
    /// for ever, and no error says so.
    ///
    /// [`Engine::stats`]: crate::Engine::stats
    #[error("{function} was called inside of another call of the same engine")]
    Nested {
        /// The function.
        function: String,
    },
    /// The function or the token belongs to another engine, or the stream to another device.
    #[error("the {what} belongs to another engine or device")]
    ForeignHandle {
        /// What it is.
        what: &'static str,
    },
    /// A function asked for an input that its call does not have, or has given away.
    #[error("{function} has no {what} {index}: {why}")]
    NoInput {
        /// The function.
        function: String,
        /// The kind of input.
        what: &'static str,
        /// Its place.
        index: usize,
        /// Why it is not there.
        why: Missing,
    },
    /// A call brings more or fewer inputs than the function [says](crate::FunctionOptions::inputs) that it takes.
    #[error("{function} takes {expected} inputs, and the call brings {given}")]
    InputCount {
        /// The function.
        function: String,
        /// How many it takes.
        expected: usize,
        /// How many the call brings, without parameters and without what a forward has saved.
        given: usize,
    },
    /// A function has failed by itself, by [`Context::fail`](crate::Context::fail).
    #[error("{function} failed: {why}")]
    Failed {
        /// The function.
        function: String,
        /// What it says.
        why: String,
    },
    /// Work of a function writes to an input or a parameter, and the function's options do not say so. A replay would write to a copy of
    /// it, and the caller see nothing of that.
    #[error("{function} writes to {what} {index}, which it does not declare")]
    UndeclaredWrite {
        /// The function.
        function: String,
        /// The kind of input.
        what: &'static str,
        /// Its place.
        index: usize,
    },
    /// A tensor has gaps, or more bytes than the one that it was to be copied to.
    #[error("{function} cannot copy {from} bytes{} to {to}", if *.has_gaps { " with gaps" } else { "" })]
    CopyMisfit {
        /// The function.
        function: String,
        /// The bytes that were to be copied, gaps included.
        from: u64,
        /// Whether there are any.
        has_gaps: bool,
        /// The bytes that there is room for.
        to: u64,
    },
    /// There is no such output, or it was taken before.
    #[error("no output {index} to take of {count}")]
    NoOutput {
        /// Its place.
        index: usize,
        /// How many outputs the call has.
        count: usize,
    },
    /// More or fewer outputs were expected.
    #[error("{given} outputs, not {expected}")]
    OutputCount {
        /// How many there are.
        given: usize,
        /// How many were expected.
        expected: usize,
    },
    /// A tensor was to be made of more or fewer values than its shape has elements.
    #[error("{given} values for a tensor of shape {shape:?}")]
    ElementCount {
        /// How many values there are.
        given: usize,
        /// The shape.
        shape: Vec<u64>,
    },
    /// The elements of a tensor are of another type.
    #[error("elements of type {found} asked for as {asked}")]
    ElementType {
        /// The type that was asked for.
        asked: DType,
        /// The type that they have.
        found: DType,
    },
    /// Memory that a function allocated in the pool outlived it without being an output.
    #[error(
        "{function} left {blocks} blocks of {bytes} bytes in the pool that are no outputs, the first: {first}"
    )]
    Survivors {
        /// The function.
        function: String,
        /// How many blocks.
        blocks: usize,
        /// Their bytes together.
        bytes: u64,
        /// The first of them.
        first: String,
    },
    /// A function ended without joining side streams. What they were given comes before whatever the engine does next, all the same.
    #[error("{function} left {streams} side streams unjoined")]
    Unjoined {
        /// The function.
        function: String,
        /// How many.
        streams: usize,
    },
    /// A recording or a warm-up failed after the call had given inputs up, so that the call cannot be run plainly instead.
    #[error("{function} cannot run plainly instead, for its inputs are given up already: {cause}")]
    InputsGone {
        /// The function.
        function: String,
        /// Why it failed.
        cause: String,
    },
    /// A call ran plainly although the engine is strict.
    #[error("{function} ran plainly: {reason}")]
    Skipped {
        /// The function.
        function: String,
        /// Why.
        reason: String,
    },
    /// A recording would have taken more than the engine's budget. The call runs plainly instead.
    #[error("the exec of {function} of {bytes} bytes would exceed the budget of {budget}")]
    OverBudget {
        /// The function.
        function: String,
        /// The bytes of its exec.
        bytes: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// The engine was shut down: it refuses every call of a function, as forward and backward too, and of functions that are
    /// registered afterwards.
    ///
    /// All else still answers. [`Engine::tensor`] and [`Engine::read`] do what they always do; [`Engine::function`] gives a handle that
    /// cannot be called; [`Engine::begin_step`], [`Engine::reset`] and another [`Engine::shutdown`] find nothing to do and are `Ok`;
    /// [`Engine::stats`], [`Engine::reasons`] and [`Engine::outline`] know of no call and no recording any more.
    ///
    /// [`Engine::tensor`]: crate::Engine::tensor
    /// [`Engine::read`]: crate::Engine::read
    /// [`Engine::function`]: crate::Engine::function
    /// [`Engine::begin_step`]: crate::Engine::begin_step
    /// [`Engine::reset`]: crate::Engine::reset
    /// [`Engine::shutdown`]: crate::Engine::shutdown
    /// [`Engine::stats`]: crate::Engine::stats
    /// [`Engine::reasons`]: crate::Engine::reasons
    /// [`Engine::outline`]: crate::Engine::outline
    #[error("the engine was shut down")]
    ShutDown,
}

/// Why a function has no such input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// There are not so many.
    #[error("the call brings {count}")]
    Past {
        /// How many there are; values and host memory count among the inputs.
        count: usize,
    },
    /// It was taken before.
    #[error("it was taken")]
    Taken,
    /// It is of another kind.
    #[error("it is {kind}")]
    Kind {
        /// What it is.
        kind: &'static str,
    },
}

impl From<graphgrove_replay::Error> for Error {
    fn from(error: graphgrove_replay::Error) -> Self {
        match error {
            graphgrove_replay::Error::Device(error) => Self::Device(error),
            graphgrove_replay::Error::Storage(error) => error.into(),
            other => Self::Replay(other),
        }
    }
}

/// What the device refused is a [`Device`](Error::Device) error whichever layer had asked for it, but for memory that a pool has asked for:
/// its error says what the pool holds.
impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Device(error) if !matches!(error, DeviceError::OutOfMemory { .. }) => {
                Self::Device(error)
            }
            other => Self::Pool(other),
        }
    }
}

impl From<graphgrove_storage::Error> for Error {
    fn from(error: graphgrove_storage::Error) -> Self {
        match error {
            graphgrove_storage::Error::Device(error) => Self::Device(error),
            other => Self::Storage(other),
        }
    }
}

impl From<Mismatch> for Error {
    fn from(mismatch: Mismatch) -> Self {
        Self::Replay(mismatch.into())
    }
}

impl From<graphgrove_tree::Error> for Error {
    fn from(error: graphgrove_tree::Error) -> Self {
        Self::Tree(error)
    }
}
