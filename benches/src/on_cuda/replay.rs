//! One function of tiny kernels, recorded three times: bare, for the replay layer, and by an engine.
//!
//! There are as many kernels as outputs, and at least as many as inputs, so that every input is read by one.

use std::error::Error;
use std::sync::Arc;

use graphgrove::{Arg, Engine, Function};
use graphgrove_cuda::{CudaDevice, Kernel, Stream};
use graphgrove_device::{DevicePtr, Memory, SegmentMemory, Streams};
use graphgrove_replay::{
    Call, Error as ReplayError, Input, Method, NodeKey, Recorder, Recording, Replayer, Route, StagePlan,
};
use graphgrove_storage::{InputPlan, InputSpec, Ledger, PlannedOutput, Step, Storage, Tensor};

use crate::bare::{Bare, BareKernel};
use crate::kernel::{DIMS, INPUT, OUTPUT, args, load, output, tensor};

pub(crate) struct Rig {
    device: Arc<CudaDevice>,
    pub(crate) stream: Stream,
    pub(crate) bare: Bare,
    replayer: Replayer<CudaDevice>,
    node: NodeKey,
    engine: Engine<CudaDevice>,
    function: Function<CudaDevice>,
    /// Two sets of inputs, so that every address can change. They are leaked, so that describing a call takes no time of its own.
    inputs: [&'static [Input<'static, CudaDevice>]; 2],
    /// The same as a call of the engine takes them.
    args: [Vec<Arg<'static, CudaDevice>>; 2],
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
        let engine = Engine::new(Arc::clone(device))?;
        let stream = engine.stream().clone();
        let kernel: Kernel = load(device)?;
        let kernels = outputs.max(staged);
        let memory = device.allocate((outputs as u64 + 1) * OUTPUT + (staged as u64 + 1) * INPUT)?;
        let out = |number: usize| DevicePtr::new(memory.base().get() + number as u64 * OUTPUT);
        let buffer = |number: usize| DevicePtr::new(out(outputs + 1).get() + number as u64 * INPUT);
        let inputs = [1.0_f32, 2.0]
            .map(|value| (0..staged.max(1)).map(|_| tensor(device, value)).collect::<Result<Vec<_>, _>>());
        let [first, second] = inputs;
        let inputs: [&'static [Tensor]; 2] = [first?.leak(), second?.leak()];

        let launches: Vec<_> = (0..kernels)
            .map(|number| Ok((inputs[0][number % staged.max(1)].address()?, out(number % outputs))))
            .collect::<Result<_, graphgrove_storage::Error>>()?;
        let bare = Bare::record(&stream, BareKernel::load()?, &launches)?;

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
        let sources: Vec<_> = match recorder.passed().len() {
            0 => vec![inputs[0][0].address()?],
            _ => recorder
                .passed()
                .iter()
                .flatten()
                .map(Tensor::address)
                .collect::<Result<_, graphgrove_storage::Error>>()?,
        };
        for number in 0..kernels {
            let args = args(sources[number % sources.len()], out(number % outputs));
            recorder.launch(&stream, &kernel, DIMS, &args)?;
        }
        let captured = recorder.finish()?;
        let planned =
            |number: usize| Ok::<_, ReplayError>(PlannedOutput::fresh(out(number), OUTPUT, output()?));
        let planned = (0..outputs).map(planned).collect::<Result<Vec<_>, _>>()?;
        let node = replayer.add(Recording::new("bench", captured).inputs(expected).outputs(planned))?;

        let constant = inputs[0][0].clone();
        let function = engine.function("bench", move |cx| {
            let mut made = Vec::with_capacity(outputs);
            for _ in 0..outputs {
                made.push(cx.empty(output()?)?);
            }
            for number in 0..kernels {
                let source = match staged {
                    0 => constant.address()?,
                    _ => cx.input(number % staged)?.address()?,
                };
                cx.launch(&kernel, DIMS, &args(source, made[number % outputs].address()?))?;
            }
            Ok(made)
        });
        let taken = Vec::with_capacity(outputs);
        let device = Arc::clone(device);
        let args = inputs.map(|inputs| inputs.iter().take(staged).map(Arg::Kept).collect());
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
            rig.call(false, false)?;
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

    /// One call of the engine, whose outputs are taken one by one or let go of in bulk.
    pub(crate) fn call(&mut self, take: bool, other: bool) -> Result<(), Box<dyn Error>> {
        let args = &mut self.args[usize::from(other)];
        let mut outputs = self.function.call(&mut args[..])?;
        if take {
            outputs.take_into(&mut self.taken);
            self.taken.clear();
        }
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
