//! Pinned host memory.

use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};
use graphgrove_device::{
    Call, DeviceError, DeviceId, HostMemory, Problem, Result, StreamHandle as _, StreamId,
};

use crate::event::OwnedEvent;
use crate::raw::Raw;
use crate::retire::{Retired, keep_for_good};
use crate::segment::zero_bytes;
use crate::shared::{Shared, lock};
use crate::status::Subject;
use crate::stream::Stream;

/// Pinned pages, given back when they go. The context has to be bound then, and nothing may use them any more.
pub(crate) struct HostPages {
    at: Raw<u8>,
    bytes: usize,
    access: Mutex<()>,
}

impl HostPages {
    /// The address of a byte inside of the pages.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.at.0.wrapping_add(offset)
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the pages were allocated for this value and are freed once.
        let _ = unsafe { sys::cuMemFreeHost(self.at.0.cast()) };
    }
}

/// Pinned host memory, shared by its clones, kept alive by enqueued copies and by graphs.
#[derive(Clone)]
pub struct HostBuffer(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    pages: Option<Arc<HostPages>>,
    bytes: usize,
    /// On each stream, the last work that used the pages: copies outside of a capture, and launches of execs that have let
    /// go of them since.
    uses: Mutex<Vec<(StreamId, OwnedEvent)>>,
}

impl HostBuffer {
    pub(crate) fn allocate(shared: &Arc<Shared>, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(zero_bytes(shared, Call::AllocateHost));
        }
        let mut at = std::ptr::null_mut();
        // SAFETY: the caller has bound the context, and `at` outlives the call.
        let code = unsafe { sys::cuMemHostAlloc(&raw mut at, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        shared.check(Call::AllocateHost, code, Subject::Bytes(bytes as u64))?;
        let pages = HostPages { at: Raw(at.cast()), bytes, access: Mutex::default() };
        // SAFETY: the driver allocated `bytes` at this address, and nobody else knows it yet.
        unsafe { pages.at(0).write_bytes(0, bytes) };
        Ok(Self(Arc::new(Inner {
            shared: Arc::clone(shared),
            pages: Some(Arc::new(pages)),
            bytes,
            uses: Mutex::default(),
        })))
    }

    /// Refuses a range past the end.
    pub(crate) fn check_range(&self, call: Call, offset: usize, bytes: usize) -> Result<()> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.0.bytes => Ok(()),
            _ => Err(DeviceError::invalid(
                call,
                Problem::OutOfRange {
                    offset: offset as u64,
                    bytes: bytes as u64,
                    length: self.0.bytes as u64,
                },
            )),
        }
    }

    pub(crate) fn pages(&self) -> Option<&Arc<HostPages>> {
        self.0.pages.as_ref()
    }

    /// Notes that a copy which has just been enqueued on the stream uses the pages.
    pub(crate) fn mark_use(&self, call: Call, stream: &Stream) -> Result<()> {
        self.record_use(stream).map_err(|code| {
            // Nothing can say when the copy is over, so the pages stay for good.
            keep_for_good(self.0.pages.clone());
            self.0.shared.error(call, code, Subject::Nothing)
        })
    }

    /// Notes that work which has been enqueued on the stream may use the pages, and says whether that could be noted: on a
    /// capturing stream the event would be captured.
    pub(crate) fn try_mark_use(&self, stream: &Stream) -> bool {
        let info = self.0.shared.symbols.capture_info(stream.handle());
        info.is_ok_and(|info| info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
            && self.record_use(stream).is_ok()
    }

    /// Drops this handle without giving pages back, which may wait for the device: if it was the last one, that is left to
    /// a call that may take its time.
    pub(crate) fn drop_later(self) {
        if let Some(mut inner) = Arc::into_inner(self.0)
            && let Some(retired) = inner.retire()
        {
            lock(&inner.shared.retired).push(retired);
        }
    }

    fn record_use(&self, stream: &Stream) -> Result<(), CUresult> {
        let mut uses = lock(&self.0.uses);
        let code = match uses.iter().find(|(id, _)| *id == stream.id()) {
            Some((_, event)) => event.record(stream.handle()),
            None => {
                let event = OwnedEvent::create()?;
                let code = event.record(stream.handle());
                uses.push((stream.id(), event));
                code
            }
        };
        if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code) }
    }

    /// Runs `copy` with the address of a byte, while no other thread copies from or to the buffer.
    fn with_bytes(&self, offset: usize, copy: impl FnOnce(*mut u8)) {
        if let Some(pages) = self.pages() {
            let _access = lock(&pages.access);
            copy(pages.at(offset));
        }
    }
}

impl HostMemory for HostBuffer {
    fn device(&self) -> DeviceId {
        self.0.shared.id
    }

    fn bytes(&self) -> usize {
        self.0.bytes
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.check_range(Call::Write, offset, data.len())?;
        self.with_bytes(offset, |at| {
            // SAFETY: the range is inside of the pages, `data` is not, since the pages are reached by nobody else, and
            // the lock keeps other threads of this program out.
            unsafe { at.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        });
        Ok(())
    }

    fn read(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.check_range(Call::Read, offset, data.len())?;
        self.with_bytes(offset, |at| {
            // SAFETY: as for `write`.
            unsafe { data.as_mut_ptr().copy_from_nonoverlapping(at, data.len()) };
        });
        Ok(())
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for HostPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPages").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Inner {
    /// The pages with the events behind which they may go, unless they have been taken before.
    fn retire(&mut self) -> Option<Retired> {
        let pages = self.pages.take()?;
        let events = std::mem::take(&mut *lock(&self.uses)).into_iter().map(|(_, event)| event).collect();
        Some(Retired::new(Arc::new(vec![pages]), events))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(retired) = self.retire() else { return };
        self.shared.destroy(move |shared| {
            lock(&shared.retired).push(retired);
            crate::retire::sweep(&shared.retired, false);
        });
    }
}
