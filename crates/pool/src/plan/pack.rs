//! List packing: placing blocks one after the other among those placed before.

/// One block, in granules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) size: u64,
    /// The alignment in granules, a power of two.
    pub(super) unit: u64,
    pub(super) birth: u32,
    pub(super) death: u32,
}

impl Item {
    pub(super) fn life(&self) -> u64 {
        u64::from(self.death - self.birth)
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.birth < other.death && other.birth < self.death
    }
}

/// Which of the gaps that hold a block it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The lowest one.
    Lowest,
    /// The smallest one, and among equals the lowest. Above all other blocks only when no gap holds it.
    Tightest,
}

#[derive(Clone, Copy)]
struct Placed {
    offset: u64,
    end: u64,
    birth: u32,
    death: u32,
}

/// Places blocks, and keeps its buffers from one packing to the next.
pub(super) struct Packer<'a> {
    items: &'a [Item],
    /// What is there before any block is placed, by rising offset.
    fixed: Vec<Placed>,
    /// The end of the highest fixed block.
    floor: u64,
    placed: Vec<Placed>,
    /// Where each block was put by the last packing that succeeded in full.
    pub(super) offsets: Vec<u64>,
}

impl<'a> Packer<'a> {
    /// A packer of `items` around `fixed` blocks, each an offset and an item.
    pub(super) fn new(items: &'a [Item], fixed: &[(u64, Item)]) -> Self {
        let mut fixed: Vec<_> = fixed.iter().map(|(offset, item)| Placed::new(*offset, item)).collect();
        fixed.sort_by_key(|placed| placed.offset);
        let floor = fixed.iter().map(|placed| placed.end).max().unwrap_or(0);
        Self { items, fixed, floor, placed: Vec::new(), offsets: vec![0; items.len()] }
    }

    /// Packs the items in `order`, and returns the peak; `None` as soon as the peak exceeds `limit`.
    pub(super) fn pack(&mut self, order: &[u32], fit: Fit, limit: u64) -> Option<u64> {
        self.placed.clear();
        self.placed.extend_from_slice(&self.fixed);
        let mut peak = self.floor;
        for &at in order {
            let item = &self.items[at as usize];
            let offset = self.place_for(item, fit);
            peak = peak.max(offset + item.size);
            if peak > limit {
                return None;
            }
            self.offsets[at as usize] = offset;
            let position = self.placed.partition_point(|placed| placed.offset <= offset);
            self.placed.insert(position, Placed::new(offset, item));
        }
        Some(peak)
    }

    fn place_for(&self, item: &Item, fit: Fit) -> u64 {
        let mut low = 0;
        let mut best: Option<(u64, u64)> = None;
        for placed in &self.placed {
            if placed.birth >= item.death || item.birth >= placed.death {
                continue;
            }
            if placed.offset >= low + item.size {
                if fit == Fit::Lowest {
                    return low;
                }
                let gap = placed.offset - low;
                if best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, low));
                }
            }
            if placed.end > low {
                low = placed.end.next_multiple_of(item.unit);
            }
        }
        best.map_or(low, |(_, offset)| offset)
    }
}

impl Placed {
    fn new(offset: u64, item: &Item) -> Self {
        Self { offset, end: offset + item.size, birth: item.birth, death: item.death }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(size: u64, birth: u32, death: u32) -> Item {
        Item { size, unit: 1, birth, death }
    }

    #[test]
    fn blocks_that_never_live_together_share_their_place() {
        let items = [item(4, 0, 2), item(4, 2, 4), item(2, 1, 3)];
        let mut packer = Packer::new(&items, &[]);
        assert_eq!(packer.pack(&[0, 1, 2], Fit::Lowest, u64::MAX), Some(6));
        assert_eq!(packer.offsets, [0, 0, 4]);
    }

    #[test]
    fn the_tightest_gap_is_not_always_the_lowest() {
        let fixed = [(5, item(1, 0, 9)), (8, item(1, 0, 9))];
        let items = [item(2, 0, 9)];
        let mut packer = Packer::new(&items, &fixed);
        packer.pack(&[0], Fit::Lowest, u64::MAX);
        assert_eq!(packer.offsets, [0]);
        packer.pack(&[0], Fit::Tightest, u64::MAX);
        assert_eq!(packer.offsets, [6]);
        let even = [(2, item(1, 0, 9)), (5, item(1, 0, 9))];
        let mut packer = Packer::new(&items, &even);
        packer.pack(&[0], Fit::Tightest, u64::MAX);
        assert_eq!(packer.offsets, [0], "of two gaps of 2 the lower one");
    }

    #[test]
    fn a_fixed_block_counts_while_it_lives_and_for_the_peak() {
        let items = [item(4, 0, 9), item(4, 5, 9)];
        let mut packer = Packer::new(&items, &[(0, item(4, 0, 5))]);
        assert_eq!(packer.pack(&[0, 1], Fit::Lowest, u64::MAX), Some(8));
        assert_eq!(packer.offsets, [4, 0]);
        assert_eq!(Packer::new(&[], &[(6, item(1, 0, 1))]).pack(&[], Fit::Lowest, u64::MAX), Some(7));
    }

    #[test]
    fn packing_stops_above_the_limit() {
        let items = [item(4, 0, 9), item(4, 0, 9)];
        assert_eq!(Packer::new(&items, &[]).pack(&[0, 1], Fit::Lowest, 7), None);
        assert_eq!(Packer::new(&items, &[]).pack(&[0, 1], Fit::Lowest, 8), Some(8));
    }

    #[test]
    fn aligned_blocks_start_at_multiples_of_their_alignment() {
        let items = [item(3, 0, 9), Item { unit: 4, ..item(2, 0, 9) }];
        let mut packer = Packer::new(&items, &[]);
        packer.pack(&[0, 1], Fit::Tightest, u64::MAX);
        assert_eq!(packer.offsets, [0, 4]);
    }
}
