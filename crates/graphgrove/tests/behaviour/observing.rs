//! What an observer is told, and what it may do.

use std::sync::{Arc, Mutex, OnceLock};

use graphgrove::{Engine, EngineBuilder, Event, FunctionOptions, How, Limits, Mode, OldOutput, Phase, args};
use graphgrove_sim::{Failure, Fault, SimDevice};

use crate::garden::{Garden, copied};

/// A garden that keeps what its observer is told.
fn watched(builder: EngineBuilder) -> (Garden, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let observer = move |event: &Event| told.lock().unwrap().push(event.clone());
    (Garden::new(builder.observer(observer)), events)
}

fn take(events: &Mutex<Vec<Event>>) -> Vec<Event> {
    std::mem::take(&mut *events.lock().unwrap())
}

/// The ways in which calls ran, with the words that say why.
fn calls(events: &[Event]) -> Vec<(String, How, Option<String>)> {
    let called = events.iter().filter_map(|event| match event {
        Event::Called { function, how, why, .. } => Some((function.name.to_string(), *how, why.clone())),
        _ => None,
    });
    called.collect()
}

#[test]
fn every_way_in_which_a_call_runs_is_told_with_its_reason() {
    let (garden, events) = watched(Engine::<SimDevice>::builder());
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    let plain = garden
        .engine
        .function_with("plain", FunctionOptions::new().mode(Mode::Eager), |cx| Ok(vec![copied(cx)?]));
    let only = garden
        .engine
        .function_with("only", FunctionOptions::new().only_for([[1_u64]]), |cx| Ok(vec![copied(cx)?]));
    for _ in 0..4 {
        let _ = f.call(args![&input]).unwrap();
    }
    let _ = plain.call(args![&input]).unwrap();
    let _ = only.call(args![&input, 2_u64]).unwrap();
    let told = calls(&take(&events));
    let why = |words: &str| Some(words.to_owned());
    let f = |how, why| ("f".to_owned(), how, why);
    assert_eq!(
        told[..4],
        [
            f(How::WarmUp, why("not warmed up with these signatures")),
            f(How::Recording, why("first recording in this place")),
            f(How::Replay, None),
            f(How::Replay, None),
        ]
    );
    assert_eq!(told[4], ("plain".to_owned(), How::Eager, None));
    assert_eq!((told[5].1, told[5].2.is_some()), (How::Eager, true));
    assert_eq!(told.len(), 6);
    // One of the two replays was predicted, so that nobody but the observer knows which node ran.
    assert_eq!(garden.engine.stats().unwrap().calls.predicted, 1);
}

#[test]
fn a_recording_is_told_with_its_parent_its_size_and_its_time() {
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let ticks = Arc::clone(&clock);
    let now = move || ticks.fetch_add(7, std::sync::atomic::Ordering::Relaxed);
    let (garden, events) = watched(Engine::<SimDevice>::builder().clock(now));
    let (f, g, input) = (garden.copy("f"), garden.add("g"), garden.fresh(3.0));
    for _ in 0..3 {
        let [first] = f.call(args![&input]).unwrap().into_array().unwrap();
        let _ = g.call(args![&first, &input]).unwrap();
    }
    let events = take(&events);
    let recorded: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Recorded { function, node, parent, graph_nodes, exec_bytes, live_bytes, ns, .. } => {
                assert!(*exec_bytes > Some(0) && *live_bytes > 0);
                assert_eq!(*ns, 7);
                Some((&*function.name, *node, *parent, *graph_nodes))
            }
            _ => None,
        })
        .collect();
    let [(first, root, None, Some(_)), (second, child, Some(parent), Some(nodes))] = recorded[..] else {
        panic!("{recorded:?}");
    };
    assert_eq!((first, second, parent), ("f", "g", root));
    // The kernel, and the gather node of the input from outside.
    assert_eq!(nodes, 2);
    // The outline and the graph name nodes by the same numbers, and so do the replays.
    let (outline, dot) = (garden.engine.outline().unwrap(), garden.engine.dot().unwrap());
    assert!(outline.contains(&format!("n{root} f")) && outline.contains(&format!("n{child} g")), "{outline}");
    assert!(dot.starts_with("digraph") && dot.contains(&format!("n{root} -> n{child};")), "{dot}");
    let replayed = events.iter().filter_map(|event| match event {
        Event::Called { how: How::Replay, node, .. } => *node,
        _ => None,
    });
    assert_eq!(replayed.collect::<Vec<_>>(), [root, child]);
}

#[test]
fn steps_ended_paths_and_growth_are_told_before_the_call_that_they_come_from() {
    let (garden, events) = watched(Engine::<SimDevice>::builder().old_outputs(OldOutput::CopyOut));
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    let [_kept] = f.call(args![&input]).unwrap().into_array().unwrap();
    let first = take(&events);
    assert!(
        first.iter().any(
            |event| matches!(event, Event::PoolGrew { pool: 1, bytes, reserved, .. } if bytes == reserved)
        )
    );
    garden.engine.begin_step().unwrap();
    let _ = f.call(args![&input]).unwrap();
    let told = take(&events);
    let [Event::PathEnded { by, stale: 0, copied: 1, bytes: 128, .. }, rest @ ..] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(&*by.name, "f");
    let step = rest.iter().position(|event| matches!(event, Event::StepBegan { pool: 1, .. }));
    let call = rest.iter().position(|event| matches!(event, Event::Called { .. }));
    assert!(step.is_some() && step < call, "{told:?}");
    garden.engine.reset().unwrap();
    garden.engine.shutdown().unwrap();
    assert_eq!(take(&events), [Event::Reset, Event::ShutDown]);
}

#[test]
fn what_is_evicted_and_what_fails_is_told() {
    let limits = Limits { recordings_per_function: 1, ..Limits::default() };
    let (garden, events) = watched(Engine::<SimDevice>::builder().limits(limits));
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    for value in [1_u64, 1, 2, 2] {
        let _ = f.call(args![&input, value]).unwrap();
    }
    let told = take(&events);
    let recorded = |event: &&Event| matches!(event, Event::Recorded { .. });
    let Some(Event::Recorded { node, .. }) = told.iter().find(recorded) else { panic!("{told:?}") };
    let gone = |event: &&Event| matches!(event, Event::Evicted { .. });
    let evicted: Vec<_> = told.iter().filter(gone).collect();
    assert!(matches!(evicted[..], [Event::Evicted { pool: 1, node: of, .. }] if of == node), "{told:?}");

    let broken = garden.engine.function("broken", |cx| Err(cx.input(7).unwrap_err()));
    let error = broken.call(args![&input]).unwrap_err();
    let told = take(&events);
    let Some(Event::Failed { function, error: said, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((&*function.name, said), ("broken", &error.to_string()));

    let fails = garden.copy("fails");
    let _ = fails.call(args![&input]).unwrap();
    garden.device.inject(Fault::at(graphgrove_device::Call::Instantiate, 1, Failure::OutOfMemory));
    let _ = fails.call(args![&input]);
    assert!(take(&events).iter().any(|event| matches!(event, Event::RecordingFailed { .. })));
}

#[test]
fn a_notice_is_made_once_however_often_it_would_be_true() {
    let (garden, events) = watched(Engine::<SimDevice>::builder());
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    for value in 0..40_u64 {
        let _ = f.call(args![&input, value]).unwrap();
    }
    let told = take(&events);
    let noticed: Vec<_> = told.iter().filter(|event| matches!(event, Event::Noticed { .. })).collect();
    let [Event::Noticed { function, what, .. }] = noticed[..] else { panic!("{noticed:?}") };
    assert_eq!((&*function.name, what.contains("different signatures")), ("f", true), "{what}");
}

#[test]
fn forwards_and_backwards_are_told_apart() {
    let (garden, events) = watched(Engine::<SimDevice>::builder());
    let forward = garden.engine.function("forward", |cx| {
        let out = copied(cx)?;
        cx.save(&out);
        Ok(vec![out])
    });
    let backward = garden.engine.function("backward", |cx| Ok(vec![cx.take_saved(0)?]));
    let (outputs, token) = forward.forward(args![&garden.fresh(1.0)]).unwrap();
    drop(outputs);
    let _ = backward.backward(token, args![]).unwrap();
    let phases: Vec<_> = take(&events)
        .iter()
        .filter_map(|event| match event {
            Event::Called { phase, .. } => Some(*phase),
            _ => None,
        })
        .collect();
    assert_eq!(phases, [Phase::Forward, Phase::Backward]);
}

#[test]
fn an_observer_may_ask_the_engine_and_even_call_functions() {
    let engine: Arc<OnceLock<Engine<SimDevice>>> = Arc::default();
    let helper = Arc::new(OnceLock::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (asked, called, told) = (Arc::clone(&engine), Arc::clone(&helper), Arc::clone(&seen));
    let garden = Garden::new(Engine::<SimDevice>::builder().observer(move |event: &Event| {
        let (Some(engine), Event::Called { function, .. }) = (asked.get(), event) else { return };
        // The call that this is about is over: it is counted, and its engine is free.
        let stats = engine.stats().unwrap().calls;
        let runs = stats.warm_ups + stats.recordings + stats.replays;
        told.lock().unwrap().push((function.name.to_string(), runs));
        if &*function.name == "f" {
            let helper: &graphgrove::Function<SimDevice> = called.get().unwrap();
            let _ = helper.call(args![]).unwrap();
        }
    }));
    engine.set(garden.engine.clone()).ok().unwrap();
    helper.set(garden.engine.function("helper", |_| Ok(vec![]))).ok().unwrap();
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    for _ in 0..2 {
        let _ = f.call(args![&input]).unwrap();
    }
    let expected = [("f", 1), ("helper", 2), ("f", 3), ("helper", 4)];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(name, runs)| (name.to_owned(), runs)));
}

#[test]
fn a_function_may_register_another_under_an_observer() {
    let (garden, events) = watched(Engine::<SimDevice>::builder());
    let engine = garden.engine.clone();
    let outer = garden.engine.function("outer", move |_| {
        let _inner = engine.function("inner", |_| Ok(vec![]));
        Ok(vec![])
    });
    let _ = outer.call(args![]).unwrap();
    let told = take(&events);
    let inner = told
        .iter()
        .position(|event| matches!(event, Event::Registered { function, .. } if &*function.name == "inner"));
    let call = told.iter().position(|event| matches!(event, Event::Called { .. }));
    assert!(inner.is_some() && inner < call, "{told:?}");
}

#[test]
fn an_observer_that_panics_is_told_nothing_more_and_harms_no_call() {
    let count = Arc::new(Mutex::new(0));
    let told = Arc::clone(&count);
    let garden = Garden::new(Engine::<SimDevice>::builder().observer(move |event: &Event| {
        *told.lock().unwrap() += 1;
        let is_call = matches!(event, Event::Called { .. });
        assert!(!is_call, "an observer that does not like calls");
    }));
    let (f, input) = (garden.copy("f"), garden.fresh(3.0));
    assert!(!garden.engine.stats().unwrap().observer_panicked);
    for _ in 0..4 {
        let [out] = f.call(args![&input]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&out), 3.0);
    }
    // The panic left the mutex locked, which shows how often the observer was called: for what it was told before the first call.
    let told = count.lock().map_or_else(|poisoned| **poisoned.get_ref(), |told| *told);
    assert!(told < 6, "{told}");
    let stats = garden.engine.stats().unwrap();
    assert!(stats.observer_panicked);
    assert_eq!((stats.calls.recordings, stats.calls.replays), (1, 2));
    garden.device.verdict().unwrap();
}

#[test]
fn calls_from_several_threads_are_told_in_the_order_in_which_they_ran() {
    let (garden, events) = watched(Engine::<SimDevice>::builder());
    // An output would be live for a moment after its call, and the call of another thread be recorded below it.
    let f = garden.engine.function("f", |cx| copied(cx).map(|_| Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let _ = f.call(args![&garden.fresh(1.0)]).unwrap();
                }
            });
        }
    });
    // Another thread may still tell the last ones; whoever asks for them later finds all of them.
    let _ = f.call(args![&garden.fresh(1.0)]).unwrap();
    let told = calls(&take(&events));
    assert_eq!(told.len(), 101);
    assert_eq!((told[0].1, told[1].1), (How::WarmUp, How::Recording));
    assert!(told[2..].iter().all(|call| call.1 == How::Replay));
}
