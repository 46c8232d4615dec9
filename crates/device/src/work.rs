//! Everything that is ordered on a stream: kernels, copies, fills, gathers, calls back to the host.

use crate::{Annotation, Args, DeviceId, DevicePtr, Memory, NodeId, Result};

/// How many threads a kernel runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchDims {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

impl LaunchDims {
    /// The block size that [`for_elements`](LaunchDims::for_elements) uses.
    pub const THREADS: u32 = 256;

    /// One thread in one block.
    pub const ONE: Self = Self { grid: [1; 3], block: [1; 3], shared_bytes: 0 };

    /// Enough blocks of [`THREADS`](LaunchDims::THREADS) threads for one thread an element, at least one block.
    #[must_use]
    pub const fn for_elements(elements: u32) -> Self {
        let blocks = elements.div_ceil(Self::THREADS);
        Self {
            grid: [if blocks == 0 { 1 } else { blocks }, 1, 1],
            block: [Self::THREADS, 1, 1],
            shared_bytes: 0,
        }
    }

    /// Threads in all, as far as a number can say.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.grid.iter().chain(&self.block).fold(1, |all, &n| u64::saturating_mul(all, u64::from(n)))
    }
}

/// A handle of a kernel: code that a device can run. Clones name the same kernel.
pub trait KernelHandle: Clone + Send + Sync + 'static {
    /// The device that can run it.
    fn device(&self) -> DeviceId;

    /// The name by which reports and audits call it.
    fn name(&self) -> &str;
}

/// Where one input of a gather node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GatherRow {
    /// The first byte of the destination.
    pub to: DevicePtr,
    /// How many bytes are copied, a multiple of nothing.
    pub bytes: u64,
}

/// Work that is ordered on a stream.
///
/// Each method enqueues and returns; the work runs later. On a stream that is [capturing](crate::Capture) nothing
/// runs: the work becomes a node of the graph, with its addresses and arguments frozen as they are now, and the
/// method returns the node's identity. Outside of a capture it returns `None`.
///
/// # Errors of every method
/// [`DeviceError::ForeignHandle`](crate::DeviceError::ForeignHandle) for a handle of another device;
/// [`CaptureFailure::Invalidated`](crate::CaptureFailure::Invalidated) on a stream whose capture is invalidated;
/// [`CaptureFailure::Implicit`](crate::CaptureFailure::Implicit) on the null stream where it would wait for a capturing
/// stream. Nothing is enqueued then. Ranges of zero bytes and null addresses are refused; whether a range lies inside live
/// memory is checked when it is enqueued where the device can tell, and is a fault when the work runs otherwise.
pub trait Work: Memory {
    /// Code that this device can run.
    type Kernel: KernelHandle;

    /// Runs a kernel.
    ///
    /// # Errors
    /// [`Problem::Dimensions`](crate::Problem::Dimensions) for no threads or too many, which also invalidates the capture if
    /// the stream is part of one (other bad arguments do not),
    /// [`Problem::ArgumentCount`](crate::Problem::ArgumentCount) where the kernel's arguments are known.
    fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        dims: LaunchDims,
        args: &Args,
    ) -> Result<Option<NodeId>>;

    /// Copies `bytes` within the device. If the ranges overlap, the result is undefined.
    ///
    /// # Errors
    /// Those of every method.
    fn copy(
        &self,
        stream: &Self::Stream,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
    ) -> Result<Option<NodeId>>;

    /// Sets `bytes` to `value` each.
    ///
    /// # Errors
    /// Those of every method.
    fn fill(&self, stream: &Self::Stream, to: DevicePtr, value: u8, bytes: u64) -> Result<Option<NodeId>>;

    /// Copies `bytes` from a host buffer, `offset` bytes from its start, to the device. The buffer is read when the
    /// work runs, and is kept alive until then; a graph keeps it for as long as it lives.
    ///
    /// # Errors
    /// [`Problem::OutOfRange`](crate::Problem::OutOfRange) for a range past the end of the buffer.
    fn upload(
        &self,
        stream: &Self::Stream,
        to: DevicePtr,
        from: &Self::HostBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<NodeId>>;

    /// Copies `bytes` from the device to a host buffer, `offset` bytes from its start, kept alive as in
    /// [`upload`](Work::upload).
    ///
    /// # Errors
    /// [`Problem::OutOfRange`](crate::Problem::OutOfRange) for a range past the end of the buffer.
    fn download(
        &self,
        stream: &Self::Stream,
        to: &Self::HostBuffer,
        offset: usize,
        from: DevicePtr,
        bytes: usize,
    ) -> Result<Option<NodeId>>;

    /// The most rows that one gather node can have.
    fn gather_rows(&self) -> usize;

    /// Copies each source to its row's destination, all by one node whose sources can be replaced later by one
    /// [`patch_gather`](crate::Graphs::patch_gather).
    ///
    /// Destinations and lengths live in device memory that the graph owns; only the sources are arguments. Outside
    /// of a capture it is done by plain copies. Rows of zero bytes copy nothing. No source or destination may overlap a
    /// destination of another row.
    ///
    /// # Errors
    /// [`Problem::RowCount`](crate::Problem::RowCount) unless there are as many sources as rows, at least one and at most
    /// [`gather_rows`](Work::gather_rows).
    fn gather(
        &self,
        stream: &Self::Stream,
        rows: &[GatherRow],
        sources: &[DevicePtr],
    ) -> Result<Option<NodeId>>;

    /// Calls a host function when the stream gets there. In a capture it becomes a host node and is called at each
    /// launch. The function may not call the device; it may read and write host buffers.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`](crate::DeviceError::Unsupported) without
    /// [`HOST_CALLS`](crate::Capabilities::HOST_CALLS).
    fn host_call(&self, stream: &Self::Stream, call: Box<dyn FnMut() + Send>) -> Result<Option<NodeId>>;

    /// Tells a device that checks memory what a range is from here on, in stream order; in a capture, at each launch.
    ///
    /// A pool calls this when it hands a block out and when it takes it back, so that a read of a dead block is found
    /// although its segment lives on. Devices that do not check (no
    /// [`CHECKED_MEMORY`](crate::Capabilities::CHECKED_MEMORY)) do nothing.
    ///
    /// # Errors
    /// Those of every method.
    fn annotate(&self, _stream: &Self::Stream, _annotation: Annotation) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_for_elements_cover_every_element_and_are_never_empty() {
        for elements in [0, 1, 255, 256, 257, u32::MAX] {
            let dims = LaunchDims::for_elements(elements);
            assert!(dims.threads() >= u64::from(elements));
            assert!(dims.threads() > 0);
        }
        assert_eq!(LaunchDims::for_elements(257).grid, [2, 1, 1]);
        assert_eq!(LaunchDims::ONE.threads(), 1);
        let most = LaunchDims { grid: [u32::MAX; 3], block: [u32::MAX; 3], shared_bytes: 0 };
        assert_eq!(most.threads(), u64::MAX);
    }
}
