//! One world: a device, a pool, the nodes, and the glue between them that an engine has.

use std::collections::HashMap;
use std::sync::Arc;

use graphgrove_device::{Memory, SegmentMemory, Streams};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Checkpoint, Growth, Live, Pool, PoolConfig};
use graphgrove_pool::ranges::BlockId;
use graphgrove_replay::{Call, Error, Input, Method, Mismatch, NodeKey, ParamSet, Replayed, Replayer};
use graphgrove_sim::{SimDevice, SimStream};
use graphgrove_storage::{Layout, Ledger, SavedOutputs, SlotIndex, Step, Storage, Tensor};

use crate::function::{Cut, Fitted, Function, N, PARAMS, Resolved};
use crate::recording::Kernels;

/// How a world deals with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Replays(Method),
    RecordsAlways,
}

/// An input as a world is given it.
pub(crate) enum Arg<'a> {
    Kept(&'a Tensor),
    GivenUp(Tensor),
    Value(u64),
}

impl Arg<'_> {
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Kept(tensor) => Some(tensor),
            Self::GivenUp(tensor) => Some(tensor),
            Self::Value(_) => None,
        }
    }

    pub(crate) fn input(&self) -> Input<'_, SimDevice> {
        match self {
            Self::Kept(tensor) => Input::kept(tensor),
            Self::GivenUp(tensor) => Input::given_up(tensor),
            Self::Value(value) => Input::Value(*value),
        }
    }
}

/// One call, the same in all worlds.
pub(crate) struct Asked<'a> {
    pub(crate) number: usize,
    pub(crate) function: &'a Function,
    pub(crate) resolved: &'a Resolved,
    /// How many nodes of the path it runs behind.
    pub(crate) place: usize,
    pub(crate) aside: bool,
    pub(crate) step: Step,
}

/// What a call did, and what it left.
pub(crate) struct Outcome {
    pub(crate) did: Did,
    /// Why each node that was tried does not fit.
    pub(crate) tried: Vec<(NodeKey, Mismatch)>,
    pub(crate) outputs: Vec<Option<Tensor>>,
    pub(crate) saved: Option<SavedOutputs>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Did {
    Replayed(NodeKey),
    Recorded(NodeKey),
    /// Something behind the place is live.
    Busy,
    Refused(Error),
}

/// What belongs to a node outside of the replayer.
pub(crate) struct NodeMemory {
    pub(crate) checkpoint: Checkpoint<SimDevice>,
    /// The blocks of its slots.
    pub(crate) blocks: Vec<(SlotIndex, BlockId)>,
}

pub(crate) struct World {
    pub(crate) device: Arc<SimDevice>,
    pub(crate) home: SimStream,
    side: SimStream,
    pub(crate) pool: Pool<SimDevice>,
    pub(crate) replayer: Replayer<SimDevice>,
    pub(crate) way: Way,
    pub(crate) params: ParamSet,
    pub(crate) constant: Tensor,
    pub(crate) kernels: Kernels,
    root: Checkpoint<SimDevice>,
    pub(crate) memory: HashMap<NodeKey, NodeMemory>,
    children: HashMap<(Option<NodeKey>, usize), Vec<NodeKey>>,
    /// In the order in which they were recorded.
    pub(crate) nodes: Vec<NodeKey>,
    /// Whether the pool's state is that which the last recording left.
    is_fresh: bool,
    /// The caller's own memory that work in flight may still use.
    leaving: Vec<Tensor>,
}

impl World {
    pub(crate) fn new(way: Way, seed: u64) -> Self {
        let builder = SimDevice::builder().seed(seed).granularity(4096).memory_bytes(8 << 20);
        let device = Arc::new(builder.build());
        let [home, side] = std::array::from_fn(|_| device.create_stream().unwrap());
        let growth = Growth { small_limit: 1024, small: 8192, large: 16384, unit: 4096 };
        let config = PoolConfig { growth, ..PoolConfig::default() };
        let pool = Pool::new(Arc::clone(&device), &home, config).unwrap();
        let replayer = Replayer::new(Arc::clone(&device), Ledger::keeping(pool.clone()));
        let root = pool.checkpoint().unwrap();
        let params = (0..PARAMS).map(|param| own(&device, 100 * param as i32, N, 0)).collect();
        Self {
            constant: own(&device, 1000, N, 0),
            params: ParamSet::new(params).unwrap(),
            kernels: Kernels::new(&device),
            device,
            home,
            side,
            pool,
            replayer,
            way,
            root,
            memory: HashMap::new(),
            children: HashMap::new(),
            nodes: Vec::new(),
            is_fresh: true,
            leaving: Vec::new(),
        }
    }

    /// A tensor of the caller's own, so many elements into its memory.
    pub(crate) fn own(&self, first: i32, elements: u64, from: u64) -> Tensor {
        own(&self.device, first, elements, from)
    }

    pub(crate) fn write(&mut self, tensor: &Tensor, first: i32) {
        self.settle();
        let elements = tensor.layout().elements() as i32;
        let bytes: Vec<u8> = (0..elements).flat_map(|i| first.wrapping_add(i).to_le_bytes()).collect();
        self.device.write(tensor.address().unwrap(), &bytes).unwrap();
    }

    /// The elements of a tensor; none if it is stale.
    pub(crate) fn values(&self, tensor: &Tensor) -> Option<Vec<i32>> {
        let start = tensor.address().ok()?;
        let element = |i: u64| {
            let mut bytes = [0; 4];
            let at = start.checked_add(4 * i * tensor.strides()[0]).unwrap();
            self.device.read(at, &mut bytes).unwrap();
            i32::from_le_bytes(bytes)
        };
        Some((0..tensor.layout().elements()).map(element).collect())
    }

    pub(crate) fn stream(&self, aside: bool) -> &SimStream {
        if aside { &self.side } else { &self.home }
    }

    /// Drops a handle: at once, unless it is one of memory that must not be freed before the device is done.
    pub(crate) fn drop(&mut self, tensor: Tensor) {
        if let Ok(None) = tensor.storage().slot_value() {
            self.leaving.push(tensor);
        }
    }

    /// Waits for all work.
    pub(crate) fn settle(&mut self) {
        self.device.synchronize().unwrap();
        self.leaving.clear();
    }

    pub(crate) fn call(&mut self, asked: &Asked<'_>, mut args: Vec<Arg<'_>>) -> Outcome {
        let outcome = self.replay_or_record(asked, &mut args);
        for arg in args {
            if let Arg::GivenUp(tensor) = arg {
                self.drop(tensor);
            }
        }
        outcome
    }

    fn replay_or_record(&mut self, asked: &Asked<'_>, args: &mut [Arg<'_>]) -> Outcome {
        let parent = asked.place.checked_sub(1).map(|place| self.replayer.path()[place]);
        let known = match self.way {
            Way::Replays(_) => self.children.get(&(parent, asked.number)).cloned().unwrap_or_default(),
            Way::RecordsAlways => Vec::new(),
        };
        let mut tried = Vec::new();
        for node in known {
            match self.replay(asked, node, args) {
                Ok(Replayed { mut outputs, saved, .. }) => {
                    self.pool.replayed().unwrap();
                    self.is_fresh = false;
                    let outputs = outputs.take_all().collect();
                    return Outcome { did: Did::Replayed(node), tried, outputs, saved };
                }
                Err(Error::Mismatch(mismatch)) => tried.push((node, mismatch)),
                Err(error) => return refused(error, tried),
            }
        }
        if self.is_live_behind(asked.place) {
            return Outcome { did: Did::Busy, tried, outputs: Vec::new(), saved: None };
        }
        match self.record(asked, parent, args) {
            Ok((node, Replayed { mut outputs, saved, .. })) => {
                self.children.entry((parent, asked.number)).or_default().push(node);
                self.nodes.push(node);
                self.is_fresh = true;
                let outputs = outputs.take_all().collect();
                Outcome { did: Did::Recorded(node), tried, outputs, saved }
            }
            Err(error) => refused(error, tried),
        }
    }

    fn replay(&mut self, asked: &Asked<'_>, node: NodeKey, args: &[Arg<'_>]) -> Result<Replayed, Error> {
        let inputs: Vec<_> = args.iter().map(Arg::input).collect();
        let stream = self.stream(asked.aside).clone();
        let params = asked.function.has_params.then_some(&self.params);
        let call = Call { params, ..Call::new(&stream, asked.step, &inputs) };
        self.replayer.replay(node, &call)
    }

    fn is_live_behind(&self, place: usize) -> bool {
        self.replayer.path()[place..].iter().any(|node| self.replayer.slab(*node).unwrap().any_live())
    }

    /// Brings the pool to the state in which the next recording begins: that of the path's last node, with what is live.
    pub(crate) fn restore(&mut self) -> Result<(), PoolError> {
        let home = self.home.clone();
        self.replayer.enter(&home).unwrap();
        let path = self.replayer.path();
        let mut live = Vec::new();
        let mut dead = Vec::new();
        for node in path {
            let slab = self.replayer.slab(*node).unwrap();
            for (slot, block) in &self.memory[node].blocks {
                if slab.is_live(*slot) { live.push(*block) } else { dead.push(*block) }
            }
        }
        let checkpoint = path.last().map_or(&self.root, |node| &self.memory[node].checkpoint);
        let is_end = self.is_fresh && path.last() == self.nodes.last();
        let mut given_back = None;
        if is_end {
            // Nothing was replayed since: what has died is given back as it would be without any checkpoint.
            for block in dead {
                if self.pool.is_live(block) {
                    self.pool.release(block);
                }
            }
            given_back = Some(self.pool.spans());
        }
        let _moved = self.pool.restore(checkpoint, Live::Only(&live))?;
        if let Some(given_back) = given_back {
            assert_eq!(given_back, self.pool.spans(), "recording leaves the pool as replay and restore do");
        }
        Ok(())
    }

    pub(crate) fn end_step(&mut self, step: Step) {
        self.replayer.end_path(step, None).unwrap();
    }
}

fn refused(error: Error, tried: Vec<(NodeKey, Mismatch)>) -> Outcome {
    Outcome { did: Did::Refused(error), tried, outputs: Vec::new(), saved: None }
}

fn own(device: &SimDevice, first: i32, elements: u64, from: u64) -> Tensor {
    let bytes: Vec<u8> = (0..elements as i32).flat_map(|i| first.wrapping_add(i).to_le_bytes()).collect();
    let segment = device.allocate(bytes.len() as u64).unwrap();
    device.write(segment.base(), &bytes).unwrap();
    let storage = Storage::outside(segment.base(), bytes.len() as u64, Box::new(segment));
    Tensor::new(storage, Layout::of::<i32>(&[N]).unwrap(), 4 * from).unwrap()
}

/// The view of a tensor that a cut is.
pub(crate) fn cut(tensor: &Tensor, cut: Cut) -> Result<Tensor, graphgrove_storage::Error> {
    let Fitted { from, count, step } = cut.fit(tensor.layout().elements());
    match step {
        0 => tensor.slice(0, from..from + 1, 1)?.expand(&[count]),
        _ => tensor.slice(0, from..from + (count - 1) * step + 1, step),
    }
}
