//! Every kind of input with every kind of output: what is handed back lies where an eager call's result would.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    InputIndex, InputPlan, InputRole, InputSpec, Ledger, OutputClass, OutputSpec, PersistentSource,
    PlannedOutput, Readers, Slab, SlotIndex, Storage, Tensor, plan_outputs,
};
use proptest::prelude::*;

use crate::rig::{BLOCK, floats, outside, run, slab, slot, step};

/// A view of one of the tensors that there are: which, from where on, how many elements at most, and how far apart.
type View = (usize, u64, u64, u64);

#[derive(Clone, Copy, Debug)]
enum Output {
    /// A view of an input, as it was passed.
    OfInput(View),
    /// A view of an earlier slot that need not be an input.
    OfSlot(View),
    OfConstant(View),
    Fresh(View),
    /// A view of a block that another output has too, if there is one.
    OfFresh(View),
    NotTensor,
}

fn view() -> impl Strategy<Value = View> {
    (0..8_usize, 0..33_u64, prop_oneof![Just(64_u64), 0..9_u64], 1..4_u64)
}

fn output() -> impl Strategy<Value = (Output, Readers)> {
    let kind = prop_oneof![
        4 => view().prop_map(Output::OfInput),
        1 => view().prop_map(Output::OfSlot),
        1 => view().prop_map(Output::OfConstant),
        1 => view().prop_map(Output::Fresh),
        1 => view().prop_map(Output::OfFresh),
        1 => Just(Output::NotTensor),
    ];
    (kind, prop_oneof![Just(Readers::Caller), Just(Readers::Both), Just(Readers::Backward)])
}

fn of((_, start, most, apart): View, tensor: &Tensor) -> Tensor {
    let size = tensor.shape()[0];
    let start = start.min(size);
    tensor.slice(0, start..size.min(start + most), apart).unwrap()
}

fn at(tensor: &Tensor) -> u64 {
    tensor.address().unwrap().get()
}

proptest! {
    #[test]
    fn what_is_handed_back_lies_where_an_eager_call_would_have_left_it(
        inputs in prop::collection::vec((view(), any::<bool>(), any::<bool>()), 1..5),
        outputs in prop::collection::vec(output(), 1..6),
    ) {
        let ledger = Ledger::new();
        let mut parent = slab(&ledger, (0..3).map(|number| {
            PlannedOutput::fresh(DevicePtr::new(0x10_0000 + BLOCK * number), BLOCK, floats(32))
        }).collect());
        let mut there: Vec<_> = run(&mut parent, 1).outputs.take_all().flatten().collect();
        // Memory of the caller's, the last two in storages of their own although they overlap.
        there.extend([0x20_0000, 0x21_0000, 0x22_0000, 0x30_0000, 0x30_0020].map(|base| outside(base, 32)));
        let constant = outside(0x50_0000, 32);

        let given: Vec<_> = inputs.iter().map(|(view, ..)| of(*view, &there[view.0])).collect();
        let specs: Vec<_> = given.iter().zip(&inputs).map(|(tensor, &(_, parameter, moved))| {
            InputSpec { parameter, moved, ..InputSpec::read(tensor) }
        }).collect();
        let plan = InputPlan::new(&specs, 16, |_| true).unwrap();
        prop_assert_eq!(plan.misfit(&specs, |_| true), Ok(None));
        let buffers: Vec<_> = (0..).zip(plan.groups()).map(|(number, group)| {
            Storage::pool_block(DevicePtr::new(0x90_0000 + 0x1000 * number), group.buffer_bytes(), Box::new(()))
        }).collect();
        let passed: Vec<_> = plan.roles().zip(&given).map(|((_, role), tensor)| match role {
            InputRole::Staged(staged) => {
                let buffer = buffers[staged.group as usize].clone();
                Some(Tensor::new(buffer, tensor.layout().clone(), staged.offset).unwrap())
            }
            _ => Some(tensor.clone()),
        }).collect();

        // What the function returns, and where an eager call, which stages nothing, would have left it.
        let mut blocks: Vec<Tensor> = Vec::new();
        let results: Vec<_> = outputs.iter().map(|&(output, _)| {
            let result = match output {
                Output::OfInput(view) => {
                    let number = view.0 % given.len();
                    let staged = passed[number].as_ref().unwrap();
                    let result = of(view, staged);
                    let eager = at(&given[number]) + at(&result).wrapping_sub(at(staged));
                    return Some((result, eager));
                }
                Output::OfSlot(view) => of(view, &there[view.0 % 3]),
                Output::OfConstant(view) => of(view, &constant),
                Output::Fresh(view) => {
                    let base = DevicePtr::new(0xa0_0000 + BLOCK * blocks.len() as u64);
                    blocks.push(Tensor::new(Storage::pool_block(base, BLOCK, Box::new(())), floats(32), 0).unwrap());
                    of(view, blocks.last().unwrap())
                }
                Output::OfFresh(view) => of(view, blocks.get(view.0 % blocks.len().max(1))?),
                Output::NotTensor => return None,
            };
            let eager = at(&result);
            Some((result, eager))
        }).collect();

        let recorded: Vec<_> = results.iter().map(|result| Some(result.as_ref()?.0.clone())).collect();
        let specs: Vec<_> = recorded.iter().zip(&outputs)
            .map(|(tensor, &(_, readers))| OutputSpec { tensor: tensor.as_ref(), readers }).collect();
        let planned = plan_outputs(&plan, &passed, &specs, |_| true).unwrap();
        let mut child = Slab::new(&ledger, "C", 1, planned).unwrap();
        let input = |input: InputIndex| given.get(input.get() as usize).cloned();
        let source = |class| match class {
            OutputClass::Persistent(PersistentSource::Input(of)) | OutputClass::StagedInput { input: of, .. } => input(of),
            OutputClass::EarlierSlot { value, .. } => there.get(value.slot.get() as usize).cloned(),
            _ => None,
        };
        let constants = |of: SlotIndex, class| match class {
            OutputClass::Persistent(PersistentSource::Captured) => recorded[of.get() as usize].clone(),
            class => source(class),
        };
        for run in 1..3 {
            let mut back = if run == 1 {
                child.hand_back_recorded(step(run), &recorded, constants).unwrap().0
            } else {
                child.hand_back(step(run), constants).unwrap()
            };
            for ((number, result), (_, readers)) in (0..).map(slot).zip(&results).zip(&outputs) {
                let taken = back.outputs.take(number);
                let saved = back.saved.as_ref().and_then(|saved| saved.tensor(number));
                prop_assert_eq!(taken.is_some(), result.is_some() && *readers != Readers::Backward);
                prop_assert_eq!(saved.is_some(), result.is_some() && *readers != Readers::Caller);
                for (tensor, (recorded, eager)) in taken.iter().chain(&saved).zip(result.iter().cycle()) {
                    prop_assert_eq!(tensor.layout(), recorded.layout());
                    prop_assert!(tensor.layout().is_empty() || at(tensor) == *eager, "{tensor:?} {recorded:?}");
                }
            }
            drop(back);
        }
        prop_assert!(!child.any_live(), "{child:?}");
    }
}
