//! Dead blocks whose bytes other streams may still be using.

use std::collections::{BTreeMap, BTreeSet};

use crate::ranges::BlockId;

use super::frontier::{Frontier, Lane, Stamp};

/// A (lane -> stretch and block) entry means that the block's bytes are not free before the main lane lies behind that stretch of the
/// lane. Each entry is added once and taken out once, so that the cost is linear in the uses, whatever the number of waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_lane: BTreeMap<Lane, BTreeSet<(u64, BlockId)>>,
    blocks: BTreeSet<BlockId>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.blocks.iter().copied()
    }

    pub(super) fn add(&mut self, id: BlockId, stamps: &[Stamp]) {
        self.blocks.insert(id);
        for stamp in stamps {
            self.by_lane.entry(stamp.lane).or_default().insert((stamp.time, id));
        }
    }

    /// Forgets a block.
    pub(super) fn cancel(&mut self, id: BlockId) {
        self.blocks.remove(&id);
        for entries in self.by_lane.values_mut() {
            entries.retain(|&(_, other)| other != id);
        }
        self.by_lane.retain(|_, entries| !entries.is_empty());
    }

    /// The lanes that a block waits for.
    pub(super) fn lanes_of(&self, id: BlockId) -> Vec<Lane> {
        let has = |entries: &BTreeSet<(u64, BlockId)>| entries.iter().any(|&(_, other)| other == id);
        self.by_lane.iter().filter(|(_, entries)| has(entries)).map(|(&lane, _)| lane).collect()
    }

    /// Takes out one entry for each use that the main lane has come to lie behind.
    pub(super) fn reached(&mut self, frontier: &Frontier) -> Vec<BlockId> {
        let mut reached = Vec::new();
        self.by_lane.retain(|&lane, entries| {
            let limit = frontier.reached(lane);
            while let Some(&(time, id)) = entries.first() {
                if time > limit {
                    break;
                }
                entries.pop_first();
                reached.push(id);
            }
            !entries.is_empty()
        });
        reached
    }

    /// Takes out all entries of lanes from `first` on.
    pub(super) fn close(&mut self, first: Lane) -> Vec<BlockId> {
        let closed = self.by_lane.split_off(&first);
        closed.into_values().flatten().map(|(_, id)| id).collect()
    }

    /// Takes note that a block's last entry was taken out.
    pub(super) fn over(&mut self, id: BlockId) {
        self.blocks.remove(&id);
    }
}
