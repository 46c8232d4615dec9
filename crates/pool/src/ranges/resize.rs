//! Adding, growing, shrinking and removing regions.

use super::Ranges;
use super::ids::RegionId;
use super::region::{Region, RegionKind};
use super::slots::{SlotIx, State};
use crate::error::PoolError;

impl Ranges {
    /// The most regions that a side table can name.
    const MAX_REGIONS: usize = 1 << 16;

    /// Adds a region of `len` bytes, rounded down to whole granules. A growing region may start empty.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`], [`PoolError::TooManyRegions`], and [`PoolError::ZeroBytes`] for a fixed region without a granule in it.
    pub fn add_region(&mut self, kind: RegionKind, len: u64) -> Result<RegionId, PoolError> {
        let granules = self.region_len(len)?;
        if kind == RegionKind::Fixed && granules == 0 {
            return Err(PoolError::ZeroBytes);
        }
        let vacant = self.regions.iter().position(|region| region.kind.is_none());
        let at = vacant.unwrap_or(self.regions.len());
        let Ok(name) = u16::try_from(at) else {
            return Err(PoolError::TooManyRegions { max: Self::MAX_REGIONS as u32 });
        };
        let edge = self.slots.occupy(name, 0, 0, State::Edge);
        self.slots[edge].prev = SlotIx::NONE;
        self.slots[edge].next = SlotIx::NONE;
        let region = Region::new(kind, granules, edge);
        if vacant.is_some() {
            self.regions[at] = region;
        } else {
            self.regions.push(region);
        }
        self.tally.reserve(granules.into());
        match kind {
            RegionKind::Fixed => {
                self.slots[edge].gap = granules;
                self.holes.insert(&mut self.slots, edge);
            }
            RegionKind::Growing => {
                let at = self.growing.partition_point(|&other| other < name);
                self.growing.insert(at, name);
            }
        }
        Ok(RegionId(name.into()))
    }

    /// Sets the length of a growing region to `len` bytes, rounded down to whole granules, longer or shorter than before.
    ///
    /// A region can become shorter than a checkpoint needs: restoring it then asks for the missing length.
    ///
    /// # Errors
    ///
    /// [`PoolError::TailInUse`] if a live block reaches behind `len`, [`PoolError::FixedRegion`], [`PoolError::NoRegion`],
    /// [`PoolError::TooLarge`].
    pub fn resize_region(&mut self, region: RegionId, len: u64) -> Result<(), PoolError> {
        let granules = self.region_len(len)?;
        let known = self.known_region(region)?;
        if !known.grows() {
            return Err(PoolError::FixedRegion { region });
        }
        let tail = self.slots[known.last].end();
        if granules < tail {
            let used = self.granule.to_bytes(tail);
            return Err(PoolError::TailInUse { region, used, len });
        }
        let old = known.len;
        self.regions[region.0 as usize].len = granules;
        if granules >= old {
            self.tally.reserve((granules - old).into());
        } else {
            self.tally.release((old - granules).into());
        }
        Ok(())
    }

    /// Removes a region that is wholly free, and says how long it was in bytes. Costs a pass over the side table.
    ///
    /// # Errors
    ///
    /// [`PoolError::RegionInUse`] if a block in it is live or remembered by a checkpoint, [`PoolError::NoRegion`].
    pub fn remove_region(&mut self, region: RegionId) -> Result<u64, PoolError> {
        let known = self.known_region(region)?;
        let within = |state| {
            self.slots.iter().filter(move |(_, s)| s.state == state && u32::from(s.region) == region.0)
        };
        let (live, remembered) = (within(State::Live).count() as u32, within(State::Parked).count() as u32);
        if live > 0 || remembered > 0 {
            return Err(PoolError::RegionInUse { region, live, remembered });
        }
        let (len, edge) = (known.len, known.edge);
        if self.slots[edge].gap > 0 {
            self.holes.remove(&mut self.slots, edge);
        }
        self.slots.vacate(edge);
        let name = region.0 as u16;
        self.growing.retain(|&other| other != name);
        self.regions[region.0 as usize] = Region::removed();
        self.tally.release(len.into());
        Ok(self.granule.to_bytes(len))
    }

    pub(super) fn known_region(&self, region: RegionId) -> Result<&Region, PoolError> {
        let known = self.regions.get(region.0 as usize).filter(|known| known.kind.is_some());
        known.ok_or(PoolError::NoRegion { region })
    }

    fn region_len(&self, len: u64) -> Result<u32, PoolError> {
        let max = self.granule.longest();
        self.granule.floor(len).ok_or(PoolError::TooLarge { asked: len, max })
    }
}
