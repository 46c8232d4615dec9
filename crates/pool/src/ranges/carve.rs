//! Taking blocks out of free memory and giving them back: the steps that allocation, release and restore share.
//!
//! Each step keeps what `audit` checks: blocks and the holes behind them cover a region from its start to its end or tail in address
//! order, and a hole is in the search by size if and only if it is not empty.

use super::Ranges;
use super::holes::Holes;
use super::region::Region;
use super::slots::{Slot, SlotIx, State};

/// Puts `block`, whose offset and size are set, into the hole behind `before`, and leaves what it does not cover as holes.
#[inline(always)]
fn place(table: &mut [Slot], holes: &mut Holes, regions: &mut [Region], before: SlotIx, block: SlotIx) {
    holes.remove(table, before);
    let Slot { offset, size, region, .. } = table[block];
    let ahead = &mut table[before];
    let next = std::mem::replace(&mut ahead.next, block);
    let skipped = offset - ahead.end();
    let rest = ahead.gap - skipped - size;
    ahead.gap = skipped;
    let new = &mut table[block];
    new.prev = before;
    new.next = next;
    new.gap = rest;
    match table.get_mut(next.at()) {
        Some(next) => next.prev = block,
        None => regions[usize::from(region)].last = block,
    }
    if skipped > 0 {
        holes.insert(table, before);
    }
    if rest > 0 {
        holes.insert(table, block);
    }
}

/// Puts `block`, whose offset and size are set, into the tail of a growing region, and leaves what it skips as a hole.
#[inline]
fn append(table: &mut [Slot], holes: &mut Holes, region: &mut Region, block: SlotIx) {
    let last = std::mem::replace(&mut region.last, block);
    let offset = table[block].offset;
    let ahead = &mut table[last];
    ahead.next = block;
    ahead.gap = offset - ahead.end();
    let skips = ahead.gap > 0;
    let new = &mut table[block];
    new.prev = last;
    new.next = SlotIx::NONE;
    new.gap = 0;
    if skips {
        holes.insert(table, last);
    }
}

impl Ranges {
    /// Makes a block of `size` granules at `offset`, which with them lies in the hole behind `before`.
    #[inline(always)]
    pub(super) fn take_from_hole(&mut self, before: SlotIx, offset: u32, size: u32) -> SlotIx {
        let (table, vacant) = self.slots.roomy_parts();
        let name = table[before].region;
        let block = vacant.occupy(table, name, offset, size, State::Live);
        place(table, &mut self.holes, &mut self.regions, before, block);
        self.tally.add_live(size);
        block
    }

    /// Makes a block of `size` granules at `offset`, which is at or behind the start of the tail of a growing region.
    pub(super) fn take_from_tail(&mut self, region: u16, offset: u32, size: u32) -> SlotIx {
        let (table, vacant) = self.slots.roomy_parts();
        let block = vacant.occupy(table, region, offset, size, State::Live);
        append(table, &mut self.holes, &mut self.regions[usize::from(region)], block);
        self.tally.add_live(size);
        block
    }

    /// Makes a parked `block` live at the place it has, and says whether that was free. The tail may end up behind the region's end:
    /// a restore checks that when it is done.
    pub(super) fn put_back(&mut self, block: SlotIx) -> bool {
        let Slot { offset, size, region: name, .. } = self.slots[block];
        let region = &self.regions[usize::from(name)];
        let in_tail = region.grows() && offset >= self.slots[region.last].end();
        let before = if in_tail {
            SlotIx::NONE
        } else {
            let Some(before) = self.slot_at_or_before(name, offset) else { return false };
            let ahead = &self.slots[before];
            if offset < ahead.end() || offset + size > ahead.end() + ahead.gap {
                return false;
            }
            before
        };
        let (table, _) = self.slots.parts();
        table[block].state = State::Live;
        if in_tail {
            append(table, &mut self.holes, &mut self.regions[usize::from(name)], block);
        } else {
            place(table, &mut self.holes, &mut self.regions, before, block);
        }
        self.regions[usize::from(name)].index.note(offset, block);
        self.tally.add_live(size);
        true
    }

    /// Makes the memory of a live `block` part of the hole behind the block before it. The slot ends up parked if `keep` says so;
    /// otherwise it becomes vacant, and the block's name is stale from here on.
    #[inline]
    pub(super) fn give_back(&mut self, block: SlotIx, keep: bool) {
        let Self { slots, holes, regions, tally, .. } = self;
        let (table, vacant) = slots.parts();
        let Slot { size, gap, prev, next, region, .. } = table[block];
        tally.remove_live(size);
        if gap > 0 {
            holes.remove(table, block);
        }
        if table[prev].gap > 0 {
            holes.remove(table, prev);
        }
        vacant.retire(table, block, keep);
        table[prev].next = next;
        match table.get_mut(next.at()) {
            Some(next) => next.prev = prev,
            None => {
                let region = &mut regions[usize::from(region)];
                region.last = prev;
                if region.grows() {
                    table[prev].gap = 0;
                    return;
                }
            }
        }
        table[prev].gap += size + gap;
        holes.insert(table, prev);
    }
}
