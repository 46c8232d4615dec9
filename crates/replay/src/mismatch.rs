//! Why a call may not be replayed: the check that failed, by name.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{InputIndex, Signature, SlotIndex, Stale};

use crate::NodeKey;

/// The first expectation of a recording that a call does not meet. Nothing was launched and nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// No such node is known: it was removed.
    #[error("node {node:?} is not known")]
    UnknownNode {
        /// The node.
        node: NodeKey,
    },
    /// The node was recorded below another one than the path holds at that place.
    #[error("the node was recorded below {parent:?}, which is not at place {place} of the path")]
    Parent {
        /// The node below which it was recorded.
        parent: NodeKey,
        /// Where that node has to be on the path, counted from the root.
        place: u32,
    },
    /// An output of a later part of the path is live, which the node would run over.
    #[error("{slot} at place {place} of the path is live, and the node does not run behind it")]
    TailLive {
        /// The place on the path.
        place: u32,
        /// The output.
        slot: SlotIndex,
    },
    /// There are more or fewer parameters than recorded.
    #[error("{called} parameters, recorded with {recorded}")]
    ParamCount {
        /// How many were recorded.
        recorded: usize,
        /// How many the call brings.
        called: usize,
    },
    /// A parameter has another layout.
    #[error("parameter {param} has another layout")]
    ParamSignature {
        /// The parameter's place in its set.
        param: usize,
    },
    /// A parameter is elsewhere.
    #[error("parameter {param} is at {called}, recorded at {recorded}")]
    ParamMoved {
        /// The parameter's place in its set.
        param: usize,
        /// The recorded address.
        recorded: DevicePtr,
        /// The address that the call brings.
        called: DevicePtr,
    },
    /// There are more or fewer inputs than recorded.
    #[error("{called} inputs, recorded with {recorded}")]
    InputCount {
        /// How many were recorded.
        recorded: usize,
        /// How many the call has.
        called: usize,
    },
    /// A tensor stands where a value or host memory was recorded, or the other way round.
    #[error("{input} is of another kind")]
    Kind {
        /// The input.
        input: InputIndex,
    },
    /// A value is another one.
    #[error("{input} is {called}, recorded for {recorded}")]
    Value {
        /// The input.
        input: InputIndex,
        /// The recorded value.
        recorded: u64,
        /// The value of the call.
        called: u64,
    },
    /// Host memory of another length.
    #[error("{input} is host memory of {called} bytes, recorded with {recorded}")]
    HostBytes {
        /// The input.
        input: InputIndex,
        /// The recorded length.
        recorded: usize,
        /// The length that the call brings.
        called: usize,
    },
    /// A tensor has another element type, shape or strides.
    #[error("{input} has another layout")]
    Signature {
        /// The input.
        input: InputIndex,
        /// The recorded layout.
        recorded: Signature,
        /// The layout that the call brings.
        called: Signature,
    },
    /// The value is gone.
    #[error("{input}: {stale}")]
    Stale {
        /// The input.
        input: InputIndex,
        /// What became of it.
        stale: Box<Stale>,
    },
    /// Another tensor than the recorded output of the path.
    #[error("{input} is not {slot} at place {place} of the path, or another view of it")]
    Managed {
        /// The input.
        input: InputIndex,
        /// The place on the path.
        place: u32,
        /// The output.
        slot: SlotIndex,
    },
    /// The recording uses the input's memory again, and somebody else holds it or the call does not give it up.
    #[error("{input} is still held, and its memory is used again")]
    StillHeld {
        /// The input.
        input: InputIndex,
    },
    /// The recorded kernels may rely on an alignment that the new address lacks.
    #[error("{input} is at {address}, which is not aligned to {alignment} bytes")]
    Misaligned {
        /// The input.
        input: InputIndex,
        /// The address.
        address: DevicePtr,
        /// What it has to be a multiple of, in bytes.
        alignment: u64,
    },
    /// Inputs share memory with each other in another way than when the function was recorded.
    #[error("{input} shares memory with another input in another way")]
    Sharing {
        /// The first input of those that do.
        input: InputIndex,
    },
    /// An output of the path is live and the recording uses its memory.
    #[error("{slot} at place {place} of the path is live")]
    StillLive {
        /// The place on the path.
        place: u32,
        /// The output.
        slot: SlotIndex,
    },
    /// An output lies in an input's memory, which is shorter now.
    #[error("{output} does not lie in its input's memory")]
    OutputOutside {
        /// The output.
        output: SlotIndex,
    },
    /// Somebody has the address of an output of the last run and cannot be told that it is written over.
    #[error("{output} of the last run is pinned")]
    Pinned {
        /// The output.
        output: SlotIndex,
    },
}
