//! A gate by instruction count: deciding a replay that matches its prediction costs at most 250 instructions,
//! whatever the depth, the siblings, the functions and the parameters. It needs valgrind and
//! `gungraun-runner`: `cargo bench -p graphgrove-tree --bench decide`.

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]
#![allow(missing_docs, reason = "the macros make items that cannot be documented")]

mod cases;

use cases::Case;
use graphgrove_tree::Call;
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// Moving a case into what is measured, or describing its call there, would be measured with it.
fn kept(case: Case) -> (&'static Case, &'static Call<'static>) {
    let case: &'static Case = Box::leak(Box::new(case));
    (case, Box::leak(Box::new(case.call())))
}

#[library_benchmark]
#[bench::depth_1(kept(cases::at_depth(1)))]
#[bench::depth_1000(kept(cases::at_depth(1000)))]
#[bench::siblings_1(kept(cases::with_siblings(1)))]
#[bench::siblings_1000(kept(cases::with_siblings(1000)))]
#[bench::root_after_1(kept(cases::root_after(1)))]
#[bench::root_after_1000(kept(cases::root_after(1000)))]
#[bench::functions_1(kept(cases::among_functions(1)))]
#[bench::functions_1000(kept(cases::among_functions(1000)))]
#[bench::params_0(kept(cases::with_params(0)))]
#[bench::params_10000(kept(cases::with_params(10_000)))]
fn predicted((case, call): (&'static Case, &'static Call<'static>)) -> bool {
    case.is_replayed(call)
}

#[library_benchmark]
#[bench::siblings_2(kept(cases::with_siblings_alternating(2)))]
#[bench::siblings_1000(kept(cases::with_siblings_alternating(1000)))]
fn looked_up((case, call): (&'static Case, &'static Call<'static>)) -> bool {
    case.is_replayed(call)
}

library_benchmark_group!(name = a_prediction_that_fits, config = at_most(250), benchmarks = predicted);
library_benchmark_group!(name = a_lookup, config = at_most(1300), benchmarks = looked_up);

main!(library_benchmark_groups = a_prediction_that_fits, a_lookup);
