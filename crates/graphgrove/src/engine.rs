//! The engine: asks the tree what a call does, and does it.

use std::sync::Arc;

use graphgrove_device::{CaptureGuard, CaptureMode, Device, DevicePtr, GatherRow, NodeId as GraphNode};
use graphgrove_pool::ranges::{Block, BlockId, CheckpointId};
use graphgrove_tree::{
    Address, Call, CallKind, Decision, FunctionId, FunctionSpec, LiveTable, Liveness, NodeId, ParamSetId,
    ParamVersion, Params, PathChange, Signature, Slot, SlotIndex, SlotValue, Tree,
};
use parking_lot::Mutex;
use slotmap::SecondaryMap;

use crate::context::{Buffer, Context, Home, Source};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::output::{Dropped, Output};

type Body<D> = dyn for<'a> Fn(&Context<'a, D>) -> Result<Vec<Buffer<'a, D>>> + Send + Sync;

/// An input of a call that is not a parameter.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Memory from elsewhere, in bytes: copied to a recorded address before the work reads it.
    Staged(DevicePtr, u64),
    /// An output of an earlier call of this step.
    Output(&'a Output),
}

/// How the calls so far ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallStats {
    /// Calls that ran plainly inside the pool.
    pub warm_ups: u64,
    /// Calls that were recorded.
    pub recordings: u64,
    /// Calls that launched a recording.
    pub replays: u64,
    /// Calls that ran outside of the pool.
    pub eager: u64,
}

/// What a node needs to be launched, and what it left in the pool.
struct Recorded<D: Device> {
    outputs: Vec<(Block, DevicePtr, u64)>,
    /// `None` for a warm-up.
    exec: Option<D::Exec>,
    gather: Option<GraphNode>,
    checkpoint: CheckpointId,
}

struct State<D: Device> {
    tree: Tree,
    live: LiveTable,
    nodes: SecondaryMap<NodeId, Recorded<D>>,
    bodies: Vec<(String, Arc<Body<D>>)>,
    stats: CallStats,
}

struct Shared<D: Device> {
    device: D,
    stream: D::Stream,
    memory: Mutex<Memory<D>>,
    dropped: Dropped,
    state: Mutex<State<D>>,
}

/// Warms functions up, records and replays them, in one pool.
pub struct Engine<D: Device>(Arc<Shared<D>>);

/// A function that is registered with an engine.
pub struct Function<D: Device> {
    engine: Arc<Shared<D>>,
    id: FunctionId,
}

impl<D: Device> Engine<D> {
    /// An engine with a pool of so many bytes, allocated now.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has not that much memory.
    pub fn new(device: D, pool_bytes: u64) -> Result<Self> {
        let stream = device.create_stream()?;
        let memory = Mutex::new(Memory::new(&device, pool_bytes)?);
        let state = State {
            tree: Tree::default(),
            live: LiveTable::new(),
            nodes: SecondaryMap::new(),
            bodies: Vec::new(),
            stats: CallStats::default(),
        };
        let dropped = Dropped::default();
        Ok(Self(Arc::new(Shared { device, stream, memory, dropped, state: Mutex::new(state) })))
    }

    /// Registers a function.
    pub fn function(
        &self,
        name: &str,
        body: impl for<'a> Fn(&Context<'a, D>) -> Result<Vec<Buffer<'a, D>>> + Send + Sync + 'static,
    ) -> Function<D> {
        let mut state = self.0.state.lock();
        let id = state.tree.add_function(FunctionSpec::new(name));
        state.bodies.push((name.to_owned(), Arc::new(body)));
        Function { engine: Arc::clone(&self.0), id }
    }

    /// The stream that all calls run on.
    pub fn stream(&self) -> &D::Stream {
        &self.0.stream
    }

    /// How the calls so far ran.
    pub fn stats(&self) -> CallStats {
        self.0.state.lock().stats
    }

    /// Bytes of the pool that are in use, as the pool sees it: after replays, as of the last recording.
    pub fn live_bytes(&self) -> u64 {
        self.0.memory.lock().live_bytes()
    }

    /// The recordings as text, one line a node.
    pub fn outline(&self) -> String {
        self.0.state.lock().tree.outline()
    }

    /// Waits for all calls, and copies an output to the host.
    ///
    /// # Errors
    /// [`Error::Stale`] if a later run has taken the output's memory, [`Error::Device`].
    pub fn read(&self, output: &Output, data: &mut [u8]) -> Result<()> {
        self.0.state.lock().check_fresh(output)?;
        self.0.device.synchronize_stream(&self.0.stream)?;
        Ok(self.0.device.read(output.at, data)?)
    }
}

impl<D: Device> Function<D> {
    /// Calls the function with parameters, whose addresses are declared stable, and other inputs.
    ///
    /// # Errors
    /// [`Error::Stale`] for an input that a later run has overwritten, [`Error::Pool`], [`Error::Device`]. Whatever was begun is
    /// undone then, and the next call may record again.
    pub fn call(&self, parameters: &[DevicePtr], inputs: &[Input<'_>]) -> Result<Vec<Output>> {
        self.engine.call(self.id, parameters, inputs)
    }
}

impl<D: Device> Shared<D> {
    fn call(
        &self,
        function: FunctionId,
        parameters: &[DevicePtr],
        inputs: &[Input<'_>],
    ) -> Result<Vec<Output>> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.sweep(&self.dropped);
        let described = inputs.iter().map(|input| state.describe(input)).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<Address> = parameters.iter().map(|at| Address::new(at.get())).collect();
        let (set, version) = (ParamSetId::new(u64::from(function.get())), ParamVersion::new(0));
        let params = (!addresses.is_empty()).then_some(Params { set, version, addresses: &addresses });
        let call = Call { function, kind: CallKind::Inference, params, inputs: &described };
        let sources: Vec<(DevicePtr, u64)> = inputs.iter().map(source).collect();
        match state.tree.decide(&call, &state.live)? {
            Decision::Replay(replay) => {
                let node = replay.node();
                let staged: Vec<DevicePtr> = staged(inputs).map(|(_, (at, _))| at).collect();
                if let Some(recorded) = state.nodes.get_mut(node) {
                    if let (Some(exec), Some(gather)) = (&mut recorded.exec, recorded.gather) {
                        self.device.patch_gather(exec, gather, &staged)?;
                    }
                    if let Some(exec) = &mut recorded.exec {
                        self.device.launch_exec(exec, &self.stream)?;
                    }
                }
                let ran = state.tree.replayed(replay, &call)?;
                state.stats.replays += 1;
                Ok(state.hand_out(function, ran.node, ran.epoch, &self.dropped))
            }
            Decision::WarmUp(plan) => {
                self.prepare(state, plan.restore(), plan.path_change())?;
                let body = state.body(function);
                let warm_up = state.tree.begin_warm_up(*plan)?;
                let context = self.context(Source::Pool(&self.memory), sources, parameters);
                let outputs = take_blocks(&body.0, (body.1)(&context)?)?;
                let made = vec![graphgrove_tree::Output::fresh(); outputs.len()];
                let ran = state.tree.finish_warm_up(warm_up, made, true)?;
                let checkpoint = self.memory.lock().checkpoint();
                state.nodes.insert(ran.node, Recorded { outputs, exec: None, gather: None, checkpoint });
                state.stats.warm_ups += 1;
                Ok(state.hand_out(function, ran.node, ran.epoch, &self.dropped))
            }
            Decision::Record(plan) => {
                self.prepare(state, plan.restore(), plan.path_change())?;
                let body = state.body(function);
                let recording = state.tree.begin_recording(*plan, &state.live)?;
                let mut recorded = self.record(&body, inputs, sources, parameters)?;
                if let Some(exec) = &mut recorded.exec {
                    self.device.launch_exec(exec, &self.stream)?;
                }
                let made = vec![graphgrove_tree::Output::fresh(); recorded.outputs.len()];
                let ran = state.tree.finish_recording(recording, made, &state.live)?;
                for evicted in &ran.evicted {
                    state.nodes.remove(*evicted);
                }
                state.nodes.insert(ran.node, recorded);
                state.stats.recordings += 1;
                Ok(state.hand_out(function, ran.node, ran.epoch, &self.dropped))
            }
            Decision::Eager(reason) => {
                let body = state.body(function);
                let context = self.context(Source::Device(Mutex::default()), sources, parameters);
                // An eager run keeps its own memory, which a thin output cannot own: it is only run for its effects.
                drop((body.1)(&context)?);
                self.device.synchronize_stream(&self.stream)?;
                state.tree.ran_eagerly(&call, &reason)?;
                state.stats.eager += 1;
                Ok(Vec::new())
            }
        }
    }

    /// Brings the pool to the state that new work below the path starts from.
    fn prepare(&self, state: &mut State<D>, restore: Option<NodeId>, change: &PathChange) -> Result<()> {
        let starts_anew = matches!(
            change,
            PathChange::Starts | PathChange::Over | PathChange::NewStep(_) | PathChange::LoopTurns(_)
        );
        if starts_anew {
            return self.memory.lock().restore(None, &[]);
        }
        let Some(node) = restore else { return Ok(()) };
        let dead: Vec<BlockId> = state.dead_blocks();
        let checkpoint = state.nodes.get(node).map(|recorded| recorded.checkpoint);
        self.memory.lock().restore(checkpoint, &dead)
    }

    fn context<'a>(
        &'a self,
        source: Source<'a, D>,
        inputs: Vec<(DevicePtr, u64)>,
        parameters: &'a [DevicePtr],
    ) -> Context<'a, D> {
        Context { device: &self.device, stream: &self.stream, source, inputs, parameters }
    }

    /// Captures a call: staged inputs are copied to blocks of the recording by a gather node first.
    fn record(
        &self,
        body: &(String, Arc<Body<D>>),
        inputs: &[Input<'_>],
        mut sources: Vec<(DevicePtr, u64)>,
        parameters: &[DevicePtr],
    ) -> Result<Recorded<D>> {
        let capture = CaptureGuard::begin(&self.device, &self.stream, CaptureMode::ThreadLocal)?;
        let context = self.context(Source::Pool(&self.memory), Vec::new(), parameters);
        let (mut rows, mut from, mut buffers) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (at, bytes)) in staged(inputs) {
            let buffer = context.allocate(bytes)?;
            rows.push(GatherRow { to: buffer.at, bytes });
            from.push(at);
            sources[index] = (buffer.at, bytes);
            buffers.push(buffer);
        }
        let gather = if rows.is_empty() { None } else { self.device.gather(&self.stream, &rows, &from)? };
        let context = Context { inputs: sources, ..context };
        let made = (body.1)(&context)?;
        drop(buffers);
        let outputs = take_blocks(&body.0, made)?;
        let graph = capture.end()?;
        self.device.audit(&graph)?.refuse_memory_nodes()?;
        let exec = Some(self.device.instantiate(&graph)?);
        let checkpoint = self.memory.lock().checkpoint();
        Ok(Recorded { outputs, exec, gather, checkpoint })
    }
}

fn source(input: &Input<'_>) -> (DevicePtr, u64) {
    match input {
        Input::Staged(at, bytes) => (*at, *bytes),
        Input::Output(output) => (output.at, output.bytes),
    }
}

fn staged(inputs: &[Input<'_>]) -> impl Iterator<Item = (usize, (DevicePtr, u64))> {
    inputs.iter().enumerate().filter_map(|(index, input)| match input {
        Input::Staged(at, bytes) => Some((index, (*at, *bytes))),
        Input::Output(_) => None,
    })
}

/// Takes the blocks of the returned buffers over.
fn take_blocks<D: Device>(
    function: &str,
    buffers: Vec<Buffer<'_, D>>,
) -> Result<Vec<(Block, DevicePtr, u64)>> {
    let foreign = || Error::ForeignBuffer { function: function.to_owned() };
    buffers
        .into_iter()
        .map(|mut buffer| {
            let (at, bytes) = (buffer.at, buffer.bytes);
            match buffer.take_home() {
                Home::Pool { block, .. } => Ok((block, at, bytes)),
                Home::Elsewhere => Err(foreign()),
            }
        })
        .collect()
}

impl<D: Device> State<D> {
    fn body(&self, function: FunctionId) -> (String, Arc<Body<D>>) {
        self.bodies[function.get() as usize].clone()
    }

    /// Takes note of the outputs that were dropped.
    fn sweep(&mut self, dropped: &Dropped) {
        for value in dropped.lock().drain(..) {
            if self.tree.node(value.slot.node).is_some_and(|node| node.epoch() == value.epoch) {
                self.live.clear(value.slot);
            }
        }
    }

    fn check_fresh(&self, output: &Output) -> Result<()> {
        let slot = output.value.slot;
        let fresh = self.tree.node(slot.node).is_some_and(|node| node.epoch() == output.value.epoch);
        let on_path = self.tree.path().any(|node| node == slot.node);
        if fresh && on_path {
            return Ok(());
        }
        Err(Error::Stale { function: self.bodies[output.function.get() as usize].0.clone() })
    }

    fn describe(&self, input: &Input<'_>) -> Result<graphgrove_tree::Input> {
        match input {
            Input::Staged(_, bytes) => Ok(graphgrove_tree::Input::staged(Signature::new(*bytes))),
            Input::Output(output) => {
                self.check_fresh(output)?;
                Ok(graphgrove_tree::Input::managed(output.signature(), output.value))
            }
        }
    }

    /// The blocks of the path's nodes whose outputs have died.
    fn dead_blocks(&self) -> Vec<BlockId> {
        let mut dead = Vec::new();
        for node in self.tree.path() {
            let Some(recorded) = self.nodes.get(node) else { continue };
            for (index, (block, _, _)) in recorded.outputs.iter().enumerate() {
                let slot = SlotIndex::new(index as u32);
                if self.live.live_word(node, slot.word()) & slot.bit() == 0 {
                    dead.push(block.id);
                }
            }
        }
        dead
    }

    fn hand_out(
        &mut self,
        function: FunctionId,
        node: NodeId,
        epoch: graphgrove_tree::Epoch,
        dropped: &Dropped,
    ) -> Vec<Output> {
        let Some(recorded) = self.nodes.get(node) else { return Vec::new() };
        let outputs = recorded.outputs.iter().enumerate().map(|(index, &(_, at, bytes))| {
            let value = SlotValue { slot: Slot { node, index: SlotIndex::new(index as u32) }, epoch };
            Output { function, value, at, bytes, dropped: Arc::clone(dropped) }
        });
        let outputs: Vec<Output> = outputs.collect();
        for output in &outputs {
            self.live.set(output.value.slot);
        }
        outputs
    }
}
