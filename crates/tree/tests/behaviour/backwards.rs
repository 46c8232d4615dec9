//! Pending backwards: counted one by one, each holding its own run.

use crate::driver::{Did, Driver, kept, moved, x};
use graphgrove_tree::{
    Call, EagerReason, Error, Fate, FunctionId, FunctionSpec, Input, Node, Notice, OldOutput, Options,
    Output, PathChange, PendingRule, SlotIndex, WarmUpReason,
};

/// A forward with one plain and two saved outputs, and its backward with one gradient.
fn model(e: &mut Driver) -> (FunctionId, FunctionId) {
    let outputs = vec![Output::fresh(), Output::saved(), Output::saved()];
    (e.function_of(FunctionSpec::new("forward"), outputs), e.function("backward", 1))
}

/// One training step whose gradients are dropped at its end.
fn train(e: &mut Driver, forward: FunctionId, backward: FunctionId) {
    let y = e.forward(forward, &[x(1)]);
    let saved = [kept(y.outputs[0]), moved(y.outputs[1]), moved(y.outputs[2])];
    let g = e.backward(backward, y.token(), &saved);
    e.release(&y.outputs);
    e.forget(&g);
}

/// pytorch: `test_forward_backward`, `test_cached_forward_backward`.
#[test]
fn saved_outputs_are_expected_dead_after_the_backward_and_the_tree_is_one_chain() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    for _ in 0..5 {
        train(&mut e, forward, backward);
    }
    let roots = e.roots(forward);
    let children = e.tree.children(Some(roots[0]), backward);
    assert_eq!((roots.len(), children.len()), (1, 1));
    let expected: Vec<u32> =
        e.tree.node(children[0]).unwrap().expected_dead().map(|slot| slot.index.get()).collect();
    assert_eq!(expected, [1, 2]);
    assert_eq!((e.warmed_up, e.recorded, e.replayed), (2, 2, 6));
}

/// pytorch: `test_forward_generation`.
#[test]
fn a_pending_backward_holds_its_path_until_it_has_run() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    (0..3).for_each(|_| train(&mut e, forward, backward));
    let y = e.forward(forward, &[x(1)]);
    e.release(&y.outputs);
    assert!(!e.tree.is_path_over(&e.live));
    assert_eq!((e.tree.pending_on_path(), e.tree.pending_backwards()), (1, 1));
    let saved = [x(1), x(1), x(1)];
    let g = e.backward(backward, y.token(), &saved);
    e.forget(&g);
    assert!(e.tree.is_path_over(&e.live));
    assert_eq!((e.tree.pending_on_path(), e.tree.pending_backwards()), (0, 0));
}

/// pytorch: `test_forward_with_skipped_cudagraphed_backward`.
#[test]
fn a_backward_that_runs_eagerly_consumes_its_token() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    for _ in 0..4 {
        let y = e.forward(forward, &[x(1)]);
        let call = Call::backward(backward, y.token(), &[]);
        let reason = EagerReason::KeyNotListed;
        assert_eq!(e.tree.ran_eagerly(&call, &reason), Ok(None));
        assert!(!e.tree.is_pending(y.token()));
        e.release(&y.outputs);
        assert!(e.tree.is_path_over(&e.live));
    }
    assert_eq!((e.warmed_up, e.recorded, e.replayed), (1, 1, 2));
}

/// pytorch: `test_forward_backward_not_called`, `test_forward_backward_not_called_backend_inductor`.
#[test]
fn two_forwards_of_which_one_has_a_backward_make_three_recordings() {
    let mut e = Driver::default();
    let (first, backward) = model(&mut e);
    let second = e.function_of(FunctionSpec::new("second"), vec![Output::fresh(), Output::saved()]);
    for _ in 0..5 {
        let a = e.forward(first, &[x(1)]);
        let b = e.forward(second, &[kept(a.outputs[0])]);
        let g = e.backward(backward, b.token(), &[kept(b.outputs[0]), moved(b.outputs[1]), x(1)]);
        e.release(&b.outputs[..1]);
        e.forget(&a);
        e.forget(&g);
    }
    assert_eq!((e.recorded, e.tree.pending_backwards()), (3, 0));
    assert_eq!(e.replayed, 9);
}

/// pytorch/pytorch#185995.
#[test]
fn a_dead_forward_never_keeps_an_unrelated_function_from_being_recorded() {
    let mut e = Driver::default();
    let (forward, _) = model(&mut e);
    let g = e.function("unrelated", 1);
    let y = e.forward(forward, &[x(1)]);
    e.forget(&y);
    for did in ["warm-up", "record", "replay"] {
        let z = e.infer(g, &[x(1)]);
        e.forget(&z);
        let ran = if z.is_warm_up() {
            "warm-up"
        } else if z.is_record() {
            "record"
        } else {
            "replay"
        };
        assert_eq!(ran, did);
    }
}

#[test]
fn where_backwards_hold_a_step_back_it_begins_at_once_if_none_is_pending() {
    let options = Options { pending: PendingRule::UntilBackwardRuns, ..Options::default() };
    let mut e = Driver::new(options);
    let f = e.function("f", 1);
    let y = e.infer(f, &[x(1)]);
    e.tree.begin_step();
    let z = e.infer(f, &[x(1)]);
    assert!(z.is_record() && !e.tree.is_step_requested());
    let slots = z.change.as_ref().and_then(PathChange::path_end).map(|end| end.slots.len());
    assert_eq!((slots, z.outputs[0].slot.node == y.node()), (Some(1), false));
}

/// The fault that pytorch/pytorch#98112 mends, which the rule from before it still has.
#[test]
fn without_tokens_that_can_be_given_up_one_forward_holds_everything_for_ever() {
    let options = Options { pending: PendingRule::UntilBackwardRuns, ..Options::default() };
    let mut e = Driver::new(options);
    let (forward, backward) = model(&mut e);
    let g = e.function("unrelated", 1);
    let y = e.forward(forward, &[x(1)]);
    assert!(!e.tree.discard_backward(y.token()));
    e.release(&y.outputs);
    for _ in 0..10 {
        e.tree.begin_step();
        let z = e.infer(g, &[x(1)]);
        assert!(matches!(z.did, Did::WarmUp(_)));
        e.forget(&z);
    }
    assert!(e.tree.is_step_requested(), "the request stands until the step can begin");
    let b = e.backward(backward, y.token(), &[x(1)]);
    e.forget(&b);
    for recorded in [true, false] {
        let z = e.infer(g, &[x(1)]);
        assert_eq!(z.is_record(), recorded);
        e.forget(&z);
    }
    assert!(!e.tree.is_step_requested());
}

/// pytorch: `test_mark_step`.
#[test]
fn an_explicit_step_begins_in_spite_of_a_pending_backward_and_loses_nothing_of_it() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    (0..3).for_each(|_| train(&mut e, forward, backward));
    let y = e.forward(forward, &[x(1)]);
    e.tree.begin_step();
    let z = e.forward(forward, &[x(1)]);
    assert!(z.is_replay());
    let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
    let fates: Vec<_> = end.slots.iter().map(|old| (old.value.slot.index, old.fate)).collect();
    let saved = Fate::CopyOutForBackward(y.token());
    let index = SlotIndex::new;
    assert_eq!(fates, [(index(0), Fate::Invalidate), (index(1), saved), (index(2), saved)]);
    assert!(e.tree.is_pending(y.token()), "its backward may still run, on the copies");
    assert_eq!((e.tree.pending_on_path(), e.tree.pending_backwards()), (1, 2));
    let b = e.backward(backward, y.token(), &[x(1), x(1), x(1)]);
    e.forget(&b);
    assert_eq!((e.tree.pending_on_path(), e.tree.pending_backwards()), (1, 1));
}

/// pytorch: `test_clone_live_output_saved_for_backward_on_mark_step`: without a pending backward a saved
/// output is one like any other.
#[test]
fn a_saved_output_whose_backward_will_not_run_is_copied_for_nobody() {
    let mut e = Driver::default();
    let (forward, _) = model(&mut e);
    let y = e.forward(forward, &[x(1)]);
    assert!(e.tree.discard_backward(y.token()));
    e.tree.begin_step();
    let z = e.forward(forward, &[x(1)]);
    let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
    assert!(end.slots.iter().all(|old| old.fate == Fate::Invalidate) && end.slots.len() == 3);
}

/// pytorch: `test_warn_on_pending_backward`.
#[test]
fn forwards_that_pile_up_are_noticed_once_and_none_of_them_is_recorded_below_a_warm_up() {
    let mut e = Driver::default();
    let (forward, _) = model(&mut e);
    for _ in 0..40 {
        let y = e.forward(forward, &[x(1)]);
        e.release(&y.outputs);
    }
    assert_eq!((e.recorded, e.warmed_up), (0, 40));
    let notices = e.tree.take_notices();
    let held = Notice::HeldByWarmUp { function: forward, holder: forward };
    assert_eq!(notices, [Notice::PendingBackwards { function: forward, pending: 17 }, held]);
}

#[test]
fn only_pending_backwards_are_said_to_make_a_path_grow() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    e.settle(&Call::inference(f, &[x(1)]));
    let _all: Vec<_> = (0..40).map(|_| e.infer(f, &[x(1)])).collect();
    assert_eq!(e.tree.path().len(), 40);
    assert_eq!(e.tree.take_notices(), []);
}

/// The orders of pytorch's `test_uneven_forward_backward`.
#[test]
fn forwards_and_backwards_in_any_order_settle_and_leave_nothing_pending() {
    let orders = ["FFBB", "FBFB", "FFbB", "FBFx", "FFxB", "FxFB", "FFxx"];
    for order in orders {
        let mut e = Driver::default();
        let (forward, backward) = model(&mut e);
        let mut recorded = 0;
        for turn in 0..6 {
            recorded = e.recorded;
            let mut waiting = std::collections::VecDeque::new();
            for action in order.chars() {
                if action == 'F' {
                    waiting.push_back(e.forward(forward, &[x(1)]));
                    continue;
                }
                // A small b runs the younger forward's backward first.
                let y = if action == 'b' { waiting.pop_back() } else { waiting.pop_front() }.unwrap();
                if action == 'x' {
                    e.forget(&y);
                    continue;
                }
                let inputs = [kept(y.outputs[0]), moved(y.outputs[1]), moved(y.outputs[2])];
                let g = e.backward(backward, y.token(), &inputs);
                e.release(&y.outputs);
                e.forget(&g);
            }
            assert!(e.tree.is_path_over(&e.live), "{order}, turn {turn}");
            assert_eq!(e.tree.pending_backwards(), 0);
        }
        assert_eq!(recorded, e.recorded, "{order} settles");
        assert!(e.ran_eagerly == 0 && e.replayed > 0);
    }
}

#[test]
fn a_token_can_be_used_once() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    let y = e.forward(forward, &[x(1)]);
    let call = Call::backward(backward, y.token(), &[]);
    let g = e.call(&call);
    e.forget(&g);
    let spent = Error::UnknownToken { token: y.token() };
    assert_eq!(e.tree.decide(&call, &e.live).unwrap_err(), spent);
    assert_eq!(e.tree.ran_eagerly(&call, &EagerReason::KeyNotListed), Err(spent));
    assert!(!e.tree.discard_backward(y.token()));
}

#[test]
fn a_backward_that_is_not_the_last_leaves_its_token_pending() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    let y = e.forward(forward, &[x(1)]);
    let first = e.infer(backward, &[kept(y.outputs[1])]);
    e.forget(&first);
    assert!(e.tree.is_pending(y.token()));
    let last = e.backward(backward, y.token(), &[moved(y.outputs[1])]);
    e.forget(&last);
    assert!(!e.tree.is_pending(y.token()));
}

#[test]
fn an_eager_forward_has_a_token_that_holds_nothing() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    let call = Call::forward(forward, &[]);
    let token = e.tree.ran_eagerly(&call, &EagerReason::KeyNotListed).unwrap().unwrap();
    assert!(e.tree.is_pending(token) && e.tree.is_path_over(&e.live));
    let g = e.backward(backward, token, &[x(1)]);
    assert!(!e.tree.is_pending(token));
    e.forget(&g);
}

#[test]
fn a_token_given_up_while_a_recording_is_in_progress_takes_effect_at_once() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    let y = e.forward(forward, &[x(1)]);
    let inputs = [x(1)];
    let call = Call::backward(backward, y.token(), &inputs);
    let graphgrove_tree::Decision::WarmUp(plan) = e.tree.decide(&call, &e.live).unwrap() else {
        panic!("a backward that never ran is cold")
    };
    assert_eq!(plan.reason(), &WarmUpReason::BelowWarmUp { node: y.node() });
    let warm_up = e.tree.begin_warm_up(*plan).unwrap();
    assert!(e.tree.discard_backward(y.token()));
    assert_eq!(e.tree.pending_backwards(), 0);
    let ran = e.tree.finish_warm_up(warm_up, vec![Output::fresh()], true).unwrap();
    assert_eq!(ran.token, None);
    assert_eq!(e.tree.pending_on_path(), 0);
}

#[test]
fn a_kept_forward_keeps_its_saved_outputs_in_place_at_an_explicit_step() {
    let mut e = Driver::default();
    let spec = FunctionSpec::new("forward").at_new_step(OldOutput::Keep);
    let forward = e.function_of(spec, vec![Output::saved()]);
    let root = e.settle(&Call::forward(forward, &[x(1)]));
    let y = e.forward(forward, &[x(1)]);
    e.tree.begin_step();
    let z = e.forward(forward, &[x(1)]);
    assert_eq!(z.change, Some(PathChange::Kept(y.outputs[0].slot)));
    assert_eq!(e.tree.node(z.node()).and_then(Node::parent), Some(root));
    assert_eq!(e.tree.pending_on_path(), 2);
}

#[test]
fn an_input_of_a_training_step_is_no_output_of_the_path() {
    let mut e = Driver::default();
    let (forward, backward) = model(&mut e);
    (0..2).for_each(|_| train(&mut e, forward, backward));
    let scalar = [Input::scalar(1)];
    let y = e.forward(forward, &scalar);
    assert!(y.is_warm_up(), "a scalar is not the tensor that was there before");
    e.forget(&y);
}
