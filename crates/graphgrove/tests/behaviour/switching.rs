//! The mode `Auto`, on a clock that goes on only as a test wants it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove::{Engine, EngineBuilder, Event, Function, Layers, Mode, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, copied};

/// An engine whose every look at the clock takes 10 ns, and a function whose body takes so much more.
fn garden(body_ns: u64, builder: EngineBuilder) -> (Garden, Function<SimDevice>) {
    let time = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&time);
    let builder = builder.mode(Mode::Auto).clock(move || clock.fetch_add(10, Ordering::Relaxed));
    let garden = Garden::new(builder);
    let function = garden.engine.function("f", move |cx| {
        time.fetch_add(body_ns, Ordering::Relaxed);
        Ok(vec![copied(cx)?])
    });
    (garden, function)
}

fn call(garden: &Garden, function: &Function<SimDevice>, times: usize) {
    for turn in 0..times {
        let input = garden.fresh(turn as f32);
        let [out] = function.call(args![&input]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&out), turn as f32);
    }
}

#[test]
fn a_function_whose_replays_are_faster_stays_recorded() {
    let (garden, f) = garden(1000, Engine::<SimDevice>::builder());
    call(&garden, &f, 500);
    let calls = garden.engine.stats().unwrap().calls;
    // A warm-up, a recording, three replays and three plain runs to compare, and replays from then on.
    assert_eq!((calls.warm_ups, calls.recordings, calls.eager), (1, 1, 3));
    assert_eq!(calls.replays, 495);
    garden.device.verdict().unwrap();
}

#[test]
fn a_function_whose_replays_are_no_faster_runs_plainly_and_says_why() {
    let events = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let observer = move |event: &Event| told.lock().unwrap().push(event.clone());
    let (garden, f) = garden(0, Engine::<SimDevice>::builder().observer(observer));
    call(&garden, &f, 200);
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays, calls.eager), (1, 1, 3, 195));
    let why = "a replay takes 10 ns, which is no less than the 10 ns of a plain run";
    let reasons = garden.engine.reasons().unwrap();
    assert_eq!((&*reasons[0].why, reasons[0].calls), (why, 192));
    let events = events.lock().unwrap();
    let judged = events
        .iter()
        .filter(|event| matches!(event, Event::Judged { records: false, why: said, .. } if said == why));
    assert_eq!(judged.count(), 1);
    garden.device.verdict().unwrap();
}

#[test]
fn a_function_whose_inputs_take_longer_to_copy_than_its_body_runs_plainly() {
    // 4 MiB take the gather node some 3 us.
    for (body_ns, is_recorded) in [(1000, false), (100_000, true)] {
        let time = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&time);
        let builder = Engine::<SimDevice>::builder()
            .mode(Mode::Auto)
            .clock(move || clock.fetch_add(10, Ordering::Relaxed));
        let garden = Garden::new(builder);
        let f = garden.engine.function("f", move |cx| {
            time.fetch_add(body_ns, Ordering::Relaxed);
            // Work that nobody tells of, so that no address can be patched.
            cx.foreign(|_| ());
            Ok(vec![])
        });
        let input = garden.engine.tensor(&[1 << 20], &vec![0_u32; 1 << 20]).unwrap();
        for _ in 0..40 {
            let _ = f.call(args![&input]).unwrap();
        }
        let calls = garden.engine.stats().unwrap().calls;
        assert_eq!(calls.replays > 3, is_recorded, "{body_ns} {calls:?}");
    }
}

#[test]
fn a_function_that_is_called_with_ever_new_shapes_is_left_alone_and_tried_again_when_it_settles() {
    let (garden, f) = garden(1000, Engine::<SimDevice>::builder());
    let input = garden.fresh(3.0);
    for value in 0..200_u64 {
        let _ = f.call(args![&input, value]).unwrap();
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings), (32, 0), "{calls:?}");
    assert!(garden.has_reason("only 0 of 32 calls were replays"));
    for _ in 0..400 {
        let _ = f.call(args![&input, 7_u64]).unwrap();
    }
    assert!(garden.engine.stats().unwrap().calls.replays > 200);
}

#[test]
fn without_its_layer_the_switch_takes_trees_at_once() {
    let (garden, f) = garden(0, Engine::<SimDevice>::builder().layers(Layers::prefix(4)));
    call(&garden, &f, 20);
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays, calls.eager), (1, 18, 0));
}
