//! What only the CUDA device has, and what the contract's checks cannot see from outside.
//!
//! Prints a line for each test and last the line `N passed, N failed, N skipped`. Without a GPU the tests that need one
//! are skipped, which counts as neither. A part of a test's name as argument runs those alone.
#![allow(clippy::unwrap_used, reason = "these are tests, though the program runs them itself")]

mod device {
    pub(crate) mod adoption;
    pub(crate) mod allocation;
    pub(crate) mod blas;
    pub(crate) mod child;
    pub(crate) mod copies;
    pub(crate) mod faults;
    pub(crate) mod field_reports;
    pub(crate) mod foreign_nodes;
    pub(crate) mod gather;
    pub(crate) mod kernels;
    pub(crate) mod lifetimes;
}
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;

use graphgrove_cuda::CudaDevice;
use graphgrove_device::DeviceError;

use support::filter;

#[global_allocator]
static COUNTING: device::allocation::Counting = device::allocation::Counting;

/// A test that needs a GPU.
type OnGpu = (&'static str, fn(&CudaDevice));

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), device::$module::$name as fn(&CudaDevice)),)*]
    };
}

const ON_GPU: &[OnGpu] = tests![
    adoption::a_stream_that_nobody_vouches_for_is_not_adopted,
    adoption::a_stream_of_other_code_is_adopted_and_outlives_its_handles,
    adoption::memory_of_other_code_is_adopted,
    adoption::a_context_of_other_code_is_adopted,
    allocation::launching_and_patching_allocate_nothing_on_the_host,
    blas::a_product_is_the_hosts_product_in_every_transposition,
    blas::r28_a_captured_product_has_a_workspace_for_as_long_as_its_exec,
    blas::an_allocation_behind_a_product_is_named_by_the_librarys_kernel,
    blas::a_product_of_nothing_or_at_null_is_refused,
    copies::a_copy_recorded_in_one_kind_of_memory_is_patched_to_the_other,
    copies::a_recorded_copy_of_any_length_and_alignment_is_exact,
    copies::a_copy_is_not_patched_to_where_no_memory_is,
    foreign_nodes::nodes_of_other_code_have_ids_behind_the_recorded_ones,
    foreign_nodes::a_kernel_node_of_other_code_is_patched,
    foreign_nodes::an_allocation_of_other_code_is_named_by_what_came_before,
    gather::rows_of_any_length_and_alignment_are_gathered,
    gather::long_rows_are_gathered_by_many_blocks,
    gather::every_number_of_rows_is_gathered_and_patched,
    kernels::arguments_that_a_kernel_does_not_take_are_refused,
    kernels::code_that_is_no_ptx_is_refused_with_the_drivers_words,
    kernels::a_kernel_that_the_code_lacks_is_not_found,
    kernels::source_is_compiled_and_run,
    kernels::source_with_a_mistake_is_refused_with_the_compilers_words,
    lifetimes::a_dropped_exec_still_finishes_and_then_frees_what_it_used,
    lifetimes::a_host_function_is_dropped_after_it_ran_and_not_before,
    lifetimes::a_host_function_lives_as_long_as_its_graph,
    lifetimes::an_update_keeps_what_running_launches_use,
    lifetimes::dropping_a_host_buffer_does_not_wait_for_its_copy,
    lifetimes::patching_and_dropping_a_host_buffer_does_not_wait_for_launches,
    lifetimes::a_drop_does_not_reach_the_driver_while_a_capture_is_open,
    lifetimes::a_fill_of_unknown_memory_is_refused_and_leaves_the_capture_valid,
    lifetimes::a_capture_goes_with_its_stream,
    lifetimes::the_context_goes_with_the_last_handle,
    field_reports::r46_one_thread_records_while_others_allocate_and_others_replay,
    field_reports::r47_a_watchdog_polls_while_another_thread_records,
    field_reports::r48_drops_during_a_recording_neither_break_it_nor_are_recorded,
    field_reports::r49_a_failed_recording_leaves_the_stream_ready_for_the_next,
    field_reports::r56_an_input_of_another_stream_is_waited_for_outside_of_the_recording,
    field_reports::r60_a_graph_that_allocates_is_refused_by_the_audit_and_leaks_nothing,
    field_reports::r61_a_small_upload_is_replayed_after_its_host_memory_was_dropped,
    faults::a_fault_poisons_the_device_and_everything_still_ends,
];

fn main() -> ExitCode {
    if let Some(code) = device::child::child() {
        return code;
    }
    let Some(filter) = filter() else { return ExitCode::SUCCESS };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut report = |name: &str, outcome: Result<(), Option<String>>| match outcome {
        Ok(()) => {
            passed += 1;
            println!("passed   {name}");
        }
        Err(Some(reason)) => {
            skipped += 1;
            println!("skipped  {name}: {reason}");
        }
        Err(None) => {
            failed += 1;
            println!("FAILED   {name}");
        }
    };
    let name = "a_device_that_is_not_there_cannot_be_opened";
    if name.contains(&filter) {
        report(name, catch_unwind(a_device_that_is_not_there_cannot_be_opened).map_err(|_| None));
    }
    let device = CudaDevice::open(0);
    for (name, test) in ON_GPU.iter().filter(|(name, _)| name.contains(&filter)) {
        let outcome = match &device {
            Err(DeviceError::NoDevice { reason }) => Err(Some(reason.clone())),
            Err(error) => {
                println!("the device cannot be opened: {error}");
                Err(None)
            }
            // Each test has a device of its own; the one above keeps the context.
            Ok(_) => catch_unwind(|| test(&CudaDevice::open(0).unwrap())).map_err(|_| None),
        };
        report(name, outcome);
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn a_device_that_is_not_there_cannot_be_opened() {
    for ordinal in [1000, u32::MAX] {
        let error = CudaDevice::open(ordinal).unwrap_err();
        assert!(matches!(error, DeviceError::NoDevice { .. }), "{error}");
    }
}
