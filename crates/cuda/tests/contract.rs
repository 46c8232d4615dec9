//! The checks of the device contract on the first CUDA device.
//!
//! Prints a line for each check and last the line `N passed, N failed, N skipped`. Without a GPU every check is skipped,
//! which counts as neither. A part of a check's name as argument runs those alone.

mod support;

use std::process::ExitCode;

use graphgrove_cuda::CudaDevice;
use graphgrove_device::DeviceError;
use graphgrove_device::contract::{Outcome, checks};

use support::{CudaHarness, filter};

fn main() -> ExitCode {
    let Some(filter) = filter() else { return ExitCode::SUCCESS };
    let chosen: Vec<_> = checks().into_iter().filter(|check| check.name.contains(&filter)).collect();
    let kept_open = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(DeviceError::NoDevice { reason }) => {
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
    let harness = CudaHarness { kept_open };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    // Each line is printed when its check has ended, so that the last line of a run that hangs names the check before it.
    for check in chosen {
        match check.run(&harness) {
            Outcome::Passed => {
                passed += 1;
                println!("passed   {}", check.name);
            }
            Outcome::Skipped(reason) => {
                skipped += 1;
                println!("skipped  {}: {reason}", check.name);
            }
            Outcome::Failed(violation) => {
                failed += 1;
                println!("FAILED   {}\n         rule: {}\n         {violation}", check.name, check.rule);
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
