//! Calls of recorded nodes, made ready up to the replay that is measured.
//!
//! Everything is leaked, since its end would be measured otherwise.

#![allow(dead_code, reason = "each of the two benchmarks has cases that the other one has not")]

use std::sync::Arc;

use graphgrove_device::{CaptureGuard, CaptureMode, DevicePtr, Graphs, Memory, SegmentMemory, Streams, Work};
use graphgrove_replay::{
    Call, Captured, Input, Method, NodeKey, ParamSet, Recorder, Recording, Replayed, Replayer, Route,
    StagePlan,
};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{
    DeadMasks, InputPlan, InputSpec, Layout, Ledger, PlannedOutput, SlotIndex, Step, Storage, Tensor,
};

type Stream = <SimDevice as Streams>::Stream;
type Exec = <SimDevice as Graphs>::Exec;

/// What is measured, as numbers. [`PLAIN`] is the least of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) method: Method,
    pub(crate) outputs: u32,
    /// Inputs from anywhere, each 32 bytes, copied by the graph.
    pub(crate) staged: usize,
    /// Whether all of them lie elsewhere at each call.
    pub(crate) moving: bool,
    /// Parameters, unchanged.
    pub(crate) params: u64,
    /// The nodes of the path above the node that is called.
    pub(crate) depth: usize,
    /// The nodes with the same parent, that one included.
    pub(crate) siblings: usize,
    /// Outputs of its parent that it reads where they are.
    pub(crate) managed: u32,
    /// Whether it reads a part of each of them.
    pub(crate) viewed: bool,
    /// Whether it uses their memory again, so that each call has to give them up.
    pub(crate) dying: bool,
    /// Outputs of its parent that must be dead.
    pub(crate) dead: u32,
}

/// A root with one output and nothing else.
pub(crate) const PLAIN: Shape = Shape {
    method: Method::Fast,
    outputs: 1,
    staged: 0,
    moving: false,
    params: 0,
    depth: 0,
    siblings: 1,
    managed: 0,
    viewed: false,
    dying: false,
    dead: 0,
};

/// A node that has run, and the calls of it.
pub(crate) struct Case {
    replayer: Replayer<SimDevice>,
    node: NodeKey,
    outputs: u32,
    /// They are made in turn.
    calls: [Call<'static, SimDevice>; 2],
    turn: usize,
}

pub(crate) fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

fn device() -> Arc<SimDevice> {
    Arc::new(SimDevice::builder().null_launch(true).checker(false).build())
}

fn layout() -> Layout {
    Layout::of::<f32>(&[8]).unwrap()
}

/// Memory of the device, in a segment of its own.
fn tensor(device: &SimDevice) -> Tensor {
    let segment = leak(device.allocate(4096).unwrap());
    Tensor::new(Storage::unowned(segment.base(), 4096), layout(), 0).unwrap()
}

fn tensors(device: &SimDevice, count: usize) -> Vec<Tensor> {
    (0..count).map(|_| tensor(device)).collect()
}

/// Outputs in a region that nothing reads.
fn planned(outputs: u32) -> Vec<PlannedOutput> {
    let at = |number| DevicePtr::new(0x10_0000 + 512 * u64::from(number));
    (0..outputs).map(|number| PlannedOutput::fresh(at(number), 512, layout())).collect()
}

fn params(count: u64) -> ParamSet {
    let weight = |number| Storage::unowned(DevicePtr::new(0x4000_0000 + 64 * number), 64);
    let weights = (0..count).map(|number| Tensor::new(weight(number), layout(), 0).unwrap());
    ParamSet::new(weights.collect()).unwrap()
}

/// A graph of one fill, without inputs.
fn fill(device: &SimDevice, stream: &Stream) -> Exec {
    let work = leak(device.allocate(4096).unwrap());
    let capture = CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal).unwrap();
    device.fill(stream, work.base(), 0, 16).unwrap();
    device.instantiate(&capture.end().unwrap()).unwrap()
}

impl Case {
    pub(crate) fn new(shape: Shape) -> &'static mut Self {
        let device: &'static Arc<SimDevice> = leak(device());
        let stream: &'static Stream = leak(device.create_stream().unwrap());
        let mut replayer = Replayer::new(Arc::clone(device), Ledger::new());
        let mut parent = None;
        let mut managed = Vec::new();
        for above in (0..shape.depth).rev() {
            let outputs = if above == 0 { shape.managed + shape.dead + 1 } else { 1 };
            let key = empty_node(&mut replayer, stream, parent, outputs);
            let mut replayed = replayer.replay(key, &Call::new(stream, Step::new(1), &[])).unwrap();
            if above == 0 {
                managed =
                    (0..shape.managed).filter_map(|at| replayed.outputs.take(SlotIndex::new(at))).collect();
            }
            parent = Some(key);
        }
        for _ in 1..shape.siblings {
            let key = empty_node(&mut replayer, stream, parent, 1);
            drop(replayer.replay(key, &Call::new(stream, Step::new(1), &[])).unwrap());
        }
        replayer.cut_path(shape.depth);
        if shape.viewed {
            managed = managed.iter().map(|output| output.slice(0, 0..4, 1).unwrap()).collect();
        }
        let managed: &'static Vec<Tensor> = leak(managed);
        let set: &'static ParamSet = leak(params(shape.params));
        let call = |staged: &'static Vec<Tensor>| {
            let given = managed.iter().map(if shape.dying { Input::given_up } else { Input::kept });
            let inputs = leak(given.chain(staged.iter().map(Input::kept)).collect::<Vec<_>>());
            Call::new(stream, Step::new(1), inputs).with_params(set)
        };
        let first: &'static Vec<Tensor> = leak(tensors(device, shape.staged));
        let second: &'static Vec<Tensor> =
            if shape.moving { leak(tensors(device, shape.staged)) } else { first };
        let calls = [call(first), call(second)];
        let node = add(&mut replayer, shape, parent, managed, first, &calls[0]);
        let mut case = Self { replayer, node, outputs: shape.outputs, calls, turn: 0 };
        // Twice, so that the next one begins where all others do.
        drop(case.replay());
        drop(case.replay());
        leak(case)
    }

    #[inline]
    pub(crate) fn replay(&mut self) -> Option<Replayed> {
        let call = &self.calls[self.turn & 1];
        self.turn += 1;
        self.replayer.replay(self.node, call).ok()
    }

    #[inline]
    pub(crate) fn replay_and_take_each(&mut self, into: &mut Vec<Option<Tensor>>) {
        let Some(mut replayed) = self.replay() else { return };
        for output in (0..self.outputs).map(SlotIndex::new) {
            into.push(replayed.outputs.take(output));
        }
    }

    #[inline]
    pub(crate) fn replay_and_take_all(&mut self, into: &mut Vec<Option<Tensor>>) {
        let Some(mut replayed) = self.replay() else { return };
        replayed.outputs.take_into(into);
    }

    /// A list with room for the outputs.
    pub(crate) fn list(&self) -> Vec<Option<Tensor>> {
        Vec::with_capacity(self.outputs as usize)
    }
}

fn empty_node(
    replayer: &mut Replayer<SimDevice>,
    stream: &Stream,
    parent: Option<NodeKey>,
    outputs: u32,
) -> NodeKey {
    let captured = Captured::from_exec(fill(replayer.device(), stream), Method::Fast);
    replayer.add(Recording::new("G", captured).below(parent).outputs(planned(outputs))).unwrap()
}

/// Records the node that is called.
fn add(
    replayer: &mut Replayer<SimDevice>,
    shape: Shape,
    parent: Option<NodeKey>,
    managed: &[Tensor],
    staged: &[Tensor],
    call: &Call<'static, SimDevice>,
) -> NodeKey {
    let device = Arc::clone(replayer.device());
    let weights = call.params.map(ParamSet::tensors).unwrap_or_default();
    let inputs = managed.iter().chain(staged);
    let specs: Vec<_> =
        inputs.clone().map(InputSpec::read).chain(weights.iter().map(InputSpec::parameter)).collect();
    let all: Vec<_> = inputs.chain(weights).map(Some).collect();
    let plan = InputPlan::new(&specs, 16, |value| replayer.place_of(value.slab).is_some()).unwrap();
    let stage = StagePlan::new(&plan, &all, |_| Route::Copied).unwrap();
    let expected = replayer.expect(&plan, call, &stage).unwrap();
    let mut buffers: Vec<_> = stage.buffers().map(|_| tensor(&device).into_storage()).collect();
    let buffers = |_| Ok::<_, graphgrove_replay::Error>(buffers.remove(0));
    let work = leak(device.allocate(4096).unwrap());
    let mut recorder = Recorder::begin(&*device, call.stream, shape.method, stage, &all, buffers).unwrap();
    recorder.fill(call.stream, work.base(), 0, 16).unwrap();
    let mut recording = Recording::new("F", recorder.finish().unwrap())
        .below(parent)
        .inputs(expected)
        .params(call.params)
        .outputs(planned(shape.outputs));
    if shape.dead > 0 {
        recording = recording.dead(replayer.dead(shape.depth), DeadMasks::default());
    }
    if shape.dying {
        let slabs: Vec<_> = replayer.path().iter().filter_map(|key| replayer.slab(*key)).collect();
        recording = recording.dead(DeadMasks::default(), held(&slabs));
    }
    replayer.add(recording).unwrap()
}

/// Demands that all be dead that is live now.
fn held(path: &[&graphgrove_storage::Slab]) -> DeadMasks {
    let masks = (0..).zip(path).flat_map(|(place, slab)| {
        (0..slab.words()).map(move |word| graphgrove_storage::DeadMask {
            place,
            word,
            mask: slab.live_word(word),
        })
    });
    DeadMasks::new(masks.collect())
}

/// A launch by itself.
pub(crate) struct Bare {
    device: Arc<SimDevice>,
    exec: Exec,
    stream: Stream,
}

impl Bare {
    pub(crate) fn new() -> &'static mut Self {
        let device = device();
        let stream = device.create_stream().unwrap();
        let exec = fill(&device, &stream);
        leak(Self { device, exec, stream })
    }

    #[inline]
    pub(crate) fn launch(&mut self) -> bool {
        self.device.launch_exec(&mut self.exec, &self.stream).is_ok()
    }
}
