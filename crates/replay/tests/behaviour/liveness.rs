//! What has to be dead before a node may run over it.

use graphgrove_replay::{Call, Error, Method, Mismatch, NodeKey};
use graphgrove_storage::{DeadMasks, SlotIndex, Step, Tensor};

use crate::workshop::{BOTH, Body, Out, Shop, Task, kept, take};

fn slot(number: u32) -> SlotIndex {
    SlotIndex::new(number)
}

/// A root of so many outputs, each with its own number as value.
fn root(shop: &mut Shop, outputs: u32) -> (NodeKey, Vec<Tensor>) {
    let stream = shop.stream.clone();
    let call = Call::new(&stream, Step::new(1), &[]);
    let body = |body: &mut Body<'_>| {
        (0..outputs).map(|number| Ok(Out::Returned(body.sum(&[], number as f32)?))).collect()
    };
    let mut first = shop.record(Task::new(call), body).unwrap();
    (first.node, first.outputs.take_all().flatten().collect())
}

fn again(shop: &mut Shop, node: NodeKey) -> Vec<Tensor> {
    shop.replay(node, &[]).unwrap().outputs.take_all().flatten().collect()
}

fn refusal(shop: &mut Shop, node: NodeKey) -> Mismatch {
    let before = shop.device.counts();
    let Err(Error::Mismatch(mismatch)) = shop.replay(node, &[]) else { unreachable!("it may run") };
    assert_eq!(shop.device.counts(), before);
    mismatch
}

#[test]
fn a_node_runs_only_if_what_was_dead_at_its_recording_is_dead() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, mut outputs) = root(&mut shop, 70);
        for dead in [66, 3] {
            drop(outputs.remove(dead));
        }
        let child = shop.record_sum(Some(root), &[kept(&outputs[0])]).unwrap().node;
        drop(outputs);
        let outputs = again(&mut shop, root);
        let first = outputs[0].clone();
        let inputs = [kept(&first)];
        for (number, output) in outputs.into_iter().enumerate() {
            if number == 3 || number == 66 {
                let refused = shop.replay(child, &inputs).unwrap_err();
                assert_eq!(refused, Mismatch::StillLive { place: 0, slot: slot(number as u32) }.into());
                assert_eq!(shop.value(&output), number as f32);
            } else if number < 66 {
                // It was live at the recording: it may be or not.
                continue;
            }
            drop(output);
        }
        assert_eq!(shop.run(child, &inputs), 0.0);
        shop.verdict();
    }
}

#[test]
fn all_views_of_an_output_have_to_be_gone() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 1);
        drop(outputs);
        let child = shop.record_constant_below(root);
        let outputs = again(&mut shop, root);
        let view = outputs[0].slice(0, 3..5, 1).unwrap();
        drop(outputs);
        assert_eq!(refusal(&mut shop, child), Mismatch::StillLive { place: 0, slot: slot(0) });
        drop(view);
        assert_eq!(shop.run(child, &[]), 1.0);
    }
}

#[test]
fn a_deeper_node_relies_on_what_its_parent_relied_on() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 3);
        let [first, second, third] = <[Tensor; 3]>::try_from(outputs).unwrap();
        drop(first);
        let child = shop.record_constant_below(root);
        drop(second);
        let grandchild = shop.record_constant_below(child);
        drop(third);
        let outputs = again(&mut shop, root);
        assert_eq!(refusal(&mut shop, child), Mismatch::StillLive { place: 0, slot: slot(0) });
        let [first, second, third] = <[Tensor; 3]>::try_from(outputs).unwrap();
        drop(first);
        assert_eq!(shop.run(child, &[]), 1.0);
        assert_eq!(refusal(&mut shop, grandchild), Mismatch::StillLive { place: 0, slot: slot(1) });
        drop(second);
        assert_eq!(shop.run(grandchild, &[]), 1.0);
        assert_eq!(shop.value(&third), 2.0);
        shop.verdict();
    }
}

#[test]
fn nothing_may_be_live_behind_the_place_where_a_node_runs() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 2);
        drop(outputs);
        let child = shop.record_constant_below(root);
        let outputs = again(&mut shop, root);
        assert_eq!(refusal(&mut shop, root), Mismatch::TailLive { place: 0, slot: slot(0) });
        drop(outputs);
        let held = take(&mut shop.replay(child, &[]).unwrap(), 0);
        for node in [root, child] {
            assert_eq!(refusal(&mut shop, node), Mismatch::TailLive { place: 1, slot: slot(0) });
            assert_eq!(shop.replayer.check_tail(node), Err(Mismatch::TailLive { place: 1, slot: slot(0) }));
        }
        assert_eq!(shop.value(&held), 1.0);
        drop(held);
        assert_eq!(shop.replayer.check_tail(root), Ok(()));
        drop(shop.replay(root, &[]).unwrap());
        assert_eq!(shop.replayer.path(), [root]);
        shop.verdict();
    }
}

#[test]
fn whoever_knows_that_the_tail_is_not_needed_may_run_over_it() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 1);
        let stream = shop.stream.clone();
        let call = Call::new(&stream, Step::new(4), &[]);
        let checked = shop.replayer.check(root, &call).unwrap();
        let mut replayed = shop.replayer.launch(checked, &call).unwrap();
        let output = take(&mut replayed, 0);
        let stale = outputs[0].storage().stale().unwrap();
        assert_eq!(stale.cause.event, graphgrove_storage::Event::RanAgain);
        assert_eq!((stale.cause.step, stale.made_in), (Step::new(4), Step::new(1)));
        assert_eq!(shop.value(&output), 0.0);
        shop.verdict();
    }
}

#[test]
fn a_node_with_a_pinned_output_does_not_run() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 2);
        let pinned = outputs[1].pin().unwrap();
        drop(outputs);
        let stream = shop.stream.clone();
        let call = Call::new(&stream, Step::new(4), &[]);
        let before = (shop.device.counts(), shop.replayer.slab(root).unwrap().epoch());
        let refused = shop.replayer.check(root, &call).unwrap_err();
        assert_eq!(refused, Mismatch::Pinned { output: slot(1) });
        assert_eq!((shop.device.counts(), shop.replayer.slab(root).unwrap().epoch()), before);
        assert_eq!(shop.value(pinned.tensor()), 1.0);
        assert!(shop.replayer.end_path(Step::new(2), None).is_err());
        assert_eq!(shop.replayer.path(), [root], "a path that cannot end goes on");
        drop(pinned);
        assert!(shop.replayer.check(root, &call).is_ok());
        shop.verdict();
    }
}

#[test]
fn what_is_dead_on_a_path_is_told_up_to_a_place() {
    let mut shop = Shop::new(Method::Fast);
    let (root, outputs) = root(&mut shop, 2);
    drop(outputs);
    let _child = shop.record_constant_below(root);
    let [none, one, all] = [0, 1, usize::MAX].map(|length| shop.replayer.dead(length));
    assert_eq!(none, DeadMasks::default());
    assert_eq!(one.masks().iter().map(|mask| (mask.place, mask.mask)).collect::<Vec<_>>(), [(0, 0b11)]);
    assert_eq!(all.masks().iter().map(|mask| mask.place).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn an_output_that_is_not_taken_is_live_until_the_outputs_go() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 2);
        drop(outputs);
        let replayed = shop.replay(root, &[]).unwrap();
        assert_eq!(refusal(&mut shop, root), Mismatch::TailLive { place: 0, slot: slot(0) });
        drop(replayed);
        assert!(shop.replay(root, &[]).is_ok());
    }
}

#[test]
fn an_output_pinned_between_check_and_launch_is_not_run_over() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 2);
        let stream = shop.stream.clone();
        let call = Call::new(&stream, Step::new(4), &[]);
        let checked = shop.replayer.check(root, &call).unwrap();
        let pinned = outputs[1].pin().unwrap();
        let before = (shop.device.counts(), shop.replayer.slab(root).unwrap().epoch());
        let refused = shop.replayer.launch(checked, &call).unwrap_err();
        assert_eq!(refused, Mismatch::Pinned { output: slot(1) }.into());
        assert_eq!((shop.device.counts(), shop.replayer.slab(root).unwrap().epoch()), before);
        assert_eq!(shop.replayer.replays(root), Some(0));
        drop(pinned);
        shop.verdict();
    }
}

#[test]
fn a_path_that_cannot_end_leaves_every_output_of_it_alone() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (root, outputs) = root(&mut shop, 1);
        let stream = shop.stream.clone();
        let task = Task::new(Call::new(&stream, Step::new(1), &[])).below(root);
        let mut child = shop.record(task, |body| Ok(vec![Out::Returned(body.sum(&[], 1.0)?)])).unwrap();
        let output = take(&mut child, 0);
        let pinned = output.pin().unwrap();
        assert!(shop.replayer.end_path(Step::new(2), None).is_err());
        assert_eq!(shop.replayer.path(), [root, child.node]);
        assert!(outputs[0].address().is_ok() && output.address().is_ok());
        drop(pinned);
        shop.replayer.end_path(Step::new(2), None).unwrap();
        assert!(outputs[0].address().is_err() && output.address().is_err());
        shop.verdict();
    }
}
