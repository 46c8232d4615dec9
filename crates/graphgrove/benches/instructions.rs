//! A gate by instruction count on a call that is replayed, the device's null launch included. It needs valgrind and
//! `gungraun-runner`: `cargo bench -p graphgrove --bench instructions`.

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]
#![allow(missing_docs, reason = "the macros make items that cannot be documented")]

use std::sync::Arc;

use graphgrove::{Arg, Backward, Engine, Function, Layout, Outputs, Storage, Tensor};
use graphgrove_device::{Memory, SegmentMemory, Streams};
use graphgrove_sim::{SimDevice, SimStream};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

/// A function that is replayed by now, the inputs of its calls, and a place for its outputs. Leaked, since its end would be
/// measured otherwise.
type Rig =
    (&'static Function<SimDevice>, &'static mut Vec<Arg<'static, SimDevice>>, &'static mut Option<Outputs>);

/// A function that fills so many outputs.
fn filling(outputs: usize) -> (&'static Engine<SimDevice>, &'static Function<SimDevice>) {
    let device = Arc::new(SimDevice::builder().null_launch(true).checker(false).build());
    let engine = leak(Engine::new(device).unwrap());
    let layout = Layout::of::<f32>(&[8]).unwrap();
    let function = engine.function("F", move |cx| {
        let mut made = Vec::new();
        for _ in 0..outputs {
            let out = cx.empty(layout.clone())?;
            cx.fill(&out, 0)?;
            made.push(out);
        }
        Ok(made)
    });
    (engine, leak(function))
}

fn rig(outputs: usize, staged: usize) -> Rig {
    rig_of(filling(outputs), staged)
}

fn rig_of(
    (engine, function): (&'static Engine<SimDevice>, &'static Function<SimDevice>),
    staged: usize,
) -> Rig {
    let tensors = (0..staged).map(|_| {
        let segment = leak(engine.device().allocate(4096).unwrap());
        Tensor::new(Storage::unowned(segment.base(), 4096), Layout::of::<f32>(&[8]).unwrap(), 0).unwrap()
    });
    let tensors: &'static [Tensor] = tensors.collect::<Vec<_>>().leak();
    let args = leak(tensors.iter().map(Arg::Kept).collect::<Vec<_>>());
    for _ in 0..5 {
        drop(function.call(&mut args[..]).unwrap());
    }
    let calls = engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays, calls.eager), (1, 3, 0));
    (function, args, leak(None))
}

#[library_benchmark]
#[bench::plain(args = [rig(1, 0)], config = at_most(1_004))]
#[bench::of_320_outputs(args = [rig(320, 0)], config = at_most(1_048))]
#[bench::staged_1(args = [rig(1, 1)], config = at_most(1_024))]
#[bench::staged_8(args = [rig(1, 8)], config = at_most(1_124))]
#[bench::staged_32(args = [rig(1, 32)], config = at_most(1_471))]
fn call((function, args, out): Rig) {
    *out = function.call(&mut args[..]).ok();
}

/// As [`rig`] for inputs and outputs, but the next call is the one that is recorded.
fn warm(outputs: usize) -> Rig {
    let (engine, function) = filling(outputs);
    let args = leak(Vec::new());
    drop(function.call(&mut args[..]).unwrap());
    assert_eq!(engine.stats().unwrap().calls.warm_ups, 1);
    (function, args, leak(None))
}

// The simulated device's part included. What it costs an output has to be the same for few and many.
#[library_benchmark]
#[bench::of_1_output(args = [warm(1)], config = at_most(58_900))]
#[bench::of_40_outputs(args = [warm(40)], config = at_most(482_000))]
#[bench::of_320_outputs(args = [warm(320)], config = at_most(3_452_000))]
fn record((function, args, out): Rig) {
    *out = function.call(&mut args[..]).ok();
}

// A call whose outputs are taken one by one, and let go of one by one.
#[library_benchmark]
#[bench::of_1_output(args = [rig(1, 0)], config = at_most(1_200))]
#[bench::of_320_outputs(args = [rig(320, 0)], config = at_most(30_900))]
fn take((function, args, _): Rig) {
    if let Ok(mut outputs) = function.call(&mut args[..]) {
        for at in 0..outputs.len() {
            drop(outputs.take(at));
        }
    }
}

/// A list with room for the outputs.
fn with_list((function, args, _): Rig) -> (Rig, &'static mut Vec<Option<Tensor>>) {
    ((function, args, leak(None)), leak(Vec::with_capacity(320)))
}

// A call whose outputs are taken together, and let go of one by one.
#[library_benchmark]
#[bench::of_320_outputs(args = [with_list(rig(320, 0))], config = at_most(24_400))]
fn take_into(((function, args, _), list): (Rig, &'static mut Vec<Option<Tensor>>)) {
    if let Ok(mut outputs) = function.call(&mut args[..]) {
        outputs.take_into(list);
    }
    list.clear();
}

/// A forward that saves all its outputs and its backward, replayed by now, with the token of a forward that has just run.
type Chain = (&'static Function<SimDevice>, Option<Backward<SimDevice>>);

fn chain(saved: usize) -> Chain {
    let device = Arc::new(SimDevice::builder().null_launch(true).checker(false).build());
    let engine = leak(Engine::new(device).unwrap());
    let layout = Layout::of::<f32>(&[8]).unwrap();
    let forward = engine.function("F", move |cx| {
        for _ in 0..saved {
            let out = cx.empty(layout.clone())?;
            cx.fill(&out, 0)?;
            cx.save(&out);
        }
        Ok(Vec::new())
    });
    let backward = leak(engine.function("B", move |cx| {
        for number in 0..saved {
            drop(cx.take_saved(number)?);
        }
        Ok(Vec::new())
    }));
    for _ in 0..5 {
        let (_, token) = forward.forward([]).unwrap();
        drop(backward.backward(token, []).unwrap());
    }
    let (_, token) = forward.forward([]).unwrap();
    assert_eq!(engine.stats().unwrap().calls.replays, 7);
    (backward, Some(token))
}

#[library_benchmark]
#[bench::of_1_saved(args = [chain(1)], config = at_most(2_030))]
#[bench::of_160_saved(args = [chain(160)], config = at_most(47_200))]
fn backward((function, token): Chain) {
    if let Some(token) = token {
        drop(function.backward(token, []));
    }
}

// A call on another stream than the engine's.
#[library_benchmark]
#[bench::staged_32(args = [elsewhere(1, 32)], config = at_most(2_880))]
fn call_on(((function, args, out), stream): (Rig, &'static SimStream)) {
    *out = function.on(stream).call(&mut args[..]).ok();
}

fn elsewhere(outputs: usize, staged: usize) -> (Rig, &'static SimStream) {
    let made = filling(outputs);
    let stream = leak(made.0.device().create_stream().unwrap());
    let (function, args, out) = rig_of(made, staged);
    for _ in 0..3 {
        drop(function.on(stream).call(&mut args[..]).unwrap());
    }
    ((function, args, out), stream)
}

library_benchmark_group!(name = calling, benchmarks = [call, call_on, take, take_into, backward, record]);

main!(library_benchmark_groups = calling);
