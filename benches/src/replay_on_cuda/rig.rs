//! One function of as many tiny kernels as outputs, recorded three times: bare, for the replay layer, and by an engine.

use std::error::Error;
use std::sync::Arc;

use graphgrove::{Arg, Engine, Function};
use graphgrove_cuda::{CudaDevice, Exec, Kernel, Stream};
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, DevicePtr, Graphs, LaunchDims, Memory, SegmentMemory, Streams,
    Work,
};
use graphgrove_replay::{
    Call, Error as ReplayError, Input, Method, NodeKey, Recorder, Recording, Replayer, Route, StagePlan,
};
use graphgrove_storage::{InputPlan, InputSpec, Layout, Ledger, PlannedOutput, Step, Storage, Tensor};

/// `y[i] = i + x[0]` for 32 elements, written in PTX so that no compiler is needed.
const ADD: &str = r"
.version 7.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y)
{
    .reg .b32 %i;
    .reg .f32 %a, %b;
    .reg .b64 %x, %y, %offset;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    cvta.to.global.u64 %x, %x;
    cvta.to.global.u64 %y, %y;
    mov.u32 %i, %tid.x;
    cvt.rn.f32.u32 %a, %i;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %y, %y, %offset;
    ld.global.f32 %b, [%x];
    add.f32 %a, %a, %b;
    st.global.f32 [%y], %a;
    ret;
}
";

const INPUT: u64 = 4096;
const OUTPUT: u64 = 512;
const DIMS: LaunchDims = LaunchDims { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0 };

pub(crate) struct Rig {
    device: Arc<CudaDevice>,
    pub(crate) stream: Stream,
    pub(crate) bare: Exec,
    replayer: Replayer<CudaDevice>,
    node: NodeKey,
    engine: Engine<CudaDevice>,
    function: Function<CudaDevice>,
    /// Two sets of inputs, so that every address can change. They are leaked, so that describing a call takes no time of its own.
    inputs: [&'static [Input<'static, CudaDevice>]; 2],
    args: Vec<Arg<'static, CudaDevice>>,
    taken: Vec<Option<Tensor>>,
    outputs: usize,
    /// Keeps the memory of the recordings.
    _memory: <CudaDevice as Memory>::Segment,
}

impl Rig {
    pub(crate) fn new(
        device: &Arc<CudaDevice>,
        outputs: usize,
        staged: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let stream = device.create_stream()?;
        // SAFETY: the kernel reads one element behind its first pointer and writes 32 behind its second.
        let kernel: Kernel = unsafe { device.load(ADD) }?.kernel("add")?;
        let memory = device.allocate((outputs as u64 + 1) * OUTPUT + (staged as u64 + 1) * INPUT)?;
        let out = |number: usize| DevicePtr::new(memory.base().get() + number as u64 * OUTPUT);
        let buffer = |number: usize| DevicePtr::new(out(outputs + 1).get() + number as u64 * INPUT);
        let inputs = [1.0_f32, 2.0]
            .map(|value| (0..staged.max(1)).map(|_| tensor(device, value)).collect::<Result<Vec<_>, _>>());
        let [first, second] = inputs;
        let inputs: [&'static [Tensor]; 2] = [first?.leak(), second?.leak()];

        let bare = {
            let capture = CaptureGuard::begin(&**device, &stream, CaptureMode::ThreadLocal)?;
            for number in 0..outputs {
                device.launch(&stream, &kernel, DIMS, &args(inputs[0][0].address()?, out(number)))?;
            }
            let graph = capture.end()?;
            device.audit(&graph)?.refuse_memory_nodes()?;
            device.instantiate(&graph)?
        };

        let specs: Vec<_> = inputs[0].iter().take(staged).map(InputSpec::read).collect();
        let tensors: Vec<_> = inputs[0].iter().take(staged).map(Some).collect();
        let given = inputs.map(|inputs| {
            let given: Vec<_> = inputs.iter().take(staged).map(Input::kept).collect();
            &*given.leak()
        });
        let plan = InputPlan::new(&specs, 16, |_| false)?;
        let stage = StagePlan::new(&plan, &tensors, |_| Route::Copied)?;
        let mut replayer = Replayer::new(Arc::clone(device), Ledger::new());
        let call = Call::new(&stream, Step::new(1), given[0]);
        let expected = replayer.expect(&plan, &call, &stage)?;
        let mut next = 0;
        let allocate = |bytes: u64| {
            next += 1;
            Ok::<_, ReplayError>(Storage::unowned(buffer(next - 1), bytes.max(INPUT)))
        };
        let mut recorder = Recorder::begin(&**device, &stream, Method::Fast, stage, &tensors, allocate)?;
        let source = match recorder.passed().first().and_then(Option::as_ref) {
            Some(tensor) => tensor.address()?,
            None => inputs[0][0].address()?,
        };
        for number in 0..outputs {
            recorder.launch(&stream, &kernel, DIMS, &args(source, out(number)))?;
        }
        let captured = recorder.finish()?;
        let planned = |number: usize| {
            Ok::<_, ReplayError>(PlannedOutput::fresh(out(number), OUTPUT, Layout::of::<f32>(&[32])?))
        };
        let planned = (0..outputs).map(planned).collect::<Result<Vec<_>, _>>()?;
        let node = replayer.add(Recording::new("bench", captured).inputs(expected).outputs(planned))?;

        let engine = Engine::new(Arc::clone(device))?;
        let constant = inputs[0][0].clone();
        let function = engine.function("bench", move |cx| {
            let source = match cx.input(0) {
                Ok(tensor) => tensor.address()?,
                Err(_) => constant.address()?,
            };
            let mut made = Vec::with_capacity(outputs);
            for _ in 0..outputs {
                let out = cx.empty(Layout::of::<f32>(&[32])?)?;
                cx.launch(&kernel, DIMS, &args(source, out.address()?))?;
                made.push(out);
            }
            Ok(made)
        });
        let taken = Vec::with_capacity(outputs);
        let device = Arc::clone(device);
        let args = inputs[0].iter().take(staged).map(Arg::Kept).collect();
        let mut rig = Self {
            device,
            stream,
            bare,
            replayer,
            node,
            engine,
            function,
            inputs: given,
            args,
            taken,
            outputs,
            _memory: memory,
        };
        for _ in 0..4 {
            rig.call()?;
        }
        Ok(rig)
    }

    /// One replay, whose outputs are taken one by one or let go of in bulk.
    pub(crate) fn replay(&mut self, take: bool, other: bool) -> Result<(), Box<dyn Error>> {
        let call = Call::new(&self.stream, Step::new(1), self.inputs[usize::from(other)]);
        let mut replayed = self.replayer.replay(self.node, &call)?;
        if take {
            let taken = &mut self.taken;
            replayed.outputs.take_into(taken);
            self.taken.clear();
        }
        Ok(())
    }

    /// One call of the engine.
    pub(crate) fn call(&mut self) -> Result<(), Box<dyn Error>> {
        drop(self.function.calling().on(&self.stream).call(&mut self.args[..])?);
        Ok(())
    }

    /// Looks at a value of each way, so that no row is measured of work that was not done.
    pub(crate) fn check(&mut self) -> Result<(), Box<dyn Error>> {
        let expected = 31.0 + if self.inputs[0].is_empty() { 1.0 } else { 2.0 };
        self.replay(false, true)?;
        self.device.synchronize()?;
        let slab = self.replayer.slab(self.node).ok_or("no node")?;
        let last = slab.outputs().last().and_then(|output| output.block).ok_or("no outputs")?.0;
        let mut bytes = [0; 4];
        self.device.read(DevicePtr::new(last.get() + 31 * 4), &mut bytes)?;
        if f32::from_le_bytes(bytes) != expected {
            return Err(
                format!("{} outputs: {}, not {expected}", self.outputs, f32::from_le_bytes(bytes)).into()
            );
        }
        let calls = self.engine.stats()?.calls;
        if calls.eager > 0 || calls.recordings != 1 {
            return Err(format!("the engine did not replay: {calls:?}").into());
        }
        Ok(())
    }
}

fn args(x: DevicePtr, y: DevicePtr) -> Args {
    Args::new().read(x).write(y)
}

fn tensor(device: &CudaDevice, value: f32) -> Result<Tensor, Box<dyn Error>> {
    let segment = device.allocate(INPUT)?;
    device.write(segment.base(), &value.to_le_bytes().repeat(INPUT as usize / 4))?;
    let storage = Storage::outside(segment.base(), INPUT, Box::new(segment));
    Ok(Tensor::new(storage, Layout::of::<f32>(&[INPUT / 4])?, 0)?)
}
