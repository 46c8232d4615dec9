//! Kernels: closures over typed views of simulated memory.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::{DeviceId, KernelHandle};

use crate::scope::{KernelFault, KernelScope};

pub(crate) type Body = dyn Fn(&KernelScope<'_>) -> Result<(), KernelFault> + Send + Sync;

/// A kernel of the simulated device. Made by [`SimDevice::kernel`](crate::SimDevice::kernel).
#[derive(Clone)]
pub struct SimKernel {
    pub(crate) device: DeviceId,
    pub(crate) name: Arc<str>,
    pub(crate) arguments: Option<usize>,
    pub(crate) body: Arc<Body>,
}

impl SimKernel {
    /// Declares how many arguments the kernel takes, so that a launch with another number is refused.
    #[must_use]
    pub fn with_arguments(mut self, arguments: usize) -> Self {
        self.arguments = Some(arguments);
        self
    }
}

impl KernelHandle for SimKernel {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimKernel").field("name", &self.name).finish_non_exhaustive()
    }
}
