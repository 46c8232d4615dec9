//! The side table: one slot for each block.
//!
//! A device's memory cannot hold boundary tags that the host reads, so the neighbours of a block are found here.

use super::ids::BlockId;

/// The position of a slot in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIx(u32);

impl SlotIx {
    /// No slot.
    pub(super) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// What a slot stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing: the slot waits for its next use.
    Vacant,
    /// The start of a region: no memory of its own, and never free.
    Edge,
    /// A block in use.
    Live,
    /// A block that is not in use now and that a checkpoint remembers, so that its name and place must be kept.
    Parked,
}

/// One block, or the edge of a region, and the hole behind it. Offsets and sizes are in granules.
///
/// A hole needs no slot of its own: it is what lies between a block and the next, so freeing a block adds to the hole behind the block
/// before, and two holes can never touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) offset: u32,
    pub(super) size: u32,
    /// The size of the hole behind the block. Zero for the last block of a growing region, behind which the tail begins.
    pub(super) gap: u32,
    /// The neighbours in address order inside the region. Only an edge has none before it.
    pub(super) prev: SlotIx,
    pub(super) next: SlotIx,
    /// The children in the search tree of the size class of the hole: what comes before it, and what comes after it.
    pub(super) children: [SlotIx; 2],
    /// Tells apart the blocks that used this slot one after the other.
    pub(super) serial: u32,
    pub(super) region: u16,
    pub(super) state: State,
}

impl Slot {
    /// Where the block ends and the hole behind it begins. Never more than 2^32 - 2.
    #[inline]
    pub(super) fn end(&self) -> u32 {
        self.offset + self.size
    }
}

/// The table of slots.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    table: Vec<Slot>,
    vacant: Vacant,
}

/// The vacant slots, chained through `next`.
#[derive(Clone, Debug)]
pub(super) struct Vacant {
    first: SlotIx,
}

impl Vacant {
    /// Takes a slot for `size` granules at `offset`, not yet linked to neighbours. There must be a vacant one.
    #[inline]
    pub(super) fn occupy(
        &mut self,
        table: &mut [Slot],
        region: u16,
        offset: u32,
        size: u32,
        state: State,
    ) -> SlotIx {
        let ix = self.first;
        let slot = &mut table[ix];
        self.first = slot.next;
        slot.offset = offset;
        slot.size = size;
        slot.gap = 0;
        slot.region = region;
        slot.state = state;
        ix
    }

    /// Gives the slot back, and makes every name that it had stale.
    #[inline]
    pub(super) fn vacate(&mut self, table: &mut [Slot], ix: SlotIx) {
        let slot = &mut table[ix];
        slot.serial = slot.serial.wrapping_add(1);
        slot.state = State::Vacant;
        slot.next = self.first;
        self.first = ix;
    }

    /// Takes a block out of use: parked under its name if `keep` says so, and vacant otherwise.
    #[inline]
    pub(super) fn retire(&mut self, table: &mut [Slot], ix: SlotIx, keep: bool) {
        if keep {
            table[ix].state = State::Parked;
        } else {
            self.vacate(table, ix);
        }
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { table: Vec::new(), vacant: Vacant { first: SlotIx::NONE } }
    }

    /// Takes a slot for `size` granules at `offset`, not yet linked to neighbours.
    pub(super) fn occupy(&mut self, region: u16, offset: u32, size: u32, state: State) -> SlotIx {
        let (table, vacant) = self.roomy_parts();
        vacant.occupy(table, region, offset, size, state)
    }

    /// Gives the slot back, and makes every name that it had stale.
    pub(super) fn vacate(&mut self, ix: SlotIx) {
        self.vacant.vacate(&mut self.table, ix);
    }

    /// The slots and the chain of vacant ones. Apart they can be used as a slice whose length is known not to change, which saves most
    /// checks of bounds.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut [Slot], &mut Vacant) {
        (&mut self.table, &mut self.vacant)
    }

    /// The same, with at least one vacant slot.
    #[inline]
    pub(super) fn roomy_parts(&mut self) -> (&mut [Slot], &mut Vacant) {
        if !self.vacant.first.is_some() {
            self.add_vacant();
        }
        self.parts()
    }

    #[inline(never)]
    fn add_vacant(&mut self) {
        let ix = SlotIx(self.table.len() as u32);
        let none = SlotIx::NONE;
        // Becoming vacant counts the serial up, so that the first name of a slot is zero.
        let (serial, state) = (u32::MAX, State::Vacant);
        self.table.push(Slot {
            offset: 0,
            size: 0,
            gap: 0,
            prev: none,
            next: none,
            children: [none; 2],
            serial,
            region: 0,
            state,
        });
        self.vacant.vacate(&mut self.table, ix);
    }

    /// The name of the block in this slot.
    pub(super) fn name(&self, ix: SlotIx) -> BlockId {
        BlockId { slot: ix.0, serial: self.table[ix.at()].serial }
    }

    /// The slot of the block with this name, if it is live or parked.
    pub(super) fn find(&self, id: BlockId) -> Option<SlotIx> {
        let slot = self.table.get(id.slot as usize)?;
        let named = matches!(slot.state, State::Live | State::Parked);
        (named && slot.serial == id.serial).then_some(SlotIx(id.slot))
    }

    /// The slot of the live block with this name.
    #[inline]
    pub(super) fn find_live(&self, id: BlockId) -> Option<SlotIx> {
        let slot = self.table.get(id.slot as usize)?;
        (slot.state == State::Live && slot.serial == id.serial).then_some(SlotIx(id.slot))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotIx, &Slot)> {
        self.table.iter().enumerate().map(|(at, slot)| (SlotIx(at as u32), slot))
    }
}

impl std::ops::Deref for Slots {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        &self.table
    }
}

impl std::ops::DerefMut for Slots {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Slot] {
        &mut self.table
    }
}

impl std::ops::Index<SlotIx> for [Slot] {
    type Output = Slot;

    #[inline]
    fn index(&self, ix: SlotIx) -> &Slot {
        &self[ix.at()]
    }
}

impl std::ops::IndexMut<SlotIx> for [Slot] {
    #[inline]
    fn index_mut(&mut self, ix: SlotIx) -> &mut Slot {
        &mut self[ix.at()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_used_again_has_a_new_name() {
        let mut slots = Slots::new();
        let first = slots.occupy(0, 0, 1, State::Live);
        let old = slots.name(first);
        slots.vacate(first);
        assert_eq!(slots.find(old), None);
        let second = slots.occupy(0, 0, 1, State::Live);
        assert_eq!(second, first);
        assert_eq!(slots.find_live(old), None);
        assert_eq!(slots.find_live(slots.name(second)), Some(second));
    }
}
