//! The engine on the first CUDA device: random programs beside the oracle, and scenes from reports of real programs.
//!
//! Prints a line for each test and last the line `N passed, N failed, N skipped`. Without a GPU the tests are skipped, which counts
//! as neither. A part of a test's name as argument runs those alone; `PROPTEST_CASES` says how many random programs run.
#![allow(clippy::unwrap_used, reason = "these are tests, though the program runs them itself")]

mod on_cuda {
    pub(crate) mod libraries;
    pub(crate) mod programs;
}

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use graphgrove_cuda::CudaDevice;
use graphgrove_device::DeviceError;
use graphgrove_tests::field_reports;

use on_cuda::{libraries, programs};

/// A test, which has a device of its own.
type OnGpu = (&'static str, fn(&Arc<CudaDevice>));

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn(&Arc<CudaDevice>)),)*]
    };
}

const TESTS: &[OnGpu] = tests![
    libraries::r28_a_library_workspace_does_not_grow_the_pool,
    libraries::r38_the_drivers_own_memory_is_what_execs_report,
    field_reports::r46_many_threads_call_while_one_records,
    field_reports::r47_a_watchdog_polls_while_the_engine_records,
    field_reports::r48_handles_die_while_a_function_is_recorded,
    field_reports::r49_a_recording_that_fails_leaves_a_right_result_and_a_usable_engine,
    field_reports::r56_an_input_made_on_another_stream_is_waited_for,
    field_reports::r60_a_function_whose_library_allocates_runs_plainly_and_leaks_nothing,
    field_reports::r61_host_memory_that_was_uploaded_in_a_recording_is_replayed_after_its_drop,
    programs::every_value_is_the_models_under_every_mode_and_every_prefix_of_the_layers,
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = arguments.into_iter().find(|argument| !argument.starts_with('-')).unwrap_or_default();
    // It keeps the context open between the tests, each of which has devices of its own.
    let device = CudaDevice::open(0);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&filter)) {
        match &device {
            Err(DeviceError::NoDevice { reason }) => {
                skipped += 1;
                println!("skipped  {name}: {reason}");
            }
            Err(error) => {
                failed += 1;
                println!("FAILED   {name}: the device cannot be opened: {error}");
            }
            Ok(_) => {
                let start = Instant::now();
                if catch_unwind(|| test(&Arc::new(CudaDevice::open(0).unwrap()))).is_ok() {
                    passed += 1;
                    println!("passed   {name} ({:.1} s)", start.elapsed().as_secs_f64());
                } else {
                    failed += 1;
                    println!("FAILED   {name}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
