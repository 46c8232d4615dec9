//! Programs that went wrong once, each by what they need.

use graphgrove::{Engine, FunctionOptions, Layers, Mode, OldOutput, ParamSet, args};
use graphgrove_device::{HostMemory, Memory, Streams};
use graphgrove_sim::SimDevice;
use graphgrove_tests::body::Machine;
use graphgrove_tests::kernels::{layout, mixed, viewed};
use graphgrove_tests::program::View;

use crate::garden::{Garden, N, mix_of, sum_of};

#[test]
fn a_staging_buffer_of_the_reference_path_may_be_written_again_at_every_replay() {
    let garden = Garden::new(Engine::<SimDevice>::builder().layers(Layers::prefix(3)));
    let (mix, accumulate) = (garden.mix("mix"), garden.accumulate("accumulate"));
    let (state, b) = (garden.tensor(1), garden.tensor(2));
    let mut expected = 1;
    for turn in 0..6 {
        let a = garden.tensor(turn);
        let out = garden.one(&mix, &a, &b);
        let _ = accumulate.call(args![&state, &out]).unwrap();
        expected = sum_of(expected, mix_of(turn, 2));
        assert_eq!((garden.value(&out), garden.value(&state)), (mix_of(turn, 2), expected), "{turn}");
    }
    assert!(garden.engine.stats().unwrap().calls.replays > 0);
    drop((mix, accumulate, state, b));
    garden.end();
}

#[test]
fn a_function_whose_outputs_share_memory_runs_without_a_storage_cache() {
    let garden = Garden::new(Engine::<SimDevice>::builder().layers(Layers::prefix(2)));
    let twice = garden.function("twice", FunctionOptions::new().mutates([0]), |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        running.accumulate(&a, &b, 1)?;
        let out = running.mix(&a, &b, 1)?;
        Ok(vec![out.clone(), out])
    });
    let (state, b) = (garden.tensor(1), garden.tensor(2));
    let mut expected = 1;
    for turn in 0..5 {
        let [one, two] = twice.call(args![&state, &b]).unwrap().into_array().unwrap();
        // What it writes is written once, the call that shows the sharing included.
        expected = sum_of(expected, 2);
        assert_eq!(garden.value(&state), expected, "{turn}");
        assert_eq!([garden.value(&one), garden.value(&two)], [mix_of(expected, 2); 2], "{turn}");
        assert!(one.shares_storage(&two).unwrap());
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.eager), (1, 0, 4), "{calls:?}");
    drop((twice, state, b));
    garden.end();
}

#[test]
fn an_output_that_is_a_staged_input_leaves_no_buffer_in_the_pool() {
    for garden in Garden::both() {
        let hands_on = garden.function("hands on", FunctionOptions::new(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            drop(running.mix(&a, &b, 1)?);
            Ok(vec![a, b])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        let stream = garden.device.create_stream().unwrap();
        for _ in 0..5 {
            let [one, two] =
                hands_on.calling().on(&stream).call(args![&a, &b]).unwrap().into_array().unwrap();
            assert!(one.shares_storage(&a).unwrap() && two.shares_storage(&b).unwrap());
            assert_eq!(garden.engine.stats().unwrap().pools[0].ranges.live, 0);
        }
        drop((hands_on, a, b, stream));
        garden.end();
    }
}

#[test]
fn calls_of_several_pools_on_several_streams_see_what_the_calls_before_them_have_left() {
    let garden = Garden::new(Engine::<SimDevice>::builder().mode(Mode::OnePool));
    let (mix, accumulate) = (garden.mix("mix"), garden.accumulate("accumulate"));
    let (state, b) = (garden.tensor(1), garden.tensor(2));
    let stream = garden.device.create_stream().unwrap();
    let mut expected = 1;
    for turn in 0..6 {
        let [out] = mix.calling().on(&stream).call(args![&state, &b]).unwrap().into_array().unwrap();
        let _ = accumulate.call(args![&state, &b]).unwrap();
        assert_eq!(garden.value(&out), mix_of(expected, 2), "{turn}");
        expected = sum_of(expected, 2);
        assert_eq!(garden.value(&state), expected, "{turn}");
    }
    drop((mix, accumulate, state, b, stream));
    garden.end();
}

#[test]
fn what_a_call_writes_to_an_input_that_its_step_copies_out_is_seen_by_all_handles() {
    for garden in Garden::both() {
        let options = || FunctionOptions::new().old_outputs(OldOutput::CopyOut);
        let mix = garden.function("mix", options(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            Ok(vec![running.mix(&a, &b, 1)?])
        });
        let accumulate = garden.accumulate("accumulate");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        for turn in 0..5 {
            let state = garden.one(&mix, &a, &b);
            let other = state.clone();
            garden.engine.begin_step().unwrap();
            let _ = accumulate.call(args![state, &b]).unwrap();
            assert_eq!(garden.value(&other), sum_of(mix_of(1, 2), 2), "{turn}");
        }
        drop((mix, accumulate, a, b));
        garden.end();
    }
}

#[test]
fn memory_of_a_pool_that_was_reset_away_stays_until_work_that_was_given_it_is_over() {
    for garden in Garden::both() {
        let mix = garden.mix("mix");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        for turn in 0..4 {
            let old = garden.one(&mix, &a, &b);
            garden.engine.reset().unwrap();
            // Its last handle goes with the call, whose work has not run yet.
            let [out] = mix.call(args![old, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), mix_of(mix_of(1, 2), 2), "{turn}");
        }
        drop((mix, a, b));
        garden.end();
    }
}

#[test]
fn an_output_may_be_a_parameter_that_is_misaligned_and_so_is_staged() {
    for garden in Garden::both() {
        let returns = garden.function("returns", FunctionOptions::new(), |running| {
            let (a, weight) = (running.context.take(0)?, running.context.param(0)?.clone());
            Ok(vec![running.mix(&a, &weight, 1)?, weight])
        });
        let (a, weight) = (garden.tensor(1), garden.tensor(2));
        let params = ParamSet::new(vec![viewed(&weight, View { skip: 1, step: 0 }).unwrap()]).unwrap();
        for _ in 0..5 {
            let [out, same] = returns.with(&params).call(args![&a]).unwrap().into_array().unwrap();
            assert_eq!((garden.value(&out), garden.value(&same)), (mix_of(1, 2), 2));
            assert!(same.shares_storage(&weight).unwrap());
        }
        drop((returns, a, weight, params));
        garden.end();
    }
}

#[test]
fn an_input_that_was_the_parameter_when_it_was_recorded_is_not_taken_for_it_later() {
    for garden in Garden::both() {
        let returns = garden.function("returns", FunctionOptions::new(), |running| {
            let (a, weight) = (running.context.take(0)?, running.context.param(0)?.clone());
            Ok(vec![running.mix(&a, &weight, 1)?, weight])
        });
        let (a, weight) = (garden.tensor(1), garden.tensor(2));
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        for (turn, input) in [&weight, &weight, &a, &weight, &a].into_iter().enumerate() {
            let [out, same] = returns.with(&params).call(args![input]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), mix_of(garden.value(input), 2), "{turn}");
            assert!(same.shares_storage(&weight).unwrap(), "{turn}");
        }
        drop((returns, a, weight, params));
        garden.end();
    }
}

#[test]
fn views_of_one_output_that_a_step_tears_from_their_path_are_written_and_read_as_before() {
    for garden in Garden::both() {
        let mix = garden.mix("mix");
        let accumulate = garden.accumulate("accumulate");
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        for turn in 0..5 {
            let whole = garden.one(&mix, &a, &b);
            let half = viewed(&whole, View { skip: 4, step: 0 }).unwrap();
            let kept = garden.one(&mix, &whole, &b);
            garden.engine.begin_step().unwrap();
            // Both are managed inputs of the path that ends, and lie in one another.
            let _ = accumulate.call(args![half, whole]).unwrap();
            let value = garden.one(&mix, &a, &b);
            assert_eq!(garden.value(&value), mix_of(1, 2), "{turn}");
            drop(kept);
        }
        drop((mix, accumulate, a, b));
        garden.end();
    }
}

#[test]
fn a_host_input_is_read_anew_at_every_call() {
    for garden in Garden::both() {
        let uploads = garden.function("uploads", FunctionOptions::new(), |running| {
            let b = running.context.take(1)?;
            let a = running.context.empty(layout(N))?;
            running.context.upload(&a, 0)?;
            Ok(vec![running.mix(&a, &b, 1)?])
        });
        let b = garden.tensor(2);
        let buffers: Vec<_> = (0..2).map(|_| garden.device.host_buffer(4 * N).unwrap()).collect();
        for turn in 0..8_u32 {
            let buffer = &buffers[turn as usize / 2 % 2];
            let bytes: Vec<u8> = std::iter::repeat_n(turn.to_le_bytes(), N).flatten().collect();
            buffer.write(0, &bytes).unwrap();
            let args = [graphgrove::Arg::Host(buffer), graphgrove::Arg::Kept(&b)];
            let [out] = uploads.call(args).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), mix_of(turn, 2), "{turn}");
        }
        drop((uploads, b, buffers));
        garden.end();
    }
}

#[test]
fn a_function_may_have_more_outputs_than_a_word_has_bits() {
    const OUTPUTS: usize = 131;
    for garden in Garden::both() {
        let many = garden.function("many", FunctionOptions::new(), |running| {
            let a = running.context.take(0)?;
            (0..OUTPUTS).map(|at| running.mix(&a, &a, at as u32)).collect()
        });
        let next = garden.mix("next");
        for turn in 0..6_usize {
            let a = garden.tensor(turn as u32);
            let mut outputs = many.call(args![&a]).unwrap();
            let kept: Vec<_> =
                (turn % 3..OUTPUTS).step_by(7).map(|at| (at, outputs.take(at).unwrap())).collect();
            drop(outputs);
            let (_, first) = kept.first().unwrap();
            let after = garden.one(&next, first, &a);
            for (at, out) in &kept {
                assert_eq!(garden.value(out), mixed(turn as u32, turn as u32, *at as u32), "{turn} {at}");
            }
            assert_eq!(garden.value(&after), mix_of(garden.value(first), turn as u32));
        }
        drop((many, next));
        garden.end();
    }
}

#[test]
fn an_input_that_is_misaligned_on_its_path_may_be_given_up_and_returned() {
    for garden in Garden::both() {
        let makes = garden.function("makes", FunctionOptions::new(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            let made = running.mix(&a, &b, 1)?;
            Ok(vec![running.view(&made, View { skip: 1, step: 0 })?])
        });
        let returns = garden.function("returns", FunctionOptions::new(), |running| {
            let a = running.context.take(0)?;
            drop(running.mix(&a, &a, 1)?);
            Ok(vec![a])
        });
        let (a, b) = (garden.tensor(1), garden.tensor(2));
        for turn in 0..5 {
            let view = garden.one(&makes, &a, &b);
            let [same] = returns.call(args![view]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&same), mix_of(1, 2), "{turn}");
        }
        drop((makes, returns, a, b));
        garden.end();
    }
}

#[test]
fn an_output_may_lie_where_an_input_was_that_its_call_has_given_up() {
    for garden in Garden::both() {
        let next = garden.function("next", FunctionOptions::new(), |running| {
            let a = running.context.take(0)?;
            let between = running.mix(&a, &a, 0)?;
            drop(a);
            Ok(vec![running.mix(&between, &between, 1)?])
        });
        let expected = |a| {
            let between = mixed(a, a, 0);
            mixed(between, between, 1)
        };
        for turn in 0..6 {
            let [one] = next.call(args![garden.tensor(turn)]).unwrap().into_array().unwrap();
            let [two] = next.call(args![one]).unwrap().into_array().unwrap();
            let [three] = next.call(args![two]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&three), expected(expected(expected(turn))), "{turn}");
        }
        drop(next);
        garden.end();
    }
}

#[test]
fn an_output_whose_address_somebody_has_is_left_alone_and_calls_go_on_plainly() {
    for rule in [OldOutput::Error, OldOutput::CopyOut] {
        for garden in Garden::both() {
            let mix = garden.function("mix", FunctionOptions::new().old_outputs(rule), |running| {
                let (a, b) = (running.context.take(0)?, running.context.take(1)?);
                Ok(vec![running.mix(&a, &b, 1)?])
            });
            let (a, b) = (garden.tensor(1), garden.tensor(2));
            for turn in 0..4 {
                let out = garden.one(&mix, &a, &b);
                let pin = out.pin().unwrap();
                let at = out.address().unwrap();
                for _ in 0..3 {
                    garden.engine.begin_step().unwrap();
                    let other = garden.one(&mix, &b, &a);
                    assert_eq!(garden.value(&other), mix_of(2, 1), "{rule:?} {turn}");
                    assert_eq!(
                        (garden.value(&out), out.address().unwrap()),
                        (mix_of(1, 2), at),
                        "{rule:?} {turn}"
                    );
                }
                drop(pin);
                let other = garden.one(&mix, &b, &a);
                assert_eq!(garden.value(&other), mix_of(2, 1), "{rule:?} {turn}");
            }
            let calls = garden.engine.stats().unwrap().calls;
            assert!(calls.eager >= 10 && calls.replays > 0, "{calls:?}");
            drop((mix, a, b));
            garden.end();
        }
    }
}

#[test]
fn a_copy_that_was_made_for_one_call_on_another_stream_is_not_reused_under_it() {
    for mode in [Mode::OnePool, Mode::Trees] {
        let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
        let (mix, other) = (garden.mix("mix"), garden.device.create_stream().unwrap());
        let (mut last, mut expected) = (None, None);
        for turn in 0..6 {
            garden.engine.begin_step().unwrap();
            let (a, b) = (garden.tensor(turn), last.take().unwrap_or_else(|| garden.tensor(2)));
            // The step copies what its call still reads of the step before.
            let [out] = mix.calling().on(&other).call(args![a, b]).unwrap().into_array().unwrap();
            // A look at the pools makes them take note of what was dropped.
            garden.engine.stats().unwrap();
            expected = Some(mix_of(turn, expected.unwrap_or(2)));
            last = Some(out);
        }
        let last = last.unwrap();
        assert_eq!(Some(garden.value(&last)), expected, "{mode:?}");
        drop((mix, last, other));
        garden.end();
    }
}
