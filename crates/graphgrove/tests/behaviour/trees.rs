//! Which recordings there are, and which is below which.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graphgrove::{Engine, FunctionOptions, OldOutput, args};
use graphgrove_device::{Streams, Work};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, copied};

#[test]
fn the_same_function_twice_in_a_step_is_a_root_with_one_descendant() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (copy, input) = (garden.copy("copy"), garden.fresh(3.0));
    for _ in 0..4 {
        let [first] = copy.call(args![&input]).unwrap().into_array().unwrap();
        let [second] = copy.call(args![&first]).unwrap().into_array().unwrap();
        assert_eq!((garden.value(&first), garden.value(&second)), (3.0, 3.0));
    }
    assert_eq!(garden.depths(), [0, 1]);
    garden.device.verdict().unwrap();
}

#[test]
fn outputs_that_die_end_a_path_so_that_the_next_function_is_a_root() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g, input) = (garden.copy("f"), garden.copy("g"), garden.fresh(3.0));
    for _ in 0..3 {
        let _ = f.call(args![&input]).unwrap();
        let _ = g.call(args![&input]).unwrap();
    }
    assert_eq!(garden.depths(), [0, 0]);
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (2, 2));
}

#[test]
fn the_pool_has_the_blocks_of_live_outputs_whatever_ran_before() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g, input) = (garden.copy("f"), garden.copy("g"), garden.fresh(3.0));
    for _ in ["warm-up", "recording", "replay"] {
        let [out] = f.call(args![&input]).unwrap().into_array().unwrap();
        assert_eq!((garden.live_blocks(), garden.value(&out)), (1, 3.0));
        drop(out);
    }
    // Below a replay: the first function's output is live, and given up to the second one.
    for turn in 0..3 {
        let [first] = f.call(args![&input]).unwrap().into_array().unwrap();
        let [second] = g.call(args![first]).unwrap().into_array().unwrap();
        assert_eq!((garden.live_blocks(), garden.value(&second)), (1, 3.0), "{turn}");
    }
    // What died while replays ran is gone for whoever allocates next.
    let [_last] = garden.add("h").call(args![&input, &input]).unwrap().into_array().unwrap();
    assert_eq!(garden.live_blocks(), 1);
    garden.device.verdict().unwrap();
}

#[test]
fn recordings_in_a_row_have_one_live_block_at_a_time_and_none_at_the_end() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let functions = ["a", "b", "c"].map(|name| garden.copy(name));
    let input = garden.fresh(3.0);
    for turn in 0..3 {
        let mut last = input.clone();
        for function in &functions {
            let [out] = function.call(args![last]).unwrap().into_array().unwrap();
            // Below a replay the pool is told by the next restore.
            assert!(turn == 2 || garden.live_blocks() == 1, "{turn}");
            last = out;
        }
        assert_eq!(garden.value(&last), 3.0);
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (3, 3));
    let [_other] = garden.add("other").call(args![&input, &input]).unwrap().into_array().unwrap();
    assert_eq!(garden.live_blocks(), 1);
}

#[test]
fn a_branch_below_a_replayed_node_restores_the_pool_once_to_warm_up_and_once_to_record() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g, input) = (garden.copy("f"), garden.copy("g"), garden.fresh(3.0));
    for _ in 0..3 {
        let _ = f.call(args![&input]).unwrap();
    }
    let restores = || garden.engine.stats().unwrap().pools[0].counts.restores;
    let before = restores();
    for turn in 0..5 {
        let [kept] = f.call(args![&input]).unwrap().into_array().unwrap();
        let [out] = g.call(args![&kept]).unwrap().into_array().unwrap();
        assert_eq!((garden.value(&kept), garden.value(&out)), (3.0, 3.0), "{turn}");
    }
    assert_eq!(restores() - before, 2);
}

#[test]
fn another_value_needs_another_warm_up_and_another_recording() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let shown = garden.engine.function("shown", move |cx| {
        count.fetch_add(1, Ordering::Relaxed);
        let (out, value) = (cx.empty(graphgrove::Layout::of::<u8>(&[1])?)?, cx.value(0)?);
        cx.fill(&out, value as u8)?;
        Ok(vec![out])
    });
    for (value, bodies) in [(3_u64, 2), (5, 4), (3, 4)] {
        for _ in 0..4 {
            let [out] = shown.call(args![value]).unwrap().into_array().unwrap();
            assert_eq!(garden.engine.read::<u8>(&out).unwrap(), [value as u8]);
        }
        assert_eq!(ran.load(Ordering::Relaxed), bodies, "{value}");
    }
    assert_eq!(garden.engine.stats().unwrap().calls.eager, 0);
}

#[test]
fn only_listed_values_are_recorded_and_the_others_run_plainly_with_a_reason() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let options = FunctionOptions::new().only_for([[1_u64], [4]]);
    let f = garden.engine.function_with("f", options, |cx| Ok(vec![copied(cx)?]));
    let input = garden.fresh(3.0);
    for _ in 0..4 {
        for value in [1_u64, 2, 4, 7] {
            let [out] = f.call(args![&input, value]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), 3.0);
        }
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays, calls.eager), (2, 2, 4, 8));
    assert_eq!(garden.engine.reasons().unwrap()[0].calls, 8, "{:?}", garden.engine.reasons());
}

#[test]
fn a_recording_that_is_made_again_says_why() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g, input) = (garden.copy("f"), garden.copy("g"), garden.fresh(3.0));
    let mut keep = Vec::new();
    for turn in 0..6 {
        garden.engine.begin_step().unwrap();
        keep.clear();
        let [first] = f.call(args![&input]).unwrap().into_array().unwrap();
        // From the fourth step on the first function's output is held, which the second one's recording writes over.
        if turn > 3 {
            keep.push(first.clone());
        }
        let _ = g.call(args![first]).unwrap();
    }
    assert!(garden.has_reason("recorded: "));
    assert!(garden.has_reason("still"), "{:?}", garden.engine.reasons());
    assert_eq!(garden.depths(), [0, 1, 1]);
}

#[test]
fn a_function_that_is_recorded_again_too_often_runs_plainly_and_another_does_not() {
    let limits = graphgrove::Limits { rerecordings: 2, rerecordings_decay: 0, ..Default::default() };
    let garden = Garden::new(Engine::<SimDevice>::builder().limits(limits));
    let (f, steady) = (garden.copy("f"), garden.copy("steady"));
    let input = garden.fresh(3.0);
    for value in 0..8_u64 {
        for _ in 0..2 {
            let [out] = f.call(args![&input, value]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), 3.0);
        }
        let _ = steady.call(args![&input]).unwrap();
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (4, 6), "{calls:?} {:?}", garden.engine.reasons());
    let reasons = garden.engine.reasons().unwrap();
    let plain: Vec<_> = reasons.iter().filter(|reason| reason.why.contains("recorded again")).collect();
    assert!(plain.iter().all(|reason| reason.function == "f"));
    assert_eq!(plain.iter().map(|reason| reason.calls).sum::<u64>(), calls.eager);
}

#[test]
fn outputs_that_are_kept_and_let_go_of_at_random_do_not_let_functions_record_for_ever() {
    let garden = Garden::new(Engine::<SimDevice>::builder().old_outputs(OldOutput::Keep));
    let functions = [garden.copy("f"), garden.copy("g")];
    let (input, mut random, mut held) = (garden.fresh(3.0), 7_u32, Vec::new());
    let mut recordings = Vec::new();
    for call in 1..=4000_usize {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = random as usize >> 16;
        held.extend(functions[number % 2].call(args![&input]).unwrap().into_array::<1>().unwrap());
        if held.len() > 12 {
            held.swap_remove(number / 2 % 12);
        }
        if number.is_multiple_of(6) {
            garden.engine.begin_step().unwrap();
        }
        if call.is_multiple_of(1000) {
            recordings.push(garden.engine.stats().unwrap().calls.recordings);
        }
    }
    // Each function has its first 256, one more for each 32 calls, and one for each that is replayed after all.
    assert!(garden.has_reason("never replayed"), "{:?}", garden.engine.reasons());
    assert!(recordings[0] <= 2 * 256 + 1000 / 5, "{recordings:?}");
    assert!(recordings.windows(2).all(|pair| pair[1] - pair[0] < 1000 / 5), "{recordings:?}");
    assert!(held.iter().all(|output| garden.value(output) == 3.0));
}

#[test]
fn a_function_without_kernels_is_a_node_and_its_view_keeps_the_block() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = garden.copy("f");
    let view = garden.engine.function("view", |cx| {
        let input = cx.take(0)?;
        Ok(vec![input.clone(), cx.empty(input.layout().clone())?])
    });
    let (g, input) = (garden.copy("g"), garden.fresh(3.0));
    for turn in 0..5 {
        let [first] = f.call(args![&input]).unwrap().into_array().unwrap();
        let [seen, blank] = view.call(args![first]).unwrap().into_array().unwrap();
        let [out] = g.call(args![&seen]).unwrap().into_array().unwrap();
        assert_eq!((garden.value(&seen), garden.value(&out)), (3.0, 3.0), "{turn}");
        assert!(!blank.shares_storage(&seen).unwrap());
    }
    assert_eq!(garden.depths(), [0, 1, 2]);
    garden.device.verdict().unwrap();
}

#[test]
fn a_step_that_is_asked_for_at_every_call_records_once() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    let mut last = None;
    for _ in 0..6 {
        garden.engine.begin_step().unwrap();
        let [out] = f.call(args![&input]).unwrap().into_array().unwrap();
        last = Some(out);
    }
    assert_eq!(garden.value(&last.unwrap()), 3.0);
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (1, 4));
}

#[test]
fn what_a_warm_up_makes_is_seen_by_whoever_waits_for_the_stream_of_its_call() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, input, to) = (garden.copy("f"), garden.fresh(3.0), garden.fresh(0.0));
    let (calls, mine) = (garden.device.create_stream().unwrap(), garden.device.create_stream().unwrap());
    for ran in ["warm-up", "recording", "replay"] {
        let [out] = f.on(&calls).call(args![&input]).unwrap().into_array().unwrap();
        let event = garden.device.create_event().unwrap();
        garden.device.record_event(&event, &calls).unwrap();
        garden.device.wait_event(&mine, &event).unwrap();
        let (to, from) = (to.address().unwrap(), out.address().unwrap());
        garden.device.copy(&mine, to, from, 4).unwrap();
        garden.device.record_event(&event, &mine).unwrap();
        garden.device.wait_event(&calls, &event).unwrap();
        garden.device.synchronize().unwrap();
        garden.device.verdict().map_err(|found| format!("{ran}: {found:?}")).unwrap();
    }
    assert_eq!(garden.value(&to), 3.0);
}

#[test]
fn each_device_has_an_engine_of_its_own() {
    let gardens = [1.0, 2.0].map(|value| (value, Garden::new(Engine::<SimDevice>::builder())));
    for _ in 0..4 {
        for (value, garden) in &gardens {
            let (f, input) = (garden.copy("f"), garden.fresh(*value));
            let [out] = f.call(args![&input]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), *value);
        }
    }
    let (_, first) = &gardens[0];
    first.engine.shutdown().unwrap();
    let (_, second) = &gardens[1];
    let [out] = second.copy("f").call(args![&second.fresh(2.0)]).unwrap().into_array().unwrap();
    assert_eq!(second.value(&out), 2.0);
    gardens.iter().for_each(|(_, garden)| garden.device.verdict().unwrap());
}
