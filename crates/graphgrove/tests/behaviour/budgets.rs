//! How much recordings may take.

use std::sync::Arc;

use graphgrove::{Engine, FunctionOptions, Growth, Mode, PoolConfig, args};
use graphgrove_sim::SimDevice;

use crate::garden::copied;

/// An engine within a budget, on a device whose pages and execs have 4096 bytes.
fn engine(budget: u64) -> Engine<SimDevice> {
    let device = Arc::new(SimDevice::builder().granularity(4096).exec_cost(4096, 0).build());
    let growth = Growth { small_limit: 0, small: 4096, large: 4096, unit: 4096 };
    let pool = PoolConfig { growth, ..PoolConfig::default() };
    Engine::<SimDevice>::builder().pool(pool).budget(budget).build(device).unwrap()
}

#[test]
fn the_budget_holds_over_the_pools_and_execs_of_all_functions_together() {
    // Each function wants a page and an exec of its own, and there is room for two of four.
    let engine = engine(4 * 4096);
    let functions = ["a", "b", "c", "d"].map(|name| {
        engine.function_with(name, FunctionOptions::new().mode(Mode::OnePool), |cx| Ok(vec![copied(cx)?]))
    });
    let input = engine.tensor(&[4], &[1_u32, 2, 3, 4]).unwrap();
    for turn in 0..20 {
        for function in &functions {
            let [out] = function.call(args![&input]).unwrap().into_array().unwrap();
            assert_eq!(engine.read::<u32>(&out).unwrap(), [1, 2, 3, 4], "{turn}");
            let stats = engine.stats().unwrap();
            assert!(stats.budgeted <= 4 * 4096, "{turn}: {stats:?}");
        }
    }
    let stats = engine.stats().unwrap();
    assert!(stats.nodes >= 1 && stats.calls.replays > 0 && stats.calls.eager > 0, "{stats:?}");
    assert!(engine.reasons().unwrap().iter().any(|reason| reason.why.contains("budget")));
    engine.device().verdict().unwrap();
}

#[test]
fn a_recording_that_runs_no_more_goes_for_one_that_does() {
    let engine = engine(2 * 4096);
    let [f, g] = ["f", "g"].map(|name| engine.function(name, |cx| Ok(vec![copied(cx)?])));
    let input = engine.tensor(&[4], &[1_u32, 2, 3, 4]).unwrap();
    for _ in 0..4 {
        let _ = f.call(args![&input]).unwrap();
    }
    assert_eq!(engine.stats().unwrap().calls.replays, 2);
    let mut replays = Vec::new();
    for _ in 0..200 {
        let [out] = g.call(args![&input]).unwrap().into_array().unwrap();
        assert_eq!(engine.read::<u32>(&out).unwrap(), [1, 2, 3, 4]);
        let stats = engine.stats().unwrap();
        assert!(stats.budgeted <= 2 * 4096);
        replays.push(stats.calls.replays);
    }
    assert_eq!(engine.stats().unwrap().nodes, 1);
    assert!(replays.last() > Some(&50), "{:?} {:?}", replays.last(), engine.reasons());
    engine.device().verdict().unwrap();
}

#[test]
fn a_recording_that_keeps_running_is_not_given_up_for_another() {
    let engine = engine(2 * 4096);
    let [f, g] = ["f", "g"].map(|name| engine.function(name, |cx| Ok(vec![copied(cx)?])));
    let input = engine.tensor(&[4], &[1_u32, 2, 3, 4]).unwrap();
    for _ in 0..200 {
        let _ = f.call(args![&input]).unwrap();
        let _ = g.call(args![&input]).unwrap();
    }
    let calls = engine.stats().unwrap().calls;
    assert_eq!(calls.recordings, 1, "{calls:?}");
    assert!(calls.replays >= 197 && calls.eager >= 197, "{calls:?}");
}

#[test]
fn a_warm_up_that_has_no_room_runs_all_the_same_and_only_once() {
    let engine = engine(0);
    let f = engine.function("f", |cx| Ok(vec![copied(cx)?]));
    let input = engine.tensor(&[4], &[1_u32, 2, 3, 4]).unwrap();
    for _ in 0..6 {
        let [out] = f.call(args![&input]).unwrap().into_array().unwrap();
        assert_eq!(engine.read::<u32>(&out).unwrap(), [1, 2, 3, 4]);
    }
    let stats = engine.stats().unwrap();
    assert_eq!((stats.calls.warm_ups, stats.calls.recordings, stats.calls.eager), (1, 0, 5));
    assert_eq!(stats.budgeted, 0);
    engine.device().verdict().unwrap();
}
