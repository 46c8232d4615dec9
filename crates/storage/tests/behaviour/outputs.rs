//! Outputs on their way to the caller.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    DType, Error, Layout, Ledger, OutputClass, PersistentSource, PlannedOutput, Slab, Tensor,
};

use crate::rig::{floats, fresh, outside, run, slab, slab_of, slot, step};

#[test]
fn outputs_are_handed_back_in_bulk_and_taken_once_each() {
    let mut slab = slab_of(130);
    let mut outputs = run(&mut slab, 1).outputs;
    assert_eq!((outputs.len(), outputs.epoch().get(), outputs.is_empty()), (130, 1, false));
    assert_eq!((slab.live_word(0), slab.live_word(1), slab.live_word(2)), (u64::MAX, u64::MAX, 0b11));
    let third = outputs.take(slot(3)).unwrap();
    assert_eq!(third.address().unwrap().get(), 0x10_0000 + 3 * 512);
    assert_eq!((third.dtype(), third.shape(), third.output()), (DType::F32, &[8][..], Some(slot(3))));
    assert!(outputs.take(slot(3)).is_none() && outputs.take(slot(130)).is_none());
    let rest: Vec<_> = outputs.take_all().collect();
    assert_eq!(rest.iter().filter(|taken| taken.is_some()).count(), 129);
    assert!(rest[3].is_none());
    drop(outputs);
    assert_eq!(slab.live().count(), 130);
}

#[test]
fn taking_all_that_ends_early_leaves_the_rest_to_be_taken() {
    let mut slab = slab_of(130);
    let mut outputs = run(&mut slab, 1).outputs;
    let mut all = outputs.take_all();
    assert_eq!(all.len(), 130);
    let first: Vec<_> = all.by_ref().take(70).flatten().collect();
    assert_eq!((first.len(), all.len()), (70, 60));
    drop(all);
    assert!(outputs.take(slot(69)).is_none());
    assert_eq!(outputs.take_all().flatten().count(), 60);
    assert_eq!(slab.live().count(), 70);
    drop(first);
    assert!(!slab.any_live());
}

#[test]
fn outputs_that_nobody_takes_die_together() {
    let mut slab = slab_of(130);
    let mut outputs = run(&mut slab, 1).outputs;
    let (first, last) = (outputs.take(slot(0)), outputs.take(slot(129)));
    drop(outputs);
    assert_eq!(slab.live().collect::<Vec<_>>(), [slot(0), slot(129)]);
    drop((first, last));
    assert!(!slab.any_live());
}

#[test]
fn siblings_share_one_slot_and_die_together() {
    let half = PlannedOutput::alias(OutputClass::Sibling(slot(0)), Layout::of::<f32>(&[4]).unwrap(), 16);
    let mut slab = slab(&Ledger::new(), vec![fresh(0), half.clone(), half]);
    assert_eq!(slab.own_word(0), 0b001);
    let mut outputs = run(&mut slab, 1).outputs;
    assert_eq!(slab.holders(slot(0)).waiting, 3);
    let (whole, part) = (outputs.take(slot(0)).unwrap(), outputs.take(slot(1)).unwrap());
    assert!(whole.shares_storage(&part).unwrap());
    assert_eq!(part.address().unwrap().get(), whole.address().unwrap().get() + 16);
    assert_eq!((part.shape(), part.output()), (&[4][..], None));
    drop(whole);
    assert!(slab.is_live(slot(0)));
    drop(part);
    assert!(slab.is_live(slot(0)), "the third waits");
    drop(outputs);
    assert!(!slab.any_live());
}

#[test]
fn an_output_waits_on_the_slot_that_it_lies_in_and_on_no_other() {
    let half = PlannedOutput::alias(OutputClass::Sibling(slot(1)), Layout::of::<f32>(&[4]).unwrap(), 16);
    let mut slab = slab(&Ledger::new(), vec![fresh(0), fresh(1), half]);
    let _back = run(&mut slab, 1);
    assert_eq!([0, 1, 2].map(|number| slab.holders(slot(number)).waiting), [1, 2, 0]);
}

#[test]
fn empty_outputs_and_what_is_no_tensor_hold_nothing() {
    let empty = PlannedOutput::empty(Layout::of::<f32>(&[0, 3]).unwrap());
    let mut slab = slab(&Ledger::new(), vec![empty, PlannedOutput::not_tensor()]);
    let mut outputs = run(&mut slab, 1).outputs;
    assert!(!slab.any_live());
    let tensor = outputs.take(slot(0)).unwrap();
    assert!(tensor.address().unwrap().is_null() && tensor.storage().id().unwrap().is_none());
    assert_eq!(tensor.shape(), [0, 3]);
    assert!(outputs.take(slot(1)).is_none());
    assert_eq!(outputs.class(slot(1)), Some(OutputClass::NotTensor));
    assert_eq!(outputs.class(slot(2)), None);
}

#[test]
fn a_node_may_have_no_outputs() {
    let mut slab = slab_of(0);
    let back = run(&mut slab, 1);
    assert!(back.outputs.is_empty() && back.saved.is_none() && !slab.any_live());
    assert_eq!(format!("{:?}", back.outputs), "Outputs(0 of F in epoch 1)");
}

#[test]
fn outputs_that_are_taken_late_do_not_reach_into_the_next_run() {
    let mut slab = slab_of(2);
    let mut late = run(&mut slab, 1).outputs;
    drop(late.take_all().collect::<Vec<_>>());
    assert!(!slab.any_live());
    // The first run's outputs are all gone, but the object is still there while the node runs again.
    let mut outputs = run(&mut slab, 2).outputs;
    assert!(late.take(slot(0)).is_none());
    drop(late);
    assert_eq!(slab.live_word(0), 0b11);
    assert!(outputs.take(slot(0)).unwrap().address().is_ok());
}

#[test]
fn outputs_that_do_not_fit_their_class_are_refused() {
    let layout = || Layout::of::<f32>(&[8]).unwrap();
    let bad = |outputs: Vec<PlannedOutput>| Slab::new(&Ledger::new(), "F", 0, outputs).err();
    let wrong = |number| Some(Error::BadOutput { output: slot(number) });
    let sibling = |of, offset| PlannedOutput::alias(OutputClass::Sibling(slot(of)), layout(), offset);
    assert_eq!(bad(vec![fresh(0), sibling(1, 0)]), wrong(1));
    assert_eq!(bad(vec![sibling(1, 0), fresh(0)]), wrong(0));
    assert_eq!(bad(vec![PlannedOutput::not_tensor(), sibling(0, 0)]), wrong(1));
    assert_eq!(bad(vec![fresh(0), sibling(0, -4)]), wrong(1));
    assert_eq!(
        bad(vec![fresh(0), sibling(0, 500)]),
        Some(Error::OutOfStorage { offset: 500, span: 32, bytes: 512 })
    );
    assert_eq!(bad(vec![PlannedOutput { block: None, ..fresh(0) }]), wrong(0));
    assert_eq!(bad(vec![PlannedOutput { layout: None, ..fresh(0) }]), wrong(0));
    assert_eq!(bad(vec![PlannedOutput { block: Some((0x10.into_ptr(), 0)), ..fresh(0) }]), wrong(0));
    assert_eq!(bad(vec![PlannedOutput { block: Some((u64::MAX.into_ptr(), 64)), ..fresh(0) }]), wrong(0));
    assert_eq!(bad(vec![PlannedOutput::empty(layout())]), wrong(0));
    let captured = OutputClass::Persistent(PersistentSource::Captured);
    assert_eq!(
        bad(vec![PlannedOutput { layout: None, ..PlannedOutput::alias(captured, layout(), 0) }]),
        wrong(0)
    );
    assert_eq!(bad(vec![fresh(0), sibling(0, 480)]), None);
}

trait IntoPtr {
    fn into_ptr(self) -> DevicePtr;
}

impl IntoPtr for u64 {
    fn into_ptr(self) -> DevicePtr {
        DevicePtr::new(self)
    }
}

#[test]
fn two_outputs_never_own_the_same_memory() {
    let new = |outputs| Slab::new(&Ledger::new(), "F", 0, outputs).map(|_| ());
    assert_eq!(new(vec![fresh(0), fresh(0)]), Err(Error::SharedBlock { a: slot(0), b: slot(1) }));
    let block = |base, bytes| PlannedOutput::fresh(DevicePtr::new(base), bytes, floats(8));
    let overlapping = vec![fresh(9), block(0x1100, 512), PlannedOutput::not_tensor(), block(0x1000, 512)];
    assert_eq!(new(overlapping), Err(Error::SharedBlock { a: slot(3), b: slot(1) }));
    assert_eq!(new(vec![block(0x1200, 512), block(0x1000, 512)]), Ok(()));
}

#[test]
fn a_source_that_panics_leaves_nothing_to_the_next_run() {
    let constant = OutputClass::Persistent(PersistentSource::Captured);
    let alias = || PlannedOutput::alias(constant, floats(8), 0);
    let mut slab = slab(&Ledger::new(), vec![alias(), alias(), fresh(0)]);
    let (lost, brought) = (outside(0x5000, 8), outside(0x6000, 8));
    let watch = lost.storage().watch().unwrap();
    let panics = |output, _| if output == slot(0) { Some(lost.clone()) } else { panic!("the caller's own") };
    let run = || slab.hand_back(step(1), panics).is_ok();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    drop(lost);
    assert!(!watch.is_live());
    assert_eq!((slab.epoch().get(), slab.any_live()), (0, false));
    let mut outputs = slab.hand_back(step(1), |_, _| Some(brought.clone())).unwrap().outputs;
    assert_eq!(outputs.take(slot(0)).unwrap().address().unwrap().get(), 0x6000);
    assert_eq!(outputs.take_all().flatten().count(), 2);
}

#[test]
fn outputs_in_memory_of_others_are_taken_in_any_order() {
    let constant = OutputClass::Persistent(PersistentSource::Captured);
    let outputs = (0..6).map(|number| PlannedOutput::alias(constant, floats(1), 4 * number)).collect();
    let mut slab = slab(&Ledger::new(), outputs);
    let weight = outside(0x5000, 8);
    let mut outputs = slab.hand_back(step(1), |_, _| Some(weight.clone())).unwrap().outputs;
    for number in [4, 0, 5, 2] {
        let taken = outputs.take(slot(number)).unwrap();
        assert_eq!(taken.address().unwrap().get(), 0x5000 + 4 * u64::from(number));
        assert!(outputs.take(slot(number)).is_none());
    }
    assert_eq!(outputs.take_all().flatten().count(), 2);
}

#[test]
fn an_alias_that_does_not_lie_in_what_is_brought_is_refused_and_says_where_it_would_be() {
    let constant = OutputClass::Persistent(PersistentSource::Captured);
    let whole = outside(0x5000, 16);
    let half = whole.slice(0, 8..16, 1).unwrap();
    let error = |source: &Tensor, offset| {
        let mut slab = slab(&Ledger::new(), vec![PlannedOutput::alias(constant, floats(8), offset)]);
        slab.hand_back(step(1), |_, _| Some(source.clone())).map(|_| ())
    };
    assert_eq!((error(&half, -32), error(&whole, 32)), (Ok(()), Ok(())));
    assert_eq!(error(&half, -40), Err(Error::BeforeStorage { before: 8 }));
    assert_eq!(error(&half, i64::MIN), Err(Error::BeforeStorage { before: (1 << 63) - 32 }));
    assert_eq!(error(&half, 4), Err(Error::OutOfStorage { offset: 36, span: 32, bytes: 64 }));
    assert_eq!(Error::BeforeStorage { before: 8 }.to_string(), "8 bytes before the start of a storage");
}
