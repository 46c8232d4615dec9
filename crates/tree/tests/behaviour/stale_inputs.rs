//! Managed inputs whose value is gone or never was: they are rejected whatever the prediction says.

use crate::driver::{Driver, kept, moved, x};
use graphgrove_tree::{
    Call, Epoch, Error, InputIndex, Limits, LiveTable, NodeId, Options, PathChange, SlotIndex, SlotValue,
};

#[test]
fn a_stale_or_invented_input_is_rejected_where_the_predicted_root_would_stage_it() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    e.settle(&Call::inference(f, &[x(1)]));
    let old = e.infer(f, &[x(1)]);
    e.forget(&old);
    let current = e.infer(f, &[x(1)]);
    e.forget(&current);
    assert_eq!(e.tree.predicted(), Some(current.node()));
    let decide = |value| e.tree.decide(&Call::inference(f, &[kept(value)]), &e.live).unwrap_err();
    let input = InputIndex::new(0);
    let node = current.node();
    let epoch = current.outputs[0].epoch;
    for given in [old.outputs[0].epoch, Epoch::new(999)] {
        let value = SlotValue { epoch: given, ..current.outputs[0] };
        assert_eq!(decide(value), Error::StaleInput { input, node, given, current: Some(epoch) });
    }
    let slot = SlotIndex::new(77);
    assert_eq!(decide(SlotValue::new(node, slot, epoch)), Error::NotASlot { input, slot });
    let nowhere = SlotValue::new(NodeId::default(), SlotIndex::new(0), Epoch::new(0));
    let given = Epoch::new(0);
    assert_eq!(decide(nowhere), Error::StaleInput { input, node: NodeId::default(), given, current: None });
}

/// `consume` staged its input after that had been another output of `produce` too often.
fn demoted() -> (Driver, graphgrove_tree::FunctionId, graphgrove_tree::FunctionId) {
    let limits = Limits { changes_before_staged: 1, ..Limits::default() };
    let mut e = Driver::new(Options { limits, ..Options::default() });
    let (produce, consume) = (e.function("produce", 4), e.function("consume", 1));
    for turn in 0..12 {
        let y = e.infer(produce, &[x(1)]);
        let z = e.infer(consume, &[kept(y.outputs[turn % 4])]);
        assert!(turn < 10 || z.is_replay());
        e.forget(&y);
        e.forget(&z);
    }
    (e, produce, consume)
}

#[test]
fn a_stale_or_invented_input_is_rejected_where_it_would_be_staged_because_it_kept_changing() {
    let (mut e, produce, consume) = demoted();
    let old = e.infer(produce, &[x(1)]);
    let followed = e.infer(consume, &[kept(old.outputs[0])]);
    e.forget(&old);
    e.forget(&followed);
    let y = e.infer(produce, &[x(1)]);
    assert_eq!(e.tree.predicted(), Some(followed.node()));
    let decide = |value| e.tree.decide(&Call::inference(consume, &[kept(value)]), &e.live);
    let input = InputIndex::new(0);
    let stale = decide(old.outputs[3]).unwrap_err();
    let current = Some(y.outputs[0].epoch);
    let given = old.outputs[0].epoch;
    assert_eq!(stale, Error::StaleInput { input, node: y.node(), given, current });
    let slot = SlotIndex::new(9);
    let invented = SlotValue::new(y.node(), slot, y.outputs[0].epoch);
    assert_eq!(decide(invented).unwrap_err(), Error::NotASlot { input, slot });
    for value in y.outputs.clone() {
        let z = e.infer(consume, &[kept(value)]);
        assert!(z.is_replay(), "a valid one is staged");
        e.forget(&z);
    }
}

#[test]
fn an_input_holds_its_path_for_its_own_call_even_if_its_last_handle_is_reported_dropped() {
    let (mut e, produce, consume) = demoted();
    let y = e.infer(produce, &[x(1)]);
    for give in [kept, moved] {
        let inputs = [give(y.outputs[2])];
        for function in [produce, consume] {
            let nothing_live = LiveTable::new();
            let call = Call::inference(function, &inputs);
            let decided = e.tree.decide(&call, &nothing_live).unwrap();
            assert_eq!(decided.path_change(), Some(&PathChange::Extends), "{decided:?}");
        }
    }
    e.tree.begin_step();
    let inputs = [kept(y.outputs[2])];
    let decided = e.tree.decide(&Call::inference(produce, &inputs), &LiveTable::new()).unwrap();
    let end = decided.path_change().and_then(PathChange::path_end).unwrap();
    assert_eq!((&*end.carried, &*end.slots), (&[InputIndex::new(0)][..], &[][..]));
}

#[test]
fn a_recording_that_would_be_replayed_in_place_of_its_last_run_does_not_stage_an_output_of_that() {
    let (mut e, produce, consume) = demoted();
    let y = e.infer(produce, &[x(1)]);
    let runs = [0, 1].map(|output| {
        let z = e.infer(consume, &[kept(y.outputs[output])]);
        e.forget(&z);
        z
    });
    assert_eq!((runs[0].node(), e.tree.predicted()), (runs[1].node(), Some(runs[1].node())));
    assert_eq!(runs[1].change, Some(PathChange::DropsUnneededTail));
    let inputs = [kept(runs[1].outputs[0])];
    let decided = e.tree.decide(&Call::inference(consume, &inputs), &e.live).unwrap();
    assert_eq!(decided.path_change(), Some(&PathChange::Extends), "the call reads what it would write");
}
