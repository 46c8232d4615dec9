//! A gate by instruction count on a replay, the device's null launch included. It needs valgrind and `gungraun-runner`:
//! `cargo bench -p graphgrove-replay --bench instructions`.
//!
//! Each limit is 3% above what was counted, so what grows by more is red.

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]
#![allow(missing_docs, reason = "the macros make items that cannot be documented")]

mod cases;

use cases::{Bare, Case, PLAIN, Shape, leak};
use graphgrove_replay::{Method, Replayed};
use graphgrove_storage::Tensor;
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

/// Where a call's outputs go, since letting go of them is measured by itself.
type Kept = &'static mut Option<Replayed>;

fn kept(shape: Shape) -> (&'static mut Case, Kept) {
    (Case::new(shape), leak(None))
}

#[library_benchmark]
#[bench::outputs_1(args = [kept(PLAIN)], config = at_most(455))]
#[bench::outputs_320(args = [kept(Shape { outputs: 320, ..PLAIN })], config = at_most(500))]
#[bench::staged_1(args = [kept(Shape { staged: 1, ..PLAIN })], config = at_most(475))]
#[bench::staged_8(args = [kept(Shape { staged: 8, ..PLAIN })], config = at_most(569))]
#[bench::staged_32(args = [kept(Shape { staged: 32, ..PLAIN })], config = at_most(890))]
#[bench::staged_128(args = [kept(Shape { staged: 128, ..PLAIN })], config = at_most(2176))]
#[bench::staged_32_changed(args = [kept(Shape { staged: 32, moving: true, ..PLAIN })], config = at_most(5300))]
#[bench::managed_1(args = [kept(Shape { depth: 1, managed: 1, ..PLAIN })], config = at_most(584))]
#[bench::managed_4(args = [kept(Shape { depth: 1, managed: 4, ..PLAIN })], config = at_most(732))]
#[bench::managed_1_viewed(args = [kept(Shape { depth: 1, managed: 1, viewed: true, ..PLAIN })], config = at_most(672))]
#[bench::managed_1_dies(args = [kept(Shape { depth: 1, managed: 1, dying: true, ..PLAIN })], config = at_most(946))]
#[bench::params_0(args = [kept(Shape { params: 0, ..PLAIN })], config = at_most(455))]
#[bench::params_10000(args = [kept(Shape { params: 10_000, ..PLAIN })], config = at_most(455))]
#[bench::depth_1(args = [kept(Shape { depth: 1, ..PLAIN })], config = at_most(466))]
#[bench::depth_100(args = [kept(Shape { depth: 100, ..PLAIN })], config = at_most(466))]
#[bench::siblings_1(args = [kept(Shape { depth: 1, siblings: 1, ..PLAIN })], config = at_most(466))]
#[bench::siblings_1000(args = [kept(Shape { depth: 1, siblings: 1000, ..PLAIN })], config = at_most(466))]
#[bench::dead_1024(args = [kept(Shape { depth: 1, dead: 1024, ..PLAIN })], config = at_most(1139))]
fn bulk((case, out): (&'static mut Case, Kept)) {
    *out = case.replay();
}

#[library_benchmark]
#[bench::outputs_1(args = [Case::new(PLAIN)], config = at_most(560))]
#[bench::outputs_320(args = [Case::new(Shape { outputs: 320, ..PLAIN })], config = at_most(782))]
fn bulk_and_drop(case: &'static mut Case) {
    drop(case.replay());
}

type Taken = &'static mut Vec<Option<Tensor>>;

fn taken(shape: Shape) -> (&'static mut Case, Taken) {
    let case = Case::new(shape);
    let list = leak(case.list());
    (case, list)
}

#[library_benchmark]
#[bench::outputs_1(args = [taken(PLAIN)], config = at_most(597))]
#[bench::outputs_320(args = [taken(Shape { outputs: 320, ..PLAIN })], config = at_most(15502))]
fn take_each((case, list): (&'static mut Case, Taken)) {
    case.replay_and_take_each(list);
}

#[library_benchmark]
#[bench::outputs_1(args = [taken(PLAIN)], config = at_most(659))]
#[bench::outputs_320(args = [taken(Shape { outputs: 320, ..PLAIN })], config = at_most(3335))]
fn take_all((case, list): (&'static mut Case, Taken)) {
    case.replay_and_take_all(list);
}

// For comparison, without a limit.
#[library_benchmark]
#[bench::outputs_1(kept(Shape { method: Method::Reference, ..PLAIN }))]
#[bench::outputs_320(kept(Shape { method: Method::Reference, outputs: 320, ..PLAIN }))]
#[bench::staged_32(kept(Shape { method: Method::Reference, staged: 32, ..PLAIN }))]
fn reference((case, out): (&'static mut Case, Kept)) {
    *out = case.replay();
}

#[library_benchmark]
#[bench::null(args = [Bare::new()], config = at_most(62))]
fn bare(bare: &'static mut Bare) -> bool {
    bare.launch()
}

library_benchmark_group!(
    name = replaying,
    benchmarks = [bulk, bulk_and_drop, take_each, take_all, reference, bare]
);

main!(library_benchmark_groups = replaying);
