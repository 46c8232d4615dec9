//! What a pool is in the middle of.

use std::collections::BTreeSet;

use crate::error::PoolError;
use crate::plan::{Cursor, Recorder};
use crate::ranges::{BlockId, CheckpointId};

use super::footprint::Footprint;

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// The work runs plainly, and its requests are written down.
    WarmUp,
    /// The work is captured: nothing runs before the graph is launched.
    Recording,
}

/// What the pool has to know to end a session either way.
#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) number: u64,
    pub(super) kind: SessionKind,
    /// The allocator's state at the begin.
    pub(super) before: CheckpointId,
    /// Blocks that were born in it, dead ones too.
    pub(super) born: Vec<BlockId>,
    /// Blocks from before the session that have died in it.
    pub(super) released: Vec<BlockId>,
    /// What the session has used so far.
    pub(super) footprint: Footprint,
    pub(super) recorder: Recorder,
    /// When blocks from before the session have died, in the recorder's time.
    pub(super) deaths: Vec<(BlockId, u32)>,
    pub(super) cursor: Option<Cursor>,
}

/// What a pool is in the middle of. Every operation says in which phases it is allowed.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing: the allocator's state is that of the device.
    Open,
    /// A warm-up or a recording.
    Session(Box<SessionState>),
    /// Replays have run: the device's memory is as they left it, and the allocator's state is an old one until a restore.
    Replaying(Replaying),
}

/// What happens to blocks while replays run. Each block is noted once, however many replays there are between two restores.
#[derive(Debug, Default)]
pub(super) struct Replaying {
    /// Blocks whose last claim was given up.
    pub(super) deaths: BTreeSet<BlockId>,
    /// Blocks that somebody has claimed and that the allocator's state does not have.
    pub(super) adopted: BTreeSet<BlockId>,
}

impl Phase {
    pub(super) fn session(&mut self) -> Option<&mut SessionState> {
        match self {
            Self::Session(session) => Some(session),
            Self::Open | Self::Replaying(_) => None,
        }
    }

    /// Refuses what needs the allocator to be up to date and nothing to be under way.
    pub(super) fn expect_open(&self) -> Result<(), PoolError> {
        match self {
            Self::Open => Ok(()),
            Self::Session(_) => Err(PoolError::SessionOpen),
            Self::Replaying(_) => Err(PoolError::NotRestored),
        }
    }
}
