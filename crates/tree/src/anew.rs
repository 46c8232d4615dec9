//! What a call does when no recording fits it: warm up, record, or run eagerly within the limits.

use crate::call::{Call, Input, Source};
use crate::decision::{Decision, PathChange, RecordPlan, WarmUpPlan};
use crate::function::{Demoted, Function, WarmSignatures};
use crate::limits::Limits;
use crate::liveness::Liveness;
use crate::matching::{changed_inputs, mismatch, moved_params};
use crate::node::{Expected, ExpectedParams, Node, Role, StagedWhy};
use crate::path::PathState;
use crate::reasons::{Demotion, EagerReason, Mismatch, RecordReason, WarmUpReason};
use crate::tree::Tree;
use crate::{InputIndex, NodeId, SlotValue};
use std::sync::Arc;

impl Tree {
    /// Decides for a call that no recording fits, to run below `parent`, which is the last of the first
    /// `needed` nodes of the path, or at a root.
    pub(crate) fn run_anew<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        function: &Function,
        live: &L,
        parent: Option<NodeId>,
        needed: usize,
        change: PathChange,
    ) -> Decision {
        if let Some(input) = self.foreign_mutation(call, function, parent) {
            return Decision::Eager(EagerReason::MutatesForeignInput { input });
        }
        let limits = &self.options.limits;
        if needed >= limits.path_length as usize {
            return Decision::Eager(EagerReason::PathLength { limit: limits.path_length });
        }
        if !function.spec.lists(call) {
            return Decision::Eager(EagerReason::KeyNotListed);
        }
        let below_warm_up = parent.filter(|id| self.nodes.get(*id).is_some_and(Node::is_warm_up));
        let key = WarmSignatures::key(call);
        let warm_up_reason = match below_warm_up {
            Some(node) => Some(WarmUpReason::BelowWarmUp { node }),
            None => (!function.warm.contains(&key)).then_some(WarmUpReason::Cold),
        };
        // Only after a replay does the pool know less than the path: whatever else ran, ran through the pool.
        let restore = parent.filter(|_| self.path.state() == PathState::Replaying);
        if let Some(reason) = warm_up_reason {
            let ground = self.ground(call, parent, change, &function.demoted);
            return Decision::WarmUp(Box::new(WarmUpPlan {
                ground,
                restore,
                key,
                inputs: self.expected_inputs(call, parent, &function.demoted),
                reason,
            }));
        }
        let failing = function.failures;
        if failing.at(function.calls, limits.failures_decay) >= limits.failures {
            let calls = failing.ticks_until_below(limits.failures, function.calls, limits.failures_decay);
            return Decision::Eager(EagerReason::RecordingsFail { calls });
        }
        let unreplayed = function.unreplayed;
        if unreplayed.at(function.calls, limits.unreplayed_decay) >= limits.unreplayed {
            let calls =
                unreplayed.ticks_until_below(limits.unreplayed, function.calls, limits.unreplayed_decay);
            return Decision::Eager(EagerReason::Unreplayed { calls });
        }
        let reason = self.record_reason(call, function, live, parent);
        let changed = self.demotable_changes(call, function, &reason);
        if let RecordReason::NoneFits { mismatch, .. } = &reason
            && changed.is_empty()
            && let Some(calls) = self.wait_for_rerecording(call, function, parent)
        {
            return Decision::Eager(EagerReason::Rerecorded { calls, mismatch: mismatch.clone() });
        }
        let mut demoted = function.demoted.clone();
        let demotions: Vec<_> =
            changed.iter().copied().filter(|change| is_due(function, limits, change)).collect();
        demotions.iter().for_each(|demotion| demoted.add(*demotion));
        let plan = RecordPlan {
            inputs: self.expected_inputs(call, parent, &demoted),
            params: call.params.as_ref().map(|params| ExpectedParams {
                set: params.set,
                version: params.version,
                addresses: self.params.addresses(params),
                staged: Arc::clone(&demoted.params),
            }),
            identity: self.identity(parent, call, &demoted),
            ground: self.ground(call, parent, change, &demoted),
            restore,
            reason,
            changed,
            demotions,
        };
        match self.lacks_room(&plan, function, needed, live) {
            Some(reason) => Decision::Eager(reason),
            None => Decision::Record(Box::new(plan)),
        }
    }

    /// The first input that the function writes to without the write reaching its owner.
    fn foreign_mutation(
        &self,
        call: &Call<'_>,
        function: &Function,
        parent: Option<NodeId>,
    ) -> Option<InputIndex> {
        if self.options.copy_back {
            return None;
        }
        let inputs = (0..).map(InputIndex::new).zip(call.inputs);
        let written = inputs.filter(|(_, input)| input.mutated && input.source != Source::Scalar);
        let mut foreign = written.filter(|(index, input)| {
            let in_place = matches!(input.source, Source::Managed { .. }) && parent.is_some();
            !in_place || function.demoted.inputs.contains(*index)
        });
        foreign.next().map(|(index, _)| index)
    }

    /// Why a recording is made in this place: what keeps the closest one there from fitting.
    fn record_reason<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        function: &Function,
        live: &L,
        parent: Option<NodeId>,
    ) -> RecordReason {
        let siblings = self.children(parent, call.function).iter();
        let mismatches = siblings.filter_map(|&id| {
            let node = self.nodes.get(id)?;
            let mismatch = mismatch(node, call, &function.demoted.inputs, self.path.entries(), live)?;
            Some((mismatch.closeness(), node.last_used, id, mismatch))
        });
        match mismatches.max_by_key(|(closeness, last_used, _, _)| (*closeness, *last_used)) {
            Some((_, _, closest, mismatch)) => RecordReason::NoneFits { closest, mismatch },
            None => RecordReason::First,
        }
    }

    /// The inputs that differ from the closest recording and could be staged instead.
    fn demotable_changes(
        &self,
        call: &Call<'_>,
        function: &Function,
        reason: &RecordReason,
    ) -> Vec<Demotion> {
        let RecordReason::NoneFits { closest, mismatch } = reason else { return Vec::new() };
        let Some(closest) = self.nodes.get(*closest) else { return Vec::new() };
        match (mismatch, &closest.params, &call.params) {
            (Mismatch::ParamAddress { .. }, Some(expected), Some(given))
                if self.options.copy_back || !function.spec.writes_params() =>
            {
                let moved = moved_params(expected, given).into_iter().map(Demotion::Param);
                moved.filter(|change| !function.demoted.contains(*change)).collect()
            }
            (Mismatch::ManagedInput { .. }, _, _) => {
                let changed = changed_inputs(&closest.inputs, call).into_iter();
                changed
                    .filter(|index| self.options.copy_back || !is_written(call, *index))
                    .map(Demotion::Input)
                    .filter(|change| !function.demoted.contains(*change))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// How many calls of the function have to go by until it may be recorded again in this place; none if it
    /// may.
    fn wait_for_rerecording(
        &self,
        call: &Call<'_>,
        function: &Function,
        parent: Option<NodeId>,
    ) -> Option<u64> {
        let Limits { rerecordings, rerecordings_decay, .. } = self.options.limits;
        let count = self.index.branch(parent, call.function)?.rerecordings;
        let wait = count.ticks_until_below(rerecordings, function.calls, rerecordings_decay);
        (wait > 0).then_some(wait)
    }

    /// How a recording below `parent` uses each input when `demoted` is staged.
    fn expected_inputs(&self, call: &Call<'_>, parent: Option<NodeId>, demoted: &Demoted) -> Box<[Expected]> {
        let role = |index, input: &Input| match input.source {
            Source::Scalar => Role::Scalar,
            Source::Staged => Role::Staged(StagedWhy::Foreign),
            Source::Managed { .. } if parent.is_none() => Role::Staged(StagedWhy::Carried),
            Source::Managed { .. } if demoted.inputs.contains(index) => Role::Staged(StagedWhy::Churn),
            Source::Managed { value: SlotValue { slot, .. }, .. } => {
                let depth = self.nodes.get(slot.node).map_or(0, |node| node.depth);
                Role::Managed { slot, depth, dies: false }
            }
        };
        let inputs = (0..).map(InputIndex::new).zip(call.inputs);
        let expected = inputs.map(|(index, input)| Expected {
            signature: input.signature,
            role: role(index, input),
            mutated: input.mutated,
        });
        expected.collect()
    }
}

fn is_due(function: &Function, limits: &Limits, change: &Demotion) -> bool {
    let count = function.changes.get(change).copied().unwrap_or_default();
    count.at(function.calls, limits.changes_decay) >= limits.changes_before_staged
}

fn is_written(call: &Call<'_>, index: InputIndex) -> bool {
    call.inputs.get(index.get() as usize).is_some_and(|input| input.mutated)
}
