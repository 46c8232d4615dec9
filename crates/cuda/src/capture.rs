//! Capture of the contract.

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use graphgrove_device::{
    Call, Capture, CaptureFailure, CaptureId, CaptureMode, CaptureStatus, DeviceError, GraphAudit, Result,
    StreamHandle as _,
};

use crate::capture_table::OpenCapture;
use crate::device::CudaDevice;
use crate::graph::{Graph, GraphInner};
use crate::status::Subject;
use crate::stream::Stream;

impl CudaDevice {
    /// Ends the capture on the stream, and gives the driver's answer with the graph and what is known of the capture, if
    /// that is over now.
    fn finish(&self, stream: &Stream) -> (CUresult, sys::CUgraph, OpenCapture) {
        let raw = stream.handle();
        let before = self.shared.symbols.capture_info(raw);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the handle keeps the stream alive, and the output outlives the call.
        let code = unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) };
        let none = |status| status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let known = match before {
            // Some errors end the capture and some do not, so the stream is asked.
            Ok(info) if !none(info.status) => {
                let over = self.shared.symbols.capture_info(raw).is_ok_and(|info| none(info.status));
                over.then(|| self.shared.captures.closed(info.id))
            }
            _ => None,
        };
        let known = known.unwrap_or_default();
        (code, graph, known)
    }

    /// Tells the destructions that were put off that a capture is over, if it is.
    fn settle(&self, capture: &OpenCapture) {
        if capture.origin.is_some() {
            self.shared.deferred.capture_closed();
        }
    }
}

impl Capture for CudaDevice {
    type Graph = Graph;

    fn begin_capture(&self, stream: &Stream, mode: CaptureMode) -> Result<CaptureId> {
        let call = Call::BeginCapture;
        self.enter_on(call, stream)?;
        self.shared.deferred.capture_opens();
        // SAFETY: the handle keeps the stream alive.
        let code = unsafe { sys::cuStreamBeginCapture_v2(stream.handle(), driver_mode(mode)) };
        let begun = self.shared.check(call, code, Subject::Stream(stream.id())).and_then(|()| {
            let info = self.shared.symbols.capture_info(stream.handle());
            info.map_err(|code| {
                let mut graph = std::ptr::null_mut();
                // SAFETY: as above. Without its number the capture cannot be told from others, so it is given up.
                let _ = unsafe { sys::cuStreamEndCapture(stream.handle(), &raw mut graph) };
                destroy(graph);
                self.shared.error(call, code, Subject::Nothing)
            })
        });
        match begun {
            Ok(info) => {
                self.shared.captures.opened(info.id, stream.clone());
                Ok(CaptureId::new(info.id))
            }
            Err(error) => {
                self.shared.deferred.capture_closed();
                Err(error)
            }
        }
    }

    fn end_capture(&self, stream: &Stream) -> Result<Graph> {
        let call = Call::EndCapture;
        self.shared.own(call, stream.device())?;
        // A poisoned device still ends its captures: what they hold back has to go.
        self.shared.bind()?;
        let (code, graph, mut capture) = self.finish(stream);
        self.settle(&capture);
        capture.origin = None;
        let checked = self.shared.check(call, code, Subject::Stream(stream.id()));
        let alive = checked.and_then(|()| self.shared.alive());
        match alive {
            Ok(()) => GraphInner::new(&self.shared, graph, capture).map(|inner| Graph(inner.into())),
            Err(error) => {
                destroy(graph);
                self.discard(capture);
                Err(error)
            }
        }
    }

    fn abort_capture(&self, stream: &Stream) -> Result<()> {
        let call = Call::AbortCapture;
        self.shared.own(call, stream.device())?;
        self.shared.bind()?;
        let (code, graph, mut capture) = self.finish(stream);
        destroy(graph);
        self.settle(&capture);
        capture.origin = None;
        self.discard(capture);
        match self.shared.check(call, code, Subject::Stream(stream.id())) {
            Err(DeviceError::Capture {
                failure: CaptureFailure::Invalidated | CaptureFailure::Unjoined,
                ..
            }) => Ok(()),
            other => other,
        }
    }

    fn capture_status(&self, stream: &Stream) -> Result<CaptureStatus> {
        let call = Call::CaptureStatus;
        self.enter_on(call, stream)?;
        let info = self
            .shared
            .symbols
            .capture_info(stream.handle())
            .map_err(|code| self.shared.error(call, code, Subject::Nothing))?;
        Ok(match info.status {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => CaptureStatus::None,
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => {
                CaptureStatus::Active(CaptureId::new(info.id))
            }
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                CaptureStatus::Invalidated(CaptureId::new(info.id))
            }
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.shared.alive()?;
        let mut exchanged = driver_mode(mode);
        // SAFETY: the value outlives the call, which exchanges it.
        let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut exchanged) };
        self.shared.check(Call::ExchangeCaptureMode, code, Subject::Nothing)?;
        Ok(match exchanged {
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL => CaptureMode::Global,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => CaptureMode::Relaxed,
        })
    }

    fn audit(&self, graph: &Graph) -> Result<GraphAudit> {
        self.shared.own(Call::Audit, graph.0.shared.id)?;
        self.shared.enter()?;
        graph.0.audit()
    }
}

impl CudaDevice {
    /// Drops what a lost capture kept. No launch can use it, since there is no graph.
    fn discard(&self, capture: OpenCapture) {
        if !capture.kept.is_empty() {
            self.shared.destroy(move |_| drop(capture.kept));
        }
    }
}

fn driver_mode(mode: CaptureMode) -> CUstreamCaptureMode {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}

/// Destroys a graph that a capture gave and nobody wants. It is allowed at any time.
fn destroy(graph: sys::CUgraph) {
    if !graph.is_null() {
        // SAFETY: the capture has just given the graph to the caller, who has not passed it on.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
    }
}
