//! Saved outputs: held by the backward's token, in bulk.

use graphgrove_storage::{Layout, Ledger, OutputClass, PlannedOutput, Readers};

use crate::rig::{fresh, outside, run, slab, slot, step, take};

fn saved(number: u64) -> PlannedOutput {
    fresh(number).read_by(Readers::Backward)
}

#[test]
fn saved_outputs_have_no_handles_and_go_in_bulk_with_their_token() {
    let outputs = (0..70).map(saved).chain([fresh(70)]).collect();
    let mut slab = slab(&Ledger::new(), outputs);
    let mut back = run(&mut slab, 1);
    assert_eq!(back.outputs.take_all().flatten().count(), 1);
    drop(back.outputs);
    assert_eq!(slab.live().count(), 70);
    let token = back.saved.unwrap();
    assert_eq!((token.outputs().count(), token.epoch().get()), (70, 1));
    drop(token);
    assert!(!slab.any_live());
}

#[test]
fn a_users_view_of_a_saved_output_counts_by_itself() {
    let mut slab = slab(&Ledger::new(), vec![saved(0), saved(1)]);
    let token = run(&mut slab, 1).saved.unwrap();
    let tensor = token.tensor(slot(0)).unwrap();
    let view = tensor.slice(0, 0..2, 1).unwrap();
    drop((token, tensor));
    assert_eq!(slab.live_word(0), 0b01);
    assert_eq!(view.address().unwrap().get(), 0x10_0000);
    drop(view);
    assert!(!slab.any_live());
}

#[test]
fn a_token_outlives_the_users_view_of_what_it_saves() {
    let mut slab = slab(&Ledger::new(), vec![saved(0)]);
    let token = run(&mut slab, 1).saved.unwrap();
    drop(token.tensor(slot(0)).unwrap());
    assert!(slab.is_live(slot(0)));
    drop(token);
    assert!(!slab.is_live(slot(0)));
}

#[test]
fn an_output_can_be_the_callers_and_the_backwards() {
    for backward_first in [false, true] {
        let mut slab = slab(&Ledger::new(), vec![fresh(0).read_by(Readers::Both)]);
        let mut back = run(&mut slab, 1);
        let tensor = back.outputs.take(slot(0)).unwrap();
        if backward_first {
            drop(back.saved);
            assert!(slab.is_live(slot(0)));
            drop(tensor);
        } else {
            drop(tensor);
            assert!(slab.is_live(slot(0)));
            drop(back.saved);
        }
        assert!(!slab.is_live(slot(0)));
    }
}

#[test]
fn a_saved_sibling_holds_the_slot_that_it_lies_in() {
    let half = PlannedOutput::alias(OutputClass::Sibling(slot(0)), Layout::of::<f32>(&[4]).unwrap(), 16);
    let outputs = vec![fresh(0), half.clone().read_by(Readers::Backward), half.read_by(Readers::Both)];
    let mut slab = slab(&Ledger::new(), outputs);
    let mut back = run(&mut slab, 1);
    drop(back.outputs.take(slot(0)));
    let token = back.saved.unwrap();
    assert_eq!(token.tensor(slot(1)).unwrap().address().unwrap().get(), 0x10_0010);
    assert!(token.tensor(slot(0)).is_none(), "only its sibling is saved");
    drop(back.outputs);
    assert!(slab.is_live(slot(0)));
    drop(token);
    assert!(!slab.is_live(slot(0)));
}

#[test]
fn saved_outputs_may_be_empty_or_no_tensor_or_in_memory_of_others() {
    let parameter = OutputClass::Persistent(graphgrove_storage::PersistentSource::Captured);
    let weight = outside(0x9000, 8);
    let outputs = vec![
        PlannedOutput::empty(Layout::of::<f32>(&[0]).unwrap()).read_by(Readers::Backward),
        PlannedOutput::not_tensor().read_by(Readers::Backward),
        PlannedOutput::alias(parameter, weight.layout().clone(), 0).read_by(Readers::Backward),
        PlannedOutput::alias(parameter, weight.layout().clone(), 0).read_by(Readers::Both),
    ];
    let mut slab = slab(&Ledger::new(), outputs);
    let watch = weight.storage().watch().unwrap();
    let mut weight = Some(weight);
    let mut back = slab.hand_back(step(1), |_, _| weight.clone()).unwrap();
    weight.take();
    let token = back.saved.take().unwrap();
    assert!(token.tensor(slot(0)).unwrap().address().unwrap().is_null());
    assert!(token.tensor(slot(1)).is_none());
    assert_eq!(token.tensor(slot(2)).unwrap().address().unwrap().get(), 0x9000);
    assert!(back.outputs.take(slot(2)).is_none(), "it is the backward's alone");
    assert_eq!(back.outputs.take(slot(3)).unwrap().address().unwrap().get(), 0x9000);
    drop(back);
    assert!(watch.is_live());
    assert_eq!(format!("{token:?}"), "SavedOutputs([0, 1, 2, 3] of F in epoch 1)");
    drop(token);
    assert!(!watch.is_live());
}

#[test]
fn a_token_that_is_kept_over_the_next_run_holds_its_own_run_only() {
    let mut slab = slab(&Ledger::new(), vec![saved(0)]);
    let old = run(&mut slab, 1).saved.unwrap();
    let new = run(&mut slab, 2).saved.unwrap();
    assert!(old.tensor(slot(0)).unwrap().address().is_err());
    drop(old);
    assert!(slab.is_live(slot(0)));
    drop(new);
    assert!(!slab.is_live(slot(0)));
    assert_eq!(take(&mut slab, 3).len(), 0);
}
