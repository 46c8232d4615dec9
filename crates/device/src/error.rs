//! What can go wrong, as data.

use crate::{Call, DeviceId, DevicePtr, EventId, NodeId, StreamId};

/// The result of a device operation.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// Why a device operation was refused or broke.
///
/// Unless a variant says otherwise, the operation had no effect and the device can be used as before.
/// A capture is different: CUDA *invalidates* it on most errors, and [`DeviceError::Capture`] says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has not that much memory left.
    #[error("{call}: out of memory, {bytes} bytes asked, {free} of {total} bytes free")]
    OutOfMemory {
        /// The operation that asked.
        call: Call,
        /// Bytes asked.
        bytes: u64,
        /// Bytes free on the device when it refused.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
    /// An argument cannot be right (CUDA: `CUDA_ERROR_INVALID_VALUE`).
    #[error("{call}: {problem}")]
    Invalid {
        /// The operation that was given the argument.
        call: Call,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A handle belongs to another device (CUDA: `CUDA_ERROR_INVALID_HANDLE` or `CUDA_ERROR_INVALID_CONTEXT`).
    #[error("{call}: the handle belongs to {owner}, not to {device}")]
    ForeignHandle {
        /// The operation that was given the handle.
        call: Call,
        /// The device that made the handle.
        owner: DeviceId,
        /// The device that was asked.
        device: DeviceId,
    },
    /// A rule of stream capture was broken.
    #[error("{call}: {failure}")]
    Capture {
        /// The operation that broke the rule or met the broken capture.
        call: Call,
        /// Which rule, and what became of the capture.
        failure: CaptureFailure,
    },
    /// A graph holds memory nodes, so it would own memory that the caller believes to be a pool's.
    #[error("the graph allocates: {count} memory nodes, the first is {node}, after {after}")]
    MemoryNodes {
        /// How many allocation and free nodes the graph holds.
        count: usize,
        /// The first of them.
        node: NodeId,
        /// The kernel or operation that was captured just before it.
        after: String,
    },
    /// An exec cannot take over the given graph; it keeps what it had (CUDA: `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`).
    #[error("the exec cannot take the graph over: {refusal}")]
    UpdateRefused {
        /// What differs.
        refusal: UpdateRefusal,
    },
    /// A graph that allocates and does not free was launched again while its allocation lives.
    #[error("launch exec: the allocation {address} that its last launch made is still alive")]
    LiveAllocation {
        /// The allocation that the last launch left.
        address: DevicePtr,
    },
    /// Work that ran on the device broke it (CUDA: illegal address, assertion, launch failure).
    ///
    /// The device is poisoned: every later operation returns this error, and destruction still ends.
    #[error("the device is poisoned: {cause}")]
    Fault {
        /// What the work did.
        cause: String,
    },
    /// The device cannot do this at all.
    #[error("{call}: not supported by this device")]
    Unsupported {
        /// The operation.
        call: Call,
    },
    /// The driver said something that the contract has no word for.
    #[error("{call}: the driver says {name} ({code})")]
    Driver {
        /// The operation.
        call: Call,
        /// The driver's number for the error.
        code: i32,
        /// The driver's name for the error.
        name: String,
    },
    /// There is no such device, or no driver for it.
    #[error("no device: {reason}")]
    NoDevice {
        /// What was looked for and not found.
        reason: String,
    },
}

impl DeviceError {
    /// Shorthand for [`DeviceError::Invalid`].
    #[must_use]
    pub const fn invalid(call: Call, problem: Problem) -> Self {
        Self::Invalid { call, problem }
    }

    /// Shorthand for [`DeviceError::Capture`].
    #[must_use]
    pub const fn capture(call: Call, failure: CaptureFailure) -> Self {
        Self::Capture { call, failure }
    }

    /// The broken capture rule, if this is one.
    #[must_use]
    pub const fn capture_failure(&self) -> Option<&CaptureFailure> {
        match self {
            Self::Capture { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// Whether every later operation on the device will fail as well.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Fault { .. })
    }
}

/// What is wrong with an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A size of zero where memory was asked for or is to be moved.
    #[error("zero bytes")]
    ZeroBytes,
    /// The null address.
    #[error("null address")]
    NullAddress,
    /// A range that is not wholly inside one live allocation.
    #[error("{bytes} bytes at {address} are not inside one live allocation")]
    NotAllocated {
        /// Start of the range.
        address: DevicePtr,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// A range past the end of what it indexes.
    #[error("bytes {offset} to {offset}+{bytes} are outside of {length} bytes")]
    OutOfRange {
        /// Start of the range in bytes.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Length in bytes of what the range indexes.
        length: u64,
    },
    /// An offset or size that is not a multiple of what the device maps at once.
    #[error("{value} is not a multiple of the granularity {granularity}")]
    Granularity {
        /// The offset or size in bytes.
        value: u64,
        /// The granularity in bytes.
        granularity: u64,
    },
    /// Pages that are mapped already.
    #[error("bytes {offset} to {offset}+{bytes} are mapped, at least in part")]
    AlreadyMapped {
        /// Start of the range in bytes.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// Pages that are not mapped as asked.
    #[error("bytes {offset} to {offset}+{bytes} are not whole mapped pieces")]
    NotMapped {
        /// Start of the range in bytes.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// A launch without threads, or with more than the device has.
    #[error("launch dimensions {grid:?} x {block:?}")]
    Dimensions {
        /// Blocks in each dimension.
        grid: [u32; 3],
        /// Threads of a block in each dimension.
        block: [u32; 3],
    },
    /// Arguments that differ from those that the node was recorded with, in number, size or kind.
    #[error("arguments do not have the layout of the recorded ones")]
    ArgumentLayout,
    /// A kernel was given fewer or more arguments than it takes.
    #[error("{given} arguments given, {expected} taken")]
    ArgumentCount {
        /// Arguments that the kernel takes.
        expected: usize,
        /// Arguments that were given.
        given: usize,
    },
    /// As many sources as rows are needed.
    #[error("{sources} sources for {rows} rows")]
    RowCount {
        /// Rows of the gather node.
        rows: usize,
        /// Sources that were given.
        sources: usize,
    },
    /// A node that the exec does not have, or that is of another kind than the patch.
    #[error("{node} is no node of that kind")]
    NoSuchNode {
        /// The node asked for.
        node: NodeId,
    },
    /// An event that was last recorded in a capture which is over or invalidated, so that it has no state to ask for.
    #[error("{event} was last recorded in a capture that is over")]
    CaptureOver {
        /// The event.
        event: EventId,
    },
    /// A call from inside of a kernel or of a host function that a stream called.
    #[error("called from inside of work that runs on the device")]
    FromDeviceCode,
    /// A raw handle that this device never gave out, or whose owner is gone.
    #[error("unknown handle")]
    UnknownHandle,
}

/// The rule of stream capture that was broken.
///
/// CUDA Programming Guide, "Creating a Graph Using Stream Capture"; the names follow the driver's
/// `CUDA_ERROR_STREAM_CAPTURE_*`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureFailure {
    /// The operation is forbidden while a capture is open. The capture is invalidated.
    #[error("not permitted while a capture is open")]
    Unsupported,
    /// The capture was invalidated before; it stays so until it is ended.
    #[error("the capture is invalidated")]
    Invalidated,
    /// Two captures would be joined. Both are invalidated.
    #[error("the event belongs to another capture")]
    Merge,
    /// The capture was not begun on this stream. The capture is invalidated.
    #[error("the capture was not begun on this stream")]
    Unmatched,
    /// A forked stream was not joined to the stream that began the capture. The capture is over and lost.
    #[error("a forked stream was not joined")]
    Unjoined,
    /// A captured stream would wait for work outside of the capture. The capture is invalidated.
    #[error("a captured stream would wait for {event}, which was recorded outside of the capture")]
    Isolation {
        /// The event.
        event: EventId,
    },
    /// The null stream was used, which would wait for the captured stream. The capture is invalidated.
    #[error("the null stream would wait for a captured stream")]
    Implicit,
    /// An event that was recorded in an open capture has no state to ask for. The capture is invalidated.
    #[error("{event} was last recorded in a capture")]
    CapturedEvent {
        /// The event.
        event: EventId,
    },
    /// The capture was begun by another thread and is not relaxed. The capture is over and lost.
    #[error("the capture was begun by another thread")]
    WrongThread,
    /// The stream is capturing already (CUDA: `CUDA_ERROR_ILLEGAL_STATE`).
    #[error("{stream} is capturing already")]
    AlreadyCapturing {
        /// The stream.
        stream: StreamId,
    },
    /// The stream is not capturing (CUDA: `CUDA_ERROR_ILLEGAL_STATE`).
    #[error("{stream} is not capturing")]
    NotCapturing {
        /// The stream.
        stream: StreamId,
    },
}

/// Why an exec could not take over a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateRefusal {
    /// Nodes or edges were added or removed.
    #[error("its topology differs")]
    Topology,
    /// A node has another kind.
    #[error("{node} is of another kind")]
    Kind {
        /// The first such node.
        node: NodeId,
    },
    /// A parameter was changed that cannot be changed in an exec, such as the direction of a copy.
    #[error("a parameter of {node} cannot be changed")]
    Parameters {
        /// The first such node.
        node: NodeId,
    },
    /// The driver gave no reason that the contract has a word for.
    #[error("the driver's reason is {code}")]
    Other {
        /// The driver's number for the reason (`CUgraphExecUpdateResult`).
        code: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_which_operation_met_what() {
        let error = DeviceError::OutOfMemory { call: Call::Allocate, bytes: 8, free: 4, total: 16 };
        assert_eq!(error.to_string(), "allocate segment: out of memory, 8 bytes asked, 4 of 16 bytes free");
        let error = DeviceError::capture(Call::EndCapture, CaptureFailure::Unjoined);
        assert_eq!(error.to_string(), "end capture: a forked stream was not joined");
        assert_eq!(error.capture_failure(), Some(&CaptureFailure::Unjoined));
    }

    #[test]
    fn only_a_fault_is_fatal() {
        assert!(DeviceError::Fault { cause: "illegal address".into() }.is_fatal());
        assert!(!DeviceError::invalid(Call::Copy, Problem::ZeroBytes).is_fatal());
    }
}
