//! The holes by size: which one serves a request best. A hole goes by the slot of the block before it.
//!
//! Each size class holds its holes in a treap (Seidel and Aragon, 1996) ordered by size, then region, then offset. The priority of a
//! hole is a hash of its place, so the shape of a treap depends on the holes in it and not on the order in which they came. With it
//! the whole search depends on the set of live blocks alone: memory that is freed in one order while recording and in another while
//! replaying leads to the same addresses afterwards. A class with few holes, which is the rule, costs one or two steps; one with `n`
//! holes costs O(log n) on average.
//!
//! One hole, the one that changed last, stays outside the trees. Programs free and allocate in turn, so it is likely to change again at
//! once, and then no tree has to. Searches look at it beside the trees, so that this changes nothing but the time.

use super::size_class::{CLASSES, ClassSet, class_of};
use super::slots::{Slot, SlotIx};

#[derive(Clone, Debug)]
pub(super) struct Holes {
    roots: Box<[SlotIx; CLASSES]>,
    filled: ClassSet,
    /// The hole that changed last, if it is still one.
    loose: SlotIx,
    count: u32,
}

/// Where a hole hangs: at the root of its class, or at one side of its parent.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Left(SlotIx),
    Right(SlotIx),
}

/// What holes of a class are ordered by: size, then region, then offset.
type Key = (u32, u64);

#[inline]
fn key(slot: &Slot) -> Key {
    (slot.gap, u64::from(slot.region) << 32 | u64::from(slot.end()))
}

/// A hash of the hole's place. An odd multiplier is a bijection, and the high bits of the product are well mixed.
#[inline]
fn priority(slot: &Slot) -> u32 {
    let (_, place) = key(slot);
    (place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

impl Holes {
    pub(super) fn new() -> Self {
        Self {
            roots: Box::new([SlotIx::NONE; CLASSES]),
            filled: ClassSet::new(),
            loose: SlotIx::NONE,
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn set(&mut self, slots: &mut [Slot], class: usize, link: Link, to: SlotIx) {
        match link {
            Link::Root => self.roots[class] = to,
            Link::Left(parent) => slots[parent].left = to,
            Link::Right(parent) => slots[parent].right = to,
        }
    }

    /// Adds the hole behind `ix`, whose place and size are set.
    #[inline]
    pub(super) fn insert(&mut self, slots: &mut [Slot], ix: SlotIx) {
        self.count += 1;
        let settled = std::mem::replace(&mut self.loose, ix);
        if settled.is_some() {
            self.plant(slots, settled);
        }
    }

    /// Takes the hole behind `ix` out. Its place and size must be those it was inserted with.
    #[inline]
    pub(super) fn remove(&mut self, slots: &mut [Slot], ix: SlotIx) {
        self.count -= 1;
        if self.loose == ix {
            self.loose = SlotIx::NONE;
        } else {
            self.uproot(slots, ix);
        }
    }

    /// Puts a hole into the tree of its class.
    fn plant(&mut self, slots: &mut [Slot], ix: SlotIx) {
        let class = class_of(slots[ix].gap);
        let mut node = self.roots[class];
        if !node.is_some() {
            self.roots[class] = ix;
            self.filled.insert(class);
            slots[ix].left = SlotIx::NONE;
            slots[ix].right = SlotIx::NONE;
            return;
        }
        let new = key(&slots[ix]);
        let rank = priority(&slots[ix]);
        let mut link = Link::Root;
        while node.is_some() && priority(&slots[node]) >= rank {
            (link, node) = if new < key(&slots[node]) {
                (Link::Left(node), slots[node].left)
            } else {
                (Link::Right(node), slots[node].right)
            };
        }
        self.set(slots, class, link, ix);
        // What hung here is split into what comes before the new hole and what comes after it.
        let (mut low, mut high) = (Link::Left(ix), Link::Right(ix));
        while node.is_some() {
            if new < key(&slots[node]) {
                self.set(slots, class, high, node);
                (high, node) = (Link::Left(node), slots[node].left);
            } else {
                self.set(slots, class, low, node);
                (low, node) = (Link::Right(node), slots[node].right);
            }
        }
        self.set(slots, class, low, SlotIx::NONE);
        self.set(slots, class, high, SlotIx::NONE);
    }

    /// Takes a hole out of the tree of its class.
    fn uproot(&mut self, slots: &mut [Slot], ix: SlotIx) {
        let Slot { gap, left: mut low, right: mut high, .. } = slots[ix];
        let class = class_of(gap);
        if self.roots[class] == ix && !low.is_some() && !high.is_some() {
            self.roots[class] = SlotIx::NONE;
            self.filled.remove(class);
            return;
        }
        let gone = key(&slots[ix]);
        let mut link = Link::Root;
        let mut node = self.roots[class];
        while node != ix {
            (link, node) = if gone < key(&slots[node]) {
                (Link::Left(node), slots[node].left)
            } else {
                (Link::Right(node), slots[node].right)
            };
        }
        while low.is_some() && high.is_some() {
            if priority(&slots[low]) >= priority(&slots[high]) {
                self.set(slots, class, link, low);
                (link, low) = (Link::Right(low), slots[low].right);
            } else {
                self.set(slots, class, link, high);
                (link, high) = (Link::Left(high), slots[high].left);
            }
        }
        self.set(slots, class, link, if low.is_some() { low } else { high });
    }

    /// The smallest hole of at least `size` granules; among equals the one at the lowest address.
    #[inline]
    pub(super) fn best(&self, slots: &[Slot], size: u32) -> Option<SlotIx> {
        let planted = self.best_planted(slots, size);
        if self.loose.is_some() && slots[self.loose].gap >= size {
            let better = planted.is_none_or(|planted| key(&slots[self.loose]) < key(&slots[planted]));
            return if better { Some(self.loose) } else { planted };
        }
        planted
    }

    fn best_planted(&self, slots: &[Slot], size: u32) -> Option<SlotIx> {
        let class = class_of(size);
        let mut found = SlotIx::NONE;
        let mut node = self.roots[class];
        while node.is_some() {
            let hole = &slots[node];
            if hole.gap >= size {
                (found, node) = (node, hole.left);
            } else {
                node = hole.right;
            }
        }
        if found.is_some() {
            return Some(found);
        }
        let mut node = self.roots[self.filled.after(class)?];
        while node.is_some() {
            (found, node) = (node, slots[node].left);
        }
        Some(found)
    }

    /// Whether a search for the hole `ix` by its size and place finds it.
    pub(super) fn contains(&self, slots: &[Slot], ix: SlotIx) -> bool {
        if self.loose == ix {
            return true;
        }
        let mut node = self.roots[class_of(slots[ix].gap)];
        while node.is_some() && node != ix {
            node = if key(&slots[ix]) < key(&slots[node]) { slots[node].left } else { slots[node].right };
        }
        node == ix
    }

    /// The size of the largest hole, in granules.
    pub(super) fn largest(&self, slots: &[Slot]) -> u32 {
        let loose = if self.loose.is_some() { slots[self.loose].gap } else { 0 };
        let Some(class) = self.filled.last() else { return loose };
        let mut node = self.roots[class];
        while slots[node].right.is_some() {
            node = slots[node].right;
        }
        loose.max(slots[node].gap)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::{Slots, State};
    use super::*;

    /// Holes behind blocks of one granule each.
    fn table(sizes: &[u32]) -> (Slots, Vec<SlotIx>) {
        let mut slots = Slots::new();
        let mut offset = 0;
        let ixs = sizes
            .iter()
            .map(|&size| {
                let ix = slots.occupy(0, offset, 1, State::Live);
                slots[ix].gap = size;
                offset += size + 1;
                ix
            })
            .collect();
        (slots, ixs)
    }

    /// A plain scan: what `best` must find.
    fn scan(slots: &[Slot], among: &[SlotIx], size: u32) -> Option<SlotIx> {
        let fits = among.iter().copied().filter(|&ix| slots[ix].gap >= size);
        fits.min_by_key(|&ix| (slots[ix].gap, slots[ix].offset))
    }

    #[test]
    fn the_best_hole_is_the_smallest_that_fits_and_then_the_lowest() {
        let sizes: Vec<u32> = (0..400_u32).map(|i| 1 + i.wrapping_mul(2_654_435_761) % 90).collect();
        let (mut slots, ixs) = table(&sizes);
        let mut holes = Holes::new();
        for &ix in &ixs {
            holes.insert(&mut slots, ix);
        }
        let mut rest = ixs;
        while !rest.is_empty() {
            for size in [1, 2, 31, 32, 33, 50, 64, 80, 89, 90, 91] {
                assert_eq!(holes.best(&slots, size), scan(&slots, &rest, size), "size {size}");
            }
            let largest = rest.iter().map(|&ix| slots[ix].gap).max();
            assert_eq!(Some(holes.largest(&slots)), largest);
            let gone = rest.swap_remove(rest.len() * 7 / 11);
            holes.remove(&mut slots, gone);
        }
        assert_eq!(holes.best(&slots, 1), None);
        assert_eq!((holes.largest(&slots), holes.count()), (0, 0));
    }

    #[test]
    fn the_shape_depends_on_the_holes_and_not_on_their_order() {
        let sizes = vec![1000; 300];
        let shape = |order: &mut dyn Iterator<Item = usize>| {
            let (mut slots, ixs) = table(&sizes);
            let mut holes = Holes::new();
            for at in order {
                holes.plant(&mut slots, ixs[at]);
            }
            let links: Vec<_> = slots.iter().map(|(_, slot)| (slot.left, slot.right)).collect();
            (holes.roots[class_of(1000)], links)
        };
        assert_eq!(shape(&mut (0..300)), shape(&mut (0..300).rev()));
        assert_eq!(shape(&mut (0..300)), shape(&mut (0..300).map(|i| i * 7 % 300)));
    }

    #[test]
    fn many_equal_holes_stay_shallow() {
        let (mut slots, ixs) = table(&vec![1000; 10_000]);
        let mut holes = Holes::new();
        for &ix in &ixs {
            holes.plant(&mut slots, ix);
        }
        let mut level = vec![holes.roots[class_of(1000)]];
        let mut depth = 0;
        while !level.is_empty() {
            depth += 1;
            let below = level.iter().flat_map(|&ix| [slots[ix].left, slots[ix].right]);
            level = below.filter(|ix| ix.is_some()).collect();
        }
        assert!(depth <= 60, "a treap of 10,000 holes is {depth} deep");
    }
}
