//! Deciding what a call does. Nothing here changes the tree.

use crate::call::{Call, CallKind, Source};
use crate::decision::{Decision, Ground, Moment, PathChange, Replay};
use crate::ending::Returned;
use crate::error::Error;
use crate::function::{Demoted, Function, WarmSignatures};
use crate::liveness::Liveness;
use crate::matching::fits;
use crate::node::Node;
use crate::reasons::EagerReason;
use crate::tree::Tree;
use crate::{InputIndex, NodeId, Slot, SlotValue, identity};

impl Tree {
    /// Decides what `call` does and changes nothing.
    ///
    /// `live` still counts the inputs of the call as live, those that the call gives up too. The outcome
    /// holds until the path moves; outputs may die and tokens may be discarded meanwhile.
    ///
    /// A call that continues as it did last time costs the same whatever the depth of the path and the number
    /// of recordings. Any other call that is replayed costs one or two lookups more, plus the nodes at the end
    /// of the path that have become unneeded since they ran: each node is passed over once. A call that ends a
    /// path on which something is live, or that is recorded, walks the path once.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFunction`], [`Error::UnknownToken`]; [`Error::StaleInput`] and [`Error::NotASlot`] for
    /// a managed input whose value is gone or that never was one.
    #[inline]
    pub fn decide<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> Result<Decision, Error> {
        if let CallKind::Backward(token) = call.kind
            && !self.tokens.is_pending(token)
        {
            return Err(Error::UnknownToken { token });
        }
        match self.predicted_replay(call, live) {
            Some((node, change)) => Ok(self.replay(call, node, change)),
            None => self.decide_anew(call, live),
        }
    }

    /// The replay of the node that followed last time, if it fits and nothing is in progress.
    #[inline(always)]
    fn predicted_replay<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        live: &L,
    ) -> Option<(NodeId, PathChange)> {
        let predicted = self.predicted?;
        let node = self.nodes.get(predicted)?;
        let entries = self.path.entries();
        let is_staged = |index, value: &SlotValue| self.is_staged_by_prediction(node, index, value);
        if !fits(node, call, is_staged, entries, live) || self.gate.is_taken() {
            return None;
        }
        let change = match node.parent {
            None if self.path.is_unneeded_from(0, &self.nodes, live) => PathChange::Over,
            Some(parent) if !self.is_step_requested() => {
                self.path.entry_of(parent, node.depth - 1)?;
                let tail = node.depth as usize;
                if tail == entries.len() {
                    PathChange::Extends
                } else if self.path.is_unneeded_from(tail, &self.nodes, live) {
                    PathChange::DropsUnneededTail
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        Some((predicted, change))
    }

    /// Whether a predicted recording stages this output of the path.
    ///
    /// A prediction may be taken before the inputs are validated, so it takes a staged one only after a look at
    /// its value. At a root it takes none: the path is not over for a call that brings a value of it.
    #[cold]
    fn is_staged_by_prediction(&self, node: &Node, index: usize, value: &SlotValue) -> bool {
        node.parent.is_some()
            && self.is_demoted(node, index)
            && self.path.contains(value, node.depth, &self.nodes)
    }

    /// Whether an input that is an output of the path is staged wherever `node`'s function is recorded.
    fn is_demoted(&self, node: &Node, index: usize) -> bool {
        let function = self.functions.get(node.function);
        function.is_some_and(|function| function.demoted.inputs.contains_at(index))
    }

    /// The full decision, for a call that does not continue as it did last time.
    #[cold]
    fn decide_anew<L: Liveness + ?Sized>(&self, call: &Call<'_>, live: &L) -> Result<Decision, Error> {
        let function = self.registered(call.function)?;
        let read = self.validate_inputs(call)?;
        if self.gate.is_taken() {
            return Ok(Decision::Eager(EagerReason::Busy));
        }
        // The call itself needs what it reads, even if the last handle is reported dropped already.
        let needed = self.path.needed_len(&self.nodes, live).max(read);
        let kept = if self.is_step_requested() && !self.is_held_by_backwards() {
            // Nothing is recorded below a warm-up, so keeping one would hold back recording with it.
            match self.kept_slot(call, live).filter(|_| !self.is_warm_up_at(needed)) {
                Some(slot) => Some(slot),
                None => {
                    let change =
                        |returned: Returned<'_>| self.path_change_at_step(call, needed, live, returned);
                    return Ok(self.decide_at_root(call, function, live, change));
                }
            }
        } else {
            None
        };
        Ok(self.decide_on_path(call, function, live, needed, kept))
    }

    /// Decides for a path that need not end, of which something needs the first `needed` nodes; `kept` is an
    /// output that keeps it from ending at a step.
    fn decide_on_path<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        function: &Function,
        live: &L,
        needed: usize,
        kept: Option<Slot>,
    ) -> Decision {
        let change = |unless_kept| kept.map_or(unless_kept, PathChange::Kept);
        let mut tail_change = PathChange::Extends;
        if needed < self.path.len() {
            // A child of the current node is taken although nothing needs that node: it is there already, and
            // its demands hold. What is recorded anew goes below the last needed node, to serve after other
            // tails too.
            let current = self.current();
            if let Some(node) = self.find(current, call, function, live) {
                return self.replay(call, node, change(PathChange::Extends));
            }
            tail_change = PathChange::DropsUnneededTail;
        }
        let Some(last_needed) = self.path.entries().get(..needed).and_then(<[_]>::last) else {
            let start = if self.path.is_empty() { PathChange::Starts } else { PathChange::Over };
            return self.decide_at_root(call, function, live, |_| start);
        };
        let parent = Some(last_needed.node);
        if let Some(node) = self.find(parent, call, function, live) {
            return self.replay(call, node, change(tail_change));
        }
        let limits = &self.options.limits;
        let is_longest = needed >= limits.path_length as usize;
        let turns_enough = is_longest || self.turns_on_path(call, needed) >= limits.loop_length as usize;
        if turns_enough && kept.is_some() {
            let end =
                |returned: Returned<'_>| PathChange::NewStep(Box::new(self.path_end(call, live, returned)));
            return self.decide_at_root(call, function, live, end);
        }
        if turns_enough && self.may_end_between_steps(call, live) || self.is_held_long(call, function, needed)
        {
            let end =
                |returned: Returned<'_>| PathChange::LoopTurns(Box::new(self.loop_end(call, live, returned)));
            return self.decide_at_root(call, function, live, end);
        }
        self.run_anew(call, function, live, parent, needed, change(tail_change))
    }

    /// Whether a warm-up that something needs has held back enough calls like this one, and this is another. Then the path ends
    /// although something of it is live; a pending backward alone is waited for, since it ends by itself.
    fn is_held_long(&self, call: &Call<'_>, function: &Function, needed: usize) -> bool {
        let turn = (call.function, call.kind.phase(), call.params.map(|params| params.set));
        self.is_warm_up_at(needed)
            && self.path.pending() == 0
            && self.held_back.count(&turn) >= self.options.limits.loop_length
            && function.warm.contains(&WarmSignatures::key(call))
    }

    /// Whether the last of the first `needed` nodes of the path is a warm-up run.
    fn is_warm_up_at(&self, needed: usize) -> bool {
        let last = self.path.entries().get(..needed).and_then(<[_]>::last);
        last.and_then(|entry| self.nodes.get(entry.node)).is_some_and(Node::is_warm_up)
    }

    /// What the beginning of a step does to a path of which something needs the first `needed` nodes.
    fn path_change_at_step<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        needed: usize,
        live: &L,
        returned: Returned<'_>,
    ) -> PathChange {
        if self.path.is_empty() {
            PathChange::Starts
        } else if needed == 0 {
            PathChange::Over
        } else {
            PathChange::NewStep(Box::new(self.path_end(call, live, returned)))
        }
    }

    /// Decides for a call that starts a path. What that does to the path there is depends on which inputs of the
    /// call an output shares the storage of.
    fn decide_at_root<L: Liveness + ?Sized>(
        &self,
        call: &Call<'_>,
        function: &Function,
        live: &L,
        change: impl FnOnce(Returned<'_>) -> PathChange,
    ) -> Decision {
        if let Some(id) = self.find(None, call, function, live) {
            let returned =
                self.nodes.get(id).map_or(Returned::Unknown, |node| Returned::These(&node.returned));
            return self.replay(call, id, change(returned));
        }
        let returned = if function.warm.contains(&WarmSignatures::key(call)) {
            Returned::These(&function.returned)
        } else {
            Returned::Unknown
        };
        self.run_anew(call, function, live, None, 0, change(returned))
    }

    /// The recording in this place that fits the call. At most
    /// [`Limits::liveness_variants`](crate::Limits::liveness_variants) are tried.
    fn find<L: Liveness + ?Sized>(
        &self,
        parent: Option<NodeId>,
        call: &Call<'_>,
        function: &Function,
        live: &L,
    ) -> Option<NodeId> {
        let identity = self.identity(parent, call, &function.demoted);
        let alike = self.index.with_identity(identity).iter().copied();
        alike
            .filter_map(|id| Some((id, self.nodes.get(id)?)))
            .filter(|(_, node)| node.parent == parent)
            .find(|(_, node)| {
                let is_staged = |index, _: &SlotValue| parent.is_none() || self.is_demoted(node, index);
                fits(node, call, is_staged, self.path.entries(), live)
            })
            .map(|(id, _)| id)
    }

    /// The identity of `call` below `parent`, when `demoted` is staged.
    pub(crate) fn identity(&self, parent: Option<NodeId>, call: &Call<'_>, demoted: &Demoted) -> u64 {
        let params = call.params.as_ref().map(|params| self.params.fingerprint(params, &demoted.params));
        identity::of_call(parent, call, &demoted.inputs, params)
    }

    /// Where a call that is no replay runs, when `demoted` is staged.
    pub(crate) fn ground(
        &self,
        call: &Call<'_>,
        parent: Option<NodeId>,
        change: PathChange,
        demoted: &Demoted,
    ) -> Ground {
        let staged =
            managed_inputs(call).filter(|(index, _)| parent.is_some() && demoted.inputs.contains(*index));
        Ground {
            parent,
            moment: self.moment(&change),
            change,
            kind: call.kind,
            function: call.function,
            param_set: call.params.map(|params| params.set),
            staged: staged.map(|(index, value)| (index, value.slot)).collect(),
        }
    }

    #[inline]
    fn replay(&self, call: &Call<'_>, node: NodeId, change: PathChange) -> Decision {
        let moment = self.moment(&change);
        Decision::Replay(Replay { node, change, moment, token: call.kind.token() })
    }

    #[inline]
    pub(crate) fn moment(&self, change: &PathChange) -> Moment {
        // A path that goes on through a requested step is held by a backward: the request stays.
        let goes_on = matches!(change, PathChange::Extends | PathChange::DropsUnneededTail);
        let steps_answered = if goes_on { self.steps_answered } else { self.steps_requested };
        Moment { version: self.version, steps_answered }
    }

    /// Every managed input must be a value that is on the path now. Returns up to where the call reads the
    /// path, in nodes from the root.
    fn validate_inputs(&self, call: &Call<'_>) -> Result<usize, Error> {
        let mut read = 0;
        for (input, value) in managed_inputs(call) {
            let slot = value.slot;
            let node = self.nodes.get(slot.node);
            let entry = node.and_then(|node| self.path.entry_of(slot.node, node.depth));
            let current = entry.map(|entry| entry.epoch);
            if current != Some(value.epoch) {
                return Err(Error::StaleInput { input, node: slot.node, given: value.epoch, current });
            }
            if !node.is_some_and(|node| node.tracked.contains(slot.index)) {
                return Err(Error::NotASlot { input, slot: slot.index });
            }
            read = read.max(node.map_or(0, |node| node.depth as usize + 1));
        }
        Ok(read)
    }
}

/// The inputs that are outputs of the path, by their own account.
pub(crate) fn managed_inputs<'a>(call: &'a Call<'_>) -> impl Iterator<Item = (InputIndex, SlotValue)> + 'a {
    (0..).map(InputIndex::new).zip(call.inputs).filter_map(|(index, input)| match input.source {
        Source::Managed { value, .. } => Some((index, value)),
        Source::Staged | Source::Scalar => None,
    })
}
