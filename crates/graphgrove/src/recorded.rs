//! Recording a call, and running the recording for the first time.

use graphgrove_device::{Device, DeviceError, DevicePtr};
use graphgrove_pool::pool::{Owner, Request as Ask, Session};
use graphgrove_pool::ranges::BlockId;
use graphgrove_replay::{
    Call, Costs, NodeKey, Recorder, Recording, Replayed, Route, StagePlan, Staged, Uses,
};
use graphgrove_storage::{
    InputIndex, InputPlan, InputRole, Layout, SlotIndex, SlotValue, Storage, StorageId, Tensor, Watch,
};
use graphgrove_tree::{Expected, NodeId, OutputKind, ParamIndex, RecordPlan, Role, Source};

use crate::captured::{Made, Ran, Seen, Stage};
use crate::describe::{ALIGNMENT, Described, tensors};
use crate::effects::Effects;
use crate::grove::{Done, Grove, Held, Request, lives};
use crate::known::NO_STORAGE_CACHE;
use crate::memory::{Born, Memory, names, plain};
use crate::{Arg, Error, How, Layers, Result};

/// How the tree wants the inputs of a call to be used.
pub(crate) struct Roles {
    pub(crate) inputs: Vec<Expected>,
    /// The parameters that are copied to a recorded address because theirs kept changing.
    pub(crate) demoted: Vec<ParamIndex>,
}

impl Roles {
    fn of(plan: &RecordPlan) -> Self {
        let demoted = plan.params().map(|params| params.staged().to_vec()).unwrap_or_default();
        Self { inputs: plan.inputs().to_vec(), demoted }
    }
}

/// A recording that has run once.
struct Recorded<D: Device> {
    key: NodeKey,
    replayed: Replayed,
    held: Held<D>,
    outputs: Vec<graphgrove_tree::Output>,
}

/// A managed input whose last handle a recording has let go of.
pub(crate) struct GivenUp {
    at: usize,
    pub(crate) block: BlockId,
    value: SlotValue,
    base: DevicePtr,
    bytes: u64,
    layout: Layout,
    offset: u64,
}

impl<D: Device> Grove<D> {
    /// Records a call as the tree has planned it. Where that fails, the call runs plainly if it still can.
    pub(crate) fn record(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        plan: RecordPlan,
        described: &Described,
    ) -> Result<Done> {
        let _span = tracing::debug_span!("record", function = %request.data.name).entered();
        let start = self.watch.as_ref().map_or(0, |_| self.clock.now());
        let why = self.tree.explain(plan.reason(), request.kind.phase());
        self.reasons.add(&request.data.name, format!("recorded: {why}"));
        self.because(|| why);
        let end = plan.path_change().path_end().cloned();
        let (parent, roles) = (plan.parent(), Roles::of(&plan));
        let is_watched = roles.inputs.iter().zip(args.iter()).any(|(expected, arg)| {
            matches!(expected.role, Role::Staged(_))
                && arg.tensor().is_some_and(|tensor| self.is_of_path(tensor))
        });
        let recording = self.tree.begin_recording(plan, &lives!(self))?;
        if let Some(end) = end {
            self.end_path(request, args, &end)?;
        }
        let recorded =
            self.restore(parent).and_then(|()| self.capture(request, args, parent, &roles, described));
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                self.tree.recording_failed(recording);
                self.stats.failures += 1;
                self.note_failure(request, &error);
                if !may_run_plainly(&error) {
                    return Err(error);
                }
                // Each turn gives up a recording at least.
                if self.make_room_for(&error) {
                    return self.decide(request, args);
                }
                return self.run_plainly(request, args, described, Some(error.to_string()));
            }
        };
        let Recorded { key, replayed, mut held, outputs } = recorded;
        held.is_watched = is_watched || lends_staged(&outputs, &roles.inputs);
        let ran = self.tree.finish_recording(recording, outputs, &lives!(self))?;
        if let Some(slab) = self.replayer.slab(key) {
            self.by_slab.insert(slab.id(), ran.node);
        }
        let (returned, saved) = (held.returned, held.saved.clone());
        self.nodes.insert(ran.node, held);
        self.note_recorded(request, ran.node, start);
        self.forget_all(&ran.evicted);
        self.forget_all(&ran.ended_warm_ups);
        if !ran.ended_warm_ups.is_empty() {
            // Warm-ups search for their memory and so may have needed more than recordings, which are laid out, do. A device that
            // cannot wait or give back says so at the next call too.
            let _ = self.pool.trim();
        }
        self.stats.recordings += 1;
        if request.data.is_auto {
            self.budget.note_recorded(request.data.id);
        }
        self.note_ran(request, How::Recording, Some(ran.node));
        Ok(self.done(replayed.outputs, returned, replayed.saved, &saved, ran.token))
    }

    /// Whether a tensor is an output of a node on the path.
    fn is_of_path(&self, tensor: &Tensor) -> bool {
        tensor.storage().slot_value().is_ok_and(|value| value.is_some_and(|value| self.is_on_path(&value)))
    }

    /// Captures the call, makes it a node of the replayer and launches it. If the call may run plainly instead, it has all its inputs
    /// again.
    fn capture(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        parent: Option<NodeId>,
        roles: &Roles,
        described: &Described,
    ) -> Result<Recorded<D>> {
        self.replayer.enter(&self.stream)?;
        self.limit_pool();
        let key = (request.function, described.key);
        let plan = self.input_plan(request, args, roles)?;
        let (memory_plan, place) = if self.options.plan_memory {
            let given = self.given_blocks(args, &plan)?;
            let above = parent.and_then(|parent| self.nodes.get(parent)?.place.as_ref());
            self.layouts.plan(&self.pool, key, above, parent.is_none(), &given)
        } else {
            (None, None)
        };
        let mut session = Some(self.pool.recording(&self.stream, memory_plan.as_ref())?);
        let mut given_up = Vec::new();
        let recorded = self.capture_in(&mut session, request, args, parent, &plan, described, &mut given_up);
        match recorded {
            Ok(mut recorded) => {
                recorded.held.place = place;
                Ok(recorded)
            }
            // Nothing has run yet, and until the session ends nothing else gets the memory.
            Err(error) if may_run_plainly(&error) => match self.bring_back(args, &given_up) {
                Ok(()) => Err(error),
                Err(_) => Err(Error::InputsGone {
                    function: request.data.name.to_string(),
                    cause: error.to_string(),
                }),
            },
            other => other,
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one call, which only this function wants together"
    )]
    fn capture_in(
        &mut self,
        open: &mut Option<Session<D>>,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        parent: Option<NodeId>,
        plan: &InputPlan,
        described: &Described,
        given_up: &mut Vec<GivenUp>,
    ) -> Result<Recorded<D>> {
        let parent_key = parent.and_then(|parent| self.nodes.get(parent)?.key);
        let depth =
            parent.and_then(|parent| self.tree.node(parent)).map_or(0, |node| node.depth() as usize + 1);
        let dead_before = self.replayer.dead(depth);
        let step = self.step_below(parent);
        let known = self.known.get(&(request.function, described.key)).cloned().unwrap_or_default();
        let Some(session) = open.as_ref() else { return Err(Error::ShutDown) };

        let tensors = tensors(args, request.params);
        let lent = in_place_storages(plan, &tensors)?;
        let stage =
            StagePlan::new(plan, &tensors, |staged| self.route(staged, &known.uses, &tensors, &lent))?;
        let call = Call { params: request.params, inputs: &*args, stream: request.stream, step };
        let expected = self.replayer.expect(plan, &call, &stage)?;

        let (device, stream) = (self.device.clone(), self.stream.clone());
        let born = Born::new(&request.data.name, step);
        let mut memory = Memory::Session { session, dying: Vec::new(), spill: None, born: &born };
        let allocate = |bytes| memory.allocate(bytes, Owner::Staging, "staged input");
        let mut recorder =
            Recorder::begin(&*device, &stream, self.options.method, stage, &tensors, allocate)?;
        recorder.host_inputs(args);
        let seen =
            recorder.passed().iter().map(|tensor| Seen::of(tensor.as_ref())).collect::<Result<Vec<_>>>()?;
        let values = Self::values(args);
        let hosts: Vec<Option<&D::HostBuffer>> = args.iter().map(Arg::host).collect();
        drop(tensors);
        if self.options.layers.contains(Layers::DEALLOC_ON_RECORD) {
            let dying = self.give_up(args, plan, described, given_up)?;
            memory = Memory::Session { session, dying, spill: None, born: &born };
        }
        let stage = Stage { device: &*device, recorder, memory, values: &values, hosts: &hosts };
        let mut effects = Effects::default();
        let Ran { mut recorder, returned, saves, recorded_draws, taken } =
            Self::run_body(request, stage, &mut effects)?;
        let made = self.made(plan, &seen, returned, saves, depth)?.without_buffers(args, request);
        recorder.bring_back()?;
        session.settle();
        let captured = recorder.finish()?;
        self.admit(request, &captured)?;
        Self::refuse_survivors(request, session, &made)?;
        if !self.allows(&made) {
            let reason = NO_STORAGE_CACHE.to_owned();
            return Err(Error::Skipped { function: request.data.name.to_string(), reason });
        }
        let Some(session) = open.take() else { return Err(Error::ShutDown) };
        let finished = session.finish_keeping(Vec::new())?;
        let mutates = request.data.options.mutates_params || !request.data.options.mutates.is_empty();
        let recording = Recording::new(request.data.name.clone(), captured)
            .below(parent_key)
            .inputs(expected)
            .params(request.params)
            .dead(dead_before, self.replayer.dead(depth))
            .outputs(made.planned.clone())
            .constants(made.constants())
            .mutates_in_place(mutates);
        let node = self.replayer.add(recording)?;
        let outputs = made.for_tree(plan, args.len());
        let call = Call { params: request.params, inputs: &*args, stream: request.stream, step };
        let launched = self.replayer.launch_recorded(node, &call, &made.recorded());
        let (replayed, owners) = match launched {
            Ok(launched) => launched,
            Err(error) => {
                self.replayer.remove(node)?;
                return Err(error.into());
            }
        };
        born.keep();
        taken.commit(request.kit, &*device, request.stream);
        let Made { returned, saved, .. } = made;
        let blocks = names::<D, SlotIndex>(owners);
        let checkpoint = finished.checkpoint;
        let held = Held {
            key: Some(node),
            slab: None,
            checkpoint,
            blocks,
            returned,
            saved,
            draws: recorded_draws,
            is_watched: false,
            place: None,
        };
        Ok(Recorded { key: node, replayed, held, outputs })
    }

    /// How inputs that are staged in one piece reach a recording, if it does with them what a warm-up has shown. `lent` are the
    /// storages of inputs that are used where they are: one that lies in such a storage must be another one in the recording, or
    /// nobody could tell which of the two an output is an alias of.
    pub(crate) fn route(
        &self,
        staged: Staged<'_>,
        uses: &Uses,
        tensors: &[Option<&Tensor>],
        lent: &[StorageId],
    ) -> Route {
        let is_lent = |input: &InputIndex| {
            let tensor = tensors.get(input.get() as usize).copied().flatten();
            tensor.is_some_and(|tensor| {
                tensor.storage().id().is_ok_and(|id| id.is_some_and(|id| lent.contains(&id)))
            })
        };
        match staged.inputs {
            [input] if self.options.layers.contains(Layers::FAST_REPLAY) && !is_lent(input) => {
                Costs::default().choose(staged.bytes, uses.nodes(*input))
            }
            _ => Route::Copied,
        }
    }

    /// What becomes of each input, as the tree has decided for those that are outputs of the path, and for parameters that keep
    /// moving.
    pub(crate) fn input_plan(
        &self,
        request: &Request<'_, D>,
        args: &[Arg<'_, D>],
        roles: &Roles,
    ) -> Result<InputPlan> {
        let mut specs = self.specs(request, args);
        for param in &roles.demoted {
            if let Some(spec) = specs.get_mut(args.len() + param.get() as usize) {
                spec.parameter = false;
            }
        }
        let managed = roles
            .inputs
            .iter()
            .zip(args)
            .filter(|(expected, _)| matches!(expected.role, Role::Managed { .. }));
        let mut values = Vec::new();
        for (_, arg) in managed {
            if let Some(tensor) = arg.tensor() {
                values.extend(tensor.storage().slot_value()?);
            }
        }
        Ok(InputPlan::new(&specs, ALIGNMENT, |value| values.contains(&value))?)
    }

    /// The blocks of managed inputs that the call gives up.
    pub(crate) fn given_blocks(
        &self,
        args: &[Arg<'_, D>],
        plan: &InputPlan,
    ) -> Result<Vec<(usize, BlockId)>> {
        let mut given = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            let Arg::Given(tensor) = arg else { continue };
            if matches!(plan.role(InputIndex::new(at as u32)), Some(InputRole::Managed { .. }))
                && let Some(value) = tensor.storage().slot_value()?
            {
                given.extend(self.block_of(&value).map(|block| (at, block)));
            }
        }
        Ok(given)
    }

    fn block_of(&self, value: &SlotValue) -> Option<BlockId> {
        let held = self.by_slab.get(&value.slab).and_then(|node| self.nodes.get(*node))?;
        held.blocks.iter().find(|(slot, _)| *slot == value.slot).map(|(_, block)| *block)
    }

    /// Lets go of the last handles of inputs that are used in place. Their blocks are given back when the function has dropped them
    /// too. One that is staged, if only because it is misaligned, is kept: an output may be an alias of it.
    pub(crate) fn give_up(
        &self,
        args: &mut [Arg<'_, D>],
        plan: &InputPlan,
        described: &Described,
        given_up: &mut Vec<GivenUp>,
    ) -> Result<Vec<(Watch, BlockId)>> {
        let mut dying = Vec::new();
        for (at, arg) in args.iter_mut().enumerate() {
            let role = plan.role(InputIndex::new(at as u32));
            let is_managed = matches!(role, Some(InputRole::Managed { .. }));
            let source = described.inputs.get(at).map(|input| input.source);
            let is_last = matches!(source, Some(Source::Managed { given_up: true, .. }));
            let Arg::Given(tensor) = arg else { continue };
            let Some(value) = tensor.storage().slot_value()?.filter(|_| is_managed && is_last) else {
                continue;
            };
            if let (Some(watch), Some(block)) = (tensor.storage().watch(), self.block_of(&value)) {
                let (base, bytes) = (tensor.storage().base()?, tensor.storage().bytes()?);
                let (layout, offset) = (tensor.layout().clone(), tensor.offset_bytes());
                given_up.push(GivenUp { at, block, value, base, bytes, layout, offset });
                dying.push((watch, block));
                *arg = Arg::Value(0);
            }
        }
        Ok(dying)
    }

    /// Gives inputs back to a call that has not run, as copies: nobody else had a handle of them.
    pub(crate) fn bring_back(&mut self, args: &mut [Arg<'_, D>], given_up: &[GivenUp]) -> Result<()> {
        let mut copies: Vec<(SlotValue, Storage)> = Vec::new();
        for input in given_up {
            let known = copies.iter().find(|(value, _)| *value == input.value);
            let storage = match known {
                Some((_, storage)) => storage.clone(),
                None => {
                    let ask = Ask::bytes(input.bytes).owner(Owner::Output).label("input of a failed attempt");
                    let storage = plain(&self.plain, ask)?;
                    self.device.copy(&self.stream, storage.base()?, input.base, input.bytes)?;
                    self.has_copied_inputs = true;
                    copies.push((input.value, storage.clone()));
                    storage
                }
            };
            if let Some(arg) = args.get_mut(input.at) {
                *arg = Arg::Given(Tensor::new(storage, input.layout.clone(), input.offset)?);
            }
        }
        Ok(())
    }
}

/// Whether an output is a staged input again: what becomes of the caller's own then depends on where that is from.
fn lends_staged(outputs: &[graphgrove_tree::Output], inputs: &[Expected]) -> bool {
    outputs.iter().any(|output| match output.kind {
        OutputKind::AliasOfInput(input) => {
            let expected = inputs.get(input.get() as usize);
            expected.is_some_and(|expected| matches!(expected.role, Role::Staged(_)))
        }
        _ => false,
    })
}

/// The storages of inputs that are used where they are.
fn in_place_storages(plan: &InputPlan, tensors: &[Option<&Tensor>]) -> Result<Vec<StorageId>> {
    let mut storages = Vec::new();
    for ((_, role), tensor) in plan.roles().zip(tensors) {
        if let (InputRole::Parameter { .. } | InputRole::Managed { .. }, Some(tensor)) = (role, tensor) {
            storages.extend(tensor.storage().id()?);
        }
    }
    Ok(storages)
}

/// Whether a call whose recording has failed with this may run plainly instead. What the function itself says is the caller's, and
/// so is a device that is broken.
fn may_run_plainly(error: &Error) -> bool {
    match error {
        Error::Device(device) => {
            matches!(device, DeviceError::Capture { .. } | DeviceError::MemoryNodes { .. })
        }
        Error::Storage(graphgrove_storage::Error::Refused(_)) => true,
        Error::Replay(_)
        | Error::Survivors { .. }
        | Error::Skipped { .. }
        | Error::OverBudget { .. }
        | Error::Pool(_) => true,
        _ => false,
    }
}
