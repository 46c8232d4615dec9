//! Where a path may go on with a recording, for whoever checks the recording's own expectations by himself.

use graphgrove_tree::{Call, Decision, NodeId};

use crate::driver::{Driver, x};

#[test]
fn a_root_may_be_followed_once_nothing_on_the_path_is_needed() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let root = e.settle(&Call::inference(f, &inputs));
    let y = e.infer(f, &inputs);
    assert!(!e.tree.may_follow(root, &e.live), "its own output is live");
    e.forget(&y);
    assert!(e.tree.may_follow(root, &e.live));
    e.tree.begin_step();
    assert!(e.tree.may_follow(root, &e.live), "a root begins the step that was asked for");
    let warm_up = e.infer(g, &inputs);
    assert!(warm_up.is_warm_up());
    assert!(!e.tree.may_follow(root, &e.live), "an output of a warm-up is live");
    e.forget(&warm_up);
    assert!(e.tree.may_follow(root, &e.live));
    assert!(!e.tree.may_follow(warm_up.node(), &e.live), "a warm-up cannot be launched");
    assert!(!e.tree.may_follow(NodeId::default(), &e.live));
}

#[test]
fn a_pending_backward_keeps_a_root_from_being_followed() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let inputs = [x(1)];
    let root = e.settle(&Call::forward(f, &inputs));
    let y = e.forward(f, &inputs);
    e.live.clear(y.outputs[0].slot);
    assert!(!e.tree.may_follow(root, &e.live));
    assert!(e.tree.discard_backward(y.token()));
    assert!(e.tree.may_follow(root, &e.live));
}

/// A root with a child, and the child's function below the root's live output.
fn chain(e: &mut Driver) -> (NodeId, NodeId, NodeId) {
    let (f, g, h) = (e.function("f", 1), e.function("g", 1), e.function("h", 1));
    let inputs = [x(1)];
    let root = e.settle(&Call::inference(f, &inputs));
    e.settle(&Call::inference(g, &inputs));
    let other = e.settle(&Call::inference(h, &inputs));
    let y = e.infer(f, &inputs);
    let child = e.infer(g, &inputs);
    e.forget(&child);
    e.forget(&y);
    assert_eq!(e.tree.node(child.node()).unwrap().parent(), Some(root));
    (root, child.node(), other)
}

#[test]
fn a_child_may_be_followed_right_behind_its_parent_and_where_nothing_behind_that_is_needed() {
    let mut e = Driver::default();
    let (root, child, other) = chain(&mut e);
    let inputs = [x(1)];
    let (f, g, h) = (
        e.tree.node(root).unwrap().function(),
        e.tree.node(child).unwrap().function(),
        e.tree.node(other).unwrap().function(),
    );
    let ran = e.infer(h, &inputs);
    assert_eq!(ran.node(), other);
    assert!(!e.tree.may_follow(child, &e.live), "another root is on the path");
    e.forget(&ran);
    let y = e.infer(f, &inputs);
    assert_eq!(y.node(), root);
    assert!(e.tree.may_follow(child, &e.live), "right behind its parent");
    e.tree.begin_step();
    assert!(!e.tree.may_follow(child, &e.live), "a step was asked for");
    e.forget(&y);
    let y = e.infer(f, &inputs);
    let z = e.infer(g, &inputs);
    assert_eq!((y.node(), z.node()), (root, child));
    assert!(!e.tree.may_follow(child, &e.live), "its own output is live");
    e.live.clear(z.outputs[0].slot);
    assert!(e.tree.may_follow(child, &e.live), "nothing behind its parent is needed");
    assert!(!e.tree.may_follow(root, &e.live), "the parent's output is live");
}

#[test]
fn nothing_may_be_followed_while_a_recording_is_in_progress() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let root = e.settle(&Call::inference(f, &inputs));
    let cold = e.infer(g, &inputs);
    e.forget(&cold);
    let call = Call::inference(g, &inputs);
    let Decision::Record(plan) = e.tree.decide(&call, &e.live).unwrap() else {
        unreachable!("g is warm and has no recording")
    };
    assert!(e.tree.may_follow(root, &e.live));
    let recording = e.tree.begin_recording(*plan, &e.live).unwrap();
    assert!(!e.tree.may_follow(root, &e.live));
    drop(recording);
    assert!(e.tree.may_follow(root, &e.live));
}

#[test]
fn what_may_be_followed_and_was_predicted_is_what_is_decided() {
    let mut e = Driver::default();
    let (f, g) = (e.function("f", 1), e.function("g", 1));
    let inputs = [x(1)];
    let (mut followed, mut kept) = (0, Vec::new());
    for turn in 0..40 {
        let function = if turn % 2 == 1 { g } else { f };
        let call = Call::inference(function, &inputs);
        let predicted = e.tree.predicted().filter(|node| e.tree.node(*node).unwrap().function() == function);
        let may_follow = predicted.filter(|node| e.tree.may_follow(*node, &e.live));
        if let Some(node) = may_follow {
            followed += 1;
            let decided = e.tree.decide(&call, &e.live).unwrap();
            assert!(
                matches!(&decided, Decision::Replay(replay) if replay.node() == node),
                "{turn}: {decided:?}"
            );
        }
        kept.push(e.call(&call));
        if turn % 2 == 1 {
            kept.drain(..).for_each(|y| e.forget(&y));
        }
    }
    assert!(followed > 5, "{followed}");
}
