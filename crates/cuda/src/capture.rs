//! Capture of the contract.

use cudarc::driver::sys::{self, CUstreamCaptureMode, CUstreamCaptureStatus};
use graphgrove_device::{
    Call, Capture, CaptureFailure, CaptureId, CaptureMode, CaptureStatus, DeviceError, GraphAudit, Result,
    StreamHandle as _,
};

use crate::device::CudaDevice;
use crate::ended_capture::Ended;
use crate::graph::Graph;
use crate::status::Subject;
use crate::stream::Stream;

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
                // Without its number the capture cannot be told from others, so it is given up.
                drop(Ended::end(&self.shared, stream.handle()));
                self.shared.error(call, code, Subject::Nothing)
            })
        });
        match begun {
            Ok(info) => {
                self.shared.captures.opened(info.id, stream);
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
        let (code, ended) = Ended::end(&self.shared, stream.handle());
        self.shared.check(call, code, Subject::Stream(stream.id()))?;
        self.shared.alive()?;
        ended.into_graph().map(|inner| Graph(inner.into()))
    }

    fn abort_capture(&self, stream: &Stream) -> Result<()> {
        let call = Call::AbortCapture;
        self.shared.own(call, stream.device())?;
        self.shared.bind()?;
        let (code, ended) = Ended::end(&self.shared, stream.handle());
        drop(ended);
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
                let id = self.shared.captures.of_member(stream.handle()).unwrap_or(info.id);
                CaptureStatus::Invalidated(CaptureId::new(id))
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

fn driver_mode(mode: CaptureMode) -> CUstreamCaptureMode {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}
