//! Calls that fail leave nothing behind, and the next good call is right.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use graphgrove::{Engine, Error, FunctionOptions, Mode, OldOutput, Tensor, args};
use graphgrove_device::{Call, DeviceError, Streams};
use graphgrove_sim::{Failure, Fault, SimDevice};
use graphgrove_tests::body::Machine;
use graphgrove_tests::kernels::layout;
use parking_lot::Mutex;

use crate::garden::{Garden, is_capturing, mix_of, sum_of};

/// How a call runs that meets a fault.
#[derive(Clone, Copy, Debug)]
enum Way {
    WarmUp,
    Recording,
    Replay,
    /// Old outputs are live when a step begins.
    PathEnd,
}

/// Runs a chain up to a call of the kind, fails that call at its `nth` driver call, and goes on as if nothing had been. Returns
/// whether there was such a call.
fn fails_at(way: Way, nth: u64, failure: &Failure, garden: Garden) -> bool {
    let options = FunctionOptions::new().old_outputs(OldOutput::CopyOut);
    let mix = garden.function("mix", options, |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        let temporary = running.mix(&a, &b, 0)?;
        drop(a);
        Ok(vec![running.mix(&temporary, &b, 1)?])
    });
    let expected = |a, b| mix_of(graphgrove_tests::kernels::mixed(a, b, 0), b);
    let (a, b) = (garden.tensor(3), garden.tensor(4));
    let warm = match way {
        Way::WarmUp => 0,
        Way::Recording => 1,
        Way::Replay | Way::PathEnd => 3,
    };
    for _ in 0..warm {
        let out = garden.one(&mix, &a, &b);
        assert_eq!(garden.value(&out), expected(3, 4));
        garden.engine.begin_step().unwrap();
    }
    let kept = matches!(way, Way::PathEnd).then(|| garden.one(&mix, &a, &b));
    garden.engine.begin_step().unwrap();
    let other = garden.tensor(5);
    let before = garden.device.counts();
    garden.device.inject(Fault::at_any(nth, failure.clone()));
    let called = mix.call(args![&a, &other]);
    garden.device.clear_faults();
    let reached = garden.device.counts().since(&before).total() >= nth;
    match called {
        Ok(outputs) => {
            let [out] = outputs.into_array().unwrap();
            assert_eq!(garden.value(&out), expected(3, 5), "{way:?} {nth}");
        }
        Err(error) => assert!(reached, "{way:?} {nth}: {error}"),
    }
    assert!(!is_capturing(&garden.engine), "{way:?} {nth}: a capture is open");
    if let Some(kept) = &kept {
        assert_eq!(garden.value(kept), expected(3, 4), "{way:?} {nth}: an old output");
    }
    for turn in 0..4 {
        let input = garden.tensor(turn);
        let out = garden.one(&mix, &a, &input);
        assert_eq!(garden.value(&out), expected(3, turn), "{way:?} {nth}: later");
        if turn == 1 {
            garden.engine.begin_step().unwrap();
        }
    }
    if let Some(kept) = &kept {
        assert_eq!(garden.value(kept), expected(3, 4), "{way:?} {nth}: an old output, later");
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert!(calls.replays > 0, "{way:?} {nth}: nothing is replayed any more: {calls:?}");
    drop((a, b, other, kept, mix));
    garden.end();
    reached
}

#[test]
fn invariant_10_a_call_that_fails_at_any_driver_call_leaves_the_engine_as_before() {
    for way in [Way::WarmUp, Way::Recording, Way::Replay, Way::PathEnd] {
        for failure in [Failure::OutOfMemory, Failure::Driver(999), Failure::InvalidateCaptures] {
            for fast in [0, 1] {
                let mut nth = 1;
                while fails_at(way, nth, &failure, Garden::both().into_iter().nth(fast).unwrap()) {
                    nth += 1;
                }
                assert!(nth > 1, "{way:?} made no driver call");
            }
        }
    }
}

#[test]
fn invariant_10_old_outputs_end_together_or_not_at_all() {
    for (failure, warm) in [(Failure::OutOfMemory, 0), (Failure::Driver(999), 0), (Failure::Driver(999), 3)] {
        let (mut nth, mut failed, mut reached) = (0, 0, true);
        while reached {
            nth += 1;
            let [garden, _] = Garden::both();
            let volatile = garden.mix("volatile");
            let options = FunctionOptions::new().old_outputs(OldOutput::CopyOut);
            let lasting = garden.function("lasting", options, |running| {
                let (a, b) = (running.context.take(0)?, running.context.take(1)?);
                Ok(vec![running.mix(&a, &b, 1)?])
            });
            let (a, b) = (garden.tensor(1), garden.tensor(2));
            let both = || [garden.one(&volatile, &a, &b), garden.one(&lasting, &a, &b)];
            for _ in 0..warm {
                drop(both());
                garden.engine.begin_step().unwrap();
            }
            let [first, last] = both();
            garden.engine.begin_step().unwrap();
            // The copy, or what is needed for it, and nothing that comes after it.
            garden.device.inject(Fault::at(Call::Copy, nth, failure.clone()));
            garden.device.inject(Fault::at(Call::Map, nth, failure.clone()));
            garden.device.inject(Fault::at(Call::Allocate, nth, failure.clone()));
            let before = garden.device.counts();
            let called = volatile.call(args![&a, &b]).map(drop);
            garden.device.clear_faults();
            let counts = garden.device.counts().since(&before);
            reached = [Call::Copy, Call::Map, Call::Allocate].iter().any(|call| counts.of(*call) >= nth);
            if called.is_err() {
                failed += 1;
                assert_eq!(garden.value(&first), mix_of(1, 2), "{failure:?} {nth}");
            }
            assert_eq!(garden.value(&last), mix_of(1, 2));
            drop((first, last));
            for _ in 0..3 {
                let [first, last] = both();
                assert_eq!([garden.value(&first), garden.value(&last)], [mix_of(1, 2); 2]);
                drop((first, last));
                garden.engine.begin_step().unwrap();
            }
            drop((a, b, volatile, lasting));
            garden.end();
        }
        assert!(failed > 0, "{failure:?} {warm}: nothing failed");
    }
}

#[test]
fn an_effect_on_memory_of_the_caller_happens_once_or_not_at_all_whatever_fails() {
    for failure in [Failure::OutOfMemory, Failure::Driver(999), Failure::InvalidateCaptures] {
        for warm in 1..4 {
            for nth in 1..40 {
                let [garden, _] = Garden::both();
                let accumulate = garden.accumulate("accumulate");
                let (state, b) = (garden.tensor(1), garden.tensor(2));
                let mut expected = 1;
                for _ in 0..warm {
                    let _ = accumulate.call(args![&state, &b]).unwrap();
                    expected = sum_of(expected, 2);
                    assert_eq!(garden.value(&state), expected);
                }
                garden.device.inject(Fault::at_any(nth, failure.clone()));
                let called = accumulate.call(args![&state, &b]).map(drop);
                garden.device.clear_faults();
                let value = garden.value(&state);
                let once = sum_of(expected, 2);
                match called {
                    Ok(()) => assert_eq!(value, once, "{failure:?} {warm} {nth}"),
                    Err(error) => {
                        assert!(value == expected || value == once, "{failure:?} {warm} {nth}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn out_of_memory_at_any_allocation_is_an_error_or_a_plain_run_and_nothing_is_lost() {
    for nth in 1..6 {
        let garden = Garden::new(Engine::<SimDevice>::builder());
        let mix = garden.mix("mix");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        garden.device.inject(Fault::at(Call::Map, nth, Failure::OutOfMemory));
        garden.device.inject(Fault::at(Call::Allocate, nth, Failure::OutOfMemory));
        let mut held = Vec::new();
        for _ in 0..8 {
            match mix.call(args![&a, &b]) {
                Ok(outputs) => held.extend(outputs.into_vec().unwrap()),
                Err(Error::Pool(_) | Error::Device(DeviceError::OutOfMemory { .. })) => {}
                Err(other) => panic!("{other}"),
            }
        }
        garden.device.clear_faults();
        held.push(garden.one(&mix, &a, &b));
        assert!(held.iter().all(|out| garden.value(out) == mix_of(1, 2)));
        drop((held, a, b, mix));
        garden.end();
    }
}

#[test]
fn a_function_that_returns_an_error_is_reported_and_may_be_called_again() {
    for garden in Garden::both() {
        let fails = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&fails);
        let moody = garden.function("moody", FunctionOptions::new(), move |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let out = running.mix(&a, &b, 1)?;
            if flag.load(Ordering::Relaxed) {
                return Err(running.context.fail("not in the mood"));
            }
            Ok(vec![out])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        // The warm-up fails, then the recording.
        for good in 0..2 {
            fails.store(true, Ordering::Relaxed);
            let error = moody.call(args![&a, &b]).unwrap_err();
            assert_eq!(error.to_string(), "moody failed: not in the mood");
            assert!(!is_capturing(&garden.engine));
            fails.store(false, Ordering::Relaxed);
            let out = garden.one(&moody, &a, &b);
            assert_eq!(garden.value(&out), mix_of(1, 2), "{good}");
        }
        drop((a, b, moody));
        garden.end();
    }
}

#[test]
fn a_function_that_panics_takes_nothing_with_it() {
    for garden in Garden::both() {
        let panics = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&panics);
        let moody = garden.function("moody", FunctionOptions::new(), move |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let out = running.mix(&a, &b, 1)?;
            assert!(!flag.load(Ordering::Relaxed), "a bad mood");
            Ok(vec![out])
        });
        let mix = garden.mix("mix");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        for turn in 0..3 {
            panics.store(true, Ordering::Relaxed);
            catch_unwind(AssertUnwindSafe(|| moody.call(args![&a, &b]).map(drop))).unwrap_err();
            assert!(!is_capturing(&garden.engine), "{turn}");
            let out = garden.one(&mix, &a, &b);
            assert_eq!(garden.value(&out), mix_of(1, 2));
            panics.store(false, Ordering::Relaxed);
            let out = garden.one(&moody, &a, &b);
            assert_eq!(garden.value(&out), mix_of(1, 2), "{turn}");
            garden.engine.begin_step().unwrap();
            if turn == 1 {
                // Once it is recorded a replay does not run it at all.
                break;
            }
        }
        drop((a, b, mix, moody));
        garden.end();
    }
}

#[test]
fn memory_that_a_function_hides_is_a_typed_error_once_and_never_harms_what_comes_later() {
    for garden in Garden::both() {
        let hidden: Arc<Mutex<Vec<Tensor>>> = Arc::default();
        let place = Arc::clone(&hidden);
        let hider = garden.function("hider", FunctionOptions::new(), move |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let workspace = running.mix(&a, &b, 9)?;
            place.lock().push(workspace);
            Ok(vec![running.mix(&a, &b, 1)?])
        });
        let mix = garden.mix("mix");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let mut survivors = 0;
        for _ in 0..6 {
            match hider.call(args![&a, &b]) {
                Ok(outputs) => {
                    let [out] = outputs.into_array().unwrap();
                    assert_eq!(garden.value(&out), mix_of(1, 2));
                }
                Err(Error::Survivors { function, blocks: 1, .. }) => {
                    assert_eq!(function, "hider");
                    survivors += 1;
                }
                Err(other) => panic!("{other}"),
            }
            let out = garden.one(&mix, &a, &b);
            assert_eq!(garden.value(&out), mix_of(1, 2));
        }
        assert_eq!(survivors, 1, "the first call says so, and later ones run plainly");
        let why = garden.engine.reasons().unwrap();
        assert!(
            why.iter().any(|reason| reason.function == "hider" && reason.why.contains("no outputs")),
            "{why:?}"
        );
        hidden.lock().clear();
        drop((a, b, mix, hider));
        garden.end();
    }
}

#[test]
fn a_call_inside_of_a_call_is_refused_and_the_outer_one_goes_on() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let mix = garden.mix("mix");
    let refused = Arc::new(AtomicU32::new(0));
    let (inner, engine, count) = (mix.clone(), garden.engine.clone(), Arc::clone(&refused));
    let outer = garden.function("outer", FunctionOptions::new(), move |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        for error in
            [inner.call(args![&a, &b]).map(drop), engine.begin_step(), engine.reset(), engine.shutdown()]
        {
            if matches!(error, Err(Error::Nested { .. })) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Registering is no call.
        let _ = engine.function("late", |_| Ok(Vec::new()));
        Ok(vec![running.mix(&a, &b, 1)?])
    });
    let (a, b) = (garden.tensor(1), garden.tensor(2));
    for _ in 0..4 {
        let out = garden.one(&outer, &a, &b);
        assert_eq!(garden.value(&out), mix_of(1, 2));
    }
    // A warm-up and a recording ran it.
    assert_eq!(refused.load(Ordering::Relaxed), 8);
    let late = garden.engine.function("later", |_| Ok(Vec::new()));
    assert_eq!(late.call(args![]).unwrap().len(), 0);
    // The outer function has the engine, which has the outer function.
    garden.engine.shutdown().unwrap();
    drop((a, b, mix, outer, late));
    garden.end();
}

#[test]
fn after_shutdown_every_call_is_refused_and_live_outputs_stay() {
    for garden in Garden::both() {
        let mix = garden.mix("mix");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let (out, token) = mix.calling().forward(args![&a, &b]).unwrap();
        let [out] = out.into_array().unwrap();
        let again = garden.one(&mix, &a, &b);
        garden.engine.shutdown().unwrap();
        assert_eq!(mix.call(args![&a, &b]).map(drop), Err(Error::ShutDown));
        assert_eq!(mix.calling().backward(token, args![&a, &b]).map(drop), Err(Error::ShutDown));
        assert_eq!(garden.mix("new").call(args![&a, &b]).map(drop), Err(Error::ShutDown));
        garden.engine.shutdown().unwrap();
        assert_eq!((garden.value(&out), garden.value(&again)), (mix_of(1, 2), mix_of(1, 2)));
        drop((a, b, mix, out, again));
        garden.end();
    }
}

#[test]
fn a_token_of_another_engine_is_refused() {
    let [one, other] = Garden::both();
    let (mix, foreign) = (one.mix("mix"), other.mix("mix"));
    let (a, b) = (one.tensor(1), one.tensor(2));
    let (out, token) = mix.calling().forward(args![&a, &b]).unwrap();
    let (x, y) = (other.tensor(1), other.tensor(2));
    let refused = foreign.calling().backward(token, args![&x, &y]).map(drop);
    assert_eq!(refused, Err(Error::ForeignHandle { what: "token" }));
    // It was given up with the call.
    assert_eq!(one.engine.stats().unwrap().pending_backwards, 0);
    drop(out);
    let out = one.one(&mix, &a, &b);
    assert_eq!(one.value(&out), mix_of(1, 2));
    assert_eq!(one.engine.stats().unwrap().pending_backwards, 0);
    drop((a, b, x, y, mix, foreign, out));
    one.end();
    other.end();
}

#[test]
fn a_function_that_breaks_its_capture_runs_plainly_with_a_reason_and_has_all_its_inputs() {
    for ignores in [false, true] {
        for garden in Garden::both() {
            let mix = garden.mix("mix");
            let device = Arc::clone(&garden.device);
            let waits = garden.function("waits", FunctionOptions::new(), move |running| {
                let (a, b) = (running.context.take(0)?, running.context.take(1)?);
                let waited = device.synchronize();
                if !ignores {
                    waited?;
                }
                Ok(vec![running.mix(&a, &b, 1)?])
            });
            let (a, b) = (garden.tensor(1), garden.tensor(2));
            for _ in 0..6 {
                // The input is an output of the path whose last handle goes into the call.
                let between = garden.one(&mix, &a, &b);
                let [out] = waits.call(args![between, &b]).unwrap().into_array().unwrap();
                assert_eq!(garden.value(&out), mix_of(mix_of(1, 2), 2), "{ignores}");
            }
            let calls = garden.engine.stats().unwrap().calls;
            assert!(calls.eager >= 4, "{calls:?}");
            let why = garden.engine.reasons().unwrap();
            let says =
                |reason: &graphgrove::Reason| reason.function == "waits" && reason.why.contains("captur");
            assert!(why.iter().any(says), "{why:?}");
            drop((a, b, mix, waits));
            garden.end();
        }
    }
}

#[test]
fn a_strict_engine_makes_a_plain_run_an_error() {
    let garden = Garden::new(Engine::<SimDevice>::builder().strict());
    let device = Arc::clone(&garden.device);
    let waits = garden.function("waits", FunctionOptions::new(), move |running| {
        device.synchronize()?;
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        Ok(vec![running.mix(&a, &b, 1)?])
    });
    let mix = garden.mix("mix");
    let plain = garden.function("plain", FunctionOptions::new().mode(Mode::Eager), |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        Ok(vec![running.mix(&a, &b, 1)?])
    });
    let (a, b) = (garden.tensor(1), garden.tensor(2));
    let first = garden.one(&waits, &a, &b);
    assert_eq!(garden.value(&first), mix_of(1, 2));
    drop(first);
    let mut refusals = 0;
    for _ in 0..12 {
        match waits.call(args![&a, &b]) {
            // A warm-up that lies below that of another function.
            Ok(outputs) => {
                let [out] = outputs.into_array().unwrap();
                assert_eq!(garden.value(&out), mix_of(1, 2));
            }
            Err(Error::Skipped { function, .. }) => {
                assert_eq!(function, "waits");
                refusals += 1;
            }
            Err(other) => panic!("{other}"),
        }
        for function in [&mix, &plain] {
            let out = garden.one(function, &a, &b);
            assert_eq!(garden.value(&out), mix_of(1, 2));
        }
    }
    // Those of the function that is to run plainly are all that did.
    assert_eq!(garden.engine.stats().unwrap().calls.eager, 12);
    assert!(refusals >= 8, "{refusals}");
    drop((a, b, waits, mix, plain));
    garden.end();
}

#[test]
fn a_device_that_is_poisoned_says_so_at_every_call_and_shutdown_ends() {
    for nth in 1..12 {
        let garden = Garden::new(Engine::<SimDevice>::builder());
        let mix = garden.mix("mix");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let out = garden.one(&mix, &a, &b);
        garden.device.inject(Fault::at_any(nth, Failure::Poison));
        let mut failed = false;
        for _ in 0..6 {
            match mix.call(args![&a, &b]).map(drop) {
                Ok(()) => assert!(!failed, "{nth}: a call of a poisoned device"),
                Err(Error::Device(DeviceError::Fault { .. })) => failed = true,
                Err(Error::Pool(error)) if error.to_string().contains("injected") => failed = true,
                Err(other) => panic!("{nth}: {other:?}"),
            }
        }
        assert!(failed, "{nth}");
        assert!(matches!(garden.engine.shutdown(), Err(Error::Device(_))), "{nth}");
        assert_eq!(mix.call(args![&a, &b]).map(drop), Err(Error::ShutDown));
        drop((a, b, mix, out));
    }
}

#[test]
fn several_threads_may_call_one_engine() {
    for mode in [Mode::Trees, Mode::OnePool, Mode::Eager] {
        let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode).old_outputs(OldOutput::CopyOut));
        let functions: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .map(|name| {
                let options = FunctionOptions::new().old_outputs(OldOutput::CopyOut);
                garden.function(name, options, |running| {
                    let (a, b) = (running.context.take(0)?, running.context.take(1)?);
                    Ok(vec![running.mix(&a, &b, 1)?])
                })
            })
            .collect();
        let inputs: Vec<_> = (0..4).map(|thread| (garden.tensor(thread), garden.tensor(10))).collect();
        let outputs: Vec<Tensor> = std::thread::scope(|scope| {
            let call = |((a, b), function): (&(Tensor, Tensor), &graphgrove::Function<SimDevice>)| {
                let (a, b, function) = (a.clone(), b.clone(), function.clone());
                scope.spawn(move || {
                    let mut last = function.call(args![&a, &b]).unwrap().into_array::<1>().unwrap();
                    for _ in 0..30 {
                        last = function.call(args![&a, &b]).unwrap().into_array().unwrap();
                    }
                    let [last] = last;
                    last
                })
            };
            let threads: Vec<_> = inputs.iter().zip(&functions).map(call).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (thread, out) in (0..).zip(&outputs) {
            assert_eq!(garden.value(out), mix_of(thread, 10), "{mode:?}");
        }
        drop((functions, inputs, outputs));
        garden.end();
    }
}

#[test]
fn an_input_that_was_taken_or_never_there_is_a_typed_error() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let greedy = garden.function("greedy", FunctionOptions::new(), |running| {
        running.context.take(0)?;
        running.context.take(0).map(|_| Vec::new())
    });
    let lost = garden.function("lost", FunctionOptions::new(), |running| {
        running.context.param(0)?;
        running.context.empty(layout(1)).map(|out| vec![out])
    });
    let a = garden.tensor(1);
    for _ in 0..3 {
        let error = greedy.call(args![&a]).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "greedy has no input 0: it was taken");
        let error = lost.call(args![&a]).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "lost has no parameter 0: the call brings 0");
    }
    drop((a, greedy, lost));
    garden.end();
}
