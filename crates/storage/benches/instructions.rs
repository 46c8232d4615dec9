//! A gate by instruction count on what a replay does with handles. It needs valgrind and `gungraun-runner`:
//! `cargo bench -p graphgrove-storage --bench instructions`.

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]
#![allow(missing_docs, reason = "the macros make items that cannot be documented")]

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    DeadMask, DeadMasks, HandedBack, Layout, Ledger, OutputClass, PlannedOutput, Slab, SlotIndex, Step,
    Tensor,
};
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

fn none(_: SlotIndex, _: OutputClass) -> Option<Tensor> {
    None
}

/// A slab that has run before. It is leaked, since its end would be measured otherwise.
fn slab(outputs: u64) -> &'static mut Slab {
    let layout = Layout::of::<f32>(&[8]).unwrap();
    let output =
        |number: u64| PlannedOutput::fresh(DevicePtr::new(0x1000 + 512 * number), 512, layout.clone());
    let slab = Slab::new(&Ledger::new(), "F", 0, (0..outputs).map(output).collect()).unwrap();
    let slab = Box::leak(Box::new(slab));
    drop(slab.hand_back(Step::new(1), none).unwrap());
    slab
}

/// Somewhere to lay results whose own drops would be measured otherwise.
type Out<T> = &'static mut Option<T>;

fn out<T>() -> Out<T> {
    Box::leak(Box::new(None))
}

fn tensor() -> (&'static Tensor, Out<Tensor>) {
    let taken = slab(1).hand_back(Step::new(2), none).unwrap().outputs.take(SlotIndex::new(0)).unwrap();
    (Box::leak(Box::new(taken)), out())
}

fn handed_back(outputs: u64) -> (&'static mut HandedBack, &'static mut Vec<Tensor>) {
    let back = slab(outputs).hand_back(Step::new(2), none).unwrap();
    (Box::leak(Box::new(back)), Box::leak(Box::new(Vec::with_capacity(outputs as usize))))
}

fn taken(outputs: u64) -> &'static mut Vec<Tensor> {
    let (back, tensors) = handed_back(outputs);
    tensors.extend(back.outputs.take_all().flatten());
    tensors
}

fn masks() -> (&'static DeadMasks, &'static [Slab]) {
    let layout = Layout::of::<f32>(&[8]).unwrap();
    let output =
        |number: u64| PlannedOutput::fresh(DevicePtr::new(0x1000 + 512 * number), 512, layout.clone());
    let one = || Slab::new(&Ledger::new(), "F", 0, (0..256).map(output).collect()).unwrap();
    let path: Vec<Slab> = (0..4).map(|_| one()).collect();
    let all = (0..4).flat_map(|place| (0..4).map(move |word| DeadMask { place, word, mask: u64::MAX }));
    (Box::leak(Box::new(DeadMasks::new(all.collect()))), path.leak())
}

#[library_benchmark]
#[bench::of_320((slab(320), out()))]
fn hand_back((slab, out): (&'static mut Slab, Out<HandedBack>)) {
    *out = slab.hand_back(Step::new(2), none).ok();
}

/// A slab of which somebody has kept an output of each of many runs.
fn slab_beside_old_handles(runs: u64) -> (&'static mut Slab, Out<HandedBack>) {
    let slab = slab(1);
    let kept = Box::leak(Box::default()) as &'static mut Vec<Option<Tensor>>;
    for number in 2..2 + runs {
        kept.push(slab.hand_back(Step::new(number), none).unwrap().outputs.take(SlotIndex::new(0)));
    }
    (slab, out())
}

#[library_benchmark]
#[bench::of_16(slab_beside_old_handles(16))]
#[bench::of_4096(slab_beside_old_handles(4096))]
fn hand_back_beside_old_handles((slab, out): (&'static mut Slab, Out<HandedBack>)) {
    *out = slab.hand_back(Step::new(9999), none).ok();
}

#[library_benchmark]
#[bench::of_64(slab_beside_old_handles(64))]
#[bench::of_4096(slab_beside_old_handles(4096))]
fn sweep_beside_old_handles((slab, _): (&'static mut Slab, Out<HandedBack>)) -> usize {
    slab.sweep()
}

#[library_benchmark]
#[bench::one(handed_back(1))]
#[bench::all_of_320(handed_back(320))]
fn take((back, tensors): (&'static mut HandedBack, &'static mut Vec<Tensor>)) {
    for output in 0..back.outputs.len() as u32 {
        if let Some(tensor) = back.outputs.take(SlotIndex::new(output)) {
            tensors.push(tensor);
        }
    }
}

#[library_benchmark]
#[bench::all_of_320(taken(320))]
fn drop_each(tensors: &'static mut Vec<Tensor>) {
    tensors.clear();
}

/// An output of each of many runs of a slab that has gone on another thread.
fn orphans(runs: u64) -> &'static mut Vec<Option<Tensor>> {
    let output = PlannedOutput::fresh(DevicePtr::new(0x1000), 512, Layout::of::<f32>(&[8]).unwrap());
    let mut slab = Slab::new(&Ledger::new(), "F", 0, vec![output]).unwrap();
    let mut take = |number| slab.hand_back(Step::new(number), none).unwrap().outputs.take(SlotIndex::new(0));
    let kept = Box::leak(Box::new((0..runs).map(&mut take).collect()));
    std::thread::spawn(move || drop(slab)).join().unwrap();
    kept
}

#[library_benchmark]
#[bench::of_16(orphans(16))]
#[bench::of_4096(orphans(4096))]
fn drop_beside_orphans(kept: &'static mut Vec<Option<Tensor>>) {
    kept.pop();
}

#[library_benchmark]
#[bench::one(tensor())]
fn clone_of((tensor, out): (&'static Tensor, Out<Tensor>)) {
    *out = Some(tensor.clone());
}

#[library_benchmark]
#[bench::one(tensor())]
fn address_of((tensor, _): (&'static Tensor, Out<Tensor>)) -> u64 {
    tensor.address().map_or(0, DevicePtr::get)
}

#[library_benchmark]
#[bench::of_1024_slots(masks())]
fn must_be_dead((masks, path): (&'static DeadMasks, &'static [Slab])) -> bool {
    masks.hold(path)
}

library_benchmark_group!(name = handing_back, config = at_most(186), benchmarks = hand_back);
// A sheet is new then, which needs some allocations; it must not matter how many others are in use.
library_benchmark_group!(name = beside, config = at_most(3353), benchmarks = hand_back_beside_old_handles);
library_benchmark_group!(name = sweeping, config = at_most(13_588), benchmarks = sweep_beside_old_handles);
library_benchmark_group!(name = taking, config = at_most(320 * 44), benchmarks = take);
library_benchmark_group!(name = dropping, config = at_most(320 * 62), benchmarks = drop_each);
// It frees a sheet; it must not matter how many others have no slab any more.
library_benchmark_group!(name = orphaned, config = at_most(1_440), benchmarks = drop_beside_orphans);
library_benchmark_group!(name = one_handle, config = at_most(65), benchmarks = [clone_of, address_of]);
library_benchmark_group!(name = checking, config = at_most(443), benchmarks = must_be_dead);

main!(
    library_benchmark_groups = handing_back,
    beside,
    sweeping,
    taking,
    dropping,
    orphaned,
    one_handle,
    checking
);
