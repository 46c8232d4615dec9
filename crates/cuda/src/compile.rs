//! Compiling CUDA C++ at run time.

use std::sync::OnceLock;

use cudarc::nvrtc::{self, CompileError, CompileOptions};

use crate::error::CudaError;

/// Compiles CUDA C++ to PTX for the given compute capability, with further options of the compiler (`--use_fast_math` and
/// the like; NVRTC documentation, "Supported Compile Options").
///
/// Kernels are found by name afterwards if they are declared `extern "C"`.
///
/// # Errors
/// [`CudaError::NoCompiler`] without the NVRTC library, [`CudaError::Compile`] with the compiler's log.
pub(crate) fn compile(source: &str, compute: (u32, u32), options: &[&str]) -> Result<String, CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loading the library runs its initialisers only, which have no preconditions.
    if !*PRESENT.get_or_init(|| unsafe { nvrtc::sys::is_culib_present() }) {
        return Err(CudaError::NoCompiler { reason: "there is no NVRTC library (libnvrtc)".into() });
    }
    if source.contains('\0') {
        return Err(CudaError::Compile { log: "a null byte in the source".into() });
    }
    let mut all = vec![format!("--gpu-architecture=compute_{}{}", compute.0, compute.1)];
    all.extend(options.iter().map(|&option| option.replace('\0', "")));
    let options = CompileOptions { options: all, ..CompileOptions::default() };
    match nvrtc::compile_ptx_with_opts(source, options) {
        Ok(ptx) => Ok(ptx.to_src()),
        Err(CompileError::CompileError { log, .. }) => {
            Err(CudaError::Compile { log: log.to_string_lossy().trim().to_owned() })
        }
        Err(error) => Err(CudaError::Compile { log: error.to_string() }),
    }
}
