//! Recording a call, and running the recording for the first time.

use graphgrove_device::Device;
use graphgrove_pool::pool::Owner;
use graphgrove_pool::ranges::BlockId;
use graphgrove_replay::{
    Call, Costs, Input, NodeKey, Recorder, Recording, Replayed, Route, StagePlan, Staged, Uses,
};
use graphgrove_storage::{InputPlan, SlotIndex, SlotValue, Step, Tensor};
use graphgrove_tree::{Expected, NodeId, RecordPlan, Role};
use smallvec::SmallVec;

use crate::captured::{Made, Seen};
use crate::describe::{ALIGNMENT, Described};
use crate::grove::{Done, Grove, Held, Request, lives};
use crate::memory::{Memory, names};
use crate::{Arg, Error, Layers, Result};

/// A recording that has run once.
struct Recorded<D: Device> {
    key: NodeKey,
    replayed: Replayed,
    held: Held<D>,
    outputs: Vec<graphgrove_tree::Output>,
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
        self.reasons.add(&request.data.name, format!("recorded: {}", plan.reason()));
        let end = plan.path_change().path_end().cloned();
        let (parent, roles) = (plan.parent(), plan.inputs().to_vec());
        let is_watched = roles.iter().zip(args.iter()).any(|(expected, arg)| {
            matches!(expected.role, Role::Staged(_))
                && arg.tensor().is_some_and(|tensor| self.is_of_path(tensor))
        });
        let recording = self.tree.begin_recording(plan, &lives!(self))?;
        if let Some(end) = end {
            self.end_path(request, args, &end)?;
        }
        let mut gone = false;
        let recorded = self
            .restore(parent)
            .and_then(|()| self.capture(request, args, parent, &roles, described.key, &mut gone));
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                self.tree.recording_failed(recording);
                self.stats.failures += 1;
                return self.after_failure(request, args, described, error, gone);
            }
        };
        let Recorded { key, replayed, mut held, outputs } = recorded;
        held.is_watched = is_watched;
        let ran = self.tree.finish_recording(recording, outputs, &lives!(self))?;
        if let Some(slab) = self.replayer.slab(key) {
            self.by_slab.insert(slab.id(), ran.node);
        }
        let (returned, saved) = (held.returned, held.saved.clone());
        self.nodes.insert(ran.node, held);
        self.forget_all(&ran.evicted);
        self.forget_all(&ran.ended_warm_ups);
        if !ran.ended_warm_ups.is_empty() {
            // Warm-ups search for their memory and so may have needed more than recordings, which are laid out, do. A device that
            // cannot wait or give back says so at the next call too.
            let _ = self.pool.trim();
        }
        self.stats.recordings += 1;
        Ok(Self::done(replayed.outputs, returned, replayed.saved, &saved, ran.token))
    }

    /// Whether a tensor is an output of a node on the path.
    fn is_of_path(&self, tensor: &Tensor) -> bool {
        tensor.storage().slot_value().is_ok_and(|value| value.is_some_and(|value| self.is_on_path(&value)))
    }

    fn after_failure(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        described: &Described,
        error: Error,
        gone: bool,
    ) -> Result<Done> {
        // What the function itself says is the caller's, and so is a device that is broken.
        let can_run_plainly = match &error {
            Error::Device(device) => matches!(
                device,
                graphgrove_device::DeviceError::Capture { .. }
                    | graphgrove_device::DeviceError::MemoryNodes { .. }
            ),
            Error::Replay(_) | Error::Survivors { .. } | Error::Skipped { .. } => true,
            Error::Pool(_) => true,
            _ => false,
        };
        if !can_run_plainly {
            return Err(error);
        }
        if gone {
            let function = request.data.name.to_string();
            return Err(Error::InputsGone { function, cause: error.to_string() });
        }
        self.run_plainly(request, args, described, Some(error.to_string()))
    }

    /// Captures the call, makes it a node of the replayer and launches it.
    fn capture(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        parent: Option<NodeId>,
        roles: &[Expected],
        key: u64,
        gone: &mut bool,
    ) -> Result<Recorded<D>> {
        let parent_key = parent.and_then(|parent| self.nodes.get(parent)?.key);
        let depth =
            parent.and_then(|parent| self.tree.node(parent)).map_or(0, |node| node.depth() as usize + 1);
        let dead_before = self.replayer.dead(depth);
        let step = Step::new(self.tree.step().get());
        let known = self.known.get(&(request.function, key)).cloned().unwrap_or_default();

        let plan = self.input_plan(request, args, roles)?;
        let params = request.params.map(graphgrove_replay::ParamSet::tensors).unwrap_or_default();
        let tensors: Vec<Option<&Tensor>> =
            args.iter().map(Arg::tensor).chain(params.iter().map(Some)).collect();
        let stage = StagePlan::new(&plan, &tensors, |staged| self.route(staged, &known.uses))?;
        let inputs: SmallVec<[Input<'_, D>; 16]> = args.iter().map(Arg::input).collect();
        let call = Call { params: request.params, inputs: &inputs, stream: request.stream, step };
        let expected = self.replayer.expect(&plan, &call, &stage)?;

        self.replayer.enter(&self.stream)?;
        let (device, stream) = (self.device.clone(), self.stream.clone());
        let (memory_plan, place) = if self.options.plan_memory {
            let given = self.given_blocks(args, roles)?;
            let above = parent.and_then(|parent| self.nodes.get(parent)?.place.as_ref());
            self.layouts.plan(&self.pool, (request.function, key), above, parent.is_none(), &given)
        } else {
            (None, None)
        };
        let session = self.pool.recording(&stream, memory_plan.as_ref())?;
        let mut memory = Memory::Session { session: &session, dying: Vec::new() };
        let allocate = |bytes| memory.allocate(bytes, Owner::Staging, "staged input");
        let mut recorder =
            Recorder::begin(&*device, &stream, self.options.method, stage, &tensors, allocate)?;
        recorder.host_inputs(&inputs);
        let seen =
            recorder.passed().iter().map(|tensor| Seen::of(tensor.as_ref())).collect::<Result<Vec<_>>>()?;
        let values = Self::values(args);
        let hosts: Vec<Option<D::HostBuffer>> = args.iter().map(host_of).collect();
        drop((inputs, tensors));
        if self.options.layers.contains(Layers::DEALLOC_ON_RECORD) {
            let dying = self.give_up(args, roles)?;
            *gone = !dying.is_empty();
            memory = Memory::Session { session: &session, dying };
        }
        let hosts: Vec<Option<&D::HostBuffer>> = hosts.iter().map(Option::as_ref).collect();
        let (recorder, returned, saves) = Self::run_body(request, recorder, memory, &values, &hosts)?;
        let captured = recorder.finish()?;
        let made = self.made(&plan, &seen, returned, saves, depth)?;
        Self::refuse_survivors(request, &session, &made)?;
        if !self.allows(&made) {
            let reason = "its outputs share memory, and the engine has no storage cache".to_owned();
            return Err(Error::Skipped { function: request.data.name.to_string(), reason });
        }
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
        let outputs = made.for_tree(&plan);
        let inputs: SmallVec<[Input<'_, D>; 16]> = args.iter().map(Arg::input).collect();
        let call = Call { params: request.params, inputs: &inputs, stream: request.stream, step };
        let launched = self.replayer.launch_recorded(node, &call, &made.recorded());
        let (replayed, owners) = match launched {
            Ok(launched) => launched,
            Err(error) => {
                self.replayer.remove(node)?;
                return Err(error.into());
            }
        };
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
            is_watched: false,
            place,
        };
        Ok(Recorded { key: node, replayed, held, outputs })
    }

    /// How inputs that are staged in one piece reach a recording, if it does with them what a warm-up has shown.
    pub(crate) fn route(&self, staged: Staged<'_>, uses: &Uses) -> Route {
        match staged.inputs {
            [input] if self.options.layers.contains(Layers::FAST_REPLAY) => {
                Costs::default().choose(staged.bytes, uses.nodes(*input))
            }
            _ => Route::Copied,
        }
    }

    /// What becomes of each input, as the tree has decided for those that are outputs of the path.
    pub(crate) fn input_plan(
        &self,
        request: &Request<'_, D>,
        args: &[Arg<'_, D>],
        roles: &[Expected],
    ) -> Result<InputPlan> {
        let specs = self.specs(request, args);
        let managed =
            roles.iter().zip(args).filter(|(expected, _)| matches!(expected.role, Role::Managed { .. }));
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
        roles: &[Expected],
    ) -> Result<Vec<(usize, BlockId)>> {
        let mut given = Vec::new();
        for (at, (arg, expected)) in args.iter().zip(roles).enumerate() {
            let Arg::Given(tensor) = arg else { continue };
            if matches!(expected.role, Role::Managed { .. })
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

    /// Lets go of the handles of managed inputs that the call gives up. Their blocks are given back when the function has
    /// dropped them too.
    pub(crate) fn give_up(
        &self,
        args: &mut [Arg<'_, D>],
        roles: &[Expected],
    ) -> Result<Vec<(graphgrove_storage::Watch, BlockId)>> {
        let mut dying = Vec::new();
        for (arg, expected) in args.iter_mut().zip(roles) {
            let Arg::Given(tensor) = arg else { continue };
            if !matches!(expected.role, Role::Managed { .. }) {
                continue;
            }
            let Some(value) = tensor.storage().slot_value()? else { continue };
            if let (Some(watch), Some(block)) = (tensor.storage().watch(), self.block_of(&value)) {
                dying.push((watch, block));
                *arg = Arg::Value(0);
            }
        }
        Ok(dying)
    }
}

pub(crate) fn host_of<D: Device>(arg: &Arg<'_, D>) -> Option<D::HostBuffer> {
    match arg {
        Arg::Host(buffer) => Some((*buffer).clone()),
        _ => None,
    }
}
