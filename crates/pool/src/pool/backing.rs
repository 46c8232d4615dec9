//! The memory behind the regions.

use graphgrove_device::{CaptureMode, Device, DevicePtr, ModeGuard, ReservedRange, SegmentMemory};

use crate::error::PoolError;
use crate::ranges::{Block, Ranges, RegionId, RegionKind};

use super::request::Request;

/// What one region is made of.
enum Memory<D: Device> {
    /// One allocation. An adopted one belongs to the caller, and is kept until the pool goes.
    Segment { _segment: D::Segment, adopted: bool },
    /// A range of addresses, mapped from its start on in pieces of so many bytes.
    Range { range: D::Reservation, pieces: Vec<u64> },
}

/// One step by which the pool grew, to be undone in reverse order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grown {
    Segment(RegionId),
    Piece(RegionId),
}

/// One region, the address at which it starts, and its memory.
struct Entry<D: Device> {
    id: RegionId,
    base: DevicePtr,
    memory: Memory<D>,
}

/// A (region -> memory) table by the region's index.
pub(super) struct Backing<D: Device> {
    regions: Vec<Option<Entry<D>>>,
    growing: Option<RegionId>,
}

impl<D: Device> Backing<D> {
    pub(super) fn new() -> Self {
        Self { regions: Vec::new(), growing: None }
    }

    pub(super) fn growing(&self) -> Option<RegionId> {
        self.growing
    }

    fn get(&self, region: RegionId) -> Option<&Entry<D>> {
        self.regions.get(region.index() as usize)?.as_ref()
    }

    fn set(&mut self, id: RegionId, base: DevicePtr, memory: Memory<D>) {
        let at = id.index() as usize;
        if self.regions.len() <= at {
            self.regions.resize_with(at + 1, || None);
        }
        self.regions[at] = Some(Entry { id, base, memory });
    }

    /// The growing region, its range, and the lengths of its mapped pieces.
    fn range(&mut self) -> Option<(RegionId, &mut D::Reservation, &mut Vec<u64>)> {
        let at = self.growing?.index() as usize;
        match self.regions.get_mut(at)?.as_mut()? {
            Entry { id, memory: Memory::Range { range, pieces }, .. } => Some((*id, range, pieces)),
            Entry { memory: Memory::Segment { .. }, .. } => None,
        }
    }

    /// The address of a block; null for one of a region that is gone.
    pub(super) fn address(&self, block: &Block) -> DevicePtr {
        let base = self.get(block.region).map(|entry| entry.base);
        base.and_then(|base| base.checked_add(block.offset)).unwrap_or(DevicePtr::NULL)
    }

    /// The region that an address lies in, and its offset there in bytes. The caller looks up whether the region reaches that far.
    pub(super) fn locate(&self, ranges: &Ranges, at: DevicePtr) -> Option<(RegionId, u64)> {
        ranges.regions().find_map(|(id, _, len)| {
            let offset = at.offset_from(self.get(id)?.base)?;
            (offset < len).then_some((id, offset))
        })
    }

    /// Reserves the addresses of the growing region, without memory behind them.
    pub(super) fn reserve(&mut self, device: &D, ranges: &mut Ranges, bytes: u64) -> Result<(), PoolError> {
        let range = device.reserve(bytes)?;
        let region = ranges.add_region(RegionKind::Growing, 0)?;
        self.set(region, range.base(), Memory::Range { range, pieces: Vec::new() });
        self.growing = Some(region);
        Ok(())
    }

    /// By how many bytes the growing region can still grow.
    pub(super) fn growing_left(&mut self) -> u64 {
        self.range().map_or(0, |(_, range, pieces)| range.bytes() - pieces.iter().sum::<u64>())
    }

    /// Maps so many more bytes behind the growing region, a multiple of the granularity.
    pub(super) fn map(&mut self, device: &D, ranges: &mut Ranges, bytes: u64) -> Result<Grown, PoolError> {
        let Some((region, range, pieces)) = self.range() else { return Err(PoolError::ZeroBytes) };
        let mapped: u64 = pieces.iter().sum();
        // Growing a region only fails if it became too long, which is found out before memory is obtained for it.
        ranges.resize_region(region, mapped + bytes)?;
        let done =
            ModeGuard::swap(device, CaptureMode::Relaxed).and_then(|_mode| device.map(range, mapped, bytes));
        if let Err(error) = done {
            ranges.resize_region(region, mapped)?;
            return Err(error.into());
        }
        pieces.push(bytes);
        Ok(Grown::Piece(region))
    }

    /// Obtains a segment and makes it a region.
    pub(super) fn allocate(
        &mut self,
        device: &D,
        ranges: &mut Ranges,
        bytes: u64,
    ) -> Result<Grown, PoolError> {
        let segment = {
            let _mode = ModeGuard::swap(device, CaptureMode::Relaxed)?;
            device.allocate(bytes)?
        };
        self.add(ranges, segment, false).map(Grown::Segment)
    }

    /// Makes a segment a region, from its first aligned address on.
    pub(super) fn add(
        &mut self,
        ranges: &mut Ranges,
        segment: D::Segment,
        adopted: bool,
    ) -> Result<RegionId, PoolError> {
        let (start, bytes) = (segment.base().get(), segment.bytes());
        let base = start.checked_next_multiple_of(Request::ALIGN).ok_or(PoolError::ZeroBytes)?;
        let region = ranges.add_region(RegionKind::Fixed, bytes.saturating_sub(base - start))?;
        self.set(region, DevicePtr::new(base), Memory::Segment { _segment: segment, adopted });
        Ok(region)
    }

    /// The regions that are segments of the pool's own.
    pub(super) fn own_segments(&self) -> Vec<RegionId> {
        let is_own = |entry: &&Entry<D>| matches!(entry.memory, Memory::Segment { adopted: false, .. });
        self.regions.iter().flatten().filter(is_own).map(|entry| entry.id).collect()
    }

    /// Takes one step of growth back, and says how many bytes went. The region, or its last piece, has to be wholly free.
    pub(super) fn undo(&mut self, device: &D, ranges: &mut Ranges, step: Grown) -> Result<u64, PoolError> {
        match step {
            Grown::Segment(region) => self.remove_segment(ranges, region),
            Grown::Piece(_) => self.unmap_last(device, ranges, 0).map(|bytes| bytes.unwrap_or(0)),
        }
    }

    /// Gives a wholly free segment back, and says how many bytes it had.
    pub(super) fn remove_segment(&mut self, ranges: &mut Ranges, region: RegionId) -> Result<u64, PoolError> {
        let bytes = ranges.remove_region(region)?;
        if let Some(entry) = self.regions.get_mut(region.index() as usize) {
            *entry = None;
        }
        Ok(bytes)
    }

    /// Unmaps the last piece of the growing region if all of it lies at or behind `keep`, and says how many bytes it had.
    pub(super) fn unmap_last(
        &mut self,
        device: &D,
        ranges: &mut Ranges,
        keep: u64,
    ) -> Result<Option<u64>, PoolError> {
        let Some((region, range, pieces)) = self.range() else { return Ok(None) };
        let Some(&last) = pieces.last() else { return Ok(None) };
        let start = pieces.iter().sum::<u64>() - last;
        if start < keep {
            return Ok(None);
        }
        ranges.resize_region(region, start)?;
        if let Err(error) = device.unmap(range, start, last) {
            ranges.resize_region(region, start + last)?;
            return Err(error.into());
        }
        pieces.pop();
        Ok(Some(last))
    }

    /// The growing region, or else the longest one, with its length in bytes: where a plan goes.
    pub(super) fn widest(&self, ranges: &Ranges) -> Option<(RegionId, u64)> {
        let regions = || ranges.regions().map(|(id, _, len)| (id, len));
        match self.growing {
            Some(growing) => regions().find(|&(id, _)| id == growing),
            // The first of equals: a later one of the same length would make plans depend on how the pool grew.
            None => regions().reduce(|best, next| if next.1 > best.1 { next } else { best }),
        }
    }
}
