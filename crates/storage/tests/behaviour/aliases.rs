//! The alias planner: what each output is, and what handing it back makes of that.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    Error, InputIndex, InputPlan, InputSpec, Layout, Ledger, OutputClass, OutputSpec, PersistentSource,
    PlannedOutput, Readers, Slab, Storage, StorageId, Tensor, plan_outputs,
};

use crate::rig::{BLOCK, Census, floats, outside, run, slab, slab_of, slot, step, take};

/// A tensor in a block that the pool handed to the function that is being recorded.
fn block(census: &Census, address: u64) -> Tensor {
    let storage = Storage::pool_block(DevicePtr::new(address), BLOCK, census.owner());
    Tensor::new(storage, floats(8), 0).unwrap()
}

fn no_inputs() -> InputPlan {
    InputPlan::new(&[], 16, |_| true).unwrap()
}

fn classes(planned: &[PlannedOutput]) -> Vec<OutputClass> {
    planned.iter().map(|output| output.class).collect()
}

fn input(number: u32) -> InputIndex {
    InputIndex::new(number)
}

#[test]
fn each_output_is_classed_by_where_its_memory_comes_from() {
    let census = Census::default();
    let mut earlier = slab_of(2);
    let path = take(&mut earlier, 1);
    let (weight, x, constant) = (outside(0x1000, 8), outside(0x2000, 8), outside(0x3000, 8));
    let staged_x = block(&census, 0x8000);
    let specs = [InputSpec::parameter(&weight), InputSpec::read(&x).moved(), InputSpec::read(&path[0])];
    let inputs = InputPlan::new(&specs, 16, |_| true).unwrap();
    let passed = [Some(weight.clone()), Some(staged_x.clone()), Some(path[0].clone())];
    let (a, b) = (block(&census, 0x9000), block(&census, 0xa000));
    let half = |tensor: &Tensor| tensor.slice(0, 4..8, 1).unwrap();
    let outputs = [
        a.clone(),
        half(&a),
        half(&weight),
        half(&staged_x),
        half(&path[0]),
        half(&path[1]),
        half(&constant),
        b.slice(0, 0..0, 1).unwrap(),
        Tensor::empty(floats(0)).unwrap(),
        half(&b),
        b,
    ];
    let specs: Vec<_> = outputs
        .iter()
        .map(OutputSpec::returned)
        .chain([OutputSpec::not_tensor(), OutputSpec::saved(&a)])
        .collect();
    let planned = plan_outputs(&inputs, &passed, &specs, |_| true).unwrap();
    let value = |number: usize| path[number].storage().slot_value().unwrap().unwrap();
    assert_eq!(
        classes(&planned),
        [
            OutputClass::Fresh,
            OutputClass::Sibling(slot(0)),
            OutputClass::Persistent(PersistentSource::Input(input(0))),
            OutputClass::StagedInput { input: input(1), moved: true },
            OutputClass::EarlierSlot { value: value(0), input: Some(input(2)) },
            OutputClass::EarlierSlot { value: value(1), input: None },
            OutputClass::Persistent(PersistentSource::Captured),
            OutputClass::Empty,
            OutputClass::Empty,
            OutputClass::Fresh,
            OutputClass::Sibling(slot(9)),
            OutputClass::NotTensor,
            OutputClass::Sibling(slot(0)),
        ]
    );
    let offsets: Vec<_> = planned.iter().map(|output| output.offset).collect();
    assert_eq!(offsets, [0, 16, 16, 16, 16, 16, 0, 0, 0, 16, 0, 0, 0]);
    assert_eq!(planned[9].block, Some((DevicePtr::new(0xa000), BLOCK)));
    assert_eq!((planned[12].readers, planned[0].readers), (Readers::Backward, Readers::Caller));
}

#[test]
fn an_input_without_elements_is_not_what_an_output_is_an_alias_of() {
    let weight = outside(0x1000, 8);
    let nothing = weight.slice(0, 8..8, 1).unwrap();
    let specs = [InputSpec::read(&nothing), InputSpec::parameter(&weight)];
    let inputs = InputPlan::new(&specs, 16, |_| true).unwrap();
    let passed = [Some(nothing.clone()), Some(weight.clone())];
    let planned = plan_outputs(&inputs, &passed, &[OutputSpec::returned(&weight)], |_| true).unwrap();
    assert_eq!(classes(&planned), [OutputClass::Persistent(PersistentSource::Input(input(1)))]);
}

#[test]
fn a_slot_that_is_not_on_the_path_is_no_output() {
    let mut elsewhere = slab_of(1);
    let tensor = take(&mut elsewhere, 1).remove(0);
    let id = tensor.storage().id().unwrap().unwrap();
    let refused = plan_outputs(&no_inputs(), &[], &[OutputSpec::returned(&tensor)], |_| false);
    assert_eq!(refused, Err(Error::ForeignOutput { output: slot(0), storage: id }));
    let _new = take(&mut elsewhere, 2);
    let stale = plan_outputs(&no_inputs(), &[], &[OutputSpec::returned(&tensor)], |_| true);
    assert!(matches!(stale, Err(Error::Stale(_))));
}

#[test]
fn two_blocks_at_one_address_are_two_storages() {
    let census = Census::default();
    let first = block(&census, 0x9000);
    let second = block(&census, 0x9000);
    let specs = [OutputSpec::returned(&first), OutputSpec::returned(&second)];
    let planned = plan_outputs(&no_inputs(), &[], &specs, |_| true).unwrap();
    assert_eq!(classes(&planned), [OutputClass::Fresh, OutputClass::Fresh]);
}

#[test]
fn an_alias_of_an_input_is_handed_back_as_the_callers_own_tensor() {
    let delta = |class| PlannedOutput::alias(class, floats(4), 16);
    let parameter = OutputClass::Persistent(PersistentSource::Input(input(0)));
    let staged = OutputClass::StagedInput { input: input(1), moved: false };
    let mut slab = slab(&Ledger::new(), vec![delta(parameter), delta(staged)]);
    for number in 1..4 {
        let (weight, x) = (outside(0x1000, 8), outside(0x2000 + 0x100 * number, 8));
        let shifted = x.slice(0, 0..8, 1).unwrap();
        let mut back = slab
            .hand_back(step(number), |_, class| {
                Some(if class == parameter { weight.clone() } else { shifted.clone() })
            })
            .unwrap();
        assert!(!slab.any_live(), "the memory has other owners");
        let (w, y) = (back.outputs.take(slot(0)).unwrap(), back.outputs.take(slot(1)).unwrap());
        assert!(w.shares_storage(&weight).unwrap() && y.shares_storage(&x).unwrap());
        assert_eq!(y.address().unwrap().get(), 0x2010 + 0x100 * number);
        let watch = x.storage().watch().unwrap();
        drop((x, shifted));
        assert!(watch.is_live());
        drop(y);
        assert!(!watch.is_live());
    }
}

#[test]
fn an_alias_of_an_earlier_slot_keeps_that_slot_alive_across_nodes() {
    let mut first = slab_of(1);
    let tensor = take(&mut first, 1).remove(0);
    let value = tensor.storage().slot_value().unwrap().unwrap();
    let class = OutputClass::EarlierSlot { value, input: Some(input(0)) };
    let mut second = slab(&Ledger::new(), vec![PlannedOutput::alias(class, floats(4), 16)]);
    let moved = tensor.slice(0, 2..3, 1).unwrap();
    drop(tensor);
    let mut moved = Some(moved);
    let mut outputs = second.hand_back(step(1), |_, _| moved.take()).unwrap().outputs;
    assert!(first.is_live(slot(0)) && !second.any_live());
    assert_eq!(first.holders(slot(0)).handles, 1);
    let alias = outputs.take(slot(0)).unwrap();
    drop(outputs);
    assert_eq!(alias.storage().id(), Ok(Some(StorageId::Slot(value))));
    assert_eq!(alias.address().unwrap().get(), 0x10_0010, "from where the slot starts, not from the input");
    drop(alias);
    assert!(!first.any_live());
}

#[test]
fn what_is_borrowed_and_not_taken_is_let_go_of() {
    let mut first = slab_of(1);
    let tensor = take(&mut first, 1).remove(0);
    let value = tensor.storage().slot_value().unwrap().unwrap();
    let class = OutputClass::EarlierSlot { value, input: None };
    let mut second = slab(&Ledger::new(), vec![PlannedOutput::alias(class, floats(4), 16); 3]);
    let mut outputs = second.hand_back(step(1), |_, _| Some(tensor.clone())).unwrap().outputs;
    assert_eq!(first.holders(slot(0)).handles, 4);
    let taken = outputs.take(slot(1)).unwrap();
    drop((outputs, tensor));
    assert_eq!(first.holders(slot(0)).handles, 1);
    drop(taken);
    assert!(!first.any_live());
}

#[test]
fn a_wrong_or_missing_source_changes_nothing() {
    let mut first = slab_of(2);
    let tensors = take(&mut first, 1);
    let value = tensors[0].storage().slot_value().unwrap().unwrap();
    let class = OutputClass::EarlierSlot { value, input: None };
    let parameter = OutputClass::Persistent(PersistentSource::Captured);
    let outputs = vec![
        crate::rig::fresh(9),
        PlannedOutput::alias(class, floats(4), 0),
        PlannedOutput::alias(parameter, floats(4), -8),
    ];
    let mut second = slab(&Ledger::new(), outputs);
    let mut back = second
        .hand_back(step(1), |of, _| {
            Some(if of == slot(1) { tensors[0].clone() } else { tensors[0].slice(0, 2..4, 1).unwrap() })
        })
        .unwrap();
    let kept = back.outputs.take(slot(0)).unwrap();
    drop(back);
    let (foreign, stale) = (outside(0x1000, 8), {
        let mut third = slab_of(1);
        let old = take(&mut third, 1).remove(0);
        drop(run(&mut third, 2));
        old
    });
    let other = tensors[1].storage().id().unwrap();
    let cases: [(Option<&Tensor>, Option<&Tensor>, Error); 5] = [
        (None, Some(&foreign), Error::NoSource { output: slot(1) }),
        (Some(&tensors[0]), None, Error::NoSource { output: slot(2) }),
        (Some(&tensors[1]), Some(&foreign), Error::WrongSource { output: slot(1), given: other }),
        (
            Some(&foreign),
            Some(&foreign),
            Error::WrongSource { output: slot(1), given: foreign.storage().id().unwrap() },
        ),
        (Some(&tensors[0]), Some(&foreign), Error::BeforeStorage { before: 8 }),
    ];
    for (one, two, expected) in cases {
        let failed = second.hand_back(step(2), |of, _| (if of == slot(1) { one } else { two }).cloned());
        assert_eq!(failed.err(), Some(expected));
        assert!(kept.address().is_ok(), "the last run is still the last");
        assert_eq!((second.live_word(0), second.epoch().get(), first.holders(slot(0)).handles), (1, 1, 1));
    }
    let failed = second.hand_back(step(2), |_, _| Some(stale.clone()));
    assert!(matches!(failed, Err(Error::Stale(_))));
}

#[test]
fn a_recordings_own_tensors_become_the_outputs_and_their_owners_the_callers() {
    let census = Census::default();
    let (a, b, scratch) = (block(&census, 0x9000), block(&census, 0xa000), block(&census, 0xb000));
    let specs = [OutputSpec::returned(&a), OutputSpec::returned(&b)];
    let planned = plan_outputs(&no_inputs(), &[], &specs, |_| true).unwrap();
    let mut slab = slab(&Ledger::new(), planned);
    let leaked = b.clone();
    let leaked_view = b.slice(0, 1..2, 1).unwrap();
    let watch = leaked.storage().watch().unwrap();
    let recorded = [Some(a), Some(b)];
    let (mut back, owners) = slab.hand_back_recorded(step(1), &recorded, |_, _| None).unwrap();
    assert_eq!(owners.iter().map(|(of, _)| *of).collect::<Vec<_>>(), [slot(0), slot(1)]);
    assert_eq!(slab.holders(slot(1)).handles, 1);
    drop((recorded, scratch));
    assert_eq!((slab.holders(slot(0)).handles, census.alive()), (0, 2));
    let b = back.outputs.take(slot(1)).unwrap();
    assert!(b.shares_storage(&leaked).unwrap() && b.shares_storage(&leaked_view).unwrap());
    assert!(watch.is_live());
    drop((b, leaked, back));
    assert!(slab.is_live(slot(1)) && !slab.is_live(slot(0)), "the function left a view of it somewhere");
    assert_eq!(leaked_view.address().unwrap().get(), 0xa004);
    drop(run(&mut slab, 2));
    assert!(matches!(leaked_view.address(), Err(Error::Stale(_))) && !watch.is_live());
    let printed = format!("{:?}", leaked_view.storage());
    assert!(printed.contains("is gone"), "{printed}");
    drop(owners);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_block_is_adopted_once_and_only_by_the_slot_at_its_place() {
    let census = Census::default();
    let (a, other) = (block(&census, 0x9000), block(&census, 0xa000));
    let planned =
        plan_outputs(&no_inputs(), &[], &[OutputSpec::returned(&a), OutputSpec::returned(&a)], |_| true)
            .unwrap();
    let mut slab = slab(&Ledger::new(), planned.clone());
    let refused = |slab: &mut Slab, recorded: &[Option<Tensor>]| {
        slab.hand_back_recorded(step(1), recorded, |_, _| None).unwrap_err()
    };
    let not_recorded = |given| Error::NotRecorded { output: slot(0), given };
    let id = |tensor: &Tensor| tensor.storage().id().unwrap();
    let swapped = [Some(other.clone()), Some(a.clone())];
    assert_eq!(refused(&mut slab, &swapped), not_recorded(id(&other)));
    assert_eq!(refused(&mut slab, &[]), not_recorded(None));
    assert_eq!(refused(&mut slab, &[None, Some(a.clone())]), not_recorded(None));
    let shorter = Storage::pool_block(DevicePtr::new(0x9000), 256, census.owner());
    let shorter = Tensor::new(shorter, floats(8), 0).unwrap();
    assert_eq!(refused(&mut slab, &[Some(shorter.clone())]), not_recorded(id(&shorter)));
    drop(shorter);
    assert_eq!((slab.epoch().get(), slab.any_live()), (0, false), "nothing has changed");
    let (back, owners) = slab.hand_back_recorded(step(2), &[Some(a.clone()), None], |_, _| None).unwrap();
    assert_eq!((owners.len(), slab.holders(slot(0)).handles), (1, 1));
    let mut another = crate::rig::slab(&Ledger::new(), planned);
    assert_eq!(refused(&mut another, &[Some(a.clone()), None]), not_recorded(id(&a)));
    drop((back, a, swapped));
    assert!(!slab.any_live());
    drop((owners, other));
    assert_eq!(census.alive(), 0);
}

#[test]
fn an_output_of_a_size_that_is_recorded_lies_where_it_was_recorded() {
    let census = Census::default();
    let storage = Storage::pool_block(DevicePtr::new(0x9000), BLOCK, census.owner());
    let matrix = Tensor::new(storage, Layout::of::<f32>(&[4, 8]).unwrap(), 0).unwrap();
    let column = matrix.transpose(0, 1).unwrap().select(0, 3).unwrap();
    let planned = plan_outputs(&no_inputs(), &[], &[OutputSpec::returned(&column)], |_| true).unwrap();
    let mut slab = slab(&Ledger::new(), planned);
    let taken = take(&mut slab, 1).remove(0);
    assert_eq!((taken.address().unwrap().get(), taken.strides()), (0x900c, &[8][..]));
    assert_eq!((taken.signature(), taken.storage().bytes()), (column.signature(), Ok(BLOCK)));
}

#[test]
fn of_inputs_that_are_staged_together_an_output_is_the_one_that_it_lies_in() {
    // They overlap, yet each is its owner's own, as when they come from a framework that does not say what they share.
    let (x, y) = (outside(0x1000, 8), outside(0x1010, 8));
    let plan = InputPlan::new(&[InputSpec::read(&x), InputSpec::read(&y).moved()], 16, |_| true).unwrap();
    let buffer = Storage::pool_block(DevicePtr::new(0x9000), BLOCK, Census::default().owner());
    let passed = |offset| Tensor::new(buffer.clone(), floats(8), offset).unwrap();
    let (first, second) = (passed(0), passed(16));
    let outputs = [second.clone(), second.slice(0, 6..8, 1).unwrap(), first.slice(0, 0..6, 1).unwrap()];
    let specs = outputs.each_ref().map(OutputSpec::returned);
    let planned = plan_outputs(&plan, &[Some(first), Some(second)], &specs, |_| true).unwrap();
    let of = |number, moved| OutputClass::StagedInput { input: input(number), moved };
    assert_eq!(classes(&planned), [of(1, true), of(1, true), of(0, false)]);
    let mut slab = slab(&Ledger::new(), planned);
    let source = |_, class| match class {
        OutputClass::StagedInput { input, .. } => [&x, &y].get(input.get() as usize).copied().cloned(),
        _ => None,
    };
    let mut outputs = slab.hand_back(step(1), source).unwrap().outputs;
    let addresses: Vec<_> =
        outputs.take_all().flatten().map(|tensor| tensor.address().unwrap().get()).collect();
    assert_eq!(addresses, [0x1010, 0x1010 + 24, 0x1000]);
}

#[test]
fn an_output_further_on_than_a_signed_number_says_is_refused() {
    let storage = Storage::unowned(DevicePtr::new(0x10), u64::MAX - 0x10);
    let byte = |offset| Tensor::new(storage.clone(), Layout::of::<u8>(&[1]).unwrap(), offset).unwrap();
    let (near, far) = (byte(0), byte(1 << 63));
    let plan = InputPlan::new(&[InputSpec::parameter(&near)], 16, |_| true).unwrap();
    let planned = plan_outputs(&plan, &[Some(near)], &[OutputSpec::returned(&far)], |_| true);
    assert_eq!(planned, Err(Error::TooLarge));
}
