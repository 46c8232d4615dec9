//! Taking blocks out of free memory and giving them back: the steps that allocation, release and restore share.
//!
//! Each step keeps what `audit` checks: the slots of a region cover it from its start to its tail in address order, no two holes
//! touch, no hole touches the tail, and the index by address knows every live block.

use super::Ranges;
use super::region::Region;
use super::slots::{Slot, SlotIx, State};

/// Links `slot` behind `prev`, or as the first of its region when `prev` is `NONE`.
fn link_after(table: &mut [Slot], region: &mut Region, prev: SlotIx, slot: SlotIx) {
    let next = if prev.is_some() { std::mem::replace(&mut table[prev].next, slot) } else { region.first };
    if !prev.is_some() {
        region.first = slot;
    }
    if next.is_some() {
        table[next].prev = slot;
    } else {
        region.last = slot;
    }
    table[slot].prev = prev;
    table[slot].next = next;
}

/// Makes `before` and `after` neighbours; `NONE` stands for the end of the region on that side.
fn join(table: &mut [Slot], region: &mut Region, before: SlotIx, after: SlotIx) {
    if before.is_some() {
        table[before].next = after;
    } else {
        region.first = after;
    }
    if after.is_some() {
        table[after].prev = before;
    } else {
        region.last = before;
    }
}

/// Lets `new` take the place of `old` among the neighbours.
fn relink(table: &mut [Slot], region: &mut Region, old: SlotIx, new: SlotIx) {
    let Slot { prev, next, .. } = table[old];
    join(table, region, prev, new);
    join(table, region, new, next);
}

impl Ranges {
    /// Makes a hole of `size` granules at `offset`, right behind `prev`.
    pub(super) fn add_hole(&mut self, prev: SlotIx, region: u16, offset: u32, size: u32) {
        let hole = self.slots.occupy(region, offset, size, State::Hole);
        link_after(&mut self.slots, &mut self.regions[usize::from(region)], prev, hole);
        self.holes.insert(&mut self.slots, hole);
    }

    /// Makes a block of `size` granules, `gap` granules into `hole`.
    #[inline]
    pub(super) fn take_from_hole(&mut self, hole: SlotIx, gap: u32, size: u32) -> SlotIx {
        let Self { slots, holes, regions, .. } = self;
        let (table, vacant) = slots.parts();
        holes.remove(table, hole);
        let Slot { offset, size: whole, region: name, .. } = table[hole];
        let region = &mut regions[usize::from(name)];
        let block = if gap == 0 {
            // The hole's slot becomes the block's: nothing to relink, and its serial has not named a block yet.
            let slot = &mut table[hole];
            slot.state = State::Live;
            slot.size = size;
            hole
        } else {
            table[hole].size = gap;
            holes.insert(table, hole);
            let block = vacant.occupy(table, name, offset + gap, size, State::Live);
            link_after(table, region, hole, block);
            block
        };
        region.index.note_birth(offset + gap, block);
        let rest = whole - gap - size;
        if rest > 0 {
            let hole = vacant.occupy(table, name, offset + gap + size, rest, State::Hole);
            link_after(table, region, block, hole);
            holes.insert(table, hole);
        }
        self.tally.add_live(size);
        block
    }

    /// Makes a block of `size` granules at `offset`, which is at or behind the start of the tail.
    pub(super) fn take_from_tail(&mut self, region: u16, offset: u32, size: u32) -> SlotIx {
        let block = self.slots.occupy(region, offset, size, State::Live);
        self.append(block);
        block
    }

    /// Links `block` into the tail of its region, with a hole before it if it does not start the tail.
    fn append(&mut self, block: SlotIx) {
        let Slot { offset, size, region: name, .. } = self.slots[block];
        let region = &self.regions[usize::from(name)];
        let (tail, last) = (region.tail, region.last);
        if offset > tail {
            self.add_hole(last, name, tail, offset - tail);
        }
        let region = &mut self.regions[usize::from(name)];
        let last = region.last;
        link_after(&mut self.slots, region, last, block);
        region.tail = offset + size;
        region.index.note_birth(offset, block);
        self.tally.add_live(size);
    }

    /// Makes a parked `block` live at the place it has, and says whether that was free. The tail may end up behind the region's end:
    /// a restore checks that when it is done.
    pub(super) fn put_back(&mut self, block: SlotIx) -> bool {
        let new = self.slots[block];
        let region = &self.regions[usize::from(new.region)];
        if region.grows() && new.offset >= region.tail {
            self.slots[block].state = State::Live;
            self.append(block);
            return true;
        }
        let Some(hole) = self.slot_at_or_before(new.region, new.offset) else { return false };
        if self.slots[hole].state != State::Hole || self.slots[hole].end() < new.end() {
            return false;
        }
        self.holes.remove(&mut self.slots, hole);
        let whole = self.slots[hole];
        self.slots[block].state = State::Live;
        let region = &mut self.regions[usize::from(new.region)];
        if new.offset > whole.offset {
            self.slots[hole].size = new.offset - whole.offset;
            self.holes.insert(&mut self.slots, hole);
            link_after(&mut self.slots, region, hole, block);
        } else {
            relink(&mut self.slots, region, hole, block);
            self.slots.vacate(hole);
        }
        region.index.note_birth(new.offset, block);
        if whole.end() > new.end() {
            self.add_hole(block, new.region, new.end(), whole.end() - new.end());
        }
        self.tally.add_live(new.size);
        true
    }

    /// Makes the memory of a live `block` free and merges it with its neighbours. The slot ends up parked if `keep` says so; otherwise
    /// it becomes a hole or vacant, and the block's name is stale from here on.
    #[inline]
    pub(super) fn give_back(&mut self, block: SlotIx, keep: bool) {
        let Self { slots, holes, regions, tally, .. } = self;
        let (table, vacant) = slots.parts();
        let Slot { mut offset, mut size, prev, next, region: name, .. } = table[block];
        tally.remove_live(size);
        let region = &mut regions[usize::from(name)];
        region.index.note_death(table, block);
        let (mut before, mut after) = (prev, next);
        let hole_after = after.is_some() && table[after].state == State::Hole;
        if hole_after {
            holes.remove(table, after);
            size += table[after].size;
            let behind = table[after].next;
            vacant.vacate(table, after);
            after = behind;
        }
        let hole_before = before.is_some() && table[before].state == State::Hole;
        if hole_before {
            holes.remove(table, before);
            offset = table[before].offset;
            size += table[before].size;
        }
        if !after.is_some() && region.grows() {
            if hole_before {
                let ahead = table[before].prev;
                vacant.vacate(table, before);
                before = ahead;
            }
            join(table, region, before, after);
            region.tail = offset;
            return vacant.retire(table, block, keep);
        }
        let hole = if hole_before {
            join(table, region, before, after);
            table[before].size = size;
            vacant.retire(table, block, keep);
            before
        } else if keep {
            let hole = vacant.occupy(table, name, offset, size, State::Hole);
            join(table, region, before, hole);
            join(table, region, hole, after);
            vacant.retire(table, block, keep);
            hole
        } else {
            let slot = &mut table[block];
            slot.serial = slot.serial.wrapping_add(1);
            slot.state = State::Hole;
            slot.size = size;
            if hole_after {
                join(table, region, block, after);
            }
            block
        };
        holes.insert(table, hole);
    }
}
