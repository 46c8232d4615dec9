//! Work of the contract: enqueued on streams, or captured.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};
use graphgrove_device::{
    Args, Call, CaptureFailure, DeviceError, DevicePtr, GatherRow, HostMemory as _, KernelHandle as _,
    LaunchDims, NodeId, NodeKind, Problem, Result, StreamHandle as _, Work,
};

use crate::capture_table::Node;
use crate::copy_node::CopyNode;
use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::event::OwnedEvent;
use crate::gather::{GatherNode, MOST_ROWS};
use crate::host_buffer::HostBuffer;
use crate::host_call::HostCall;
use crate::kernel::{Kernel, argument_pointers};
use crate::memory::unknown_range;
use crate::recording::Recording;
use crate::retire::{Kept, Retired, keep_for_good};
use crate::segment::{check_range, is_allocated};
use crate::shared::lock;
use crate::status::Subject;
use crate::stream::Stream;

/// What became of work that was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// It runs.
    Eagerly,
    /// It became a node, whose id is known if the driver made a single one.
    Captured(Option<NodeId>),
}

impl Enqueued {
    fn node(self) -> Option<NodeId> {
        match self {
            Self::Eagerly => None,
            Self::Captured(node) => node,
        }
    }
}

impl CudaDevice {
    /// Enqueues work and, if a capture took it, notes the node and what the node needs to live.
    pub(crate) fn enqueue(
        &self,
        call: Call,
        stream: &Stream,
        subject: Subject,
        kept: Option<Kept>,
        recording: impl FnOnce() -> Recording,
        enqueue: impl FnOnce() -> CUresult,
    ) -> Result<Enqueued> {
        self.enter_on(call, stream)?;
        // What has to be kept alive is worth the question whether other code has a capture open on the stream.
        if kept.is_none() && self.shared.captures.none_open() {
            self.shared.check(call, enqueue(), subject)?;
            return Ok(Enqueued::Eagerly);
        }
        let mut captures = self.shared.captures.lock();
        self.shared.check(call, enqueue(), subject)?;
        let Ok(info) = self.shared.symbols.capture_info(stream.handle()) else {
            return Ok(Enqueued::Eagerly);
        };
        if info.status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Ok(Enqueued::Eagerly);
        }
        let capture = captures.joined(info.id, stream.handle());
        capture.kept.extend(kept);
        // No other work gets in between under the lock, so what the stream depends on now is the node of this work.
        let id = info.last.and_then(|handle| capture.met(Node { handle, recording: recording() }));
        Ok(Enqueued::Captured(id))
    }

    /// Lets other code enqueue work on the stream. If a capture takes it, what it needs is kept with the graph.
    pub(crate) fn enqueue_foreign(
        &self,
        call: Call,
        stream: &Stream,
        kept: Option<Kept>,
        enqueue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        self.shared.own(call, stream.device())?;
        self.shared.enter()?;
        // Other work may not get in between, since it would take a node of this work for its own.
        let mut captures = self.shared.captures.lock();
        enqueue()?;
        let info = self.shared.symbols.capture_info(stream.handle());
        if let Ok(info) = info
            && info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
        {
            let capture = captures.joined(info.id, stream.handle());
            let has = |kept: &Kept| {
                capture.kept.iter().any(|other| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(kept)))
            };
            let new: Option<Kept> = kept.filter(|kept| !has(kept));
            capture.kept.extend(new);
        }
        Ok(())
    }

    /// A copy between the host and the device, whose buffer is kept until it has run.
    fn host_copy(
        &self,
        call: Call,
        stream: &Stream,
        buffer: &HostBuffer,
        (offset, device, bytes): (usize, DevicePtr, usize),
        recording: Recording,
        enqueue: impl FnOnce(*mut u8) -> CUresult,
    ) -> Result<Option<NodeId>> {
        self.shared.own(call, buffer.device())?;
        self.shared.alive()?;
        let range = Subject::Range { address: device, bytes: bytes as u64 };
        check_range(call, device, bytes as u64)?;
        buffer.check_range(call, offset, bytes)?;
        let Some(pages) = buffer.pages() else {
            return Err(DeviceError::invalid(call, Problem::UnknownHandle));
        };
        let kept = Arc::clone(pages) as Kept;
        let enqueued =
            self.enqueue(call, stream, range, Some(kept), || recording, || enqueue(pages.at(offset)))?;
        if enqueued == Enqueued::Eagerly {
            buffer.mark_use(call, stream)?;
        }
        Ok(enqueued.node())
    }

    /// Launches a kernel whose arguments and dimensions have been checked.
    fn launch_kernel(
        &self,
        stream: &Stream,
        function: sys::CUfunction,
        dims: LaunchDims,
        arguments: &mut [*mut std::ffi::c_void],
    ) -> CUresult {
        let ([x, y, z], [a, b, c]) = (dims.grid, dims.block);
        // SAFETY: the function is of a module that stays loaded, the handle keeps the stream alive, and there is a pointer for each of the kernel's parameters.
        unsafe {
            sys::cuLaunchKernel(
                function,
                x,
                y,
                z,
                a,
                b,
                c,
                dims.shared_bytes,
                stream.handle(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }

    /// Whether the stream captures: an error if its capture is invalidated.
    fn captures(&self, call: Call, stream: &Stream) -> Result<bool> {
        if self.shared.captures.none_open() {
            return Ok(false);
        }
        match self.shared.symbols.capture_info(stream.handle()) {
            Ok(info) => match info.status {
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Ok(false),
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => Ok(true),
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                    Err(DeviceError::capture(call, CaptureFailure::Invalidated))
                }
            },
            // The null stream beside a capture that it would wait for: the work itself says so.
            Err(_) => Ok(false),
        }
    }
}

impl Work for CudaDevice {
    type Kernel = Kernel;

    fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        dims: LaunchDims,
        args: &Args,
    ) -> Result<Option<NodeId>> {
        let call = Call::Launch;
        self.shared.own(call, kernel.device())?;
        self.shared.own(call, stream.device())?;
        self.shared.alive()?;
        kernel.check_arguments(call, args)?;
        let mut arguments = argument_pointers(args);
        let recording = || Recording::Kernel { kernel: kernel.clone(), dims, args: args.clone() };
        let enqueue = || self.launch_kernel(stream, kernel.function(), dims, &mut arguments);
        self.enqueue(call, stream, Subject::Launch(dims), None, recording, enqueue).map(Enqueued::node)
    }

    fn copy(&self, stream: &Stream, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<Option<NodeId>> {
        let call = Call::Copy;
        self.shared.own(call, stream.device())?;
        self.shared.alive()?;
        check_range(call, to, bytes)?;
        check_range(call, from, bytes)?;
        self.enter_on(call, stream)?;
        if self.captures(call, stream)? {
            let node = CopyNode::prepare(&self.shared, call, bytes)?;
            node.check(&self.shared, call, to, from)?;
            let enqueue = || {
                node.with_ends(to, from, |arguments| {
                    self.launch_kernel(stream, node.function.0, node.dims, arguments)
                })
            };
            let subject = Subject::Launch(node.dims);
            let recording = || Recording::Copy(node);
            return self.enqueue(call, stream, subject, None, recording, enqueue).map(Enqueued::node);
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut refused = CUresult::CUDA_SUCCESS;
        let enqueued = self.enqueue(
            call,
            stream,
            Subject::Range { address: to, bytes },
            None,
            || Recording::Foreign { kind: NodeKind::Copy, name: None },
            || {
                // SAFETY: the driver refuses addresses that it does not know, and the handle keeps the stream alive.
                refused = unsafe { sys::cuMemcpyDtoDAsync_v2(to.get(), from.get(), size, stream.handle()) };
                refused
            },
        );
        match (enqueued, unknown_range(to, from, bytes, refused)) {
            (Err(DeviceError::Invalid { .. }), Subject::Range { address, bytes }) => {
                Err(DeviceError::invalid(call, Problem::NotAllocated { address, bytes }))
            }
            (enqueued, _) => enqueued.map(Enqueued::node),
        }
    }

    fn fill(&self, stream: &Stream, to: DevicePtr, value: u8, bytes: u64) -> Result<Option<NodeId>> {
        let call = Call::Fill;
        self.shared.own(call, stream.device())?;
        self.shared.alive()?;
        check_range(call, to, bytes)?;
        let range = Subject::Range { address: to, bytes };
        // Outside of captures the driver looks at the range itself; into a capture it takes any.
        if !self.shared.captures.none_open() {
            self.enter_on(call, stream)?;
            if !self.shared.async_allocations.covers(to, bytes) && !is_allocated(to, bytes) {
                return Err(DeviceError::invalid(call, Problem::NotAllocated { address: to, bytes }));
            }
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the range has been checked here or is by the driver, and the handle keeps the stream alive.
        let enqueue = || unsafe { sys::cuMemsetD8Async(to.get(), value, size, stream.handle()) };
        self.enqueue(call, stream, range, None, || Recording::Fill, enqueue).map(Enqueued::node)
    }

    fn upload(
        &self,
        stream: &Stream,
        to: DevicePtr,
        from: &HostBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<NodeId>> {
        let recording = Recording::Upload { bytes };
        self.host_copy(Call::Upload, stream, from, (offset, to, bytes), recording, |at| {
            // SAFETY: the host range is inside of pages that live until the copy has run, and the driver refuses a device
            // address that it does not know.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.get(), at.cast(), bytes, stream.handle()) }
        })
    }

    fn download(
        &self,
        stream: &Stream,
        to: &HostBuffer,
        offset: usize,
        from: DevicePtr,
        bytes: usize,
    ) -> Result<Option<NodeId>> {
        self.host_copy(Call::Download, stream, to, (offset, from, bytes), Recording::Download, |at| {
            // SAFETY: the host range is inside of pages that live until the copy has run, and the driver refuses a device
            // address that it does not know.
            unsafe { sys::cuMemcpyDtoHAsync_v2(at.cast(), from.get(), bytes, stream.handle()) }
        })
    }

    fn gather_rows(&self) -> usize {
        MOST_ROWS
    }

    fn gather(&self, stream: &Stream, rows: &[GatherRow], sources: &[DevicePtr]) -> Result<Option<NodeId>> {
        let call = Call::Gather;
        self.enter_on(call, stream)?;
        GatherNode::check(call, rows, sources)?;
        if !self.captures(call, stream)? {
            for (row, &source) in rows.iter().zip(sources).filter(|(row, _)| row.bytes > 0) {
                self.copy(stream, row.to, source, row.bytes)?;
            }
            return Ok(None);
        }
        let (mut node, table) = GatherNode::prepare(&self.shared, rows, sources)?;
        let dims = node.dims;
        let described = node.clone();
        let enqueue = || {
            node.with_sources(sources, |node, arguments| {
                self.launch_kernel(stream, node.function.0, dims, arguments)
            })
        };
        let table = Arc::new(table);
        let kept = Some(Arc::clone(&table) as Kept);
        let recording = || Recording::Gather(described);
        let enqueued = self.enqueue(call, stream, Subject::Launch(dims), kept, recording, enqueue);
        // If no graph took the table, it must not be freed here, where a capture is open.
        self.shared.destroy(move |_| drop(table));
        enqueued.map(Enqueued::node)
    }

    fn host_call(&self, stream: &Stream, call: Box<dyn FnMut() + Send>) -> Result<Option<NodeId>> {
        let function = Arc::new(HostCall::new(call));
        let call = Call::HostCall;
        let data = Arc::as_ptr(&function).cast_mut().cast();
        let kept: Kept = function;
        // SAFETY: the function lives until the stream has passed it or, in a capture, as long as graph and execs.
        let enqueue = || unsafe { sys::cuLaunchHostFunc(stream.handle(), Some(HostCall::trampoline), data) };
        let enqueued =
            self.enqueue(call, stream, Subject::Nothing, Some(kept.clone()), || Recording::Host, enqueue)?;
        if enqueued == Enqueued::Eagerly {
            match OwnedEvent::behind(&self.shared, stream.handle()) {
                Some(event) => {
                    lock(&self.shared.retired).push(Retired::new(Arc::new(vec![kept]), vec![event]));
                    self.shared.sweep();
                }
                // Nothing can say when the stream has passed it, so the function stays for good.
                None => keep_for_good(kept),
            }
        }
        Ok(enqueued.node())
    }
}
