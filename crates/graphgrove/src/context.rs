//! What a function sees while it runs.

use graphgrove_device::{Args, CaptureMode, Device, DevicePtr, LaunchDims, ModeGuard, SegmentMemory};
use graphgrove_pool::ranges::Block;
use parking_lot::Mutex;

use crate::error::Result;
use crate::memory::Memory;

/// Where a running function's memory comes from.
pub(crate) enum Source<'a, D: Device> {
    /// The pool, in warm-up and recording.
    Pool(&'a Mutex<Memory<D>>),
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
    pub(crate) inputs: Vec<(DevicePtr, u64)>,
    pub(crate) parameters: &'a [DevicePtr],
}

/// Memory that a function has allocated: returned, it becomes an output; dropped, a temporary that is free again.
pub struct Buffer<'a, D: Device> {
    device: &'a D,
    stream: &'a D::Stream,
    pub(crate) at: DevicePtr,
    pub(crate) bytes: u64,
    pub(crate) home: Home<'a, D>,
}

pub(crate) enum Home<'a, D: Device> {
    Pool {
        memory: &'a Mutex<Memory<D>>,
        block: Block,
    },
    /// It has been handed on, or somebody else keeps it.
    Elsewhere,
}

impl<D: Device> Buffer<'_, D> {
    /// The address, for kernel arguments.
    pub fn ptr(&self) -> DevicePtr {
        self.at
    }

    /// Takes the memory out of the buffer, which then frees nothing.
    pub(crate) fn take_home(&mut self) -> Home<'_, D> {
        std::mem::replace(&mut self.home, Home::Elsewhere)
    }
}

impl<D: Device> Drop for Buffer<'_, D> {
    fn drop(&mut self) {
        if let Home::Pool { memory, block } = &self.home {
            // The block is live and the stream in use, so the pool cannot refuse; a device that does is poisoned, and says so
            // at the next call.
            let _ = memory.lock().release(self.device, self.stream, block);
        }
    }
}

impl<'a, D: Device> Context<'a, D> {
    /// The stream to enqueue on.
    pub fn stream(&self) -> &D::Stream {
        self.stream
    }

    /// The address of an input that is not a parameter, in the order of the call.
    pub fn input(&self, index: usize) -> DevicePtr {
        self.inputs.get(index).map_or(DevicePtr::NULL, |&(at, _)| at)
    }

    /// The address of a parameter, in the order of the call.
    pub fn parameter(&self, index: usize) -> DevicePtr {
        self.parameters.get(index).copied().unwrap_or(DevicePtr::NULL)
    }

    /// Allocates memory of undefined contents.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::Error::Pool) if the pool has no room; [`Error::Device`](crate::Error::Device) if the device has
    /// none, in an eager run.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer<'a, D>> {
        let (at, home) = match &self.source {
            Source::Pool(memory) => {
                let mut pool = memory.lock();
                let block = pool.allocate(self.device, self.stream, bytes)?;
                (pool.address(&block), Home::Pool { memory, block })
            }
            Source::Device(kept) => {
                let _mode = ModeGuard::swap(self.device, CaptureMode::Relaxed)?;
                let segment = self.device.allocate(bytes)?;
                let at = segment.base();
                kept.lock().push(segment);
                (at, Home::Elsewhere)
            }
        };
        Ok(Buffer { device: self.device, stream: self.stream, at, bytes, home })
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
