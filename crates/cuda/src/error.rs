//! What can go wrong when code is made ready for the device.

use graphgrove_device::DeviceError;

/// Why a kernel could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
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
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
