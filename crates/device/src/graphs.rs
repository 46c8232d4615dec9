//! Execs: graphs made ready to launch.

use crate::{Args, Capture, DevicePtr, NodeId, Result};

/// Instantiating, changing and launching graphs.
///
/// An exec takes `&mut self` wherever CUDA wants its host-side object used by one thread at a time; that also makes a
/// launch and a patch of the same exec exclude each other. A patch or update never disturbs launches that were
/// enqueued before it.
///
/// (CUDA Programming Guide, "CUDA Graphs", and "Updating Instantiated Graphs".)
pub trait Graphs: Capture {
    /// A graph made ready to launch. It keeps what it needs of its graph, which may go before it.
    ///
    /// Dropping it does not wait for its launches, which still run; it never reaches the driver while a capture is open.
    type Exec: Send + 'static;

    /// Makes an exec from a graph. Unsafe during capture, as [`Capture`](crate::Capture) explains.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory);
    /// [`DeviceError::Unsupported`](crate::DeviceError::Unsupported) for a graph with memory nodes of which an exec exists.
    /// Nothing is made then.
    fn instantiate(&self, graph: &Self::Graph) -> Result<Self::Exec>;

    /// Makes the exec run what `graph` holds, if both have the same nodes of the same kinds and the same edges. Kernels, sizes,
    /// addresses and values may differ.
    ///
    /// # Errors
    /// [`DeviceError::UpdateRefused`](crate::DeviceError::UpdateRefused). The exec is as before then. (CUDA leaves it open which
    /// nodes were updated when it refuses; an implementation has to look first, or to put back what it had.)
    fn update(&self, exec: &mut Self::Exec, graph: &Self::Graph) -> Result<()>;

    /// Moves what a launch needs to the device ahead of the first launch.
    ///
    /// # Errors
    /// Those of [`launch_exec`](Graphs::launch_exec).
    fn upload_exec(&self, exec: &mut Self::Exec, stream: &Self::Stream) -> Result<()>;

    /// Launches the exec on the stream: all of its nodes run behind what was enqueued there before, and what is enqueued
    /// there later runs behind all of them. Launches of the same exec never overlap, whatever their streams.
    ///
    /// # Errors
    /// On a capturing stream, [`CaptureFailure::Unsupported`](crate::CaptureFailure::Unsupported), and the capture is invalidated
    /// (the contract has no child graphs). [`DeviceError::LiveAllocation`](crate::DeviceError::LiveAllocation) for a graph that owns
    /// memory which its last launch left allocated.
    fn launch_exec(&self, exec: &mut Self::Exec, stream: &Self::Stream) -> Result<()>;

    /// Replaces all arguments of a kernel node, for later launches.
    ///
    /// # Errors
    /// [`Problem::NoSuchNode`](crate::Problem::NoSuchNode), [`Problem::ArgumentLayout`](crate::Problem::ArgumentLayout); the exec is as
    /// before then.
    fn patch_kernel(&self, exec: &mut Self::Exec, node: NodeId, args: &Args) -> Result<()>;

    /// Replaces the sources of a gather node, for later launches, by one driver call. No memory is allocated.
    ///
    /// # Errors
    /// [`Problem::NoSuchNode`](crate::Problem::NoSuchNode), [`Problem::RowCount`](crate::Problem::RowCount),
    /// [`Problem::NullAddress`](crate::Problem::NullAddress); the exec is as before then.
    fn patch_gather(&self, exec: &mut Self::Exec, node: NodeId, sources: &[DevicePtr]) -> Result<()>;

    /// Replaces source and destination of a device-to-device copy node, for later launches. The length stays.
    ///
    /// # Errors
    /// [`Problem::NoSuchNode`](crate::Problem::NoSuchNode), [`Problem::NullAddress`](crate::Problem::NullAddress); the exec is as
    /// before then.
    fn patch_copy(&self, exec: &mut Self::Exec, node: NodeId, to: DevicePtr, from: DevicePtr) -> Result<()>;

    /// Replaces source and destination of an [upload](crate::Work::upload) node, for later launches: they copy from `from`,
    /// `offset` bytes from its start. The length stays, and the buffer is read when a launch runs. Nothing is waited for.
    ///
    /// The exec keeps the buffer alive until another patch or an update replaces it, or until the exec goes. Launches that were
    /// enqueued before read the buffer that is replaced, and keep it alive until they are done, whatever its owner does.
    /// However many buffers take turns, the exec itself holds two a node at most, beside the one that was recorded, which
    /// lives as long as the graph.
    ///
    /// (CUDA Driver API, cuGraphExecMemcpyNodeSetParams.)
    ///
    /// # Errors
    /// [`Problem::NoSuchNode`](crate::Problem::NoSuchNode), also for a node that is no upload;
    /// [`Problem::OutOfRange`](crate::Problem::OutOfRange) for a range past the end of the buffer;
    /// [`Problem::NullAddress`](crate::Problem::NullAddress);
    /// [`DeviceError::ForeignHandle`](crate::DeviceError::ForeignHandle) for a buffer of another device. The exec is as before
    /// then.
    fn patch_upload(
        &self,
        exec: &mut Self::Exec,
        node: NodeId,
        to: DevicePtr,
        from: &Self::HostBuffer,
        offset: usize,
    ) -> Result<()>;

    /// The bytes of device memory that the driver holds for the exec, as far as it can be told: `None` without
    /// [`EXEC_BYTES`](crate::Capabilities::EXEC_BYTES).
    fn exec_bytes(&self, exec: &Self::Exec) -> Option<u64>;
}

/// A device that has everything: the bound that the layers above are written with.
pub trait Device: Graphs {}

impl<D: Graphs> Device for D {}
