//! What the layers above keep: storages, handles, tokens, and recordings.

use super::device::{Cell, Memory, Work};
use graphgrove_tree::{
    FunctionId, LiveTable, Liveness, NodeId, Output, PathState, Slot, SlotValue, TokenId, Tree,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of a storage.
pub(super) type Id = usize;

/// Where a storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Pool { value: SlotValue, cell: Cell },
    Outside(u64),
    Stale,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    pub(super) home: Home,
    /// How many handles there are, those that tokens hold included.
    pub(super) holders: usize,
    /// What must be read from it.
    pub(super) expected: u64,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) tree: Tree,
    pub(super) live: LiveTable,
    pub(super) memory: Memory,
    pub(super) functions: Vec<(FunctionId, Vec<Output>)>,
    pub(super) work: HashMap<NodeId, Work>,
    pub(super) storages: Vec<Storage>,
    /// The user's handles.
    pub(super) handles: Vec<Id>,
    /// What each pending backward holds.
    pub(super) tokens: BTreeMap<TokenId, Vec<Id>>,
    pub(super) replays: usize,
}

impl World {
    pub(super) fn add(&mut self, home: Home, expected: u64) -> Id {
        self.storages.push(Storage { home, holders: 0, expected });
        self.storages.len() - 1
    }

    pub(super) fn hold(&mut self, id: Id) {
        self.storages[id].holders += 1;
        if let Home::Pool { value, .. } = self.storages[id].home {
            self.live.set(value.slot);
        }
    }

    pub(super) fn release(&mut self, id: Id) {
        self.storages[id].holders -= 1;
        if let (0, Home::Pool { value, cell }) = (self.storages[id].holders, self.storages[id].home) {
            self.live.clear(value.slot);
            self.memory.used.remove(&cell);
        }
    }

    pub(super) fn content(&self, id: Id) -> u64 {
        match self.storages[id].home {
            Home::Pool { cell, .. } => self.memory.read(cell),
            Home::Outside(word) => word,
            Home::Stale => panic!("a stale storage is read"),
        }
    }

    pub(super) fn end_token(&mut self, token: TokenId) {
        for id in self.tokens.remove(&token).unwrap_or_default() {
            self.release(id);
        }
    }

    /// The storages in the pool that somebody holds.
    pub(super) fn in_pool(&self) -> impl Iterator<Item = (Id, SlotValue, Cell)> {
        self.storages.iter().enumerate().filter(|(_, storage)| storage.holders > 0).filter_map(
            |(id, storage)| match storage.home {
                Home::Pool { value, cell } => Some((id, value, cell)),
                Home::Outside(_) | Home::Stale => None,
            },
        )
    }

    pub(super) fn cells_in_use(&self) -> BTreeSet<Cell> {
        self.in_pool().map(|(_, _, cell)| cell).collect()
    }

    /// The storage that owns a live slot.
    pub(super) fn owner(&self, value: SlotValue) -> Id {
        self.in_pool().find(|(_, owned, _)| *owned == value).unwrap().0
    }

    /// Drops every handle and discards every token.
    pub(super) fn settle(&mut self) {
        for id in std::mem::take(&mut self.handles) {
            self.release(id);
        }
        for token in self.tokens.keys().copied().collect::<Vec<_>>() {
            assert!(self.tree.discard_backward(token));
            self.end_token(token);
        }
    }

    pub(super) fn reset(&mut self) {
        let gone = self.tree.reset();
        gone.iter().for_each(|node| self.live.clear_all(*node));
        for storage in &mut self.storages {
            if matches!(storage.home, Home::Pool { .. }) {
                storage.home = Home::Stale;
            }
        }
        let tokens: Vec<_> = self.tokens.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.end_token(token));
        self.work.clear();
        self.memory.used.clear();
    }

    /// Everything that is held reads as it should, lies on the path, and is no memory of another one.
    pub(super) fn check(&self) {
        let mut slots: Vec<Slot> = Vec::new();
        let mut cells = BTreeSet::new();
        for (id, value, cell) in self.in_pool() {
            let storage = &self.storages[id];
            let outline = || self.tree.outline();
            assert!(cells.insert(cell), "two storages lie at {cell}\n{}", outline());
            assert!(
                self.tree.path().any(|node| node == value.slot.node),
                "{storage:?} is beside the path\n{}",
                outline()
            );
            let epoch = self.tree.node(value.slot.node).unwrap().epoch();
            assert_eq!(epoch, value.epoch, "{storage:?} was written again\n{}", outline());
            assert_eq!(
                self.memory.read(cell),
                storage.expected,
                "{storage:?} was overwritten\n{}",
                outline()
            );
            slots.push(value.slot);
        }
        for storage in &self.storages {
            if let (Home::Outside(word), true) = (storage.home, storage.holders > 0) {
                assert_eq!(word, storage.expected, "{storage:?}");
            }
        }
        let bits: u32 = self.tree.nodes().map(|(node, _)| self.live.live_word(node, 0).count_ones()).sum();
        assert_eq!(bits as usize, slots.len(), "a bit is live that nobody holds");
        for (token, saved) in &self.tokens {
            assert!(self.tree.is_pending(*token));
            for id in saved {
                assert_ne!(
                    self.storages[*id].home,
                    Home::Stale,
                    "a saved value is lost\n{}",
                    self.tree.outline()
                );
            }
        }
        if self.tree.path_state() != PathState::Replaying {
            assert_eq!(self.memory.used, self.cells_in_use(), "the pool and the path differ");
        }
    }
}
