//! Warm-ups that find no room in the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove::{Args, Engine, Error, FunctionOptions, LaunchDims, Layout, ParamSet, Tensor, args};
use graphgrove_device::Call;
use graphgrove_pool::PoolError;
use graphgrove_sim::{Failure, Fault, SimDevice, kernels};

use crate::garden::{Garden, layout, zip_args};

const DIMS: LaunchDims = LaunchDims::ONE;

fn large() -> Layout {
    Layout::of::<u8>(&[3 << 20]).unwrap()
}

fn garden() -> Garden {
    Garden::new(Engine::<SimDevice>::builder())
}

/// Has the device refuse the memory that the pool asks for next, the first time that this is called. A pool asks for what it would like
/// to have, and then for what it needs.
fn refuse_once(device: &SimDevice, refused: &AtomicBool) {
    if !refused.swap(true, Ordering::Relaxed) {
        for nth in [1, 2] {
            device.inject(Fault::at(Call::Map, nth, Failure::OutOfMemory));
        }
    }
}

#[test]
fn a_warm_up_without_room_runs_plainly_and_the_next_one_with_room_is_recorded() {
    let garden = garden();
    let (device, refused) = (Arc::clone(&garden.device), AtomicBool::new(false));
    let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
    let function = garden.engine.function("roomy", move |cx| {
        let (a, b) = (cx.take(0)?, cx.take(1)?);
        let sum = cx.empty(layout())?;
        cx.launch(&add, DIMS, &zip_args(&a, &b, &sum)?)?;
        refuse_once(&device, &refused);
        let scratch = cx.empty(large())?;
        cx.fill(&scratch, 0)?;
        Ok(vec![sum])
    });
    let (a, b) = (garden.tensor(1.0), garden.tensor(2.0));
    let [sum] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
    assert_eq!(garden.value(&sum), 3.0);
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.eager, calls.failures), (0, 1, 1));
    let reasons = garden.engine.reasons().unwrap();
    let says = |reason: &graphgrove::Reason| reason.function == "roomy" && reason.why.contains("memory");
    assert!(reasons.iter().any(says), "{reasons:?}");
    drop(sum);
    garden.engine.begin_step().unwrap();
    for _ in 0..3 {
        let [sum] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&sum), 3.0);
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays), (1, 1, 1));
    garden.device.verdict().unwrap();
}

#[test]
fn what_a_warm_up_without_room_has_written_already_is_not_written_twice() {
    for writes_first in [false, true] {
        let garden = garden();
        let axpy = kernels::axpy(&garden.device);
        let (device, refused) = (Arc::clone(&garden.device), AtomicBool::new(false));
        let options = FunctionOptions::new().mutates_params();
        let function = garden.engine.function_with("update", options, move |cx| {
            let step = |cx: &mut graphgrove::Context<'_, SimDevice>| {
                let args = Args::new().read(cx.input(0)?.address()?).read_write(cx.param(0)?.address()?);
                cx.launch(&axpy, DIMS, &args.scalar(32_u32).scalar(1.0_f32))
            };
            if writes_first {
                step(cx)?;
            }
            refuse_once(&device, &refused);
            let scratch = cx.empty(large())?;
            cx.fill(&scratch, 0)?;
            if !writes_first {
                step(cx)?;
            }
            Ok(Vec::new())
        });
        let a = garden.tensor(1.0);
        let params = ParamSet::new(vec![garden.tensor(10.0)]).unwrap();
        let called = function.with(&params).call(args![&a]).map(drop);
        // It has happened once either way.
        assert_eq!(garden.value(&params.tensors()[0]), 11.0);
        match called {
            Ok(()) => assert!(!writes_first),
            Err(Error::Pool(PoolError::Exhausted(_))) => assert!(writes_first),
            Err(other) => panic!("{other}"),
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn an_input_that_was_given_up_is_there_again_unless_its_memory_had_another_use() {
    for reuses in [false, true] {
        let garden = garden();
        let make = garden.add("make");
        let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let (device, refused) = (Arc::clone(&garden.device), AtomicBool::new(false));
        let function = garden.engine.function("greedy", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let sum = cx.empty(layout())?;
            cx.launch(&add, DIMS, &zip_args(&a, &b, &sum)?)?;
            if reuses {
                drop(a);
                let again = cx.empty(layout())?;
                cx.fill(&again, 0)?;
            }
            refuse_once(&device, &refused);
            let scratch = cx.empty(large())?;
            cx.fill(&scratch, 0)?;
            Ok(vec![sum])
        });
        let (a, b) = (garden.tensor(1.0), garden.tensor(2.0));
        let [made]: [Tensor; 1] = make.call(args![&a, &b]).unwrap().into_array().unwrap();
        match function.call(args![made, &b]) {
            Ok(outputs) => {
                assert!(!reuses);
                let [sum] = outputs.into_array().unwrap();
                assert_eq!(garden.value(&sum), 5.0);
            }
            Err(Error::InputsGone { function, .. }) => assert!(reuses && function == "greedy"),
            Err(other) => panic!("{other}"),
        }
        let [made] = make.call(args![&a, &b]).unwrap().into_array().unwrap();
        let [sum] = function.call(args![made, &b]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&sum), 5.0);
        garden.device.verdict().unwrap();
    }
}
