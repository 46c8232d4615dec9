//! Events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};
use graphgrove_device::{Call, DeviceId, EventHandle, EventId, Result};

use crate::raw::Raw;
use crate::shared::Shared;
use crate::status::Subject;

/// A driver event that is destroyed with its owner, at once. The context has to be bound when it goes.
#[derive(Debug)]
pub(crate) struct OwnedEvent(Raw<sys::CUevent_st>);

impl OwnedEvent {
    /// An event without timing. The context has to be bound.
    pub(crate) fn create() -> Result<Self, CUresult> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        let code =
            unsafe { sys::cuEventCreate(&raw mut raw, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32) };
        if code == CUresult::CUDA_SUCCESS { Ok(Self(Raw(raw))) } else { Err(code) }
    }

    /// An event behind everything that was enqueued on the live stream so far, or `None` if none can be had: on a capturing
    /// stream the event would be captured, and asking it later would break that capture.
    pub(crate) fn behind(shared: &Shared, stream: sys::CUstream) -> Option<Self> {
        let info = shared.symbols.capture_info(stream).ok()?;
        if info.status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return None;
        }
        let event = Self::create().ok()?;
        (event.record(stream) == CUresult::CUDA_SUCCESS).then_some(event)
    }

    pub(crate) fn raw(&self) -> sys::CUevent {
        self.0.0
    }

    /// Records the event on a live stream.
    pub(crate) fn record(&self, stream: sys::CUstream) -> CUresult {
        // SAFETY: the event is live, and the caller's stream too.
        unsafe { sys::cuEventRecord(self.0.0, stream) }
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: the event was made by `create` and is destroyed once. A recording of it that is not reached yet does
        // not need it (CUDA Driver API, cuEventDestroy).
        let _ = unsafe { sys::cuEventDestroy_v2(self.0.0) };
    }
}

/// A handle of an event. The last one to go destroys it.
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    id: EventId,
    event: Option<OwnedEvent>,
    captured: AtomicBool,
}

impl Event {
    pub(crate) fn create(shared: &Arc<Shared>) -> Result<Self> {
        let event =
            OwnedEvent::create().map_err(|code| shared.error(Call::CreateEvent, code, Subject::Nothing))?;
        Ok(Self(Arc::new(Inner {
            shared: Arc::clone(shared),
            id: EventId::new(shared.next_handle()),
            event: Some(event),
            captured: AtomicBool::new(false),
        })))
    }

    pub(crate) fn raw(&self) -> sys::CUevent {
        self.0.event.as_ref().map_or(std::ptr::null_mut(), OwnedEvent::raw)
    }

    /// Remembers whether the last recording was in a capture: the driver forgets it when the capture ends.
    pub(crate) fn set_captured(&self, captured: bool) {
        self.0.captured.store(captured, Ordering::Relaxed);
    }

    /// The event as an error names it.
    pub(crate) fn subject(&self) -> Subject {
        Subject::Event { event: self.0.id, captured: self.0.captured.load(Ordering::Relaxed) }
    }
}

impl EventHandle for Event {
    fn id(&self) -> EventId {
        self.0.id
    }

    fn device(&self) -> DeviceId {
        self.0.shared.id
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let event = self.event.take();
        self.shared.destroy(move |_| drop(event));
    }
}
