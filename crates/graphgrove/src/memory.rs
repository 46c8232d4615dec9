//! The pool of the thin engine: ranges in one segment.

use graphgrove_device::{Annotation, Device, DevicePtr, SegmentMemory};
use graphgrove_pool::ranges::{Block, BlockId, CheckpointId, Ranges, RegionKind, Survivors};

use crate::error::Result;

/// All blocks are multiples of this many bytes apart, which suits every vector access.
const ALIGNMENT: u64 = 512;

pub(crate) struct Memory<D: Device> {
    ranges: Ranges,
    segment: D::Segment,
    /// The state in which nothing is allocated.
    empty: CheckpointId,
}

impl<D: Device> Memory<D> {
    pub(crate) fn new(device: &D, bytes: u64) -> Result<Self> {
        let segment = device.allocate(bytes)?;
        let mut ranges = Ranges::default();
        ranges.add_region(RegionKind::Growing, bytes)?;
        let empty = ranges.checkpoint();
        Ok(Self { ranges, segment, empty })
    }

    pub(crate) fn address(&self, block: &Block) -> DevicePtr {
        DevicePtr::new(self.segment.base().get() + block.offset)
    }

    pub(crate) fn allocate(&mut self, device: &D, stream: &D::Stream, bytes: u64) -> Result<Block> {
        let block = self.ranges.alloc(bytes, ALIGNMENT)?;
        let (at, bytes) = (self.address(&block), block.bytes);
        device.annotate(stream, Annotation::Acquired { at, bytes, label: "pool block" })?;
        Ok(block)
    }

    pub(crate) fn release(&mut self, device: &D, stream: &D::Stream, block: &Block) -> Result<()> {
        let (at, bytes) = (self.address(block), block.bytes);
        device.annotate(stream, Annotation::Released { at, bytes })?;
        self.ranges.free(block.id)?;
        Ok(())
    }

    pub(crate) fn checkpoint(&mut self) -> CheckpointId {
        self.ranges.checkpoint()
    }

    /// Goes to the state of a checkpoint, or to the empty one, without the blocks that have died since.
    pub(crate) fn restore(&mut self, checkpoint: Option<CheckpointId>, dead: &[BlockId]) -> Result<()> {
        let survivors = Survivors::Except { dead, kept: &[] };
        self.ranges.restore(checkpoint.unwrap_or(self.empty), survivors)?;
        Ok(())
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.ranges.stats().live
    }
}
