//! Work that is enqueued on the simulated device.

use std::sync::Arc;

use graphgrove_device::{
    Annotation, Args, Call, CaptureFailure, DeviceError, DevicePtr, GatherRow, HostMemory, LaunchDims,
    NodeId, Problem, Result, StreamHandle, Work,
};
use parking_lot::Mutex;

use crate::device::SimDevice;
use crate::host::SimHostBuffer;
use crate::kernel::SimKernel;
use crate::op::Op;
use crate::run::Locked;
use crate::state::Item;
use crate::stream::SimStream;

/// The limits of a launch (CUDA Programming Guide, "Compute Capabilities").
const MAX_GRID: [u32; 3] = [0x7FFF_FFFF, 0xFFFF, 0xFFFF];
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_THREADS: u32 = 1024;

/// The most rows of a gather node: 128 sources are 1 KiB of arguments, well below what a kernel takes.
pub(crate) const GATHER_ROWS: usize = 128;

fn check_dims(dims: LaunchDims) -> bool {
    let within = |sizes: [u32; 3], limits: [u32; 3]| {
        sizes.iter().zip(limits).all(|(&size, limit)| size > 0 && size <= limit)
    };
    within(dims.grid, MAX_GRID)
        && within(dims.block, MAX_BLOCK)
        && dims.block.iter().product::<u32>() <= MAX_THREADS
}

impl SimDevice {
    /// Checks the stream, and refuses work where it cannot go.
    fn admit(&self, state: &mut Locked<'_>, call: Call, stream: &SimStream) -> Result<()> {
        let id = self.check_stream(state, call, stream)?;
        state.capturing(call, id).map(|_| ())
    }

    /// Enqueues work on a stream that has been admitted under the same lock, or adds it to the stream's capture.
    fn submit(state: &mut Locked<'_>, stream: &SimStream, op: Op) -> Option<NodeId> {
        let id = stream.id();
        if state.capture_of(id).is_some() {
            return state.add_node(id, op);
        }
        state.enqueue(id, Item::Op(op));
        state.trim_backlog();
        None
    }
}

impl Work for SimDevice {
    type Kernel = SimKernel;

    fn launch(
        &self,
        stream: &SimStream,
        kernel: &SimKernel,
        dims: LaunchDims,
        args: &Args,
    ) -> Result<Option<NodeId>> {
        const CALL: Call = Call::Launch;
        let mut state = self.shared.enter(CALL)?;
        self.shared.check_owner(CALL, kernel.device)?;
        self.admit(&mut state, CALL, stream)?;
        if !check_dims(dims) {
            // Alone among bad arguments, dimensions also cost the capture: the driver finds them after it has begun to add
            // the node.
            if let Some(capture) = state.capture_of(stream.id()) {
                state.invalidate(capture);
            }
            return Err(DeviceError::invalid(
                CALL,
                Problem::Dimensions { grid: dims.grid, block: dims.block },
            ));
        }
        if let Some(expected) = kernel.arguments.filter(|&expected| expected != args.fields().len()) {
            let given = args.fields().len();
            return Err(DeviceError::invalid(CALL, Problem::ArgumentCount { expected, given }));
        }
        Ok(Self::submit(&mut state, stream, Op::Kernel { kernel: kernel.clone(), dims, args: args.clone() }))
    }

    fn copy(&self, stream: &SimStream, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<Option<NodeId>> {
        let mut state = self.shared.enter(Call::Copy)?;
        self.admit(&mut state, Call::Copy, stream)?;
        state.check_range(Call::Copy, Some(stream.id()), from, bytes)?;
        state.check_range(Call::Copy, Some(stream.id()), to, bytes)?;
        Ok(Self::submit(&mut state, stream, Op::Copy { to, from, bytes }))
    }

    fn fill(&self, stream: &SimStream, to: DevicePtr, value: u8, bytes: u64) -> Result<Option<NodeId>> {
        let mut state = self.shared.enter(Call::Fill)?;
        self.admit(&mut state, Call::Fill, stream)?;
        state.check_range(Call::Fill, Some(stream.id()), to, bytes)?;
        Ok(Self::submit(&mut state, stream, Op::Fill { to, value, bytes }))
    }

    fn upload(
        &self,
        stream: &SimStream,
        to: DevicePtr,
        from: &SimHostBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<NodeId>> {
        const CALL: Call = Call::Upload;
        let mut state = self.shared.enter(CALL)?;
        self.shared.check_owner(CALL, from.device())?;
        self.admit(&mut state, CALL, stream)?;
        from.reference().check_range(CALL, offset, bytes)?;
        state.check_range(CALL, Some(stream.id()), to, bytes as u64)?;
        Ok(Self::submit(&mut state, stream, Op::Upload { to, from: from.reference().clone(), offset, bytes }))
    }

    fn download(
        &self,
        stream: &SimStream,
        to: &SimHostBuffer,
        offset: usize,
        from: DevicePtr,
        bytes: usize,
    ) -> Result<Option<NodeId>> {
        const CALL: Call = Call::Download;
        let mut state = self.shared.enter(CALL)?;
        self.shared.check_owner(CALL, to.device())?;
        self.admit(&mut state, CALL, stream)?;
        to.reference().check_range(CALL, offset, bytes)?;
        state.check_range(CALL, Some(stream.id()), from, bytes as u64)?;
        Ok(Self::submit(&mut state, stream, Op::Download { to: to.reference().clone(), offset, from, bytes }))
    }

    fn gather_rows(&self) -> usize {
        GATHER_ROWS
    }

    fn gather(
        &self,
        stream: &SimStream,
        rows: &[GatherRow],
        sources: &[DevicePtr],
    ) -> Result<Option<NodeId>> {
        const CALL: Call = Call::Gather;
        let mut state = self.shared.enter(CALL)?;
        self.admit(&mut state, CALL, stream)?;
        if rows.len() != sources.len() || rows.is_empty() || rows.len() > GATHER_ROWS {
            let problem = Problem::RowCount { rows: rows.len(), sources: sources.len() };
            return Err(DeviceError::invalid(CALL, problem));
        }
        for (row, &source) in rows.iter().zip(sources).filter(|(row, _)| row.bytes > 0) {
            state.check_range(CALL, Some(stream.id()), row.to, row.bytes)?;
            state.check_range(CALL, Some(stream.id()), source, row.bytes)?;
        }
        Ok(Self::submit(&mut state, stream, Op::Gather { rows: rows.into(), sources: sources.to_vec() }))
    }

    fn host_call(&self, stream: &SimStream, call: Box<dyn FnMut() + Send>) -> Result<Option<NodeId>> {
        let mut state = self.shared.enter(Call::HostCall)?;
        self.admit(&mut state, Call::HostCall, stream)?;
        Ok(Self::submit(&mut state, stream, Op::HostCall(Arc::new(Mutex::new(call)))))
    }

    fn annotate(&self, stream: &SimStream, annotation: Annotation) -> Result<()> {
        if !self.shared.config.checker || self.shared.config.null_launch {
            return Ok(());
        }
        // An annotation is no call: it costs nothing on a device that does not check, so it must not change any count.
        let mut state = self.shared.lock();
        let id = self.check_stream(&state, Call::Fill, stream)?;
        let (Annotation::Acquired { at, bytes, .. } | Annotation::Released { at, bytes }) = annotation;
        state.check_range(Call::Fill, Some(id), at, bytes)?;
        match state.capture_of(id) {
            Some(capture) if state.is_valid(capture) => {
                state.add_node(id, Op::Annotate(annotation));
                Ok(())
            }
            Some(_) => Err(DeviceError::capture(Call::Fill, CaptureFailure::Invalidated)),
            None => {
                state.enqueue(id, Item::Op(Op::Annotate(annotation)));
                Ok(())
            }
        }
    }
}
