//! When a path may end although something on it is live, and what that does to it.

use crate::call::{Call, Source};
use crate::decide::managed_inputs;
use crate::decision::PathEnd;
use crate::function::InputSet;
use crate::limits::PendingRule;
use crate::liveness::Liveness;
use crate::node::Node;
use crate::output::{Fate, OldOutput, OldSlot};
use crate::path::PathEntry;
use crate::tree::Tree;
use crate::{InputIndex, Slot, SlotValue, Step};

/// The inputs of a call whose storage an output shares. Such a storage outlives the call, whoever gave it up, so it
/// does not end with a path that the call ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Returned<'a> {
    /// These, as far as the function has shown.
    These(&'a InputSet),
    /// Any, because the function has not run in the pool with such inputs yet.
    Unknown,
}

impl Returned<'_> {
    fn contains(self, input: InputIndex) -> bool {
        match self {
            Self::These(inputs) => inputs.contains(input),
            Self::Unknown => true,
        }
    }
}

impl Tree {
    /// Whether the rule for pending backwards forbids a step to begin.
    pub(crate) fn is_held_by_backwards(&self) -> bool {
        self.options.pending == PendingRule::UntilBackwardRuns && self.path.pending() > 0
    }

    /// The first live output that is to be kept at a new step.
    pub(crate) fn kept_slot<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> Option<Slot> {
        let needs = self.needs();
        let mut left = self.left_behind(call, live);
        left.find(|(_, _, value)| needs.of(*value).rule == OldOutput::Keep).map(|(_, _, value)| value.slot)
    }

    /// How often the call's function, with the same parameters, is among the first `needed` nodes of the
    /// path.
    pub(crate) fn turns_on_path(&self, call: &Call<'_>, needed: usize) -> usize {
        let set = call.params.as_ref().map(|params| params.set);
        let on_path = self.path.entries().iter().take(needed);
        on_path
            .filter_map(|entry| self.nodes.get(entry.node))
            .filter(|node| node.function == call.function && node.phase == call.kind.phase())
            .filter(|node| node.param_set() == set)
            .count()
    }

    /// Whether the path may end without a step being asked for: no backward is pending on it, and every live
    /// output either goes into the call or may be copied out.
    pub(crate) fn may_end_between_steps<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> bool {
        let needs = self.needs();
        let is_input = |value| managed_inputs(call).any(|(_, input)| input == value);
        let mut left = self.left_behind(call, live);
        self.path.pending() == 0
            && left.all(|(_, _, value)| is_input(value) || needs.of(value).rule != OldOutput::Error)
    }

    /// The effects of ending the path between steps. Nothing is made stale there: no step told the caller so.
    pub(crate) fn loop_end<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        live: &L,
        returned: Returned<'_>,
    ) -> PathEnd {
        let mut end = self.path_end(call, live, returned);
        for old in &mut end.slots {
            if old.fate == Fate::Invalidate {
                old.fate = Fate::CopyOut;
            }
        }
        end
    }

    /// The effects of ending the path now.
    pub(crate) fn path_end<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        live: &L,
        returned: Returned<'_>,
    ) -> PathEnd {
        let needs = self.needs();
        let is_returned =
            |value| managed_inputs(call).any(|(index, input)| input == value && returned.contains(index));
        let slots = self.path.live_slots(&self.nodes, live).filter_map(|(entry, node, value)| {
            let fate = match (needs.of(value).fate(), is_returned(value)) {
                (_, false) if is_given_up(call, value) => return None,
                (Fate::Invalidate, true) => Fate::CopyOut,
                (fate, _) => fate,
            };
            Some(OldSlot { value, producer: node.function, made_in: entry.step, fate })
        });
        PathEnd {
            step: Step::new(self.step.get() + 1),
            ended_by: call.function,
            slots: slots.collect(),
            carried: managed_inputs(call).map(|(index, _)| index).collect(),
        }
    }

    /// The live slots of the path that the call does not take with it.
    fn left_behind<'a, L: Liveness + ?Sized>(
        &'a self,
        call: &'a Call<'_>,
        live: &'a L,
    ) -> impl Iterator<Item = (&'a PathEntry, &'a Node, SlotValue)> {
        self.path.live_slots(&self.nodes, live).filter(|(_, _, left)| !is_given_up(call, *left))
    }
}

/// Whether the last handle of this output is moved into the call.
fn is_given_up(call: &Call<'_>, output: SlotValue) -> bool {
    call.inputs.iter().any(|input| match input.source {
        Source::Managed { value, given_up } => given_up && value == output,
        Source::Staged | Source::Scalar => false,
    })
}
