//! A small workshop for the tests: a device, a pool, functions of one kernel, and the glue that an engine has.

use std::sync::Arc;

use parking_lot::Mutex;

use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory, Streams};
use graphgrove_replay::{
    Call, Error, Input, Method, NodeKey, Recorder, Recording, Replayed, Replayer, Route, StagePlan,
};
use graphgrove_sim::{SimDevice, SimKernel, SimSegment, kernels};
use graphgrove_storage::{
    InputPlan, InputSpec, Layout, Ledger, OutputSpec, Step, Storage, Tensor, plan_outputs,
};

pub(crate) const N: u64 = 64;

pub(crate) struct Shop {
    pub(crate) device: Arc<SimDevice>,
    pub(crate) stream: <SimDevice as Streams>::Stream,
    pub(crate) replayer: Replayer<SimDevice>,
    pub(crate) method: Method,
    pub(crate) route: Route,
    add: SimKernel,
    /// Memory that stands in for the pool's: it stays when its blocks are given back, and none is used twice.
    pool: Mutex<Vec<Arc<SimSegment>>>,
}

impl Shop {
    pub(crate) fn new(method: Method) -> Self {
        let device = Arc::new(SimDevice::new());
        let stream = device.create_stream().unwrap();
        let replayer = Replayer::new(Arc::clone(&device), Ledger::new());
        let add = kernels::zip::<f32>(&device, "add", |a, b| a + b);
        Self { device, stream, replayer, method, route: Route::Copied, add, pool: Mutex::default() }
    }

    /// A tensor of the caller's own.
    pub(crate) fn tensor(&self, value: f32) -> Tensor {
        let segment = self.device.allocate(4 * N).unwrap();
        let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), N as usize).flatten().collect();
        self.device.write(segment.base(), &bytes).unwrap();
        let storage = Storage::outside(segment.base(), 4 * N, Box::new(segment));
        Tensor::new(storage, Layout::of::<f32>(&[N]).unwrap(), 0).unwrap()
    }

    pub(crate) fn value(&self, tensor: &Tensor) -> f32 {
        self.device.synchronize().unwrap();
        let mut bytes = [0; 4];
        self.device.read(tensor.address().unwrap(), &mut bytes).unwrap();
        f32::from_le_bytes(bytes)
    }

    /// A block for the function that is being recorded.
    pub(crate) fn block(&self) -> Storage {
        let segment = Arc::new(self.device.allocate(4 * N).unwrap());
        self.pool.lock().push(Arc::clone(&segment));
        Storage::pool_block(segment.base(), 4 * N, Box::new(segment))
    }

    /// Records the sum of all inputs, and runs it once.
    pub(crate) fn record_sum(
        &mut self,
        parent: Option<NodeKey>,
        inputs: &[Input<'_, SimDevice>],
    ) -> Result<Replayed, Error> {
        let device = Arc::clone(&self.device);
        let stream = self.stream.clone();
        let call = Call::new(&stream, Step::new(1), inputs);
        let specs: Vec<InputSpec<'_>> =
            inputs.iter().map(|input| InputSpec::read(input.tensor().unwrap())).collect();
        let tensors: Vec<_> = inputs.iter().map(Input::tensor).collect();
        let replayer = &self.replayer;
        let plan = InputPlan::new(&specs, 16, |value| replayer.place_of(value.slab).is_some())?;
        let stage = StagePlan::new(&plan, &tensors, |_| self.route)?;
        let expected = self.replayer.expect(&plan, &call, &stage)?;
        let buffers: Vec<Storage> = stage.buffers().map(|_| self.block()).collect();
        let dead = self.replayer.dead(usize::MAX);
        let out = self.block();
        let mut recorder = Recorder::begin(&*device, &stream, self.method, stage, &tensors, buffers)?;
        let passed: Vec<Tensor> = recorder.passed().iter().flatten().cloned().collect();
        let output = Tensor::new(out, Layout::of::<f32>(&[N])?, 0)?;
        recorder.fill(&stream, output.address()?, 0, 4 * N)?;
        for tensor in &passed {
            let args = Args::new()
                .read(tensor.address()?)
                .read(output.address()?)
                .write(output.address()?)
                .scalar(N as u32);
            recorder.launch(&stream, &self.add, LaunchDims::for_elements(N as u32), &args)?;
        }
        let captured = recorder.finish()?;
        let passed: Vec<_> = passed.into_iter().map(Some).collect();
        let outputs = plan_outputs(&plan, &passed, &[OutputSpec::returned(&output)], |_| true)?;
        drop(passed);
        let after = self.replayer.dead(usize::MAX);
        let node = self.replayer.add(
            Recording::new("sum", captured).below(parent).inputs(expected).dead(dead, after).outputs(outputs),
        )?;
        let (replayed, owners) = self.replayer.launch_recorded(node, &call, &[Some(output)])?;
        drop(owners);
        Ok(replayed)
    }
}
