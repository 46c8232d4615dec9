//! What can go wrong beside the contract: with code, and with NVIDIA's libraries.

use graphgrove_device::DeviceError;

/// Why a kernel could not be made, or a library could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The compiler library is not there. PTX that was compiled before can be used without it.
    #[error("no compiler: {reason}")]
    NoCompiler {
        /// What was looked for and not found.
        reason: String,
    },
    /// The compiler does not accept the source.
    #[error("the compiler refuses the source: {log}")]
    Compile {
        /// What the compiler says.
        log: String,
    },
    /// The driver does not accept the PTX.
    #[error("the driver refuses the code: {log}")]
    Code {
        /// What the driver's compiler says.
        log: String,
    },
    /// The code has no kernel of that name, or one whose parameters cannot be read.
    #[error("the code has no kernel {name}")]
    NoSuchKernel {
        /// The name asked for.
        name: String,
    },
    /// A library of NVIDIA's is not there.
    #[error("there is no {library} library")]
    NoLibrary {
        /// The name of the library.
        library: &'static str,
    },
    /// A library of NVIDIA's has failed.
    #[error("{library} says {status}")]
    Library {
        /// The name of the library.
        library: &'static str,
        /// The library's name for the error.
        status: String,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
