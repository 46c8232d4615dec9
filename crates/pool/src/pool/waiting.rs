//! Dead blocks whose bytes other streams may still be using.

use std::collections::{BTreeMap, BTreeSet};

use crate::ranges::BlockId;

use super::frontier::{Frontier, Lane, Stamp};

/// A (lane -> stretch and block) entry means that the block's bytes are not free before the main lane lies behind that stretch of the
/// lane. Each entry is added once and taken out once, so that the cost is linear in the uses, whatever the number of waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_lane: BTreeMap<Lane, BTreeSet<(u64, BlockId)>>,
    /// A (block -> bytes) table.
    blocks: BTreeMap<BlockId, u64>,
    bytes: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn blocks(&self) -> impl ExactSizeIterator<Item = BlockId> {
        self.blocks.keys().copied()
    }

    /// The bytes of all blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn add(&mut self, id: BlockId, bytes: u64, stamps: &[Stamp]) {
        if self.blocks.insert(id, bytes).is_none() {
            self.bytes += bytes;
        }
        for stamp in stamps {
            self.by_lane.entry(stamp.lane).or_default().insert((stamp.time, id));
        }
    }

    /// Forgets a block that was added with these stamps.
    pub(super) fn cancel(&mut self, id: BlockId, stamps: &[Stamp]) {
        self.over(id);
        for stamp in stamps {
            if let Some(entries) = self.by_lane.get_mut(&stamp.lane) {
                entries.remove(&(stamp.time, id));
                if entries.is_empty() {
                    self.by_lane.remove(&stamp.lane);
                }
            }
        }
    }

    /// Those lanes that a block which was added with these stamps still waits for.
    pub(super) fn lanes_of(&self, id: BlockId, stamps: &[Stamp]) -> impl Iterator<Item = Lane> {
        let waits = move |stamp: &&Stamp| {
            self.by_lane.get(&stamp.lane).is_some_and(|all| all.contains(&(stamp.time, id)))
        };
        stamps.iter().filter(waits).map(|stamp| stamp.lane)
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
        self.bytes -= self.blocks.remove(&id).unwrap_or(0);
    }
}
