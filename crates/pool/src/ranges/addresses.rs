//! The slots of one region by address.
//!
//! Splitting and merging need only neighbours. Putting a block back where a checkpoint or a plan wants it, and finding the block that
//! an address lies in, need a search. Each page of 64 granules remembers the first slot that starts in it, and a tree of 64-bit words
//! over the pages finds the nearest earlier page in which a slot starts: O(1) to keep, O(log) to ask, at 4 bytes of host memory for
//! each page (32 KiB of device memory by default).

use super::slots::{SlotIx, Slots};

/// Granules in a page, as a shift.
const PAGE_SHIFT: u32 = 6;

#[derive(Clone, Debug, Default)]
pub(super) struct AddressIndex {
    /// The first slot that starts in each page.
    first: Vec<SlotIx>,
    /// `levels[0]` has a bit for each page that is not empty, `levels[n + 1]` one for each word of `levels[n]` that is not zero.
    levels: Vec<Vec<u64>>,
}

fn page_of(offset: u32) -> usize {
    (offset >> PAGE_SHIFT) as usize
}

impl AddressIndex {
    /// Notes that `slot`, whose links and offset are set, starts at its offset.
    pub(super) fn insert(&mut self, slots: &Slots, slot: SlotIx) {
        let offset = slots[slot].offset;
        let page = page_of(offset);
        if page >= self.first.len() {
            self.extend(page);
        }
        let first = self.first[page];
        if !first.is_some() {
            self.first[page] = slot;
            self.mark(page);
        } else if offset < slots[first].offset {
            self.first[page] = slot;
        }
    }

    /// Forgets `slot`, whose links and offset are still set.
    pub(super) fn remove(&mut self, slots: &Slots, slot: SlotIx) {
        let page = page_of(slots[slot].offset);
        if self.first[page] != slot {
            return;
        }
        let next = slots[slot].next;
        if next.is_some() && page_of(slots[next].offset) == page {
            self.first[page] = next;
        } else {
            self.first[page] = SlotIx::NONE;
            self.unmark(page);
        }
    }

    /// Lets `new` stand where `old` stood, at the same offset.
    pub(super) fn replace(&mut self, offset: u32, old: SlotIx, new: SlotIx) {
        let first = &mut self.first[page_of(offset)];
        if *first == old {
            *first = new;
        }
    }

    /// The last slot that starts at or before `offset`, or `NONE`.
    pub(super) fn at_or_before(&self, slots: &Slots, offset: u32) -> SlotIx {
        let page = page_of(offset);
        let mut slot = self.first.get(page).copied().unwrap_or(SlotIx::NONE);
        if !slot.is_some() || slots[slot].offset > offset {
            let Some(earlier) = self.marked_before(page) else { return SlotIx::NONE };
            slot = self.first[earlier];
        }
        loop {
            let next = slots[slot].next;
            if !next.is_some() || slots[next].offset > offset {
                return slot;
            }
            slot = next;
        }
    }

    #[cold]
    fn extend(&mut self, page: usize) {
        self.first.resize(page + 1, SlotIx::NONE);
        let mut bits = page + 1;
        let mut level = 0;
        loop {
            let words = bits.div_ceil(64);
            if level == self.levels.len() {
                // A new top level must know which words below it are filled already.
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

    fn mark(&mut self, page: usize) {
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

    /// The last page before `page` in which a slot starts.
    fn marked_before(&self, page: usize) -> Option<usize> {
        let mut at = page.min(self.first.len());
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

#[cfg(test)]
mod tests {
    use super::super::slots::State;
    use super::*;

    #[test]
    fn the_nearest_earlier_slot_is_found_over_any_distance() {
        let offsets = [0_u32, 1, 63, 64, 65, 4096, 4097, 300_000, 20_000_000, 20_000_063, 1_200_000_000];
        let mut slots = Slots::new();
        let mut index = AddressIndex::default();
        let mut last = SlotIx::NONE;
        for offset in offsets {
            let ix = slots.occupy(0, offset, 1, State::Live);
            slots[ix].prev = last;
            if last.is_some() {
                slots[last].next = ix;
            }
            last = ix;
            index.insert(&slots, ix);
        }
        let found = |index: &AddressIndex, slots: &Slots, offset| {
            let ix = index.at_or_before(slots, offset);
            ix.is_some().then(|| slots[ix].offset)
        };
        for probe in offsets.iter().flat_map(|&o| [o, o + 1, o + 5, o.saturating_sub(1)]) {
            let want = offsets.iter().copied().filter(|&offset| offset <= probe).max();
            assert_eq!(found(&index, &slots, probe), want, "at {probe}");
        }
        assert_eq!(found(&index, &slots, u32::MAX), Some(1_200_000_000));
        // Take out every second slot, then ask again.
        let all: Vec<_> = slots.iter().map(|(ix, _)| ix).collect();
        for &ix in all.iter().step_by(2) {
            index.remove(&slots, ix);
            let (prev, next) = (slots[ix].prev, slots[ix].next);
            if prev.is_some() {
                slots[prev].next = next;
            }
            if next.is_some() {
                slots[next].prev = prev;
            }
        }
        let left: Vec<u32> = offsets.iter().copied().skip(1).step_by(2).collect();
        for probe in offsets.iter().flat_map(|&o| [o, o + 1, o + 5, o.saturating_sub(1)]) {
            let want = left.iter().copied().filter(|&offset| offset <= probe).max();
            assert_eq!(found(&index, &slots, probe), want, "at {probe} after removals");
        }
    }
}
