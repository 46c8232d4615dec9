//! A grove: the trees of one pool, with all that their nodes need, and the way of a call through it.

use std::collections::HashMap;
use std::sync::Arc;

use graphgrove_device::{Device, StreamHandle};
use graphgrove_pool::pool::{Checkpoint, Live, Pool, PoolConfig, PoolStats};
use graphgrove_pool::ranges::BlockId;
use graphgrove_replay::{Call, CallOutputs, Method, NodeKey, ParamSet, Replayed, Replayer};
use graphgrove_storage::{Ledger, Slab, SlabId, SlotIndex, Step, Storage};
use graphgrove_tree::{
    CallKind, Decision, FunctionId, FunctionSpec, Limits, Liveness, NodeId, Options, PendingRule, Ran,
    TokenId, Tree,
};
use slotmap::SecondaryMap;

use crate::budget::{Budget, Denials};
use crate::clock::EngineClock;
use crate::describe::Described;
use crate::draws::RecordedDraws;
use crate::function::FunctionData;
use crate::kit::Kit;
use crate::known::WarmUps;
use crate::layouts::{Layouts, Place};
use crate::observer::Watch;
use crate::outputs::Saved;
use crate::reasons::Reasons;
use crate::{Arg, CallStats, Error, FunctionName, How, Layers, Outputs, Result};

/// How a grove is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroveOptions {
    /// Whether it is that of all functions, and not of one.
    pub(crate) is_shared: bool,
    /// Which grove of the engine it is, those that are gone counted.
    pub(crate) serial: u64,
    pub(crate) method: Method,
    pub(crate) layers: Layers,
    pub(crate) limits: Limits,
    pub(crate) pending: PendingRule,
    pub(crate) strict: bool,
    pub(crate) plan_memory: bool,
    pub(crate) pool: PoolConfig,
}

/// What a grove has in common with all others.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) clock: EngineClock,
    pub(crate) budget: Arc<Budget>,
}

/// One call, apart from its inputs.
pub(crate) struct Request<'c, D: Device> {
    pub(crate) function: FunctionId,
    pub(crate) data: &'c FunctionData<D>,
    /// Whether it runs plainly whatever the tree would say.
    pub(crate) is_plain: bool,
    pub(crate) kind: CallKind,
    pub(crate) params: Option<&'c ParamSet>,
    pub(crate) stream: &'c D::Stream,
    /// How many inputs are what the forward has saved.
    pub(crate) saved: usize,
    pub(crate) kit: &'c Kit<D>,
}

/// What a call leaves.
pub(crate) struct Done {
    pub(crate) outputs: Outputs,
    pub(crate) saved: Saved,
    pub(crate) token: Option<TokenId>,
    /// The grove that it ran in.
    pub(crate) grove: u64,
}

/// A node of the tree as the grove holds it.
pub(crate) struct Held<D: Device> {
    /// Its recording; none for a warm-up.
    pub(crate) key: Option<NodeKey>,
    /// The outputs of a warm-up; those of a recording are the replayer's.
    pub(crate) slab: Option<Slab>,
    pub(crate) checkpoint: Checkpoint<D>,
    pub(crate) blocks: Vec<(SlotIndex, BlockId)>,
    pub(crate) returned: usize,
    pub(crate) saved: Arc<[SlotIndex]>,
    /// What each run draws.
    pub(crate) draws: Box<[RecordedDraws]>,
    /// Whether the tree has to see a replay's inputs if they are outputs of the path: they may be copied, and lent out again.
    pub(crate) is_watched: bool,
    /// Its place among recordings whose memory was laid out together.
    pub(crate) place: Option<Place>,
}

pub(crate) struct Grove<D: Device> {
    pub(crate) device: Arc<D>,
    /// Where captures and plain work run.
    pub(crate) stream: D::Stream,
    pub(crate) options: GroveOptions,
    pub(crate) tree: Tree,
    pub(crate) nodes: SecondaryMap<NodeId, Held<D>>,
    pub(crate) by_slab: HashMap<SlabId, NodeId>,
    pub(crate) known: WarmUps,
    pub(crate) layouts: Layouts,
    pub(crate) stats: CallStats,
    pub(crate) reasons: Reasons,
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) clock: EngineClock,
    pub(crate) budget: Arc<Budget>,
    pub(crate) denials: Denials,
    /// Whether the call that is under way reads copies of its inputs.
    pub(crate) has_copied_inputs: bool,
    /// The functions, by their numbers in the tree.
    pub(crate) names: Vec<FunctionName>,
    /// Whether the pool knows that replays have run.
    pub(crate) pool_knows: bool,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) replayer: Replayer<D>,
    /// The nodes of whose outputs copies were made at the end of a path, and how many are left as far as is known.
    pub(crate) copied: Vec<(NodeId, usize)>,
    /// Memory of the plain pool that work on other streams may still read, where nothing could be ordered behind that work.
    pub(crate) lent: Vec<Storage>,
    /// The pool with nothing in it, from which roots start.
    pub(crate) empty: Checkpoint<D>,
    pub(crate) plain: Pool<D>,
    pub(crate) pool: Pool<D>,
}

/// Which slots are live, as the tree asks.
pub(crate) struct Lives<'a, D: Device> {
    pub(crate) nodes: &'a SecondaryMap<NodeId, Held<D>>,
    pub(crate) replayer: &'a Replayer<D>,
    pub(crate) ledger: &'a Ledger,
}

impl<D: Device> Liveness for Lives<'_, D> {
    #[inline]
    fn live_word(&self, node: NodeId, word: u32) -> u64 {
        let Some(held) = self.nodes.get(node) else { return 0 };
        let slab = match held.key {
            Some(key) => self.replayer.slab(key),
            None => held.slab.as_ref(),
        };
        slab.map_or(0, |slab| slab.live_word(word))
    }

    #[inline]
    fn all_dead(&self) -> bool {
        self.ledger.all_dead()
    }
}

macro_rules! lives {
    ($grove:expr) => {
        $crate::grove::Lives { nodes: &$grove.nodes, replayer: &$grove.replayer, ledger: &$grove.ledger }
    };
}
pub(crate) use lives;

/// Whether an input is in a slot.
#[cold]
fn is_slot<D: Device>(arg: &Arg<'_, D>) -> bool {
    arg.tensor().is_some_and(|tensor| tensor.storage().slot_value().is_ok_and(|value| value.is_some()))
}

impl<D: Device> Grove<D> {
    pub(crate) fn new(
        device: &Arc<D>,
        stream: &D::Stream,
        plain: &Pool<D>,
        options: GroveOptions,
        around: Around,
    ) -> Result<Self> {
        let pool = Pool::new(Arc::clone(device), stream, options.pool)?;
        let empty = pool.checkpoint()?;
        // Handles may outlive the grove, and the memory under them with the pool.
        let ledger = Ledger::keeping(pool.clone());
        let tree = Tree::new(Options { limits: options.limits, pending: options.pending, copy_back: true });
        Ok(Self {
            device: Arc::clone(device),
            stream: stream.clone(),
            options,
            tree,
            nodes: SecondaryMap::new(),
            by_slab: HashMap::new(),
            known: WarmUps::remembering(options.limits.warm_signatures as usize),
            layouts: Layouts::remembering(&options.limits),
            stats: CallStats::default(),
            reasons: Reasons::default(),
            watch: around.watch,
            clock: around.clock,
            budget: around.budget,
            denials: Denials::default(),
            has_copied_inputs: false,
            names: Vec::new(),
            pool_knows: false,
            replayer: Replayer::new(Arc::clone(device), Arc::clone(&ledger)),
            ledger,
            copied: Vec::new(),
            lent: Vec::new(),
            empty,
            plain: plain.clone(),
            pool,
        })
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.options.is_shared
    }

    pub(crate) fn serial(&self) -> u64 {
        self.options.serial
    }

    pub(crate) fn add_function(&mut self, data: &FunctionData<D>) -> FunctionId {
        self.names.push(data.event_name());
        let spec = FunctionSpec::new(&*data.name).at_new_step(data.options.old_outputs);
        let spec = match &data.options.only_for {
            Some(values) => spec.only_for(values.iter().cloned()),
            None => spec,
        };
        self.tree.add_function(if data.options.mutates_params { spec.mutates_params() } else { spec })
    }

    /// The stream of its last work.
    pub(crate) fn last_stream(&self) -> Option<D::Stream> {
        self.replayer.last_stream().cloned()
    }

    /// Orders its next work behind what a stream was given so far.
    pub(crate) fn wait_for(&mut self, stream: &D::Stream) -> Result<()> {
        Ok(self.replayer.used_on(stream)?)
    }

    pub(crate) fn begin_step(&mut self) {
        self.tree.begin_step();
        self.sweep();
    }

    pub(crate) fn discard(&mut self, token: TokenId) {
        self.tree.discard_backward(token);
        self.sweep();
    }

    pub(crate) fn add_to(&self, all: &mut CallStats) {
        let CallStats { warm_ups, recordings, replays, predicted, eager, failures, copied_out } = self.stats;
        all.warm_ups += warm_ups;
        all.recordings += recordings;
        all.replays += replays;
        all.predicted += predicted;
        all.eager += eager;
        all.failures += failures;
        all.copied_out += copied_out;
    }

    pub(crate) fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    pub(crate) fn nodes(&self) -> usize {
        self.tree.recordings()
    }

    pub(crate) fn pending_backwards(&self) -> usize {
        self.tree.pending_backwards()
    }

    pub(crate) fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    pub(crate) fn outline(&self) -> String {
        self.tree.outline()
    }

    pub(crate) fn dot(&self) -> String {
        self.tree.dot()
    }

    /// Runs one call. Inlined always: it is called in several places, of which one is on the way of every replay.
    #[inline(always)]
    pub(crate) fn call(&mut self, request: &Request<'_, D>, args: &mut [Arg<'_, D>]) -> Result<Done> {
        let done = self.run(request, args);
        if done.is_err() {
            self.settle_failed(request);
        }
        if request.stream.id() != self.stream.id() {
            self.come_back(args);
        }
        done
    }

    /// After a call that failed: what comes next, here or in another grove, is ordered behind all that the call has enqueued before it
    /// did, and behind what it was to wait for.
    #[cold]
    #[inline(never)]
    fn settle_failed(&mut self, request: &Request<'_, D>) {
        // A device that cannot order them any more says so at the next call too.
        let stream = self.stream.clone();
        let _ = self.bridge(request.stream, &stream);
        let _ = self.replayer.enter(&stream);
    }

    #[inline]
    fn run(&mut self, request: &Request<'_, D>, args: &mut [Arg<'_, D>]) -> Result<Done> {
        if request.is_plain {
            return self.decide_and_note(request, args);
        }
        match self.predicted(request, args) {
            Ok(done) => Ok(done),
            Err(Some(error)) => Err(error),
            Err(None) => self.decide_and_note(request, args),
        }
    }

    /// Replays what followed the last time, if it is this call; no error says that it is not.
    #[inline(always)]
    fn predicted(
        &mut self,
        request: &Request<'_, D>,
        args: &[Arg<'_, D>],
    ) -> std::result::Result<Done, Option<Error>> {
        let Some(node) = self.tree.predicted() else { return Err(None) };
        let Some(known) = self.tree.node(node) else { return Err(None) };
        if known.function() != request.function || known.phase() != request.kind.phase() {
            return Err(None);
        }
        let lives = lives!(self);
        if !self.tree.may_follow(node, &lives) {
            return Err(None);
        }
        let is_seen = |held: &&Held<D>| !held.is_watched || !args.iter().any(is_slot);
        let Some(held) = self.nodes.get(node).filter(is_seen) else { return Err(None) };
        let Some(key) = held.key else { return Err(None) };
        let call = self.replay_call(request, known.parent(), args);
        let Ok(checked) = self.replayer.check(key, &call) else { return Err(None) };
        if !self.pool_knows {
            self.settle_pool();
        }
        let replayed = if held.draws.is_empty() {
            self.replayer.launch(checked, &call).map_err(Error::from)?
        } else {
            self.launch_drawing(request, node, checked, &call)?
        };
        let tree_call = graphgrove_tree::Call {
            function: request.function,
            kind: request.kind,
            params: crate::describe::params(request.params, &[]),
            inputs: &[],
        };
        let ran = self.tree.follow(node, &tree_call).map_err(Error::from)?;
        self.stats.predicted += 1;
        Ok(self.after_replay(replayed, &ran)?)
    }

    #[cold]
    #[inline(never)]
    fn decide_and_note(&mut self, request: &Request<'_, D>, args: &mut [Arg<'_, D>]) -> Result<Done> {
        let done = self.decide(request, args);
        self.note_use();
        // Copies that were made for this call alone go with its inputs, and the pool that they are from knows the engine's stream only.
        if std::mem::take(&mut self.has_copied_inputs) {
            self.bridge(request.stream, &self.stream)?;
        }
        done
    }

    /// Asks the tree, and does what it says.
    #[cold]
    pub(crate) fn decide(&mut self, request: &Request<'_, D>, args: &mut [Arg<'_, D>]) -> Result<Done> {
        let given = args.len() - request.saved;
        // A recording is for one number of inputs, so whatever is replayed without coming by here was looked at when it was recorded.
        if let Some(expected) = request.data.options.inputs.filter(|expected| *expected != given) {
            let function = request.data.name.to_string();
            return Err(Error::InputCount { function, expected, given });
        }
        let described = self.describe(request, args)?;
        if request.is_plain {
            return self.run_plainly(request, args, &described, None);
        }
        if let Some(conflict) = &described.conflict {
            let why = conflict.to_string();
            return self.run_plainly(request, args, &described, Some(why));
        }
        // Only a warm-up shows that, when its effects have happened.
        let known = self.known.get(&(request.function, described.key));
        if let Some(why) = known.and_then(|known| known.refused.clone()) {
            return self.run_plainly(request, args, &described, Some(why.to_string()));
        }
        let call = Self::tree_call(request, &described);
        let decision = self.tree.decide(&call, &lives!(self))?;
        if let Some(why) = decision.path_change().and_then(|change| self.pinned(change.path_end()?)) {
            return self.run_plainly(request, args, &described, Some(why));
        }
        match decision {
            Decision::Replay(replay) => {
                let end = replay.path_change().path_end().cloned();
                if let Some(end) = end {
                    self.end_path(request, args, &end)?;
                }
                let replayed = match self.replay(request, args, replay.node())? {
                    Ok(replayed) => replayed,
                    Err(why) => return self.run_plainly(request, args, &described, Some(why)),
                };
                let ran = self.tree.replayed(replay, &call)?;
                self.note_ran(request, How::Replay, Some(ran.node));
                self.after_replay(replayed, &ran)
            }
            Decision::Record(plan) => self.record(request, args, *plan, &described),
            Decision::WarmUp(plan) => self.warm_up(request, args, *plan, &described),
            Decision::Eager(reason) => {
                self.skip(request, &self.tree.explain(&reason, request.kind.phase()))?;
                self.run_eagerly(request, args, &described, &reason)
            }
        }
    }

    /// The step of a call below this node: a root begins one.
    #[inline]
    pub(crate) fn step_below(&self, parent: Option<NodeId>) -> Step {
        Step::new(self.tree.step().get() + u64::from(parent.is_none()))
    }

    #[inline]
    pub(crate) fn replay_call<'c, 'a>(
        &self,
        request: &Request<'c, D>,
        parent: Option<NodeId>,
        inputs: &'c [Arg<'a, D>],
    ) -> Call<'c, D, Arg<'a, D>> {
        let step = self.step_below(parent);
        Call { params: request.params, inputs, stream: request.stream, step }
    }

    #[inline(always)]
    fn after_replay(&mut self, replayed: Replayed, ran: &Ran) -> Result<Done> {
        self.stats.replays += 1;
        if !self.pool_knows {
            self.pool.replayed()?;
            self.pool_knows = true;
        }
        if !ran.ended_warm_ups.is_empty() {
            self.forget_all(&ran.ended_warm_ups);
        }
        let held = self.nodes.get(ran.node);
        let returned = held.map_or_else(|| replayed.outputs.len(), |held| held.returned);
        let saved = match (replayed.saved, held) {
            (Some(saved), Some(held)) => Saved::Slots(saved, Arc::clone(&held.saved)),
            _ => Saved::Nothing,
        };
        Ok(Done {
            outputs: Outputs { inner: replayed.outputs, returned },
            saved,
            token: ran.token,
            grove: self.options.serial,
        })
    }

    /// Brings the pool to the state in which work below `parent` starts: what is live on the path, and nothing else.
    ///
    /// What that frees may still be in use by launches on other streams, so the pool's own stream is ordered behind them first.
    pub(crate) fn restore(&mut self, parent: Option<NodeId>) -> Result<()> {
        let _span = tracing::debug_span!("restore", pool = self.serial()).entered();
        self.replayer.enter(&self.stream)?;
        match parent.and_then(|parent| self.nodes.get(parent)) {
            None => self.pool.restore(&self.empty, Live::AsRecorded)?,
            Some(held) => self.pool.restore(&held.checkpoint, Live::Except(&self.dead_blocks()))?,
        };
        self.pool_knows = false;
        Ok(())
    }

    /// The blocks of slots on the path that are dead.
    pub(crate) fn dead_blocks(&self) -> Vec<BlockId> {
        let lives = lives!(self);
        let mut dead = Vec::new();
        for node in self.tree.path() {
            let Some(held) = self.nodes.get(node) else { continue };
            let is_dead = |slot: SlotIndex| lives.live_word(node, slot.word()) & slot.bit() == 0;
            dead.extend(held.blocks.iter().filter(|(slot, _)| is_dead(*slot)).map(|(_, block)| *block));
        }
        dead
    }

    /// Lets go of nodes that the tree has forgotten.
    #[inline]
    pub(crate) fn forget_all(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            self.forget(*node);
        }
    }

    #[cold]
    fn forget(&mut self, node: NodeId) {
        let Some(held) = self.nodes.remove(node) else { return };
        self.note_gone(node, held.key.is_some());
        let slab = match held.key {
            // A node that is on the path is in use and so is never forgotten.
            Some(key) => self.replayer.remove(key).ok(),
            None => held.slab,
        };
        if let Some(slab) = slab {
            self.by_slab.remove(&slab.id());
        }
    }

    /// The slab of a node.
    pub(crate) fn slab(&self, node: NodeId) -> Option<&Slab> {
        let held = self.nodes.get(node)?;
        match held.key {
            Some(key) => self.replayer.slab(key),
            None => held.slab.as_ref(),
        }
    }

    /// The slab of a node, to change it.
    pub(crate) fn slab_mut(&mut self, node: NodeId) -> Option<&mut Slab> {
        let held = self.nodes.get_mut(node)?;
        match held.key {
            Some(key) => self.replayer.slab_mut(key),
            None => held.slab.as_mut(),
        }
    }

    /// What a run that was not a replay leaves.
    pub(crate) fn done(
        &self,
        inner: CallOutputs,
        returned: usize,
        saved: Option<graphgrove_storage::SavedOutputs>,
        slots: &Arc<[SlotIndex]>,
        token: Option<TokenId>,
    ) -> Done {
        let saved = saved.map_or(Saved::Nothing, |saved| Saved::Slots(saved, Arc::clone(slots)));
        Done { outputs: Outputs { inner, returned }, saved, token, grove: self.serial() }
    }

    /// Notes why a call runs plainly, which a strict engine refuses.
    pub(crate) fn skip(&mut self, request: &Request<'_, D>, why: &str) -> Result<()> {
        self.reasons.add(&request.data.name, why);
        self.because(|| why.to_owned());
        if self.options.strict {
            return Err(Error::Skipped { function: request.data.name.to_string(), reason: why.to_owned() });
        }
        Ok(())
    }

    /// What the call is for the tree.
    pub(crate) fn tree_call<'a>(
        request: &Request<'a, D>,
        described: &'a Described,
    ) -> graphgrove_tree::Call<'a> {
        graphgrove_tree::Call {
            function: request.function,
            kind: request.kind,
            params: crate::describe::params(request.params, &described.addresses),
            inputs: &described.inputs,
        }
    }
}
