//! Captures on the simulated device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graphgrove_device::{
    Call, Capture, CaptureFailure, CaptureId, CaptureMode, CaptureStatus, DeviceError, DeviceId, GraphAudit,
    Result, StreamHandle,
};

use crate::capture_state::{CaptureState, Membership, exchange_thread_mode};
use crate::device::{Shared, SimDevice};
use crate::program::Program;
use crate::state::Garbage;
use crate::stream::{NULL, SimStream};

/// A graph of the simulated device.
#[derive(Debug)]
pub struct SimGraph {
    device: Arc<Shared>,
    pub(crate) program: Arc<Program>,
    /// How many execs of this graph there are, which matters for a graph that owns memory: there can be one.
    pub(crate) execs: Arc<AtomicUsize>,
}

impl SimGraph {
    pub(crate) fn device(&self) -> DeviceId {
        self.device.id
    }

    pub(crate) fn has_exec(&self) -> bool {
        self.execs.load(Ordering::Relaxed) > 0
    }
}

impl Drop for SimGraph {
    fn drop(&mut self) {
        self.device.destroy(Call::DestroyGraph, |_| {});
    }
}

impl SimDevice {
    /// Closes the capture that was begun on the stream, whatever becomes of it, and says what it held. The closing is told to
    /// whoever waits for it once the lock is gone.
    fn finish_capture(&self, call: Call, stream: &SimStream) -> Result<(CaptureState, Vec<u32>)> {
        let mut state = self.shared.enter(call)?;
        let id = self.check_stream(&state, call, stream)?;
        let Some(capture) = state.capture_of(id) else {
            return Err(DeviceError::capture(call, CaptureFailure::NotCapturing { stream: id }));
        };
        let Some(open) = state.captures.get(&capture) else {
            return Err(DeviceError::capture(call, CaptureFailure::NotCapturing { stream: id }));
        };
        if open.origin != id {
            state.invalidate(capture);
            return Err(DeviceError::capture(call, CaptureFailure::Unmatched));
        }
        let wrong_thread =
            open.valid && open.mode != CaptureMode::Relaxed && open.thread != std::thread::current().id();
        let closed = state.close_capture(capture);
        let failure = if wrong_thread { CaptureFailure::WrongThread } else { CaptureFailure::Invalidated };
        let outcome = match closed {
            Some((capture, frontier)) if capture.valid && !wrong_thread => Ok((capture, frontier)),
            closed => {
                state.garbage.extend(closed.map(|(capture, _)| Garbage::Capture { _capture: capture }));
                Err(DeviceError::capture(call, failure))
            }
        };
        drop(state);
        self.shared.deferred.capture_closed();
        outcome
    }
}

impl Capture for SimDevice {
    type Graph = SimGraph;

    fn begin_capture(&self, stream: &SimStream, mode: CaptureMode) -> Result<CaptureId> {
        const CALL: Call = Call::BeginCapture;
        // The capture has to count as open before it is, and this may wait for destructions that take the lock.
        self.shared.deferred.capture_opens();
        let opened = (|| {
            let mut state = self.shared.enter(CALL)?;
            let id = self.check_stream(&state, CALL, stream)?;
            if id == NULL {
                return Err(DeviceError::capture(CALL, CaptureFailure::Unsupported));
            }
            if state.capture_of(id).is_some() {
                return Err(DeviceError::capture(CALL, CaptureFailure::AlreadyCapturing { stream: id }));
            }
            let capture = CaptureId::new(state.next_id());
            let thread = std::thread::current().id();
            let opened =
                CaptureState { origin: id, mode, thread, nodes: Vec::new(), next_node: 0, valid: true };
            state.captures.insert(capture, opened);
            if let Some(stream) = state.streams.get_mut(&id) {
                stream.capture = Some(Membership { capture, frontier: Vec::new() });
            }
            Ok(capture)
        })();
        if opened.is_err() {
            self.shared.deferred.capture_closed();
        }
        opened
    }

    fn end_capture(&self, stream: &SimStream) -> Result<SimGraph> {
        let (capture, frontier) = self.finish_capture(Call::EndCapture, stream)?;
        if !capture.is_joined(&frontier) {
            return Err(DeviceError::capture(Call::EndCapture, CaptureFailure::Unjoined));
        }
        Ok(SimGraph {
            device: Arc::clone(&self.shared),
            program: Arc::new(Program::new(capture.nodes)),
            execs: Arc::new(AtomicUsize::new(0)),
        })
    }

    fn abort_capture(&self, stream: &SimStream) -> Result<()> {
        match self.finish_capture(Call::AbortCapture, stream) {
            Ok(_) => Ok(()),
            // An invalidated capture is thrown away like any other.
            Err(error) if error.capture_failure() == Some(&CaptureFailure::Invalidated) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn capture_status(&self, stream: &SimStream) -> Result<CaptureStatus> {
        const CALL: Call = Call::CaptureStatus;
        let state = self.shared.enter(CALL)?;
        let id = self.check_stream(&state, CALL, stream)?;
        if stream.is_null() {
            // Unlike every other use of the null stream this leaves the captures as they are.
            let implicit = state.streams.values().any(|stream| stream.blocking && stream.capture.is_some());
            let failure = DeviceError::capture(CALL, CaptureFailure::Implicit);
            return if implicit { Err(failure) } else { Ok(CaptureStatus::None) };
        }
        Ok(match state.capture_of(id) {
            None => CaptureStatus::None,
            Some(capture) if state.is_valid(capture) => CaptureStatus::Active(capture),
            Some(capture) => CaptureStatus::Invalidated(capture),
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.shared.enter_anyway(Call::ExchangeCaptureMode)?;
        Ok(exchange_thread_mode(mode))
    }

    fn audit(&self, graph: &SimGraph) -> Result<GraphAudit> {
        drop(self.shared.enter(Call::Audit)?);
        self.shared.check_owner(Call::Audit, graph.device())?;
        Ok(graph.program.audit())
    }
}
