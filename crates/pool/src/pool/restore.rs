//! Going back to a checkpoint.
//!
//! The allocator of ranges knows which blocks a state has. It does not know of streams that still use blocks which are about to go, of
//! claims to them, and of deaths while replays ran; that is added here.

use std::collections::BTreeSet;

use graphgrove_device::Device;

use crate::error::PoolError;
use crate::ranges::{BlockId, CheckpointId, Restored, Survivors};

use super::checkpoint::Live;
use super::phase::{Phase, Replaying};
use super::state::State;

/// Which blocks are live afterwards, as far as the ranges are concerned.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// Those of the checkpoint. The ones that are named will be freed next.
    Recorded { dead: &'a [BlockId] },
    /// These.
    Only(&'a [BlockId]),
}

impl<'a> Target<'a> {
    fn survivors(self) -> Survivors<'a> {
        match self {
            Self::Recorded { .. } => Survivors::AsRecorded,
            Self::Only(live) => Survivors::Only(live),
        }
    }
}

/// What a restore has changed.
#[derive(Default)]
struct Change {
    moved: Restored,
    /// Blocks that were live or claimed before, and may not be now.
    gone: Vec<BlockId>,
    /// Blocks whose life is over and whose bytes streams still use, so that they stayed.
    lingering: Vec<BlockId>,
}

impl<D: Device> State<D> {
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
        let adopted: Vec<BlockId> = adopted.iter().copied().collect();
        let unnamed = dead.len();
        let change = match live {
            Live::AsRecorded => self.restore_ranges(checkpoint, Target::Recorded { dead: &dead })?,
            Live::Except(others) => {
                if let Some(&block) = others.iter().find(|&&id| !self.ranges.remembers(id)) {
                    return Err(PoolError::NotLive { block });
                }
                dead.extend_from_slice(others);
                self.restore_ranges(checkpoint, Target::Recorded { dead: &dead })?
            }
            Live::Only(blocks) => self.restore_ranges(checkpoint, Target::Only(blocks))?,
            Live::Claimed => {
                let claimed: Vec<BlockId> =
                    self.records.claimed().filter(|&id| self.ranges.remembers(id)).collect();
                self.restore_ranges(checkpoint, Target::Only(&claimed))?
            }
        };
        self.phase = Phase::Open;
        self.counts.restores += 1;
        for id in change.gone.into_iter().chain(adopted) {
            if self.ranges.block(id).is_none() {
                self.records.end_life(id);
            }
        }
        for id in change.lingering {
            self.release(device, id);
        }
        for (at, id) in dead.into_iter().enumerate() {
            // What the caller names is dead whatever handles there are.
            if at >= unnamed || self.records.get(id).is_some_and(|record| record.claims == 0) {
                self.release(device, id);
            }
        }
        Ok(change.moved)
    }

    fn restore_ranges(&mut self, checkpoint: CheckpointId, target: Target<'_>) -> Result<Change, PoolError> {
        if self.waiting.is_empty() && !self.frontier.has_open_uses() {
            let mut change = Change::default();
            change.moved = self.ranges.restore_noting(checkpoint, target.survivors(), &mut change.gone)?;
            return Ok(change);
        }
        let before = self.ranges.checkpoint();
        let result = match self.restore_around_streams(checkpoint, target) {
            Ok(change) => Ok(change),
            Err(error) => self.ranges.restore(before, Survivors::AsRecorded).and(Err(error)),
        };
        self.discard(before);
        result
    }

    /// Restores, and leaves those blocks where they are that streams use and that the new state does not have: the dead ones, and those
    /// that it takes away. A dead one that the new state has, and that is not named as dead, lives again. After an error the state is
    /// any.
    fn restore_around_streams(
        &mut self,
        checkpoint: CheckpointId,
        target: Target<'_>,
    ) -> Result<Change, PoolError> {
        let waiting: Vec<BlockId> = self.waiting.blocks().collect();
        let mut change = Change::default();
        // Only then is it known which blocks go.
        change.moved = self.ranges.restore_noting(checkpoint, target.survivors(), &mut change.gone)?;
        let (alive, mut kept): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|&id| self.ranges.block(id).is_some());
        change.lingering = change.gone.iter().copied().filter(|&id| self.is_in_open_use(id)).collect();
        kept.extend_from_slice(&change.lingering);
        let named = match target {
            Target::Recorded { dead } => {
                self.ranges.restore(checkpoint, Survivors::Except { dead: &[], kept: &kept })?;
                dead
            }
            Target::Only(live) => {
                kept.extend_from_slice(live);
                self.ranges.restore(checkpoint, Survivors::Only(&kept))?;
                &[]
            }
        };
        let named: BTreeSet<&BlockId> = named.iter().collect();
        for id in alive.into_iter().filter(|id| !named.contains(id)) {
            self.stop_waiting(id);
        }
        Ok(change)
    }

    /// Whether a block is gone though streams use it that the main stream does not lie behind.
    fn is_in_open_use(&self, id: BlockId) -> bool {
        let open = |stamp| !self.frontier.is_before_main(stamp);
        self.ranges.block(id).is_none()
            && self.records.get(id).is_some_and(|record| record.uses.iter().copied().any(open))
    }
}
