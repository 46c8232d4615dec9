//! A stand-in for the layers above: it carries out what the tree decides, keeps the liveness bits, and checks
//! after every call that nothing was overwritten that somebody could still read.

use graphgrove_tree::{
    Call, Decision, EagerReason, Error, Fate, FunctionId, FunctionSpec, Input, LiveTable, Liveness, NodeId,
    OldSlot, Options, Output, OutputKind, PathChange, Ran, RecordReason, Signature, Slot, SlotIndex,
    SlotValue, Source, TokenId, Tree, WarmUpReason,
};
use std::collections::{HashMap, HashSet};

/// How a call ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    WarmUp(WarmUpReason),
    Record(RecordReason),
    Replay,
    Eager(EagerReason),
}

/// What a call left behind.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) did: Did,
    pub(crate) node: Option<NodeId>,
    pub(crate) token: Option<TokenId>,
    /// The values of the fresh outputs.
    pub(crate) outputs: Vec<SlotValue>,
    /// What happened to the path; none for an eager call.
    pub(crate) change: Option<PathChange>,
    /// The node whose checkpoint was asked for.
    pub(crate) restored: Option<NodeId>,
    pub(crate) evicted: Vec<NodeId>,
}

impl Outcome {
    pub(crate) fn is_replay(&self) -> bool {
        self.did == Did::Replay
    }

    pub(crate) fn is_record(&self) -> bool {
        matches!(self.did, Did::Record(_))
    }

    pub(crate) fn is_warm_up(&self) -> bool {
        matches!(self.did, Did::WarmUp(_))
    }

    pub(crate) fn eager(&self) -> Option<&EagerReason> {
        match &self.did {
            Did::Eager(reason) => Some(reason),
            _ => None,
        }
    }

    /// The token of a forward.
    pub(crate) fn token(&self) -> TokenId {
        self.token.unwrap()
    }

    /// The node of a call that ran in the pool.
    pub(crate) fn node(&self) -> NodeId {
        self.node.unwrap()
    }
}

/// The stand-in.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    pub(crate) tree: Tree,
    pub(crate) live: LiveTable,
    outputs: HashMap<FunctionId, Vec<Output>>,
    /// A (node -> slots) pair means: the recording reuses, or may reuse, the memory of these slots of its
    /// ancestors.
    reuses: HashMap<NodeId, HashSet<Slot>>,
    pub(crate) recorded: usize,
    pub(crate) warmed_up: usize,
    pub(crate) replayed: usize,
    pub(crate) ran_eagerly: usize,
}

/// A tensor from outside the pool.
pub(crate) fn x(signature: u64) -> Input {
    Input::staged(Signature::new(signature))
}

/// An output that the caller keeps.
pub(crate) fn kept(value: SlotValue) -> Input {
    Input::managed(Signature::new(1), value)
}

/// An output whose last handle goes into the call.
pub(crate) fn moved(value: SlotValue) -> Input {
    Input::given_up(Signature::new(1), value)
}

impl Driver {
    pub(crate) fn new(options: Options) -> Self {
        Self { tree: Tree::new(options), ..Self::default() }
    }

    /// A function with so many fresh outputs.
    pub(crate) fn function(&mut self, name: &str, outputs: usize) -> FunctionId {
        self.function_of(FunctionSpec::new(name), vec![Output::fresh(); outputs])
    }

    pub(crate) fn function_of(&mut self, spec: FunctionSpec, outputs: Vec<Output>) -> FunctionId {
        let id = self.tree.add_function(spec);
        self.outputs.insert(id, outputs);
        id
    }

    /// From now on the function has these outputs.
    pub(crate) fn declare(&mut self, function: FunctionId, outputs: Vec<Output>) {
        self.outputs.insert(function, outputs);
    }

    /// An inference call on inputs from outside the pool or from the path.
    pub(crate) fn infer(&mut self, function: FunctionId, inputs: &[Input]) -> Outcome {
        self.call(&Call::inference(function, inputs))
    }

    pub(crate) fn forward(&mut self, function: FunctionId, inputs: &[Input]) -> Outcome {
        self.call(&Call::forward(function, inputs))
    }

    pub(crate) fn backward(&mut self, function: FunctionId, token: TokenId, inputs: &[Input]) -> Outcome {
        self.call(&Call::backward(function, token, inputs))
    }

    pub(crate) fn call(&mut self, call: &Call<'_>) -> Outcome {
        self.try_call(call).unwrap()
    }

    /// Runs a call to its end, all outputs kept.
    pub(crate) fn try_call(&mut self, call: &Call<'_>) -> Result<Outcome, Error> {
        let decision = self.tree.decide(call, &self.live)?;
        let change = decision.path_change().cloned();
        self.check_path_change(call, change.as_ref());
        let outputs = self.outputs.get(&call.function).cloned().unwrap_or_default();
        let mut restored = None;
        let (did, ran) = match decision {
            Decision::Replay(replay) => {
                self.apply(change.as_ref());
                self.give_up(call);
                let ran = self.tree.replayed(replay, call)?;
                self.replayed += 1;
                (Did::Replay, ran)
            }
            Decision::Record(plan) => {
                restored = plan.restore();
                let reason = plan.reason().clone();
                let recording = self.tree.begin_recording(*plan, &self.live)?;
                self.apply(change.as_ref());
                self.give_up(call);
                let ran = self.tree.finish_recording(recording, outputs, &self.live)?;
                self.recorded += 1;
                self.reuses.insert(ran.node, self.dead_ancestors(ran.node));
                (Did::Record(reason), ran)
            }
            Decision::WarmUp(plan) => {
                restored = plan.restore();
                let reason = plan.reason().clone();
                let warm_up = self.tree.begin_warm_up(*plan)?;
                self.apply(change.as_ref());
                self.give_up(call);
                let ran = self.tree.finish_warm_up(warm_up, outputs, true)?;
                self.warmed_up += 1;
                (Did::WarmUp(reason), ran)
            }
            Decision::Eager(reason) => {
                self.give_up(call);
                let token = self.tree.ran_eagerly(call, &reason)?;
                self.ran_eagerly += 1;
                return Ok(Outcome {
                    did: Did::Eager(reason),
                    node: None,
                    token,
                    outputs: Vec::new(),
                    change,
                    restored,
                    evicted: Vec::new(),
                });
            }
        };
        Ok(self.outcome(did, ran, change, restored))
    }

    fn outcome(
        &mut self,
        did: Did,
        ran: Ran,
        change: Option<PathChange>,
        restored: Option<NodeId>,
    ) -> Outcome {
        self.check_nothing_live_was_overwritten(ran.node);
        for node in ran.evicted.iter().chain(&ran.ended_warm_ups) {
            assert!(self.tree.node(*node).is_none(), "an evicted node is still there");
            self.reuses.remove(node);
        }
        let node = self.tree.node(ran.node).unwrap();
        let fresh = (0..).map(SlotIndex::new).zip(node.outputs());
        let outputs: Vec<_> = fresh
            .filter(|(_, output)| output.kind == OutputKind::Fresh)
            .map(|(index, _)| SlotValue::new(ran.node, index, ran.epoch))
            .collect();
        outputs.iter().for_each(|value| self.live.set(value.slot));
        Outcome {
            did,
            node: Some(ran.node),
            token: ran.token,
            outputs,
            change,
            restored,
            evicted: ran.evicted,
        }
    }

    /// Drops the last handle of each value.
    pub(crate) fn release(&mut self, values: &[SlotValue]) {
        for value in values {
            self.live.clear(value.slot);
        }
    }

    /// Calls until the call is replayed, dropping all outputs and the token each time: warm-up, recording,
    /// replay.
    pub(crate) fn settle(&mut self, call: &Call<'_>) -> NodeId {
        for _ in 0..3 {
            let outcome = self.call(call);
            self.forget(&outcome);
            if outcome.is_replay() {
                return outcome.node();
            }
        }
        panic!("the call does not settle: {}", self.tree.outline());
    }

    /// Drops everything that a call left behind.
    pub(crate) fn forget(&mut self, outcome: &Outcome) {
        self.release(&outcome.outputs);
        if let Some(token) = outcome.token {
            self.tree.discard_backward(token);
        }
    }

    /// How many outputs of the path are live.
    pub(crate) fn live_on_path(&self) -> u32 {
        self.tree
            .path()
            .map(|node| (0..4).map(|word| self.live.live_word(node, word).count_ones()).sum::<u32>())
            .sum()
    }

    /// The recordings of a function as roots.
    pub(crate) fn roots(&self, function: FunctionId) -> Vec<NodeId> {
        self.tree.children(None, function).to_vec()
    }

    /// How many recordings are below a node, at any depth.
    pub(crate) fn descendants(&self, node: NodeId) -> usize {
        let children: Vec<_> = self.tree.nodes().filter(|(_, data)| data.parent() == Some(node)).collect();
        children.iter().map(|(child, _)| 1 + self.descendants(*child)).sum()
    }

    fn give_up(&mut self, call: &Call<'_>) {
        for input in call.inputs {
            if let Source::Managed { value, given_up: true } = input.source {
                self.live.clear(value.slot);
            }
        }
    }

    fn apply(&mut self, change: Option<&PathChange>) {
        for old in change.and_then(PathChange::path_end).into_iter().flat_map(|end| &end.slots) {
            assert!(self.live.is_live(old.value.slot), "a dead slot is said to be affected");
            self.live.clear(old.value.slot);
        }
    }

    /// What a path change says must be true of the path and the liveness bits, found out without the tree's
    /// help.
    fn check_path_change(&self, call: &Call<'_>, change: Option<&PathChange>) {
        let Some(change) = change else { return };
        let is_live = |node: NodeId| (0..4).any(|word| self.live.live_word(node, word) != 0);
        let given_up = |slot: Slot| {
            call.inputs.iter().any(
                |input| matches!(input.source, Source::Managed { value, given_up: true } if value.slot == slot),
            )
        };
        match change {
            PathChange::Starts => assert_eq!(self.tree.path().len(), 0),
            PathChange::Over => assert!(self.tree.path().all(|node| !is_live(node))),
            PathChange::NewStep(end) | PathChange::LoopTurns(end) => {
                let named: HashSet<_> = end.slots.iter().map(|old| old.value.slot).collect();
                for node in self.tree.path() {
                    for slot in (0..256).map(|index| Slot { node, index: SlotIndex::new(index) }) {
                        if given_up(slot) {
                            // It dies with the call or, if an output may share its storage, is copied out.
                            let copied =
                                |old: &OldSlot| old.value.slot != slot || old.fate != Fate::Invalidate;
                            assert!(end.slots.iter().all(copied), "{slot:?} in {end:?}");
                        } else {
                            assert_eq!(self.live.is_live(slot), named.contains(&slot), "{slot:?} in {end:?}");
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.tree.node(node).and_then(graphgrove_tree::Node::parent), |node| {
            self.tree.node(*node).and_then(graphgrove_tree::Node::parent)
        })
    }

    /// All slots of a node's ancestors that are dead now.
    fn dead_ancestors(&self, node: NodeId) -> HashSet<Slot> {
        let mut dead = HashSet::new();
        for ancestor in self.ancestors(node) {
            let outputs = self.tree.node(ancestor).map_or(0, |data| data.outputs().len());
            for index in 0..u32::try_from(outputs).unwrap() {
                let slot = Slot { node: ancestor, index: SlotIndex::new(index) };
                if !self.live.is_live(slot) {
                    dead.insert(slot);
                }
            }
        }
        dead
    }

    /// After a call has run and before its outputs are live: every live slot belongs to an ancestor, and none
    /// of them is one that the recording was made to reuse.
    fn check_nothing_live_was_overwritten(&self, node: NodeId) {
        let ancestors: HashSet<_> = self.ancestors(node).collect();
        for (other, _) in self.tree.nodes().filter(|(other, _)| !ancestors.contains(other)) {
            let live = (0..4).any(|word| self.live.live_word(other, word) != 0);
            assert!(!live, "{other:?} is live beside the path\n{}", self.tree.outline());
        }
        for slot in self.reuses.get(&node).into_iter().flatten() {
            assert!(!self.live.is_live(*slot), "{node:?} overwrote {slot:?}\n{}", self.tree.outline());
        }
    }
}
