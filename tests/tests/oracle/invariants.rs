//! The invariants of `ARCHITECTURE.md` that are best stated of the whole engine. 8 and 11 are properties of random programs, 10 is one
//! of the failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove::{Engine, Error, FunctionOptions, Limits, Mode, OldOutput, ParamSet, Tensor, args};
use graphgrove_device::{Call, Memory, Streams};
use graphgrove_sim::SimDevice;
use graphgrove_storage::Error as StorageError;
use graphgrove_tests::body::Machine;
use graphgrove_tests::kernels::viewed;
use graphgrove_tests::program::View;
use parking_lot::Mutex;

use crate::garden::{Garden, is_capturing, mix_of};

#[test]
fn invariant_01_no_two_live_blocks_of_a_pool_overlap_in_any_state_on_any_path() {
    for garden in Garden::both() {
        let (f, g) = (garden.mix("f"), garden.mix("g"));
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        // Each turn leaves another set of outputs live, so each is another path.
        for turn in 0..16_u32 {
            let mut live: Vec<Tensor> = Vec::new();
            for call in 0..4 {
                let function = if turn >> call & 1 == 0 { &f } else { &g };
                let out = garden.one(function, &a, &b);
                if turn & (1 << (3 - call)) != 0 {
                    live.push(out);
                }
                let mut regions: Vec<_> = live.iter().map(|out| out.address().unwrap().get()).collect();
                regions.sort_unstable();
                assert!(regions.windows(2).all(|pair| pair[0] + 32 <= pair[1]), "{turn} {call}");
            }
            assert!(live.iter().all(|out| garden.value(out) == mix_of(1, 2)), "{turn}");
        }
        drop((f, g, a, b));
        garden.end();
    }
}

#[test]
fn invariant_02_a_replay_never_writes_a_block_that_is_live_outside_of_it() {
    for rule in [OldOutput::CopyOut, OldOutput::Keep] {
        for garden in Garden::both() {
            let f = garden.function("f", FunctionOptions::new().old_outputs(rule), |running| {
                let (a, b) = (running.context.take(0)?, running.context.take(1)?);
                Ok(vec![running.mix(&a, &b, 1)?])
            });
            let b = garden.tensor(2);
            let mut live = Vec::new();
            for turn in 0..12 {
                let a = garden.tensor(turn);
                let out = garden.one(&f, &a, &b);
                if turn % 3 == 0 {
                    live.push((turn, out));
                }
                garden.engine.begin_step().unwrap();
                for (made, out) in &live {
                    assert_eq!(garden.value(out), mix_of(*made, 2), "{rule:?} {turn}");
                }
            }
            assert!(garden.engine.stats().unwrap().calls.replays > 0);
            drop((f, b, live));
            garden.end();
        }
    }
}

#[test]
fn invariant_03_one_storage_exists_for_each_block_on_a_path_and_its_liveness_is_the_blocks() {
    for garden in Garden::both() {
        let f = garden.function("f", FunctionOptions::new(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let out = running.mix(&a, &b, 1)?;
            let view = running.view(&out, View { skip: 4, step: 0 })?;
            Ok(vec![out.clone(), view, out])
        });
        // It hands its input on.
        let g = garden.function("g", FunctionOptions::new(), |running| {
            let a = running.context.take(0)?;
            Ok(vec![running.view(&a, View { skip: 0, step: 1 })?, a])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let mut place = None;
        for turn in 0..6 {
            let [whole, half, again] = f.call(args![&a, &b]).unwrap().into_array().unwrap();
            let [every_other, input] = g.call(args![&whole]).unwrap().into_array().unwrap();
            let all = [&whole, &half, &again, &every_other, &input];
            assert!(all.iter().all(|tensor| tensor.shares_storage(&whole).unwrap()), "{turn}");
            if turn > 1 {
                assert_eq!(*place.get_or_insert(whole.address().unwrap()), whole.address().unwrap());
            }
            // The last of the views keeps the block, which the next call of the path must leave alone.
            drop((whole, again, every_other, input));
            let next = garden.one(&garden.mix("next"), &half, &half);
            assert_eq!(
                (garden.value(&half), garden.value(&next)),
                (mix_of(1, 2), mix_of(mix_of(1, 2), mix_of(1, 2)))
            );
        }
        drop((f, g, a, b));
        garden.end();
    }
}

#[test]
fn invariant_04_recording_and_replay_leave_the_pool_liveness_and_values_the_same() {
    for garden in Garden::both() {
        let (f, g) = (garden.mix("f"), garden.mix("g"));
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let run = || {
            let first = garden.one(&f, &a, &b);
            let second = garden.one(&g, &first, &b);
            let values = (garden.value(&first), garden.value(&second));
            (first.address().unwrap(), second.address().unwrap(), values)
        };
        run();
        let recorded = run();
        let live = garden.engine.stats().unwrap().pools[0].ranges.live;
        for _ in 0..3 {
            assert_eq!(run(), recorded);
        }
        let calls = garden.engine.stats().unwrap().calls;
        assert_eq!((calls.recordings, calls.replays), (2, 6), "{calls:?}");
        // A branch below the replayed node brings the pool to where the recording had it.
        let first = garden.one(&f, &a, &b);
        let branch = garden.mix("branch");
        let (one, two) = (garden.one(&branch, &first, &b), garden.one(&branch, &first, &b));
        assert_eq!((garden.value(&one), garden.value(&two)), (recorded.2.1, recorded.2.1));
        drop((one, two, first));
        run();
        let after = garden.engine.stats().unwrap().pools[0].ranges;
        assert!(after.live <= live + 2 * 512, "{after:?} {live}");
        drop((f, g, branch, a, b));
        garden.end();
    }
}

#[test]
fn invariant_05_memory_given_up_before_or_during_a_recording_is_reusable_in_it() {
    for plan in [true, false] {
        let garden = Garden::new(Engine::<SimDevice>::builder().plan_memory(plan));
        let f = garden.mix("f");
        let g = garden.function("g", FunctionOptions::new(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let between = running.mix(&a, &b, 1)?;
            drop(a);
            Ok(vec![running.mix(&between, &b, 1)?])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        for turn in 0..5 {
            // Dead before: g's recording may have its memory.
            let dead = garden.one(&f, &a, &b);
            let input = garden.one(&f, &a, &b);
            let (dead_at, given_at) = (dead.address().unwrap(), input.address().unwrap());
            drop(dead);
            let [out] = g.call(args![input, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), mix_of(mix_of(mix_of(1, 2), 2), 2));
            if turn > 0 {
                let at = out.address().unwrap();
                assert!(at == given_at || at == dead_at, "{plan} {turn}: {at} {given_at} {dead_at}");
            }
        }
        drop((f, g, a, b));
        garden.end();
    }
}

#[test]
fn invariant_06_live_outputs_keep_their_addresses_and_contents_across_a_restore() {
    for garden in Garden::both() {
        let (f, a, b) = (garden.mix("f"), garden.tensor(1), garden.tensor(2));
        for _ in 0..3 {
            drop(garden.one(&f, &a, &b));
        }
        let live = garden.one(&f, &a, &b);
        let at = live.address().unwrap();
        for name in ["g", "h", "i"] {
            // Each is warmed up and recorded below the replayed f, from the state that f has left.
            let branch = garden.mix(name);
            for _ in 0..3 {
                let out = garden.one(&branch, &live, &b);
                assert_eq!(garden.value(&out), mix_of(mix_of(1, 2), 2), "{name}");
                assert_eq!((live.address().unwrap(), garden.value(&live)), (at, mix_of(1, 2)), "{name}");
            }
        }
        assert!(garden.engine.stats().unwrap().pools[0].counts.restores > 2);
        drop((f, a, b, live));
        garden.end();
    }
}

#[test]
fn invariant_07_a_forward_holds_what_its_backward_needs_and_nothing_once_that_cannot_run() {
    for garden in Garden::both() {
        let forward = garden.function("forward", FunctionOptions::new(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let saved = running.mix(&a, &b, 5)?;
            running.context.save(&saved);
            Ok(vec![running.mix(&saved, &b, 1)?])
        });
        let backward = garden.function("backward", FunctionOptions::new(), |running| {
            let (saved, b) = (running.context.take_saved(0)?, running.context.take(0)?);
            Ok(vec![running.mix(&saved, &b, 1)?])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let saved = graphgrove_tests::kernels::mixed(1, 2, 5);
        let mut live = Vec::new();
        for turn in 0..8 {
            let (outputs, token) = forward.calling().forward(args![&a, &b]).unwrap();
            drop(outputs);
            // A step in between takes the outputs, but never what is saved.
            garden.engine.begin_step().unwrap();
            let (outputs, lost) = forward.calling().forward(args![&b, &b]).unwrap();
            drop((outputs, lost));
            let [out] = backward.calling().backward(token, args![&b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), mix_of(saved, 2), "{turn}");
            drop(out);
            // A plain call of the path sees that nothing is pending.
            let _ = forward.call(args![&a, &b]).unwrap();
            let stats = garden.engine.stats().unwrap();
            assert_eq!(stats.pending_backwards, 0, "{turn}");
            live.push(stats.pools[0].ranges.reserved);
        }
        assert!(live[3..].windows(2).all(|pair| pair[0] == pair[1]), "the pool grows: {live:?}");
        drop((forward, backward, a, b));
        garden.end();
    }
}

#[test]
fn invariant_09_a_stale_handle_never_reads_in_any_way() {
    for garden in Garden::both() {
        let (f, a, b) = (garden.mix("f"), garden.tensor(1), garden.tensor(2));
        // What made it: the warm-up, the recording, a replay.
        for made in 0..4 {
            let old = garden.one(&f, &a, &b);
            let view = viewed(&old, View { skip: 2, step: 0 }).unwrap();
            garden.engine.begin_step().unwrap();
            let new = garden.one(&f, &b, &a);
            assert_eq!(garden.value(&new), mix_of(2, 1));
            for stale in [&old, &view] {
                let is_stale = |error: StorageError| matches!(error, StorageError::Stale(_));
                assert!(is_stale(stale.address().unwrap_err()), "{made}");
                assert!(is_stale(stale.storage().base().unwrap_err()), "{made}");
                assert!(is_stale(viewed(stale, View { skip: 0, step: 0 }).unwrap_err()), "{made}");
                assert!(stale.clone().locate().is_none(), "{made}");
                assert!(ParamSet::new(vec![stale.clone()]).is_err(), "{made}");
                let before = garden.engine.stats().unwrap().calls;
                let called = f.call(args![&a, stale]).map(drop);
                assert!(matches!(called, Err(Error::Storage(StorageError::Stale(_)))), "{made} {called:?}");
                let called = f.calling().forward(args![stale.clone(), &b]).map(drop);
                assert!(matches!(called, Err(Error::Storage(StorageError::Stale(_)))), "{made} {called:?}");
                assert_eq!(garden.engine.stats().unwrap().calls, before, "{made}");
            }
            assert_eq!(garden.value(&new), mix_of(2, 1));
        }
        drop((f, a, b));
        garden.end();
    }
}

#[test]
fn invariant_12_a_users_drop_never_calls_the_driver_while_a_capture_is_open() {
    for garden in Garden::both() {
        let to_drop: Arc<Mutex<Vec<Box<dyn std::any::Any + Send>>>> = Arc::default();
        let captured = Arc::new(AtomicBool::new(false));
        let (things, seen, engine) = (Arc::clone(&to_drop), Arc::clone(&captured), garden.engine.clone());
        let f = garden.function("f", FunctionOptions::new(), move |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let out = running.mix(&a, &b, 1)?;
            if is_capturing(&engine) {
                let before = engine.device().counts();
                let things = std::mem::take(&mut *things.lock());
                seen.store(!things.is_empty(), Ordering::Relaxed);
                std::thread::scope(|scope| scope.spawn(move || drop(things)).join()).unwrap();
                let during = engine.device().counts().since(&before);
                assert_eq!(during.total(), 0, "{during:?}");
            }
            Ok(vec![out])
        });
        let mix = garden.mix("mix");
        let plain = garden.function("plain", FunctionOptions::new().mode(Mode::Eager), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            Ok(vec![running.mix(&a, &b, 1)?])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        // The last handle of a pool that was reset away, an output of the path, a plain one, a token, and memory of the caller's own.
        let orphan = garden.one(&mix, &a, &b);
        garden.engine.reset().unwrap();
        let _ = f.call(args![&a, &b]).unwrap();
        let (output, token) = mix.calling().forward(args![&a, &b]).unwrap();
        let segment = garden.device.allocate(64).unwrap();
        let mut things = to_drop.lock();
        things.push(Box::new((orphan, output.into_vec().unwrap(), garden.one(&plain, &a, &b))));
        things.push(Box::new((token, segment)));
        drop(things);
        garden.engine.begin_step().unwrap();
        for _ in 0..4 {
            let out = garden.one(&f, &a, &b);
            assert_eq!(garden.value(&out), mix_of(1, 2));
        }
        assert!(captured.load(Ordering::Relaxed), "nothing was dropped in a capture");
        assert_eq!(garden.engine.stats().unwrap().calls.failures, 0);
        // The function has the engine, which has the function.
        garden.engine.shutdown().unwrap();
        drop((f, mix, plain, a, b));
        garden.end();
    }
}

#[test]
fn invariant_13_all_memory_returns_when_the_engine_and_the_last_output_are_gone_in_any_order() {
    for order in 0..3 {
        for mode in [Mode::Trees, Mode::OnePool, Mode::Eager] {
            let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
            let (mix, a, b) = (garden.mix("mix"), garden.tensor(1), garden.tensor(2));
            let mut outputs = Vec::new();
            for _ in 0..4 {
                let out = garden.one(&mix, &a, &b);
                outputs.push(garden.one(&mix, &out, &b));
            }
            let (_, token) = mix.calling().forward(args![&a, &b]).unwrap();
            let info = garden.device.memory_info().unwrap();
            assert!(info.free < info.total);
            drop((a, b));
            match order {
                0 => drop(outputs),
                1 => {
                    garden.engine.shutdown().unwrap();
                    drop((mix, token, outputs));
                    garden.end();
                    continue;
                }
                _ => {
                    garden.engine.reset().unwrap();
                    drop(outputs);
                }
            }
            drop((mix, token));
            garden.end();
        }
    }
}

#[test]
fn invariant_14_memory_and_recordings_stay_within_their_bounds_whatever_the_traffic() {
    let limits = Limits { recordings_per_function: 8, siblings: 4, rerecordings: 1000, ..Limits::default() };
    let garden = Garden::new(Engine::<SimDevice>::builder().limits(limits).budget(1 << 22));
    let f = garden.function("f", FunctionOptions::new().old_outputs(OldOutput::CopyOut), |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        let k = running.context.value(2)? as u32;
        Ok(vec![running.mix(&a, &b, k)?])
    });
    let (a, b) = (garden.tensor(1), garden.tensor(2));
    let mut held: Vec<Tensor> = Vec::new();
    for turn in 0..400_u64 {
        // Each value twice, so that each is warmed up and recorded; now and then something is kept, or a step begins.
        let value = turn / 2 % 50;
        let [out] = f.call(args![&a, &b, value]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&out), graphgrove_tests::kernels::mixed(1, 2, value as u32));
        if turn % 3 == 0 {
            held.push(out);
        }
        if turn % 7 == 0 {
            garden.engine.begin_step().unwrap();
        }
        held.truncate(4);
        let stats = garden.engine.stats().unwrap();
        assert!(stats.nodes <= 8, "{turn}: {} recordings", stats.nodes);
        assert!(stats.pools.iter().all(|pool| pool.ranges.reserved <= 1 << 22), "{turn}");
    }
    drop((f, a, b, held));
    garden.end();
}

#[test]
fn invariant_15_a_replay_is_one_driver_call_and_one_more_for_changed_addresses_and_two_for_a_stream() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, a, b) = (garden.mix("f"), garden.tensor(1), garden.tensor(2));
    let (c, d) = (garden.tensor(3), garden.tensor(4));
    let other = garden.device.create_stream().unwrap();
    for _ in 0..4 {
        let _ = garden.one(&f, &a, &b);
    }
    let calls = |a: &Tensor, b: &Tensor, elsewhere: bool| {
        let before = garden.device.counts();
        let calling = if elsewhere { f.calling().on(&other) } else { f.calling() };
        let [out] = calling.call(args![a, b]).unwrap().into_array().unwrap();
        let counts = garden.device.counts().since(&before);
        drop(out);
        (counts.total(), counts.of(Call::LaunchExec))
    };
    assert_eq!(calls(&a, &b, false), (1, 1));
    let patches = calls(&c, &d, false).0 - 1;
    // One gather node for all staged inputs, or one kernel that has them as arguments.
    assert_eq!(patches, 1);
    assert_eq!(calls(&c, &d, false), (1, 1));
    // The first change of streams makes an event as well.
    calls(&c, &d, true);
    assert_eq!(calls(&c, &d, true), (1, 1));
    assert_eq!(calls(&c, &d, false), (3, 1));
    assert_eq!(calls(&a, &d, true), (4, 1));
    assert_eq!(garden.engine.stats().unwrap().calls.eager, 0);
    drop((f, a, b, c, d, other));
    garden.end();
}
