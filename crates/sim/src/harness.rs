//! The simulated device, ready to be checked against the contract.

use graphgrove_device::Result;
use graphgrove_device::contract::{Harness, TestKernel};

use crate::kernel::SimKernel;
use crate::{KernelFault, KernelScope, SimBuilder, SimDevice, kernels};

/// Opens simulated devices for [`graphgrove_device::contract`].
#[derive(Debug, Clone, Default)]
pub struct SimHarness {
    builder: SimBuilder,
}

impl SimHarness {
    /// Every check runs on a device that this builder makes.
    #[must_use]
    pub fn new(builder: SimBuilder) -> Self {
        Self { builder }
    }
}

fn add(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (n, value) = (scope.scalar::<u32>(1)? as usize, scope.scalar::<u32>(2)?);
    let p = scope.read_write::<u32>(0, n)?;
    for i in 0..n {
        p.set(i, p.get(i).wrapping_add(value));
    }
    Ok(())
}

impl Harness for SimHarness {
    type Device = SimDevice;

    fn open(&self) -> Result<SimDevice> {
        Ok(self.builder.clone().build())
    }

    fn kernel(&self, device: &SimDevice, kernel: TestKernel) -> Result<SimKernel> {
        Ok(match kernel {
            TestKernel::Empty => device.kernel("empty", |_| Ok(())).with_arguments(0),
            TestKernel::Store => kernels::fill::<u32>(device),
            TestKernel::Add => device.kernel("add", add).with_arguments(3),
            TestKernel::Copy => kernels::copy::<u32>(device),
            TestKernel::Axpy => kernels::axpy(device),
            // Simulated work takes no time: what it may overlap with is chosen from the seed instead.
            TestKernel::SlowAdd => device.kernel("slow add", add).with_arguments(4),
        })
    }

    fn unsupported(&self, _check: &str) -> Option<String> {
        None
    }
}
