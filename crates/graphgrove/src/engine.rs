//! The engine: asks the tree what a call does, and does it.

use std::sync::Arc;

use graphgrove_device::{Device, DevicePtr, GatherRow, NodeId as GraphNode};
use graphgrove_pool::pool::{Block, Checkpoint, Finished, Live, Owner, Pool, PoolConfig, Request, Session};
use graphgrove_pool::ranges::BlockId;
use graphgrove_tree::{
    Address, Call, CallKind, Decision, Epoch, FunctionId, FunctionSpec, LiveTable, Liveness, NodeId,
    ParamSetId, ParamVersion, Params, PathChange, Signature, Slot, SlotIndex, SlotValue, Tree,
};
use parking_lot::Mutex;
use slotmap::SecondaryMap;

use crate::context::{Buffer, Context, Source};
use crate::error::{Error, Result};
use crate::output::{Dropped, Output};

type Body<D> = dyn Fn(&Context<'_, D>) -> Result<Vec<Buffer<D>>> + Send + Sync;

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
    /// The outputs' names in the pool, addresses and lengths in bytes. Whether they are live is the tree's table to say.
    outputs: Vec<(BlockId, DevicePtr, u64)>,
    checkpoint: Checkpoint<D>,
    /// `None` for a warm-up.
    exec: Option<D::Exec>,
    gather: Option<GraphNode>,
}

impl<D: Device> Recorded<D> {
    fn new(memory: Finished<D>) -> Self {
        let name = |block: Block<D>| {
            let (at, bytes) = (block.ptr(), block.bytes());
            (block.into_id(), at, bytes)
        };
        let outputs = memory.outputs.into_iter().map(name).collect();
        Self { outputs, checkpoint: memory.checkpoint, exec: None, gather: None }
    }
}

struct State<D: Device> {
    tree: Tree,
    live: LiveTable,
    nodes: SecondaryMap<NodeId, Recorded<D>>,
    bodies: Vec<(String, Arc<Body<D>>)>,
    stats: CallStats,
}

struct Shared<D: Device> {
    device: Arc<D>,
    stream: D::Stream,
    dropped: Dropped,
    state: Mutex<State<D>>,
    /// The pool with nothing in it, from which roots are recorded.
    empty: Checkpoint<D>,
    pool: Pool<D>,
}

impl<D: Device> Drop for Shared<D> {
    fn drop(&mut self) {
        // Work may still use the memory that goes with the pool. A device that cannot wait any more is poisoned.
        let _ = self.device.synchronize_stream(&self.stream);
    }
}

/// Warms functions up, records and replays them, in one pool.
pub struct Engine<D: Device>(Arc<Shared<D>>);

/// A function that is registered with an engine.
pub struct Function<D: Device> {
    engine: Arc<Shared<D>>,
    id: FunctionId,
}

impl<D: Device> Engine<D> {
    /// An engine with an empty pool.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Pool`] if what the configuration asks for at the start cannot be had.
    pub fn new(device: D, config: PoolConfig) -> Result<Self> {
        let device = Arc::new(device);
        let stream = device.create_stream()?;
        let pool = Pool::new(Arc::clone(&device), &stream, config)?;
        let empty = pool.checkpoint()?;
        let state = State {
            tree: Tree::default(),
            live: LiveTable::new(),
            nodes: SecondaryMap::new(),
            bodies: Vec::new(),
            stats: CallStats::default(),
        };
        let (dropped, state) = (Dropped::default(), Mutex::new(state));
        Ok(Self(Arc::new(Shared { device, stream, dropped, state, empty, pool })))
    }

    /// Registers a function.
    pub fn function(
        &self,
        name: &str,
        body: impl Fn(&Context<'_, D>) -> Result<Vec<Buffer<D>>> + Send + Sync + 'static,
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

    /// The pool that all recordings share.
    pub fn pool(&self) -> &Pool<D> {
        &self.0.pool
    }

    /// How the calls so far ran.
    pub fn stats(&self) -> CallStats {
        self.0.state.lock().stats
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
    /// [`Error::Stale`] for an input that a later run has overwritten, [`Error::LiveOutputs`], [`Error::Pool`], [`Error::Device`].
    /// Whatever was begun is undone then, and the next call may record again.
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
        let decision = state.tree.decide(&call, &state.live)?;
        if let Some(end) = decision.path_change().and_then(PathChange::path_end) {
            let (function, outputs) = (state.body(function).0, end.slots.len().max(end.carried.len()));
            return Err(Error::LiveOutputs { function, outputs });
        }
        let ran = match decision {
            Decision::Replay(replay) => {
                if let Some(recorded) = state.nodes.get_mut(replay.node()) {
                    self.replay(recorded, inputs)?;
                }
                let ran = state.tree.replayed(replay, &call)?;
                state.stats.replays += 1;
                ran
            }
            Decision::WarmUp(plan) => {
                self.prepare(state, plan.restore(), plan.path_change())?;
                let body = state.body(function);
                let warm_up = state.tree.begin_warm_up(*plan)?;
                let recorded = self.warm_up(&body, inputs, parameters)?;
                let made = vec![graphgrove_tree::Output::fresh(); recorded.outputs.len()];
                let ran = state.tree.finish_warm_up(warm_up, made, true)?;
                state.nodes.insert(ran.node, recorded);
                state.stats.warm_ups += 1;
                ran
            }
            Decision::Record(plan) => {
                self.prepare(state, plan.restore(), plan.path_change())?;
                let body = state.body(function);
                let recording = state.tree.begin_recording(*plan, &state.live)?;
                let mut recorded = self.record(&body, inputs, parameters)?;
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
                ran
            }
            Decision::Eager(reason) => {
                let body = state.body(function);
                let context = self.context(Source::Device(Mutex::default()), places(inputs), parameters);
                // An eager run keeps its own memory, which a thin output cannot own: it is only run for its effects.
                drop((body.1)(&context)?);
                self.device.synchronize_stream(&self.stream)?;
                state.tree.ran_eagerly(&call, &reason)?;
                state.stats.eager += 1;
                return Ok(Vec::new());
            }
        };
        Ok(state.hand_out(function, ran.node, ran.epoch, &self.dropped))
    }

    /// Brings the pool to the state that new work below the path starts from.
    fn prepare(&self, state: &mut State<D>, restore: Option<NodeId>, change: &PathChange) -> Result<()> {
        let starts_anew = matches!(
            change,
            PathChange::Starts | PathChange::Over | PathChange::NewStep(_) | PathChange::LoopTurns(_)
        );
        if starts_anew {
            self.pool.restore(&self.empty, Live::AsRecorded)?;
        } else if let Some(recorded) = restore.and_then(|node| state.nodes.get(node)) {
            self.pool.restore(&recorded.checkpoint, Live::Except(&state.dead_blocks()))?;
        }
        Ok(())
    }

    fn context<'a>(
        &'a self,
        source: Source<'a, D>,
        inputs: Vec<DevicePtr>,
        parameters: &'a [DevicePtr],
    ) -> Context<'a, D> {
        Context { device: &self.device, stream: &self.stream, source, inputs, parameters }
    }

    fn replay(&self, recorded: &mut Recorded<D>, inputs: &[Input<'_>]) -> Result<()> {
        let Some(exec) = &mut recorded.exec else { return Ok(()) };
        if let Some(gather) = recorded.gather {
            let sources: Vec<DevicePtr> = staged(inputs).map(|(_, at, _)| at).collect();
            self.device.patch_gather(exec, gather, &sources)?;
        }
        self.device.launch_exec(exec, &self.stream)?;
        Ok(self.pool.replayed()?)
    }

    fn warm_up(
        &self,
        body: &(String, Arc<Body<D>>),
        inputs: &[Input<'_>],
        parameters: &[DevicePtr],
    ) -> Result<Recorded<D>> {
        let session = self.pool.warm_up(&self.stream)?;
        let context = self.context(Source::Pool(&session), places(inputs), parameters);
        let outputs = blocks(&body.0, (body.1)(&context)?)?;
        drop(context);
        Ok(Recorded::new(session.finish(outputs)?))
    }

    /// Captures a call: staged inputs are copied to blocks of the recording by a gather node first.
    fn record(
        &self,
        body: &(String, Arc<Body<D>>),
        inputs: &[Input<'_>],
        parameters: &[DevicePtr],
    ) -> Result<Recorded<D>> {
        let mut gather = None;
        let recorded =
            self.pool.record(&self.stream, None, |session: &Session<D>| -> Result<Vec<Block<D>>> {
                let (mut rows, mut from, mut staging, mut places) =
                    (Vec::new(), Vec::new(), Vec::new(), places(inputs));
                for (index, at, bytes) in staged(inputs) {
                    let request = Request::bytes(bytes).owner(Owner::Staging).label("staged input");
                    let block = session.allocate(request)?;
                    rows.push(GatherRow { to: block.ptr(), bytes });
                    from.push(at);
                    places[index] = block.ptr();
                    staging.push(block);
                }
                if !rows.is_empty() {
                    gather = self.device.gather(&self.stream, &rows, &from)?;
                }
                let context = self.context(Source::Pool(session), places, parameters);
                blocks(&body.0, (body.1)(&context)?)
            })?;
        let exec = Some(self.device.instantiate(&recorded.graph)?);
        Ok(Recorded { exec, gather, ..Recorded::new(recorded.memory) })
    }
}

/// Where the inputs of a call lie.
fn places(inputs: &[Input<'_>]) -> Vec<DevicePtr> {
    let place = |input: &Input<'_>| match input {
        Input::Staged(at, _) => *at,
        Input::Output(output) => output.at,
    };
    inputs.iter().map(place).collect()
}

/// The staged inputs of a call: which they are, where they lie, and their lengths in bytes.
fn staged(inputs: &[Input<'_>]) -> impl Iterator<Item = (usize, DevicePtr, u64)> {
    inputs.iter().enumerate().filter_map(|(index, input)| match input {
        Input::Staged(at, bytes) => Some((index, *at, *bytes)),
        Input::Output(_) => None,
    })
}

/// The blocks of the returned buffers.
fn blocks<D: Device>(function: &str, buffers: Vec<Buffer<D>>) -> Result<Vec<Block<D>>> {
    let foreign = || Error::ForeignBuffer { function: function.to_owned() };
    buffers.into_iter().map(|buffer| buffer.into_block().ok_or_else(foreign)).collect()
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
                    dead.push(*block);
                }
            }
        }
        dead
    }

    fn hand_out(
        &mut self,
        function: FunctionId,
        node: NodeId,
        epoch: Epoch,
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
