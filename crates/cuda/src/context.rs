//! The CUDA context that a device works in.

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{DeviceError, Result};

use crate::raw::Raw;
use crate::status;
use crate::symbols::{OLDEST_DRIVER, driver_present};

/// A context, released when it goes if it was retained here.
#[derive(Debug)]
pub(crate) struct Context {
    handle: Raw<sys::CUctx_st>,
    hardware: sys::CUdevice,
    retained: bool,
}

impl Context {
    /// Retains the primary context of a device, the one that the CUDA runtime and cudarc use as well.
    pub(crate) fn primary(ordinal: u32) -> Result<Self> {
        initialise()?;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let code = unsafe { sys::cuDeviceGetCount(&raw mut count) };
        expect(code, "the driver does not count its devices")?;
        let number = i32::try_from(ordinal).ok().filter(|&number| number < count).ok_or_else(|| {
            DeviceError::NoDevice { reason: format!("device {ordinal} was asked for, and there are {count}") }
        })?;
        let mut hardware = 0;
        // SAFETY: `hardware` outlives the call.
        let code = unsafe { sys::cuDeviceGet(&raw mut hardware, number) };
        expect(code, "the device cannot be found")?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` outlives the call, and `hardware` is a device of this driver.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut handle, hardware) };
        expect(code, "the primary context cannot be retained")?;
        let context = Self { handle: Raw(handle), hardware, retained: true };
        context.bind()?;
        Ok(context)
    }

    /// Takes a context that somebody else owns into use.
    ///
    /// # Safety
    /// The context is live, and stays so for as long as this value.
    pub(crate) unsafe fn adopt(handle: sys::CUcontext) -> Result<Self> {
        initialise()?;
        let mut context = Self { handle: Raw(handle), hardware: 0, retained: false };
        context.bind()?;
        // SAFETY: a context is current, and the output outlives the call.
        let code = unsafe { sys::cuCtxGetDevice(&raw mut context.hardware) };
        expect(code, "the context names no device")?;
        Ok(context)
    }

    /// The driver's number of the device.
    pub(crate) fn hardware(&self) -> sys::CUdevice {
        self.hardware
    }

    /// Makes the context the calling thread's. The driver is told only where it is another.
    pub(crate) fn bind(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` outlives the call.
        let code = unsafe { sys::cuCtxGetCurrent(&raw mut current) };
        if code == CUresult::CUDA_SUCCESS && current == self.handle.0 {
            return Ok(());
        }
        // SAFETY: the context is retained or, by the promise of `adopt`, live.
        let code = unsafe { sys::cuCtxSetCurrent(self.handle.0) };
        expect(code, "the context cannot be made current")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.retained {
            // SAFETY: it was retained once for this value, and no handle that needs it is left.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.hardware) };
        }
    }
}

/// Finds and initialises the driver.
fn initialise() -> Result<()> {
    if !driver_present() {
        return Err(DeviceError::NoDevice { reason: "there is no CUDA driver library (libcuda)".into() });
    }
    // SAFETY: the library is present; the flags have to be 0.
    let code = unsafe { sys::cuInit(0) };
    expect(code, "the driver cannot be initialised")?;
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    expect(code, "the driver does not say its version")?;
    if version < OLDEST_DRIVER {
        return Err(DeviceError::NoDevice {
            reason: format!(
                "the driver is of CUDA {}.{}, and 12.2 is needed",
                version / 1000,
                version % 1000 / 10
            ),
        });
    }
    Ok(())
}

fn expect(code: CUresult, otherwise: &str) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code if status::is_fault(code) => Err(DeviceError::Fault { cause: status::name(code) }),
        code => Err(DeviceError::NoDevice { reason: format!("{otherwise}: {}", status::name(code)) }),
    }
}
