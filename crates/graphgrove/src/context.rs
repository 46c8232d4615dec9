//! What a function sees while it runs.

use graphgrove_device::{Args, CaptureMode, Device, DevicePtr, LaunchDims, ModeGuard, SegmentMemory};
use graphgrove_pool::pool::{Block, Owner, Request, Session};
use parking_lot::Mutex;

use crate::error::Result;

/// Where a running function's memory comes from.
pub(crate) enum Source<'a, D: Device> {
    /// The pool, in warm-up and recording.
    Pool(&'a Session<D>),
    /// The device itself, in eager runs. What was allocated is kept until the run's work is over, temporaries too: a segment that
    /// is freed while work that uses it waits is gone from under it.
    Device(Mutex<Vec<D::Segment>>),
}

/// What a function sees while it runs: a stream to enqueue work on and memory for what it makes.
///
/// The same function runs in warm-up, in recording and eagerly, so it must not read anything back to the host.
pub struct Context<'a, D: Device> {
    pub(crate) device: &'a D,
    pub(crate) stream: &'a D::Stream,
    pub(crate) source: Source<'a, D>,
    pub(crate) inputs: Vec<DevicePtr>,
    pub(crate) parameters: &'a [DevicePtr],
}

/// Memory that a function has allocated: returned, it becomes an output; dropped, a temporary that is free again.
pub struct Buffer<D: Device> {
    at: DevicePtr,
    /// `None` in an eager run, whose memory is kept elsewhere until the run is over.
    block: Option<Block<D>>,
}

impl<D: Device> Buffer<D> {
    /// The address, for kernel arguments.
    pub fn ptr(&self) -> DevicePtr {
        self.at
    }

    pub(crate) fn into_block(self) -> Option<Block<D>> {
        self.block
    }
}

impl<D: Device> Context<'_, D> {
    /// The stream to enqueue on.
    pub fn stream(&self) -> &D::Stream {
        self.stream
    }

    /// The address of an input that is not a parameter, in the order of the call; null past the last.
    pub fn input(&self, index: usize) -> DevicePtr {
        self.inputs.get(index).copied().unwrap_or(DevicePtr::NULL)
    }

    /// The address of a parameter, in the order of the call; null past the last.
    pub fn parameter(&self, index: usize) -> DevicePtr {
        self.parameters.get(index).copied().unwrap_or(DevicePtr::NULL)
    }

    /// Allocates memory of undefined contents.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::Error::Pool) if the pool has no room; [`Error::Device`](crate::Error::Device) if the device has
    /// none, in an eager run.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer<D>> {
        match &self.source {
            Source::Pool(session) => {
                let block =
                    session.allocate(Request::bytes(bytes).owner(Owner::Temporary).label("function"))?;
                Ok(Buffer { at: block.ptr(), block: Some(block) })
            }
            Source::Device(kept) => {
                let _mode = ModeGuard::swap(self.device, CaptureMode::Relaxed)?;
                let segment = self.device.allocate(bytes)?;
                let at = segment.base();
                kept.lock().push(segment);
                Ok(Buffer { at, block: None })
            }
        }
    }

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn launch(&self, kernel: &D::Kernel, dims: LaunchDims, args: &Args) -> Result<()> {
        self.device.launch(self.stream, kernel, dims, args)?;
        Ok(())
    }
}
