//! When a path may end although something on it is live, and what that does to it.

use crate::call::{Call, Source};
use crate::decision::PathEnd;
use crate::limits::PendingRule;
use crate::liveness::Liveness;
use crate::node::Node;
use crate::output::{Fate, OldOutput, OldSlot};
use crate::path::PathEntry;
use crate::tree::Tree;
use crate::{InputIndex, Slot, SlotValue, Step};

impl Tree {
    /// Whether the rule for pending backwards forbids a step to begin.
    pub(crate) fn is_held_by_backwards(&self) -> bool {
        self.options.pending == PendingRule::UntilBackwardRuns && self.path.pending() > 0
    }

    /// The first live output that is to be kept at a new step.
    pub(crate) fn kept_slot<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> Option<Slot> {
        let left = self.left_behind(call, live);
        left.filter(|(_, node, value)| node.rule_for(value.slot.index) == OldOutput::Keep)
            .map(|(_, _, value)| value.slot)
            .next()
    }

    /// How often the call's function, with the same parameters, is among the first `needed` nodes of the
    /// path.
    pub(crate) fn turns_on_path(&self, call: &Call<'_>, needed: usize) -> usize {
        let set = call.params.as_ref().map(|params| params.set);
        let on_path = self.path.entries().iter().take(needed);
        on_path
            .filter_map(|entry| self.nodes.get(entry.node))
            .filter(|node| node.function == call.function && node.phase == call.kind.phase())
            .filter(|node| node.params.as_ref().map(|params| params.set) == set)
            .count()
    }

    /// Whether the path may end without a step being asked for: no backward is pending on it, and every live
    /// output either goes into the call or may be copied out.
    pub(crate) fn may_end_between_steps<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> bool {
        let mut left = self.left_behind(call, live);
        self.path.pending() == 0
            && left.all(|(_, node, value)| node.rule_for(value.slot.index) != OldOutput::Error)
    }

    /// The effects of ending the path now.
    pub(crate) fn path_end<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> PathEnd {
        let left = self.left_behind(call, live);
        let slots = left.map(|(entry, node, value)| OldSlot {
            value,
            producer: node.function,
            made_in: entry.step,
            fate: fate(entry, node, value),
        });
        let inputs = (0..).map(InputIndex::new).zip(call.inputs);
        let carried = inputs.filter(|(_, input)| matches!(input.source, Source::Managed { .. }));
        PathEnd {
            step: Step::new(self.step.get() + 1),
            ended_by: call.function,
            slots: slots.collect(),
            carried: carried.map(|(index, _)| index).collect(),
        }
    }

    /// The live slots of the path that the call does not take with it.
    fn left_behind<'a, L: Liveness + ?Sized>(
        &'a self,
        call: &'a Call<'_>,
        live: &'a L,
    ) -> impl Iterator<Item = (&'a PathEntry, &'a Node, SlotValue)> {
        self.path.live_slots(&self.nodes, live).filter(|(_, _, left)| {
            !call.inputs.iter().any(|input| match input.source {
                Source::Managed { value, given_up } => given_up && value == *left,
                Source::Staged | Source::Scalar => false,
            })
        })
    }
}

fn fate(entry: &PathEntry, node: &Node, value: SlotValue) -> Fate {
    let index = value.slot.index;
    let saved = node.outputs.get(index.get() as usize).is_some_and(|output| output.saved);
    match (entry.token, node.rule_for(index)) {
        (Some(token), _) if saved => Fate::CopyOutForBackward(token),
        (_, OldOutput::Error) => Fate::Invalidate,
        (_, OldOutput::CopyOut | OldOutput::Keep) => Fate::CopyOut,
    }
}
