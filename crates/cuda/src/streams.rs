//! Streams and events of the contract.

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};
use graphgrove_device::{
    Call, Capabilities, DeviceId, EventHandle as _, Progress, RawStream, Result, StreamHandle as _, Streams,
};

use crate::device::CudaDevice;
use crate::event::Event;
use crate::status::Subject;
use crate::stream::Stream;

impl CudaDevice {
    /// Refuses a foreign stream, and binds the context: for the null stream by asking the driver, since that stream
    /// belongs to whatever context is current.
    #[inline]
    pub(crate) fn enter_on(&self, call: Call, stream: &Stream) -> Result<()> {
        self.shared.own(call, stream.device())?;
        if stream.handle().is_null() { self.shared.enter() } else { self.shared.enter_fast() }
    }

    /// The capture that a stream is part of, if captures are open and it is valid.
    fn active_capture(&self, stream: &Stream) -> Option<u64> {
        if self.shared.captures.none_open() {
            return None;
        }
        let info = self.shared.symbols.capture_info(stream.handle()).ok()?;
        (info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE).then_some(info.id)
    }

    fn progress(&self, call: Call, code: CUresult, subject: Subject) -> Result<Progress> {
        match code {
            CUresult::CUDA_ERROR_NOT_READY => Ok(Progress::Pending),
            code => self.shared.check(call, code, subject).map(|()| Progress::Done),
        }
    }
}

impl Streams for CudaDevice {
    type Stream = Stream;
    type Event = Event;

    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn capabilities(&self) -> Capabilities {
        let limits = &self.shared.limits;
        let mut capabilities = Capabilities::HOST_CALLS | Capabilities::EXEC_BYTES;
        capabilities.set(Capabilities::RESERVE_MAP, limits.granularity > 0);
        capabilities.set(Capabilities::STREAM_ORDERED_ALLOCATION, limits.async_allocation);
        capabilities
    }

    fn null_stream(&self) -> Stream {
        Stream::null(&self.shared)
    }

    fn create_stream(&self) -> Result<Stream> {
        self.shared.enter()?;
        Stream::create(&self.shared, sys::CUstream_flags::CU_STREAM_NON_BLOCKING)
    }

    fn create_blocking_stream(&self) -> Result<Stream> {
        self.shared.enter()?;
        Stream::create(&self.shared, sys::CUstream_flags::CU_STREAM_DEFAULT)
    }

    fn adopt_stream(&self, raw: RawStream) -> Result<Stream> {
        self.shared.alive()?;
        Stream::adopt(&self.shared, raw)
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.enter()?;
        // SAFETY: the call takes nothing, and the context is bound.
        let code = unsafe { sys::cuCtxSynchronize() };
        self.shared.check(Call::SynchronizeDevice, code, Subject::Nothing)?;
        self.shared.sweep();
        Ok(())
    }

    fn synchronize_stream(&self, stream: &Stream) -> Result<()> {
        let call = Call::SynchronizeStream;
        self.enter_on(call, stream)?;
        // SAFETY: the handle keeps the stream alive.
        let code = unsafe { sys::cuStreamSynchronize(stream.handle()) };
        self.shared.check(call, code, Subject::Nothing)
    }

    fn query_stream(&self, stream: &Stream) -> Result<Progress> {
        let call = Call::QueryStream;
        self.enter_on(call, stream)?;
        // SAFETY: the handle keeps the stream alive.
        let code = unsafe { sys::cuStreamQuery(stream.handle()) };
        self.progress(call, code, Subject::Nothing)
    }

    fn create_event(&self) -> Result<Event> {
        self.shared.enter()?;
        Event::create(&self.shared)
    }

    fn record_event(&self, event: &Event, stream: &Stream) -> Result<()> {
        let call = Call::RecordEvent;
        self.shared.own(call, event.device())?;
        self.enter_on(call, stream)?;
        // SAFETY: the handles keep event and stream alive.
        let code = unsafe { sys::cuEventRecord(event.raw(), stream.handle()) };
        self.shared.check(call, code, event.subject())?;
        let captured = !self.shared.captures.none_open()
            && self
                .shared
                .symbols
                .capture_info(stream.handle())
                .is_ok_and(|info| info.status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        event.set_captured(captured);
        Ok(())
    }

    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        let call = Call::WaitEvent;
        self.shared.own(call, event.device())?;
        self.enter_on(call, stream)?;
        // SAFETY: the handles keep event and stream alive.
        let code = unsafe { sys::cuStreamWaitEvent(stream.handle(), event.raw(), 0) };
        self.shared.check(call, code, event.subject())?;
        if let Some(capture) = self.active_capture(stream) {
            self.shared.captures.lock().joined(capture, stream.handle());
        }
        Ok(())
    }

    fn query_event(&self, event: &Event) -> Result<Progress> {
        let call = Call::QueryEvent;
        self.shared.own(call, event.device())?;
        self.shared.enter()?;
        // SAFETY: the handle keeps the event alive.
        let code = unsafe { sys::cuEventQuery(event.raw()) };
        self.progress(call, code, event.subject())
    }

    fn synchronize_event(&self, event: &Event) -> Result<()> {
        let call = Call::SynchronizeEvent;
        self.shared.own(call, event.device())?;
        self.shared.enter()?;
        // SAFETY: the handle keeps the event alive.
        let code = unsafe { sys::cuEventSynchronize(event.raw()) };
        self.shared.check(call, code, event.subject())
    }
}
