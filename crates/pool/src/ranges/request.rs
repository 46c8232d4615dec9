//! Asking for blocks and freeing them.

use super::ids::{BlockId, RegionId};
use super::layout::Block;
use super::slots::SlotIx;
use super::{Granule, Ranges};
use crate::error::PoolError;

/// What libraries ask for again and again as a workspace, in bytes: the hole of one is worth as much at the tail, since the next one
/// would have to go there. On a recorded program of twelve recordings with such a workspace each, whose other blocks were scaled by 24
/// factors from 0.5 to 1.9, the pool reserves 1.06 times what is live on average; with half as much here it is 1.10, and 1.14 with a page
/// of 2 MiB.
const WORKSPACE_BYTES: u64 = 32 << 20;

/// Holes of at least so many bytes are spared. Sparing those of 8 MiB too costs 2% on the same program.
const LARGE_HOLE_BYTES: u64 = WORKSPACE_BYTES / 2;

/// Requests of at most so many bytes spare them.
const SMALL_REQUEST_BYTES: u64 = WORKSPACE_BYTES / 4;

impl Ranges {
    /// A block of at least `bytes` whose offset is a multiple of `align`.
    ///
    /// The alignment counts from the start of the region: an address is aligned only if the region's base is aligned at least as well.
    ///
    /// # Errors
    ///
    /// - [`PoolError::NoRoom`] if no free run holds the block; it says by how much a region must grow.
    /// - [`PoolError::ZeroBytes`], [`PoolError::TooLarge`], [`PoolError::BadAlignment`] for a request that cannot be served.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> Result<Block, PoolError> {
        let (size, unit) = (self.size_of(bytes)?, self.granule.alignment(align)?);
        let hole = self.best_hole(size, unit);
        self.alloc_outside_or_in(hole, size, unit).ok_or_else(|| self.no_room(bytes, align, size, unit))
    }

    /// As [`alloc`](Self::alloc), except that it makes no block where a large hole would be broken only because no growing region is long
    /// enough: [`spares_by_growing`](Self::spares_by_growing) says by how much.
    ///
    /// # Errors
    ///
    /// Those of [`alloc`](Self::alloc).
    pub fn alloc_sparing(&mut self, bytes: u64, align: u64) -> Result<Option<Block>, PoolError> {
        let (size, unit) = (self.size_of(bytes)?, self.granule.alignment(align)?);
        let hole = self.best_hole(size, unit);
        if let Some((before, _)) = hole {
            let gap = self.slots[before].gap;
            if self.spares(size, gap) && self.is_spared_by_growing(size, unit, gap) {
                return Ok(None);
            }
        }
        let block = self.alloc_outside_or_in(hole, size, unit);
        block.map(Some).ok_or_else(|| self.no_room(bytes, align, size, unit))
    }

    /// Makes a block in the hole that is given with the block's offset, or in a tail if that is where it goes.
    #[inline(always)]
    fn alloc_outside_or_in(&mut self, hole: Option<(SlotIx, u32)>, size: u32, unit: u32) -> Option<Block> {
        let gap = hole.map(|(before, _)| self.slots[before].gap);
        let block = match (hole, self.first_tail(size, unit, gap)) {
            (_, Some((region, offset))) => self.take_from_tail(region, offset, size),
            (Some((before, offset)), None) => self.take_from_hole(before, offset, size),
            (None, None) => return None,
        };
        self.tally.note_peak();
        self.history.note_birth(block);
        Some(self.describe(block))
    }

    /// By how many bytes the first growing region is too short for a request that would break a large hole to go to its tail instead.
    ///
    /// Whoever can grow the region by that much should do so before the request: where it goes depends on the live blocks alone then.
    /// `None` if growing would change nothing.
    #[must_use]
    pub fn spares_by_growing(&self, bytes: u64, align: u64) -> Option<u64> {
        let (size, unit) = (self.size_of(bytes).ok()?, self.granule.alignment(align).ok()?);
        let (before, _) = self.best_hole(size, unit)?;
        let gap = self.slots[before].gap;
        let grows = self.spares(size, gap) && self.is_spared_by_growing(size, unit, gap);
        self.growth_for(size, unit, Some(gap)).filter(|_| grows)
    }

    /// A block of at least `bytes` at exactly `offset` of `region`.
    ///
    /// # Errors
    ///
    /// - [`PoolError::Occupied`] if the place is not wholly free, or reaches over the end of the region.
    /// - [`PoolError::NoRegion`], [`PoolError::ZeroBytes`], [`PoolError::TooLarge`], and [`PoolError::BadAlignment`] if `offset` is
    ///   not a whole number of granules.
    pub fn alloc_at(&mut self, region: RegionId, offset: u64, bytes: u64) -> Result<Block, PoolError> {
        let size = self.size_of(bytes)?;
        let occupied = PoolError::Occupied { region, offset, bytes };
        let within = self.known_region(region)?;
        let at = self.granule.floor(offset).ok_or_else(|| occupied.clone())?;
        if self.granule.to_bytes(at) != offset {
            return Err(PoolError::BadAlignment { align: offset });
        }
        if at.checked_add(size).is_none_or(|end| end > within.len) {
            return Err(occupied);
        }
        let name = region.0 as u16;
        let block = if within.grows() && at >= self.slots[within.last].end() {
            self.take_from_tail(name, at, size)
        } else {
            let before = self.slot_at_or_before(name, at).ok_or_else(|| occupied.clone())?;
            let start = self.slots[before].end();
            if at < start || at + size > start + self.slots[before].gap {
                return Err(occupied);
            }
            self.take_from_hole(before, at, size)
        };
        self.regions[usize::from(name)].index.note(at, block);
        self.tally.note_peak();
        self.history.note_birth(block);
        Ok(self.describe(block))
    }

    /// Frees the block, and says where it was.
    ///
    /// Its name stays known, and a restore brings it back, while a checkpoint remembers it.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotLive`] if the block is not live.
    #[inline]
    pub fn free(&mut self, id: BlockId) -> Result<Block, PoolError> {
        let Some(ix) = self.slots.find_live(id) else { return Err(PoolError::NotLive { block: id }) };
        let block = self.describe(ix);
        self.release(ix);
        Ok(block)
    }

    fn release(&mut self, ix: SlotIx) {
        let keep = self.history.note_death(ix);
        self.give_back(ix, keep);
    }

    fn size_of(&self, bytes: u64) -> Result<u32, PoolError> {
        match self.granule.ceil(bytes) {
            Some(0) => Err(PoolError::ZeroBytes),
            Some(size) => Ok(size),
            None => Err(PoolError::TooLarge { asked: bytes, max: self.granule.longest() }),
        }
    }

    /// The hole to use, by the slot before it, and where in it the block starts.
    #[inline]
    fn best_hole(&self, size: u32, unit: u32) -> Option<(SlotIx, u32)> {
        let hole = self.holes.best(&self.slots, size);
        let start = self.slots.get(hole.at())?.end();
        if start & (unit - 1) == 0 {
            return Some((hole, start));
        }
        let aligned = |hole: SlotIx| {
            let slot = self.slots.get(hole.at())?;
            let (start, gap) = (slot.end(), slot.gap);
            let offset = start.checked_next_multiple_of(unit)?;
            (offset - start <= gap - size).then_some((hole, offset))
        };
        // A hole larger by all that alignment can skip holds the block wherever it starts, so one more search is enough.
        aligned(hole).or_else(|| aligned(self.holes.best(&self.slots, size.checked_add(unit - 1)?)))
    }

    /// Whether a request leaves a hole of length `gap` alone while there is room to go to instead.
    #[inline]
    fn spares(&self, size: u32, gap: u32) -> bool {
        self.granule.to_bytes(gap) >= LARGE_HOLE_BYTES && self.granule.to_bytes(size) <= SMALL_REQUEST_BYTES
    }

    /// The first tail that has the room, and where in it the block starts. `gap` is the length of the hole to go to instead, if any.
    #[inline]
    fn first_tail(&self, size: u32, unit: u32, gap: Option<u32>) -> Option<(u16, u32)> {
        if gap.is_some_and(|gap| !self.spares(size, gap)) {
            return None;
        }
        self.growing.iter().find_map(|&name| {
            let (offset, end) = self.place_in_tail(name, size, unit, gap)?;
            (end <= self.regions[usize::from(name)].len).then_some((name, offset))
        })
    }

    /// From where to where a block would lie in a tail without end. If there is a hole to go to instead, only what is left of the stretch
    /// of a workspace's length counts in which the tail begins: the price of sparing the hole must not be higher than its worth.
    fn place_in_tail(&self, name: u16, size: u32, unit: u32, gap: Option<u32>) -> Option<(u32, u32)> {
        let start = self.slots[self.regions[usize::from(name)].last].end();
        let offset = start.checked_next_multiple_of(unit)?;
        let end = offset.checked_add(size)?;
        let limit = match gap {
            None => Granule::MAX_COUNT,
            Some(_) => start.checked_next_multiple_of(self.granule.ceil(WORKSPACE_BYTES)?)?,
        };
        (end <= limit).then_some((offset, end))
    }

    /// Whether a hole that is to be spared would be broken for want of length.
    fn is_spared_by_growing(&self, size: u32, unit: u32, gap: u32) -> bool {
        self.first_tail(size, unit, Some(gap)).is_none() && self.growth_for(size, unit, Some(gap)).is_some()
    }

    /// By how many bytes the first growing region is too short for a block in its tail.
    fn growth_for(&self, size: u32, unit: u32, gap: Option<u32>) -> Option<u64> {
        let &name = self.growing.first()?;
        let (_, end) = self.place_in_tail(name, size, unit, gap)?;
        let by = end.checked_sub(self.regions[usize::from(name)].len)?;
        Some(self.granule.to_bytes(by))
    }

    #[cold]
    fn no_room(&self, asked: u64, align: u64, size: u32, unit: u32) -> PoolError {
        let stats = self.stats();
        let grow_by = self.growth_for(size, unit, None);
        PoolError::NoRoom { asked, align, largest_free: stats.largest_free, free: stats.free, grow_by }
    }
}
