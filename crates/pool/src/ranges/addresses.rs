//! The blocks of one region by address.
//!
//! Splitting and merging need only neighbours. Putting a block back where a checkpoint or a plan wants it, and finding the block that
//! an address lies in, need a search. Each page of 64 granules may have a hint: a block that starts in it. A tree of 64-bit words over
//! the pages finds the nearest earlier page with a hint, and from there the neighbours lead on.
//!
//! Allocating and freeing know nothing of this. Hints are set by what searches: a search leaves one in every page that it walks through,
//! and one for the block that it is for. It drops those that are out of date. So no page without a hint is walked through twice, unless
//! a block died in between, and a search costs no more than a page's worth of steps for each death or birth since the last one. The
//! table takes 4 bytes of host memory for each page, which is 32 KiB of device memory by default.

use super::slots::{Slot, SlotIx, State};

/// Granules in a page, as a shift.
const PAGE_SHIFT: u32 = 6;

#[derive(Clone, Debug, Default)]
pub(super) struct AddressIndex {
    /// A block that started in the page when it was noted.
    hints: Vec<SlotIx>,
    /// `levels[0]` has a bit for each page with a hint, `levels[n + 1]` one for each word of `levels[n]` that is not zero.
    levels: Vec<Vec<u64>>,
}

fn page_of(offset: u32) -> usize {
    (offset >> PAGE_SHIFT) as usize
}

impl AddressIndex {
    /// Notes that the live block in `slot` starts at `offset`.
    pub(super) fn note(&mut self, offset: u32, slot: SlotIx) {
        let page = page_of(offset);
        match self.hints.get_mut(page) {
            Some(hint) if hint.is_some() => *hint = slot,
            _ => self.open(page, slot),
        }
    }

    /// The last block of `region` that starts at or before `offset`, or the edge of the region.
    pub(super) fn at_or_before(&mut self, table: &[Slot], region: u16, edge: SlotIx, offset: u32) -> SlotIx {
        let mut slot = self.hint_at_or_before(table, region, page_of(offset)).unwrap_or(edge);
        // The hint may be the last block of the page, and the wanted one the first.
        while table[slot].offset > offset {
            slot = table[slot].prev;
        }
        let mut page = page_of(table[slot].offset);
        loop {
            let next = table[slot].next;
            if !next.is_some() || table[next].offset > offset {
                return slot;
            }
            slot = next;
            if page_of(table[slot].offset) != page {
                page = page_of(table[slot].offset);
                self.note(table[slot].offset, slot);
            }
        }
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

/// Whether a hint still says the truth.
fn is_sound(table: &[Slot], region: u16, page: usize, hint: SlotIx) -> bool {
    let slot = &table[hint];
    slot.state == State::Live && slot.region == region && page_of(slot.offset) == page
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;

    const OFFSETS: [u32; 11] = [0, 1, 63, 64, 65, 4096, 4097, 300_000, 20_000_000, 20_000_063, 1_200_000_000];

    /// Blocks of one granule at the offsets, behind an edge.
    fn chain(offsets: impl IntoIterator<Item = u32>) -> (Slots, SlotIx, Vec<(SlotIx, u32)>) {
        let mut slots = Slots::new();
        let edge = slots.occupy(0, 0, 0, State::Edge);
        let mut last = edge;
        let mut all = Vec::new();
        for offset in offsets {
            let ix = slots.occupy(0, offset, 1, State::Live);
            slots[ix].prev = last;
            slots[last].next = ix;
            last = ix;
            all.push((ix, offset));
        }
        slots[last].next = SlotIx::NONE;
        (slots, edge, all)
    }

    fn kill(slots: &mut Slots, ix: SlotIx) {
        let (prev, next) = (slots[ix].prev, slots[ix].next);
        slots[prev].next = next;
        if next.is_some() {
            slots[next].prev = prev;
        }
        slots.vacate(ix);
    }

    #[test]
    fn pages_begin_every_64_granules() {
        assert_eq!([0, 63, 64, 127, 128].map(page_of), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn the_nearest_earlier_block_is_found_over_any_distance_and_after_any_death() {
        for stride in [0, 2, 3, 5, 7] {
            let mut index = AddressIndex::default();
            let (mut slots, edge, mut left) = chain(OFFSETS);
            while !left.is_empty() {
                let near = OFFSETS.iter().flat_map(|&o| [o, o + 1, o + 5, o.saturating_sub(1)]);
                for probe in near.chain([u32::MAX]) {
                    let want = left.iter().rev().find(|(_, offset)| *offset <= probe);
                    let want = want.map_or(edge, |want| want.0);
                    assert_eq!(index.at_or_before(&slots, 0, edge, probe), want, "at {probe}");
                }
                let (gone, _) = left.remove(stride * left.len() / 8);
                kill(&mut slots, gone);
            }
            assert_eq!(index.at_or_before(&slots, 0, edge, u32::MAX), edge);
        }
    }

    #[test]
    fn a_search_leaves_a_hint_in_every_page_that_it_walks_through() {
        let (slots, edge, all) = chain((0..10_000).map(|at| at * 8));
        let mut index = AddressIndex::default();
        index.at_or_before(&slots, 0, edge, 79_992);
        for &(ix, offset) in &all {
            // Before the first page of blocks comes the edge, which starts in it as well.
            let hint = index.hint_at_or_before(&slots, 0, page_of(offset));
            let want = (offset >= 64).then(|| all[offset as usize / 64 * 8].0);
            assert_eq!(hint, want, "for {ix:?} at {offset}");
        }
    }

    #[test]
    fn a_hint_that_is_out_of_date_is_dropped() {
        let (mut slots, edge, all) = chain([70, 500, 90_000]);
        let mut index = AddressIndex::default();
        // The last first, so that the others are noted in a table that is long enough already.
        for &(ix, offset) in all.iter().rev() {
            index.note(offset, ix);
        }
        kill(&mut slots, all[1].0);
        assert_eq!(index.at_or_before(&slots, 0, edge, 600), all[0].0);
        assert_eq!(index.hints[page_of(500)], SlotIx::NONE);
        assert_eq!(index.marked_before(page_of(600) + 1), Some(page_of(70)));
    }

    #[test]
    fn a_hint_whose_slot_serves_elsewhere_is_not_trusted() {
        for (region, offset, state) in
            [(1, 500, State::Live), (0, 9000, State::Live), (0, 500, State::Parked)]
        {
            let (mut slots, edge, all) = chain([70, 500]);
            let mut index = AddressIndex::default();
            index.note(500, all[1].0);
            kill(&mut slots, all[1].0);
            let new = slots.occupy(region, offset, 1, state);
            assert_eq!(new, all[1].0);
            assert_eq!(index.at_or_before(&slots, 0, edge, 600), all[0].0);
        }
    }
}
