//! The simulated device keeps the contract, in whatever order its seed chooses to run things.

use std::io::Write;

use graphgrove_device::contract::{self, Report};
use graphgrove_sim::{SimBuilder, SimHarness};

fn run(builder: SimBuilder) -> Report {
    contract::run(&SimHarness::new(builder), "")
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
