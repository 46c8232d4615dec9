//! Inputs: in place or staged, decided once with their alignment, and what is refused.

use graphgrove_device::{DevicePtr, Work};
use graphgrove_storage::{
    Conflict, DType, Error, InputIndex, InputPlan, InputRole, InputSpec, Layout, Misfit, Staged,
    StagedBecause, Storage, Tensor,
};

use crate::rig::{BLOCK, Rig, floats, outside, slab_of, slot, take};

const ALIGN: u64 = 16;

fn input(number: u32) -> InputIndex {
    InputIndex::new(number)
}

fn plan(inputs: &[InputSpec<'_>]) -> Result<InputPlan, Error> {
    InputPlan::new(inputs, ALIGN, |_| true)
}

fn staged(plan: &InputPlan, number: u32) -> Staged {
    match plan.role(input(number)) {
        Some(InputRole::Staged(staged)) => staged,
        other => panic!("input {number} is {other:?}"),
    }
}

fn at(storage: &Storage, layout: Layout, offset: u64) -> Tensor {
    Tensor::new(storage.clone(), layout, offset).unwrap()
}

#[test]
fn each_input_gets_one_role() {
    let mut slab = slab_of(1);
    let managed = take(&mut slab, 1).remove(0);
    let (weight, x) = (outside(0x1000, 8), outside(0x2000, 8));
    let empty = Tensor::empty(floats(0)).unwrap();
    let none = InputSpec { tensor: None, parameter: false, moved: false, mutated: false };
    let specs = [
        InputSpec::parameter(&weight),
        InputSpec::read(&managed),
        InputSpec::read(&x).moved(),
        InputSpec::read(&empty),
        none,
    ];
    let plan = plan(&specs).unwrap();
    let value = managed.storage().slot_value().unwrap().unwrap();
    let why = StagedBecause::Foreign;
    let expected = [
        InputRole::Parameter { address: DevicePtr::new(0x1000) },
        InputRole::Managed { value, offset: 0 },
        InputRole::Staged(Staged { why, group: 0, offset: 0, moved: true }),
        InputRole::Empty,
        InputRole::NotTensor,
    ];
    assert_eq!(plan.roles().map(|(_, role)| role).collect::<Vec<_>>(), expected);
    assert_eq!((plan.role(input(5)), plan.alignment()), (None, ALIGN));
    let elsewhere = InputPlan::new(&specs, ALIGN, |_| false).unwrap();
    assert_eq!(staged(&elsewhere, 1).why, StagedBecause::Foreign);
}

#[test]
fn a_misaligned_input_is_staged_although_it_could_be_used_in_place() {
    let mut slab = slab_of(1);
    let managed = take(&mut slab, 1).remove(0);
    let shifted = managed.slice(0, 1..3, 1).unwrap();
    let weight = outside(0x1004, 8);
    let specs = [InputSpec::parameter(&weight), InputSpec::read(&shifted), InputSpec::read(&managed)];
    let plan = plan(&specs).unwrap();
    assert_eq!(staged(&plan, 0).why, StagedBecause::Misaligned);
    assert_eq!(staged(&plan, 1).why, StagedBecause::Misaligned);
    assert!(matches!(plan.role(input(2)), Some(InputRole::Managed { .. })));
    assert_eq!((staged(&plan, 0).offset, staged(&plan, 1).offset), (0, 0), "staging aligns them");
}

#[test]
fn inputs_that_share_memory_are_staged_in_one_piece_and_share_it_there() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 1024);
    let a = at(&storage, floats(8), 64);
    let b = at(&storage, floats(8), 64 + 16);
    let apart = at(&storage, floats(8), 512);
    let plan = plan(&[InputSpec::read(&b), InputSpec::read(&apart), InputSpec::read(&a)]).unwrap();
    let group = &plan.groups()[0];
    assert_eq!(group.inputs.to_vec(), [input(2), input(0)]);
    assert_eq!((group.bytes, group.lead, group.buffer_bytes()), (48, 0, 48));
    assert_eq!((staged(&plan, 2).offset, staged(&plan, 0).offset), (0, 16));
    assert_eq!(plan.groups()[1].inputs.to_vec(), [input(1)]);
    assert_eq!((plan.groups().len(), plan.groups()[1].bytes), (2, 32));
}

#[test]
fn an_aligned_input_stays_aligned_beside_one_that_is_not() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 1024);
    let odd = at(&storage, floats(8), 8);
    let even = at(&storage, floats(8), 16);
    let shared = plan(&[InputSpec::read(&odd), InputSpec::read(&even)]).unwrap();
    assert_eq!((shared.groups()[0].lead, shared.groups()[0].bytes), (8, 40));
    assert_eq!(shared.groups()[0].buffer_bytes(), 48);
    assert_eq!((staged(&shared, 0).offset, staged(&shared, 1).offset), (8, 16));
    let alone = plan(&[InputSpec::read(&odd)]).unwrap();
    assert_eq!((alone.groups()[0].lead, staged(&alone, 0).offset), (0, 0));
}

#[test]
fn inputs_that_only_touch_are_staged_apart() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 64);
    let (a, b) = (at(&storage, floats(8), 0), at(&storage, floats(8), 32));
    assert_eq!(plan(&[InputSpec::read(&a), InputSpec::read(&b).mutated()]).unwrap().groups().len(), 2);
}

#[test]
fn a_view_without_elements_is_empty_wherever_it_lies() {
    let x = outside(0x1000, 8);
    let none = x.slice(0, 3..3, 1).unwrap();
    assert!(!none.address().unwrap().is_null());
    let plan = InputPlan::new(&[InputSpec::read(&none), InputSpec::parameter(&none)], 16, |_| true).unwrap();
    assert!(plan.roles().all(|(_, role)| role == InputRole::Empty) && plan.groups().is_empty());
}

#[test]
fn partial_overlap_of_mutated_inputs_is_refused_with_a_reason() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 1024);
    let (a, b) = (at(&storage, floats(8), 0), at(&storage, floats(8), 16));
    assert!(plan(&[InputSpec::read(&a), InputSpec::read(&b)]).is_ok());
    for specs in [
        [InputSpec::read(&a).mutated(), InputSpec::read(&b)],
        [InputSpec::read(&a), InputSpec::read(&b).mutated()],
    ] {
        let error = plan(&specs).unwrap_err();
        assert_eq!(error, Error::Refused(Conflict::PartialOverlap { a: input(0), b: input(1) }));
        assert_eq!(error.to_string(), "overlapping mutated inputs: input 0 and input 1 share some memory");
    }
    // The same elements twice are one buffer, and so are written to as one.
    let twice = plan(&[InputSpec::read(&a).mutated(), InputSpec::read(&a.clone())]).unwrap();
    assert_eq!((twice.groups().len(), twice.copied_back().collect::<Vec<_>>()), (1, vec![input(0)]));
}

#[test]
fn overlap_is_seen_by_address_whoever_owns_the_storages() {
    let (a, b) = (outside(0x1000, 8), outside(0x1010, 8));
    let error = plan(&[InputSpec::read(&b).mutated(), InputSpec::read(&a)]).unwrap_err();
    assert_eq!(error, Error::Refused(Conflict::PartialOverlap { a: input(1), b: input(0) }));
}

#[test]
fn columns_of_one_matrix_may_be_written_to() {
    let matrix = at(&Storage::unowned(DevicePtr::new(0x1000), 1024), Layout::of::<f32>(&[4, 8]).unwrap(), 0);
    let (left, right) = (matrix.slice(1, 0..4, 1).unwrap(), matrix.slice(1, 4..8, 1).unwrap());
    let plan = plan(&[InputSpec::read(&left).mutated(), InputSpec::read(&right).mutated()]).unwrap();
    assert_eq!((plan.groups().len(), plan.copied_back().count()), (1, 2));
}

#[test]
fn a_staged_input_over_one_in_place_is_refused_if_either_is_written_to() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 1024);
    let (weight, x) = (at(&storage, floats(8), 0), at(&storage, floats(4), 4));
    let conflict = Conflict::StagedOverInPlace { staged: input(1), in_place: input(0) };
    let refused = Some(Error::Refused(conflict));
    let both = |a, b| plan(&[a, b]).err();
    assert_eq!(both(InputSpec::parameter(&weight), InputSpec::read(&x)), None);
    assert_eq!(both(InputSpec::parameter(&weight).mutated(), InputSpec::read(&x)), refused);
    assert_eq!(both(InputSpec::parameter(&weight), InputSpec::read(&x).mutated()), refused);
    assert_eq!(
        conflict.to_string(),
        "overlapping mutated inputs: input 1 would be copied and input 0 is used in place"
    );
    let same = plan(&[InputSpec::parameter(&weight).mutated(), InputSpec::parameter(&weight)]);
    assert!(same.is_ok(), "both are used where they are");
}

#[test]
fn an_expanded_input_is_not_written_to() {
    let row = outside(0x1000, 8);
    let rows = row.expand(&[3, 8]).unwrap();
    assert_eq!(
        plan(&[InputSpec::read(&rows)]).unwrap().groups()[0].bytes,
        32,
        "only what there is, is copied"
    );
    let error = plan(&[InputSpec::read(&rows).mutated()]).unwrap_err();
    assert_eq!(error, Error::Refused(Conflict::OverlapsItself { input: input(0) }));
    assert_eq!(error.to_string(), "overlapping mutated inputs: elements of input 0 share memory");
}

fn misfit(recorded: &[InputSpec<'_>], given: &[InputSpec<'_>]) -> Option<Misfit> {
    plan(recorded).unwrap().misfit(given, |_| true).unwrap()
}

#[test]
fn a_plan_fits_the_inputs_that_it_was_made_for_and_others_like_them() {
    let mut slab = slab_of(2);
    let managed = take(&mut slab, 1);
    let (weight, x, y) = (outside(0x1000, 8), outside(0x2000, 8), outside(0x3000, 8));
    let recorded = [
        InputSpec::parameter(&weight),
        InputSpec::read(&managed[0]),
        InputSpec::read(&x),
        InputSpec::read(&y),
    ];
    assert_eq!(misfit(&recorded, &recorded), None);
    // Staged inputs may come from anywhere, and managed ones in any run.
    let exchanged = [recorded[0], recorded[1], recorded[3], recorded[2]];
    assert_eq!(misfit(&recorded, &exchanged), None);
    let plan = plan(&recorded).unwrap();
    let again = take(&mut slab, 2);
    let later = [recorded[0], InputSpec::read(&again[0]), recorded[2], recorded[3]];
    assert_eq!(plan.misfit(&later, |_| true), Ok(None));
    let other = [recorded[0], InputSpec::read(&again[1]), recorded[2], recorded[3]];
    assert_eq!(plan.misfit(&other, |_| true), Ok(Some(Misfit::Role { input: input(1) })));
    assert_eq!(plan.misfit(&later, |_| false), Ok(Some(Misfit::Role { input: input(1) })));
    assert_eq!(plan.misfit(&later[..3], |_| true), Ok(Some(Misfit::Count { given: 3, recorded: 4 })));
}

#[test]
fn each_difference_is_told() {
    let (x, longer, moved) = (outside(0x2000, 8), outside(0x2000, 9), outside(0x4000, 8));
    let none = InputSpec { tensor: None, ..InputSpec::read(&x) };
    let cases = [
        (InputSpec::read(&x), InputSpec::read(&longer), Some(Misfit::Signature { input: input(0) })),
        (InputSpec::read(&x), none, Some(Misfit::Signature { input: input(0) })),
        (none, none, None),
        (InputSpec::read(&x), InputSpec::read(&x).mutated(), Some(Misfit::Mutation { input: input(0) })),
        (InputSpec::parameter(&x), InputSpec::parameter(&moved), Some(Misfit::Role { input: input(0) })),
        (InputSpec::parameter(&x), InputSpec::read(&x), Some(Misfit::Role { input: input(0) })),
        (InputSpec::read(&x), InputSpec::parameter(&x), None),
        (InputSpec::read(&x), InputSpec::read(&moved), None),
    ];
    for (recorded, given, expected) in cases {
        assert_eq!(misfit(&[recorded], &[given]), expected, "{recorded:?} {given:?}");
    }
}

#[test]
fn inputs_that_share_memory_in_another_way_do_not_fit() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 1024);
    let part = |offset| at(&storage, floats(8), offset);
    let (a, b, c, far, odd) = (part(0), part(16), part(8), part(512), part(24));
    let two = |a, b| [InputSpec::read(a), InputSpec::read(b)];
    let sharing = |number| Some(Misfit::Sharing { input: input(number) });
    assert_eq!(misfit(&two(&a, &b), &two(&a, &c)), sharing(1));
    assert_eq!(misfit(&two(&a, &b), &two(&a, &far)), sharing(0));
    assert_eq!(misfit(&two(&a, &far), &two(&a, &b)), sharing(0));
    assert_eq!(misfit(&two(&a, &b), &two(&b, &a)), sharing(0));
    // The same distance is the same sharing, whatever leads the buffers have.
    assert_eq!(misfit(&two(&a, &b), &two(&c, &odd)), None);
    assert_eq!(misfit(&two(&far, &a), &two(&a, &far)), None);
    assert_eq!(misfit(&two(&a, &c), &two(&c, &b)), None, "one of the leads is 8");
    assert_eq!(misfit(&two(&c, &b), &two(&a, &b)), sharing(1));
}

#[test]
fn a_stale_input_is_an_error_when_it_is_checked_too() {
    let mut slab = slab_of(1);
    let old = take(&mut slab, 1).remove(0);
    let plan = plan(&[InputSpec::read(&old)]).unwrap();
    let _new = take(&mut slab, 2);
    assert!(matches!(plan.misfit(&[InputSpec::read(&old)], |_| true), Err(Error::Stale(_))));
    assert_eq!(slab.live().collect::<Vec<_>>(), [slot(0)]);
}

#[test]
fn no_alignment_is_asked_of_inputs_of_which_none_is_needed() {
    let odd = at(&Storage::unowned(DevicePtr::new(0x1001), 8), Layout::of::<u8>(&[8]).unwrap(), 0);
    let plan = InputPlan::new(&[InputSpec::parameter(&odd)], 1, |_| true).unwrap();
    assert!(matches!(plan.role(input(0)), Some(InputRole::Parameter { .. })));
    // No address is a multiple of nothing: everything is staged, and nothing divides by zero.
    let plan = InputPlan::new(&[InputSpec::parameter(&odd)], 0, |_| true).unwrap();
    assert_eq!(staged(&plan, 0).why, StagedBecause::Misaligned);
    assert_eq!(odd.dtype(), DType::U8);
}

#[test]
fn copying_a_column_back_leaves_the_column_beside_it_alone() {
    let mut rig = Rig::new();
    let (caller, buffer) = (rig.block(), rig.block());
    let storage = Storage::unowned(caller, BLOCK);
    // Two columns of floats: the second is a parameter that is used in place, the first is staged, and both are written to.
    let column = |offset| at(&storage, Layout::strided(DType::F32, &[4], &[4]).unwrap(), offset);
    let (first, second) = (column(0), column(16 * 4 + 4));
    let specs = [InputSpec::read(&first).mutated(), InputSpec::parameter(&second).mutated()];
    let plan = InputPlan::new(&specs, 4, |_| true).unwrap();
    assert_eq!(plan.copied_back().collect::<Vec<_>>(), [input(0)]);
    rig.write(caller, 1);
    let bytes = plan.groups()[0].buffer_bytes();
    rig.device.copy(&rig.stream, buffer, caller, bytes).unwrap();
    rig.write(buffer, 2);
    let elements = |tensor: &Tensor| {
        let runs = tensor.layout().byte_runs();
        runs.offsets().map(|offset| (offset, runs.bytes)).collect::<Vec<_>>()
    };
    for (offset, bytes) in elements(&second) {
        let at = second.address().unwrap().checked_add(offset).unwrap();
        rig.device.fill(&rig.stream, at, 3, bytes).unwrap();
    }
    for (offset, bytes) in elements(&first) {
        let (to, from) = (caller.checked_add(offset).unwrap(), buffer.checked_add(offset).unwrap());
        rig.device.copy(&rig.stream, to, from, bytes).unwrap();
    }
    for (tensor, value) in [(&first, 2), (&second, 3)] {
        for (offset, _) in elements(tensor) {
            let element = at(&storage, floats(1), tensor.offset_bytes() + offset);
            assert_eq!(rig.value(&element), Ok(value));
        }
    }
    assert_eq!(rig.value(&at(&storage, floats(1), 8)), Ok(1), "what is between them is nobody's to write");
}

#[test]
fn overlaps_in_place_are_found_however_the_regions_nest() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 0x1000);
    let part = |offset, bytes: u64| at(&storage, Layout::of::<u8>(&[bytes]).unwrap(), offset);
    let around = [part(0, 0x800), part(0x10, 0x10), part(0x30, 0x10), part(0x900, 0x10)];
    let refused = |staged: &Tensor, in_place: &[&Tensor]| {
        let in_place = in_place.iter().map(|&tensor| InputSpec::parameter(tensor).mutated());
        let specs: Vec<_> = std::iter::once(InputSpec::read(staged)).chain(in_place).collect();
        match plan(&specs) {
            Err(Error::Refused(Conflict::StagedOverInPlace { in_place, .. })) => Some(in_place.get()),
            _ => None,
        }
    };
    let [all, low, high, beyond] = around.each_ref();
    assert_eq!(
        refused(&part(0x50, 8), &[low, all, high, beyond]),
        Some(2),
        "the one that reaches over the others"
    );
    assert_eq!(refused(&part(0x50, 8), &[low, high, beyond]), None);
    assert_eq!(refused(&part(0x34, 8), &[low, beyond, high]), Some(3));
    assert_eq!(refused(&part(0x8f8, 16), &[low, high, beyond]), Some(3));
    assert_eq!(refused(&part(0x8f0, 16), &[low, high, beyond]), None, "they only touch");
}
