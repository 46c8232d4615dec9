//! The pool's state after a recording, and the way back to it.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::Device;

use crate::ranges::{BlockId, CheckpointId};

use super::Shared;
use super::footprint::Footprint;
use super::gone::Gone;
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
}
