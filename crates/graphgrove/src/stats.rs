//! What the engine has done so far.

use graphgrove_pool::pool::PoolStats;

/// How the calls so far ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallStats {
    /// Calls that ran plainly inside of the pool.
    pub warm_ups: u64,
    /// Calls that were recorded.
    pub recordings: u64,
    /// Calls that launched a recording.
    pub replays: u64,
    /// Those of them that were what followed the last time, so that the tree was not asked.
    pub predicted: u64,
    /// Calls that ran plainly outside of the pool.
    pub eager: u64,
    /// Recordings that failed.
    pub failures: u64,
    /// Bytes that were copied out of the pool at new steps.
    pub copied_out: u64,
}

/// What the engine has done, and what it holds.
#[derive(Debug, Clone)]
pub struct EngineStats {
    /// How the calls ran.
    pub calls: CallStats,
    /// The pool that recordings share; of [`Mode::OnePool`](crate::Mode::OnePool) the pool of each function, in the order of their
    /// first calls.
    pub pools: Vec<PoolStats>,
    /// The pool of plain runs and of what was copied out.
    pub plain: PoolStats,
    /// How many recordings exist.
    pub nodes: usize,
    /// How many forwards' backwards may still run.
    pub pending_backwards: usize,
    /// The bytes that the driver holds for execs, as far as the device can tell.
    pub exec_bytes: u64,
    /// The bytes that [`EngineBuilder::budget`](crate::EngineBuilder::budget) bounds: those execs, the pools of recordings, and the
    /// pools from before a reset that live outputs still lie in.
    pub budgeted: u64,
    /// Whether the [observer](crate::Observer) has panicked, and so is told nothing any more.
    pub observer_panicked: bool,
}

/// One reason for which calls ran plainly, or were recorded again, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The function.
    pub function: String,
    /// The reason, in one line.
    pub why: String,
    /// How many calls.
    pub calls: u64,
}
