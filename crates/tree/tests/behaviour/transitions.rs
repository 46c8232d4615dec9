//! Transitions: what each rejects, and that a rejected one changes nothing.

use crate::driver::{Driver, kept, moved, x};
use graphgrove_tree::{
    Call, CallKind, Decision, EagerReason, Epoch, Error, FunctionId, FunctionSpec, Input, InputIndex, NodeId,
    Output, OutputKind, PathState, Phase, RecordPlan, Replay, Slot, SlotIndex, SlotValue, Tree, WarmUpPlan,
};

/// Everything that can be asked of a tree, as text.
fn state(tree: &Tree) -> String {
    format!("{tree:#?}")
}

fn replay(tree: &Tree, call: &Call<'_>, e: &Driver) -> Replay {
    match tree.decide(call, &e.live).unwrap() {
        Decision::Replay(replay) => replay,
        other => panic!("not a replay: {other:?}"),
    }
}

fn record_plan(e: &Driver, call: &Call<'_>) -> RecordPlan {
    match e.tree.decide(call, &e.live).unwrap() {
        Decision::Record(plan) => *plan,
        other => panic!("not a recording: {other:?}"),
    }
}

fn warm_up_plan(e: &Driver, call: &Call<'_>) -> WarmUpPlan {
    match e.tree.decide(call, &e.live).unwrap() {
        Decision::WarmUp(plan) => *plan,
        other => panic!("not a warm-up: {other:?}"),
    }
}

/// A function that has warmed up and will be recorded at its next call.
fn warm(e: &mut Driver, name: &str) -> FunctionId {
    let f = e.function(name, 1);
    let y = e.infer(f, &[x(1)]);
    assert!(y.is_warm_up());
    e.forget(&y);
    f
}

#[test]
fn deciding_changes_nothing() {
    let mut e = Driver::default();
    let (f, g) = (warm(&mut e, "f"), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    let y = e.forward(f, &[x(1)]);
    let before = state(&e.tree);
    let inputs = [x(1), kept(y.outputs[0])];
    for function in [f, g] {
        for list in [&inputs[..], &inputs[..1], &[]] {
            for kind in [CallKind::Inference, CallKind::Forward, CallKind::Backward(y.token())] {
                let call = Call { function, kind, params: None, inputs: list };
                assert!(e.tree.decide(&call, &e.live).is_ok());
            }
        }
    }
    assert_eq!(state(&e.tree), before);
}

#[test]
fn an_unknown_function_is_rejected_everywhere() {
    let mut e = Driver::default();
    let stranger = FunctionId::new(9);
    let call = Call::inference(stranger, &[]);
    let error = Error::UnknownFunction { function: stranger };
    let before = state(&e.tree);
    assert_eq!(e.tree.decide(&call, &e.live).unwrap_err(), error);
    assert_eq!(e.tree.ran_eagerly(&call, &EagerReason::Busy), Err(error.clone()));
    assert_eq!(e.tree.remove_function(stranger, &e.live), Err(error.clone()));
    assert_eq!(state(&e.tree), before);
    assert_eq!(error.to_string(), "function f9 is not registered");
}

#[test]
fn a_stale_input_is_rejected_with_the_run_that_replaced_it() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    let old = e.infer(f, &[x(1)]);
    e.forget(&old);
    let new = e.infer(f, &[x(1)]);
    let stale = |input, current| Error::StaleInput {
        input: InputIndex::new(input),
        node: old.node(),
        given: old.outputs[0].epoch,
        current,
    };
    let decide =
        |e: &Driver, inputs: &[Input]| e.tree.decide(&Call::inference(g, inputs), &e.live).unwrap_err();
    let before = state(&e.tree);
    assert_eq!(decide(&e, &[x(1), kept(old.outputs[0])]), stale(1, Some(new.outputs[0].epoch)));
    assert_eq!(state(&e.tree), before);
    e.forget(&new);
    let other = e.infer(g, &[x(1)]);
    assert_eq!(decide(&e, &[kept(old.outputs[0])]), stale(0, None));
    assert_eq!(
        stale(0, None).to_string(),
        "input i0 is a stale output: it is of run e3 of its node, which is not on the path"
    );
    assert_eq!(
        stale(0, Some(Epoch::new(4))).to_string(),
        "input i0 is a stale output: it is of run e3 of its node, now in run e4"
    );
    e.forget(&other);
    let gone = SlotValue::new(other.node(), SlotIndex::new(0), Epoch::new(1));
    e.infer(f, &[x(1)]);
    assert!(
        matches!(decide(&e, &[kept(gone)]), Error::StaleInput { current: None, .. }),
        "a warm-up run is gone"
    );
}

#[test]
fn a_predicted_recording_is_not_replayed_with_a_stale_input() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    for function in [f, g] {
        e.settle(&Call::inference(function, &[x(1)]));
    }
    let mut old = None;
    for _ in 0..2 {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[kept(y.outputs[0])]);
        e.forget(&y);
        e.forget(&z);
        old = Some(y.outputs[0]);
    }
    e.infer(f, &[x(1)]);
    let stale = e.tree.decide(&Call::inference(g, &[kept(old.unwrap())]), &e.live);
    assert!(matches!(stale, Err(Error::StaleInput { current: Some(_), .. })));
}

#[test]
fn an_output_without_storage_is_no_managed_input() {
    let mut e = Driver::default();
    let f = e.function_of(FunctionSpec::new("f"), vec![Output::fresh(), Output::of(OutputKind::Empty)]);
    let y = e.infer(f, &[x(1)]);
    for slot in [1, 7, 100].map(SlotIndex::new) {
        let input = [kept(SlotValue::new(y.node(), slot, y.outputs[0].epoch))];
        let error = Error::NotASlot { input: InputIndex::new(0), slot };
        assert_eq!(e.tree.decide(&Call::inference(f, &input), &e.live).unwrap_err(), error);
    }
}

#[test]
fn a_decision_is_out_of_date_once_the_path_has_moved() {
    let mut e = Driver::default();
    let (f, g) = (warm(&mut e, "f"), warm(&mut e, "g"));
    e.settle(&Call::inference(f, &[x(1)]));
    let inputs = [x(1)];
    let (f_call, g_call, cold) =
        (Call::inference(f, &inputs), Call::inference(g, &inputs), Call::forward(f, &inputs));
    let (replayed, planned, warming) =
        (replay(&e.tree, &f_call, &e), record_plan(&e, &g_call), warm_up_plan(&e, &cold));
    e.settle(&f_call);
    let before = state(&e.tree);
    assert_eq!(e.tree.replayed(replayed, &f_call), Err(Error::StaleDecision));
    assert_eq!(e.tree.begin_recording(planned, &e.live).unwrap_err(), Error::StaleDecision);
    assert_eq!(e.tree.begin_warm_up(warming).unwrap_err(), Error::StaleDecision);
    assert_eq!(state(&e.tree), before);
}

#[test]
fn a_decision_of_one_tree_is_out_of_date_for_every_other() {
    let mut trees = [Driver::default(), Driver::default()];
    let [one, other] = &mut trees;
    let (f, _) = (warm(one, "f"), warm(other, "f"));
    let inputs = [x(1)];
    let call = Call::inference(f, &inputs);
    let plan = record_plan(one, &call);
    assert_eq!(other.tree.begin_recording(plan, &other.live).unwrap_err(), Error::StaleDecision);
    let recording = one.tree.begin_recording(record_plan(one, &call), &one.live).unwrap();
    let before = state(&other.tree);
    let finished = other.tree.finish_recording(recording, vec![Output::fresh()], &other.live);
    assert_eq!(finished, Err(Error::StaleDecision));
    assert_eq!(state(&other.tree), before);
}

#[test]
fn outputs_may_die_and_steps_be_asked_for_between_a_decision_and_its_transition() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let inputs = [x(1)];
    let call = Call::inference(f, &inputs);
    let recording = e.tree.begin_recording(record_plan(&e, &call), &e.live).unwrap();
    e.release(&y.outputs);
    e.tree.begin_step();
    assert!(e.tree.finish_recording(recording, vec![Output::fresh()], &e.live).is_ok());
    assert!(e.tree.is_step_requested(), "the call was under way before the step was asked for");
}

#[test]
fn while_a_recording_is_in_progress_everything_else_runs_eagerly() {
    let mut e = Driver::default();
    let (f, g) = (warm(&mut e, "f"), warm(&mut e, "g"));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let inputs = [x(1)];
    let (f_call, g_call) = (Call::inference(f, &inputs), Call::inference(g, &inputs));
    let (other, warming) = (record_plan(&e, &g_call), warm_up_plan(&e, &Call::forward(f, &inputs)));
    let decided = replay(&e.tree, &f_call, &e);
    let recording = e.tree.begin_recording(record_plan(&e, &g_call), &e.live).unwrap();
    assert!(matches!(e.tree.decide(&f_call, &e.live), Ok(Decision::Eager(EagerReason::Busy))));
    let before = state(&e.tree);
    assert_eq!(e.tree.begin_recording(other, &e.live).unwrap_err(), Error::Busy);
    assert_eq!(e.tree.begin_warm_up(warming).unwrap_err(), Error::Busy);
    assert_eq!(e.tree.replayed(decided, &f_call), Err(Error::Busy));
    assert_eq!(e.tree.follow(root, &f_call), Err(Error::Busy));
    assert_eq!(state(&e.tree), before);
    assert_eq!(e.tree.ran_eagerly(&f_call, &EagerReason::Busy), Ok(None));
    assert_eq!(e.tree.take_notices(), [], "being busy is no news");
    assert_eq!(recording.plan().parent(), None);
    assert!(e.tree.finish_recording(recording, vec![Output::fresh()], &e.live).is_ok());
    let again = e.tree.decide(&f_call, &e.live).unwrap();
    assert!(matches!(again, Decision::Replay(_)));
}

#[test]
fn dropping_a_recording_or_a_warm_up_leaves_no_trace() {
    let mut e = Driver::default();
    let f = warm(&mut e, "f");
    let inputs = [x(1)];
    let (call, cold) = (Call::inference(f, &inputs), Call::forward(f, &inputs));
    let before = state(&e.tree);
    let recording = e.tree.begin_recording(record_plan(&e, &call), &e.live).unwrap();
    assert_ne!(state(&e.tree), before, "it is known to be in progress");
    drop(recording);
    assert_eq!(state(&e.tree), before);
    let warm_up = e.tree.begin_warm_up(warm_up_plan(&e, &cold)).unwrap();
    assert_eq!(warm_up.plan().parent(), None);
    drop(warm_up);
    assert_eq!(state(&e.tree), before);
}

/// pytorch: `test_multithreaded_cudagraph_trees`, as far as it is about state that belongs to a thread.
#[test]
fn a_tree_has_no_thread_of_its_own_and_a_recording_may_be_dropped_on_any() {
    let mut e = Driver::default();
    let f = warm(&mut e, "f");
    let inputs = [x(1)];
    let call = Call::inference(f, &inputs);
    fn crosses_threads<T: Send + Sync>(_: &T) {}
    crosses_threads(&e.tree);
    let recording = e.tree.begin_recording(record_plan(&e, &call), &e.live).unwrap();
    crosses_threads(&recording);
    std::thread::scope(|threads| {
        threads.spawn(move || drop(recording));
    });
    let e = std::sync::Mutex::new(e);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..50 {
                    let token = {
                        let mut e = e.lock().unwrap();
                        let y = e.forward(f, &inputs);
                        e.release(&y.outputs);
                        y.token()
                    };
                    assert!(e.lock().unwrap().tree.discard_backward(token));
                }
            });
        }
    });
    let e = e.into_inner().unwrap();
    assert!(e.tree.is_path_over(&e.live) && e.tree.pending_backwards() == 0);
    assert_eq!(e.warmed_up + e.recorded + e.replayed + e.ran_eagerly, 1 + 8 * 50);
}

#[test]
fn a_failed_recording_leaves_one_failure_and_nothing_else() {
    let mut e = Driver::default();
    let f = warm(&mut e, "f");
    let inputs = [x(1)];
    let call = Call::inference(f, &inputs);
    let before = (e.tree.outline(), e.tree.current(), e.tree.step());
    let recording = e.tree.begin_recording(record_plan(&e, &call), &e.live).unwrap();
    e.tree.recording_failed(recording);
    assert_eq!((e.tree.outline(), e.tree.current(), e.tree.step()), before);
    assert!(
        matches!(e.tree.decide(&call, &e.live), Ok(Decision::Record(_))),
        "the next call may record again"
    );
}

#[test]
fn an_output_cannot_be_an_alias_of_what_has_no_storage() {
    let mut e = Driver::default();
    let f = warm(&mut e, "f");
    let inputs = [x(1)];
    let (call, cold) = (Call::inference(f, &inputs), Call::forward(f, &inputs));
    let input = |index| Output::of(OutputKind::AliasOfInput(InputIndex::new(index)));
    let output = |index| Output::of(OutputKind::AliasOfOutput(SlotIndex::new(index)));
    let bad = [
        (vec![Output::fresh(), input(1)], 1),
        (vec![output(0)], 0),
        (vec![Output::fresh(), output(1)], 1),
        (vec![Output::fresh(), output(2), Output::fresh()], 1),
        (vec![Output::of(OutputKind::Empty), output(0)], 1),
        (vec![Output::fresh(), output(9)], 1),
    ];
    let before = state(&e.tree);
    for (outputs, at) in bad {
        let error = Error::BadAlias { output: SlotIndex::new(at) };
        let recording = e.tree.begin_recording(record_plan(&e, &call), &e.live).unwrap();
        assert_eq!(e.tree.finish_recording(recording, outputs.clone(), &e.live), Err(error.clone()));
        let warm_up = e.tree.begin_warm_up(warm_up_plan(&e, &cold)).unwrap();
        assert_eq!(e.tree.finish_warm_up(warm_up, outputs, true), Err(error));
        assert_eq!(state(&e.tree), before);
    }
    let recording = e.tree.begin_recording(record_plan(&e, &call), &e.live).unwrap();
    let good = vec![input(0), Output::fresh(), output(1)];
    assert!(e.tree.finish_recording(recording, good, &e.live).is_ok());
    let scalar = [Input::scalar(1)];
    let warm_up = e.tree.begin_warm_up(warm_up_plan(&e, &Call::inference(f, &scalar))).unwrap();
    let error = Error::BadAlias { output: SlotIndex::new(0) };
    assert_eq!(e.tree.finish_warm_up(warm_up, vec![input(0)], true), Err(error), "a scalar has no storage");
}

#[test]
fn a_warm_up_that_is_not_ready_warms_up_again() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let inputs = [x(1)];
    let call = Call::inference(f, &inputs);
    let mut before = Vec::new();
    for ready in [false, false, true] {
        let warm_up = e.tree.begin_warm_up(warm_up_plan(&e, &call)).unwrap();
        let ran = e.tree.finish_warm_up(warm_up, vec![Output::fresh()], ready).unwrap();
        assert_eq!((ran.epoch, ran.token, ran.evicted), (Epoch::new(1), None, Vec::new()));
        assert_eq!(ran.ended_warm_ups, before, "its ids are told when they are gone");
        before = vec![ran.node];
        assert!(e.tree.node(ran.node).unwrap().is_warm_up());
    }
    assert_eq!(record_plan(&e, &call).parent(), None);
}

#[test]
fn a_replay_that_was_checked_elsewhere_is_followed_if_its_parent_is_on_the_path() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let (f_call, g_call) = (Call::inference(f, &inputs), Call::inference(g, &inputs));
    let root = e.settle(&f_call);
    e.settle(&g_call);
    let y = e.infer(f, &inputs);
    let child = e.infer(g, &inputs).node();
    let before = state(&e.tree);
    let wrong = Error::WrongFunction { node: child, recorded: g, called: f };
    assert_eq!(e.tree.follow(child, &f_call), Err(wrong));
    let unknown = Error::UnknownNode { node: NodeId::default() };
    assert_eq!(e.tree.follow(NodeId::default(), &f_call), Err(unknown));
    assert_eq!(state(&e.tree), before);
    e.live.clear_all(child);
    let ran = e.tree.follow(child, &g_call).unwrap();
    assert_eq!((ran.node, ran.epoch), (child, Epoch::new(2)));
    assert_eq!(e.tree.path().collect::<Vec<_>>(), [root, child]);
    assert_eq!(e.tree.path_state(), PathState::Replaying);
    e.forget(&y);
    let step = e.tree.step();
    e.tree.begin_step();
    let ran = e.tree.follow(root, &f_call).unwrap();
    assert_eq!(e.tree.path().collect::<Vec<_>>(), [root]);
    assert_eq!(e.tree.step().get(), step.get() + 1);
    assert!(!e.tree.is_step_requested());
    assert_eq!(ran.epoch, Epoch::new(y.outputs[0].epoch.get() + 1));
    let g_root = e.roots(g)[0];
    let _ran = e.tree.follow(g_root, &g_call).unwrap();
    assert_eq!(e.tree.follow(child, &g_call), Err(Error::DoesNotFollow { node: child }));
    assert_eq!(e.tree.node(child).unwrap().replays(), 1);
}

#[test]
fn a_warm_up_run_is_not_followed() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let y = e.infer(f, &[x(1)]);
    let before = state(&e.tree);
    let refused = e.tree.follow(y.node(), &Call::inference(f, &[x(1)]));
    assert_eq!(refused, Err(Error::NotARecording { node: y.node() }));
    assert_eq!(state(&e.tree), before);
    assert_eq!(e.tree.current(), Some(y.node()));
}

#[test]
fn a_backward_is_followed_only_as_the_backward_of_a_pending_forward() {
    let mut e = Driver::default();
    let (f, b) = (e.function("f", 1), e.function("b", 0));
    let inputs = [x(1)];
    for _ in 0..3 {
        let y = e.forward(f, &inputs);
        e.backward(b, y.token(), &[moved(y.outputs[0])]);
    }
    let y = e.forward(f, &inputs);
    let child = e.tree.children(Some(y.node()), b)[0];
    let given = [moved(y.outputs[0])];
    e.tree.discard_backward(y.token());
    let before = state(&e.tree);
    let dead = e.tree.follow(child, &Call::backward(b, y.token(), &given));
    assert_eq!(dead, Err(Error::UnknownToken { token: y.token() }));
    let wrong = Error::WrongKind { expected: Phase::Backward, called: Phase::Forward };
    assert_eq!(e.tree.follow(child, &Call::forward(b, &given)), Err(wrong));
    assert_eq!(state(&e.tree), before);
}

#[test]
fn a_replay_is_reported_for_the_call_that_was_decided_or_not_at_all() {
    let mut e = Driver::default();
    let (f, b) = (e.function("f", 1), e.function("b", 0));
    let inputs = [x(1)];
    e.settle(&Call::forward(f, &inputs));
    let decided = replay(&e.tree, &Call::forward(f, &inputs), &e);
    let before = state(&e.tree);
    let wrong = Error::WrongKind { expected: Phase::Forward, called: Phase::Inference };
    assert_eq!(e.tree.replayed(decided, &Call::inference(f, &inputs)), Err(wrong));
    assert_eq!(state(&e.tree), before);
    for _ in 0..3 {
        let y = e.forward(f, &inputs);
        e.backward(b, y.token(), &[moved(y.outputs[0])]);
    }
    let other = e.forward(f, &inputs);
    e.release(&other.outputs);
    e.tree.begin_step();
    let y = e.forward(f, &inputs);
    let given = [moved(y.outputs[0])];
    let decided = replay(&e.tree, &Call::backward(b, y.token(), &given), &e);
    let before = state(&e.tree);
    let wrong = Error::WrongToken { decided: y.token(), called: other.token() };
    assert_eq!(e.tree.replayed(decided, &Call::backward(b, other.token(), &given)), Err(wrong));
    assert_eq!(state(&e.tree), before);
}

#[test]
fn a_replay_of_an_evicted_node_or_for_another_call_is_rejected() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let (f_call, g_call) = (Call::inference(f, &inputs), Call::inference(g, &inputs));
    let root = e.settle(&f_call);
    e.settle(&g_call);
    let wrong = Error::WrongFunction { node: root, recorded: f, called: g };
    assert_eq!(e.tree.replayed(replay(&e.tree, &f_call, &e), &g_call), Err(wrong));
    let decided = replay(&e.tree, &f_call, &e);
    assert_eq!(e.tree.evict(root, &e.live), Ok(vec![root]));
    assert_eq!(e.tree.replayed(decided, &f_call), Err(Error::UnknownNode { node: root }));
}

/// pytorch: `test_cleanup`.
#[test]
fn a_reset_leaves_the_functions_alone_whatever_is_live() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), warm(&mut e, "g"));
    let inputs = [x(1)];
    e.settle(&Call::forward(f, &inputs));
    let y = e.forward(f, &inputs);
    let recording = e.tree.begin_recording(record_plan(&e, &Call::inference(g, &inputs)), &e.live);
    let in_progress = recording.unwrap();
    let mut all: Vec<_> = e.tree.nodes().map(|(id, _)| id).collect();
    e.tree.begin_step();
    let mut gone = e.tree.reset();
    all.sort();
    gone.sort();
    assert_eq!(gone, all);
    assert_eq!((e.tree.recordings(), e.tree.path().len(), e.tree.pending_backwards()), (0, 0, 0));
    assert!(!e.tree.is_step_requested() && !e.tree.is_pending(y.token()));
    assert_eq!(e.tree.predicted(), None);
    assert_eq!(e.tree.function_spec(f).map(FunctionSpec::name), Some("f"));
    let finished = e.tree.finish_recording(in_progress, vec![Output::fresh()], &e.live);
    assert_eq!(finished, Err(Error::StaleDecision));
    e.live = graphgrove_tree::LiveTable::new();
    let z = e.forward(f, &inputs);
    assert!(z.is_warm_up(), "what was learnt about the functions is gone too");
}

#[test]
fn what_was_decided_before_a_reset_is_out_of_date_after_it() {
    let mut e = Driver::default();
    let (f, inputs) = (warm(&mut e, "f"), [x(1)]);
    let cold = Call::forward(f, &inputs);
    let mut plans = vec![warm_up_plan(&e, &cold)];
    for _ in 0..2 {
        let y = e.infer(f, &inputs);
        e.forget(&y);
        plans.push(warm_up_plan(&e, &cold));
    }
    e.tree.reset();
    for plan in plans {
        assert_eq!(e.tree.begin_warm_up(plan).unwrap_err(), Error::StaleDecision);
    }
}

#[test]
fn a_node_in_use_is_not_evicted() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let root = e.settle(&Call::inference(f, &inputs));
    let other = e.settle(&Call::inference(g, &inputs));
    let y = e.infer(f, &inputs);
    let child = e.infer(g, &inputs);
    let before = state(&e.tree);
    for node in [root, child.node()] {
        assert_eq!(e.tree.evict(node, &e.live), Err(Error::InUse { node }));
    }
    let slot = Slot { node: other, index: SlotIndex::new(0) };
    e.live.set(slot);
    assert_eq!(e.tree.evict(other, &e.live), Err(Error::InUse { node: other }), "an output of it is live");
    assert_eq!(e.tree.remove_function(g, &e.live), Err(Error::InUse { node: child.node() }));
    assert_eq!(e.tree.evict(NodeId::default(), &e.live), Err(Error::UnknownNode { node: NodeId::default() }));
    assert_eq!(state(&e.tree), before);
    e.live.clear(slot);
    assert_eq!(e.tree.evict(other, &e.live), Ok(vec![other]));
    assert!(e.tree.node(other).is_none() && e.roots(g).is_empty());
    assert!(e.live.is_live(y.outputs[0].slot));
}

#[test]
fn a_removed_function_takes_its_recordings_and_all_below_them_with_it() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let root = e.settle(&Call::inference(f, &inputs));
    let other = e.settle(&Call::inference(g, &inputs));
    let y = e.infer(f, &inputs);
    let child = e.infer(g, &inputs);
    e.forget(&y);
    e.forget(&child);
    let cold = e.forward(f, &inputs);
    assert!(cold.is_warm_up());
    e.forget(&cold);
    assert_eq!(e.tree.remove_function(f, &e.live), Err(Error::InUse { node: cold.node() }));
    e.infer(g, &inputs);
    let mut gone = e.tree.remove_function(f, &e.live).unwrap();
    gone.sort();
    let mut expected = vec![root, child.node()];
    expected.sort();
    assert_eq!(gone, expected);
    assert_eq!((e.tree.recordings(), e.tree.function_spec(f)), (1, None));
    assert_eq!(e.tree.children(None, g), [other]);
    assert!(e.tree.decide(&Call::inference(f, &inputs), &e.live).is_err());
    let h = e.function("h", 1);
    assert_ne!(h, f, "a name is not used again");
}

#[test]
fn a_removed_function_leaves_its_siblings_below_their_parents() {
    let mut e = Driver::default();
    let (f, inputs) = (e.function("f", 1), [x(1)]);
    let root = e.settle(&Call::inference(f, &inputs));
    let children = ["g", "h"].map(|name| {
        let function = warm(&mut e, name);
        let y = e.infer(f, &inputs);
        let z = e.infer(function, &inputs);
        e.forget(&y);
        e.forget(&z);
        (function, z.node())
    });
    let other = warm(&mut e, "other");
    assert_eq!(e.tree.remove_function(children[0].0, &e.live), Ok(vec![children[0].1]));
    assert_eq!(e.tree.children(Some(root), children[1].0), [children[1].1]);
    assert!(e.infer(other, &inputs).is_record());
    assert_eq!(e.tree.evict(root, &e.live), Ok(vec![root, children[1].1]));
    assert_eq!(e.tree.recordings(), 1);
}

#[test]
fn a_function_that_is_removed_while_it_is_recorded_is_not_there_to_be_finished() {
    let mut e = Driver::default();
    let f = warm(&mut e, "f");
    let g = warm(&mut e, "g");
    let inputs = [x(1)];
    let recording = e.tree.begin_recording(record_plan(&e, &Call::inference(f, &inputs)), &e.live).unwrap();
    assert_eq!(e.tree.remove_function(f, &e.live), Ok(Vec::new()));
    let finished = e.tree.finish_recording(recording, vec![Output::fresh()], &e.live);
    assert_eq!(finished, Err(Error::UnknownFunction { function: f }));
    let _still_works = record_plan(&e, &Call::inference(g, &inputs));
}
