//! What all handles of one opened device share.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{Call, Deferred, DeviceError, DeviceId, MemoryInfo, Result};

use crate::async_memory::AsyncAllocations;
use crate::capture_table::CaptureTable;
use crate::context::Context;
use crate::gather::GatherKernels;
use crate::known_streams::KnownStreams;
use crate::limits::Limits;
use crate::raw::Raw;
use crate::retire::{Retired, sweep};
use crate::status::{self, Subject};
use crate::symbols::Symbols;

static NEXT_DEVICE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The device whose context this thread was last bound to, so that the fast path need not ask the driver.
    static BOUND: Cell<Option<DeviceId>> = const { Cell::new(None) };
}

/// What all handles of one opened device share. The last handle to go closes the device.
pub(crate) struct Shared {
    pub(crate) id: DeviceId,
    pub(crate) symbols: Symbols,
    pub(crate) limits: Limits,
    pub(crate) deferred: Deferred,
    pub(crate) captures: CaptureTable,
    pub(crate) async_allocations: AsyncAllocations,
    pub(crate) known_streams: KnownStreams,
    pub(crate) gather: OnceLock<GatherKernels>,
    pub(crate) modules: Mutex<Vec<Raw<sys::CUmod_st>>>,
    pub(crate) retired: Mutex<Vec<Retired>>,
    /// The stream for copies that must not meet the caller's streams: non-blocking, never captured.
    pub(crate) service: Raw<sys::CUstream_st>,
    poison: OnceLock<String>,
    next_handle: AtomicU64,
    context: Context,
}

impl Shared {
    /// Wraps a context that is current on this thread.
    pub(crate) fn new(context: Context, symbols: Symbols) -> Result<Arc<Self>> {
        let limits = Limits::read(context.hardware())?;
        let mut service = std::ptr::null_mut();
        // SAFETY: a context is current, and `service` outlives the call.
        let code = unsafe {
            sys::cuStreamCreate(&raw mut service, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32)
        };
        status::check(Call::CreateStream, code)?;
        Ok(Arc::new(Self {
            id: DeviceId::new(NEXT_DEVICE.fetch_add(1, Ordering::Relaxed)),
            symbols,
            limits,
            deferred: Deferred::new(),
            captures: CaptureTable::default(),
            async_allocations: AsyncAllocations::default(),
            known_streams: KnownStreams::default(),
            gather: OnceLock::new(),
            modules: Mutex::default(),
            retired: Mutex::default(),
            service: Raw(service),
            poison: OnceLock::new(),
            next_handle: AtomicU64::new(1),
            context,
        }))
    }

    /// A number that no stream or event of this device has had.
    pub(crate) fn next_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Refuses a poisoned device, and makes its context the calling thread's.
    pub(crate) fn enter(&self) -> Result<()> {
        self.alive()?;
        self.bind()
    }

    /// As [`enter`](Self::enter), but trusts that a thread which was bound once still is: for calls whose stream names
    /// the context by itself, where the driver only wants some context to be current.
    #[inline]
    pub(crate) fn enter_fast(&self) -> Result<()> {
        self.alive()?;
        if BOUND.get() == Some(self.id) { Ok(()) } else { self.bind() }
    }

    #[inline]
    pub(crate) fn alive(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(DeviceError::Fault { cause: cause.clone() }),
        }
    }

    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind()?;
        BOUND.set(Some(self.id));
        Ok(())
    }

    /// Turns an answer of the driver into a result, and remembers a fault for all later calls.
    #[inline]
    pub(crate) fn check(&self, call: Call, code: CUresult, subject: Subject) -> Result<()> {
        if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(self.error(call, code, subject)) }
    }

    /// The error that a code is; a fault is remembered for all later calls.
    #[cold]
    pub(crate) fn error(&self, call: Call, code: CUresult, subject: Subject) -> DeviceError {
        let error = status::error(call, code, subject, || self.memory());
        if let DeviceError::Fault { cause } = &error {
            // The first fault is the one that explains the others.
            let _ = self.poison.set(cause.clone());
        }
        error
    }

    /// What is free now, or zeros where the driver does not say.
    pub(crate) fn memory(&self) -> MemoryInfo {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outputs are places on this stack. Without a current context the call fails and writes nothing.
        let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        match code {
            CUresult::CUDA_SUCCESS => MemoryInfo { free: free as u64, total: total as u64 },
            _ => MemoryInfo { free: 0, total: 0 },
        }
    }

    /// Refuses a handle of another device.
    #[inline]
    pub(crate) fn own(&self, call: Call, owner: DeviceId) -> Result<()> {
        if owner == self.id {
            Ok(())
        } else {
            Err(DeviceError::ForeignHandle { call, owner, device: self.id })
        }
    }

    /// Destroys something as soon as no capture is open on this device, with the context bound and the thread's capture
    /// mode relaxed, so that a capture that somebody else has open is not invalidated either.
    pub(crate) fn destroy(self: &Arc<Self>, destruction: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let shared = Arc::clone(self);
        self.deferred.run(move || {
            if shared.bind().is_ok() {
                let _relaxed = Relaxed::swap();
                destruction(&shared);
            }
        });
    }

    /// Drops what has been retired and is not in use any more.
    pub(crate) fn sweep(self: &Arc<Self>) {
        if !lock(&self.retired).is_empty() {
            self.destroy(|shared| sweep(&shared.retired, false));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.bind().is_err() {
            return;
        }
        let relaxed = Relaxed::swap();
        sweep(&self.retired, true);
        let modules = std::mem::take(&mut *lock(&self.modules));
        for module in modules {
            // SAFETY: the module was loaded by this device and is unloaded once. No handle of a kernel is left, and the
            // driver waits for the work that still runs one (seen on driver 580).
            let _ = unsafe { sys::cuModuleUnload(module.0) };
        }
        // SAFETY: the stream was made by this device and is destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.service.0) };
        drop(relaxed);
        BOUND.set(None);
    }
}

/// Locks a mutex whose data stays right even if a panic crossed it, since every change under it is a single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread's capture mode, relaxed for as long as this lives.
pub(crate) struct Relaxed {
    before: Option<sys::CUstreamCaptureMode>,
}

impl Relaxed {
    pub(crate) fn swap() -> Self {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` outlives the call, which exchanges it.
        let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        Self { before: (code == CUresult::CUDA_SUCCESS).then_some(mode) }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: `mode` outlives the call, which exchanges it. The driver accepted the mode before.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        }
    }
}
