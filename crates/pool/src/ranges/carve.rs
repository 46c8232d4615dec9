//! Taking blocks out of free memory and giving them back: the steps that allocation, release and restore share.
//!
//! Each step keeps what `audit` checks: the slots of a region cover it from its start to its tail in address order, no two holes
//! touch, and no hole touches the tail.

use super::Ranges;
use super::region::Region;
use super::slots::{SlotIx, State};

impl Ranges {
    /// The region of a slot. Slots are only made for regions that exist, and a region with slots of blocks is never removed.
    pub(super) fn region_mut(&mut self, region: u16) -> &mut Region {
        &mut self.regions[usize::from(region)]
    }

    /// Links `slot` behind `prev`, or as the first of its region when `prev` is `NONE`, and notes its address.
    fn link_after(&mut self, prev: SlotIx, slot: SlotIx) {
        let region = &mut self.regions[usize::from(self.slots[slot].region)];
        let next = if prev.is_some() { self.slots[prev].next } else { region.first };
        self.slots[slot].prev = prev;
        self.slots[slot].next = next;
        if prev.is_some() {
            self.slots[prev].next = slot;
        } else {
            region.first = slot;
        }
        if next.is_some() {
            self.slots[next].prev = slot;
        } else {
            region.last = slot;
        }
        region.index.insert(&self.slots, slot);
    }

    /// Takes `slot` out of the address order. Its own links stay as they were.
    fn unlink(&mut self, slot: SlotIx) {
        let gone = self.slots[slot];
        let region = &mut self.regions[usize::from(gone.region)];
        region.index.remove(&self.slots, slot);
        if gone.prev.is_some() {
            self.slots[gone.prev].next = gone.next;
        } else {
            region.first = gone.next;
        }
        if gone.next.is_some() {
            self.slots[gone.next].prev = gone.prev;
        } else {
            region.last = gone.prev;
        }
    }

    /// Lets `new` take the place of `old` among the neighbours, at the same offset.
    fn relink(&mut self, old: SlotIx, new: SlotIx) {
        let gone = self.slots[old];
        self.slots[new].prev = gone.prev;
        self.slots[new].next = gone.next;
        let region = &mut self.regions[usize::from(gone.region)];
        region.index.replace(gone.offset, old, new);
        if gone.prev.is_some() {
            self.slots[gone.prev].next = new;
        } else {
            region.first = new;
        }
        if gone.next.is_some() {
            self.slots[gone.next].prev = new;
        } else {
            region.last = new;
        }
    }

    /// Makes a hole of `size` granules at `offset`, right behind `prev`.
    pub(super) fn add_hole(&mut self, prev: SlotIx, region: u16, offset: u32, size: u32) {
        let hole = self.slots.occupy(region, offset, size, State::Hole);
        self.link_after(prev, hole);
        self.holes.insert(&mut self.slots, hole);
    }

    /// Makes a block of `size` granules, `gap` granules into `hole`.
    pub(super) fn take_from_hole(&mut self, hole: SlotIx, gap: u32, size: u32) -> SlotIx {
        self.holes.remove(&mut self.slots, hole);
        let whole = self.slots[hole];
        let block = if gap == 0 {
            // The hole's slot becomes the block's: nothing to relink, and its serial has not named a block yet.
            self.slots[hole].state = State::Live;
            self.slots[hole].size = size;
            hole
        } else {
            self.slots[hole].size = gap;
            self.holes.insert(&mut self.slots, hole);
            let block = self.slots.occupy(whole.region, whole.offset + gap, size, State::Live);
            self.link_after(hole, block);
            block
        };
        let rest = whole.size - gap - size;
        if rest > 0 {
            self.add_hole(block, whole.region, whole.offset + gap + size, rest);
        }
        self.count_live(whole.region, size);
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
        let new = self.slots[block];
        let region = &self.regions[usize::from(new.region)];
        let (tail, last) = (region.tail, region.last);
        if new.offset > tail {
            self.add_hole(last, new.region, tail, new.offset - tail);
        }
        let region = &self.regions[usize::from(new.region)];
        self.link_after(region.last, block);
        self.region_mut(new.region).tail = new.end();
        self.count_live(new.region, new.size);
    }

    /// Makes a parked `block` live at the place it has, and says whether that was free. The tail may end up behind the region's end:
    /// a restore checks that when it is done.
    pub(super) fn put_back(&mut self, block: SlotIx) -> bool {
        let new = self.slots[block];
        let region = &self.regions[usize::from(new.region)];
        if region.grows() && new.offset >= region.tail {
            self.revive(block);
            self.append(block);
            return true;
        }
        let hole = region.index.at_or_before(&self.slots, new.offset);
        if !hole.is_some() || self.slots[hole].state != State::Hole || self.slots[hole].end() < new.end() {
            return false;
        }
        self.holes.remove(&mut self.slots, hole);
        let whole = self.slots[hole];
        self.revive(block);
        if new.offset > whole.offset {
            self.slots[hole].size = new.offset - whole.offset;
            self.holes.insert(&mut self.slots, hole);
            self.link_after(hole, block);
        } else {
            self.relink(hole, block);
            self.slots.vacate(hole);
        }
        if whole.end() > new.end() {
            self.add_hole(block, new.region, new.end(), whole.end() - new.end());
        }
        self.count_live(new.region, new.size);
        true
    }

    /// Makes the memory of a live `block` free and merges it with its neighbours. The slot ends up parked if `keep` says so; otherwise
    /// it becomes a hole or vacant, and the block's name is stale from here on.
    pub(super) fn give_back(&mut self, block: SlotIx, keep: bool) {
        let gone = self.slots[block];
        self.uncount_live(gone.region, gone.size);
        let before = gone.prev.is_some() && self.slots[gone.prev].state == State::Hole;
        let region = &self.regions[usize::from(gone.region)];
        if !gone.next.is_some() && region.grows() {
            self.unlink(block);
            let mut tail = gone.offset;
            if before {
                tail = self.slots[gone.prev].offset;
                self.swallow(gone.prev);
            }
            self.region_mut(gone.region).tail = tail;
            self.retire(block, keep);
            return;
        }
        let after = gone.next.is_some() && self.slots[gone.next].state == State::Hole;
        if before {
            self.holes.remove(&mut self.slots, gone.prev);
            let mut size = self.slots[gone.prev].size + gone.size;
            self.unlink(block);
            if after {
                size += self.slots[gone.next].size;
                self.swallow(gone.next);
            }
            self.slots[gone.prev].size = size;
            self.holes.insert(&mut self.slots, gone.prev);
            self.retire(block, keep);
            return;
        }
        let mut size = gone.size;
        if after {
            size += self.slots[gone.next].size;
            self.swallow(gone.next);
        }
        let hole = if keep {
            let hole = self.slots.occupy(gone.region, gone.offset, size, State::Hole);
            self.relink(block, hole);
            self.retire(block, keep);
            hole
        } else {
            let slot = &mut self.slots[block];
            slot.serial = slot.serial.wrapping_add(1);
            slot.state = State::Hole;
            slot.size = size;
            block
        };
        self.holes.insert(&mut self.slots, hole);
    }

    /// Removes a hole whose memory another slot or the tail takes over.
    fn swallow(&mut self, hole: SlotIx) {
        self.holes.remove(&mut self.slots, hole);
        self.unlink(hole);
        self.slots.vacate(hole);
    }

    fn retire(&mut self, block: SlotIx, keep: bool) {
        if keep {
            let slot = &mut self.slots[block];
            slot.state = State::Parked;
            let region = slot.region;
            self.region_mut(region).parked += 1;
        } else {
            self.slots.vacate(block);
        }
    }

    fn revive(&mut self, block: SlotIx) {
        let slot = &mut self.slots[block];
        slot.state = State::Live;
        let region = slot.region;
        self.region_mut(region).parked -= 1;
    }

    /// Forgets a parked block: its name is stale from here on.
    pub(super) fn forget(&mut self, block: SlotIx) {
        let region = self.slots[block].region;
        self.region_mut(region).parked -= 1;
        self.slots.vacate(block);
    }

    fn count_live(&mut self, region: u16, size: u32) {
        self.region_mut(region).live += 1;
        self.tally.add_live(size);
    }

    fn uncount_live(&mut self, region: u16, size: u32) {
        self.region_mut(region).live -= 1;
        self.tally.remove_live(size);
    }
}
