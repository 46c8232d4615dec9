//! The pool's state after a recording, and the way back to it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use graphgrove_device::Device;

use crate::error::PoolError;
use crate::ranges::{BlockId, CheckpointId, Restored, Survivors};

use super::Shared;
use super::footprint::Footprint;
use super::gone::Gone;
use super::phase::{Phase, Replaying};
use super::state::State;

/// The state of a pool at one time, to be restored at any later time.
///
/// As long as it lives, the memory that it needs stays where it is, that of a recording's temporaries too: the recorded work writes
/// there at every replay. So it belongs to the recording that it was taken after, and goes with it.
#[must_use = "dropping a checkpoint discards it"]
pub struct Checkpoint<D: Device> {
    shared: Arc<Shared<D>>,
    id: CheckpointId,
    footprint: Footprint,
    /// Blocks that are in the state but were dead by then: streams were still using them.
    awaited: Vec<BlockId>,
}

/// Which blocks of a checkpoint are live after it was restored. Every one that is keeps its address and contents.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Live<'a> {
    /// All of them, without those whose last handle was dropped since replays have run.
    AsRecorded,
    /// As recorded, without these: they died since. Naming a block twice, or one that the checkpoint does not have, changes nothing
    /// more. Costs what changed.
    Except(&'a [BlockId]),
    /// These and no others, also blocks that the checkpoint does not know. Costs a pass over the blocks.
    Only(&'a [BlockId]),
    /// Those that somebody has a claim to, and no others. Costs a pass over the blocks.
    Claimed,
}

impl<D: Device> Checkpoint<D> {
    pub(super) fn new(
        shared: &Arc<Shared<D>>,
        id: CheckpointId,
        footprint: Footprint,
        awaited: Vec<BlockId>,
    ) -> Self {
        Self { shared: Arc::clone(shared), id, footprint, awaited }
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared<D>>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    pub(super) fn id(&self) -> CheckpointId {
        self.id
    }

    pub(super) fn awaited(&self) -> &[BlockId] {
        &self.awaited
    }
}

impl<D: Device> Drop for Checkpoint<D> {
    fn drop(&mut self) {
        let footprint = std::mem::take(&mut self.footprint);
        self.shared.drops.push(Gone::Checkpoint { id: self.id, footprint });
    }
}

impl<D: Device> fmt::Debug for Checkpoint<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint {}", self.id)
    }
}

impl<D: Device> State<D> {
    /// Names the present state, pins what it needs, and says which of its blocks are dead and still in use.
    pub(super) fn name_state(&mut self, footprint: &mut Footprint) -> (CheckpointId, Vec<BlockId>) {
        if let Some(region) = self.backing.growing() {
            footprint.add(region, self.ranges.used_end(region).unwrap_or(0));
        }
        self.pins.pin(footprint);
        (self.ranges.checkpoint(), self.waiting.blocks().collect())
    }

    /// Goes to the state of a checkpoint. If that cannot be done, everything is as before.
    pub(super) fn restore(
        &mut self,
        device: &D,
        checkpoint: CheckpointId,
        awaited: &[BlockId],
        live: Live<'_>,
    ) -> Result<Restored, PoolError> {
        let unclaimed = |id: &BlockId| self.records.get(*id).is_some_and(|record| record.claims == 0);
        let nothing = Replaying::default();
        let Replaying { deaths, adopted } = match &self.phase {
            Phase::Session(_) => return Err(PoolError::SessionOpen),
            Phase::Replaying(replaying) => replaying,
            Phase::Open => &nothing,
        };
        let mut dead: Vec<BlockId> = deaths.iter().chain(awaited).copied().filter(unclaimed).collect();
        // Blocks that somebody may have a claim to and that may not be live afterwards.
        let mut gone: Vec<BlockId> = adopted.iter().copied().collect();
        let unnamed = dead.len();
        let moved = match live {
            Live::AsRecorded => self.restore_without(checkpoint, &dead, &mut gone)?,
            Live::Except(others) => {
                if let Some(&block) = others.iter().find(|&&id| !self.ranges.remembers(id)) {
                    return Err(PoolError::NotLive { block });
                }
                dead.extend_from_slice(others);
                self.restore_without(checkpoint, &dead, &mut gone)?
            }
            Live::Only(blocks) => self.restore_only(checkpoint, blocks, &mut gone)?,
            Live::Claimed => {
                let claimed: Vec<BlockId> =
                    self.records.claimed().filter(|&id| self.ranges.remembers(id)).collect();
                self.restore_only(checkpoint, &claimed, &mut gone)?
            }
        };
        self.phase = Phase::Open;
        self.counts.restores += 1;
        for id in gone {
            if self.ranges.block(id).is_none() {
                self.records.end_life(id);
            }
        }
        for (at, id) in dead.into_iter().enumerate() {
            // What the caller names is dead whatever handles there are.
            if at >= unnamed || self.records.get(id).is_some_and(|record| record.claims == 0) {
                self.release(device, id);
            }
        }
        Ok(moved)
    }

    /// Restores a state as it was recorded. Dead blocks that streams still use stay where they are, whether the state has them or not;
    /// one that it has and that is not named as dead lives again.
    fn restore_without(
        &mut self,
        checkpoint: CheckpointId,
        dead: &[BlockId],
        gone: &mut Vec<BlockId>,
    ) -> Result<Restored, PoolError> {
        if self.waiting.is_empty() {
            return self.ranges.restore_noting(checkpoint, Survivors::AsRecorded, gone);
        }
        let waiting: Vec<BlockId> = self.waiting.blocks().collect();
        let before = self.ranges.checkpoint();
        let first = self.ranges.restore_noting(checkpoint, Survivors::AsRecorded, gone);
        let outcome = first.and_then(|moved| {
            let (alive, kept): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|&id| self.ranges.block(id).is_some());
            self.ranges.restore(checkpoint, Survivors::Except { dead: &[], kept: &kept })?;
            Ok((moved, alive))
        });
        let result = match outcome {
            Ok((moved, alive)) => {
                let dead: BTreeSet<&BlockId> = dead.iter().collect();
                for id in alive.into_iter().filter(|id| !dead.contains(id)) {
                    self.stop_waiting(id);
                }
                Ok(moved)
            }
            Err(error) => self.ranges.restore(before, Survivors::AsRecorded).and(Err(error)),
        };
        self.discard(before);
        result
    }

    /// Restores a state with these blocks live and no others, except for dead ones that streams still use.
    fn restore_only(
        &mut self,
        checkpoint: CheckpointId,
        live: &[BlockId],
        gone: &mut Vec<BlockId>,
    ) -> Result<Restored, PoolError> {
        let mut kept: Vec<BlockId> = live.to_vec();
        kept.extend(self.waiting.blocks());
        let moved = self.ranges.restore_noting(checkpoint, Survivors::Only(&kept), gone)?;
        for &id in live {
            self.stop_waiting(id);
        }
        Ok(moved)
    }
}
