//! The devices that programs are run on.

mod cuda;
mod sim;

use std::sync::Arc;

use graphgrove::{Args, EngineBuilder};
use graphgrove_device::Device;
use graphgrove_sim::{CallCounts, Fault};

use crate::run::task::Task;

pub use cuda::Cuda;
pub(crate) use sim::new as simulated;

/// A device that programs can be run on, with the kernels of their operations, and with what it alone can tell of a run.
///
/// A scenario that needs what a device cannot do does not get here: see
/// [`Capability::is_simulated`](crate::Capability::is_simulated).
pub(crate) trait Ground: Device {
    /// What kernels are taken from.
    type Code: Send + Sync + 'static;

    /// What has to be launched for a task, one kernel after the other.
    ///
    /// # Errors
    /// In words, if the kernels of this device cannot do it.
    fn kernels(code: &Self::Code, task: Task, args: Args) -> Result<Vec<(Self::Kernel, Args)>, String>;

    /// How an engine for scenarios is set up on this device.
    fn set_up(device: &Arc<Self>, builder: EngineBuilder) -> EngineBuilder;

    /// How often the driver was called, where that is counted.
    fn driver_calls(&self) -> Option<CallCounts>;

    /// Lets a call of the driver go wrong, where that can be.
    fn plan_fault(&self, fault: Fault);

    /// Forgets what is still to go wrong.
    fn forget_faults(&self);

    /// What a checking device has found.
    ///
    /// # Errors
    /// In words.
    fn found(&self) -> Result<(), String>;

    /// Whether all memory that was taken of the device has been given back, as far as the device can tell.
    ///
    /// # Errors
    /// What is left, in words.
    fn has_everything_back(&self) -> Result<(), String>;
}
