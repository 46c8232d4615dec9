//! What the tests on a GPU share: the kernels, the harness of the contract, and a runner that counts skipped tests.

use graphgrove_cuda::{CudaDevice, CudaError, Kernel};
use graphgrove_device::contract::{Harness, TestKernel};
use graphgrove_device::{Call, DeviceError, Result};

/// The test kernels, made from `kernels.cu` beside this file.
pub(crate) const PTX: &str = include_str!("kernels.ptx");

/// A test kernel by the name of its entry.
pub(crate) fn kernel(device: &CudaDevice, name: &str) -> Result<Kernel> {
    // SAFETY: each kernel touches only what its pointer arguments point to, as many elements as it is told, save for
    // `wild`, which is launched to see a device fault.
    let module = unsafe { device.load(PTX) };
    module.and_then(|module| module.kernel(name)).map_err(|error| match error {
        CudaError::Device(error) => error,
        other => DeviceError::Driver { call: Call::Launch, code: 0, name: other.to_string() },
    })
}

/// Opens the first CUDA device for each check.
#[allow(dead_code, reason = "only one of the test programs runs the contract's checks")]
pub(crate) struct CudaHarness {
    /// Keeps the primary context alive between the checks, since making one takes a good part of a second.
    pub(crate) kept_open: CudaDevice,
}

impl Harness for CudaHarness {
    type Device = CudaDevice;

    fn open(&self) -> Result<CudaDevice> {
        CudaDevice::open(0)
    }

    fn kernel(&self, device: &CudaDevice, wanted: TestKernel) -> Result<Kernel> {
        let name = match wanted {
            TestKernel::Empty => "empty",
            TestKernel::Store => "store",
            TestKernel::Add => "add",
            TestKernel::Copy => "copy",
            TestKernel::Axpy => "axpy",
            TestKernel::SlowAdd => "slow_add",
        };
        kernel(device, name)
    }

    fn unsupported(&self, _check: &str) -> Option<String> {
        None
    }
}

/// The filter that `cargo test` was given, or `None` if the program is only to list its tests, which it does not.
pub(crate) fn filter() -> Option<String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return None;
    }
    Some(arguments.into_iter().find(|argument| !argument.starts_with('-')).unwrap_or_default())
}
