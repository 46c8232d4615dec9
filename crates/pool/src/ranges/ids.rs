//! The names of regions, blocks and checkpoints.

use std::fmt;

/// Names one region of a [`Ranges`](super::Ranges): an address range that blocks never reach across.
///
/// The name of a removed region is given to the next region that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub(super) u32);

impl RegionId {
    /// The position of the region in the order in which its allocator prefers regions, for side tables.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// Names one block for as long as it is live or a checkpoint remembers it.
///
/// The serial tells apart the blocks that used the same slot one after the other, so that a stale name is refused. It wraps after
/// 2^32 uses of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    pub(super) slot: u32,
    pub(super) serial: u32,
}

impl BlockId {
    /// The slot of the block, for side tables: no two blocks that are live or remembered share one.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.slot
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}.{}", self.slot, self.serial)
    }
}

/// Names one checkpoint until it is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    pub(super) version: u32,
    pub(super) serial: u32,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.version, self.serial)
    }
}
