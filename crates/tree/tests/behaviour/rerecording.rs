//! Recording again: budgets that decay, and inputs that are staged because they keep changing.

use crate::driver::{Did, Driver, Outcome, kept, moved, x};
use graphgrove_tree::{
    Address, Call, Demotion, EagerReason, FunctionId, FunctionSpec, Input, InputIndex, Limits, Mismatch,
    Node, NodeId, Options, Output, ParamIndex, ParamSetId, ParamVersion, Params, RecordReason, Role,
    Signature, SlotIndex, StagedWhy,
};

fn limited(limits: Limits) -> Driver {
    Driver::new(Options { limits, ..Options::default() })
}

/// Runs an inference call and drops what it leaves.
fn run(e: &mut Driver, function: FunctionId, inputs: &[Input]) -> Outcome {
    let outcome = e.infer(function, inputs);
    e.forget(&outcome);
    outcome
}

/// Runs a call with so many parameters, those listed in `moved` at another address each time.
fn with_params(e: &mut Driver, f: FunctionId, version: u64, count: u64, moved: &[u64]) -> Outcome {
    let address = |index| if moved.contains(&index) { 0x1000 * (version + 1) + index } else { index };
    let addresses: Vec<_> = (0..count).map(|index| Address::new(address(index))).collect();
    let params =
        Params { set: ParamSetId::new(1), version: ParamVersion::new(version), addresses: &addresses };
    let outcome = e.call(&Call::inference(f, &[]).with_params(params));
    e.forget(&outcome);
    outcome
}

/// pytorch: `test_fallback_to_eager_if_recompiling_too_many_times`, `..._warn_only_once`.
#[test]
fn a_function_that_is_recorded_again_too_often_runs_eagerly_until_its_count_has_decayed() {
    let mut e = limited(Limits { rerecordings: 3, rerecordings_decay: 10, ..Limits::default() });
    let f = e.function("f", 1);
    let mut dids = Vec::new();
    for shape in 0..8 {
        run(&mut e, f, &[x(shape)]);
        dids.push(run(&mut e, f, &[x(shape)]));
    }
    let recorded = dids.iter().filter(|outcome| outcome.is_record()).count();
    // One first recording, three again, and one more for the ten calls that have gone by since the first of
    // them.
    assert_eq!(recorded, 5);
    let refused: Vec<_> = dids.iter().filter_map(Outcome::eager).collect();
    let EagerReason::Rerecorded { calls, mismatch: Mismatch::Signature { .. } } = refused[0] else {
        panic!("{refused:?}")
    };
    // Shape 4 is refused at call 9; the count began to decay at call 3.
    assert_eq!(*calls, 4);
    assert_eq!(e.tree.take_notices().len(), 1, "said once");
    assert!(run(&mut e, f, &[x(0)]).is_replay(), "what was recorded is replayed all the same");
}

#[test]
fn the_wait_that_is_announced_is_the_wait_that_it_takes() {
    let mut e = limited(Limits { rerecordings: 1, rerecordings_decay: 7, ..Limits::default() });
    let f = e.function("f", 1);
    for shape in 0..3 {
        run(&mut e, f, &[x(shape)]);
        run(&mut e, f, &[x(shape)]);
    }
    let refused = run(&mut e, f, &[x(2)]);
    let Some(EagerReason::Rerecorded { calls, .. }) = refused.eager() else { panic!("{refused:?}") };
    for _ in 1..*calls {
        assert!(run(&mut e, f, &[x(2)]).eager().is_some());
    }
    assert!(run(&mut e, f, &[x(2)]).is_record());
}

/// Warms a function up with so many shapes.
fn warmed(e: &mut Driver, shapes: u64) -> FunctionId {
    let f = e.function("f", 1);
    for shape in 0..shapes {
        assert!(run(e, f, &[x(shape)]).is_warm_up());
    }
    f
}

#[test]
fn what_is_recorded_and_not_replayed_is_soon_not_recorded_any_more() {
    let mut e = limited(Limits { unreplayed: 3, unreplayed_decay: 5, ..Limits::default() });
    let f = warmed(&mut e, 100);
    let dids: Vec<_> = (0..100).map(|shape| run(&mut e, f, &[x(shape)])).collect();
    // Three at first, and one for each five calls since the first.
    assert_eq!(dids.iter().filter(|outcome| outcome.is_record()).count(), 3 + 99 / 5);
    let refused: Vec<_> = dids.iter().filter_map(Outcome::eager).collect();
    assert_eq!(*refused[0], EagerReason::Unreplayed { calls: 2 });
    assert_eq!(e.tree.take_notices().len(), 1 + 1, "said once, beside that there are many shapes");
}

#[test]
fn a_first_replay_leaves_room_for_another_recording_and_a_second_one_does_not() {
    let mut e = limited(Limits { unreplayed: 2, unreplayed_decay: 0, ..Limits::default() });
    let f = warmed(&mut e, 4);
    assert!(run(&mut e, f, &[x(0)]).is_record() && run(&mut e, f, &[x(1)]).is_record());
    assert_eq!(run(&mut e, f, &[x(2)]).eager(), Some(&EagerReason::Unreplayed { calls: u64::MAX }));
    assert!(run(&mut e, f, &[x(1)]).is_replay() && run(&mut e, f, &[x(1)]).is_replay());
    assert!(run(&mut e, f, &[x(2)]).is_record());
    assert!(run(&mut e, f, &[x(3)]).eager().is_some());
}

#[test]
fn what_repeats_is_recorded_in_the_end_however_much_it_is() {
    let mut e = limited(Limits { unreplayed: 3, unreplayed_decay: 0, ..Limits::default() });
    let f = warmed(&mut e, 20);
    let mut replays = Vec::new();
    for _ in 0..9 {
        replays.push((0..20).filter(|shape| run(&mut e, f, &[x(*shape)]).is_replay()).count());
    }
    assert_eq!(replays, [0, 3, 6, 9, 12, 15, 18, 20, 20]);
}

#[test]
fn calls_below_ever_other_outputs_count_as_not_replayed_too() {
    let mut e = limited(Limits { unreplayed: 4, unreplayed_decay: 0, ..Limits::default() });
    let f = warmed(&mut e, 1);
    let held: Vec<_> = (0..10).map(|_| e.infer(f, &[x(0)])).collect();
    assert_eq!(held.iter().filter(|outcome| outcome.is_record()).count(), 4);
    assert_eq!(held[4].eager(), Some(&EagerReason::Unreplayed { calls: u64::MAX }));
}

#[test]
fn the_wait_for_what_was_not_replayed_is_the_wait_that_it_takes() {
    let mut e = limited(Limits { unreplayed: 1, unreplayed_decay: 7, ..Limits::default() });
    let f = warmed(&mut e, 2);
    assert!(run(&mut e, f, &[x(0)]).is_record());
    let refused = run(&mut e, f, &[x(1)]);
    let Some(EagerReason::Unreplayed { calls }) = refused.eager() else { panic!("{refused:?}") };
    for _ in 1..*calls {
        assert!(run(&mut e, f, &[x(1)]).eager().is_some());
    }
    assert!(run(&mut e, f, &[x(1)]).is_record());
}

/// pytorch: `test_not_fallback_to_eager_if_have_not_recompiling_too_many_times`.
#[test]
fn a_limit_that_is_not_reached_holds_nothing_back() {
    let mut e = limited(Limits { rerecordings: 3, ..Limits::default() });
    let f = e.function("f", 1);
    for shape in [0, 1, 2, 3, 0, 1, 2, 3, 3, 2, 1] {
        e.settle(&Call::inference(f, &[x(shape)]));
    }
    assert_eq!((e.recorded, e.ran_eagerly), (4, 0));
    assert_eq!(e.tree.take_notices(), []);
}

#[test]
fn places_and_functions_have_budgets_of_their_own() {
    let mut e = limited(Limits { rerecordings: 1, rerecordings_decay: 0, ..Limits::default() });
    let (f, g, h) = (e.function("f", 1), e.function("g", 1), e.function("h", 1));
    e.settle(&Call::inference(h, &[x(1)]));
    for function in [f, g] {
        for shape in 0..4 {
            run(&mut e, function, &[x(shape)]);
        }
        let dids: Vec<_> = (0..4).map(|shape| run(&mut e, function, &[x(shape)]).is_record()).collect();
        assert_eq!(dids, [true, true, false, false], "another function");
    }
    let _held = e.infer(h, &[x(1)]);
    let dids: Vec<_> = (0..4).map(|shape| run(&mut e, f, &[x(shape)]).is_record()).collect();
    assert_eq!(dids, [true, true, false, false], "another place");
}

/// pytorch: `test_param_ptr_churn_does_not_count_toward_rerecord_limit`.
#[test]
fn a_parameter_that_moves_is_staged_and_does_not_count_as_recording_again() {
    let mut e =
        limited(Limits { rerecordings: 0, changes_before_staged: 2, changes_decay: 0, ..Limits::default() });
    let f = e.function("f", 1);
    let outcomes: Vec<_> = (0..9).map(|version| with_params(&mut e, f, version, 8, &[5])).collect();
    let kinds: Vec<_> = outcomes.iter().map(Outcome::is_replay).collect();
    // Warm-up, first recording, two changes, the recording that stages it, and replays ever after.
    assert_eq!(kinds, [false, false, false, false, false, true, true, true, true]);
    let staged = e.tree.node(outcomes[4].node()).unwrap().params().unwrap().staged().to_vec();
    assert_eq!(staged, [ParamIndex::new(5)]);
    assert_eq!(e.tree.node(outcomes[3].node()).unwrap().params().unwrap().staged(), []);
    assert_eq!(e.tree.node(outcomes[4].node()).unwrap().params().unwrap().addresses().len(), 8);
}

#[test]
fn a_plan_says_what_it_demotes() {
    let mut e = limited(Limits { changes_before_staged: 0, ..Limits::default() });
    let f = e.function("f", 1);
    with_params(&mut e, f, 0, 4, &[]);
    with_params(&mut e, f, 0, 4, &[]);
    let addresses = [0, 0x77, 2, 0x99].map(Address::new);
    let params = Params { set: ParamSetId::new(1), version: ParamVersion::new(3), addresses: &addresses };
    let call = Call::inference(f, &[]).with_params(params);
    let graphgrove_tree::Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else { panic!() };
    let index = ParamIndex::new;
    assert_eq!(plan.demotions(), [Demotion::Param(index(1)), Demotion::Param(index(3))]);
    assert_eq!(plan.params().unwrap().staged(), [index(1), index(3)]);
}

#[test]
fn changes_that_are_rare_demote_nothing() {
    let mut e = limited(Limits { changes_before_staged: 1, changes_decay: 4, ..Limits::default() });
    let f = e.function("f", 1);
    for version in 0..6 {
        for _ in 0..6 {
            let y = with_params(&mut e, f, version, 2, &[1]);
            if let Some(node) = y.node.and_then(|node| e.tree.node(node)).filter(|node| !node.is_warm_up()) {
                assert_eq!(node.params().unwrap().staged(), []);
            }
        }
    }
    assert_eq!(e.recorded, 6);
}

#[test]
fn parameters_that_the_function_writes_are_not_staged_without_copying_back() {
    for copy_back in [true, false] {
        let limits = Limits {
            rerecordings: 2,
            rerecordings_decay: 0,
            changes_before_staged: 1,
            changes_decay: 0,
            ..Limits::default()
        };
        let mut e = Driver::new(Options { limits, copy_back, ..Options::default() });
        let writes = e.function_of(FunctionSpec::new("w").mutates_params(), vec![Output::fresh()]);
        let last = (0..8).map(|version| with_params(&mut e, writes, version, 2, &[1])).last().unwrap();
        assert_eq!(last.is_replay(), copy_back);
        assert_eq!(matches!(last.eager(), Some(EagerReason::Rerecorded { .. })), !copy_back);
        let mut other = Driver::new(Options { limits, copy_back, ..Options::default() });
        let reads = other.function("r", 1);
        let last = (0..8).map(|version| with_params(&mut other, reads, version, 2, &[1])).last().unwrap();
        assert!(last.is_replay(), "only writing needs the copy back");
    }
}

/// pytorch: `test_fallback_to_eager_if_recompiling_too_many_times_due_to_cudagraph_managed_tensor`;
/// pytorch/pytorch#191369.
#[test]
fn a_managed_input_that_keeps_being_another_output_is_staged_alone() {
    let mut e = limited(Limits { changes_before_staged: 2, changes_decay: 0, ..Limits::default() });
    let (f, g) = (e.function("f", 16), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    run(&mut e, g, &[x(1), x(1)]);
    let mut dids = Vec::new();
    let mut last = None;
    for turn in 0..10 {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[kept(y.outputs[0]), kept(y.outputs[1 + turn])]);
        dids.push(z.is_replay());
        e.forget(&y);
        e.forget(&z);
        last = z.node;
    }
    assert_eq!(dids, [false, false, false, false, true, true, true, true, true, true]);
    let node = e.tree.node(last.unwrap()).unwrap();
    assert!(matches!(node.inputs()[0].role, Role::Managed { .. }));
    assert_eq!(node.inputs()[1].role, Role::Staged(StagedWhy::Churn));
    assert_eq!(node.staged_inputs().collect::<Vec<_>>(), [(InputIndex::new(1), StagedWhy::Churn)]);
}

#[test]
fn a_managed_input_that_is_written_is_staged_only_where_it_is_copied_back() {
    for (copy_back, is_written) in [(true, true), (true, false), (false, true), (false, false)] {
        let limits = Limits {
            changes_before_staged: 1,
            changes_decay: 0,
            rerecordings: 2,
            rerecordings_decay: 0,
            ..Limits::default()
        };
        let mut e = Driver::new(Options { limits, copy_back, ..Options::default() });
        let (f, g) = (e.function("f", 16), e.function("g", 1));
        e.settle(&Call::inference(f, &[x(1)]));
        let mut last = None;
        for turn in 0..9 {
            let y = e.infer(f, &[x(1)]);
            let input = kept(y.outputs[turn]);
            let z = e.infer(g, &[if is_written { input.mutated() } else { input }]);
            e.forget(&y);
            e.forget(&z);
            last = Some(z);
        }
        let last = last.unwrap();
        let is_staged = copy_back || !is_written;
        assert_eq!((last.is_replay(), last.eager().is_some()), (is_staged, !is_staged));
    }
}

#[test]
fn a_staged_source_that_is_given_up_each_time_fits_whatever_output_it_is() {
    let mut e = limited(Limits { changes_before_staged: 0, ..Limits::default() });
    let (f, g) = (e.function("f", 2), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    run(&mut e, g, &[x(1), x(1)]);
    let mut dids = Vec::new();
    for order in [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]] {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &order.map(|slot| moved(y.outputs[slot])));
        dids.push(z.is_replay());
        e.forget(&z);
    }
    assert_eq!(dids, [false, false, true, true, true]);
    // One output given up through two handles is one storage.
    let y = e.infer(f, &[x(1)]);
    e.release(&y.outputs[1..]);
    let z = e.infer(g, &[moved(y.outputs[0]), moved(y.outputs[0])]);
    assert!(z.is_replay());
    e.forget(&z);
    // Kept by the caller, the same outputs do not fit: their memory is reused by the recording.
    let y = e.infer(f, &[x(1)]);
    let z = e.infer(g, &[kept(y.outputs[1]), kept(y.outputs[0])]);
    assert!(matches!(
        z.did,
        Did::Record(RecordReason::NoneFits { mismatch: Mismatch::StillLive { .. }, .. })
    ));
}

#[test]
fn a_staged_source_may_not_be_what_the_recording_found_dead_before_it_began() {
    let mut e = limited(Limits { changes_before_staged: 0, ..Limits::default() });
    let (f, g) = (e.function("f", 3), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    run(&mut e, g, &[x(1)]);
    let step = |e: &mut Driver, dead: usize, slot: usize| {
        let y = e.infer(f, &[x(1)]);
        e.release(&y.outputs[dead..=dead]);
        let z = e.infer(g, &[moved(y.outputs[slot])]);
        e.forget(&y);
        e.forget(&z);
        z
    };
    step(&mut e, 2, 0);
    let staged = step(&mut e, 2, 1);
    assert_eq!(e.tree.node(staged.node()).unwrap().dead_before().len(), 1);
    // Output 2 was dead before the staged recording began, so a staging buffer may lie where it is.
    let z = step(&mut e, 1, 2);
    assert!(matches!(
        z.did,
        Did::Record(RecordReason::NoneFits { mismatch: Mismatch::StillLive { slot }, .. })
            if slot.index == SlotIndex::new(2)
    ));
}

#[test]
fn demoting_one_input_leaves_recordings_from_before_usable_where_they_are_predicted() {
    let mut e = limited(Limits { changes_before_staged: 0, ..Limits::default() });
    let (f, g) = (e.function("f", 4), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    run(&mut e, g, &[x(1)]);
    let mut nodes: Vec<NodeId> = Vec::new();
    for slot in [0, 0, 1, 2, 0] {
        let y = e.infer(f, &[x(1)]);
        let z = e.infer(g, &[kept(y.outputs[slot])]);
        nodes.push(z.node());
        e.forget(&y);
        e.forget(&z);
    }
    assert_eq!(nodes[0], nodes[1]);
    assert_eq!([nodes[3], nodes[4]], [nodes[2]; 2], "the staged recording serves every output");
    assert_eq!(e.tree.node(nodes[0]).map(Node::replays), Some(1));
    assert_eq!(e.tree.node(nodes[2]).unwrap().inputs()[0].signature, Signature::new(1));
}

#[test]
fn a_recording_from_before_a_demotion_is_still_taken_where_it_is_predicted() {
    let limits = Limits { changes_before_staged: 0, ..Limits::default() };
    // As roots, below a node, and below a node with a tail after it that nothing needs.
    for (is_root, has_tail) in [(true, false), (false, false), (false, true)] {
        let mut e = limited(limits);
        let (before, tail, g) = (e.function("before", 1), e.function("tail", 1), e.function("g", 1));
        for function in [before, tail] {
            e.settle(&Call::inference(function, &[x(1)]));
        }
        let mut nodes = Vec::new();
        let first = |e: &mut Driver| {
            let y = e.infer(before, &[x(1)]);
            if has_tail {
                run(e, tail, &[x(1)]);
            }
            if is_root {
                e.forget(&y);
            }
            y
        };
        // The address moves twice; what follows `before` last time is the recording of the first address.
        for (version, address) in [(1, 0x10), (1, 0x10), (2, 0x20), (3, 0x10), (3, 0x10)] {
            let addresses = [Address::new(address)];
            let (set, version) = (ParamSetId::new(1), ParamVersion::new(version));
            let params = Params { set, version, addresses: &addresses };
            let y = first(&mut e);
            let z = e.call(&Call::inference(g, &[]).with_params(params));
            e.forget(&z);
            e.forget(&y);
            nodes.push(z.node());
        }
        // The staged recording was made last, so it is predicted from then on.
        assert_ne!(nodes[1], nodes[2]);
        assert_eq!([nodes[3], nodes[4]], [nodes[2]; 2]);
        // Once the first recording is made what followed last time, by the one route that is left to it, it is taken
        // again and again, although a lookup would find the staged one.
        let addresses = [Address::new(0x10)];
        let (set, version) = (ParamSetId::new(1), ParamVersion::new(4));
        let call = Call::inference(g, &[]).with_params(Params { set, version, addresses: &addresses });
        let y = first(&mut e);
        let _ran = e.tree.follow(nodes[1], &call).unwrap();
        e.forget(&y);
        for _ in 0..2 {
            let y = first(&mut e);
            let z = e.call(&call);
            assert_eq!((z.node(), z.is_replay()), (nodes[1], true), "{is_root} {has_tail}");
            e.forget(&z);
            e.forget(&y);
        }
    }
}

#[test]
fn a_value_that_is_given_up_by_one_of_two_inputs_is_given_up() {
    let mut e = Driver::default();
    let (p, f) = (e.function("p", 1), e.function("f", 1));
    for _ in 0..50 {
        let y = e.infer(p, &[x(1)]);
        let z = e.infer(f, &[kept(y.outputs[0]), moved(y.outputs[0])]);
        e.forget(&z);
    }
    assert_eq!((e.warmed_up, e.recorded, e.replayed), (2, 2, 96));
    let y = e.infer(p, &[x(1)]);
    let held = e.infer(f, &[kept(y.outputs[0]), kept(y.outputs[0])]);
    let mismatch = Mismatch::InputStillHeld { input: InputIndex::new(0) };
    assert!(
        matches!(held.did, Did::Record(RecordReason::NoneFits { mismatch: found, .. }) if found == mismatch)
    );
}
