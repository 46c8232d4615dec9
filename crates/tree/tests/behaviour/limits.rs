//! Limits: nothing grows without bound, whatever the calls are, and each limit says when it holds something
//! back.

use crate::driver::{Driver, Outcome, kept, moved, x};
use graphgrove_tree::{
    Address, Call, EagerReason, Fate, FunctionId, FunctionSpec, Input, InputIndex, Limits, LiveTable,
    Mismatch, Notice, OldOutput, Options, Output, ParamSetId, ParamVersion, Params, PathChange, Slot,
    SlotIndex,
};

fn limited(limits: Limits) -> Driver {
    Driver::new(Options { limits, ..Options::default() })
}

fn without_copy_back(limits: Limits) -> Driver {
    Driver::new(Options { limits, copy_back: false, ..Options::default() })
}

/// Runs an inference call and drops what it leaves.
fn run(e: &mut Driver, function: FunctionId, inputs: &[Input]) -> Outcome {
    let outcome = e.infer(function, inputs);
    e.forget(&outcome);
    outcome
}

#[test]
fn one_root_too_many_evicts_the_one_that_was_used_least_recently() {
    let mut e = limited(Limits { siblings: 3, ..Limits::default() });
    let f = e.function("f", 1);
    let roots: Vec<_> = (1..=3).map(|shape| e.settle(&Call::inference(f, &[x(shape)]))).collect();
    assert!(run(&mut e, f, &[x(1)]).is_replay());
    run(&mut e, f, &[x(4)]);
    let fourth = run(&mut e, f, &[x(4)]);
    assert_eq!(fourth.evicted, [roots[1]]);
    assert_eq!(e.roots(f), [roots[0], roots[2], fourth.node()]);
    assert!(run(&mut e, f, &[x(3)]).is_replay() && run(&mut e, f, &[x(1)]).is_replay());
    assert!(run(&mut e, f, &[x(2)]).is_record());
}

#[test]
fn with_room_for_one_recording_the_path_that_ends_makes_room() {
    let mut e = limited(Limits { siblings: 1, rerecordings: 1000, ..Limits::default() });
    let f = e.function("f", 1);
    let mut recorded = 0;
    for turn in 0..12 {
        e.tree.begin_step();
        // The old output is live, and becomes stale with its path.
        let y = e.infer(f, &[x(turn % 2)]);
        recorded += usize::from(y.is_record());
        assert!(e.tree.recordings() <= 1 && y.eager().is_none());
    }
    assert_eq!(recorded, 10);
}

#[test]
fn with_room_for_none_everything_runs_eagerly_and_says_so() {
    let mut e = limited(Limits { siblings: 0, ..Limits::default() });
    let f = e.function("f", 1);
    run(&mut e, f, &[x(1)]);
    let reason = EagerReason::Siblings { function: f, limit: 0 };
    for _ in 0..3 {
        assert_eq!(run(&mut e, f, &[x(1)]).eager(), Some(&reason));
    }
    let notice = Notice::RanEagerly { function: f, reason };
    assert_eq!(e.tree.take_notices(), [notice], "said once");
}

#[test]
fn an_evicted_node_takes_all_below_it_along() {
    let mut e = limited(Limits { siblings: 2, ..Limits::default() });
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    e.settle(&Call::inference(g, &[x(1)]));
    let mut nodes = Vec::new();
    for shape in [1, 2] {
        e.settle(&Call::inference(f, &[x(shape)]));
        let y = e.infer(f, &[x(shape)]);
        let z = e.infer(g, &[kept(y.outputs[0])]);
        let w = e.infer(g, &[kept(z.outputs[0])]);
        nodes.push([y.node(), z.node(), w.node()]);
        [y, z, w].iter().for_each(|outcome| e.forget(outcome));
    }
    run(&mut e, f, &[x(3)]);
    let third = run(&mut e, f, &[x(3)]);
    assert_eq!(third.evicted, nodes[0]);
    assert!(nodes[1].iter().all(|node| e.tree.node(*node).is_some()));
    assert_eq!(e.tree.children(Some(nodes[0][0]), g), []);
    assert_eq!(e.tree.recordings(), 5);
}

#[test]
fn a_node_with_a_live_output_below_it_is_not_evicted() {
    let mut e = limited(Limits { siblings: 2, ..Limits::default() });
    let f = e.function("f", 1);
    let roots: Vec<_> = (1..=2).map(|shape| e.settle(&Call::inference(f, &[x(shape)]))).collect();
    run(&mut e, f, &[x(3)]);
    let inputs = [x(3)];
    let call = Call::inference(f, &inputs);
    // Storage of a node that is not on the path is never live, unless the layer above is late in saying so.
    let mut live = LiveTable::new();
    live.set(Slot { node: roots[0], index: SlotIndex::new(0) });
    let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &live).unwrap() else { panic!() };
    let recording = e.tree.begin_recording(*plan, &live).unwrap();
    let ran = e.tree.finish_recording(recording, vec![Output::fresh()], &live).unwrap();
    assert_eq!(ran.evicted, [roots[1]]);
    // With every recording live none can go.
    live.set(Slot { node: ran.node, index: SlotIndex::new(0) });
    let mut late = Driver::default();
    std::mem::swap(&mut late.tree, &mut e.tree);
    late.live = LiveTable::new();
    let y = late.infer(f, &[x(4)]);
    assert!(y.is_warm_up());
    let inputs = [x(4)];
    let refused = late.tree.decide(&Call::inference(f, &inputs), &live).unwrap();
    let reason = EagerReason::Siblings { function: f, limit: 2 };
    assert!(matches!(refused, graphgrove_tree::Decision::Eager(given) if given == reason));
}

#[test]
fn the_bound_of_a_function_holds_over_all_places_and_spares_the_path() {
    let mut e = limited(Limits { recordings_per_function: 3, loop_length: 100, ..Limits::default() });
    let f = e.function("f", 1);
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let other = e.settle(&Call::inference(f, &[x(2)]));
    let mut outcomes = vec![e.infer(f, &[x(1)])];
    for _ in 0..3 {
        let input = [kept(outcomes.last().unwrap().outputs[0])];
        let next = e.infer(f, &[x(1), input[0]][1..]);
        if next.eager().is_some() {
            break;
        }
        outcomes.push(next);
    }
    assert_eq!(outcomes.iter().map(Outcome::node).collect::<Vec<_>>()[0], root);
    assert_eq!(outcomes[2].evicted, [other], "the only one that is not on the path");
    let refused = e.infer(f, &[kept(outcomes[2].outputs[0])]);
    assert_eq!(refused.eager(), Some(&EagerReason::FunctionRecordings { function: f, limit: 3 }));
    assert_eq!(e.tree.recordings(), 3);
}

#[test]
fn recordings_that_differ_only_in_what_was_live_are_bounded() {
    let mut e = limited(Limits { liveness_variants: 2, ..Limits::default() });
    let (f, g) = (e.function("f", 4), e.function("g", 1));
    for function in [f, g] {
        e.settle(&Call::inference(function, &[x(1)]));
    }
    let root = e.roots(f)[0];
    // Fewer and fewer outputs are dead when g runs, so no earlier recording fits.
    for live in 1..=4 {
        let y = e.infer(f, &[x(1)]);
        e.release(&y.outputs[live..]);
        let z = e.infer(g, &[kept(y.outputs[0])]);
        assert!(z.is_record());
        assert_eq!(z.evicted.len(), usize::from(live > 2));
        e.forget(&y);
        e.forget(&z);
    }
    assert_eq!(e.tree.children(Some(root), g).len(), 2);
    let mut none = limited(Limits { liveness_variants: 0, ..Limits::default() });
    let h = none.function("h", 1);
    run(&mut none, h, &[x(1)]);
    assert_eq!(run(&mut none, h, &[x(1)]).eager(), Some(&EagerReason::Siblings { function: h, limit: 0 }));
}

#[test]
fn a_path_has_a_largest_length() {
    let mut e = limited(Limits { path_length: 5, ..Limits::default() });
    assert_eq!(e.tree.options().limits.path_length, 5);
    let f = e.function("f", 1);
    e.settle(&Call::inference(f, &[x(1)]));
    let held: Vec<_> = (0..5).map(|_| e.infer(f, &[x(1)])).collect();
    assert!(held.iter().all(|outcome| outcome.eager().is_none()));
    for _ in 0..3 {
        assert_eq!(e.infer(f, &[x(1)]).eager(), Some(&EagerReason::PathLength { limit: 5 }));
    }
    assert_eq!(e.tree.path().len(), 5);
    held.iter().for_each(|outcome| e.forget(outcome));
    assert!(e.infer(f, &[x(1)]).is_replay());
}

#[test]
fn a_path_of_no_length_runs_everything_eagerly() {
    let mut e = limited(Limits { path_length: 0, ..Limits::default() });
    let f = e.function("f", 1);
    for _ in 0..3 {
        assert_eq!(e.infer(f, &[x(1)]).eager(), Some(&EagerReason::PathLength { limit: 0 }));
    }
}

#[test]
fn a_path_at_its_largest_length_ends_if_all_that_is_live_may_be_copied_out() {
    let mut e = limited(Limits { path_length: 3, ..Limits::default() });
    let f = e.function_of(FunctionSpec::new("f").at_new_step(OldOutput::CopyOut), vec![Output::fresh()]);
    e.settle(&Call::inference(f, &[x(1)]));
    for turn in 0..10 {
        let y = e.infer(f, &[x(1)]);
        assert!(y.eager().is_none());
        let copied = y.change.as_ref().and_then(PathChange::path_end).map_or(0, |end| end.slots.len());
        assert_eq!(copied, if turn > 0 && turn % 3 == 0 { 3 } else { 0 }, "turn {turn}");
    }
    assert_eq!(e.recorded, 3);
}

#[test]
fn kept_outputs_are_copied_out_once_their_path_is_at_a_limit() {
    let mut e = limited(Limits { loop_length: 4, ..Limits::default() });
    let f = e.function_of(FunctionSpec::new("f").at_new_step(OldOutput::Keep), vec![Output::fresh()]);
    e.settle(&Call::inference(f, &[x(1)]));
    let mut copied = Vec::new();
    for _ in 0..12 {
        e.tree.begin_step();
        let y = e.infer(f, &[x(1)]);
        copied.push(y.change.as_ref().and_then(PathChange::path_end).map_or(0, |end| end.slots.len()));
    }
    assert_eq!(copied, [0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(e.tree.recordings(), 4);
}

/// The caller keeps the old state until the call has returned: `state = f(&state)`.
#[test]
fn a_loop_that_borrows_its_state_turns_back_to_its_root_too() {
    let mut e = Driver::default();
    let (init, f) = (e.function("init", 1), e.function("f", 1));
    e.settle(&Call::inference(init, &[x(1)]));
    let mut state = e.infer(init, &[x(1)]).outputs[0];
    let limit = e.tree.options().limits.loop_length;
    let mut copied = 0;
    for _ in 0..1000 {
        let y = e.infer(f, &[kept(state)]);
        if let Some(end) = y.change.as_ref().and_then(PathChange::path_end) {
            assert_eq!(end.carried, [InputIndex::new(0)]);
            let fates: Vec<_> = end.slots.iter().map(|old| (old.value, old.fate)).collect();
            assert_eq!(fates, [(state, Fate::CopyOut)], "the caller may go on reading the old state");
            copied += 1;
        }
        e.release(&[state]);
        state = y.outputs[0];
    }
    assert_eq!((e.tree.path().len() <= limit as usize + 1, copied), (true, 1000 / limit));
    assert!(e.recorded <= 2 * limit as usize + 2, "{} recordings", e.recorded);
    assert!(e.warmed_up <= limit as usize + 2, "{} warm-ups", e.warmed_up);
    assert_eq!(e.ran_eagerly, 0);
}

#[test]
fn a_loop_that_borrows_its_state_does_not_turn_back_over_what_else_is_needed() {
    let mut e = limited(Limits { loop_length: 2, ..Limits::default() });
    let (init, f) = (e.function("init", 2), e.function("f", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(init, &[x(1)]));
    let start = e.infer(init, &[x(1)]);
    let mut state = start.outputs[0];
    for _ in 0..8 {
        let y = e.infer(f, &[kept(state)]);
        assert_eq!(y.change.as_ref().and_then(PathChange::path_end), None);
        e.release(&[state]);
        state = y.outputs[0];
    }
    assert!(e.live.is_live(start.outputs[1].slot));
}

#[test]
fn a_loop_with_parameters_turns_back_while_it_warms_up() {
    let mut e = limited(Limits { loop_length: 3, ..Limits::default() });
    let (init, f) = (e.function("init", 1), e.function("f", 1));
    let params = Params { set: ParamSetId::new(1), version: ParamVersion::new(1), addresses: &[] };
    let mut state = e.infer(init, &[x(1)]).outputs[0];
    for _ in 0..20 {
        state = e.call(&Call::inference(f, &[moved(state)]).with_params(params)).outputs[0];
    }
    assert!(e.warmed_up <= 5 && e.replayed > 0, "{} warm-ups", e.warmed_up);
}

#[test]
fn a_wait_without_end_is_said_to_have_none() {
    for reason in [
        EagerReason::RecordingsFail { calls: u64::MAX },
        EagerReason::Rerecorded {
            calls: u64::MAX,
            mismatch: Mismatch::InputCount { recorded: 1, called: 2 },
        },
    ] {
        let text = reason.to_string();
        assert!(text.contains("never tried again") && !text.contains(&u64::MAX.to_string()), "{text}");
    }
    let soon = EagerReason::RecordingsFail { calls: 5 }.to_string();
    assert_eq!(soon, "its recordings failed too often; the next try is 5 calls away");
}

#[test]
fn a_pending_backward_keeps_a_path_at_a_limit_from_ending() {
    let mut e = limited(Limits { loop_length: 2, path_length: 4, ..Limits::default() });
    let f = e.function("f", 1);
    e.settle(&Call::forward(f, &[x(1)]));
    let held: Vec<_> = (0..4).map(|_| e.forward(f, &[x(1)])).collect();
    held.iter().for_each(|outcome| e.release(&outcome.outputs));
    assert_eq!(e.tree.take_notices(), [Notice::PendingBackwards { function: f, pending: 3 }]);
    assert_eq!(e.forward(f, &[x(1)]).eager(), Some(&EagerReason::PathLength { limit: 4 }));
    assert_eq!(e.tree.pending_on_path(), 4);
}

#[test]
fn recordings_that_fail_hold_their_function_back_for_a_while_and_no_other() {
    let mut e = limited(Limits { failures: 2, failures_decay: 5, ..Limits::default() });
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    for function in [f, g] {
        run(&mut e, function, &[x(1)]);
    }
    let inputs = [x(1)];
    let call = Call::inference(f, &inputs);
    for _ in 0..2 {
        let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else {
            panic!()
        };
        let recording = e.tree.begin_recording(*plan, &e.live).unwrap();
        e.tree.recording_failed(recording);
        e.tree.ran_eagerly(&call, &EagerReason::Busy).unwrap();
    }
    let mut waits = Vec::new();
    for _ in 0..4 {
        if let Some(EagerReason::RecordingsFail { calls }) = run(&mut e, f, &[x(1)]).eager() {
            waits.push(*calls);
        }
    }
    assert_eq!(waits, [3, 2, 1]);
    assert_eq!(e.roots(f).len(), 1);
    assert!(run(&mut e, g, &[x(1)]).is_record());
}

/// pytorch: `test_skip_if_dynamic_shape_limit_reached1`, `..._reached2`,
/// `test_warn_once_if_dynamic_shape_limit_reached`.
#[test]
fn many_signatures_are_noticed_once() {
    let mut e = limited(Limits { noted_signatures: 3, ..Limits::default() });
    let f = e.function("f", 1);
    let mut noticed = Vec::new();
    for size in 0..6 {
        run(&mut e, f, &[Input::scalar(size)]);
        noticed.push(e.tree.take_notices());
    }
    let notice = Notice::ManySignatures { function: f, count: 4 };
    assert_eq!(noticed.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 1, 0, 0]);
    assert_eq!(noticed[3], [notice]);
}

#[test]
fn the_oldest_signature_warms_up_again_when_there_are_too_many() {
    let mut e = limited(Limits { warm_signatures: 2, ..Limits::default() });
    let f = e.function("f", 1);
    let dids: Vec<_> = [1, 2, 3, 1].map(|size| run(&mut e, f, &[Input::scalar(size)]).is_warm_up()).to_vec();
    assert_eq!(dids, [true; 4]);
}

/// pytorch: `test_cudagraph_capture_sizes`, `..._sizes1`, `..._sizes2`.
#[test]
fn only_the_listed_scalars_are_recorded() {
    let mut e = Driver::default();
    let spec = FunctionSpec::new("f").only_for([[1, 10], [2, 20], [3, 30]]);
    let f = e.function_of(spec, vec![Output::fresh()]);
    for _ in 0..3 {
        for size in 1..=6 {
            let inputs = [Input::scalar(size), x(1), Input::scalar(10 * size)];
            let y = run(&mut e, f, &inputs);
            assert_eq!(y.eager().is_some(), size > 3);
            assert!(size <= 3 || y.eager() == Some(&EagerReason::KeyNotListed));
        }
    }
    assert_eq!((e.recorded, e.replayed, e.ran_eagerly), (3, 3, 9));
    let y = run(&mut e, f, &[Input::scalar(1), Input::scalar(20)]);
    assert_eq!(y.eager(), Some(&EagerReason::KeyNotListed));
}

/// pytorch: `test_mutation_on_inp`, `test_mutation_cudagraph_managed_tensors`, `test_mutation_reinplaced`.
#[test]
fn without_copying_back_a_function_may_write_only_to_the_path_and_its_parameters() {
    let mut e = without_copy_back(Limits::default());
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    let foreign = EagerReason::MutatesForeignInput { input: InputIndex::new(1) };
    for _ in 0..3 {
        assert_eq!(run(&mut e, g, &[x(1), x(1).mutated()]).eager(), Some(&foreign));
    }
    assert_eq!(e.roots(g), []);
    let mut dids = Vec::new();
    for _ in 0..3 {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[x(1), kept(y.outputs[0]).mutated()]);
        dids.push(z.eager().is_none());
        e.forget(&y);
        e.forget(&z);
    }
    assert_eq!(dids, [true; 3], "after this parent the same function is graphed");
    let y = e.infer(f, &[x(1)]);
    e.tree.begin_step();
    let carried = e.infer(g, &[x(1), kept(y.outputs[0]).mutated()]);
    assert_eq!(carried.eager(), Some(&foreign), "what is carried is a copy");
    assert!(e.tree.is_step_requested() && e.live.is_live(y.outputs[0].slot));
    assert_eq!(run(&mut e, g, &[Input::scalar(1).mutated(), x(1)]).eager(), None);
    let notice = Notice::RanEagerly { function: g, reason: foreign };
    assert_eq!(e.tree.take_notices(), [notice], "said once, over different parents");
}

#[test]
fn where_it_is_copied_back_a_function_may_write_to_what_it_likes() {
    let mut e = Driver::default();
    let g = e.function("g", 1);
    e.settle(&Call::inference(g, &[x(1).mutated()]));
    assert_eq!((e.recorded, e.ran_eagerly), (1, 0));
}

#[test]
fn a_loop_that_feeds_itself_turns_back_to_its_root() {
    let mut e = limited(Limits { loop_length: 3, ..Limits::default() });
    let f = e.function("f", 1);
    let mut value = None;
    let mut carried = Vec::new();
    for _ in 0..3000 {
        let inputs = [value.map_or(x(1), moved)];
        let y = e.infer(f, &inputs);
        carried.push(y.change.as_ref().and_then(PathChange::path_end).map_or(0, |end| end.carried.len()));
        value = Some(y.outputs[0]);
    }
    assert_eq!(e.tree.recordings(), 3);
    assert_eq!(carried[2700..].iter().sum::<usize>(), 100, "one staged copy in three turns");
    assert!(matches!(e.tree.path().len(), 1..=3));
}

#[test]
fn a_loop_that_leaves_an_output_behind_does_not_turn_back() {
    let mut e = limited(Limits { loop_length: 2, ..Limits::default() });
    let f = e.function("f", 2);
    e.settle(&Call::inference(f, &[x(1)]));
    let mut value = e.infer(f, &[x(1)]).outputs[0];
    for _ in 0..5 {
        // The second output of each turn is kept by the caller, and may not be made stale without a step.
        value = e.infer(f, &[moved(value)]).outputs[0];
    }
    assert_eq!(e.tree.path().len(), 6);
}

#[test]
fn turns_of_a_loop_are_counted_by_function_kind_and_parameter_set() {
    let mut e = limited(Limits { loop_length: 2, ..Limits::default() });
    let f = e.function("f", 1);
    let addresses = [0, 1, 2, 3].map(|set| [Address::new(set)]);
    let mut value = None;
    let mut lengths = Vec::new();
    for layer in [0, 1, 2, 3, 0, 1, 2, 3] {
        let set = layer as u64;
        let params =
            Params { set: ParamSetId::new(set), version: ParamVersion::new(0), addresses: &addresses[layer] };
        let inputs = [value.map_or(x(1), moved)];
        let y = e.call(&Call::inference(f, &inputs).with_params(params));
        value = Some(y.outputs[0]);
        lengths.push(e.tree.path().len());
    }
    assert_eq!(lengths, [1, 2, 3, 4, 5, 6, 7, 8]);
}
