//! Which outputs are live: read through a trait, never stored by the tree.

use crate::{NodeId, Slot, SlotIndex};
use slotmap::SecondaryMap;
use smallvec::SmallVec;

/// Says which slots are live. The layer that hands out storages implements it.
///
/// What the tree relies on: between two runs of a node a slot of it can die but never come back to life.
pub trait Liveness {
    /// The live bits of 64 slots of `node`: bit `n` of word `w` is slot `64 * w + n`. Slots and nodes that
    /// the implementation does not know are dead.
    fn live_word(&self, node: NodeId, word: u32) -> u64;

    /// Whether it is known that no slot of any node is live. Storage that counts its live slots answers in
    /// constant time, and so saves the tree a walk over the path when a path is over; `false` is always a
    /// correct answer.
    fn all_dead(&self) -> bool {
        false
    }
}

impl<L: Liveness + ?Sized> Liveness for &L {
    fn live_word(&self, node: NodeId, word: u32) -> u64 {
        (**self).live_word(node, word)
    }

    fn all_dead(&self) -> bool {
        (**self).all_dead()
    }
}

/// A plain table of live bits, for whoever uses the tree without the storage layer.
#[derive(Clone, Debug, Default)]
pub struct LiveTable {
    words: SecondaryMap<NodeId, SmallVec<[u64; 1]>>,
    count: u64,
}

impl LiveTable {
    /// A table in which every slot is dead.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks a slot as live.
    pub fn set(&mut self, slot: Slot) {
        let Some(words) = self.words.entry(slot.node).map(slotmap::secondary::Entry::or_default) else {
            return; // Only a node that is gone has no entry, and nothing of it can be live.
        };
        let word = slot.index.word() as usize;
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        if words[word] & slot.index.bit() == 0 {
            words[word] |= slot.index.bit();
            self.count += 1;
        }
    }

    /// Marks a slot as dead.
    pub fn clear(&mut self, slot: Slot) {
        let Some(word) = self.words.get_mut(slot.node).and_then(|w| w.get_mut(slot.index.word() as usize))
        else {
            return;
        };
        if *word & slot.index.bit() != 0 {
            *word &= !slot.index.bit();
            self.count -= 1;
        }
    }

    /// Whether a slot is live.
    #[must_use]
    pub fn is_live(&self, slot: Slot) -> bool {
        self.live_word(slot.node, slot.index.word()) & slot.index.bit() != 0
    }

    /// Marks the slots `0..outputs` of `node` as live.
    pub fn set_all(&mut self, node: NodeId, outputs: u32) {
        for index in 0..outputs {
            self.set(Slot { node, index: SlotIndex::new(index) });
        }
    }

    /// Marks every slot of `node` as dead.
    pub fn clear_all(&mut self, node: NodeId) {
        if let Some(words) = self.words.remove(node) {
            self.count -= words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
    }
}

impl Liveness for LiveTable {
    #[inline]
    fn live_word(&self, node: NodeId, word: u32) -> u64 {
        self.words.get(node).and_then(|words| words.get(word as usize)).copied().unwrap_or(0)
    }

    #[inline]
    fn all_dead(&self) -> bool {
        self.count == 0
    }
}

/// A demand of a recording: none of these slots may be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadMask {
    /// The node whose slots are meant.
    pub node: NodeId,
    /// The liveness word.
    pub word: u32,
    /// The slots, as bits of the word.
    pub mask: u64,
}

impl DeadMask {
    /// The slots that the mask names, lowest first.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        let mut rest = self.mask;
        std::iter::from_fn(move || {
            let index = SlotIndex::lowest(self.word, rest)?;
            rest &= rest - 1;
            Some(Slot { node: self.node, index })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    fn slot(node: NodeId, index: u32) -> Slot {
        Slot { node, index: SlotIndex::new(index) }
    }

    #[test]
    fn a_table_counts_each_live_slot_once() {
        let mut nodes: SlotMap<NodeId, ()> = SlotMap::with_key();
        let (a, b) = (nodes.insert(()), nodes.insert(()));
        let mut table = LiveTable::new();
        assert!(table.all_dead());
        table.set(slot(a, 70));
        table.set(slot(a, 70));
        assert!(table.is_live(slot(a, 70)) && !table.is_live(slot(a, 6)) && !table.is_live(slot(b, 70)));
        assert_eq!((table.live_word(a, 0), table.live_word(a, 1)), (0, 1 << 6));
        assert!(!table.all_dead());
        table.clear(slot(a, 70));
        table.clear(slot(a, 70));
        table.clear(slot(b, 3));
        assert!(table.all_dead() && !table.is_live(slot(a, 70)));
        table.set_all(b, 3);
        assert_eq!(table.live_word(b, 0), 0b111);
        table.clear_all(b);
        assert!(table.all_dead() && table.live_word(b, 0) == 0);
    }

    #[test]
    fn a_reference_answers_as_what_it_refers_to() {
        let mut nodes: SlotMap<NodeId, ()> = SlotMap::with_key();
        let a = nodes.insert(());
        let mut table = LiveTable::new();
        assert!(Liveness::all_dead(&&table));
        table.set(slot(a, 1));
        assert_eq!(Liveness::live_word(&&table, a, 0), 2);
        assert!(!Liveness::all_dead(&&table));
    }

    #[test]
    fn a_mask_lists_its_slots_lowest_first() {
        let mut nodes: SlotMap<NodeId, ()> = SlotMap::with_key();
        let a = nodes.insert(());
        let mask = DeadMask { node: a, word: 1, mask: 0b1010 };
        assert_eq!(mask.slots().collect::<Vec<_>>(), [slot(a, 65), slot(a, 67)]);
    }

    #[test]
    fn storage_that_does_not_count_is_never_known_to_be_dead() {
        struct Silent;
        impl Liveness for Silent {
            fn live_word(&self, _: NodeId, _: u32) -> u64 {
                0
            }
        }
        assert!(!Silent.all_dead());
    }
}
