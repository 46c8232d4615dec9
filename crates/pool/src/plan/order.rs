//! The orders in which list packing takes the blocks.

use std::cmp::Reverse;

use super::pack::Item;
use super::skyline::skyline_order;

/// An order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Largest first.
    Size,
    /// Longest-lived first.
    Lifetime,
    /// Largest product of size and lifetime first.
    Area,
    /// In the order of birth, as an allocator that does not know the future has to.
    Birth,
    /// Last to die first: the order of birth of the program run backwards.
    Death,
    /// Those live at the moment of the largest sum first, and then by distance from it.
    Peak,
    /// Those live at the moment of the largest sum first, each part by size.
    PeakSize,
    /// By rising offset in a skyline packing.
    Skyline(Tie),
}

/// Which block a skyline packing prefers among those that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// The longest-lived.
    Lifetime,
    /// The one with the largest product of size and lifetime.
    Area,
    /// The one with the largest product of size and squared lifetime, between the two above.
    LongArea,
}

impl Order {
    /// All orders, in the order in which they are tried: where two do equally well the earlier one is kept.
    pub const ALL: [Self; 10] = [
        Self::Skyline(Tie::Lifetime),
        Self::Skyline(Tie::LongArea),
        Self::Skyline(Tie::Area),
        Self::Size,
        Self::PeakSize,
        Self::Peak,
        Self::Area,
        Self::Lifetime,
        Self::Death,
        Self::Birth,
    ];

    /// The positions of `items` in this order, where the sum of live sizes is largest at `peak`.
    pub(super) fn of(self, items: &[Item], peak: u32) -> Vec<u32> {
        let distance = |item: &Item| {
            if item.birth > peak { item.birth - peak } else { (peak + 1).saturating_sub(item.death) }
        };
        let largest = |size: u64| Reverse(u128::from(size));
        let area = |item: &Item| u128::from(item.size) * u128::from(item.life());
        // Smaller keys come first, and equal keys in the order of birth.
        let by = |key: &dyn Fn(&Item) -> (u32, Reverse<u128>)| {
            let mut order: Vec<u32> = (0..items.len() as u32).collect();
            order.sort_by_cached_key(|&at| key(&items[at as usize]));
            order
        };
        match self {
            Self::Size => by(&|item| (0, largest(item.size))),
            Self::Lifetime => by(&|item| (0, largest(item.life()))),
            Self::Area => by(&|item| (0, Reverse(area(item)))),
            Self::Birth => by(&|item| (item.birth, largest(0))),
            Self::Death => by(&|item| (0, largest(item.death.into()))),
            Self::Peak => by(&|item| (distance(item), largest(item.size))),
            Self::PeakSize => by(&|item| (distance(item).min(1), largest(item.size))),
            Self::Skyline(tie) => skyline_order(items, tie),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_puts_first_what_it_says() {
        let item = |size, birth, death| Item { size, unit: 1, birth, death };
        // The largest, the longest-lived, the largest area, the first born, the one at the peak.
        let items = [item(90, 4, 5), item(1, 1, 30), item(30, 6, 20), item(2, 0, 2), item(5, 24, 26)];
        let first = |order: Order| order.of(&items, 25)[0];
        assert_eq!(first(Order::Size), 0);
        assert_eq!(first(Order::Lifetime), 1);
        assert_eq!(first(Order::Area), 2);
        assert_eq!(first(Order::Birth), 3);
        assert_eq!(first(Order::Death), 1);
        assert_eq!(Order::Peak.of(&items, 25), [4, 1, 2, 0, 3]);
        assert_eq!(Order::PeakSize.of(&items, 25), [4, 1, 0, 2, 3]);
    }

    #[test]
    fn the_distance_from_the_peak_counts_moments_on_both_sides() {
        let item = |size, birth, death| Item { size, unit: 1, birth, death };
        // Born 2 after the peak, dead 3 before it, dead at it, live at it.
        let items = [item(9, 12, 13), item(9, 0, 8), item(9, 3, 10), item(1, 10, 11)];
        assert_eq!(Order::Peak.of(&items, 10), [3, 2, 0, 1]);
    }
}
