//! Counters that are always on.

use crate::ranges::RangeStats;

/// What a pool holds and what it has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Reserved, live and free bytes, peaks, and the shape of the free memory. Dead blocks that other streams still use count as live.
    pub ranges: RangeStats,
    /// Bytes of dead blocks that other streams still use.
    pub awaited: u64,
    /// How many such blocks there are.
    pub awaited_blocks: u32,
    /// What the pool has done so far.
    pub counts: Counts,
}

/// How often a pool has done what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Blocks handed out.
    pub allocations: u64,
    /// Deaths of blocks: each counts once, however many handles shared the block.
    pub releases: u64,
    /// Times that memory was obtained from the device.
    pub growths: u64,
    /// Times that memory was given back to the device.
    pub returns: u64,
    /// Trims that did nothing because a recording or a capture was open.
    pub trims_refused: u64,
    /// Restores of a checkpoint.
    pub restores: u64,
    /// Sessions that were undone.
    pub rollbacks: u64,
    /// Handles that were dropped after their block's life had been ended for them, by a rollback or a restore.
    pub stale_drops: u64,
    /// Requests that were served from a plan.
    pub planned: u64,
    /// Recordings that left their plan.
    pub departures: u64,
    /// Annotations and returns of memory that the device refused where no caller could be told.
    pub refusals: u64,
}
