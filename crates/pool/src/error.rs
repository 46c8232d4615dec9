//! What can go wrong, with the figures that a caller needs to decide what to do.

use graphgrove_device::{DeviceError, StreamId};

use crate::pool::{Exhaustion, Holding};
use crate::ranges::{BlockId, CheckpointId, RegionId};
use crate::trace::TraceFault;

/// The errors of this crate. After any of them the allocator is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No free run holds the request.
    #[error(
        "no room for {asked} bytes aligned to {align}: the largest free run has {largest_free} of {free} free bytes"
    )]
    NoRoom {
        /// Bytes asked for.
        asked: u64,
        /// Alignment asked for, in bytes.
        align: u64,
        /// The largest free run in bytes, before alignment.
        largest_free: u64,
        /// All free bytes.
        free: u64,
        /// By how many bytes the first growing region must grow to serve the request; `None` without a growing region.
        grow_by: Option<u64>,
    },
    /// A request of no bytes, which would have no address of its own.
    #[error("a block of zero bytes has no address")]
    ZeroBytes,
    /// A request or a region larger than the 32-bit offsets of a region can express.
    #[error("{asked} bytes are more than a region can span ({max} bytes)")]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// The most bytes of a region.
        max: u64,
    },
    /// An alignment or a granule that is not a power of two, or an offset that is not a multiple of the granule.
    #[error("{align} is not a power of two that offsets can be aligned to")]
    BadAlignment {
        /// The alignment in bytes.
        align: u64,
    },
    /// The place asked for is not wholly free.
    #[error("{bytes} bytes at {region}+{offset} are not wholly free")]
    Occupied {
        /// The region asked for.
        region: RegionId,
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        bytes: u64,
    },
    /// The name of a block that is not live: it was freed already, or a restore took it away.
    #[error("block {block} is not live")]
    NotLive {
        /// The stale name.
        block: BlockId,
    },
    /// The name of a region that was removed, or that another allocator gave.
    #[error("there is no region {region}")]
    NoRegion {
        /// The stale name.
        region: RegionId,
    },
    /// More regions than the side table can name.
    #[error("there are already {max} regions")]
    TooManyRegions {
        /// The most regions.
        max: u32,
    },
    /// Only a growing region changes its length.
    #[error("region {region} has a fixed length")]
    FixedRegion {
        /// The region.
        region: RegionId,
    },
    /// A region that holds blocks, live or remembered by a checkpoint, cannot be removed.
    #[error("region {region} holds {live} live blocks and {remembered} that checkpoints remember")]
    RegionInUse {
        /// The region.
        region: RegionId,
        /// Live blocks in it.
        live: u32,
        /// Blocks in it that are not live and that a checkpoint remembers.
        remembered: u32,
    },
    /// A region cannot become shorter than what is in use at its end.
    #[error("region {region} is in use up to {used} bytes and cannot shrink to {len}")]
    TailInUse {
        /// The region.
        region: RegionId,
        /// The end of its last live block in bytes.
        used: u64,
        /// The length asked for in bytes.
        len: u64,
    },
    /// The name of a checkpoint that was discarded, or that another allocator gave.
    #[error("there is no checkpoint {checkpoint}")]
    NoCheckpoint {
        /// The stale name.
        checkpoint: CheckpointId,
    },
    /// A warm-up on a stream that is being captured, or of a pool whose stream is: its work would become part of the capture instead of
    /// running.
    #[error("{stream} is being captured, so a warm-up would not run")]
    Capturing {
        /// The captured stream.
        stream: StreamId,
    },
    /// The region shrank after the checkpoint was taken and must grow again before it can be restored.
    #[error("the checkpoint needs {needed} bytes of region {region}, which has {len}")]
    RegionTooShort {
        /// The region.
        region: RegionId,
        /// The length it has in bytes.
        len: u64,
        /// The length that the restored state needs in bytes.
        needed: u64,
    },
    /// A block that was to stay live lies where the checkpoint has a live block of its own.
    #[error("block {block} at {region}+{offset} overlaps a block of the checkpoint")]
    Overlap {
        /// The block that was to stay.
        block: BlockId,
        /// Its region.
        region: RegionId,
        /// Its offset in bytes.
        offset: u64,
    },
    /// A line of a trace that cannot be read, or whose event cannot happen.
    #[error("line {line} of the trace: {fault}")]
    BadTrace {
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        fault: TraceFault,
    },
    /// A block of a plan that dies before it is born.
    #[error("request {request} lives from {birth} to {death}")]
    BadLifetime {
        /// The position of the request.
        request: usize,
        /// When it is born.
        birth: u32,
        /// When it dies.
        death: u32,
    },
    /// The device refused something.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no more memory to be had for a request. What can be given back was given back before, where nothing forbade it.
    #[error("{0}")]
    Exhausted(Box<Exhaustion>),
    /// A recording has left blocks behind that it did not return. It was undone.
    #[error("the recording leaves {} blocks behind that nobody declared, the first is {}", blocks.len(), first(blocks))]
    Survivors {
        /// The blocks.
        blocks: Vec<Holding>,
    },
    /// A warm-up or a recording is under way in the pool.
    #[error("the pool is in the middle of a session")]
    SessionOpen,
    /// Replays have run, so that the pool does not know what is live: a restore has to come first.
    #[error("replays have run since the pool's state was last restored")]
    NotRestored,
    /// A stream was to use a block whose bytes other work may still be using, since the stream is not ordered behind the block's
    /// birth.
    #[error("{stream} is not ordered behind the allocation of block {block}")]
    Unordered {
        /// The block.
        block: BlockId,
        /// The stream.
        stream: StreamId,
    },
    /// A handle belongs to another pool.
    #[error("the handle belongs to another pool")]
    ForeignHandle,
}

fn first(blocks: &[Holding]) -> String {
    match blocks.first() {
        Some(Holding { owner, label, asked, .. }) => format!("{owner} `{label}` of {asked} bytes"),
        None => "unknown".to_owned(),
    }
}
