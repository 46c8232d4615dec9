//! The path: which nodes have run since the last root.

use graphgrove_device::Device;
use graphgrove_storage::{LiveWords, Slab, SlabId};
use slotmap::SlotMap;

use crate::NodeKey;
use crate::node::Node;

/// The slabs of a path, by their places.
pub(crate) struct PathSlabs<'a, D: Device> {
    pub(crate) nodes: &'a SlotMap<NodeKey, Node<D>>,
    pub(crate) path: &'a [NodeKey],
}

impl<'a, D: Device> PathSlabs<'a, D> {
    #[inline]
    pub(crate) fn slab(&self, place: u32) -> Option<&'a Slab> {
        let key = self.path.get(place as usize)?;
        Some(&self.nodes.get(*key)?.slab)
    }

    pub(crate) fn place_of(&self, slab: SlabId) -> Option<u32> {
        (0..self.path.len() as u32).find(|place| self.slab(*place).is_some_and(|at| at.id() == slab))
    }
}

impl<D: Device> LiveWords for PathSlabs<'_, D> {
    fn places(&self) -> u32 {
        self.path.len() as u32
    }

    fn words(&self, place: u32) -> u32 {
        self.slab(place).map_or(0, Slab::words)
    }

    #[inline]
    fn live_word(&self, place: u32, word: u32) -> u64 {
        self.slab(place).map_or(0, |slab| slab.live_word(word))
    }

    fn own_word(&self, place: u32, word: u32) -> u64 {
        self.slab(place).map_or(0, |slab| slab.own_word(word))
    }
}
