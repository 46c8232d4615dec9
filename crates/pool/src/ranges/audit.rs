//! Checking an allocator's own books, for tests and for reports of memory that looks wrong.

use super::Ranges;
use super::ids::{BlockId, RegionId};
use super::slots::{SlotIx, State};

/// What an audit found wrong. None of these can come about through the public interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Two neighbours overlap, or leave a gap that nobody accounts for.
    Uneven {
        /// The region.
        region: RegionId,
        /// Where the books stop to agree, in bytes.
        offset: u64,
    },
    /// The backward link of a slot does not lead to the slot before it.
    BrokenLink {
        /// The region.
        region: RegionId,
        /// The start of the slot in bytes.
        offset: u64,
    },
    /// The search by size does not know a hole, or knows one that does not exist.
    LostHole {
        /// Holes in the regions.
        holes: u32,
        /// Holes that the search knows.
        known: u32,
    },
    /// A total differs from the sum over the regions, in granules or blocks.
    WrongTotal {
        /// What the total counts.
        what: &'static str,
        /// The sum over the regions.
        counted: u64,
        /// The total.
        total: u64,
    },
    /// A block is kept although no version can bring it back, or is not kept although one can.
    WrongMemory {
        /// The block.
        block: BlockId,
    },
}

impl Ranges {
    /// Walks over everything and checks that the books agree.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn audit(&self) -> Result<(), Fault> {
        let (mut live, mut blocks, mut reserved, mut holes) = (0, 0, 0, 0);
        for at in 0..self.regions.len() {
            let region = &self.regions[at];
            let (sum, count) = self.audit_region(RegionId(at as u32), &mut holes)?;
            live += sum;
            blocks += u64::from(count);
            reserved += u64::from(region.len);
        }
        same("live granules", live, self.tally.live)?;
        same("live blocks", blocks, self.tally.live_blocks.into())?;
        same("reserved granules", reserved, self.tally.reserved)?;
        let known = self.holes.count();
        if holes != known {
            return Err(Fault::LostHole { holes, known });
        }
        let parked = self.slots.iter().filter(|(_, slot)| slot.state == State::Parked);
        for (ix, _) in parked {
            if self.history.base().is_none() || self.history.is_lost(&self.slots, ix) {
                return Err(Fault::WrongMemory { block: self.slots.name(ix) });
            }
        }
        Ok(())
    }

    /// Checks one region, and returns its live granules and blocks.
    fn audit_region(&self, id: RegionId, holes: &mut u32) -> Result<(u64, u32), Fault> {
        let region = &self.regions[id.0 as usize];
        let (mut ix, mut prev, mut at) = (region.edge, SlotIx::NONE, 0);
        let (mut live, mut blocks) = (0, 0);
        while ix.is_some() {
            let slot = &self.slots[ix];
            let offset = self.granule.to_bytes(slot.offset);
            let edge = ix == region.edge && slot.state == State::Edge && slot.size == 0;
            let block = ix != region.edge && slot.state == State::Live && slot.size > 0;
            if slot.offset != at || u32::from(slot.region) != id.0 || !(edge || block) {
                return Err(Fault::Uneven { region: id, offset });
            }
            if slot.prev != prev {
                return Err(Fault::BrokenLink { region: id, offset });
            }
            if slot.gap > 0 {
                *holes += 1;
                if !self.holes.contains(&self.slots, ix) {
                    return Err(Fault::LostHole { holes: *holes, known: self.holes.count() });
                }
            }
            live += u64::from(slot.size);
            blocks += u32::from(block);
            at = slot.end() + slot.gap;
            (prev, ix) = (ix, slot.next);
        }
        let offset = self.granule.to_bytes(at);
        if prev != region.last {
            return Err(Fault::BrokenLink { region: id, offset });
        }
        // The free memory at the end of a growing region is its tail and no hole.
        let ends =
            if region.grows() { at <= region.len && self.slots[prev].gap == 0 } else { at == region.len };
        if region.kind.is_some() && !ends {
            return Err(Fault::Uneven { region: id, offset });
        }
        Ok((live, blocks))
    }
}

fn same(what: &'static str, counted: u64, total: u64) -> Result<(), Fault> {
    if counted == total { Ok(()) } else { Err(Fault::WrongTotal { what, counted, total }) }
}
