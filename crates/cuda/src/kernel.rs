//! Kernels, and the modules that hold them.

use std::ffi::{CString, c_void};
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{Args, Call, DeviceError, DeviceId, KernelHandle, Problem, Result};
use smallvec::SmallVec;

use crate::error::CudaError;
use crate::ptx::entry_parameters;
use crate::raw::Raw;
use crate::shared::{Shared, lock};
use crate::status::Subject;

/// Code that was loaded onto a device. It stays loaded until the device is closed, so that no launch can outlive it.
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

struct ModuleInner {
    shared: Arc<Shared>,
    handle: Raw<sys::CUmod_st>,
    ptx: String,
}

impl Module {
    /// Loads PTX. The context has to be bound.
    pub(crate) fn load(shared: &Arc<Shared>, ptx: &str) -> Result<Self, CudaError> {
        const LOG: usize = 4096;
        let text =
            CString::new(ptx).map_err(|_| CudaError::Code { log: "a null byte in the text".into() })?;
        let mut log = vec![0_u8; LOG];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG)];
        let mut handle = std::ptr::null_mut();
        // SAFETY: the text ends in a null byte, there are as many options as values, and all of them outlive the call.
        let code = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut handle,
                text.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code != CUresult::CUDA_SUCCESS {
            let said: Vec<u8> = log.into_iter().take_while(|&byte| byte != 0).collect();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            return Err(match shared.error(Call::Launch, code, Subject::Nothing) {
                DeviceError::Driver { name, .. } if said.is_empty() => CudaError::Code { log: name },
                DeviceError::Driver { .. } => CudaError::Code { log: said },
                error => error.into(),
            });
        }
        lock(&shared.modules).push(Raw(handle));
        let inner = ModuleInner { shared: Arc::clone(shared), handle: Raw(handle), ptx: ptx.to_owned() };
        Ok(Self(Arc::new(inner)))
    }

    /// A kernel of this module by the name of its entry.
    ///
    /// # Errors
    /// [`CudaError::NoSuchKernel`], and [`CudaError::Device`] for a poisoned device.
    pub fn kernel(&self, name: &str) -> Result<Kernel, CudaError> {
        let ModuleInner { shared, handle, ptx } = &*self.0;
        shared.enter()?;
        let missing = || CudaError::NoSuchKernel { name: name.to_owned() };
        let entry = CString::new(name).map_err(|_| missing())?;
        let parameters = entry_parameters(ptx, name).ok_or_else(missing)?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in a null byte, and the output outlives the call.
        let code = unsafe { sys::cuModuleGetFunction(&raw mut function, handle.0, entry.as_ptr()) };
        if code == CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(missing());
        }
        shared.check(Call::Launch, code, Subject::Nothing)?;
        Ok(Kernel(Arc::new(Inner {
            shared: Arc::clone(shared),
            name: name.to_owned(),
            function: Raw(function),
            parameters,
        })))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("bytes", &self.0.ptx.len()).finish_non_exhaustive()
    }
}

/// A kernel of a loaded module.
#[derive(Clone)]
pub struct Kernel(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    name: String,
    function: Raw<sys::CUfunc_st>,
    parameters: Vec<u32>,
}

impl Kernel {
    pub(crate) fn function(&self) -> sys::CUfunction {
        self.0.function.0
    }

    /// Refuses arguments that the kernel does not take: the driver would read past them.
    pub(crate) fn check_arguments(&self, call: Call, args: &Args) -> Result<()> {
        let (expected, given) = (self.0.parameters.len(), args.fields().len());
        if expected != given {
            return Err(DeviceError::invalid(call, Problem::ArgumentCount { expected, given }));
        }
        if args.fields().iter().zip(&self.0.parameters).any(|(field, &bytes)| field.bytes != bytes) {
            return Err(DeviceError::invalid(call, Problem::ArgumentLayout));
        }
        Ok(())
    }
}

impl KernelHandle for Kernel {
    fn device(&self) -> DeviceId {
        self.0.shared.id
    }

    fn name(&self) -> &str {
        &self.0.name
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// The addresses of the arguments, as the driver wants them.
///
/// They point into the words of `args` and are good for as long as those.
pub(crate) fn argument_pointers(args: &Args) -> SmallVec<[*mut c_void; 16]> {
    let words = args.words();
    let place = |offset: u32| words.as_ptr().wrapping_byte_add(offset as usize).cast_mut().cast();
    args.fields().iter().map(|field| place(field.offset)).collect()
}

#[cfg(test)]
mod tests {
    use graphgrove_device::DevicePtr;

    use super::*;

    #[test]
    fn argument_pointers_find_each_argument_in_its_words() {
        let args = Args::new().read(DevicePtr::new(0x100)).blob(&[7; 12]).scalar(5_u32);
        let pointers = argument_pointers(&args);
        assert_eq!(pointers.len(), 3);
        // SAFETY: the pointer is that of the last argument, four bytes inside of `args`.
        assert_eq!(unsafe { pointers[2].cast::<u32>().read() }, 5);
        // SAFETY: the pointer is that of the second argument, twelve bytes inside of `args`.
        assert_eq!(unsafe { pointers[1].cast::<[u8; 12]>().read() }, [7; 12]);
    }
}
