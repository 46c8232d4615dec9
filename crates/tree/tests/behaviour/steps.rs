//! Steps: how a path begins, goes on and ends, and what becomes of what is live then.

use crate::driver::{Did, Driver, kept, moved, x};
use graphgrove_tree::{
    Call, Fate, FunctionSpec, InputIndex, OldOutput, Output, OutputKind, PathChange, PathState, RecordReason,
    SlotIndex, Step, WarmUpReason,
};

/// pytorch: `test_run_simple`, `test_separate_recordings`.
#[test]
fn two_shapes_become_two_roots_without_children() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    for shape in [8, 16] {
        e.settle(&Call::inference(f, &[x(shape)]));
    }
    let roots = e.roots(f);
    assert_eq!(roots.len(), 2);
    assert!(roots.iter().all(|root| e.descendants(*root) == 0));
}

/// pytorch: `test_function_compiled_multiple_times`.
#[test]
fn the_same_function_twice_in_a_step_becomes_a_root_with_one_descendant() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    for _ in 0..4 {
        e.tree.begin_step();
        let first = e.infer(f, &[x(1)]);
        let second = e.infer(f, &[kept(first.outputs[0])]);
        e.release(&first.outputs);
        e.release(&second.outputs);
    }
    let roots = e.roots(f);
    assert_eq!((roots.len(), e.descendants(roots[0])), (1, 1));
    assert_eq!((e.warmed_up, e.recorded, e.replayed), (2, 2, 4));
}

/// pytorch: `test_end_recording_early`.
#[test]
fn outputs_that_die_end_a_recorded_path_so_that_the_next_function_is_a_root() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    for function in [f, g, f, g] {
        let y = e.infer(function, &[x(1)]);
        e.forget(&y);
    }
    let (f_roots, g_roots) = (e.roots(f), e.roots(g));
    assert_eq!((f_roots.len(), g_roots.len()), (1, 1));
    assert_eq!((e.descendants(f_roots[0]), e.descendants(g_roots[0])), (0, 0));
}

/// pytorch: `test_execution_into_recording`, `test_live_outputs_multiple_graphs`.
#[test]
fn warming_up_or_recording_below_a_replayed_node_restores_its_checkpoint() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let mut restored = Vec::new();
    for _ in 0..3 {
        let y = e.infer(f, &[x(1)]);
        assert!(y.is_replay());
        let z = e.infer(g, &[moved(y.outputs[0])]);
        restored.push(z.restored);
        e.forget(&z);
    }
    assert_eq!(restored, [Some(root), Some(root), None]);
    assert_eq!(e.descendants(root), 1);
}

/// pytorch: `test_accumulate_multiple_recordings`.
#[test]
fn recordings_follow_each_other_without_a_restore() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let mut live_at_once = Vec::new();
    for _ in 0..2 {
        e.tree.begin_step();
        let mut value = e.infer(f, &[x(1)]).outputs[0];
        for _ in 0..2 {
            let next = e.infer(f, &[moved(value)]);
            assert_eq!(next.restored, None);
            value = next.outputs[0];
            live_at_once.push(e.live_on_path());
        }
        e.release(&[value]);
    }
    assert_eq!((e.recorded, live_at_once), (3, vec![1; 4]));
    assert!(e.tree.is_path_over(&e.live));
}

/// pytorch: `test_frozen_fn`.
#[test]
fn an_explicit_step_at_every_call_records_once() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    for turn in 1..=5 {
        e.tree.begin_step();
        let _old_output_stays = e.infer(f, &[x(1)]);
        assert_eq!(e.tree.step(), Step::new(turn));
    }
    assert_eq!((e.warmed_up, e.recorded, e.replayed), (1, 1, 3));
}

#[test]
fn a_requested_step_begins_with_the_next_call_and_only_once() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let before = e.tree.step();
    e.tree.begin_step();
    e.tree.begin_step();
    assert!(e.tree.is_step_requested());
    assert_eq!(e.tree.step(), before);
    let z = e.infer(f, &[x(1)]);
    assert!(!e.tree.is_step_requested());
    assert!(matches!(z.change, Some(PathChange::NewStep(_))));
    assert_eq!(z.outputs[0].slot, y.outputs[0].slot);
    assert_eq!(
        z.outputs[0].epoch.get(),
        y.outputs[0].epoch.get() + 1,
        "the old value is told from the new one"
    );
    let w = e.infer(f, &[kept(z.outputs[0])]);
    assert_eq!(w.change, Some(PathChange::Extends));
    assert_eq!(e.tree.step(), Step::new(before.get() + 1));
}

/// pytorch: `test_error_on_dealloc_use`, `test_error_on_dealloc_use2`.
#[test]
fn an_old_output_becomes_stale_and_its_origin_is_named() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let y = e.infer(f, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(g, &[x(1)]);
    let Some(PathChange::NewStep(end)) = z.change else { panic!("no step began: {:?}", z.change) };
    assert_eq!((end.step, end.ended_by), (Step::new(2), g));
    let [old] = &end.slots[..] else { panic!("{:?}", end.slots) };
    assert_eq!(
        (old.value, old.producer, old.made_in, old.fate),
        (y.outputs[0], f, Step::new(1), Fate::Invalidate)
    );
}

/// pytorch: `test_clone_live_output_on_new_generation`,
/// `test_clone_live_output_keeps_cache_when_output_dead`.
#[test]
fn outputs_to_be_copied_out_are_named_if_live_and_only_then() {
    let mut e = Driver::default();
    let f = e.function_of(FunctionSpec::new("f").at_new_step(OldOutput::CopyOut), vec![Output::fresh(); 3]);
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    e.release(&y.outputs[1..2]);
    e.tree.begin_step();
    let z = e.infer(f, &[x(1)]);
    assert_eq!(z.node(), root);
    let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
    let named: Vec<_> = end.slots.iter().map(|old| (old.value, old.fate)).collect();
    assert_eq!(named, [(y.outputs[0], Fate::CopyOut), (y.outputs[2], Fate::CopyOut)]);
}

#[test]
fn an_output_with_a_rule_of_its_own_follows_it_and_not_its_function() {
    let mut e = Driver::default();
    let outputs = vec![Output::fresh(), Output::fresh().at_new_step(OldOutput::CopyOut)];
    let f = e.function_of(FunctionSpec::new("f"), outputs);
    e.infer(f, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(f, &[x(1)]);
    let fates: Vec<_> =
        z.change.as_ref().and_then(PathChange::path_end).unwrap().slots.iter().map(|old| old.fate).collect();
    assert_eq!(fates, [Fate::Invalidate, Fate::CopyOut]);
}

/// pytorch: `test_clone_live_output_used_as_next_generation_input`.
#[test]
fn an_old_output_that_goes_into_the_call_that_begins_the_step_is_carried() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(f, &[moved(y.outputs[0])]);
    assert_eq!((z.did, z.node), (Did::Replay, Some(root)));
    let end = z.change.as_ref().and_then(PathChange::path_end).unwrap().clone();
    assert_eq!((end.carried, end.slots.len()), (vec![InputIndex::new(0)], 0));
    e.tree.begin_step();
    let w = e.infer(f, &[kept(z.outputs[0])]);
    let end = w.change.as_ref().and_then(PathChange::path_end).unwrap();
    assert_eq!(
        (end.carried.len(), end.slots.len()),
        (1, 1),
        "the caller still holds it, so its rule applies too"
    );
}

#[test]
fn a_kept_output_keeps_its_path_until_it_dies() {
    let mut e = Driver::default();
    let f = e.function_of(FunctionSpec::new("f").at_new_step(OldOutput::Keep), vec![Output::fresh()]);
    let root = e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(f, &[x(1)]);
    assert_eq!(z.change, Some(PathChange::Kept(y.outputs[0].slot)));
    assert_eq!(e.tree.node(z.node()).and_then(graphgrove_tree::Node::parent), Some(root));
    assert!(e.live.is_live(y.outputs[0].slot) && e.live.is_live(z.outputs[0].slot));
    e.release(&y.outputs);
    e.release(&z.outputs);
    e.tree.begin_step();
    let w = e.infer(f, &[x(1)]);
    assert_eq!((w.node(), w.change), (root, Some(PathChange::Over)));
}

#[test]
fn a_kept_output_starts_a_new_step_all_the_same() {
    let mut e = Driver::default();
    let f = e.function_of(FunctionSpec::new("f").at_new_step(OldOutput::Keep), vec![Output::fresh()]);
    e.settle(&Call::inference(f, &[x(1)]));
    let _y = e.infer(f, &[x(1)]);
    let before = e.tree.step();
    e.tree.begin_step();
    let _z = e.infer(f, &[x(1)]);
    assert_eq!(e.tree.step(), Step::new(before.get() + 1));
    assert!(!e.tree.is_step_requested());
    let _w = e.infer(f, &[x(1)]);
    assert_eq!(e.tree.step(), Step::new(before.get() + 1));
}

/// pytorch: `test_alias_of_parameter`, `test_empty_storage`, `test_empty_cpu_tensor`, `test_constant_output`,
/// `test_output_alias`.
#[test]
fn outputs_without_storage_of_the_pool_hold_no_path() {
    let mut e = Driver::default();
    let kinds = [
        OutputKind::Persistent,
        OutputKind::Empty,
        OutputKind::NotTensor,
        OutputKind::AliasOfInput(InputIndex::new(0)),
        OutputKind::Fresh,
        OutputKind::AliasOfOutput(SlotIndex::new(4)),
    ];
    let f = e.function_of(FunctionSpec::new("f"), kinds.map(Output::of).to_vec());
    e.settle(&Call::inference(f, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    // What the storage layer would say if it counted the untracked outputs too.
    e.live.set_all(y.node(), 6);
    assert!(!e.tree.is_path_over(&e.live));
    e.release(&y.outputs);
    assert!(e.tree.is_path_over(&e.live));
    e.tree.begin_step();
    let decided = e.tree.decide(&Call::inference(f, &[x(1)]), &e.live).unwrap();
    assert_eq!(decided.path_change(), Some(&PathChange::Over));
}

/// pytorch: `test_view_only_cuda_graph_suppresses_empty_warning`.
#[test]
fn a_call_without_fresh_outputs_is_a_node_and_falls_off_the_path_at_once() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let view = e.function_of(
        FunctionSpec::new("view"),
        vec![Output::of(OutputKind::AliasOfInput(InputIndex::new(0)))],
    );
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let y = e.infer(f, &[x(1)]);
        let v = e.infer(view, &[kept(y.outputs[0])]);
        let z = e.infer(f, &[kept(y.outputs[0])]);
        nodes.push((v.node(), e.tree.node(z.node()).and_then(graphgrove_tree::Node::parent) == y.node));
        e.release(&y.outputs);
        e.release(&z.outputs);
    }
    assert_eq!(nodes[1].0, nodes[2].0, "the view is recorded and replayed like any other call");
    assert!(nodes[1].1 && nodes[2].1, "what follows hangs below the node that owns the memory");
}

/// pytorch: `test_warmup_stream_sync` aside, the warm-up rules: `test_dynamic_warmup`.
#[test]
fn another_scalar_needs_another_warm_up_and_another_recording() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let mut bodies_run = Vec::new();
    for size in [8, 9] {
        let inputs = [graphgrove_tree::Input::scalar(size), x(1)];
        for _ in 0..3 {
            let y = e.infer(f, &inputs);
            e.forget(&y);
        }
        bodies_run.push(e.warmed_up + e.recorded);
    }
    assert_eq!(bodies_run, [2, 4]);
}

#[test]
fn nothing_is_recorded_below_a_warm_up_that_is_still_needed() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    e.settle(&Call::inference(g, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    assert_eq!(e.tree.path_state(), PathState::WarmUp);
    for _ in 0..3 {
        let z = e.infer(g, &[x(1)]);
        assert_eq!(z.did, Did::WarmUp(WarmUpReason::BelowWarmUp { node: y.node() }));
        e.forget(&z);
    }
    e.release(&y.outputs);
    let z = e.infer(g, &[x(1)]);
    assert!(z.is_replay());
    assert_eq!(e.tree.nodes().count(), 1, "warm-up runs go with their path");
}

#[test]
fn a_warm_up_that_nothing_needs_does_not_stop_a_recording_below_what_came_before_it() {
    let mut e = Driver::default();
    let (f, g, h) = (e.function("f", 1), e.function("g", 1), e.function("h", 1));
    let root = e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(h, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    let warm = e.infer(g, &[x(1)]);
    assert_eq!(warm.did, Did::WarmUp(WarmUpReason::Cold));
    e.forget(&warm);
    let z = e.infer(h, &[x(1)]);
    assert_eq!(z.did, Did::Record(RecordReason::First));
    assert_eq!((z.change, z.restored), (Some(PathChange::DropsUnneededTail), None));
    assert_eq!(e.tree.path().collect::<Vec<_>>(), [root, z.node.unwrap()]);
    assert!(e.live.is_live(y.outputs[0].slot));
}

/// A long-lived output does not make what comes after it pile up.
#[test]
fn calls_after_a_kept_output_share_one_place() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    e.settle(&Call::inference(f, &[x(1)]));
    e.settle(&Call::inference(g, &[x(1)]));
    let y = e.infer(f, &[x(1)]);
    for turn in 0..20 {
        let z = e.infer(g, &[x(1)]);
        assert_eq!(z.is_replay(), turn > 0, "{turn}: {:?}", z.did);
        assert_eq!(e.tree.path().len(), 2);
        e.forget(&z);
    }
    assert!(e.live.is_live(y.outputs[0].slot));
}

#[test]
fn a_path_shows_its_state_as_it_goes() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let mut states = vec![e.tree.path_state()];
    for _ in 0..3 {
        let y = e.infer(f, &[x(1)]);
        states.push(e.tree.path_state());
        e.forget(&y);
    }
    assert_eq!(states, [PathState::None, PathState::WarmUp, PathState::Recording, PathState::Replaying]);
    assert_eq!(e.tree.current(), e.roots(f).first().copied());
    e.tree.reset();
    assert_eq!((e.tree.path_state(), e.tree.current()), (PathState::None, None));
}
