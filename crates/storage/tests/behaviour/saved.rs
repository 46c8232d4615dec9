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

#[test]
fn saved_outputs_that_are_taken_hold_by_themselves_and_all_others_are_let_go_of() {
    let half = PlannedOutput::alias(OutputClass::Sibling(slot(1)), Layout::of::<f32>(&[4]).unwrap(), 16);
    let outputs = vec![
        saved(0),
        saved(1),
        half.read_by(Readers::Backward),
        saved(3),
        fresh(4),
        saved(5),
        fresh(6).read_by(Readers::Both),
    ];
    // Each asked for once; one twice; one with a part of it, before and behind; one that is the caller's; none.
    for (asked, live) in [
        (&[0, 3][..], 0b00_1001),
        (&[3, 0, 3][..], 0b00_1001),
        (&[2, 1][..], 0b00_0010),
        (&[1, 2, 0][..], 0b00_0011),
        (&[4, 5, 6][..], 0b110_0000),
        (&[][..], 0),
    ] {
        let mut slab = slab(&Ledger::new(), outputs.clone());
        let back = run(&mut slab, 1);
        drop(back.outputs);
        let asked: Vec<_> = asked.iter().copied().map(slot).collect();
        let mut taken = Vec::new();
        back.saved.unwrap().take_each(&asked, |tensor| taken.push(tensor));
        assert_eq!(slab.live_word(0), live, "{asked:?}");
        let places = taken.iter().map(|tensor| tensor.address().unwrap().get());
        let block = |output: &graphgrove_storage::SlotIndex| slab.outputs()[output.get() as usize].block;
        let given: Vec<u64> = asked
            .iter()
            .filter(|output| output.get() != 4)
            .map(|output| match block(output) {
                Some((base, _)) => base.get(),
                None => block(&slot(1)).unwrap().0.get() + 16,
            })
            .collect();
        assert_eq!(places.collect::<Vec<_>>(), given);
        drop(taken);
        assert!(!slab.any_live(), "{asked:?}");
        // The slab is as good as new.
        drop(run(&mut slab, 2));
        assert!(!slab.any_live());
    }
}

#[test]
fn a_tensor_that_is_dropped_as_it_is_taken_takes_nothing_else_with_it() {
    let mut slab = slab(&Ledger::new(), vec![saved(0), saved(1)]);
    let mut seen = Vec::new();
    let token = run(&mut slab, 1).saved.unwrap();
    token.take_each(&[slot(0), slot(1), slot(0)], |tensor| seen.push(tensor.address().unwrap().get()));
    assert_eq!(seen, [0x10_0000, seen[1], 0x10_0000]);
    assert!(!slab.any_live());
}

#[test]
fn a_panic_while_saved_outputs_are_taken_leaves_nothing_held() {
    let mut slab = slab(&Ledger::new(), (0..3).map(saved).collect());
    let token = run(&mut slab, 1).saved.unwrap();
    let mut kept = Vec::new();
    let taking = std::panic::AssertUnwindSafe(|| {
        token.take_each(&[slot(0), slot(1), slot(2)], |tensor| {
            assert!(kept.is_empty(), "one is enough");
            kept.push(tensor);
        });
    });
    assert!(std::panic::catch_unwind(taking).is_err());
    assert_eq!(slab.live_word(0), 0b001);
    kept.clear();
    assert!(!slab.any_live());
}

#[test]
fn a_slot_has_a_sole_handle_while_nobody_else_has_had_it_in_the_run() {
    let outputs = vec![fresh(0), saved(1), fresh(2).read_by(Readers::Both)];
    let mut slab = slab(&Ledger::new(), outputs);
    let sole =
        |slab: &graphgrove_storage::Slab| (0..3).map(|at| slab.is_sole_handle(slot(at))).collect::<Vec<_>>();
    assert_eq!(sole(&slab), [false; 3]);
    let mut back = run(&mut slab, 1);
    assert_eq!(sole(&slab), [false; 3], "one waits, one is saved, one both");
    let first = back.outputs.take(slot(0)).unwrap();
    let mut taken = Vec::new();
    back.saved.unwrap().take_each(&[slot(1), slot(2)], |tensor| taken.push(tensor));
    assert_eq!(sole(&slab), [true, true, false], "the third waits too");
    drop(back.outputs);
    assert_eq!(sole(&slab), [true, true, false], "the third has had two, so nothing is said");
    let again = first.clone();
    assert_eq!(sole(&slab), [false, true, false]);
    drop((first, again, taken));
    assert_eq!(sole(&slab), [false; 3]);
}
