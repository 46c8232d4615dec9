//! Reports from the field, as this layer meets them. Each test names its report by the public thread.

use graphgrove_device::{DevicePtr, Work};
use graphgrove_storage::{
    Cause, DeadMasks, Error, Event, InputIndex, InputPlan, InputRole, InputSpec, Layout, Ledger, Misfit,
    OldOutput, OutputClass, OutputSpec, PersistentSource, PlannedOutput, Readers, Remedy, Slab,
    StagedBecause, Storage, StorageCache, Tensor, plan_outputs,
};

use crate::rig::{BLOCK, Census, Rig, began, floats, fresh, outside, run, slab, slot, step, take};

/// A function of one output, with its memory on a device: a run fills the output with a byte.
struct Function {
    at: DevicePtr,
    slab: Slab,
}

impl Function {
    fn new(rig: &mut Rig) -> Self {
        let at = rig.block();
        let slab = slab(&Ledger::keeping(rig.keeper()), vec![PlannedOutput::fresh(at, BLOCK, floats(8))]);
        Self { at, slab }
    }

    fn call(&mut self, rig: &Rig, number: u64, value: u8) -> Tensor {
        rig.write(self.at, value);
        take(&mut self.slab, number).remove(0)
    }

    fn end(&mut self, rig: &mut Rig, number: u64, rule: OldOutput, copies: &Census) -> u64 {
        let (device, stream) = (rig.device.clone(), rig.stream.clone());
        let allocate = |_| Ok((rig.block(), copies.owner()));
        self.slab.end_step(&device, &stream, &began(number), |_| rule, allocate).unwrap().bytes
    }
}

/// pytorch/pytorch#158551, #170604, PR #177192: the error advises to mark a step, which is what freed the value.
#[test]
fn r03_the_error_names_the_call_that_freed_the_output_and_only_remedies_for_that() {
    let mut rig = Rig::new();
    let mut f = Function::new(&mut rig);
    let y1 = f.call(&rig, 1, 1);
    let cause = Cause { event: Event::StepBegan, step: step(2), by: Some("F".into()) };
    f.slab.invalidate(&cause).unwrap();
    let _y2 = f.call(&rig, 2, 2);
    let Err(Error::Stale(stale)) = rig.value(&y1) else { panic!("the old output was read") };
    assert_eq!((&*stale.producer, stale.made_in, &stale.cause), ("F", step(1), &cause));
    assert_eq!(stale.remedy(), Remedy::CopyOutOrKeep);
    let text = stale.to_string();
    assert!(text.contains("copied out or kept") && !text.contains("begin a step"), "{text}");
}

/// pytorch/pytorch#104435, PR #125264: a detached view of an old output was read as garbage.
#[test]
fn r04_a_view_goes_stale_with_its_storage_and_holds_it_until_then() {
    let mut rig = Rig::new();
    let mut f = Function::new(&mut rig);
    let y = f.call(&rig, 1, 1);
    let view = y.slice(0, 2..4, 1).unwrap();
    drop(y);
    assert!(f.slab.is_live(slot(0)), "another function may not take the block while only the view is there");
    assert_eq!(DeadMasks::of(std::slice::from_ref(&f.slab)), DeadMasks::default());
    let _y2 = f.call(&rig, 2, 2);
    assert!(matches!(rig.value(&view), Err(Error::Stale(_))));
    rig.verdict();
}

/// pytorch/pytorch PR #96154: an output looked dead once only a detached alias of it was left.
#[test]
fn r05_a_block_is_not_handed_out_while_only_an_alias_of_its_output_is_left() {
    let mut rig = Rig::new();
    let mut f = Function::new(&mut rig);
    let y = f.call(&rig, 1, 1);
    let detached = y.reshape(&[2, 4]).unwrap();
    drop(y);
    assert_eq!(f.slab.died().count(), 0);
    let plan = InputPlan::new(&[InputSpec::read(&detached).moved()], 16, |_| true).unwrap();
    assert!(matches!(plan.role(InputIndex::new(0)), Some(InputRole::Managed { .. })));
    assert_eq!(rig.value(&detached), Ok(1));
    drop(detached);
    assert_eq!(f.slab.died().count(), 1);
    rig.verdict();
}

/// pytorch/pytorch#175557, #154824: the cache that a decode step makes is freed at the start of the step that reads it.
#[test]
fn r06_a_cache_that_goes_around_through_steps_is_copied_at_most_once_a_step() {
    let mut rig = Rig::new();
    let (mut d, copies) = (Function::new(&mut rig), Census::default());
    let mut cache = d.call(&rig, 1, 1);
    for number in 2..10 {
        let bytes = d.end(&mut rig, number, OldOutput::CopyOut, &copies);
        assert_eq!(bytes, BLOCK, "one copy a step for the one live storage");
        let value = rig.value(&cache).unwrap();
        assert_eq!(u64::from(value), number - 1);
        cache = d.call(&rig, number, value + 1);
        d.slab.sweep();
        assert_eq!(copies.alive(), 0, "the copy that was read is no longer needed");
    }
    rig.verdict();
}

/// pytorch/pytorch PR #188117, #188078, #176294: live outputs are copied out at a new step, each storage once.
#[test]
fn r07_copying_out_copies_live_storages_once_and_leaves_the_rest_alone() {
    let mut rig = Rig::new();
    let (a_at, b_at) = (rig.block(), rig.block());
    let outputs = [a_at, b_at].map(|at| PlannedOutput::fresh(at, BLOCK, floats(8))).into();
    let mut f = slab(&Ledger::keeping(rig.keeper()), outputs);
    rig.write(a_at, 1);
    let mut tensors = take(&mut f, 1);
    drop(tensors.remove(1));
    let a = tensors.remove(0);
    let va = a.slice(0, 0..4, 2).unwrap();
    let (device, stream) = (rig.device.clone(), rig.stream.clone());
    let before = rig.device.counts();
    let ended = f
        .end_step(&device, &stream, &began(2), |_| OldOutput::CopyOut, |_| Ok((rig.block(), Box::new(()))))
        .unwrap();
    assert_eq!((ended.copied, ended.bytes), (vec![slot(0)], BLOCK));
    let copied =
        rig.device.counts().of(graphgrove_device::Call::Copy) - before.of(graphgrove_device::Call::Copy);
    assert_eq!(copied, 1);
    assert_eq!(f.died().collect::<Vec<_>>(), [slot(0), slot(1)], "both blocks can be used again");
    rig.write(a_at, 9);
    assert_eq!((rig.value(&a), a.shares_storage(&va)), (Ok(1), Ok(true)));
    assert_eq!(va.address().unwrap(), a.address().unwrap());
    rig.verdict();
}

/// pytorch/pytorch#169545, PR #184003: a backward's output is adopted as the gradient buffer and then overwritten.
#[test]
fn r10_an_output_adopted_for_longer_than_a_step_keeps_its_value() {
    let mut rig = Rig::new();
    let (mut backward, copies) = (Function::new(&mut rig), Census::default());
    let mut gradient: Option<Tensor> = None;
    let mut total = 0;
    for number in 1..5 {
        backward.end(&mut rig, number, OldOutput::CopyOut, &copies);
        let g = backward.call(&rig, number, number as u8);
        total += rig.value(&g).unwrap();
        match &gradient {
            None => gradient = Some(g),
            Some(sum) => {
                // Accumulating in place, into whatever memory the adopted handle names now.
                let value = rig.value(sum).unwrap() + rig.value(&g).unwrap();
                let at = sum.address().unwrap();
                rig.device.fill(&rig.stream, at, value, sum.layout().span_bytes()).unwrap();
            }
        }
        assert_eq!(rig.value(gradient.as_ref().unwrap()), Ok(total));
    }
    assert_eq!((total, copies.alive()), (10, 1));
    rig.verdict();
}

/// pytorch/pytorch PR #175562: parallel lists about outputs of mixed kinds diverged.
#[test]
fn r11_outputs_of_mixed_kinds_are_told_apart_to_the_end() {
    let census = Census::default();
    let x = outside(0x1000, 8);
    let inputs = InputPlan::new(&[InputSpec::read(&x)], 16, |_| true).unwrap();
    let block = |at| Storage::pool_block(DevicePtr::new(at), BLOCK, census.owner());
    let staged = Tensor::new(block(0x8000), floats(8), 0).unwrap();
    let y = Tensor::new(block(0x9000), floats(8), 0).unwrap();
    let specs = [OutputSpec::not_tensor(), OutputSpec::returned(&staged), OutputSpec::returned(&y)];
    let planned = plan_outputs(&inputs, &[Some(staged.clone())], &specs, |_| true).unwrap();
    let mut warm_up = slab(&Ledger::new(), planned);
    let mut outputs = warm_up.hand_back(step(1), |_, _| Some(x.clone())).unwrap().outputs;
    let taken: Vec<_> = outputs.take_all().collect();
    warm_up.invalidate(&began(2)).unwrap();
    assert!(taken[0].is_none());
    assert!(
        taken[1].as_ref().unwrap().address().is_ok(),
        "the caller's own tensor has nothing to do with the step"
    );
    let Err(Error::Stale(stale)) = taken[2].as_ref().unwrap().address() else { panic!("not stale") };
    assert_eq!(stale.slot, slot(2), "the output's own number, whatever was before it");
}

/// pytorch/pytorch PR #154839: an input that is also returned was released, and the output then found it dead.
#[test]
fn r12_an_input_that_is_returned_is_the_output_at_each_replay() {
    let staged = OutputClass::StagedInput { input: InputIndex::new(0), moved: true };
    let ledger = Ledger::new();
    let mut f = slab(&ledger, vec![PlannedOutput::alias(staged, floats(8), 0), fresh(0)]);
    for number in 1..101 {
        let mut x = Some(outside(0x1000 * number, 8));
        let mut outputs = f.hand_back(step(number), |_, _| x.take()).unwrap().outputs;
        let same = outputs.take(slot(0)).unwrap();
        let next = outputs.take(slot(1)).unwrap();
        assert_eq!(same.address().unwrap().get(), 0x1000 * number);
        assert!(next.address().is_ok() && f.holders(slot(0)).is_none());
        drop((same, next, outputs));
        assert!(ledger.all_dead(), "nothing piles up");
    }
}

/// pytorch/pytorch PR #102273: storages of zero bytes failed the pool's membership check.
#[test]
fn r13_empty_outputs_are_never_tracked_and_never_alias() {
    let mut rig = Rig::new();
    let at = rig.block();
    let empty = || PlannedOutput::empty(Layout::of::<f32>(&[3, 0]).unwrap());
    let mut f = slab(&Ledger::new(), vec![empty(), empty(), PlannedOutput::fresh(at, BLOCK, floats(8))]);
    for number in 1..4 {
        let tensors = take(&mut f, number);
        assert_eq!((tensors.len(), f.live_word(0)), (3, 0b100));
        assert!(!tensors[0].shares_storage(&tensors[1]).unwrap());
        assert!(!tensors[0].shares_storage(&tensors[0].clone()).unwrap());
        let mut cache = StorageCache::new();
        let added: Vec<_> = tensors.iter().map(|tensor| cache.add(tensor.storage()).unwrap()).collect();
        assert!(added[0].is_none() && added[1].is_none() && added[2].is_some());
        // A child that takes an empty output as its input.
        let specs = [InputSpec::read(&tensors[0]), InputSpec::read(&tensors[2])];
        let plan = InputPlan::new(&specs, 16, |_| true).unwrap();
        assert_eq!(plan.role(InputIndex::new(0)), Some(InputRole::Empty));
    }
    rig.verdict();
}

/// pytorch/pytorch#103126, PR #104196: a saved activation that was not aligned was taken for one that stays in place.
#[test]
fn r14_of_an_output_and_a_misaligned_view_of_it_only_the_view_is_staged() {
    let mut rig = Rig::new();
    let mut a = Function::new(&mut rig);
    let p = a.call(&rig, 1, 1);
    let s = p.slice(0, 1..5, 1).unwrap();
    let plan = InputPlan::new(&[InputSpec::read(&p), InputSpec::read(&s)], 16, |_| true).unwrap();
    assert!(matches!(plan.role(InputIndex::new(0)), Some(InputRole::Managed { .. })));
    let Some(InputRole::Staged(staged)) = plan.role(InputIndex::new(1)) else { panic!("in place") };
    assert_eq!((staged.why, staged.offset % 16), (StagedBecause::Misaligned, 0));
    let later = a.call(&rig, 2, 2);
    let later_view = later.slice(0, 1..5, 1).unwrap();
    let specs = [InputSpec::read(&later), InputSpec::read(&later_view)];
    assert_eq!(plan.misfit(&specs, |_| true), Ok(None), "the replay fits");
}

/// pytorch/pytorch PR #193054: a parameter was exchanged for one that is not aligned, and kernels read past it.
#[test]
fn r15_a_parameter_that_loses_its_alignment_fits_no_recording_that_relies_on_it() {
    let w = outside(0x1000, 8);
    let plan = InputPlan::new(&[InputSpec::parameter(&w)], 16, |_| true).unwrap();
    let shifted = outside(0x1004, 8);
    let address = shifted.address().unwrap();
    let misfit = plan.misfit(&[InputSpec::parameter(&shifted)], |_| true);
    assert_eq!(misfit, Ok(Some(Misfit::Misaligned { input: InputIndex::new(0), address })));
    // Recorded anew it is staged, and then fits wherever it is.
    let staged = InputPlan::new(&[InputSpec::parameter(&shifted)], 16, |_| true).unwrap();
    assert!(matches!(staged.role(InputIndex::new(0)), Some(InputRole::Staged(_))));
    assert_eq!(staged.misfit(&[InputSpec::parameter(&w)], |_| true), Ok(None));
}

/// pytorch/pytorch PR #176267: state that goes around a loop was overwritten by the run that reads it.
#[test]
fn r22_state_that_goes_around_lives_in_two_blocks_and_is_never_overwritten_while_it_is_read() {
    let mut rig = Rig::new();
    let mut nodes = [Function::new(&mut rig), Function::new(&mut rig)];
    let mut state = nodes[0].call(&rig, 1, 1);
    for turn in 1..20 {
        // The node that made the state cannot run on it: its own output is live. The other one can.
        let free: Vec<_> = (0..2).filter(|&i| !nodes[i].slab.any_live()).collect();
        assert_eq!(free, [turn % 2], "one buffer is free, and only one");
        let value = rig.value(&state).unwrap();
        state = nodes[turn % 2].call(&rig, 1, value + 1);
    }
    assert_eq!(rig.value(&state), Ok(20));
    rig.verdict();
}

/// pytorch/torchdynamo#1031, pytorch/pytorch PR #87058: inputs that share a storage were split into separate buffers.
#[test]
fn r23_inputs_that_overlap_are_staged_together_or_refused_if_one_is_written_to() {
    let b = outside(0x1000, 12);
    let (left, right) = (b.slice(0, 0..8, 1).unwrap(), b.slice(0, 4..12, 1).unwrap());
    let read = [InputSpec::read(&left), InputSpec::read(&right)];
    let plan = InputPlan::new(&read, 16, |_| true).unwrap();
    assert_eq!((plan.groups().len(), plan.groups()[0].buffer_bytes()), (1, 48));
    let offsets: Vec<_> = plan
        .roles()
        .map(|(_, role)| if let InputRole::Staged(staged) = role { staged.offset } else { u64::MAX })
        .collect();
    assert_eq!(offsets, [0, 16]);
    let mutated = [InputSpec::read(&left).mutated(), InputSpec::read(&right)];
    let refused = InputPlan::new(&mutated, 16, |_| true).unwrap_err();
    assert!(refused.to_string().starts_with("overlapping mutated inputs"), "{refused}");
    // Strides stay what they are.
    let columns = outside(0x2000, 12).reshape(&[3, 4]).unwrap().transpose(0, 1).unwrap();
    let plan = InputPlan::new(&[InputSpec::read(&columns)], 16, |_| true).unwrap();
    assert_eq!(plan.groups()[0].bytes, 48);
}

/// pytorch/pytorch PR #185760: functions without kernels still make aliases, and skipping them broke liveness.
#[test]
fn r45_a_function_without_kernels_is_a_node_whose_view_keeps_the_block() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (Function::new(&mut rig), Function::new(&mut rig));
    let y = a.call(&rig, 1, 1);
    let value = y.storage().slot_value().unwrap().unwrap();
    let view = y.slice(0, 2..6, 1).unwrap();
    let inputs = InputPlan::new(&[InputSpec::read(&y)], 16, |_| true).unwrap();
    let planned =
        plan_outputs(&inputs, &[Some(y.clone())], &[OutputSpec::returned(&view)], |_| true).unwrap();
    let class = OutputClass::EarlierSlot { value, input: Some(InputIndex::new(0)) };
    assert_eq!(planned[0].class, class);
    drop(view);
    let mut v = slab(&Ledger::new(), planned);
    let mut y = Some(y);
    let view = v.hand_back(step(1), |_, _| y.take()).unwrap().outputs.take(slot(0)).unwrap();
    assert!(a.slab.is_live(slot(0)) && !v.any_live(), "the view is what keeps the block");
    assert_eq!(rig.value(&view), Ok(1));
    let plan = InputPlan::new(&[InputSpec::read(&view)], 8, |_| true).unwrap();
    assert!(matches!(plan.role(InputIndex::new(0)), Some(InputRole::Managed { .. })));
    let z = b.call(&rig, 1, 2);
    drop(view);
    assert!(!a.slab.any_live());
    drop(z);
    rig.verdict();
}

/// A constant that a function returns stays the constant, run after run, whatever happens to steps.
#[test]
fn a_constant_output_has_nothing_to_do_with_steps() {
    let constant = outside(0x1000, 8);
    let inputs = InputPlan::new(&[], 16, |_| true).unwrap();
    let planned = plan_outputs(&inputs, &[], &[OutputSpec::returned(&constant)], |_| true).unwrap();
    assert_eq!(planned[0].class, OutputClass::Persistent(PersistentSource::Captured));
    let mut f = slab(&Ledger::new(), planned);
    let y = f.hand_back(step(1), |_, _| Some(constant.clone())).unwrap().outputs.take(slot(0)).unwrap();
    f.invalidate(&began(2)).unwrap();
    let _again = f.hand_back(step(2), |_, _| Some(constant.clone())).unwrap();
    assert_eq!(y.address(), constant.address());
}

/// The order of a backward's deaths does not matter: what it saved dies with its token, and nothing else does.
#[test]
fn a_forward_without_a_backward_holds_nothing_once_its_token_is_gone() {
    let mut f = slab(&Ledger::new(), vec![fresh(0), fresh(1).read_by(Readers::Backward)]);
    let mut back = run(&mut f, 1);
    let y = back.outputs.take(slot(0)).unwrap();
    drop(back.saved);
    assert_eq!(f.live().collect::<Vec<_>>(), [slot(0)]);
    drop(y);
    assert!(!f.any_live());
}
