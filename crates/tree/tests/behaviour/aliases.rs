//! Aliases at a new step: a storage is dealt with as the strictest of its aliases needs it.

use crate::driver::{Driver, Outcome, kept, x};
use graphgrove_tree::{
    Fate, FunctionSpec, InputIndex, Limits, OldOutput, Options, Output, OutputKind, PathChange, SlotIndex,
    SlotValue,
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
