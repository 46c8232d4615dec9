//! What handles leave behind when they are dropped.

use parking_lot::Mutex;

use crate::ranges::{BlockId, CheckpointId};

use super::footprint::Footprint;

#[derive(Debug)]
pub(super) enum Gone {
    /// One claim to a block, in the life that `epoch` counts.
    Block { id: BlockId, epoch: u32 },
    /// A checkpoint, and what its recording needed.
    Checkpoint { id: CheckpointId, footprint: Footprint },
}

/// The drops that the pool has not looked at yet.
///
/// A drop may come from any thread at any time, in the middle of somebody else's capture too. So it only leaves a note here, under a
/// lock that is never held for longer than it takes to put a note in or to take all of them out.
#[derive(Debug, Default)]
pub(super) struct Drops(Mutex<Vec<Gone>>);

impl Drops {
    pub(super) fn push(&self, gone: Gone) {
        self.0.lock().push(gone);
    }

    pub(super) fn take(&self) -> Vec<Gone> {
        std::mem::take(&mut *self.0.lock())
    }
}
