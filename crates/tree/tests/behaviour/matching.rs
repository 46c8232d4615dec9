//! Matching: which recording fits a call, and what is said when none does.

use crate::driver::{Did, Driver, kept, moved, x};
use graphgrove_tree::{
    Address, Call, FunctionId, FunctionSpec, Input, InputIndex, Liveness, Mismatch, Node, NodeId, Output,
    OutputKind, ParamIndex, ParamSetId, ParamVersion, Params, PathChange, Phase, RecordReason, Role,
    Signature, Slot, SlotIndex, StagedWhy,
};

fn params(set: u64, version: u64, addresses: &[Address]) -> Params<'_> {
    Params { set: ParamSetId::new(set), version: ParamVersion::new(version), addresses }
}

fn at<const N: usize>(addresses: [u64; N]) -> [Address; N] {
    addresses.map(Address::new)
}

/// Runs a call and drops what it leaves.
fn run(e: &mut Driver, call: &Call<'_>) -> Did {
    let outcome = e.call(call);
    e.forget(&outcome);
    outcome.did
}

fn mismatch(did: &Did) -> &Mismatch {
    match did {
        Did::Record(RecordReason::NoneFits { mismatch, .. }) => mismatch,
        other => panic!("not recorded again: {other:?}"),
    }
}

/// pytorch: `test_no_rerecord_with_mark_static_address`.
#[test]
fn a_staged_input_may_come_from_anywhere() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    // Foreign, carried from the path that ends, and foreign again: one recording.
    let y = e.infer(g, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(f, &[moved(y.outputs[0])]);
    assert_eq!((z.did, z.node), (Did::Replay, Some(root)));
    assert_eq!(e.roots(f).len(), 1);
}

/// pytorch: `test_rerecord_if_static_input_address_changed`, `test_unstable_ptr`,
/// `test_static_inputs_address_mutation_log`, `test_rerecording_logs_reason`.
#[test]
fn a_parameter_that_moved_is_recorded_again_and_named_with_both_addresses() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let (old, new) = (at([0x100, 0x200, 0x300]), at([0x100, 0x200, 0x900]));
    let before = Call::inference(f, &[]).with_params(params(1, 1, &old));
    let after = Call::inference(f, &[]).with_params(params(1, 2, &new));
    let root = e.settle(&before);
    let did = run(&mut e, &after);
    let expected = Mismatch::ParamAddress {
        param: ParamIndex::new(2),
        recorded: Address::new(0x300),
        called: Address::new(0x900),
    };
    assert_eq!(mismatch(&did), &expected);
    assert_eq!(expected.to_string(), "parameter p2 is at 0x900, recorded at 0x300");
    assert!(matches!(did, Did::Record(RecordReason::NoneFits { closest, .. }) if closest == root));
    assert_eq!((run(&mut e, &after), e.roots(f).len()), (Did::Replay, 2));
}

/// pytorch: `test_multi_dispatch_single_compile_param_inputs` and its kin.
#[test]
fn one_function_with_several_parameter_sets_has_a_recording_for_each_and_reuses_them() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let sets = [at([0x10, 0x20]), at([0x30, 0x40]), at([0x50, 0x60]), at([0x70, 0x80])];
    for round in 0..3 {
        for (set, addresses) in (0..).zip(&sets) {
            let did = run(&mut e, &Call::inference(f, &[x(1)]).with_params(params(set, 1, addresses)));
            match (round, set) {
                (0, 0) => assert!(matches!(did, Did::WarmUp(_))),
                (0, _) => assert!(matches!(did, Did::Record(_))),
                (1, 0) => assert!(matches!(mismatch(&did), Mismatch::ParamSet { .. })),
                _ => assert_eq!(did, Did::Replay),
            }
        }
    }
    assert_eq!(e.roots(f).len(), 4);
}

/// pytorch: `test_multi_dispatch_child_node`, `test_multi_dispatch_parent_node`.
#[test]
fn a_change_in_a_child_records_the_child_alone_and_a_change_in_a_parent_records_both() {
    let (old, new) = (at([0x10]), at([0x20]));
    let step = |e: &mut Driver, f: FunctionId, g: FunctionId, pf: &[Address; 1], pg: &[Address; 1]| {
        let set = |set: u64, addresses: &[Address; 1]| (set + addresses[0].get(), set);
        let ((vf, sf), (vg, sg)) = (set(1, pf), set(2, pg));
        let y = e.call(&Call::inference(f, &[x(1)]).with_params(params(sf, vf, pf)));
        let z = e.call(&Call::inference(g, &[kept(y.outputs[0])]).with_params(params(sg, vg, pg)));
        e.forget(&y);
        e.forget(&z);
    };
    for (changed_f, changed_g, expected) in [(&old, &new, 3), (&new, &old, 4)] {
        let mut e = Driver::default();
        let (f, g) = (e.function("f", 1), e.function("g", 1));
        for _ in 0..3 {
            step(&mut e, f, g, &old, &old);
        }
        assert_eq!(e.recorded, 2);
        step(&mut e, f, g, changed_f, changed_g);
        step(&mut e, f, g, &old, &old);
        step(&mut e, f, g, changed_f, changed_g);
        assert_eq!(e.recorded, expected);
    }
}

#[test]
fn addresses_are_read_only_when_the_version_or_the_set_changes() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let (old, moved) = (at([0x10]), at([0x20]));
    e.settle(&Call::inference(f, &[]).with_params(params(1, 1, &old)));
    let same_version = Call::inference(f, &[]).with_params(params(1, 1, &moved));
    assert_eq!(run(&mut e, &same_version), Did::Replay, "the owner's word is taken");
    let new_version = Call::inference(f, &[]).with_params(params(1, 2, &old));
    assert_eq!(run(&mut e, &new_version), Did::Replay, "nothing moved");
    let root = e.roots(f)[0];
    let seen = |e: &Driver| e.tree.node(root).unwrap().params().unwrap().seen();
    assert_eq!(seen(&e), (ParamSetId::new(1), ParamVersion::new(2)), "the new version is learnt");
    let other_set = Call::inference(f, &[]).with_params(params(7, 1, &old));
    assert_eq!(run(&mut e, &other_set), Did::Replay, "a set is known by its addresses");
    assert_eq!(seen(&e), (ParamSetId::new(7), ParamVersion::new(1)));
    let more = at([0x10, 0x20]);
    let did = run(&mut e, &Call::inference(f, &[]).with_params(params(7, 2, &more)));
    assert_eq!(mismatch(&did), &Mismatch::ParamCount { recorded: 1, called: 2 });
    let did = run(&mut e, &Call::inference(f, &[]));
    assert_eq!(mismatch(&did), &Mismatch::ParamCount { recorded: 2, called: 0 });
    assert_eq!(run(&mut e, &Call::inference(f, &[])), Did::Replay);
}

/// pytorch: `test_tensor_no_longer_in_pool`.
#[test]
fn a_managed_input_that_is_replaced_by_a_foreign_one_makes_a_sibling() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let mut last = None;
    for input_is_managed in [true, true, false, false, true] {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[if input_is_managed { kept(y.outputs[0]) } else { x(1) }]);
        e.forget(&y);
        e.forget(&z);
        last = Some(z);
    }
    let last = last.unwrap();
    assert!(last.is_replay());
    let children = e.tree.children(Some(root), g);
    assert_eq!(
        (children.len(), children[0]),
        (2, last.node()),
        "not the staged one, although it is predicted"
    );
    let roles: Vec<_> =
        e.tree.children(Some(root), g).iter().map(|id| e.tree.node(*id).unwrap().inputs()[0].role).collect();
    let slot = Slot { node: root, index: SlotIndex::new(0) };
    assert_eq!(roles, [Role::Managed { slot, depth: 0, dies: false }, Role::Staged(StagedWhy::Foreign)]);
}

/// pytorch: `test_tensor_dies_between_checkpoint`.
#[test]
fn an_output_that_dies_before_a_recording_must_be_dead_at_its_replays() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 2), e.function("g", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    e.release(&y.outputs[1..]);
    let first = e.infer(g, &[kept(y.outputs[0])]);
    let dead: Vec<_> =
        e.tree.node(first.node()).unwrap().dead_before().iter().flat_map(|mask| mask.slots()).collect();
    assert_eq!(dead, [y.outputs[1].slot]);
    e.forget(&y);
    e.forget(&first);
    // With both outputs live the recording does not fit, and the reason names the output.
    let y = e.infer(f, &[x(1)]);
    let second = e.infer(g, &[kept(y.outputs[0])]);
    assert_eq!(mismatch(&second.did), &Mismatch::StillLive { slot: y.outputs[1].slot });
    e.forget(&y);
    e.forget(&second);
    // What demands less fits more: with the output dead either would do, and the first found is taken.
    let y = e.infer(f, &[x(1)]);
    e.release(&y.outputs[1..]);
    assert!(e.infer(g, &[kept(y.outputs[0])]).is_replay());
    assert_eq!(e.tree.children(Some(root), g).len(), 2);
}

/// pytorch/pytorch#154306: upstream this is fatal.
#[test]
fn an_input_that_the_caller_keeps_although_the_recording_reuses_it_makes_a_sibling() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let mut dids = Vec::new();
    for given_up in [true, true, false, false, true] {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[if given_up { moved(y.outputs[0]) } else { kept(y.outputs[0]) }]);
        e.forget(&y);
        e.forget(&z);
        dids.push(z.did);
    }
    assert_eq!(dids[0], Did::Record(RecordReason::First));
    assert_eq!(mismatch(&dids[2]), &Mismatch::InputStillHeld { input: InputIndex::new(0) });
    assert_eq!([&dids[1], &dids[3], &dids[4]], [&Did::Replay; 3]);
    assert_eq!(e.tree.children(Some(root), g).len(), 2);
}

#[test]
fn an_output_that_dies_while_the_recording_runs_must_be_dead_or_given_up_at_its_replays() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 2), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let inputs = [kept(y.outputs[0])];
    let call = Call::inference(g, &inputs);
    let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else { panic!() };
    let recording = e.tree.begin_recording(*plan, &e.live).unwrap();
    e.release(&y.outputs[1..]);
    let ran = e.tree.finish_recording(recording, vec![Output::fresh()], &e.live).unwrap();
    let node = e.tree.node(ran.node).unwrap();
    let after: Vec<_> = node.dead_after().iter().flat_map(|mask| mask.slots()).collect();
    assert_eq!((node.dead_before().len(), after), (0, vec![y.outputs[1].slot]));
    e.live.clear_all(ran.node);
    e.release(&y.outputs);
    let y = e.infer(f, &[x(1)]);
    let z = e.infer(g, &[kept(y.outputs[0])]);
    assert_eq!(mismatch(&z.did), &Mismatch::StillLive { slot: y.outputs[1].slot });
}

#[test]
fn what_an_ancestor_demands_is_not_demanded_again() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 2), e.function("g", 1));
    for function in [f, g] {
        e.settle(&Call::inference(function, &[x(1)]));
    }
    let y = e.infer(f, &[x(1)]);
    e.release(&y.outputs[1..]);
    let z = e.infer(g, &[moved(y.outputs[0])]);
    let w = e.infer(g, &[moved(z.outputs[0])]);
    let demands = |node: NodeId| e.tree.node(node).unwrap().expected_dead().collect::<Vec<_>>();
    assert_eq!(demands(z.node()), [y.outputs[1].slot, y.outputs[0].slot]);
    assert_eq!(demands(w.node()), [z.outputs[0].slot]);
}

#[test]
fn everything_that_differs_is_named() {
    let mut e = Driver::default();
    let f = e.function("f", 2);
    let g = e.function("g", 1);
    e.settle(&Call::inference(f, &[x(1)]));
    let warm = |e: &mut Driver, call: &Call<'_>| {
        e.tree.begin_step();
        let y = e.call(call);
        assert!(y.is_warm_up());
        e.forget(&y);
    };
    let one = [x(1)];
    let lists: [&[Input]; 5] = [&one, &[x(2)], &[x(1), x(1)], &[x(1).mutated()], &[Input::scalar(1)]];
    for list in lists {
        let warm_up_known = list == [x(1).mutated()];
        if !warm_up_known {
            warm(&mut e, &Call::inference(g, list));
        }
    }
    warm(&mut e, &Call::forward(g, &one));
    let y = e.infer(f, &one);
    let did = |e: &mut Driver, call: &Call<'_>| {
        let z = e.call(call);
        e.forget(&z);
        z.did
    };
    assert_eq!(did(&mut e, &Call::inference(g, &one)), Did::Record(RecordReason::First));
    let index = InputIndex::new(0);
    let named = |e: &mut Driver, call: Call<'_>| mismatch(&did(e, &call)).clone();
    let sig = Signature::new;
    assert_eq!(
        named(&mut e, Call::inference(g, &[x(2)])),
        Mismatch::Signature { input: index, recorded: sig(1), called: sig(2) }
    );
    assert_eq!(
        named(&mut e, Call::forward(g, &one)),
        Mismatch::Phase { recorded: Phase::Inference, called: Phase::Forward }
    );
    assert_eq!(
        named(&mut e, Call::inference(g, &[x(1), x(1)])),
        Mismatch::InputCount { recorded: 1, called: 2 }
    );
    assert_eq!(named(&mut e, Call::inference(g, &[x(1).mutated()])), Mismatch::Use { input: index });
    assert_eq!(named(&mut e, Call::inference(g, &[Input::scalar(1)])), Mismatch::Use { input: index });
    assert_eq!(named(&mut e, Call::inference(g, &[kept(y.outputs[0])])), Mismatch::Use { input: index });
    assert_eq!(
        named(&mut e, Call::inference(g, &[kept(y.outputs[1])])),
        Mismatch::ManagedInput { input: index, recorded: y.outputs[0].slot, called: y.outputs[1].slot }
    );
    // Each of them is found again.
    for list in [&[x(2)][..], &[x(1), x(1)], &[kept(y.outputs[0])], &[kept(y.outputs[1])], &one] {
        assert_eq!(did(&mut e, &Call::inference(g, list)), Did::Replay);
    }
}

#[test]
fn the_closest_recording_is_the_one_that_is_named() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let (a, b, c) = (at([0x10, 0x20]), at([0x30, 0x40]), at([0x10, 0x50]));
    let near = e.settle(&Call::inference(f, &[x(1)]).with_params(params(1, 1, &a)));
    run(&mut e, &Call::inference(f, &[x(1)]).with_params(params(2, 1, &b)));
    let outcome = e.call(&Call::inference(f, &[x(1)]).with_params(params(1, 2, &c)));
    assert!(matches!(outcome.did, Did::Record(RecordReason::NoneFits { closest, .. }) if closest == near));
}

#[test]
fn of_equally_close_recordings_the_last_one_used_is_named() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let a = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(f, &[x(2)]));
    run(&mut e, &Call::inference(f, &[x(1)]));
    assert!(matches!(run(&mut e, &Call::inference(f, &[x(3)])), Did::WarmUp(_)));
    let did = run(&mut e, &Call::inference(f, &[x(3)]));
    assert!(matches!(did, Did::Record(RecordReason::NoneFits { closest, .. }) if closest == a));
}

#[test]
fn what_followed_last_time_is_predicted() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    assert_eq!(e.tree.predicted(), None);
    let mut roots = [f, g].map(|function| e.settle(&Call::inference(function, &[x(1)])));
    for _ in 0..2 {
        for (this, function) in [f, g].into_iter().enumerate() {
            run(&mut e, &Call::inference(function, &[x(1)]));
            let _ = this;
        }
    }
    assert_eq!(e.tree.predicted(), Some(roots[0]));
    run(&mut e, &Call::inference(f, &[x(1)]));
    assert_eq!(e.tree.predicted(), Some(roots[1]));
    roots.reverse();
    run(&mut e, &Call::inference(f, &[x(1)]));
    assert_eq!(e.tree.predicted(), Some(roots[1]), "f followed f this time");
}

#[test]
fn a_prediction_that_does_not_fit_costs_no_recording() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    for function in [f, g] {
        e.settle(&Call::inference(function, &[x(1)]));
    }
    let recorded = e.recorded;
    for turn in [0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0] {
        assert_eq!(run(&mut e, &Call::inference([f, g][turn], &[x(1)])), Did::Replay);
    }
    assert_eq!(e.recorded, recorded);
}

#[test]
fn a_predicted_child_is_not_taken_when_something_after_its_parent_is_needed() {
    let mut e = Driver::default();
    let (f, g, h) = (e.function("f", 1), e.function("g", 1), e.function("h", 1));
    for function in [f, g, h] {
        e.settle(&Call::inference(function, &[x(1)]));
    }
    let mut nodes = Vec::new();
    for keep_g in [false, false, true, true] {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[x(1)]);
        if !keep_g {
            e.forget(&z);
        }
        let w = e.infer(h, &[x(1)]);
        nodes.push((e.tree.node(w.node()).and_then(Node::parent) == y.node, w.is_replay(), w.change.clone()));
        for outcome in [&y, &z, &w] {
            e.forget(outcome);
        }
    }
    assert_eq!(
        nodes,
        [
            (true, false, Some(PathChange::DropsUnneededTail)),
            (true, true, Some(PathChange::DropsUnneededTail)),
            (false, false, Some(PathChange::Extends)),
            (false, true, Some(PathChange::Extends)),
        ]
    );
}

#[test]
fn a_root_that_is_predicted_is_not_taken_while_the_path_is_needed() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let _held = e.infer(f, &[x(1)]);
    assert_eq!(e.tree.predicted(), Some(root));
    let z = e.infer(f, &[x(1)]);
    assert_eq!(e.tree.node(z.node()).and_then(Node::parent), Some(root));
}

#[test]
fn a_child_of_a_current_node_that_nothing_needs_is_taken_where_it_exists() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let child = e.infer(g, &[x(1)]);
    e.forget(&y);
    e.forget(&child);
    let other = e.settle(&Call::inference(g, &[x(1)]));
    assert_ne!(child.node(), other);
    // The prediction after f is g as f's child; it is not needed for the choice.
    for _ in 0..2 {
        let y = e.infer(f, &[x(1)]);
        e.forget(&y);
        let z = e.infer(g, &[x(1)]);
        assert_eq!((z.node(), z.change), (child.node(), Some(PathChange::Extends)));
        assert_eq!(e.tree.path().collect::<Vec<_>>(), [root, child.node()]);
        e.release(&z.outputs);
        e.settle(&Call::inference(f, &[x(1)]));
    }
}

#[test]
fn an_input_is_known_by_its_slot_and_its_run() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 65), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    for (slot, replays) in [(64, false), (64, true), (0, false)] {
        let y = e.infer(f, &[x(1)]);
        assert_eq!(Liveness::live_word(&e.live, y.node(), 1), 1);
        let z = e.infer(g, &[moved(y.outputs[slot])]);
        assert_eq!(z.is_replay(), replays);
        e.forget(&y);
        e.forget(&z);
    }
}

#[test]
fn a_view_that_was_recorded_needs_its_storage_kept_or_given_up_like_any_input() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let view = OutputKind::AliasOfInput(InputIndex::new(0));
    let g = e.function_of(FunctionSpec::new("g"), vec![Output::of(view)]);
    e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let inputs = [moved(y.outputs[0])];
    let call = Call::inference(g, &inputs);
    let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else { panic!() };
    let recording = e.tree.begin_recording(*plan, &e.live).unwrap();
    // The input's handle goes in and comes out again as the output: its slot never dies.
    let ran = e.tree.finish_recording(recording, vec![Output::of(view)], &e.live).unwrap();
    let role = e.tree.node(ran.node).unwrap().inputs()[0].role;
    assert_eq!(role, Role::Managed { slot: y.outputs[0].slot, depth: 0, dies: false });
    assert_eq!(e.tree.node(ran.node).unwrap().expected_dead().count(), 0);
}

#[test]
fn a_node_tells_what_it_was_recorded_for_and_how_it_is_used() {
    let mut e = Driver::default();
    let f = e.function("f", 2);
    let root = e.settle(&Call::forward(f, &[x(1)]));
    let y = e.forward(f, &[x(1)]);
    let z = e.infer(f, &[kept(y.outputs[0])]);
    e.forget(&z);
    let w = e.infer(f, &[kept(y.outputs[0])]);
    let (parent, warm_up) = (e.tree.node(root).unwrap(), e.tree.node(w.node()).unwrap());
    assert_eq!(
        (parent.phase(), parent.replays(), parent.depth(), parent.parent()),
        (Phase::Forward, 2, 0, None)
    );
    assert_eq!((warm_up.phase(), warm_up.depth(), warm_up.parent()), (Phase::Inference, 1, Some(root)));
    assert_eq!(parent.reason(), Some(&RecordReason::First));
    assert_eq!((parent.is_warm_up(), parent.outputs()), (false, &[Output::fresh(); 2][..]));
    assert_eq!(parent.inputs().len(), 1);
    assert!(parent.params().is_none());
    assert_eq!(parent.last_used() + 2, warm_up.last_used(), "one call ran between the two");
    assert_eq!(e.tree.options(), &graphgrove_tree::Options::default());
    assert_eq!(e.tree.nodes().count(), e.tree.recordings() + usize::from(warm_up.is_warm_up()));
}

#[test]
fn plans_say_how_each_input_is_used() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let inputs = [kept(y.outputs[0]), x(2), Input::scalar(3).mutated()];
    let call = Call::inference(g, &inputs);
    let slot = y.outputs[0].slot;
    let expected = [
        (1, Role::Managed { slot, depth: 0, dies: false }, false),
        (2, Role::Staged(StagedWhy::Foreign), false),
        (3, Role::Scalar, true),
    ];
    let told = |inputs: &[graphgrove_tree::Expected]| {
        let one = |input: &graphgrove_tree::Expected| (input.signature.get(), input.role, input.mutated);
        inputs.iter().map(one).collect::<Vec<_>>()
    };
    let graphgrove_tree::Decision::WarmUp(plan) = e.tree.decide(&call, &e.live).unwrap() else { panic!() };
    assert_eq!(told(plan.inputs()), expected);
    let z = e.call(&call);
    e.forget(&z);
    let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else { panic!() };
    assert_eq!(told(plan.inputs()), expected);
    e.tree.begin_step();
    let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else { panic!() };
    assert_eq!(plan.inputs()[0].role, Role::Staged(StagedWhy::Carried));
}
