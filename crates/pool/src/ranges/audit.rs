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

#[cfg(test)]
mod tests {
    use super::super::{RegionKind, Survivors};
    use super::*;

    /// Three blocks with a hole between the second and the third and one behind that, in a fixed and in a growing region, and a block
    /// that only a checkpoint remembers.
    fn sound() -> Ranges {
        let mut ranges = Ranges::default();
        for kind in [RegionKind::Fixed, RegionKind::Growing] {
            let region = ranges.add_region(kind, 16 * 512).unwrap();
            for (offset, granules) in [(0, 1), (1, 2), (5, 1), (8, 2)] {
                ranges.alloc_at(region, offset * 512, granules * 512).unwrap();
            }
        }
        let checkpoint = ranges.checkpoint();
        let doomed = ranges.live_blocks().last().unwrap();
        ranges.free(doomed.id).unwrap();
        assert!(ranges.restore(checkpoint, Survivors::Except { dead: &[doomed.id], kept: &[] }).is_ok());
        assert_eq!(ranges.audit(), Ok(()));
        ranges
    }

    /// The slot that starts at this granule of a region and is not empty.
    fn slot(ranges: &Ranges, region: u16, offset: u32) -> SlotIx {
        let here = |(_, slot): &(SlotIx, &super::super::slots::Slot)| {
            slot.state == State::Live && slot.region == region && slot.offset == offset
        };
        ranges.slots.iter().find(here).unwrap().0
    }

    fn fault(damage: impl Fn(&mut Ranges)) -> Option<Fault> {
        let mut ranges = sound();
        damage(&mut ranges);
        ranges.audit().err()
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        for region in [0, 1] {
            let id = RegionId(region.into());
            let at = |ranges: &Ranges, offset| slot(ranges, region, offset);
            let uneven = |offset: u64| Some(Fault::Uneven { region: id, offset: offset * 512 });
            let broken = |offset: u64| Some(Fault::BrokenLink { region: id, offset: offset * 512 });
            let grown = fault(|r| {
                let ix = at(r, 1);
                r.slots[ix].size += 1;
            });
            assert_eq!(grown, uneven(5), "a block reaches into its neighbour");
            let moved = fault(|r| {
                let ix = at(r, 1);
                r.slots[ix].offset += 1;
            });
            assert_eq!(moved, uneven(2), "a block is not where the one before ends");
            let empty = fault(|r| {
                let ix = at(r, 0);
                r.slots[ix].size = 0;
            });
            assert_eq!(empty, uneven(0), "a block has no size");
            let stray = fault(|r| {
                let ix = at(r, 5);
                r.slots[ix].region = 7;
            });
            assert_eq!(stray, uneven(5), "a block says that it is elsewhere");
            let vacant = fault(|r| {
                let ix = at(r, 5);
                r.slots[ix].state = State::Vacant;
            });
            assert_eq!(vacant, uneven(5), "a slot that is not in use is linked");
            let unlinked = fault(|r| {
                let ix = at(r, 5);
                r.slots[ix].prev = at(r, 0);
            });
            assert_eq!(unlinked, broken(5), "a link leads past a neighbour");
            let cut = fault(|r| r.regions[usize::from(region)].last = at(r, 1));
            assert!(
                matches!(cut, Some(Fault::BrokenLink { region, .. }) if region == id),
                "the last is not the last"
            );
            let short = fault(|r| r.regions[usize::from(region)].len = 5);
            assert!(
                matches!(short, Some(Fault::Uneven { region, .. }) if region == id),
                "the region ends too early"
            );
        }
    }

    #[test]
    fn a_hole_behind_the_last_block_of_a_growing_region_is_found() {
        let found = fault(|r| {
            let last = r.regions[1].last;
            r.slots[last].gap = 1;
            r.holes.insert(&mut r.slots, last);
        });
        assert!(matches!(found, Some(Fault::Uneven { region: RegionId(1), .. })), "{found:?}");
    }

    #[test]
    fn a_hole_that_the_search_does_not_know_is_found() {
        let lost = fault(|r| {
            let before = slot(r, 0, 1);
            r.holes.remove(&mut r.slots, before);
        });
        assert!(matches!(lost, Some(Fault::LostHole { holes: 1, .. })), "{lost:?}");
        let unknown = fault(|r| {
            let before = slot(r, 0, 0);
            r.holes.insert(&mut r.slots, before);
        });
        assert!(matches!(unknown, Some(Fault::LostHole { .. })), "{unknown:?}");
    }

    #[test]
    fn totals_that_do_not_add_up_are_found() {
        let what = |damage: fn(&mut Ranges)| match fault(damage) {
            Some(Fault::WrongTotal { what, counted, total }) => (what, total as i64 - counted as i64),
            other => panic!("{other:?}"),
        };
        assert_eq!(what(|r| r.tally.live += 3), ("live granules", 3));
        assert_eq!(what(|r| r.tally.live_blocks -= 1), ("live blocks", -1));
        assert_eq!(what(|r| r.tally.reserved += 1), ("reserved granules", 1));
    }

    #[test]
    fn a_block_that_is_kept_for_nothing_is_found() {
        let parked = fault(|r| {
            let (ix, _) = r.slots.iter().find(|(_, slot)| slot.state == State::Parked).unwrap();
            r.history.tenures[ix.at()].rooted = false;
        });
        assert!(matches!(parked, Some(Fault::WrongMemory { .. })), "{parked:?}");
    }
}
