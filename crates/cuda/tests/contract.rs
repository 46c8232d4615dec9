//! The checks of the device contract on the first CUDA device.
//!
//! Prints a line for each check and last the line `N passed, N failed, N skipped`. Without a GPU every check is skipped,
//! which counts as neither. A part of a check's name as argument runs those alone.

mod support;

use std::process::ExitCode;

use graphgrove_cuda::CudaDevice;
use graphgrove_device::DeviceError;
use graphgrove_device::contract::{checks, run};

use support::{CudaHarness, filter};

fn main() -> ExitCode {
    let Some(filter) = filter() else { return ExitCode::SUCCESS };
    let kept_open = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(DeviceError::NoDevice { reason }) => {
            let chosen: Vec<_> =
                checks::<CudaHarness>().into_iter().filter(|check| check.name.contains(&filter)).collect();
            for check in &chosen {
                println!("skipped  {}: {reason}", check.name);
            }
            println!("0 passed, 0 failed, {} skipped", chosen.len());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("the device cannot be opened: {error}\n0 passed, 1 failed, 0 skipped");
            return ExitCode::FAILURE;
        }
    };
    let report = run(&CudaHarness { kept_open }, &filter);
    println!("{report}");
    if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
