//! What an observer is told.

use std::sync::Arc;

/// A function, as events name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// Which function of its engine it is, in the order in which they were registered, from 0.
    pub id: usize,
    /// What it was registered as.
    pub name: Arc<str>,
}

/// What a call was to its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It leaves nothing for a backward.
    Inference,
    /// It leaves a pending backward.
    Forward,
    /// It is the backward of a forward.
    Backward,
}

/// How a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// Plainly inside of the pool.
    WarmUp,
    /// Under capture.
    Recording,
    /// By launching a recording.
    Replay,
    /// Plainly outside of the pool.
    Eager,
}

/// Something that an engine did. Bytes are those of device memory, times are nanoseconds of the engine's [`Clock`](crate::Clock).
///
/// A `pool` is the number of a pool of recordings: all functions of the mode `Trees` share one, and each function of the mode
/// `OnePool` has its own; 0 is the pool of plain runs. A `node` is the number by which [`Engine::outline`](crate::Engine::outline)
/// names a recording or a warm-up; it is unique in its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A function was registered.
    #[non_exhaustive]
    Registered {
        /// The function.
        function: FunctionName,
    },
    /// A step began: what follows starts at a root.
    #[non_exhaustive]
    StepBegan {
        /// The pool.
        pool: u64,
        /// The number of the step in that pool.
        step: u64,
    },
    /// A path ended although outputs on it were live.
    #[non_exhaustive]
    PathEnded {
        /// The pool.
        pool: u64,
        /// The function whose call ended it.
        by: FunctionName,
        /// How many outputs went stale.
        stale: usize,
        /// How many outputs were copied out.
        copied: usize,
        /// The bytes that were copied out.
        bytes: u64,
    },
    /// A call has run.
    #[non_exhaustive]
    Called {
        /// The pool of its function.
        pool: u64,
        /// The function.
        function: FunctionName,
        /// What the call was.
        phase: Phase,
        /// How it ran.
        how: How,
        /// Why it did not replay; none for a replay, and for a plain run that the mode asks for.
        why: Option<String>,
        /// The node that ran; none for a plain run.
        node: Option<u64>,
        /// The step in which it ran.
        step: u64,
    },
    /// A call returned an error.
    #[non_exhaustive]
    Failed {
        /// The function.
        function: FunctionName,
        /// The error, in one line.
        error: String,
    },
    /// A recording was made.
    #[non_exhaustive]
    Recorded {
        /// The pool.
        pool: u64,
        /// The function.
        function: FunctionName,
        /// The recording.
        node: u64,
        /// The recording below which it lies; none for a root.
        parent: Option<u64>,
        /// How many nodes its graph has.
        graph_nodes: Option<usize>,
        /// The bytes that the driver holds for it; none if the device cannot tell.
        exec_bytes: Option<u64>,
        /// The bytes that are live in the pool behind it.
        live_bytes: u64,
        /// The time from the decision to record until the recording was launched.
        ns: u64,
    },
    /// A recording failed. What became of the call is told by the event that follows.
    #[non_exhaustive]
    RecordingFailed {
        /// The pool.
        pool: u64,
        /// The function.
        function: FunctionName,
        /// The error, in one line.
        error: String,
    },
    /// A recording is gone, because others took its place or its memory was needed.
    #[non_exhaustive]
    Evicted {
        /// The pool.
        pool: u64,
        /// The recording.
        node: u64,
    },
    /// A pool has obtained memory from the device.
    #[non_exhaustive]
    PoolGrew {
        /// The pool.
        pool: u64,
        /// By how much.
        bytes: u64,
        /// What it holds now.
        reserved: u64,
    },
    /// A pool has given memory back to the device.
    #[non_exhaustive]
    PoolShrank {
        /// The pool.
        pool: u64,
        /// By how much.
        bytes: u64,
        /// What it holds now.
        reserved: u64,
    },
    /// Something that is worth saying once: many shapes, pending backwards that hold recordings back, plain runs.
    #[non_exhaustive]
    Noticed {
        /// The pool.
        pool: u64,
        /// The function.
        function: FunctionName,
        /// What, in one line.
        what: String,
    },
    /// The mode `Auto` has decided how a function runs from here on.
    #[non_exhaustive]
    Judged {
        /// The function.
        function: FunctionName,
        /// Whether its calls are recorded.
        records: bool,
        /// Why, in one line.
        why: String,
    },
    /// Every recording was forgotten.
    Reset,
    /// The engine was shut down.
    ShutDown,
}
