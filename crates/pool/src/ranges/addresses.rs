//! The blocks of one region by address.
//!
//! Splitting and merging need only neighbours. Putting a block back where a checkpoint or a plan wants it, and finding the block that
//! an address lies in, need a search. Each page of 64 granules has a hint: a live block that starts in it. A tree of 64-bit words over
//! the pages finds the nearest earlier page with a hint. From there the neighbours lead on, at most a page's worth of steps.
//!
//! A hint goes stale when the last block of its page dies. It is cleared by the first search that meets it, so that the two hot
//! operations, a block's birth and death, cost one or two words. The table takes 4 bytes of host memory for each page, which is 32 KiB
//! of device memory by default.

use super::slots::{Slot, SlotIx, State};

/// Granules in a page, as a shift.
const PAGE_SHIFT: u32 = 6;

#[derive(Clone, Debug, Default)]
pub(super) struct AddressIndex {
    /// A live block that starts in the page, or a stale hint if no live block does.
    hints: Vec<SlotIx>,
    /// `levels[0]` has a bit for each page with a hint, `levels[n + 1]` one for each word of `levels[n]` that is not zero.
    levels: Vec<Vec<u64>>,
}

fn page_of(offset: u32) -> usize {
    (offset >> PAGE_SHIFT) as usize
}

impl AddressIndex {
    /// Notes that the block in `slot` was born at `offset`.
    #[inline]
    pub(super) fn note_birth(&mut self, offset: u32, slot: SlotIx) {
        match self.hints.get_mut(page_of(offset)) {
            Some(hint) if hint.is_some() => *hint = slot,
            _ => self.open(page_of(offset), slot),
        }
    }

    /// Notes that the block in `slot` dies. It must still be linked to its neighbours.
    #[inline]
    pub(super) fn note_death(&mut self, table: &[Slot], slot: SlotIx) {
        let gone = &table[slot];
        let page = page_of(gone.offset);
        if self.hints[page] != slot {
            return;
        }
        // Another block of this page, if there is one, is the nearest on one of the two sides, with at most a hole between.
        let near = |ix: SlotIx| ix.is_some() && page_of(table[ix].offset) == page;
        let mut prev = gone.prev;
        if near(prev) && table[prev].state == State::Hole {
            prev = table[prev].prev;
        }
        if near(prev) {
            self.hints[page] = prev;
            return;
        }
        let mut next = gone.next;
        if near(next) && table[next].state == State::Hole {
            next = table[next].next;
        }
        if near(next) {
            self.hints[page] = next;
        }
    }

    /// The last slot of `region` that starts at or before `offset`, or `NONE`; `first` is the first slot of the region.
    pub(super) fn at_or_before(&mut self, table: &[Slot], region: u16, first: SlotIx, offset: u32) -> SlotIx {
        let mut slot = self.hint_at_or_before(table, region, page_of(offset)).unwrap_or(first);
        // The hint may be the last block of the page, and the wanted slot the first.
        while slot.is_some() && table[slot].offset > offset {
            slot = table[slot].prev;
        }
        while slot.is_some() {
            let next = table[slot].next;
            if !next.is_some() || table[next].offset > offset {
                break;
            }
            slot = next;
        }
        slot
    }

    /// Whether the hint of the page of `offset` is sound, given that a live block of `region` starts there.
    pub(super) fn has_hint(&self, table: &[Slot], region: u16, offset: u32) -> bool {
        let page = page_of(offset);
        self.hints.get(page).is_some_and(|&hint| hint.is_some() && is_sound(table, region, page, hint))
    }

    fn hint_at_or_before(&mut self, table: &[Slot], region: u16, page: usize) -> Option<SlotIx> {
        let mut below = page.saturating_add(1);
        loop {
            let page = self.marked_before(below)?;
            let hint = self.hints[page];
            if is_sound(table, region, page, hint) {
                return Some(hint);
            }
            self.hints[page] = SlotIx::NONE;
            self.unmark(page);
            below = page;
        }
    }

    #[inline(never)]
    fn open(&mut self, page: usize, slot: SlotIx) {
        if page >= self.hints.len() {
            self.extend(page);
        }
        self.hints[page] = slot;
        let mut at = page;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    fn extend(&mut self, page: usize) {
        self.hints.resize(page + 1, SlotIx::NONE);
        let mut bits = page + 1;
        let mut level = 0;
        loop {
            let words = bits.div_ceil(64);
            if level == self.levels.len() {
                // A new top level must know whether the one word that there was below it is filled already.
                let filled = level > 0 && self.levels[level - 1].first().is_some_and(|&word| word != 0);
                self.levels.push(vec![u64::from(filled)]);
            }
            if self.levels[level].len() < words {
                self.levels[level].resize(words, 0);
            }
            if words == 1 {
                return;
            }
            bits = words;
            level += 1;
        }
    }

    fn unmark(&mut self, page: usize) {
        let mut at = page;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The last page before `page` that has a hint.
    fn marked_before(&self, page: usize) -> Option<usize> {
        let mut at = page.min(self.hints.len());
        for (height, level) in self.levels.iter().enumerate() {
            let below = level.get(at / 64).copied().unwrap_or(0) & ((1 << (at % 64)) - 1);
            if below != 0 {
                let mut found = at / 64 * 64 + 63 - below.leading_zeros() as usize;
                for lower in self.levels[..height].iter().rev() {
                    found = found * 64 + 63 - lower[found].leading_zeros() as usize;
                }
                return Some(found);
            }
            at /= 64;
        }
        None
    }
}

fn is_sound(table: &[Slot], region: u16, page: usize, hint: SlotIx) -> bool {
    let slot = &table[hint];
    slot.state == State::Live && slot.region == region && page_of(slot.offset) == page
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;

    const OFFSETS: [u32; 11] = [0, 1, 63, 64, 65, 4096, 4097, 300_000, 20_000_000, 20_000_063, 1_200_000_000];

    /// Blocks of one granule at the offsets, linked to each other as if there were nothing between.
    fn chain(index: &mut AddressIndex) -> (Slots, Vec<(SlotIx, u32)>) {
        let mut slots = Slots::new();
        let mut last = SlotIx::NONE;
        let mut all = Vec::new();
        for offset in OFFSETS {
            let ix = slots.occupy(0, offset, 1, State::Live);
            (slots[ix].prev, slots[ix].next) = (last, SlotIx::NONE);
            if last.is_some() {
                slots[last].next = ix;
            }
            last = ix;
            index.note_birth(offset, ix);
            all.push((ix, offset));
        }
        (slots, all)
    }

    fn kill(index: &mut AddressIndex, slots: &mut Slots, ix: SlotIx) {
        index.note_death(slots, ix);
        let (prev, next) = (slots[ix].prev, slots[ix].next);
        if prev.is_some() {
            slots[prev].next = next;
        }
        if next.is_some() {
            slots[next].prev = prev;
        }
        slots.vacate(ix);
    }

    fn check(index: &mut AddressIndex, slots: &Slots, left: &[(SlotIx, u32)]) {
        let first = left.first().map_or(SlotIx::NONE, |first| first.0);
        for probe in OFFSETS.iter().flat_map(|&o| [o, o + 1, o + 5, o.saturating_sub(1)]).chain([u32::MAX]) {
            let found = index.at_or_before(slots, 0, first, probe);
            let want = left.iter().rev().find(|(_, offset)| *offset <= probe);
            assert_eq!(found, want.map_or(SlotIx::NONE, |want| want.0), "at {probe}");
        }
        for &(_, offset) in left {
            assert!(index.has_hint(slots, 0, offset), "the page of {offset} has a block and no hint");
        }
    }

    #[test]
    fn the_nearest_earlier_slot_is_found_over_any_distance_and_after_any_death() {
        for stride in [2, 3, 5, 7] {
            let mut index = AddressIndex::default();
            let (mut slots, mut left) = chain(&mut index);
            while !left.is_empty() {
                check(&mut index, &slots, &left);
                let (gone, _) = left.remove(stride * left.len() / 8);
                kill(&mut index, &mut slots, gone);
            }
            check(&mut index, &slots, &left);
        }
    }

    #[test]
    fn a_hint_whose_slot_serves_elsewhere_is_not_trusted() {
        let mut index = AddressIndex::default();
        let mut slots = Slots::new();
        let old = slots.occupy(0, 500, 1, State::Live);
        index.note_birth(500, old);
        kill(&mut index, &mut slots, old);
        for (region, offset) in [(1, 500), (0, 9000)] {
            let new = slots.occupy(region, offset, 1, State::Live);
            assert_eq!(new, old);
            assert!(!index.has_hint(&slots, 0, 500));
            slots.vacate(new);
        }
        assert_eq!(index.at_or_before(&slots, 0, SlotIx::NONE, 600), SlotIx::NONE);
    }
}
