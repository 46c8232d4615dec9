//! Random programs on a GPU beside the oracle.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use graphgrove_cuda::CudaDevice;
use graphgrove_tests::rig;
use graphgrove_tests::setup::Setup;
use graphgrove_tests::strategy::{cases, program};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRng, TestRunner};

pub(crate) fn every_value_is_the_models_under_every_mode_and_every_prefix_of_the_layers(
    _device: &Arc<CudaDevice>,
) {
    // Each run has a device of its own. A failure is repeated often to find a small program, and each takes a good part of a second here.
    let config =
        Config { cases: cases(300), failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    let algorithm = config.rng_algorithm;
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(algorithm));
    let (programs, runs, values) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(0_u64));
    let ran = runner.run(&program(), |program| {
        programs.set(programs.get() + 1);
        for setup in Setup::all() {
            let run = || rig::check_on(&Arc::new(CudaDevice::open(0).unwrap()), &program, setup);
            let compared = catch_unwind(AssertUnwindSafe(run))
                .map_err(|_| TestCaseError::fail(format!("{setup:?}: the panic above")))?;
            runs.set(runs.get() + 1);
            values.set(values.get() + compared);
        }
        Ok(())
    });
    println!(
        "         {} programs, {} runs, {} values of handles compared",
        programs.get(),
        runs.get(),
        values.get()
    );
    match ran {
        Ok(()) => {}
        Err(TestError::Fail(reason, program)) => panic!("{reason}\n{program:#?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
