//! What runs in the steady state allocates nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    Cause, DeadMasks, Event, InputIndex, Layout, Ledger, OutputClass, PersistentSource, PlannedOutput,
    Readers, Slab, SlotIndex, Step, Storage, Tensor,
};

/// How often `work` allocates on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

fn slot(number: u32) -> SlotIndex {
    SlotIndex::new(number)
}

/// 320 outputs, of which one is saved, and one an alias of a parameter.
fn slab() -> Slab {
    let layout = Layout::of::<f32>(&[8]).unwrap();
    let fresh =
        |number: u64| PlannedOutput::fresh(DevicePtr::new(0x1000 + 512 * number), 512, layout.clone());
    let parameter = OutputClass::Persistent(PersistentSource::Input(InputIndex::new(0)));
    let outputs = (0..318)
        .map(fresh)
        .chain([fresh(318).read_by(Readers::Backward), PlannedOutput::alias(parameter, layout.clone(), 0)])
        .collect();
    Slab::new(&Ledger::new(), "F", 0, outputs).unwrap()
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn a_run_and_everything_done_with_its_handles_allocates_nothing() {
    let mut slab = slab();
    let storage = Storage::unowned(DevicePtr::new(0x9_0000), 64);
    let weight = Tensor::new(storage, Layout::of::<f32>(&[8]).unwrap(), 0).unwrap();
    let mut taken = Vec::with_capacity(320);
    let masks = DeadMasks::of(std::slice::from_ref(&slab));
    let mut run = |number| {
        assert!(masks.hold(std::slice::from_ref(&slab)));
        let mut back = slab.hand_back(Step::new(number), |_, _| Some(weight.clone())).unwrap();
        taken.extend(back.outputs.take_all().flatten());
        assert_eq!(taken.len(), 319);
        let again = taken[7].clone();
        assert!(again.address().is_ok() && again.as_input().is_ok());
        drop(again);
        taken.truncate(9);
        drop(back);
        assert_eq!(slab.died().count(), 310);
        taken.clear();
        assert!(!slab.any_live());
    };
    run(1);
    assert_eq!(allocations(|| (2..50).for_each(&mut run)), 0);
}

#[test]
fn an_output_held_over_each_step_needs_two_sheets_and_no_more() {
    let mut slab = slab();
    let storage = Storage::unowned(DevicePtr::new(0x9_0000), 64);
    let weight = Tensor::new(storage, Layout::of::<f32>(&[8]).unwrap(), 0).unwrap();
    let mut held = None;
    let mut run = |number| {
        let cause = Cause { event: Event::StepBegan, step: Step::new(number), by: None };
        slab.invalidate(&cause).unwrap();
        let mut back = slab.hand_back(Step::new(number), |_, _| Some(weight.clone())).unwrap();
        // As in `y = f(x)`: the old output goes when the new one is there.
        held = back.outputs.take(slot(3));
    };
    (1..4).for_each(&mut run);
    // What is left is the shared cause of staleness and the list that names the stale slots.
    let later = allocations(|| (4..104).for_each(&mut run));
    assert!(later <= 2 * 100, "{later} allocations in 100 runs");
    assert!(held.unwrap().address().is_ok());
}

#[test]
fn a_sweep_keeps_the_spare_sheet_that_the_next_run_needs() {
    let mut slab = slab();
    let storage = Storage::unowned(DevicePtr::new(0x9_0000), 64);
    let weight = Tensor::new(storage, Layout::of::<f32>(&[8]).unwrap(), 0).unwrap();
    let run = |slab: &mut Slab, number| {
        let mut back = slab.hand_back(Step::new(number), |_, _| Some(weight.clone())).unwrap();
        back.outputs.take(slot(3))
    };
    let first = run(&mut slab, 1);
    let second = run(&mut slab, 2);
    drop(first); // Its sheet is a spare from here on.
    slab.sweep();
    let mut third = None;
    let with_spare = allocations(|| third = run(&mut slab, 3));
    let mut fourth = None;
    let without = allocations(|| fourth = run(&mut slab, 4));
    assert!(with_spare < without, "{with_spare} allocations with a spare sheet, {without} without");
    drop((second, third, fourth));
}
