//! Transitions: each reports that something was done. One that returns an error leaves the tree as it was.

use crate::call::{Call, CallKind, Source};
use crate::decide::managed_inputs;
use crate::decision::{Ground, Moment, PathChange, Replay};
use crate::error::Error;
use crate::limits::PendingRule;
use crate::node::{Node, Role};
use crate::notice::Notice;
use crate::path::{PathEntry, PathState};
use crate::reasons::EagerReason;
use crate::tree::Tree;
use crate::{Epoch, FunctionId, InputIndex, NodeId, Phase, Slot, Step, TokenId};

/// A call that has run inside the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the token of a forward has to be discarded if its backward never runs"]
pub struct Ran {
    /// The node that is current now.
    pub node: NodeId,
    /// The run that wrote the values now in the node's slots.
    pub epoch: Epoch,
    /// The pending backward that the call left, if it was a forward.
    pub token: Option<TokenId>,
    /// Nodes that had to make room for this one: whatever belongs to them can be freed.
    pub evicted: Vec<NodeId>,
    /// Warm-up runs that were on the path and are not any more: their ids name nothing from now on.
    pub ended_warm_ups: Vec<NodeId>,
}

impl Tree {
    /// Asks for a step: the next call that runs in the pool starts at a root, whatever is pending.
    ///
    /// Precondition: none. Effect: none on the path until that call; asking again before it changes nothing.
    /// What is still live then is dealt with as [`OldOutput`](crate::OldOutput) says. A call that runs
    /// eagerly leaves the request standing.
    pub fn begin_step(&mut self) {
        self.steps_requested += 1;
    }

    /// Reports that a decided replay was launched.
    ///
    /// Precondition: the path has not moved since `replay` was decided, for this `call`, and nothing is in
    /// progress. Effect: the node is current, its slots hold values of a new epoch, and the call's token is
    /// made or consumed. Liveness is not looked at: what the call gave up has to be dead before the next
    /// decision, and no sooner.
    ///
    /// # Errors
    ///
    /// [`Error::StaleDecision`], [`Error::Busy`], [`Error::UnknownNode`]; [`Error::WrongFunction`],
    /// [`Error::WrongKind`] and [`Error::WrongToken`] if the call is not the decided one. The tree is as it was.
    pub fn replayed(&mut self, replay: Replay, call: &Call<'_>) -> Result<Ran, Error> {
        self.check_current(replay.moment)?;
        self.check_idle()?;
        let node = self.nodes.get(replay.node).ok_or(Error::UnknownNode { node: replay.node })?;
        check_function(replay.node, node, call)?;
        check_kind(node.phase, call)?;
        if let (Some(decided), Some(called)) = (replay.token, call.kind.token())
            && decided != called
        {
            return Err(Error::WrongToken { decided, called });
        }
        Ok(self.commit_replay(replay.node, call, replay.moment))
    }

    /// Reports a replay that was not decided here but by checks compiled from the node's own expectations.
    ///
    /// Precondition: the node's parent is on the path and nothing after the parent is needed, or the node is
    /// a root and nothing on the path is needed; no step is asked for that the call would have to begin; every
    /// expectation of the node holds for `call`. The tree checks the parent, the function, the kind of the call
    /// and its token, and takes the caller's word for the rest. Effect: as [`replayed`](Self::replayed).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNode`], [`Error::NotARecording`], [`Error::WrongFunction`], [`Error::WrongKind`],
    /// [`Error::UnknownToken`], [`Error::DoesNotFollow`], [`Error::Busy`]; the tree is as it was.
    #[inline(always)]
    pub fn follow(&mut self, node: NodeId, call: &Call<'_>) -> Result<Ran, Error> {
        let known = self.nodes.get(node).ok_or(Error::UnknownNode { node })?;
        if known.is_warm_up() {
            return Err(Error::NotARecording { node });
        }
        check_function(node, known, call)?;
        check_kind(known.phase, call)?;
        if let CallKind::Backward(token) = call.kind
            && !self.tokens.is_pending(token)
        {
            return Err(Error::UnknownToken { token });
        }
        if let Some(parent) = known.parent
            && self.path.entry_of(parent, known.depth - 1).is_none()
        {
            return Err(Error::DoesNotFollow { node });
        }
        self.check_idle()?;
        let change = if known.parent.is_some() { PathChange::DropsUnneededTail } else { PathChange::Over };
        let moment = self.moment(&change);
        Ok(self.commit_replay(node, call, moment))
    }

    /// Reports that a call ran eagerly, outside the pool.
    ///
    /// Precondition: none beyond what [`decide`](Self::decide) checks. Effect: the call's token is made or
    /// consumed, and the function's counts decay by one call; the path stays as it is. The token of a forward
    /// that ran eagerly does not hold the path, but any input of it that is an output of the path counts as saved
    /// for the backward: at a new step it is copied out if it is still live, since which inputs the forward saved
    /// is not said.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFunction`], [`Error::UnknownToken`]; the tree is as it was.
    pub fn ran_eagerly(&mut self, call: &Call<'_>, reason: &EagerReason) -> Result<Option<TokenId>, Error> {
        self.registered(call.function)?;
        let token = match call.kind {
            CallKind::Inference => None,
            CallKind::Forward => Some(self.add_eager_token(call)),
            CallKind::Backward(token) if !self.tokens.is_pending(token) => {
                return Err(Error::UnknownToken { token });
            }
            CallKind::Backward(token) => {
                self.consume(token);
                None
            }
        };
        self.count_call(call.function);
        if *reason != EagerReason::Busy {
            self.notices.add(Notice::RanEagerly { function: call.function, reason: reason.clone() });
        }
        Ok(token)
    }

    /// Says that a pending backward will never run, as when its last handle is dropped. Returns whether it
    /// was pending.
    ///
    /// Precondition: none; it may be called between any two other calls, also while a recording is in
    /// progress. Effect: the forward holds its path no longer. Under [`PendingRule::UntilBackwardRuns`]
    /// nothing happens.
    pub fn discard_backward(&mut self, token: TokenId) -> bool {
        self.options.pending == PendingRule::Tokens && self.consume(token)
    }

    pub(crate) fn check_current(&self, decided: Moment) -> Result<(), Error> {
        if decided.version == self.version { Ok(()) } else { Err(Error::StaleDecision) }
    }

    #[inline]
    fn check_idle(&self) -> Result<(), Error> {
        if self.gate.is_taken() { Err(Error::Busy) } else { Ok(()) }
    }

    #[inline(always)]
    fn commit_replay(&mut self, id: NodeId, call: &Call<'_>, moment: Moment) -> Ran {
        if let Some(node) = self.nodes.get_mut(id) {
            node.replays += 1;
            if node.replays == 1 {
                let (function, decay) = (node.function, self.options.limits.unreplayed_decay);
                if let Some(function) = self.functions.get_mut(function) {
                    function.unreplayed.remove(function.calls, decay);
                }
            }
            if let (Some(expected), Some(given)) = (&mut node.params, &call.params)
                && (expected.set, expected.version) != (given.set, given.version)
            {
                (expected.set, expected.version) = (given.set, given.version);
                if expected.staged.is_empty() {
                    self.params.remember(given.set, given.version, &expected.addresses);
                }
            }
        }
        let ran = self.advance(id, call.kind, moment, PathState::Replaying);
        if !call.inputs.is_empty() {
            self.note_copies(id, call);
        }
        ran
    }

    /// Notes of which outputs of the path a replay has read copies.
    fn note_copies(&mut self, id: NodeId, call: &Call<'_>) {
        let Some(node) = self.nodes.get(id) else { return };
        if node.parent.is_none() || node.outputs.is_empty() {
            return;
        }
        for ((index, expected), given) in (0..).map(InputIndex::new).zip(&node.inputs).zip(call.inputs) {
            if let (Role::Staged(_), Source::Managed { value, .. }) = (expected.role, given.source) {
                self.path.note_staged(node.depth, index, value.slot);
            }
        }
    }

    /// Notes of which outputs of the path a run that is current now has read copies.
    pub(crate) fn note_staged(&mut self, id: NodeId, staged: &[(InputIndex, Slot)]) {
        let Some(depth) = self.nodes.get(id).map(|node| node.depth) else { return };
        staged.iter().for_each(|(index, from)| self.path.note_staged(depth, *index, *from));
    }

    /// Makes a node the current one. Nothing here can be rejected.
    #[inline(always)]
    pub(crate) fn advance(&mut self, id: NodeId, kind: CallKind, moment: Moment, state: PathState) -> Ran {
        self.version += 1;
        self.runs += 1;
        let (depth, function, successor, epoch) = match self.nodes.get_mut(id) {
            Some(node) => {
                node.epoch = Epoch::new(node.epoch.get() + 1);
                node.last_used = self.runs;
                (node.depth, node.function, node.successor, node.epoch)
            }
            None => {
                return Ran {
                    node: id,
                    epoch: Epoch::default(),
                    token: None,
                    evicted: Vec::new(),
                    ended_warm_ups: Vec::new(),
                };
            }
        };
        if depth == 0 {
            self.held_back.clear();
        }
        if depth == 0 || moment.steps_answered > self.steps_answered {
            self.step = Step::new(self.step.get() + 1);
        }
        self.steps_answered = self.steps_answered.max(moment.steps_answered);
        let kept = depth as usize;
        let is_over = kept < self.path.len() && !self.path.cut_bare(kept);
        let ended_warm_ups = if is_over { self.cut_path(kept) } else { Vec::new() };
        let token = match kind {
            CallKind::Inference => None,
            CallKind::Forward => Some(self.tokens.add(Some(depth))),
            CallKind::Backward(token) => {
                self.consume(token);
                None
            }
        };
        self.path.push(PathEntry { node: id, epoch, step: self.step, token }, state);
        // What was predicted is what the last node's successor says already.
        if self.predicted != Some(id)
            && let Some(last) = self.last.and_then(|last| self.nodes.get_mut(last))
        {
            last.successor = Some(id);
        }
        // A node that follows itself has learnt that just now.
        self.predicted = if self.last == Some(id) { Some(id) } else { successor };
        self.last = Some(id);
        self.count_call(function);
        if state != PathState::Replaying {
            self.note_growth(function);
        }
        Ran { node: id, epoch, token, evicted: Vec::new(), ended_warm_ups }
    }

    /// How much of the path stays when a call runs on this ground.
    pub(crate) fn kept_len(&self, ground: &Ground) -> usize {
        ground.parent.and_then(|parent| self.nodes.get(parent)).map_or(0, |parent| parent.depth as usize + 1)
    }

    /// Takes the tail off the path: its warm-up runs are gone, its pending backwards hold nothing any more.
    #[cold]
    fn cut_path(&mut self, kept: usize) -> Vec<NodeId> {
        let mut warm_ups = Vec::new();
        for entry in self.path.cut(kept) {
            if self.nodes.get(entry.node).is_some_and(Node::is_warm_up) {
                self.nodes.remove(entry.node);
                warm_ups.push(entry.node);
            }
        }
        warm_ups
    }

    fn consume(&mut self, token: TokenId) -> bool {
        let Some(held) = self.tokens.remove(token) else { return false };
        match held {
            Some(depth) => self.path.release_token(depth, token),
            None => self.path.forget_saved(token),
        }
        true
    }

    /// The token of a forward that ran eagerly. What that saved of its inputs is not known, so each of them counts
    /// as saved.
    fn add_eager_token(&mut self, call: &Call<'_>) -> TokenId {
        let token = self.tokens.add(None);
        for (_, value) in managed_inputs(call) {
            if let Some(depth) = self.nodes.get(value.slot.node).map(|node| node.depth)
                && self.path.contains(&value, depth + 1, &self.nodes)
            {
                self.path.note_saved(depth, value.slot, token);
            }
        }
        token
    }

    #[inline]
    fn count_call(&mut self, function: FunctionId) {
        if let Some(function) = self.function_mut(function) {
            function.calls += 1;
        }
    }
}

fn check_function(id: NodeId, node: &Node, call: &Call<'_>) -> Result<(), Error> {
    if node.function == call.function {
        Ok(())
    } else {
        Err(Error::WrongFunction { node: id, recorded: node.function, called: call.function })
    }
}

fn check_kind(expected: Phase, call: &Call<'_>) -> Result<(), Error> {
    let called = call.kind.phase();
    if expected == called { Ok(()) } else { Err(Error::WrongKind { expected, called }) }
}
