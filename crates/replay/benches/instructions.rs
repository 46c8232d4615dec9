//! A gate by instruction count on a replay, the device's null launch included. It needs valgrind and `gungraun-runner`:
//! `cargo bench -p graphgrove-replay --bench instructions`.

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]
#![allow(missing_docs, reason = "the macros make items that cannot be documented")]

use std::sync::Arc;

use graphgrove_device::{CaptureGuard, CaptureMode, DevicePtr, Graphs, Memory, SegmentMemory, Streams, Work};
use graphgrove_replay::{
    Call, Error, Input, Method, NodeKey, ParamSet, Recorder, Recording, Replayed, Replayer, Route, StagePlan,
};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{InputPlan, InputSpec, Layout, Ledger, PlannedOutput, Step, Storage, Tensor};
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

/// A node that has run, and a call of it. Leaked, since its end would be measured otherwise.
struct Rig {
    replayer: Replayer<SimDevice>,
    node: NodeKey,
    call: Call<'static, SimDevice>,
}

fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

fn tensor(device: &SimDevice) -> Tensor {
    let segment = leak(device.allocate(4096).unwrap());
    Tensor::new(Storage::unowned(segment.base(), 4096), Layout::of::<f32>(&[8]).unwrap(), 0).unwrap()
}

fn rig(outputs: u64, staged: usize, params: usize) -> &'static mut Rig {
    let device = leak(Arc::new(SimDevice::builder().null_launch(true).checker(false).build()));
    let stream = leak(device.create_stream().unwrap());
    let tensors: &'static Vec<Tensor> = leak((0..staged).map(|_| tensor(device)).collect());
    let inputs: &'static Vec<Input<'static, SimDevice>> = leak(tensors.iter().map(Input::kept).collect());
    let weights: Vec<Tensor> = (0..params as u64)
        .map(|at| {
            Tensor::new(
                Storage::unowned(DevicePtr::new(0x10000 + at * 64), 64),
                Layout::of::<f32>(&[8]).unwrap(),
                0,
            )
            .unwrap()
        })
        .collect();
    let set = leak(ParamSet::new(weights).unwrap());
    let call = Call::new(stream, Step::new(1), inputs).with_params(set);
    let specs: Vec<_> =
        tensors.iter().map(InputSpec::read).chain(set.tensors().iter().map(InputSpec::parameter)).collect();
    let all: Vec<_> = tensors.iter().chain(set.tensors()).map(Some).collect();
    let plan = InputPlan::new(&specs, 16, |_| false).unwrap();
    let stage = StagePlan::new(&plan, &all, |_| Route::Copied).unwrap();
    let mut replayer = Replayer::new(Arc::clone(device), Ledger::new());
    let expected = replayer.expect(&plan, &call, &stage).unwrap();
    let mut buffers: Vec<Storage> = stage.buffers().map(|_| tensor(device).into_storage()).collect();
    let work = leak(device.allocate(4096).unwrap());
    let mut recorder =
        Recorder::begin(&**device, stream, Method::Fast, stage, &all, |_| Ok::<_, Error>(buffers.remove(0)))
            .unwrap();
    recorder.fill(stream, work.base(), 0, 16).unwrap();
    let captured = recorder.finish().unwrap();
    let output = |number: u64| {
        PlannedOutput::fresh(DevicePtr::new(0x10_0000 + 512 * number), 512, Layout::of::<f32>(&[8]).unwrap())
    };
    let recording = Recording::new("F", captured)
        .inputs(expected)
        .params(Some(set))
        .outputs((0..outputs).map(output).collect());
    let node = replayer.add(recording).unwrap();
    drop(replayer.replay(node, &call).unwrap());
    drop(replayer.replay(node, &call).unwrap());
    leak(Rig { replayer, node, call })
}

type Out = &'static mut Option<Replayed>;

fn with_out(rig: &'static mut Rig) -> (&'static mut Rig, Out) {
    (rig, leak(None))
}

#[library_benchmark]
#[bench::plain(with_out(rig(1, 0, 0)))]
#[bench::with_10000_params(with_out(rig(1, 0, 10_000)))]
#[bench::of_320_outputs(with_out(rig(320, 0, 0)))]
#[bench::staged_1(with_out(rig(1, 1, 0)))]
#[bench::staged_8(with_out(rig(1, 8, 0)))]
#[bench::staged_32(with_out(rig(1, 32, 0)))]
#[bench::staged_128(with_out(rig(1, 128, 0)))]
fn replay((rig, out): (&'static mut Rig, Out)) {
    *out = rig.replayer.replay(rig.node, &rig.call).ok();
}

type Taken = &'static mut Vec<Option<Tensor>>;

fn with_taken(rig: &'static mut Rig, outputs: usize) -> (&'static mut Rig, Taken, Out) {
    (rig, leak(Vec::with_capacity(outputs)), leak(None))
}

#[library_benchmark]
#[bench::of_1(with_taken(rig(1, 0, 0), 1))]
#[bench::of_320(with_taken(rig(320, 0, 0), 320))]
fn replay_and_take((rig, taken, out): (&'static mut Rig, Taken, Out)) {
    if let Ok(mut replayed) = rig.replayer.replay(rig.node, &rig.call) {
        replayed.outputs.take_all().for_each(|tensor| taken.push(tensor));
        *out = Some(replayed);
    }
}

fn launch_only() -> &'static mut (SimDevice, <SimDevice as Graphs>::Exec, <SimDevice as Streams>::Stream) {
    let device = SimDevice::builder().null_launch(true).checker(false).build();
    let stream = device.create_stream().unwrap();
    let work = leak(device.allocate(4096).unwrap());
    let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal).unwrap();
    device.fill(&stream, work.base(), 0, 16).unwrap();
    let exec = device.instantiate(&capture.end().unwrap()).unwrap();
    leak((device, exec, stream))
}

#[library_benchmark]
#[bench::null(launch_only())]
fn bare(
    (device, exec, stream): &'static mut (
        SimDevice,
        <SimDevice as Graphs>::Exec,
        <SimDevice as Streams>::Stream,
    ),
) {
    let _ = device.launch_exec(exec, stream);
}

library_benchmark_group!(
    name = replaying,
    config = at_most(5000),
    benchmarks = [replay, replay_and_take, bare]
);

main!(library_benchmark_groups = replaying);
