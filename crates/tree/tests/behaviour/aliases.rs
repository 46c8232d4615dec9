//! Aliases at a new step: a storage is dealt with as the strictest of its aliases needs it.

use crate::driver::{Driver, Outcome, kept, moved, x};
use graphgrove_tree::{
    Address, Call, EagerReason, Fate, FunctionSpec, Input, InputIndex, Limits, OldOutput, Options, Output,
    OutputKind, ParamSetId, ParamVersion, Params, PathChange, SlotIndex, SlotValue,
};

const OF_INPUT: OutputKind = OutputKind::AliasOfInput(InputIndex::new(0));
const OF_OUTPUT: OutputKind = OutputKind::AliasOfOutput(SlotIndex::new(0));

fn saved(kind: OutputKind) -> Output {
    Output { saved: true, ..Output::of(kind) }
}

/// What became of a value, if a new step touched it.
fn fate(outcome: &Outcome, value: SlotValue) -> Option<Fate> {
    let end = outcome.change.as_ref().and_then(PathChange::path_end)?;
    end.slots.iter().find(|old| old.value == value).map(|old| old.fate)
}

/// The fates of the input and of the first output of a forward with these outputs, when the call warmed up,
/// was recorded and was replayed.
fn fates(outputs: &[Output]) -> Vec<[&'static str; 2]> {
    let mut e = Driver::default();
    let produce = e.function("produce", 1);
    let forward = e.function_of(FunctionSpec::new("forward"), outputs.to_vec());
    let next = e.function("next", 1);
    (0..3)
        .map(|_| {
            e.tree.begin_step();
            let y = e.infer(produce, &[x(1)]);
            let z = e.forward(forward, &[kept(y.outputs[0])]);
            e.tree.begin_step();
            let ended = e.infer(next, &[x(1)]);
            e.forget(&ended);
            assert!(e.tree.is_pending(z.token()));
            [y.outputs[0], z.outputs[0]].map(|value| match fate(&ended, value).unwrap() {
                Fate::CopyOutForBackward(token) if token == z.token() => "copied for the backward",
                Fate::CopyOutForBackward(_) => "copied for another backward",
                Fate::CopyOut => "copied",
                Fate::Invalidate => "stale",
            })
        })
        .collect()
}

#[test]
fn a_forwards_own_input_that_is_saved_for_its_backward_is_copied_out() {
    let found = fates(&[Output::fresh(), saved(OF_INPUT)]);
    assert_eq!(found, [["copied for the backward", "stale"]; 3]);
}

#[test]
fn an_output_that_is_saved_through_an_alias_is_copied_out() {
    let found = fates(&[Output::fresh(), saved(OF_OUTPUT)]);
    assert_eq!(found, [["stale", "copied for the backward"]; 3]);
}

#[test]
fn the_rule_of_an_alias_is_a_rule_for_its_storage() {
    let copied = |kind| Output::of(kind).at_new_step(OldOutput::CopyOut);
    let found = fates(&[Output::fresh(), copied(OF_OUTPUT)]);
    assert_eq!(found, [["stale", "copied"]; 3]);
    let found = fates(&[Output::fresh(), copied(OF_INPUT)]);
    assert_eq!(found, [["copied", "stale"]; 3]);
}

#[test]
fn a_path_is_kept_for_an_alias_that_is_to_be_kept() {
    let mut e = Driver::default();
    let produce = e.function("produce", 1);
    let keep = Output::of(OF_INPUT).at_new_step(OldOutput::Keep);
    let view = e.function_of(FunctionSpec::new("view"), vec![Output::fresh(), keep]);
    for _ in 0..2 {
        let y = e.infer(produce, &[x(1)]);
        let z = e.infer(view, &[kept(y.outputs[0])]);
        e.forget(&y);
        e.forget(&z);
    }
    let y = e.infer(produce, &[x(1)]);
    let z = e.infer(view, &[kept(y.outputs[0])]);
    e.forget(&z);
    e.tree.begin_step();
    let next = e.infer(produce, &[x(1)]);
    assert_eq!(next.change, Some(PathChange::Kept(y.outputs[0].slot)));
    assert!(e.live.is_live(y.outputs[0].slot));
}

#[test]
fn an_alias_off_the_path_says_nothing_about_its_storage() {
    let mut e = Driver::default();
    let produce = e.function("produce", 1);
    let view = e.function_of(FunctionSpec::new("view"), vec![saved(OF_INPUT)]);
    for _ in 0..3 {
        let y = e.infer(produce, &[x(1)]);
        let z = e.forward(view, &[kept(y.outputs[0])]);
        e.forget(&z);
        e.tree.begin_step();
        let next = e.infer(produce, &[x(1)]);
        assert_eq!(fate(&next, y.outputs[0]), Some(Fate::Invalidate), "its backward was given up");
        e.forget(&next);
    }
}

#[test]
fn an_input_is_saved_for_the_backward_even_where_the_forward_reads_a_copy_of_it() {
    let limits = Limits { changes_before_staged: 1, ..Limits::default() };
    let mut e = Driver::new(Options { limits, ..Options::default() });
    let produce = e.function("produce", 4);
    let forward = e.function_of(FunctionSpec::new("forward"), vec![Output::fresh(), saved(OF_INPUT)]);
    let next = e.function("next", 1);
    let mut staged = 0;
    for turn in 0..12 {
        let y = e.infer(produce, &[x(1)]);
        let value = y.outputs[turn % 4];
        let z = e.forward(forward, &[kept(value)]);
        staged += e.tree.node(z.node()).unwrap().staged_inputs().count();
        e.tree.begin_step();
        let ended = e.infer(next, &[x(1)]);
        assert_eq!(fate(&ended, value), Some(Fate::CopyOutForBackward(z.token())), "turn {turn}");
        e.forget(&ended);
    }
    assert!(staged > 2, "it was staged when it was recorded and when it was replayed");
}

/// What becomes of an old output that goes into the first call of a step, when the call warms up, is recorded and
/// is replayed; `outputs` are those of the call.
fn carried(outputs: &[Output], give: fn(SlotValue) -> Input) -> Vec<Option<Fate>> {
    let mut e = Driver::default();
    let produce = e.function("produce", 1);
    let call = e.function_of(FunctionSpec::new("call"), outputs.to_vec());
    e.settle(&Call::inference(produce, &[x(1)]));
    (0..3)
        .map(|_| {
            e.tree.begin_step();
            let y = e.infer(produce, &[x(1)]);
            e.tree.begin_step();
            let z = e.infer(call, &[give(y.outputs[0])]);
            fate(&z, y.outputs[0])
        })
        .collect()
}

#[test]
fn an_old_output_that_a_new_step_hands_back_is_copied_out_whoever_gave_it_up() {
    let outputs = [Output::fresh(), Output::of(OF_INPUT)];
    assert_eq!(carried(&outputs, kept), [Some(Fate::CopyOut); 3]);
    assert_eq!(carried(&outputs, moved), [Some(Fate::CopyOut); 3]);
}

#[test]
fn an_old_output_that_is_only_read_is_copied_out_once_while_it_is_not_known_what_is_handed_back() {
    let outputs = [Output::fresh()];
    assert_eq!(
        carried(&outputs, kept),
        [Some(Fate::CopyOut), Some(Fate::Invalidate), Some(Fate::Invalidate)]
    );
    assert_eq!(carried(&outputs, moved), [Some(Fate::CopyOut), None, None]);
}

#[test]
fn what_turns_of_a_loop_hand_back_is_copied_out_when_the_loop_turns_back() {
    let mut e =
        Driver::new(Options { limits: Limits { loop_length: 2, ..Limits::default() }, ..Options::default() });
    let f = e.function_of(FunctionSpec::new("f"), vec![Output::fresh(), Output::of(OF_INPUT)]);
    let mut y = e.infer(f, &[x(1)]);
    let mut ends = 0;
    for _ in 0..12 {
        let old = y.outputs[0];
        y = e.infer(f, &[moved(old)]);
        if matches!(y.change, Some(PathChange::LoopTurns(_))) {
            assert_eq!(fate(&y, old), Some(Fate::CopyOut));
            ends += 1;
        }
    }
    assert!(ends > 2, "{ends}");
}

/// `f(first, second)` hands back `first`; both are staged, because they kept changing. It was recorded when `second`
/// was given up, so its memory is reused; the same value as `first` would be overwritten while it is handed back.
#[test]
fn a_recording_that_reuses_an_input_does_not_serve_a_call_that_hands_that_input_back() {
    let limits = Limits { changes_before_staged: 0, ..Limits::default() };
    let mut e = Driver::new(Options { limits, ..Options::default() });
    let produce = e.function("produce", 3);
    let f = e.function_of(FunctionSpec::new("f"), vec![Output::fresh(), Output::of(OF_INPUT)]);
    let mut run = |first: usize, second: usize| {
        let y = e.infer(produce, &[x(1)]);
        let z = e.infer(f, &[kept(y.outputs[first]), moved(y.outputs[second])]);
        e.forget(&y);
        e.forget(&z);
        (z.is_replay(), z.node.map(|node| e.tree.node(node).unwrap().staged_inputs().count()))
    };
    for (first, second) in [(0, 1), (0, 1), (0, 1), (0, 1), (1, 0), (1, 0), (0, 1), (0, 1)] {
        run(first, second);
    }
    assert_eq!(run(0, 1), (true, Some(2)));
    let y = e.infer(produce, &[x(1)]);
    let inputs = [moved(y.outputs[1]), moved(y.outputs[0])];
    let z = e.infer(f, &inputs);
    let reused: Vec<_> = e.tree.node(z.node()).unwrap().expected_dead().collect();
    assert!(!reused.contains(&y.outputs[1].slot), "{}", e.tree.outline());
    // Given up, and yet live by what was handed back.
    e.live.set(y.outputs[1].slot);
}

#[test]
fn what_an_eager_forward_read_of_the_path_is_copied_out_for_its_backward() {
    let mut e = Driver::default();
    let (produce, forward) = (e.function("produce", 2), e.function("forward", 1));
    e.settle(&Call::inference(produce, &[x(1)]));
    for discards in [false, true] {
        let y = e.infer(produce, &[x(1)]);
        let inputs = [kept(y.outputs[1])];
        let token = e
            .tree
            .ran_eagerly(&Call::forward(forward, &inputs), &EagerReason::KeyNotListed)
            .unwrap()
            .unwrap();
        if discards {
            assert!(e.tree.discard_backward(token));
        }
        e.tree.begin_step();
        let z = e.infer(produce, &[x(1)]);
        let saved = if discards { Fate::Invalidate } else { Fate::CopyOutForBackward(token) };
        let found: Vec<_> = y.outputs.iter().map(|value| fate(&z, *value)).collect();
        assert_eq!(found, [Some(Fate::Invalidate), Some(saved)]);
        e.forget(&z);
    }
}

#[test]
fn what_only_a_recording_is_seen_to_hand_back_is_copied_out_for_the_next_recording() {
    let mut e = Driver::default();
    let produce = e.function("produce", 1);
    let f = e.function("f", 1);
    e.settle(&Call::inference(produce, &[x(1)]));
    let addresses = [1, 2].map(|at| [Address::new(at)]);
    let call = |e: &mut Driver, set: usize| {
        e.tree.begin_step();
        let y = e.infer(produce, &[x(1)]);
        e.tree.begin_step();
        let (id, version) = (ParamSetId::new(set as u64), ParamVersion::new(0));
        let params = Params { set: id, version, addresses: &addresses[set] };
        let inputs = [moved(y.outputs[0])];
        let z = e.call(&Call::inference(f, &inputs).with_params(params));
        (z.is_record(), fate(&z, y.outputs[0]))
    };
    assert!(!call(&mut e, 0).0, "it warms up");
    e.declare(f, vec![Output::fresh(), Output::of(OF_INPUT)]);
    assert!(call(&mut e, 0).0);
    assert_eq!(call(&mut e, 1), (true, Some(Fate::CopyOut)));
}
