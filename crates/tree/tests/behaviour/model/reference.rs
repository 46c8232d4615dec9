//! A naive tree: full snapshots instead of differences, linear scans instead of indexes, counts kept call by
//! call. Slow and plain, so that it can be seen to be right.

use super::leak::Leak;
use graphgrove_tree::{Limits, OldOutput, PathState, Phase};
use std::collections::{BTreeMap, BTreeSet};

/// A slot: the number of its node, and its index.
pub(super) type RSlot = (usize, u32);
/// A place: the number of the parent, or none for roots.
pub(super) type Place = Option<usize>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RValue {
    pub(super) slot: RSlot,
    pub(super) epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RSource {
    Staged,
    Scalar,
    Path { value: RValue, given_up: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RInput {
    pub(super) signature: u64,
    pub(super) source: RSource,
    pub(super) mutated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RParams {
    pub(super) set: u64,
    pub(super) version: u64,
    pub(super) addresses: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct RCall {
    pub(super) function: usize,
    pub(super) phase: Phase,
    pub(super) token: Option<usize>,
    pub(super) inputs: Vec<RInput>,
    pub(super) params: Option<RParams>,
}

impl RCall {
    pub(super) fn reads(&self, slot: RSlot) -> bool {
        self.inputs
            .iter()
            .any(|input| matches!(input.source, RSource::Path { value, .. } if value.slot == slot))
    }

    pub(super) fn gives_up(&self, slot: RSlot) -> bool {
        self.inputs.iter().any(
            |input| matches!(input.source, RSource::Path { value, given_up: true } if value.slot == slot),
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RRole {
    Scalar,
    Staged,
    Managed(RSlot),
}

/// What is staged although it need not be: an input or a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RDemotion {
    Input(u32),
    Param(u32),
}

#[derive(Clone, Debug)]
pub(super) struct RNode {
    pub(super) function: usize,
    pub(super) phase: Phase,
    pub(super) parent: Place,
    pub(super) epoch: u64,
    pub(super) inputs: Vec<(u64, RRole, bool)>,
    pub(super) params: Option<RParams>,
    pub(super) staged_params: BTreeSet<u32>,
    /// All slots of all ancestors that were dead when the recording began, and when it had ended.
    pub(super) dead_before: BTreeSet<RSlot>,
    pub(super) dead_after: BTreeSet<RSlot>,
    pub(super) is_warm_up: bool,
    pub(super) was_replayed: bool,
    pub(super) last_used: u64,
    pub(super) successor: Place,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct REntry {
    pub(super) node: usize,
    pub(super) epoch: u64,
    pub(super) token: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RFunction {
    /// The outputs: whether each is saved, and what becomes of it at a new step.
    pub(super) outputs: Vec<(bool, OldOutput)>,
    pub(super) warm: BTreeSet<(u8, Vec<(u64, bool)>)>,
    pub(super) demoted: BTreeSet<RDemotion>,
    pub(super) changes: BTreeMap<RDemotion, Leak>,
    pub(super) failures: Leak,
    pub(super) unreplayed: Leak,
}

/// What a call is expected to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Replay { node: usize, change: Change },
    Record { parent: Place, change: Change, restore: bool, closest: Place, demotions: Vec<RDemotion> },
    WarmUp { parent: Place, change: Change, restore: bool },
    PathLength,
    Siblings,
    FunctionRecordings,
    Rerecorded,
    RecordingsFail,
    Unreplayed,
    KeyNotListed,
    MutatesForeignInput,
}

/// What happens to the path, with every live slot that it touches and whether that is copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Starts,
    Extends,
    DropsUnneededTail,
    Over,
    Kept(RSlot),
    NewStep(Vec<(RSlot, bool)>),
    LoopTurns(Vec<(RSlot, bool)>),
}

#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) limits: Limits,
    pub(super) functions: Vec<RFunction>,
    pub(super) nodes: Vec<Option<RNode>>,
    pub(super) path: Vec<REntry>,
    pub(super) state: PathState,
    pub(super) live: BTreeSet<RSlot>,
    /// Pending backwards: whether each still exists.
    pub(super) tokens: Vec<bool>,
    /// What forwards that ran eagerly have read of the path.
    pub(super) saved_outside: Vec<(usize, RValue)>,
    /// Calls of warm functions below a warm-up of this path, by function, kind and parameter set.
    pub(super) held_back: BTreeMap<(usize, u8, Option<u64>), u32>,
    pub(super) requested: bool,
    pub(super) step: u64,
    pub(super) last: Place,
    pub(super) predicted: Place,
    pub(super) rerecordings: BTreeMap<(Place, usize), Leak>,
    pub(super) runs: u64,
    pub(super) evicted: BTreeSet<usize>,
    pub(super) ended_warm_ups: Vec<usize>,
}

impl Reference {
    pub(super) fn new(limits: Limits, functions: &[Vec<(bool, OldOutput)>]) -> Self {
        let function = |outputs: &Vec<_>| RFunction { outputs: outputs.clone(), ..RFunction::default() };
        Self {
            limits,
            functions: functions.iter().map(function).collect(),
            nodes: Vec::new(),
            path: Vec::new(),
            state: PathState::None,
            live: BTreeSet::new(),
            tokens: Vec::new(),
            saved_outside: Vec::new(),
            held_back: BTreeMap::new(),
            requested: false,
            step: 0,
            last: None,
            predicted: None,
            rerecordings: BTreeMap::new(),
            runs: 0,
            evicted: BTreeSet::new(),
            ended_warm_ups: Vec::new(),
        }
    }

    pub(super) fn node(&self, node: usize) -> &RNode {
        self.nodes[node].as_ref().unwrap()
    }

    pub(super) fn depth(&self, node: usize) -> usize {
        self.node(node).parent.map_or(0, |parent| self.depth(parent) + 1)
    }

    pub(super) fn slots(&self, node: usize) -> impl Iterator<Item = RSlot> {
        (0..u32::try_from(self.functions[self.node(node).function].outputs.len()).unwrap())
            .map(move |slot| (node, slot))
    }

    /// The values that a caller may hold, in a fixed order.
    pub(super) fn values(&self) -> Vec<RValue> {
        let of = |entry: &REntry| (entry.node, entry.epoch);
        let entries = self.path.iter().map(of);
        entries
            .flat_map(|(node, epoch)| self.slots(node).map(move |slot| RValue { slot, epoch }))
            .filter(|value| self.live.contains(&value.slot))
            .collect()
    }

    fn needed(&self) -> usize {
        let is_needed = |entry: &REntry| {
            entry.token.is_some() || self.slots(entry.node).any(|slot| self.live.contains(&slot))
        };
        self.path.iter().rposition(is_needed).map_or(0, |last| last + 1)
    }

    pub(super) fn role(&self, call: &RCall, index: usize, place: Place) -> RRole {
        let demoted = &self.functions[call.function].demoted;
        match call.inputs[index].source {
            RSource::Scalar => RRole::Scalar,
            RSource::Staged => RRole::Staged,
            RSource::Path { .. } if place.is_none() => RRole::Staged,
            RSource::Path { .. } if demoted.contains(&RDemotion::Input(u32::try_from(index).unwrap())) => {
                RRole::Staged
            }
            RSource::Path { value, .. } => RRole::Managed(value.slot),
        }
    }

    fn moved_params(&self, node: &RNode, call: &RCall) -> Vec<u32> {
        let (Some(old), Some(new)) = (&node.params, &call.params) else { return Vec::new() };
        let pairs = (0..).zip(old.addresses.iter().zip(&new.addresses));
        let moved = pairs.filter(|(index, (old, new))| old != new && !node.staged_params.contains(index));
        moved.map(|(index, _)| index).collect()
    }

    /// How far a recording gets in fitting a call; 100 means that it fits.
    fn closeness(&self, node: usize, call: &RCall) -> u8 {
        let node = self.node(node);
        if node.function != call.function {
            return 0;
        }
        if node.phase != call.phase {
            return 1;
        }
        if node.inputs.len() != call.inputs.len() {
            return 2;
        }
        let both = || node.inputs.iter().zip(&call.inputs).enumerate();
        if both().any(|(_, (old, new))| old.0 != new.signature) {
            return 3;
        }
        for (index, (old, new)) in both() {
            let role = self.role(call, index, node.parent);
            // A recording that reads an output in place still fits once that input is staged for new
            // recordings.
            let in_place = match new.source {
                RSource::Path { value, .. } => RRole::Managed(value.slot),
                _ => role,
            };
            match (old.1, in_place) {
                (RRole::Managed(old), RRole::Managed(new)) if old != new => return 5,
                (RRole::Managed(_), RRole::Managed(_)) => {}
                (old, _) if old == role => {}
                _ => return 4,
            }
            if old.2 != new.mutated {
                return 4;
            }
        }
        let same_count = node.params.as_ref().map(|params| params.addresses.len())
            == call.params.as_ref().map(|params| params.addresses.len());
        if !same_count {
            return 6;
        }
        if !self.moved_params(node, call).is_empty() {
            let same_set = node.params.as_ref().map(|params| params.set)
                == call.params.as_ref().map(|params| params.set);
            return if same_set { 8 } else { 7 };
        }
        let managed: BTreeSet<_> = node
            .inputs
            .iter()
            .filter_map(|input| match input.1 {
                RRole::Managed(slot) => Some(slot),
                _ => None,
            })
            .collect();
        let overwritten = |slot: &&RSlot| self.live.contains(slot);
        if node.dead_after.iter().filter(|slot| managed.contains(slot)).any(|slot| !call.gives_up(*slot)) {
            return 9;
        }
        if node.dead_before.iter().any(|slot| overwritten(&slot)) {
            return 10;
        }
        if node.dead_after.iter().filter(overwritten).any(|slot| !call.gives_up(*slot)) {
            return 10;
        }
        100
    }

    pub(super) fn children(&self, place: Place, function: usize) -> Vec<usize> {
        let all = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)));
        all.filter(|(_, node)| !node.is_warm_up && node.parent == place && node.function == function)
            .map(|(id, _)| id)
            .collect()
    }

    /// The first recording in this place, in the order in which they were made, that fits the call and would
    /// be made so today.
    fn find(&self, place: Place, call: &RCall) -> Option<usize> {
        self.children(place, call.function).into_iter().find(|id| {
            self.alike(*id, call, place, &self.functions[call.function].demoted)
                && self.closeness(*id, call) == 100
        })
    }

    /// Whether a recording has the identity that a recording of the call in this place would have.
    pub(super) fn alike(&self, id: usize, call: &RCall, place: Place, demoted: &BTreeSet<RDemotion>) -> bool {
        let node = self.node(id);
        let staged: BTreeSet<u32> = demoted
            .iter()
            .filter_map(|demotion| match demotion {
                RDemotion::Param(index) => Some(*index),
                RDemotion::Input(_) => None,
            })
            .collect();
        let visible = |params: &Option<RParams>| {
            params.as_ref().map(|params| {
                let kept = (0..).zip(&params.addresses).filter(|(index, _)| !staged.contains(index));
                (params.addresses.len(), kept.map(|(_, address)| *address).collect::<Vec<_>>())
            })
        };
        let inputs: Vec<_> = call
            .inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                let is_demoted = demoted.contains(&RDemotion::Input(u32::try_from(index).unwrap()));
                let role = match input.source {
                    RSource::Path { .. } if is_demoted => RRole::Staged,
                    _ => self.role(call, index, place),
                };
                (input.signature, role, input.mutated)
            })
            .collect();
        node.parent == place
            && !node.is_warm_up
            && node.function == call.function
            && node.phase == call.phase
            && node.inputs == inputs
            && (call.params.is_none() || node.staged_params == staged)
            && visible(&node.params) == visible(&call.params)
    }

    fn rule(&self, slot: RSlot) -> (bool, OldOutput) {
        self.functions[self.node(slot.0).function].outputs[slot.1 as usize]
    }

    /// The live slots that the call does not take with it, root first.
    fn left_behind(&self, call: &RCall) -> Vec<(REntry, RSlot)> {
        let all = self.path.iter().flat_map(|entry| self.slots(entry.node).map(|slot| (*entry, slot)));
        all.filter(|(_, slot)| self.live.contains(slot) && !call.gives_up(*slot)).collect()
    }

    /// What becomes of the live slots at a step. A function that has not run with such inputs may hand any of them
    /// back, so they are copied out; no function of a program here ever does.
    fn end(&self, call: &RCall) -> Vec<(RSlot, bool)> {
        let is_cold = !self.functions[call.function].warm.contains(&Self::warm_key(call));
        let slots = self.path.iter().flat_map(|entry| self.slots(entry.node).map(|slot| (*entry, slot)));
        slots
            .filter(|(_, slot)| self.live.contains(slot))
            .filter(|(_, slot)| !call.gives_up(*slot) || is_cold)
            .map(|(entry, slot)| {
                let (saved, old) = self.rule(slot);
                let is_saved = (saved && entry.token.is_some()) || self.is_saved_outside(slot);
                (slot, is_saved || old != OldOutput::Error || (is_cold && call.reads(slot)))
            })
            .collect()
    }

    /// Whether a forward that ran eagerly, and whose backward is pending, read this slot.
    fn is_saved_outside(&self, slot: RSlot) -> bool {
        self.saved_outside.iter().any(|(token, value)| {
            self.tokens[*token]
                && value.slot == slot
                && self.path.iter().any(|entry| (entry.node, entry.epoch) == (slot.0, value.epoch))
        })
    }

    pub(super) fn decide(&self, call: &RCall) -> Expected {
        let needed = self.needed();
        if let Some(expected) = self.predicted(call, needed) {
            return expected;
        }
        let mut kept = None;
        if self.requested {
            kept = self
                .left_behind(call)
                .into_iter()
                .map(|(_, slot)| slot)
                .find(|slot| self.rule(*slot).1 == OldOutput::Keep)
                .filter(|_| !self.node(self.path[needed - 1].node).is_warm_up);
            if kept.is_none() {
                let change = match (self.path.is_empty(), needed) {
                    (true, _) => Change::Starts,
                    (_, 0) => Change::Over,
                    _ => Change::NewStep(self.end(call)),
                };
                return self.at(None, call, change, needed);
            }
        }
        let or_kept = |change| kept.map_or(change, Change::Kept);
        let mut change = Change::Extends;
        if needed < self.path.len() {
            let current = self.path.last().map(|entry| entry.node);
            if let Some(node) = self.find(current, call) {
                return Expected::Replay { node, change: or_kept(Change::Extends) };
            }
            change = Change::DropsUnneededTail;
        }
        if needed == 0 {
            let change = if self.path.is_empty() { Change::Starts } else { Change::Over };
            return self.at(None, call, change, needed);
        }
        let place = Some(self.path[needed - 1].node);
        if let Some(node) = self.find(place, call) {
            return Expected::Replay { node, change: or_kept(change) };
        }
        let is_longest = needed >= self.limits.path_length as usize;
        let set = call.params.as_ref().map(|params| params.set);
        let is_turn = |entry: &&REntry| {
            let node = self.node(entry.node);
            let same_set = node.params.as_ref().map(|params| params.set) == set;
            node.function == call.function && node.phase == call.phase && same_set
        };
        let turns = self.path[..needed].iter().filter(is_turn).count();
        let none_pending = self.path.iter().all(|entry| entry.token.is_none());
        let turn = (call.function, call.phase as u8, set);
        let is_held = self.held_back.get(&turn).copied().unwrap_or(0) >= self.limits.loop_length
            && none_pending
            && self.node(self.path[needed - 1].node).is_warm_up
            && self.functions[call.function].warm.contains(&Self::warm_key(call));
        if is_held {
            let copied = self.end(call).into_iter().map(|(slot, _)| (slot, true)).collect();
            return self.at(None, call, Change::LoopTurns(copied), needed);
        }
        if is_longest || turns >= self.limits.loop_length as usize {
            if kept.is_some() {
                return self.at(None, call, Change::NewStep(self.end(call)), needed);
            }
            let left = self.left_behind(call);
            if none_pending
                && left.iter().all(|(_, slot)| call.reads(*slot) || self.rule(*slot).1 != OldOutput::Error)
            {
                let copied = self.end(call).into_iter().map(|(slot, _)| (slot, true)).collect();
                return self.at(None, call, Change::LoopTurns(copied), needed);
            }
        }
        self.anew(place, call, or_kept(change), needed)
    }

    fn predicted(&self, call: &RCall, needed: usize) -> Option<Expected> {
        let node = self.predicted?;
        let data = self.nodes[node].as_ref()?;
        if data.is_warm_up || self.closeness(node, call) != 100 {
            return None;
        }
        let change = match data.parent {
            None if needed == 0 => Change::Over,
            None => return None,
            Some(_) if self.requested => return None,
            Some(parent) => {
                let at = self.path.iter().position(|entry| entry.node == parent)?;
                match (at + 1 == self.path.len(), needed <= at + 1) {
                    (true, _) => Change::Extends,
                    (_, true) => Change::DropsUnneededTail,
                    _ => return None,
                }
            }
        };
        Some(Expected::Replay { node, change })
    }

    fn at(&self, place: Place, call: &RCall, change: Change, needed: usize) -> Expected {
        match self.find(place, call) {
            Some(node) => Expected::Replay { node, change },
            None => self.anew(place, call, change, needed),
        }
    }

    pub(super) fn warm_key(call: &RCall) -> (u8, Vec<(u64, bool)>) {
        let inputs = call.inputs.iter().map(|input| (input.signature, input.source == RSource::Scalar));
        (call.phase as u8, inputs.collect())
    }

    fn anew(&self, place: Place, call: &RCall, change: Change, needed: usize) -> Expected {
        let needed = if place.is_none() { 0 } else { needed };
        if needed >= self.limits.path_length as usize {
            return Expected::PathLength;
        }
        let function = &self.functions[call.function];
        let restore = self.state == PathState::Replaying && place.is_some();
        let below_warm_up = place.is_some_and(|parent| self.node(parent).is_warm_up);
        if below_warm_up || !function.warm.contains(&Self::warm_key(call)) {
            return Expected::WarmUp { parent: place, change, restore };
        }
        if function.failures.count >= self.limits.failures {
            return Expected::RecordingsFail;
        }
        if function.unreplayed.count >= self.limits.unreplayed {
            return Expected::Unreplayed;
        }
        let siblings = self.children(place, call.function);
        let closest = siblings
            .iter()
            .filter(|id| self.closeness(**id, call) != 100)
            .max_by_key(|id| (self.closeness(**id, call), self.node(**id).last_used))
            .copied();
        let changed = closest.map_or(Vec::new(), |closest| self.changed(closest, call));
        let spent = self.rerecordings.get(&(place, call.function)).copied().unwrap_or_default();
        if closest.is_some() && changed.is_empty() && spent.count >= self.limits.rerecordings {
            return Expected::Rerecorded;
        }
        let is_due = |change: &&RDemotion| {
            let count = function.changes.get(change).copied().unwrap_or_default().count;
            count >= self.limits.changes_before_staged
        };
        let demotions: Vec<_> = changed.iter().filter(is_due).copied().collect();
        let demoted: BTreeSet<_> = function.demoted.iter().chain(&demotions).copied().collect();
        let alike: Vec<_> =
            siblings.iter().copied().filter(|id| self.alike(*id, call, place, &demoted)).collect();
        let of_function = self.recordings_of(call.function);
        let is_full = |nodes: &[usize], limit: u32| {
            nodes.len() >= limit as usize && !nodes.iter().any(|id| self.may_go(*id, needed))
        };
        if is_full(&siblings, self.limits.siblings) || is_full(&alike, self.limits.liveness_variants) {
            return Expected::Siblings;
        }
        if is_full(&of_function, self.limits.recordings_per_function) {
            return Expected::FunctionRecordings;
        }
        Expected::Record { parent: place, change, restore, closest, demotions }
    }

    pub(super) fn recordings_of(&self, function: usize) -> Vec<usize> {
        let all = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)));
        all.filter(|(_, node)| node.function == function && !node.is_warm_up).map(|(id, _)| id).collect()
    }

    /// The inputs that differ from the closest recording and can be staged.
    pub(super) fn changed(&self, closest: usize, call: &RCall) -> Vec<RDemotion> {
        let node = self.node(closest);
        let demoted = &self.functions[call.function].demoted;
        let all: Vec<_> = match self.closeness(closest, call) {
            8 => self.moved_params(node, call).into_iter().map(RDemotion::Param).collect(),
            5 => {
                let pairs = (0..).zip(node.inputs.iter().zip(&call.inputs));
                pairs
                    .filter(|(_, (old, new))| match (old.1, new.source) {
                        (RRole::Managed(slot), RSource::Path { value, .. }) => slot != value.slot,
                        _ => false,
                    })
                    .map(|(index, _)| RDemotion::Input(index))
                    .collect()
            }
            _ => Vec::new(),
        };
        all.into_iter().filter(|change| !demoted.contains(change)).collect()
    }

    pub(super) fn may_go(&self, node: usize, kept: usize) -> bool {
        !self.path.iter().take(kept).any(|entry| entry.node == node)
    }

    pub(super) fn ancestors(&self, place: Place) -> Vec<usize> {
        std::iter::successors(place, |node| self.node(*node).parent).collect()
    }
}
