//! Outputs that are live when a step begins, of functions that have them copied out.

use graphgrove::{Engine, Error, Function, FunctionOptions, OldOutput, Tensor, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, N, copied};

fn lasting(garden: &Garden, name: &'static str) -> Function<SimDevice> {
    let options = FunctionOptions::new().old_outputs(OldOutput::CopyOut);
    garden.engine.function_with(name, options, |cx| Ok(vec![copied(cx)?]))
}

fn copied_out(garden: &Garden) -> u64 {
    garden.engine.stats().unwrap().calls.copied_out
}

/// The size of every tensor here, in bytes.
const BYTES: u64 = 4 * N;

#[test]
fn a_live_output_is_copied_out_once_and_a_dead_one_never() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = lasting(&garden, "f");
    let mut kept: Vec<(f32, Tensor)> = Vec::new();
    for turn in 0..6 {
        garden.engine.begin_step().unwrap();
        let before = copied_out(&garden);
        let [out] = f.call(args![&garden.fresh(turn as f32)]).unwrap().into_array().unwrap();
        // Every second output is dropped before its step ends.
        assert_eq!(copied_out(&garden) - before, if turn % 2 == 1 { BYTES } else { 0 }, "{turn}");
        if turn % 2 == 0 {
            kept.push((turn as f32, out));
        }
        for (value, tensor) in &kept {
            assert_eq!(garden.value(tensor), *value, "{turn}");
        }
    }
    assert_eq!(garden.engine.stats().unwrap().calls.replays, 4);
    garden.device.verdict().unwrap();
}

#[test]
fn aliases_of_an_old_output_are_copied_out_together_and_stay_aliases() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = garden.engine.function_with("f", FunctionOptions::new().old_outputs(OldOutput::CopyOut), |cx| {
        let out = copied(cx)?;
        Ok(vec![out.clone(), out.slice(0, 2..N, 1)?])
    });
    // An alias that the caller makes, and one that a function below makes.
    let again = garden.engine.function("again", |cx| Ok(vec![cx.input(0)?.slice(0, 1..N, 1)?]));
    for turn in 0..5 {
        garden.engine.begin_step().unwrap();
        let [whole, part] = f.call(args![&garden.fresh(turn as f32)]).unwrap().into_array().unwrap();
        let [below] = again.call(args![&whole]).unwrap().into_array().unwrap();
        let own = whole.slice(0, 3..N, 1).unwrap();
        drop(whole);
        let before = copied_out(&garden);
        garden.engine.begin_step().unwrap();
        let _ = f.call(args![&garden.fresh(99.0)]).unwrap();
        assert_eq!(copied_out(&garden) - before, BYTES, "{turn}");
        for alias in [&part, &below, &own] {
            assert_eq!(garden.value(alias), turn as f32);
            assert!(alias.shares_storage(&own).unwrap());
        }
    }
    garden.device.verdict().unwrap();
}

#[test]
fn an_old_output_that_goes_into_the_call_that_begins_the_step_is_read_before_it_is_gone() {
    for rule in [OldOutput::CopyOut, OldOutput::Error] {
        let garden = Garden::new(Engine::<SimDevice>::builder().old_outputs(rule));
        let f = garden.add("f");
        let one = garden.fresh(1.0);
        let mut state = garden.fresh(0.0);
        for turn in 1..=6 {
            garden.engine.begin_step().unwrap();
            let [next] = f.call(args![&state, &one]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&next), turn as f32, "{rule:?}");
            if turn > 1 {
                let old = garden.engine.read::<f32>(&state);
                match rule {
                    OldOutput::CopyOut => assert_eq!(old.unwrap()[0], turn as f32 - 1.0),
                    _ => assert!(matches!(old, Err(Error::Storage(_))), "{old:?}"),
                }
            }
            state = next;
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn what_a_pending_backward_needs_survives_a_step_whoever_else_holds_it() {
    for held in ["nobody", "the caller", "a view of the caller's"] {
        let garden = Garden::new(Engine::<SimDevice>::builder());
        let forward = garden.engine.function("forward", |cx| {
            let out = copied(cx)?;
            cx.save(&out);
            Ok(vec![out])
        });
        let backward = garden.engine.function("backward", |cx| {
            let saved = cx.take_saved(0)?;
            let out = cx.empty(saved.layout().clone())?;
            cx.copy(&out, &saved)?;
            Ok(vec![out])
        });
        for turn in 0..5 {
            garden.engine.begin_step().unwrap();
            let (outputs, token) = forward.forward(args![&garden.fresh(turn as f32)]).unwrap();
            let [out] = outputs.into_array().unwrap();
            let handle = match held {
                "nobody" => None,
                "the caller" => Some(out),
                _ => Some(out.slice(0, 2..N, 1).unwrap()),
            };
            let before = copied_out(&garden);
            garden.engine.begin_step().unwrap();
            let (_, lost) = forward.forward(args![&garden.fresh(99.0)]).unwrap();
            drop(lost);
            assert_eq!(copied_out(&garden) - before, BYTES, "{held} {turn}");
            if let Some(handle) = &handle {
                // It lies in memory that is kept for the backward.
                assert_eq!(garden.value(handle), turn as f32, "{held} {turn}");
            }
            let [gradient] = backward.backward(token, args![]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&gradient), turn as f32, "{held} {turn}");
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_stale_output_says_who_made_it_and_who_ended_it() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g, input) = (garden.copy("the producer"), garden.copy("the ender"), garden.fresh(3.0));
    for ran in ["warm-up", "recording", "replay"] {
        garden.engine.begin_step().unwrap();
        let [old] = f.call(args![&input]).unwrap().into_array().unwrap();
        garden.engine.begin_step().unwrap();
        let _ = g.call(args![&input]).unwrap();
        let said = garden.engine.read::<f32>(&old).unwrap_err().to_string();
        assert!(said.contains("the producer") && said.contains("the ender"), "{ran}: {said}");
    }
}

#[test]
fn copies_for_backwards_that_never_run_are_given_back_and_their_tokens_not_counted() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let save = garden.engine.function("save", |cx| {
        let out = copied(cx)?;
        cx.save(&out);
        Ok(vec![])
    });
    let input = garden.tensor(1.0);
    let plain_live = || garden.engine.stats().unwrap().plain.ranges.live;
    let before = plain_live();
    let mut tokens = Vec::new();
    for _ in 0..9 {
        garden.engine.begin_step().unwrap();
        tokens.push(save.forward(args![&input]).unwrap().1);
    }
    assert!(plain_live() > before, "what old tokens have saved is copied out");
    assert!(garden.engine.stats().unwrap().pending_backwards > 0);
    drop(tokens);
    assert_eq!(garden.engine.stats().unwrap().pending_backwards, 0);
    garden.engine.begin_step().unwrap();
    assert_eq!(plain_live(), before);
    garden.device.verdict().unwrap();
}

#[test]
fn a_stale_output_says_in_which_step_it_was_made_and_which_has_ended_it() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let make = garden.copy("make");
    let input = garden.tensor(1.0);
    let mut old = None;
    for step in 1..=5 {
        garden.engine.begin_step().unwrap();
        let [made] = make.call(args![&input]).unwrap().into_array().unwrap();
        if let Some(old) = old.replace(made) {
            let said = garden.engine.read::<f32>(&old).unwrap_err().to_string();
            let expected = format!("made in step {}, is gone: step {step} began with make", step - 1);
            assert!(said.contains(&expected), "{said}");
        }
    }
}
