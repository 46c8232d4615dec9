//! The simulated device keeps the contract, in whatever order its seed chooses to run things.

use std::io::Write;

use graphgrove_device::Result;
use graphgrove_device::contract::{self, Harness, Report, TestKernel};
use graphgrove_sim::{SimBuilder, SimDevice, SimHarness, SimKernel};

/// The simulated device, of which the checker may find nothing wrong with any check: they are correct programs.
struct Checked(SimHarness);

impl Harness for Checked {
    type Device = SimDevice;

    fn open(&self) -> Result<SimDevice> {
        self.0.open()
    }

    fn kernel(&self, device: &SimDevice, kernel: TestKernel) -> Result<SimKernel> {
        self.0.kernel(device, kernel)
    }

    fn unsupported(&self, check: &str) -> Option<String> {
        self.0.unsupported(check)
    }

    fn complaint(&self, device: &SimDevice) -> Option<String> {
        device.verdict().err().map(|findings| findings.to_string())
    }
}

fn run(builder: SimBuilder) -> Report {
    contract::run(&Checked(SimHarness::new(builder)), "")
}

/// Prints past the test harness, which swallows the output of tests that pass: a report also says what was skipped.
fn print(report: &Report) {
    // Who cannot be told by a closed output is told by the assertion.
    let _ = writeln!(std::io::stdout(), "\n{report}");
}

#[test]
fn the_simulated_device_keeps_the_contract() {
    let report = run(SimBuilder::default());
    print(&report);
    assert!(report.is_green());
}

#[test]
fn the_simulated_device_keeps_the_contract_whatever_its_seed() {
    for seed in 1..=8 {
        let report = run(SimBuilder::default().seed(seed));
        assert!(report.is_green(), "seed {seed}:\n{report}");
    }
}

#[test]
fn the_simulated_device_keeps_the_contract_without_its_checker() {
    let report = run(SimBuilder::default().checker(false));
    assert!(report.is_green(), "{report}");
}
