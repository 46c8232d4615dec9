//! What can go wrong, as data.

use graphgrove_device::{DeviceError, DevicePtr};

use crate::{Conflict, SlotIndex, Stale, StorageId};

/// Why something was refused. Nothing has changed then, unless a variant says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The handle's value is gone.
    #[error("{0}")]
    Stale(Box<Stale>),
    /// A layout whose sizes no memory has.
    #[error("a layout needs more bytes than a 64-bit number can say")]
    TooLarge,
    /// As many numbers are needed as there are dimensions.
    #[error("{given} numbers given for {expected} dimensions")]
    Rank {
        /// How many were given.
        given: usize,
        /// How many dimensions there are.
        expected: usize,
    },
    /// There is no such dimension.
    #[error("dimension {dim} of a tensor of rank {rank}")]
    NoSuchDim {
        /// The dimension asked for.
        dim: usize,
        /// The number of dimensions.
        rank: usize,
    },
    /// A range that a dimension does not have, or a step of zero.
    #[error("elements {start} to {end} by {step} of a dimension of {size}")]
    BadRange {
        /// The first index.
        start: u64,
        /// The index after the last one.
        end: u64,
        /// The step.
        step: u64,
        /// The size of the dimension.
        size: u64,
    },
    /// Only a dimension of size 1 can be expanded.
    #[error("a dimension of size {from} expanded to {to}")]
    BadExpand {
        /// The size of the dimension.
        from: u64,
        /// The size asked for.
        to: u64,
    },
    /// The dimensions are not a permutation.
    #[error("dimension {dim} twice in a permutation")]
    NotAPermutation {
        /// The dimension that is named twice.
        dim: usize,
    },
    /// A reshape to another number of elements.
    #[error("{from} elements reshaped to {to}")]
    ElementCount {
        /// The elements of the tensor.
        from: u64,
        /// The elements of the shape asked for.
        to: u64,
    },
    /// No strides give the shape asked for; the tensor would have to be copied.
    #[error("the tensor's strides allow no view of that shape")]
    NotViewable,
    /// A tensor that reaches past the end of its storage.
    #[error("{span} bytes from {offset} on in a storage of {bytes}")]
    OutOfStorage {
        /// Where the tensor begins, in bytes.
        offset: u64,
        /// How many bytes it spans.
        span: u64,
        /// How many bytes the storage has.
        bytes: u64,
    },
    /// A tensor that begins before its storage does.
    #[error("{before} bytes before the start of a storage")]
    BeforeStorage {
        /// By how many bytes.
        before: u64,
    },
    /// An output that contradicts its class: a fresh one without a block, an alias of what owns no slot, an empty one with
    /// elements.
    #[error("{output} does not fit its class")]
    BadOutput {
        /// The output.
        output: SlotIndex,
    },
    /// More outputs than slots can be numbered.
    #[error("{count} outputs")]
    TooManyOutputs {
        /// How many there are.
        count: usize,
    },
    /// An output is an alias of something that was not brought.
    #[error("{output} is an alias and its source is missing")]
    NoSource {
        /// The output.
        output: SlotIndex,
    },
    /// What was brought for an alias is another storage than the one recorded.
    #[error("{output} is an alias of another storage than was brought")]
    WrongSource {
        /// The output.
        output: SlotIndex,
        /// The storage that was brought.
        given: Option<StorageId>,
    },
    /// What was recorded for a fresh output does not lie in the block that was planned for it.
    #[error("{output} was not recorded in the block that was planned for it")]
    NotRecorded {
        /// The output.
        output: SlotIndex,
        /// The storage that was recorded; none if there is none.
        given: Option<StorageId>,
    },
    /// Two fresh outputs of one node have some of their blocks in common.
    #[error("{a} and {b} share a block")]
    SharedBlock {
        /// The output whose block begins first.
        a: SlotIndex,
        /// The other one.
        b: SlotIndex,
    },
    /// An output lies in memory of which nobody said where it comes from.
    #[error("{output} is an alias of {storage}, which is neither on the path nor an input nor a constant")]
    ForeignOutput {
        /// The output.
        output: SlotIndex,
        /// The storage it lies in.
        storage: StorageId,
    },
    /// A block that another live storage has: two owners of one block would each believe that it is theirs.
    #[error("the block at {base} of {bytes} bytes is that of {holder}, which is live")]
    BlockShared {
        /// Where the block starts.
        base: DevicePtr,
        /// Its length in bytes.
        bytes: u64,
        /// The live storage that has some of it.
        holder: StorageId,
    },
    /// Somebody has the address of an output and cannot be told of a new one, so its memory cannot be given up.
    #[error("{slot} is pinned")]
    Pinned {
        /// The output.
        slot: SlotIndex,
    },
    /// Inputs that cannot be staged as they are.
    #[error("{0}")]
    Refused(Conflict),
    /// Whoever was asked for the memory of a copy has none.
    #[error("no memory for a copy of {bytes} bytes: {why}")]
    NoMemory {
        /// The bytes asked for.
        bytes: u64,
        /// What was answered.
        why: String,
    },
    /// The device refused a copy.
    #[error("{0}")]
    Device(DeviceError),
    /// A tensor of another framework that this crate has no word for.
    #[cfg(feature = "dlpack")]
    #[error("dlpack: {0}")]
    Dlpack(crate::DlpackProblem),
}

impl From<Box<Stale>> for Error {
    fn from(stale: Box<Stale>) -> Self {
        Self::Stale(stale)
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
