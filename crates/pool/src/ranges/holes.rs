//! The holes by size: which one serves a request best. A hole goes by the slot of the block before it.
//!
//! Each size class holds its holes in a treap (Seidel and Aragon, 1996) ordered by size, then region, then offset. The priority of a
//! hole is a hash of its place. The order is total, so what a search finds depends on the set of holes alone: memory that is freed in
//! one order while recording and in another while replaying leads to the same addresses afterwards. A class with few holes, which is
//! the rule, costs one or two steps; one with `n` holes costs O(log n) on average.
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

/// Where a hole hangs: at one side of a parent, or at the root of its class if the parent is `NONE`.
#[derive(Clone, Copy)]
struct Link {
    parent: SlotIx,
    side: usize,
}

impl Link {
    const ROOT: Self = Self { parent: SlotIx::NONE, side: BEFORE };
}

/// The side of what comes earlier in the order of a class.
const BEFORE: usize = 0;
/// The side of what comes later.
const AFTER: usize = 1;

/// What holes of a class are ordered by: size, then region, then offset.
#[inline]
fn key(slot: &Slot) -> u128 {
    u128::from(slot.gap) << 64 | u128::from(u64::from(slot.region) << 32 | u64::from(slot.end()))
}

/// On which side of `slot` a hole with this key belongs.
#[inline]
fn side_of(new: u128, slot: &Slot) -> usize {
    if new > key(slot) { AFTER } else { BEFORE }
}

/// A hash of the hole's place: multiplication by an odd number keeps different places of a region apart, and mixes the high bits well.
#[inline]
fn priority(slot: &Slot) -> u32 {
    let spread = u32::from(slot.region).wrapping_mul(0x85EB_CA6B);
    slot.end().wrapping_add(spread).wrapping_mul(0x9E37_79B9)
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

    #[inline]
    fn set(&mut self, slots: &mut [Slot], class: usize, link: Link, to: SlotIx) {
        match slots.get_mut(link.parent.at()) {
            Some(parent) => parent.children[link.side] = to,
            None => self.roots[class] = to,
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
    #[inline]
    fn plant(&mut self, slots: &mut [Slot], ix: SlotIx) {
        let slot = &mut slots[ix];
        slot.children = [SlotIx::NONE; 2];
        let class = class_of(slot.gap);
        let root = self.roots[class];
        if root.is_some() {
            self.graft(slots, class, root, ix);
        } else {
            self.roots[class] = ix;
            self.filled.insert(class);
        }
    }

    /// Puts a hole into a tree that is not empty.
    #[inline(never)]
    fn graft(&mut self, slots: &mut [Slot], class: usize, root: SlotIx, ix: SlotIx) {
        let mut node = root;
        let (new, rank) = (key(&slots[ix]), priority(&slots[ix]));
        let mut link = Link::ROOT;
        while let Some(parent) = slots.get(node.at()).filter(|slot| priority(slot) >= rank) {
            link = Link { parent: node, side: side_of(new, parent) };
            node = parent.children[link.side];
        }
        self.set(slots, class, link, ix);
        // What hung here is split into what comes before the new hole and what comes after it.
        let mut open = [Link { parent: ix, side: BEFORE }, Link { parent: ix, side: AFTER }];
        while let Some(slot) = slots.get(node.at()) {
            let side = side_of(new, slot);
            let next = slot.children[side];
            // A node that lies after the new hole hangs on its later side, and is open to what comes before it.
            let Link { parent, side: at } = open[1 - side];
            slots[parent].children[at] = node;
            open[1 - side] = Link { parent: node, side };
            node = next;
        }
        for Link { parent, side } in open {
            slots[parent].children[side] = SlotIx::NONE;
        }
    }

    /// Takes a hole out of the tree of its class.
    #[inline]
    fn uproot(&mut self, slots: &mut [Slot], ix: SlotIx) {
        let slot = &slots[ix];
        let class = class_of(slot.gap);
        let root = self.roots[class];
        if root == ix && slot.children == [SlotIx::NONE; 2] {
            self.roots[class] = SlotIx::NONE;
            self.filled.remove(class);
        } else {
            self.prune(slots, class, root, ix);
        }
    }

    /// Takes a hole out of a tree that has others.
    #[inline(never)]
    fn prune(&mut self, slots: &mut [Slot], class: usize, root: SlotIx, ix: SlotIx) {
        let mut node = root;
        let [mut low, mut high] = slots[ix].children;
        let gone = key(&slots[ix]);
        let mut link = Link::ROOT;
        while node != ix {
            link = Link { parent: node, side: side_of(gone, &slots[node]) };
            node = slots[node].children[link.side];
        }
        while low.is_some() && high.is_some() {
            if priority(&slots[low]) >= priority(&slots[high]) {
                self.set(slots, class, link, low);
                link = Link { parent: low, side: AFTER };
                low = slots[low].children[AFTER];
            } else {
                self.set(slots, class, link, high);
                link = Link { parent: high, side: BEFORE };
                high = slots[high].children[BEFORE];
            }
        }
        self.set(slots, class, link, if low.is_some() { low } else { high });
    }

    /// The smallest hole of at least `size` granules, or `NONE`; among equals the one at the lowest address.
    #[inline]
    pub(super) fn best(&self, slots: &[Slot], size: u32) -> SlotIx {
        let planted = self.best_planted(slots, size);
        let Some(loose) = slots.get(self.loose.at()) else { return planted };
        if loose.gap < size {
            return planted;
        }
        match slots.get(planted.at()) {
            Some(planted) if key(planted) < key(loose) => {}
            _ => return self.loose,
        }
        planted
    }

    #[inline]
    fn best_planted(&self, slots: &[Slot], size: u32) -> SlotIx {
        let class = class_of(size);
        let mut found = SlotIx::NONE;
        let mut node = self.roots[class];
        while let Some(hole) = slots.get(node.at()) {
            if hole.gap >= size {
                (found, node) = (node, hole.children[BEFORE]);
            } else {
                node = hole.children[AFTER];
            }
        }
        if found.is_some() {
            return found;
        }
        let Some(class) = self.filled.after(class) else { return SlotIx::NONE };
        let mut node = self.roots[class];
        while let Some(hole) = slots.get(node.at()) {
            (found, node) = (node, hole.children[BEFORE]);
        }
        found
    }

    /// Whether a search for the hole `ix` by its size and place finds it.
    pub(super) fn contains(&self, slots: &[Slot], ix: SlotIx) -> bool {
        if self.loose == ix {
            return true;
        }
        let mut node = self.roots[class_of(slots[ix].gap)];
        while node.is_some() && node != ix {
            node = slots[node].children[side_of(key(&slots[ix]), &slots[node])];
        }
        node == ix
    }

    /// The size of the largest hole, in granules.
    pub(super) fn largest(&self, slots: &[Slot]) -> u32 {
        let loose = if self.loose.is_some() { slots[self.loose].gap } else { 0 };
        let Some(class) = self.filled.last() else { return loose };
        let mut node = self.roots[class];
        while slots[node].children[AFTER].is_some() {
            node = slots[node].children[AFTER];
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
                let want = scan(&slots, &rest, size).unwrap_or(SlotIx::NONE);
                assert_eq!(holes.best(&slots, size), want, "size {size}");
            }
            let largest = rest.iter().map(|&ix| slots[ix].gap).max();
            assert_eq!(Some(holes.largest(&slots)), largest);
            let gone = rest.swap_remove(rest.len() * 7 / 11);
            holes.remove(&mut slots, gone);
        }
        assert_eq!(holes.best(&slots, 1), SlotIx::NONE);
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
            let links: Vec<_> = slots.iter().map(|(_, slot)| slot.children).collect();
            (holes.roots[class_of(1000)], links)
        };
        assert_eq!(shape(&mut (0..300)), shape(&mut (0..300).rev()));
        assert_eq!(shape(&mut (0..300)), shape(&mut (0..300).map(|i| i * 7 % 300)));
    }

    #[test]
    fn taking_holes_out_leaves_the_shape_of_those_that_remain() {
        let (mut slots, ixs) = table(&[1000; 300]);
        let mut holes = Holes::new();
        for &ix in &ixs {
            holes.plant(&mut slots, ix);
        }
        let (gone, rest): (Vec<SlotIx>, Vec<SlotIx>) = ixs.iter().partition(|ix| ix.at() % 3 == 1);
        for ix in gone {
            holes.uproot(&mut slots, ix);
        }
        let (mut fresh, _) = table(&[1000; 300]);
        let mut only = Holes::new();
        for &ix in &rest {
            only.plant(&mut fresh, ix);
        }
        assert_eq!(holes.roots[class_of(1000)], only.roots[class_of(1000)]);
        for ix in rest {
            assert_eq!(slots[ix].children, fresh[ix].children, "below {ix:?}");
        }
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
            let below = level.iter().flat_map(|&ix| slots[ix].children);
            level = below.filter(|ix| ix.is_some()).collect();
        }
        assert!(depth <= 60, "a treap of 10,000 holes is {depth} deep");
    }
}
