//! Staging buffers from a pool, which tells a checking device what it hands out and takes back.

use std::sync::Arc;

use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory, Streams};
use graphgrove_pool::pool::{Owner, Pool, PoolConfig, Request, Session};
use graphgrove_replay::{
    Call, Error, Input, Method, NodeKey, Recorder, Recording, Replayer, Route, StagePlan,
};
use graphgrove_sim::{SimDevice, SimStream, kernels};
use graphgrove_storage::{InputPlan, InputSpec, Layout, Ledger, Step, Storage, Tensor};

use crate::workshop::{BOTH, N};

struct Rig {
    device: Arc<SimDevice>,
    stream: SimStream,
    pool: Pool<SimDevice>,
    replayer: Replayer<SimDevice>,
}

fn block(session: &Session<SimDevice>, bytes: u64) -> Storage {
    let block = session.allocate(Request::bytes(bytes).owner(Owner::Staging)).unwrap();
    Storage::pool_block(block.ptr(), bytes, Box::new(block))
}

impl Rig {
    fn new() -> Self {
        let device = Arc::new(SimDevice::new());
        let stream = device.create_stream().unwrap();
        let pool = Pool::new(Arc::clone(&device), &stream, PoolConfig::default()).unwrap();
        let replayer = Replayer::new(Arc::clone(&device), Ledger::keeping(pool.clone()));
        Self { device, stream, pool, replayer }
    }

    fn tensor(&self, value: f32) -> Tensor {
        let segment = self.device.allocate(4 * N).unwrap();
        self.device.write(segment.base(), &value.to_le_bytes().repeat(N as usize)).unwrap();
        let storage = Storage::outside(segment.base(), 4 * N, Box::new(segment));
        Tensor::new(storage, Layout::of::<f32>(&[N]).unwrap(), 0).unwrap()
    }

    fn value(&self, tensor: &Tensor) -> f32 {
        self.device.synchronize().unwrap();
        let mut bytes = [0; 4];
        self.device.read(tensor.address().unwrap(), &mut bytes).unwrap();
        f32::from_le_bytes(bytes)
    }

    /// Records a function that doubles its input in place, by way of a temporary that may have the memory of what came before.
    fn record(&mut self, method: Method, input: &Tensor, drops: bool) -> NodeKey {
        let (device, stream) = (Arc::clone(&self.device), self.stream.clone());
        let add = kernels::zip::<f32>(&device, "add", |a, b| a + b);
        let plan = InputPlan::new(&[InputSpec::read(input).mutated()], 16, |_| false).unwrap();
        let stage = StagePlan::new(&plan, &[Some(input)], |_| Route::Copied).unwrap();
        let inputs = [Input::kept(input)];
        let call = Call::new(&stream, Step::new(1), &inputs);
        let expected = self.replayer.expect(&plan, &call, &stage).unwrap();
        let session = self.pool.recording(&stream, None).unwrap();
        let allocate = |bytes| Ok::<_, Error>(block(&session, bytes));
        let mut recorder =
            Recorder::begin(&*device, &stream, method, stage, &[Some(input)], allocate).unwrap();
        let staged = recorder.passed()[0].take().unwrap();
        let at = staged.address().unwrap();
        let args = Args::new().read(at).read(at).write(at).scalar(N as u32);
        recorder.launch(&stream, &add, LaunchDims::for_elements(N as u32), &args).unwrap();
        let staged = Some(staged).filter(|_| !drops);
        let temporary = block(&session, 4 * N);
        assert_ne!(temporary.base().unwrap(), at, "what is copied back is kept until then");
        recorder.fill(&stream, temporary.base().unwrap(), 0, 4 * N).unwrap();
        drop((temporary, staged));
        recorder.bring_back().unwrap();
        session.settle();
        let captured = recorder.finish().unwrap();
        drop(session.finish(Vec::new()).unwrap());
        let node = self.replayer.add(Recording::new("double", captured).inputs(expected)).unwrap();
        drop(self.replayer.launch_recorded(node, &call, &[]).unwrap());
        node
    }
}

#[test]
fn a_replay_writes_to_no_buffer_that_the_pool_has_taken_back() {
    for method in BOTH {
        for drops in [false, true] {
            let mut rig = Rig::new();
            let (a, b) = (rig.tensor(1.0), rig.tensor(3.0));
            let node = rig.record(method, &a, drops);
            assert_eq!(rig.pool.stats().ranges.live, 0, "nothing of the staging outlives the recording");
            for input in [&a, &b, &b] {
                let inputs = [Input::kept(input)];
                drop(rig.replayer.replay(node, &Call::new(&rig.stream, Step::new(2), &inputs)).unwrap());
            }
            assert_eq!((rig.value(&a), rig.value(&b)), (4.0, 12.0), "{method:?}");
            rig.device.verdict().unwrap();
        }
    }
}
