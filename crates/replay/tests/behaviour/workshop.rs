//! A small workshop for the tests: a device, memory that stands in for a pool's, and the glue that an engine has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory, Streams};
use graphgrove_replay::{
    Call, Captured, Error, Input, Method, NodeKey, ParamSet, Recorder, Recording, Replayed, Replayer, Route,
    StagePlan, Staged,
};
use graphgrove_sim::{CallCounts, SimBuilder, SimDevice, SimKernel, SimSegment, SimStream, kernels};
use graphgrove_storage::{
    DeadMask, DeadMasks, InputPlan, InputSpec, Layout, Ledger, OutputClass, OutputSpec, PersistentSource,
    Readers, SlotIndex, Step, Storage, StorageId, Tensor, plan_outputs,
};

/// The elements of a tensor that does not say otherwise.
pub(crate) const N: u64 = 64;
/// The bytes that stand in for a pool.
const GROUND: u64 = 1 << 18;
/// What addresses in place have to be multiples of, in bytes.
pub(crate) const ALIGNMENT: u64 = 16;

pub(crate) const BOTH: [Method; 2] = [Method::Fast, Method::Reference];

pub(crate) struct Shop {
    pub(crate) device: Arc<SimDevice>,
    pub(crate) stream: SimStream,
    pub(crate) replayer: Replayer<SimDevice>,
    pub(crate) method: Method,
    /// How staged inputs reach the recorded work.
    pub(crate) route: Route,
    /// Inputs that are copied although the others are patched.
    pub(crate) copied: &'static [u32],
    tools: Tools,
}

/// What a function that is being recorded needs.
#[derive(Clone)]
struct Tools {
    add: SimKernel,
    accumulate: SimKernel,
    bump: SimKernel,
    /// Memory that stays when its blocks are given back, and of which none is used twice.
    ground: Arc<SimSegment>,
    /// The bytes of it that were handed out.
    used: Arc<AtomicU64>,
}

/// A function's output, and who reads it.
pub(crate) enum Out {
    Returned(Tensor),
    Saved(Tensor),
    Both(Tensor),
    NotTensor,
}

/// A call that is to be recorded.
pub(crate) struct Task<'a> {
    call: Call<'a, SimDevice>,
    parent: Option<NodeKey>,
    mutated: &'a [usize],
}

impl<'a> Task<'a> {
    pub(crate) const fn new(call: Call<'a, SimDevice>) -> Self {
        Self { call, parent: None, mutated: &[] }
    }

    pub(crate) const fn below(self, parent: NodeKey) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// The function writes to these inputs, parameters counted last.
    pub(crate) const fn mutating(self, mutated: &'a [usize]) -> Self {
        Self { mutated, ..self }
    }
}

/// A function while it is recorded.
pub(crate) struct Body<'d> {
    pub(crate) recorder: Recorder<'d, SimDevice>,
    pub(crate) stream: SimStream,
    inputs: Vec<Option<Tensor>>,
    tools: Tools,
}

impl Body<'_> {
    /// An input as the function sees it.
    pub(crate) fn input(&self, input: usize) -> Tensor {
        self.inputs[input].clone().unwrap()
    }

    pub(crate) fn fresh(&mut self, elements: u64) -> Result<Tensor, Error> {
        Ok(Tensor::new(self.tools.block(4 * elements), Layout::of::<f32>(&[elements])?, 0)?)
    }

    /// A fresh output: the sum of the tensors, element by element, and a number.
    pub(crate) fn sum(&mut self, tensors: &[&Tensor], more: f32) -> Result<Tensor, Error> {
        let elements = tensors.first().map_or(N, |tensor| tensor.layout().elements());
        let out = self.fresh(elements)?;
        self.recorder.fill(&self.stream, out.address()?, 0, 4 * elements)?;
        for tensor in tensors {
            for (row, (from, count, stride)) in (0..).zip(rows(tensor)) {
                let to = out.address()?.checked_add(4 * row * count).unwrap();
                let args = Args::new().read(from).read_write(to).scalar(count as u32).scalar(stride as u32);
                let kernel = self.tools.accumulate.clone();
                self.recorder.launch(&self.stream, &kernel, LaunchDims::ONE, &args)?;
            }
        }
        if more != 0.0 {
            self.bump(&out, more)?;
        }
        Ok(out)
    }

    /// Adds a number to each element, in place.
    pub(crate) fn bump(&mut self, tensor: &Tensor, by: f32) -> Result<(), Error> {
        for (at, count, stride) in rows(tensor) {
            let args = Args::new().read_write(at).scalar(count as u32).scalar(stride as u32).scalar(by);
            let kernel = self.tools.bump.clone();
            self.recorder.launch(&self.stream, &kernel, LaunchDims::ONE, &args)?;
        }
        Ok(())
    }

    /// `to = a + b` by a kernel that has both addresses.
    pub(crate) fn add(&mut self, a: &Tensor, b: &Tensor, to: &Tensor) -> Result<(), Error> {
        let count = a.layout().elements() as u32;
        let args = Args::new().read(a.address()?).read(b.address()?).write(to.address()?).scalar(count);
        let kernel = self.tools.add.clone();
        self.recorder.launch(&self.stream, &kernel, LaunchDims::for_elements(count), &args)?;
        Ok(())
    }
}

/// Where the rows of a tensor of one or two dimensions lie: address, elements, and stride in elements.
fn rows(tensor: &Tensor) -> Vec<(graphgrove_device::DevicePtr, u64, u64)> {
    let start = tensor.address().unwrap();
    let (shape, strides) = (tensor.shape(), tensor.strides());
    match (shape, strides) {
        ([count], [stride]) => vec![(start, *count, *stride)],
        ([rows, count], [step, stride]) => {
            (0..*rows).map(|row| (start.checked_add(4 * row * step).unwrap(), *count, *stride)).collect()
        }
        _ => unreachable!("the workshop's kernels know one and two dimensions"),
    }
}

impl Tools {
    fn new(device: &Arc<SimDevice>) -> Self {
        let accumulate = device.kernel("accumulate", |scope| {
            let (n, stride) = (scope.scalar::<u32>(2)? as usize, scope.scalar::<u32>(3)? as usize);
            let to = scope.read_write::<f32>(1, n)?;
            for i in 0..n {
                to.set(i, to.get(i) + scope.read_at::<f32>(0, i * stride, 1)?.get(0));
            }
            Ok(())
        });
        let bump = device.kernel("bump", |scope| {
            let (n, stride) = (scope.scalar::<u32>(1)? as usize, scope.scalar::<u32>(2)? as usize);
            let by = scope.scalar::<f32>(3)?;
            for i in 0..n {
                let old = scope.read_at::<f32>(0, i * stride, 1)?.get(0);
                scope.write_at::<f32>(0, i * stride, 1)?.set(0, old + by);
            }
            Ok(())
        });
        let add = kernels::zip::<f32>(device, "add", |a, b| a + b);
        let ground = Arc::new(device.allocate(GROUND).unwrap());
        Self { add, accumulate, bump, ground, used: Arc::default() }
    }

    /// A block for the function that is being recorded.
    fn block(&self, bytes: u64) -> Storage {
        let offset = self.used.fetch_add(bytes.next_multiple_of(512), Ordering::Relaxed);
        assert!(offset + bytes <= GROUND, "the workshop is too small");
        let at = self.ground.base().checked_add(offset).unwrap();
        Storage::pool_block(at, bytes, Box::new(Arc::clone(&self.ground)))
    }
}

impl Shop {
    pub(crate) fn new(method: Method) -> Self {
        Self::on(SimDevice::builder(), method)
    }

    pub(crate) fn on(builder: SimBuilder, method: Method) -> Self {
        let device = Arc::new(builder.build());
        let stream = device.create_stream().unwrap();
        let replayer = Replayer::new(Arc::clone(&device), Ledger::new());
        let tools = Tools::new(&device);
        Self { device, stream, replayer, method, route: Route::Copied, copied: &[], tools }
    }

    /// The same shop with staged inputs patched.
    pub(crate) fn patching(method: Method) -> Self {
        Self { route: Route::Patched, ..Self::new(method) }
    }

    /// A tensor of the caller's own, with one value in all elements.
    pub(crate) fn tensor(&self, value: f32) -> Tensor {
        self.tensor_of(&vec![value; N as usize])
    }

    pub(crate) fn tensor_of(&self, values: &[f32]) -> Tensor {
        let bytes = 4 * values.len() as u64;
        let segment = self.device.allocate(bytes).unwrap();
        let storage = Storage::outside(segment.base(), bytes, Box::new(segment));
        let tensor = Tensor::new(storage, Layout::of::<f32>(&[values.len() as u64]).unwrap(), 0).unwrap();
        self.write(&tensor, values);
        tensor
    }

    /// Writes the elements of a tensor without gaps, once all work is over.
    pub(crate) fn write(&self, tensor: &Tensor, values: &[f32]) {
        self.device.synchronize().unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.device.write(tensor.address().unwrap(), &bytes).unwrap();
    }

    /// The elements of a tensor, once all work is over.
    pub(crate) fn values(&self, tensor: &Tensor) -> Vec<f32> {
        self.device.synchronize().unwrap();
        let element = |at: graphgrove_device::DevicePtr| {
            let mut bytes = [0; 4];
            self.device.read(at, &mut bytes).unwrap();
            f32::from_le_bytes(bytes)
        };
        let in_row = |(start, count, stride): (graphgrove_device::DevicePtr, u64, u64)| {
            (0..count).map(move |i| start.checked_add(4 * i * stride).unwrap())
        };
        rows(tensor).into_iter().flat_map(in_row).map(element).collect()
    }

    /// The one value that all elements have.
    pub(crate) fn value(&self, tensor: &Tensor) -> f32 {
        let values = self.values(tensor);
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        values[0]
    }

    /// Records a function and makes it a node, which has not run then.
    pub(crate) fn add(
        &mut self,
        task: Task<'_>,
        body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Out>, Error>,
    ) -> Result<(NodeKey, Vec<Option<Tensor>>), Error> {
        let Task { call, parent, mutated } = task;
        let device = Arc::clone(&self.device);
        let stream = self.stream.clone();
        let params = call.params.map(ParamSet::tensors).unwrap_or_default();
        let all: Vec<Option<&Tensor>> =
            call.inputs.iter().map(Input::tensor).chain(params.iter().map(Some)).collect();
        let is_given_up =
            |at: usize| matches!(call.inputs.get(at), Some(Input::Tensor { given_up: true, .. }));
        let specs: Vec<InputSpec<'_>> = all
            .iter()
            .enumerate()
            .map(|(at, tensor)| InputSpec {
                tensor: *tensor,
                parameter: at >= call.inputs.len(),
                moved: is_given_up(at),
                mutated: mutated.contains(&at),
            })
            .collect();
        let replayer = &self.replayer;
        let on_path = |value: graphgrove_storage::SlotValue| replayer.place_of(value.slab).is_some();
        let plan = InputPlan::new(&specs, ALIGNMENT, on_path)?;
        let route = |staged: Staged<'_>| match staged.inputs.first() {
            Some(first) if self.copied.contains(&first.get()) => Route::Copied,
            _ => self.route,
        };
        let stage = StagePlan::new(&plan, &all, route)?;
        let before = self.replayer.dead(usize::MAX);
        let expected = self.replayer.expect(&plan, &call, &stage)?;
        let allocate = |bytes| Ok::<_, Error>(self.tools.block(bytes));
        let mut recorder = Recorder::begin(&*device, &stream, self.method, stage, &all, allocate)?;
        recorder.host_inputs(call.inputs);
        let inputs = std::mem::take(recorder.passed());
        let mut body_of = Body { recorder, stream, inputs, tools: self.tools.clone() };
        let outs = body(&mut body_of)?;
        let Body { recorder, inputs: passed, .. } = body_of;
        let specs: Vec<OutputSpec<'_>> = outs.iter().map(Out::spec).collect();
        let outputs = plan_outputs(&plan, &passed, &specs, on_path)?;
        let captured: Captured<SimDevice> = recorder.finish()?;
        drop(passed);
        let constant = |(slot, (planned, out)): (SlotIndex, (&graphgrove_storage::PlannedOutput, &Out))| {
            let is_it = planned.class == OutputClass::Persistent(PersistentSource::Captured);
            is_it.then(|| Some((slot, out.tensor()?.clone()))).flatten()
        };
        let constants =
            (0..).map(SlotIndex::new).zip(outputs.iter().zip(&outs)).filter_map(constant).collect();
        let in_place = |at: &usize| {
            let role = plan.role(graphgrove_storage::InputIndex::new(*at as u32));
            !matches!(role, Some(graphgrove_storage::InputRole::Staged(_)))
        };
        let after = self.given_up(&call, &outs);
        let recording = Recording::new("F", captured)
            .below(parent)
            .inputs(expected)
            .params(call.params)
            .dead(before, after)
            .outputs(outputs)
            .mutates_in_place(mutated.iter().any(in_place))
            .constants(constants);
        let node = self.replayer.add(recording)?;
        Ok((node, outs.into_iter().map(Out::into_tensor).collect()))
    }

    /// All that is dead at the end of a recording: what is dead now, and what its call gives up and does not get back.
    fn given_up(&self, call: &Call<'_, SimDevice>, outs: &[Out]) -> DeadMasks {
        let returned = |id: StorageId| {
            outs.iter().filter_map(Out::tensor).any(|out| out.storage().id().unwrap() == Some(id))
        };
        let mut masks = self.replayer.dead(usize::MAX).masks().to_vec();
        for input in call.inputs {
            let Input::Tensor { tensor, given_up: true } = input else { continue };
            let Some(value) = tensor.storage().slot_value().unwrap() else { continue };
            let Some(place) = self.replayer.place_of(value.slab) else { continue };
            if !returned(StorageId::Slot(value)) {
                masks.push(DeadMask { place, word: value.slot.word(), mask: value.slot.bit() });
            }
        }
        DeadMasks::new(masks)
    }

    /// Records a function, and runs it once.
    pub(crate) fn record(
        &mut self,
        task: Task<'_>,
        body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Out>, Error>,
    ) -> Result<Replayed, Error> {
        let call = task.call;
        let (node, recorded) = self.add(task, body)?;
        let (replayed, owners) = self.replayer.launch_recorded(node, &call, &recorded)?;
        drop(owners);
        Ok(replayed)
    }

    /// Records the sum of all inputs, and runs it once.
    pub(crate) fn record_sum(
        &mut self,
        parent: Option<NodeKey>,
        inputs: &[Input<'_, SimDevice>],
    ) -> Result<Replayed, Error> {
        let stream = self.stream.clone();
        let task = Task { parent, ..Task::new(Call::new(&stream, Step::new(1), inputs)) };
        let count = inputs.len();
        self.record(task, |body| {
            let tensors: Vec<Tensor> = (0..count).map(|input| body.input(input)).collect();
            let sum = body.sum(&tensors.iter().collect::<Vec<_>>(), 0.0)?;
            Ok(vec![Out::Returned(sum)])
        })
    }

    /// Records a function whose output is 1 whatever its inputs, and runs it once.
    pub(crate) fn record_constant(&mut self, inputs: &[Input<'_, SimDevice>]) -> Replayed {
        let stream = self.stream.clone();
        let task = Task::new(Call::new(&stream, Step::new(1), inputs));
        self.record(task, |body| Ok(vec![Out::Returned(body.sum(&[], 1.0)?)])).unwrap()
    }

    /// As [`record_constant`](Self::record_constant), without inputs and below another node.
    pub(crate) fn record_constant_below(&mut self, parent: NodeKey) -> NodeKey {
        let stream = self.stream.clone();
        let task = Task::new(Call::new(&stream, Step::new(1), &[])).below(parent);
        self.record(task, |body| Ok(vec![Out::Returned(body.sum(&[], 1.0)?)])).unwrap().node
    }

    /// Replays a node on the shop's stream.
    pub(crate) fn replay(
        &mut self,
        node: NodeKey,
        inputs: &[Input<'_, SimDevice>],
    ) -> Result<Replayed, Error> {
        let stream = self.stream.clone();
        self.replayer.replay(node, &Call::new(&stream, Step::new(2), inputs))
    }

    /// Replays a node and counts the driver calls.
    pub(crate) fn count(&mut self, node: NodeKey, inputs: &[Input<'_, SimDevice>]) -> (Replayed, CallCounts) {
        let before = self.device.counts();
        let replayed = self.replay(node, inputs).unwrap();
        (replayed, self.device.counts().since(&before))
    }

    /// Replays a node, and returns the value of its first output.
    pub(crate) fn run(&mut self, node: NodeKey, inputs: &[Input<'_, SimDevice>]) -> f32 {
        let mut replayed = self.replay(node, inputs).unwrap();
        let output = take(&mut replayed, 0);
        self.value(&output)
    }

    /// The bytes that recordings have asked for so far.
    pub(crate) fn used(&self) -> u64 {
        self.tools.used.load(Ordering::Relaxed)
    }

    /// The checker has found nothing.
    pub(crate) fn verdict(&self) {
        self.device.verdict().unwrap();
    }
}

impl Out {
    fn spec(&self) -> OutputSpec<'_> {
        let readers = match self {
            Self::Saved(_) => Readers::Backward,
            Self::Both(_) => Readers::Both,
            Self::Returned(_) | Self::NotTensor => Readers::Caller,
        };
        OutputSpec { tensor: self.tensor(), readers }
    }

    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Returned(tensor) | Self::Saved(tensor) | Self::Both(tensor) => Some(tensor),
            Self::NotTensor => None,
        }
    }

    fn into_tensor(self) -> Option<Tensor> {
        match self {
            Self::Returned(tensor) | Self::Saved(tensor) | Self::Both(tensor) => Some(tensor),
            Self::NotTensor => None,
        }
    }
}

/// Takes an output that is there.
pub(crate) fn take(replayed: &mut Replayed, output: u32) -> Tensor {
    replayed.outputs.take(SlotIndex::new(output)).unwrap()
}

/// An input that the caller keeps.
pub(crate) const fn kept(tensor: &Tensor) -> Input<'_, SimDevice> {
    Input::kept(tensor)
}

/// A list of numbers from 0 on.
pub(crate) fn numbers(count: u64) -> Vec<f32> {
    (0..count).map(|number| number as f32).collect()
}
