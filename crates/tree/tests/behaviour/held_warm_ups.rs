//! Warm-ups that something still needs: they hold back recording only until the next step, or for so many calls.

use crate::driver::{Driver, x};
use graphgrove_tree::{Call, Fate, FunctionSpec, Limits, Notice, OldOutput, Options, Output, PathChange};

#[test]
fn a_kept_output_of_a_warm_up_is_copied_out_at_the_next_step() {
    let mut e = Driver::default();
    let keep = FunctionSpec::new("init").at_new_step(OldOutput::Keep);
    let init = e.function_of(keep, vec![Output::fresh()]);
    let f = e.function("f", 1);
    let y = e.infer(init, &[x(1)]);
    assert!(y.is_warm_up());
    let mut did = Vec::new();
    for step in 0..100 {
        e.tree.begin_step();
        let z = e.infer(f, &[x(1)]);
        if step == 0 {
            let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
            assert_eq!((end.slots[0].value, end.slots[0].fate), (y.outputs[0], Fate::CopyOut));
        }
        e.forget(&z);
        did.push(z);
    }
    assert!(
        did[0].is_warm_up() && did[1].is_record() && did[2..].iter().all(crate::driver::Outcome::is_replay)
    );
}

#[test]
fn a_path_that_a_recording_keeps_ends_all_the_same_when_a_warm_up_below_is_needed() {
    let mut e = Driver::default();
    let keep = FunctionSpec::new("init").at_new_step(OldOutput::Keep);
    let init = e.function_of(keep, vec![Output::fresh()]);
    let (cold, f) = (e.function("cold", 1), e.function("f", 1));
    e.settle(&Call::inference(init, &[x(1)]));
    let y = e.infer(init, &[x(1)]);
    let _held = e.infer(cold, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(f, &[x(1)]);
    let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
    let fates: Vec<_> = end.slots.iter().map(|old| old.fate).collect();
    assert_eq!((end.slots[0].value, &*fates), (y.outputs[0], &[Fate::CopyOut, Fate::Invalidate][..]));
}

#[test]
fn a_pending_backward_of_a_warm_up_that_holds_back_recording_for_many_calls_is_said_once() {
    let mut e = Driver::default();
    let (held, f) = (e.function("held", 1), e.function("f", 1));
    let y = e.forward(held, &[x(1)]);
    e.release(&y.outputs);
    let limit = e.tree.options().limits.loop_length;
    for turn in 0..100 {
        let z = e.infer(f, &[x(1)]);
        e.forget(&z);
        assert!(z.is_warm_up());
        let expected = (turn == limit + 1).then_some(Notice::HeldByWarmUp { function: f, holder: held });
        assert_eq!(e.tree.take_notices(), Vec::from_iter(expected), "turn {turn}");
    }
    e.tree.begin_step();
    assert!(e.infer(f, &[x(1)]).is_record(), "a step is the bound");
}

#[test]
fn a_live_value_of_a_warm_up_holds_back_a_bounded_number_of_calls_without_any_step() {
    let mut e = Driver::default();
    let (held, f) = (e.function("held", 1), e.function("f", 1));
    let y = e.infer(held, &[x(1)]);
    let limit = e.tree.options().limits.loop_length as usize;
    let mut did = Vec::new();
    for turn in 0..100 {
        let z = e.infer(f, &[x(1)]);
        e.forget(&z);
        if turn == limit + 1 {
            let Some(PathChange::LoopTurns(end)) = &z.change else { panic!("{:?}", z.change) };
            let fates: Vec<_> = end.slots.iter().map(|old| (old.value, old.fate)).collect();
            assert_eq!(fates, [(y.outputs[0], Fate::CopyOut)]);
        }
        did.push(z);
    }
    assert!(did[..=limit].iter().all(crate::driver::Outcome::is_warm_up));
    assert!(did[limit + 1].is_record() && did[limit + 2..].iter().all(crate::driver::Outcome::is_replay));
    assert_eq!(e.tree.take_notices(), []);
}

#[test]
fn a_call_that_is_cold_does_not_end_a_path_that_a_warm_up_holds() {
    let limits = Limits { loop_length: 2, ..Limits::default() };
    let mut e = Driver::new(Options { limits, ..Options::default() });
    let (held, f, cold) = (e.function("held", 1), e.function("f", 1), e.function("cold", 1));
    let y = e.infer(held, &[x(1)]);
    for _ in 0..3 {
        let z = e.infer(f, &[x(1)]);
        e.forget(&z);
    }
    let z = e.infer(cold, &[x(1)]);
    assert_eq!(z.change, Some(PathChange::DropsUnneededTail), "it has to warm up in any case");
    e.forget(&z);
    assert!(e.live.is_live(y.outputs[0].slot));
    assert!(e.infer(f, &[x(1)]).is_record());
}

#[test]
fn a_call_that_really_is_cold_below_a_warm_up_is_not_held_back_by_it() {
    let mut e = Driver::default();
    let (held, f) = (e.function("held", 1), e.function("f", 1));
    let _y = e.infer(held, &[x(1)]);
    for signature in 0..8 {
        let z = e.infer(f, &[x(signature)]);
        e.forget(&z);
    }
    assert_eq!(e.tree.take_notices(), []);
}
