//! The way of a replay: nodes, the path, and what is expected to run next.

use graphgrove_device::{CaptureGuard, CaptureMode, Graphs};
use graphgrove_replay::{Call, Captured, Error, Expected, Method, Mismatch, Recording, Route};
use graphgrove_storage::{Event, InputIndex, SlotIndex, Step};

use crate::workshop::{BOTH, Body, Out, Shop, Task, kept, take};

#[test]
fn a_replay_reads_the_inputs_of_its_own_call() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b, c) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor(5.0));
        let mut first = shop.record_sum(None, &[kept(&a), kept(&b)]).unwrap();
        let node = first.node;
        let sum = take(&mut first, 0);
        assert_eq!(shop.value(&sum), 3.0);
        drop((first, sum));
        assert_eq!(shop.run(node, &[kept(&a), kept(&c)]), 6.0, "{method:?}");
        shop.verdict();
    }
}

#[test]
fn a_node_runs_below_its_parent_and_nowhere_else() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let root = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let child = shop.record_sum(Some(root), &[kept(&x)]).unwrap().node;
        let other = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        assert_eq!(shop.replayer.path(), [other]);
        let refused = shop.replay(child, &[kept(&x)]).unwrap_err();
        assert_eq!(refused, Mismatch::Parent { parent: root, place: 0 }.into());
        assert_eq!(shop.run(root, &[kept(&x)]), 1.0);
        assert_eq!(shop.run(child, &[kept(&x)]), 1.0);
        assert_eq!(shop.replayer.path(), [root, child]);
        assert_eq!((shop.replayer.replays(root), shop.replayer.replays(child)), (Some(1), Some(1)));
        shop.verdict();
    }
}

#[test]
fn a_recording_whose_parent_is_not_on_the_path_becomes_no_node() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let root = shop.record_sum(None, &[kept(&x)]).unwrap().node;
    let other = shop.record_sum(None, &[kept(&x)]).unwrap().node;
    let refused = shop.record_sum(Some(root), &[kept(&x)]).unwrap_err();
    assert_eq!(refused, Mismatch::Parent { parent: root, place: 0 }.into());
    assert_eq!(shop.replayer.path(), [other]);
}

#[test]
fn what_ran_next_last_time_is_expected_to_run_next() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let a = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        assert_eq!(shop.replayer.predicted(), None);
        let b = shop.record_sum(Some(a), &[kept(&x)]).unwrap().node;
        let c = shop.record_sum(Some(b), &[kept(&x)]).unwrap().node;
        for (runs, next) in [(a, b), (b, c), (c, a), (a, b), (b, c)] {
            drop(shop.replay(runs, &[kept(&x)]).unwrap());
            assert_eq!(shop.replayer.predicted(), Some(next));
        }
        drop(shop.replay(a, &[kept(&x)]).unwrap());
        drop(shop.replay(a, &[kept(&x)]).unwrap());
        assert_eq!(shop.replayer.predicted(), Some(a), "a loop over one function follows itself");
    }
}

#[test]
fn a_check_is_good_until_anything_else_is_done() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let spare = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        drop(shop.replay(node, &[kept(&x)]).unwrap());
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let call = Call::new(&stream, Step::new(3), &inputs);
        let moves: [&dyn Fn(&mut Shop); 5] = [
            &|shop| drop(shop.replay(node, &[kept(&x)]).unwrap()),
            &|shop| shop.replayer.cut_path(1),
            &|shop| shop.replayer.end_path(Step::new(3), None).unwrap(),
            &|shop| assert!(shop.replayer.slab_mut(node).is_some()),
            &|shop| drop(shop.replayer.remove(spare)),
        ];
        assert!(
            format!("{call:?}").starts_with("Call([") && format!("{call:?}").contains("params None"),
            "{call:?}"
        );
        for something in moves {
            let checked = shop.replayer.check(node, &call).unwrap();
            assert_eq!(checked.node(), node);
            something(&mut shop);
            let launches = shop.device.counts();
            assert_eq!(shop.replayer.launch(checked, &call).unwrap_err(), Error::OldCheck);
            assert_eq!(shop.device.counts(), launches);
        }
        let (one, two) =
            (shop.replayer.check(node, &call).unwrap(), shop.replayer.check(node, &call).unwrap());
        drop(shop.replayer.launch(one, &call).unwrap());
        assert_eq!(shop.replayer.launch(two, &call).unwrap_err(), Error::OldCheck);
    }
}

#[test]
fn a_call_that_was_checked_before_another_is_launched_with_its_own_inputs() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let [x, y, z] = [1.0, 2.0, 3.0].map(|value| shop.tensor(value));
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let stream = shop.stream.clone();
        for (launched, other, value) in [(&y, &z, 2.0), (&z, &x, 3.0), (&x, &x, 1.0)] {
            let (inputs, others) = ([kept(launched)], [kept(other)]);
            let (call, second) =
                (Call::new(&stream, Step::new(3), &inputs), Call::new(&stream, Step::new(3), &others));
            let checked = shop.replayer.check(node, &call).unwrap();
            let _not_launched = shop.replayer.check(node, &second).unwrap();
            let mut replayed = shop.replayer.launch(checked, &call).unwrap();
            let sum = take(&mut replayed, 0);
            assert_eq!(shop.value(&sum), value, "{method:?}");
        }
        shop.verdict();
    }
}

#[test]
fn a_removed_node_is_unknown_and_its_outputs_stay_valid() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(4.0);
        let mut first = shop.record_sum(None, &[kept(&x)]).unwrap();
        let (node, output) = (first.node, take(&mut first, 0));
        assert_eq!(shop.replayer.remove(node).map(|_| ()), Err(Error::OnPath { node }));
        shop.replayer.cut_path(0);
        let slab = shop.replayer.remove(node).unwrap();
        assert!(slab.is_live(SlotIndex::new(0)));
        assert_eq!(shop.value(&output), 4.0);
        assert_eq!(shop.replay(node, &[kept(&x)]).unwrap_err(), Mismatch::UnknownNode { node }.into());
        assert_eq!(shop.replayer.remove(node).map(|_| ()), Err(Error::UnknownNode { node }));
        assert!(shop.replayer.slab(node).is_none() && shop.replayer.replays(node).is_none());
        shop.verdict();
    }
}

#[test]
fn the_end_of_a_path_makes_its_handles_stale_and_says_who_ended_it() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(4.0);
        let mut root = shop.record_sum(None, &[kept(&x)]).unwrap();
        let mut child = shop.record_sum(Some(root.node), &[kept(&x)]).unwrap();
        let outputs = [take(&mut root, 0), take(&mut child, 0)];
        shop.replayer.end_path(Step::new(9), Some("G".into())).unwrap();
        assert_eq!(shop.replayer.path(), []);
        for output in outputs {
            let stale = output.storage().stale().unwrap();
            assert_eq!((stale.cause.event, stale.cause.step), (Event::StepBegan, Step::new(9)));
            assert_eq!(stale.cause.by.as_deref(), Some("G"));
        }
        let printed = format!("{:?}", shop.replayer);
        assert!(printed.contains("2 nodes"), "{printed}");
    }
}

#[test]
fn a_check_is_good_for_the_call_that_was_checked_alone() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, y) = (shop.tensor(1.0), shop.tensor(2.0));
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let stream = shop.stream.clone();
        let (inputs, others) = ([kept(&x)], [kept(&y)]);
        let call = Call::new(&stream, Step::new(2), &inputs);
        let other = Call::new(&stream, Step::new(2), &others);
        let checked = shop.replayer.check(node, &call).unwrap();
        let launches = shop.device.counts();
        assert_eq!(shop.replayer.launch(checked, &other).unwrap_err(), Error::OldCheck);
        assert_eq!(shop.device.counts(), launches);
        assert_eq!(shop.run(node, &others), 2.0);
        shop.verdict();
    }
}

#[test]
fn a_node_runs_for_the_first_time_once() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let call = Call::new(&stream, Step::new(1), &inputs);
        let task = Task::new(call).mutating(&[0]);
        let (node, _) = shop.add(task, |body| body.bump(&body.input(0), 1.0).map(|()| Vec::new())).unwrap();
        drop(shop.replayer.launch_recorded(node, &call, &[]).unwrap());
        let again = shop.replayer.launch_recorded(node, &call, &[]).map(|_| ()).unwrap_err();
        assert_eq!(again, Error::HasRun { node });
        assert_eq!((shop.value(&x), shop.replayer.replays(node)), (2.0, Some(0)));
        shop.verdict();
    }
}

#[test]
fn a_first_run_reads_the_inputs_of_its_own_call() {
    for method in BOTH {
        for patched in [false, true] {
            let mut shop = if patched { Shop::patching(method) } else { Shop::new(method) };
            let (x, y) = (shop.tensor(1.0), shop.tensor(2.0));
            let stream = shop.stream.clone();
            let others = [kept(&y)];
            let recorded_with = [kept(&x)];
            let first = Call::new(&stream, Step::new(1), &recorded_with);
            let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.sum(&[&body.input(0)], 0.0)?)]);
            let (node, recorded) = shop.add(Task::new(first), body).unwrap();
            drop(x);
            let without = Call::new(&stream, Step::new(1), &[]);
            let call = Call::new(&stream, Step::new(1), &others);
            let refused = shop.replayer.launch_recorded(node, &without, &recorded).map(|_| ()).unwrap_err();
            assert_eq!(refused, Mismatch::InputCount { recorded: 1, called: 0 }.into());
            let (mut first, _owners) = shop.replayer.launch_recorded(node, &call, &recorded).unwrap();
            let output = take(&mut first, 0);
            assert_eq!(shop.value(&output), 2.0);
            shop.verdict();
        }
    }
}

#[test]
fn expectations_that_are_not_those_of_the_captured_work_are_refused() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let mut root = shop.record_constant(&[]);
    let output = take(&mut root, 0);
    let stream = shop.stream.clone();
    let mut add = |inputs| {
        let capture = CaptureGuard::begin(&*shop.device, &stream, CaptureMode::ThreadLocal).unwrap();
        let exec = shop.device.instantiate(&capture.end().unwrap()).unwrap();
        let captured = Captured::from_exec(exec, Method::Fast);
        shop.replayer.add(Recording::new("F", captured).inputs(inputs)).unwrap_err()
    };
    let (input, slot, signature) = (InputIndex::new(0), SlotIndex::new(0), x.signature());
    assert_eq!(
        add(vec![Expected::Staged { signature, route: Route::Copied }]),
        Error::OtherStaging { input },
        "nothing would bring the input to the graph"
    );
    assert_eq!(
        add(vec![Expected::Managed { place: 0, slot, offset: 0, signature, dies: false }]),
        Mismatch::Managed { input, place: 0, slot }.into(),
        "a root takes the place of the node that made it"
    );
    assert!(output.address().is_ok());
    shop.verdict();
}

#[test]
fn the_bytes_of_execs_are_those_that_the_device_tells() {
    for method in BOTH {
        let builder = graphgrove_sim::SimDevice::builder().exec_cost(1000, 10);
        let mut shop = Shop::on(builder, method);
        let x = shop.tensor(1.0);
        assert_eq!(shop.replayer.all_exec_bytes(), 0);
        let nodes = [1, 2].map(|count| {
            let inputs = vec![kept(&x); count];
            shop.record_sum(None, &inputs).unwrap().node
        });
        let told = nodes.map(|node| {
            let graph_nodes = shop.replayer.graph_nodes(node).unwrap() as u64;
            assert_eq!(shop.replayer.exec_bytes(node), Some(1000 + 10 * graph_nodes), "{method:?}");
            1000 + 10 * graph_nodes
        });
        assert_eq!(shop.replayer.all_exec_bytes(), told.iter().sum::<u64>());
    }
}
