//! The same calls as the instruction gate, in nanoseconds: the median of 201 batches of 1,000 decisions each.
//! `cargo bench -p graphgrove-tree --bench nanoseconds`.

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]

mod cases;

use cases::Case;
use std::hint::black_box;
use std::time::Instant;

const BATCHES: usize = 201;
const BATCH: u32 = 1000;

fn median(case: &Case) -> f64 {
    let call = case.call();
    assert!(case.is_replayed(&call), "the call is not a replay");
    let mut batches: Vec<_> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            (0..BATCH).for_each(|_| assert!(case.is_replayed(black_box(&call))));
            start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}

fn main() {
    let all = [
        ("predicted, depth 1", cases::at_depth(1)),
        ("predicted, depth 1000", cases::at_depth(1000)),
        ("predicted, 1 sibling", cases::with_siblings(1)),
        ("predicted, 1000 siblings", cases::with_siblings(1000)),
        ("predicted root, path of 1", cases::root_after(1)),
        ("predicted root, path of 1000", cases::root_after(1000)),
        ("predicted root, 1 function", cases::among_functions(1)),
        ("predicted root, 1000 functions", cases::among_functions(1000)),
        ("predicted root, no parameters", cases::with_params(0)),
        ("predicted root, 10000 parameters", cases::with_params(10_000)),
        ("looked up, 2 siblings", cases::with_siblings_alternating(2)),
        ("looked up, 1000 siblings", cases::with_siblings_alternating(1000)),
    ];
    for (name, case) in &all {
        println!("{name:34} {:6.1} ns", median(case));
    }
}
