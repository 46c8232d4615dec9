//! Warming up: a plain run inside of the pool.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_pool::pool::Owner;
use graphgrove_replay::{CallOutputs, Recorder, Route, StagePlan, Staged};
use graphgrove_storage::{HandedBack, InputPlan, Slab, SlotIndex, StageGroup, Storage};
use graphgrove_tree::{NodeId, WarmUpPlan};

use crate::captured::{Ran, Seen, Stage};
use crate::describe::{Described, tensors};
use crate::grove::{Done, Grove, Held, Request};
use crate::known::{Known, NO_STORAGE_CACHE};
use crate::layouts::without_patched;
use crate::memory::{Born, Memory, Spill, names};
use crate::no_room::Attempt;
use crate::recorded::Roles;
use crate::{Arg, Error, How, Layers, Result};

impl<D: Device> Grove<D> {
    /// Warms a function up as the tree has planned it.
    pub(crate) fn warm_up(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        plan: WarmUpPlan,
        described: &Described,
    ) -> Result<Done> {
        let _span = tracing::debug_span!("warm up", function = %request.data.name).entered();
        self.name_signatures(args, described);
        let why = self.tree.explain(plan.reason(), request.kind.phase());
        self.reasons.add(&request.data.name, format!("warmed up: {why}"));
        self.because(|| why);
        let end = plan.path_change().path_end().cloned();
        let roles = Roles { inputs: plan.inputs().to_vec(), demoted: Vec::new() };
        let parent = plan.parent();
        let warm_up = self.tree.begin_warm_up(plan)?;
        if let Some(end) = end {
            self.end_path(request, args, &end)?;
        }
        self.restore(parent)?;
        let depth = self.recorded_depth(parent);
        let inputs = match self.input_plan(request, args, &roles) {
            Ok(inputs) => inputs,
            // What can be used in place may not be copied, as where the path has ended.
            Err(Error::Storage(graphgrove_storage::Error::Refused(conflict))) => {
                drop(warm_up);
                return self.run_plainly(request, args, described, Some(conflict.to_string()));
            }
            Err(error) => return Err(error),
        };
        let above = parent.and_then(|parent| self.nodes.get(parent));
        let place =
            PathPlace { parent, depth, is_below_warm_up: above.is_some_and(|held| held.key.is_none()) };
        let mut attempt = Attempt::default();
        let rehearsed = self.rehearse(request, args, &inputs, described, place, &mut attempt);
        let (held, back, outputs) = match rehearsed {
            Ok(done) => done,
            Err(error) if attempt.may_run_plainly(request, &error) => {
                drop(warm_up);
                return self.run_without_room(request, args, described, &attempt, &error);
            }
            Err(error @ Error::Survivors { .. }) => {
                drop(warm_up);
                let why = error.to_string();
                // It has run, but what it left cannot be handed out; its effects must not happen twice. Later calls run plainly,
                // where it may leave what it likes.
                let known = Known { refused: Some(why.as_str().into()), ..Known::default() };
                self.known.note((request.function, described.key), known);
                self.skip(request, &why)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let ran = self.tree.finish_warm_up(warm_up, outputs, true)?;
        self.replayer.cut_path(depth);
        if let Some(slab) = &held.slab {
            self.by_slab.insert(slab.id(), ran.node);
        }
        let (returned, saved) = (held.returned, Arc::clone(&held.saved));
        self.nodes.insert(ran.node, held);
        self.forget_all(&ran.evicted);
        self.forget_all(&ran.ended_warm_ups);
        self.stats.warm_ups += 1;
        self.note_ran(request, How::WarmUp, Some(ran.node));
        let HandedBack { outputs, saved: kept } = back;
        Ok(self.done(CallOutputs::Bulk(outputs), returned, kept, &saved, ran.token))
    }

    /// How many nodes of the path up to this one are recordings.
    fn recorded_depth(&self, parent: Option<NodeId>) -> usize {
        let Some(parent) = parent else { return 0 };
        let mut depth = 0;
        for node in self.tree.path() {
            match self.nodes.get(node) {
                Some(held) if held.key.is_some() => depth += 1,
                _ => break,
            }
            if node == parent {
                break;
            }
        }
        depth
    }

    fn rehearse(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        plan: &InputPlan,
        described: &Described,
        place: PathPlace,
        attempt: &mut Attempt,
    ) -> Result<(Held<D>, HandedBack, Vec<graphgrove_tree::Output>)> {
        let given = self.given_blocks(args, plan)?;
        let dead = self.dead_blocks();
        let tensors = tensors(args, request.params);
        let stage = StagePlan::new(plan, &tensors, |_| Route::Copied)?;
        let (device, stream) = (self.device.clone(), self.stream.clone());
        self.replayer.enter(&stream)?;
        self.bridge(request.stream, &stream)?;
        self.limit_pool();
        let session = self.pool.warm_up(&stream)?;
        let spill = Spill::of(&self.plain);
        let step = self.step_below(place.parent);
        let born = Born::new(&request.data.name, step);
        let mut memory =
            Memory::Session { session: &session, dying: Vec::new(), spill: Some(&spill), born: &born };
        let Attempt { effects, given_up, is_over } = attempt;
        let allocate = |bytes| -> Result<Storage> {
            let buffer = memory.allocate(bytes, Owner::Staging, "staged input")?;
            effects.note_own(buffer.base()?, buffer.bytes()?);
            Ok(buffer)
        };
        let mut recorder = Recorder::rehearse(&*device, &stream, stage, &tensors, allocate)?;
        let seen =
            recorder.passed().iter().map(|tensor| Seen::of(tensor.as_ref())).collect::<Result<Vec<_>>>()?;
        let values = Self::values(args);
        let hosts: Vec<Option<&D::HostBuffer>> = args.iter().map(Arg::host).collect();
        drop(tensors);
        if self.options.layers.contains(Layers::DEALLOC_ON_RECORD) {
            let dying = self.give_up(args, plan, described, given_up)?;
            memory = Memory::Session { session: &session, dying, spill: Some(&spill), born: &born };
        }
        let stage = Stage { device: &*device, recorder, memory, values: &values, hosts: &hosts };
        let Ran { recorder, returned, saves, taken, .. } = Self::run_body(request, stage, effects)?;
        *is_over = true;
        let made = self.made(plan, &seen, returned, saves, place.depth)?.without_buffers(args, request);
        let uses = recorder.rehearsed()?;
        Self::refuse_survivors(request, &session, &made)?;
        let mut slab = Slab::new(&self.ledger, request.data.name.clone(), 0, made.planned.clone())?;
        let source = |output, class| Self::source(&made, args, request, output, class);
        let (back, owners) = slab.hand_back_recorded(step, &made.recorded(), source)?;
        let blocks = names::<D, SlotIndex>(owners);
        let finished = session.finish_keeping(Vec::new())?;
        born.keep();
        self.bridge(&stream, request.stream)?;
        taken.commit(request.kit, &*device, request.stream);
        let call = (request.function, described.key);
        let is_copied = |group: &StageGroup| {
            let staged = Staged { inputs: &group.inputs, bytes: group.bytes, mutated: false };
            self.route(staged, &uses, &[], &[]) == Route::Copied
        };
        let copied: Vec<bool> = plan.groups().iter().map(is_copied).collect();
        let demand = without_patched(finished.demand, &copied);
        // What it had from elsewhere is missing in its demand, by which nothing can be laid out then.
        if !spill.happened.get() {
            self.layouts.add(call, demand, &given, &dead, place.is_below_warm_up);
        }
        let refused = (!self.allows(&made)).then(|| NO_STORAGE_CACHE.into());
        self.known.note(call, Known { uses, refused });
        let outputs = made.for_tree(plan, args.len());
        let held = Held {
            key: None,
            slab: Some(slab),
            checkpoint: finished.checkpoint,
            blocks,
            returned: made.returned,
            saved: Arc::clone(&made.saved),
            draws: Box::default(),
            is_watched: false,
            place: None,
        };
        Ok((held, back, outputs))
    }
}

/// Where on the path a warm-up runs.
#[derive(Clone, Copy)]
struct PathPlace {
    parent: Option<NodeId>,
    /// How many recordings lie above it.
    depth: usize,
    is_below_warm_up: bool,
}
