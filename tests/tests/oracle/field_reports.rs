//! The scenes that a GPU plays too, on the simulated device.

use std::sync::Arc;

use graphgrove_sim::SimDevice;
use graphgrove_tests::field_reports;

macro_rules! scenes {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            field_reports::$name(&Arc::new(SimDevice::builder().seed(5).build()));
        })*
    };
}

scenes!(
    r46_many_threads_call_while_one_records,
    r47_a_watchdog_polls_while_the_engine_records,
    r48_handles_die_while_a_function_is_recorded,
    r49_a_recording_that_fails_leaves_a_right_result_and_a_usable_engine,
    r56_an_input_made_on_another_stream_is_waited_for,
    r60_a_function_whose_library_allocates_runs_plainly_and_leaks_nothing,
    r61_host_memory_that_was_uploaded_in_a_recording_is_replayed_after_its_drop,
);
