//! Recording a call: the node that comes of it, and what that demands of later calls.

use crate::decision::{Ground, RecordPlan};
use crate::error::Error;
use crate::liveness::{DeadMask, Liveness};
use crate::node::{Expected, Node, Role};
use crate::notice::Notice;
use crate::output::{OldOutput, Output, OutputKind, TrackedSlots, returned_inputs};
use crate::path::PathState;
use crate::reasons::{Demotion, RecordReason};
use crate::ticket::Recording;
use crate::transition::Ran;
use crate::tree::Tree;
use crate::{Epoch, FunctionId, NodeId, Slot, SlotIndex};
use smallvec::SmallVec;
use std::collections::HashMap;

impl Tree {
    /// Begins a planned recording.
    ///
    /// Precondition: the path has not moved since the plan was decided, and neither a recording nor a warm-up
    /// is in progress. Effect: until the [`Recording`] is finished or dropped every other call runs eagerly;
    /// nothing else changes. `live` counts the inputs of the call as live.
    ///
    /// # Errors
    ///
    /// [`Error::StaleDecision`], [`Error::Busy`]; the tree is as it was.
    pub fn begin_recording<L: Liveness + ?Sized>(
        &mut self,
        plan: RecordPlan,
        live: &L,
    ) -> Result<Recording, Error> {
        self.check_current(plan.ground.moment)?;
        let pass = self.gate.enter().ok_or(Error::Busy)?;
        let (dead_before, live_before) = self.demands(&plan, live);
        Ok(Recording { plan, dead_before, live_before, pass })
    }

    /// Reports that a recording was made, and that its exec was launched.
    ///
    /// Precondition: the path has not moved since the plan was decided. `live` no longer counts what the call
    /// gave up, and does not count the new outputs yet. Effect: the new node is current, all its fresh
    /// outputs are taken for live, the call's token is made or consumed, and nodes that exceed a limit are
    /// evicted.
    ///
    /// # Errors
    ///
    /// [`Error::StaleDecision`], [`Error::UnknownFunction`], [`Error::BadAlias`]. The recording is abandoned,
    /// as if it had been dropped, and the tree is as it was.
    pub fn finish_recording<L: Liveness + ?Sized>(
        &mut self,
        recording: Recording,
        outputs: Vec<Output>,
        live: &L,
    ) -> Result<Ran, Error> {
        let Recording { plan, dead_before, live_before, pass: _pass } = recording;
        self.check_current(plan.ground.moment)?;
        let old_default = self.registered(plan.ground.function)?.spec.old_outputs();
        check_aliases(&outputs, &plan.inputs)?;
        let RecordPlan { ground, inputs, params, identity, reason, changed, demotions, .. } = plan;
        if let Some(params) = &params {
            self.params.remember(params.set, params.version, &params.addresses);
        }
        self.count_recording(&ground, &reason, changed, demotions);
        let node = Node {
            inputs: with_deaths(inputs, live),
            params,
            dead_before: dead_before.into(),
            dead_after: dead_after(&live_before, live),
            identity,
            reason: Some(Box::new(reason)),
            ..self.new_node(&ground, outputs, old_default)
        };
        let id = self.nodes.insert(node);
        self.index.insert(id, ground.parent, ground.function, identity);
        if let Some(function) = self.function_mut(ground.function) {
            function.nodes.push(id);
        }
        self.learn_returned(id);
        if let Some(parent) = ground.parent.and_then(|parent| self.nodes.get_mut(parent))
            && !parent.child_functions.contains(&ground.function)
        {
            parent.child_functions.push(ground.function);
        }
        let kept = self.kept_len(&ground);
        let leaving = self.path.entries().get(kept..).unwrap_or_default().to_vec();
        let mut ran = self.advance(id, ground.kind, ground.moment, PathState::Recording);
        self.note_staged(id, &ground.staged);
        ran.evicted = self.make_room(id, &leaving, live);
        Ok(ran)
    }

    /// Reports that a recording failed. It leaves no trace but one failure counted against its function: when
    /// too many have failed lately, its calls run eagerly for a while.
    pub fn recording_failed(&mut self, recording: Recording) {
        let decay = self.options.limits.failures_decay;
        if let Some(function) = self.function_mut(recording.plan.ground.function) {
            function.failures.add(function.calls, decay);
        }
    }

    /// Notes that a path grows by calls that repeat, if pending backwards are what keeps it from ending.
    pub(crate) fn note_growth(&mut self, function: FunctionId) {
        let pending = self.path.pending();
        let turns = self
            .path
            .entries()
            .iter()
            .filter(|entry| self.nodes.get(entry.node).is_some_and(|node| node.function == function));
        if pending > 0 && turns.count() > self.options.limits.loop_length as usize {
            self.notices.add(Notice::PendingBackwards { function, pending });
        }
    }

    /// Counts a recording against the budgets that it falls under, and stages what has changed too often.
    fn count_recording(
        &mut self,
        ground: &Ground,
        reason: &RecordReason,
        changed: Vec<Demotion>,
        demotions: Vec<Demotion>,
    ) {
        let limits = self.options.limits;
        let Some(function) = self.functions.get_mut(ground.function) else {
            return;
        };
        function.unreplayed.add(function.calls, limits.unreplayed_decay);
        if matches!(reason, RecordReason::NoneFits { .. }) && changed.is_empty() {
            let branch = self.index.branch_mut(ground.parent, ground.function);
            branch.rerecordings.add(function.calls, limits.rerecordings_decay);
        }
        for change in changed {
            function.changes.entry(change).or_default().add(function.calls, limits.changes_decay);
        }
        demotions.into_iter().for_each(|demotion| function.demote(demotion));
    }

    /// Learns which inputs the function of a new node hands back.
    pub(crate) fn learn_returned(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id) else { return };
        if let Some(function) = self.functions.get_mut(node.function) {
            function.returned.insert_all(&node.returned);
        }
    }

    /// A node that has not run yet and, until it is said otherwise, is a warm-up run.
    pub(crate) fn new_node(&mut self, ground: &Ground, outputs: Vec<Output>, old_default: OldOutput) -> Node {
        let depth = self.kept_len(ground);
        self.serials += 1;
        Node {
            serial: self.serials,
            function: ground.function,
            phase: ground.kind.phase(),
            parent: ground.parent,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
            epoch: Epoch::default(),
            inputs: Box::default(),
            params: None,
            warm_up_params: ground.param_set,
            dead_before: Box::default(),
            dead_after: Box::default(),
            tracked: TrackedSlots::of(&outputs),
            returned: returned_inputs(&outputs),
            outputs: outputs.into(),
            old_default,
            reason: None,
            identity: 0,
            successor: None,
            last_used: 0,
            replays: 0,
            child_functions: SmallVec::new(),
        }
    }

    /// What a recording on this path finds dead, and what it finds live, as far as no ancestor demands it to
    /// be dead. Managed inputs are left out: what becomes of those is said with the input.
    fn demands<L: Liveness + ?Sized>(&self, plan: &RecordPlan, live: &L) -> (Vec<DeadMask>, Vec<DeadMask>) {
        let kept = self.kept_len(&plan.ground);
        let ancestors = self.path.entries().get(..kept).unwrap_or_default();
        let mut left_out: HashMap<(NodeId, u32), u64> = HashMap::new();
        let demanded = ancestors.iter().filter_map(|entry| self.nodes.get(entry.node));
        for slot in demanded.flat_map(Node::expected_dead).chain(managed_slots(&plan.inputs)) {
            *left_out.entry((slot.node, slot.index.word())).or_default() |= slot.index.bit();
        }
        let (mut dead, mut alive) = (Vec::new(), Vec::new());
        for entry in ancestors {
            let Some(node) = self.nodes.get(entry.node) else { continue };
            for (word, tracked) in node.tracked.words() {
                let open = tracked & !left_out.get(&(entry.node, word)).copied().unwrap_or(0);
                let bits = live.live_word(entry.node, word);
                let add = |list: &mut Vec<DeadMask>, mask: u64| {
                    if mask != 0 {
                        list.push(DeadMask { node: entry.node, word, mask });
                    }
                };
                add(&mut dead, open & !bits);
                add(&mut alive, open & bits);
            }
        }
        (dead, alive)
    }
}

/// The slots of the inputs that are read in place.
fn managed_slots(inputs: &[Expected]) -> impl Iterator<Item = Slot> + '_ {
    inputs.iter().filter_map(|input| match input.role {
        Role::Managed { slot, .. } => Some(slot),
        Role::Staged(_) | Role::Scalar => None,
    })
}

/// The inputs, with it said of each managed one whether its storage died while the recording ran.
fn with_deaths<L: Liveness + ?Sized>(mut inputs: Box<[Expected]>, live: &L) -> Box<[Expected]> {
    for input in &mut inputs {
        if let Role::Managed { slot, dies, .. } = &mut input.role {
            *dies = live.live_word(slot.node, slot.index.word()) & slot.index.bit() == 0;
        }
    }
    inputs
}

/// Of the slots that were live before, those that are not any more.
fn dead_after<L: Liveness + ?Sized>(live_before: &[DeadMask], live: &L) -> Box<[DeadMask]> {
    let died = live_before
        .iter()
        .map(|before| DeadMask { mask: before.mask & !live.live_word(before.node, before.word), ..*before });
    died.filter(|mask| mask.mask != 0).collect()
}

/// Rejects an output that is said to be an alias of what has no storage.
pub(crate) fn check_aliases(outputs: &[Output], inputs: &[Expected]) -> Result<(), Error> {
    for (output, declared) in (0..).map(SlotIndex::new).zip(outputs) {
        let is_bad = match declared.kind {
            OutputKind::AliasOfInput(input) => {
                inputs.get(input.get() as usize).is_none_or(|input| input.role == Role::Scalar)
            }
            OutputKind::AliasOfOutput(other) => {
                let aliased = outputs.get(other.get() as usize).map(|aliased| aliased.kind);
                other >= output || aliased != Some(OutputKind::Fresh)
            }
            _ => false,
        };
        if is_bad {
            return Err(Error::BadAlias { output });
        }
    }
    Ok(())
}
