//! Opening a device, and what only CUDA has.

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use graphgrove_device::{Call, RawStream, Result};

use crate::compile::compile;
use crate::context::Context;
use crate::error::CudaError;
use crate::kernel::Module;
use crate::shared::Shared;
use crate::status::Subject;
use crate::symbols::Symbols;

/// An opened CUDA device. Clones are the same device; it is closed when the last clone and the last handle are gone.
#[derive(Clone)]
pub struct CudaDevice {
    pub(crate) shared: Arc<Shared>,
}

impl CudaDevice {
    /// Opens a device by its number, with its primary context: the one that the CUDA runtime and cudarc use as well, so
    /// that addresses and streams can be exchanged with them.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`](graphgrove_device::DeviceError::NoDevice) without a driver, with one that is older than
    /// CUDA 12.2, and without such a device.
    pub fn open(ordinal: u32) -> Result<Self> {
        Self::with_context(Context::primary(ordinal)?)
    }

    /// Takes a context that somebody else has made into use. Closing the device does not destroy it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    ///
    /// # Safety
    /// `context` is the value of a live `CUcontext`, and stays live until this device and all of its handles are gone.
    pub unsafe fn adopt_context(context: u64) -> Result<Self> {
        // SAFETY: by the promise of this function.
        Self::with_context(unsafe { Context::adopt(context as sys::CUcontext) }?)
    }

    fn with_context(context: Context) -> Result<Self> {
        let shared = Shared::new(context, Symbols::load())?;
        shared.bind()?;
        Ok(Self { shared })
    }

    /// Makes the device's context the calling thread's: needed before the fast path on a thread that has made another
    /// context current since it last used this device.
    ///
    /// # Errors
    /// Only those of every method.
    pub fn bind(&self) -> Result<()> {
        self.shared.enter()
    }

    /// The name of the hardware.
    ///
    /// # Errors
    /// Only those of every method.
    pub fn name(&self) -> Result<String> {
        let mut text = [0_u8; 128];
        // SAFETY: the driver writes at most as many bytes as it is told, the null byte at the end included.
        let code = unsafe {
            sys::cuDeviceGetName(text.as_mut_ptr().cast(), text.len() as i32, self.shared.limits.hardware)
        };
        self.shared.check(Call::MemoryInfo, code, Subject::Nothing)?;
        Ok(CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |it| it.to_string_lossy().into()))
    }

    /// The driver's version as it counts: 13000 is CUDA 13.0.
    ///
    /// # Errors
    /// Only those of every method.
    pub fn driver_version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the output outlives the call.
        let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        self.shared.check(Call::MemoryInfo, code, Subject::Nothing)?;
        Ok(version)
    }

    /// Major and minor compute capability of the hardware.
    #[must_use]
    pub fn compute_capability(&self) -> (u32, u32) {
        self.shared.limits.compute
    }

    /// Whether work on the device reaches host memory that nobody has pinned: then an address that is live host memory is
    /// no fault (CUDA Programming Guide, "Unified Memory Programming").
    #[must_use]
    pub fn reaches_host_memory(&self) -> bool {
        self.shared.limits.pageable_access
    }

    /// Compiles CUDA C++ to PTX for this device with NVRTC, which is loaded at run time. `options` are the compiler's own
    /// (`--use_fast_math` and the like). Kernels declared `extern "C"` keep their names.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`] without the NVRTC library, [`CudaError::Compile`] with the compiler's log.
    pub fn compile(&self, source: &str, options: &[&str]) -> Result<String, CudaError> {
        compile(source, self.shared.limits.compute, options)
    }

    /// Loads PTX onto the device, where it stays until the device is closed. It may be done while a capture is open.
    ///
    /// # Errors
    /// [`CudaError::Code`] for text that the driver does not accept, [`CudaError::Device`] for a poisoned device.
    ///
    /// # Safety
    /// This is the place where the safety of kernels is promised. Whoever loads code vouches for every launch of its
    /// kernels, with whatever arguments: a kernel only touches memory through the addresses in its arguments, within the
    /// live allocations that they point into, and never host memory that is not a [`HostBuffer`](crate::HostBuffer) kept
    /// alive for it. (An address that is not live device memory is a device fault, which the contract allows. Where the device
    /// [reaches host memory](Self::reaches_host_memory), the promise includes that no launch is given a host address.)
    pub unsafe fn load(&self, ptx: &str) -> Result<Module, CudaError> {
        self.shared.enter()?;
        Module::load(&self.shared, ptx)
    }

    /// Lets [`adopt_stream`](graphgrove_device::Streams::adopt_stream) take a stream that other code has made. Streams of
    /// this device can be adopted without.
    ///
    /// # Safety
    /// `raw` is the value of a live `CUstream` of this device's context. It stays alive until it is
    /// [withdrawn](Self::withdraw_stream) and every handle of it is gone: adopted streams, graphs captured on it, and
    /// execs launched on it.
    pub unsafe fn vouch_for_stream(&self, raw: RawStream) {
        self.shared.known_streams.add(raw.get());
    }

    /// Takes one [`vouch_for_stream`](Self::vouch_for_stream) back: the stream cannot be adopted any more.
    pub fn withdraw_stream(&self, raw: RawStream) {
        self.shared.known_streams.remove(raw.get());
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice").field("id", &self.shared.id).finish_non_exhaustive()
    }
}
