//! Streams.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUstream_flags};
use graphgrove_device::{Call, DeviceError, DeviceId, Problem, RawStream, Result, StreamHandle, StreamId};

use crate::ended_capture::Ended;
use crate::raw::Raw;
use crate::shared::Shared;
use crate::status::Subject;

/// A handle of a stream. The last one to go destroys it, unless it was adopted.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    id: StreamId,
    raw: Raw<sys::CUstream_st>,
    origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Created,
    Adopted,
    Null,
}

impl Stream {
    /// The driver's number for the legacy null stream, beside 0.
    const LEGACY: u64 = 1;

    pub(crate) fn create(shared: &Arc<Shared>, flags: CUstream_flags) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the caller has bound the context, and `raw` outlives the call.
        let code = unsafe { sys::cuStreamCreate(&raw mut raw, flags as u32) };
        shared.check(Call::CreateStream, code, Subject::Nothing)?;
        shared.known_streams.add(raw as u64);
        Ok(Self::wrap(shared, raw, Origin::Created))
    }

    /// The null stream. All of its handles have the same id.
    pub(crate) fn null(shared: &Arc<Shared>) -> Self {
        Self(Arc::new(Inner {
            shared: Arc::clone(shared),
            id: StreamId::new(0),
            raw: Raw(std::ptr::null_mut()),
            origin: Origin::Null,
        }))
    }

    pub(crate) fn adopt(shared: &Arc<Shared>, raw: RawStream) -> Result<Self> {
        if raw.get() <= Self::LEGACY {
            return Ok(Self::null(shared));
        }
        if !shared.known_streams.contains(raw.get()) {
            return Err(DeviceError::invalid(Call::AdoptStream, Problem::UnknownHandle));
        }
        Ok(Self::wrap(shared, raw.get() as sys::CUstream, Origin::Adopted))
    }

    fn wrap(shared: &Arc<Shared>, raw: sys::CUstream, origin: Origin) -> Self {
        let id = StreamId::new(shared.next_handle());
        Self(Arc::new(Inner { shared: Arc::clone(shared), id, raw: Raw(raw), origin }))
    }

    #[inline]
    pub(crate) fn handle(&self) -> sys::CUstream {
        self.0.raw.0
    }

    #[inline]
    pub(crate) fn key(&self) -> StreamId {
        self.0.id
    }
}

impl StreamHandle for Stream {
    fn id(&self) -> StreamId {
        self.0.id
    }

    #[inline]
    fn device(&self) -> DeviceId {
        self.0.shared.id
    }

    fn raw(&self) -> RawStream {
        RawStream::new(self.0.raw.0 as u64)
    }

    fn is_null(&self) -> bool {
        self.0.origin == Origin::Null
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.0.id)
            .field("origin", &self.0.origin)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.origin != Origin::Created {
            return;
        }
        self.shared.known_streams.remove(self.raw.0 as u64);
        if self.shared.captures.begun_on(self.id) && self.shared.bind().is_ok() {
            // Nobody is left who could end it, and destructions would wait for its end for ever.
            drop(Ended::end(&self.shared, self.raw.0));
        }
        let raw = self.raw;
        self.shared.destroy(move |_| {
            // SAFETY: the stream was created for this handle and is destroyed once. Its work still runs (CUDA Driver
            // API, cuStreamDestroy).
            let _ = unsafe { sys::cuStreamDestroy_v2({ raw }.0) };
        });
    }
}
