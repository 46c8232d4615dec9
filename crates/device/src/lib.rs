//! The device contract of graphgrove.
//!
//! Everything above this crate is written against five small traits and never against a driver:
//!
//! | trait | what it offers |
//! |---|---|
//! | [`Streams`] | streams, events, and waiting for them |
//! | [`Memory`] | segments, reserved ranges, host buffers, blocking reads and writes |
//! | [`Work`] | kernels, copies, fills, the gather node: everything that is ordered on a stream |
//! | [`Capture`] | turning ordered work into a [graph](Capture::Graph) instead of running it |
//! | [`Graphs`] | [execs](Graphs::Exec): instantiate, update, patch, launch |
//!
//! A type that has all five is a [`Device`]. The traits are meant for generic code (`D: Device`), so that a
//! replay inlines down to the driver call; they are not object safe.
//!
//! The [`contract`] module holds the checks that every implementation must pass, each of which states the CUDA
//! rule that it checks.
//!
//! # Addresses and safety
//!
//! A [`DevicePtr`] is a number. Handing a device an address that is not live device memory is reported as a typed
//! error or as a device fault ([`DeviceError::Fault`]), never as undefined behaviour on the host, because no
//! method turns a device address into a host reference. What can break the host is a kernel that writes where its
//! arguments do not point; the promise that it does not is made once, where the kernel is created, which is why
//! implementations whose kernels are foreign code make that creation `unsafe`.
//!
//! # Threads
//!
//! Every method may be called from any thread. Two rules are CUDA's own: a capture that was begun
//! [thread-local](CaptureMode::ThreadLocal) or [global](CaptureMode::Global) must end on the thread that began it,
//! and [`Capture::exchange_capture_mode`] is a property of the calling thread.
#![forbid(unsafe_code)]

mod annotation;
mod args;
mod call;
mod capture;
pub mod contract;
mod deferred;
mod error;
mod graph;
mod graphs;
mod ids;
mod memory;
mod ptr;
mod stream;
mod work;

pub use annotation::Annotation;
pub use args::{Access, ArgField, ArgKind, Args, Scalar};
pub use call::Call;
pub use capture::{Capture, CaptureGuard, CaptureMode, CaptureStatus, ModeGuard};
pub use deferred::Deferred;
pub use error::{CaptureFailure, DeviceError, Problem, Result, UpdateRefusal};
pub use graph::{AllocationNode, GraphAudit, NodeKind, NodeKinds};
pub use graphs::{Device, Graphs};
pub use ids::{CaptureId, DeviceId, EventId, NodeId, RawStream, StreamId};
pub use memory::{HostMemory, Memory, MemoryInfo, ReservedRange, SegmentMemory};
pub use ptr::DevicePtr;
pub use stream::{EventHandle, Progress, StreamHandle, Streams};
pub use work::{GatherRow, KernelHandle, LaunchDims, Work};

bitflags::bitflags! {
    /// What a device can do beyond the core of the contract.
    ///
    /// A method whose capability is missing returns [`DeviceError::Unsupported`] and changes nothing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// [`Memory::reserve`], [`Memory::map`] and [`Memory::unmap`] work (CUDA Programming Guide, "Virtual Memory Management").
        const RESERVE_MAP = 1;
        /// [`Memory::allocate_async`] and [`Memory::free_async`] work (CUDA Programming Guide, "Stream Ordered Memory Allocator").
        const STREAM_ORDERED_ALLOCATION = 1 << 1;
        /// [`Work::host_call`] works.
        const HOST_CALLS = 1 << 2;
        /// [`Graphs::exec_bytes`] knows what an exec costs.
        const EXEC_BYTES = 1 << 3;
        /// [`Work::annotate`] has an effect: the device checks memory accesses.
        const CHECKED_MEMORY = 1 << 4;
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
