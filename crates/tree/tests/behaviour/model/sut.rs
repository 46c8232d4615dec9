//! The system under test: it does what the program says and compares everything with what the reference says.

use super::program::{Done, End, Machine, Op, State, functions};
use super::reference::{Change, Expected, RCall, RDemotion, RSlot, RSource, Reference};
use graphgrove_tree::{
    Address, Call, CallKind, Decision, EagerReason, Epoch, Fate, FunctionId, FunctionSpec, Input, InputIndex,
    LiveTable, Liveness, NodeId, OldOutput, Options, Output, ParamSetId, ParamVersion, Params, PathChange,
    Phase, RecordReason, Signature, Slot, SlotIndex, SlotValue, Source, TokenId, Tree,
};
use proptest_state_machine::StateMachineTest;

/// The same bits, by storage that does not count its live slots.
pub(super) struct NotCounting<'a>(&'a LiveTable);

impl Liveness for NotCounting<'_> {
    fn live_word(&self, node: NodeId, word: u32) -> u64 {
        self.0.live_word(node, word)
    }
}

/// The tree, and the names that it gave to what the reference numbers.
#[derive(Debug, Default)]
pub(super) struct Sut {
    tree: Tree,
    live: LiveTable,
    functions: Vec<FunctionId>,
    outputs: Vec<Vec<Output>>,
    nodes: Vec<NodeId>,
    tokens: Vec<TokenId>,
}

impl Sut {
    fn slot(&self, slot: RSlot) -> Slot {
        Slot { node: self.nodes[slot.0], index: SlotIndex::new(slot.1) }
    }

    fn number(&self, node: NodeId) -> usize {
        self.nodes.iter().position(|other| *other == node).unwrap()
    }

    fn change(&self, change: &PathChange) -> Change {
        let slot = |slot: Slot| (self.number(slot.node), slot.index.get());
        let slots = |end: &graphgrove_tree::PathEnd| {
            end.slots.iter().map(|old| (slot(old.value.slot), old.fate != Fate::Invalidate)).collect()
        };
        match change {
            PathChange::Starts => Change::Starts,
            PathChange::Extends => Change::Extends,
            PathChange::DropsUnneededTail => Change::DropsUnneededTail,
            PathChange::Over => Change::Over,
            PathChange::Kept(kept) => Change::Kept(slot(*kept)),
            PathChange::NewStep(end) => Change::NewStep(slots(end)),
            PathChange::LoopTurns(end) => Change::LoopTurns(slots(end)),
            other => panic!("{other:?}"),
        }
    }

    fn seen(&self, decision: &Decision) -> Expected {
        let parent = |node: Option<NodeId>| node.map(|node| self.number(node));
        match decision {
            Decision::Replay(replay) => Expected::Replay {
                node: self.number(replay.node()),
                change: self.change(replay.path_change()),
            },
            Decision::Record(plan) => Expected::Record {
                parent: parent(plan.parent()),
                change: self.change(plan.path_change()),
                restore: plan.restore().is_some(),
                closest: match plan.reason() {
                    RecordReason::NoneFits { closest, .. } => Some(self.number(*closest)),
                    _ => None,
                },
                demotions: plan
                    .demotions()
                    .iter()
                    .map(|demotion| match demotion {
                        graphgrove_tree::Demotion::Input(index) => RDemotion::Input(index.get()),
                        graphgrove_tree::Demotion::Param(index) => RDemotion::Param(index.get()),
                    })
                    .collect(),
            },
            Decision::WarmUp(plan) => Expected::WarmUp {
                parent: parent(plan.parent()),
                change: self.change(plan.path_change()),
                restore: plan.restore().is_some(),
            },
            Decision::Eager(reason) => match reason {
                EagerReason::PathLength { .. } => Expected::PathLength,
                EagerReason::Siblings { .. } => Expected::Siblings,
                EagerReason::FunctionRecordings { .. } => Expected::FunctionRecordings,
                EagerReason::Rerecorded { .. } => Expected::Rerecorded,
                EagerReason::RecordingsFail { .. } => Expected::RecordingsFail,
                EagerReason::Unreplayed { .. } => Expected::Unreplayed,
                EagerReason::KeyNotListed => Expected::KeyNotListed,
                EagerReason::MutatesForeignInput { .. } => Expected::MutatesForeignInput,
                other => panic!("{other:?}"),
            },
        }
    }

    fn run(
        &mut self,
        call: &RCall,
        expected: &Expected,
        end: End,
        number: Option<usize>,
        dies: Option<RSlot>,
        reference: &Reference,
    ) {
        let inputs: Vec<_> = call
            .inputs
            .iter()
            .map(|input| Input {
                signature: Signature::new(input.signature),
                mutated: input.mutated,
                source: match input.source {
                    RSource::Staged => Source::Staged,
                    RSource::Scalar => Source::Scalar,
                    RSource::Path { value, given_up } => {
                        let slot = self.slot(value.slot);
                        let value = SlotValue::new(slot.node, slot.index, Epoch::new(value.epoch));
                        Source::Managed { value, given_up }
                    }
                },
            })
            .collect();
        let addresses: Vec<_> = call
            .params
            .iter()
            .flat_map(|params| &params.addresses)
            .map(|address| Address::new(*address))
            .collect();
        let kind = match (call.phase, call.token) {
            (_, Some(token)) => CallKind::Backward(self.tokens[token]),
            (Phase::Forward, _) => CallKind::Forward,
            _ => CallKind::Inference,
        };
        let described = Call {
            function: self.functions[call.function],
            kind,
            params: call.params.as_ref().map(|params| Params {
                set: ParamSetId::new(params.set),
                version: ParamVersion::new(params.version),
                addresses: &addresses,
            }),
            inputs: &inputs,
        };
        let decision = self.tree.decide(&described, &self.live).unwrap();
        assert_eq!(self.seen(&decision), *expected, "{}", self.tree.outline());
        let again = self.tree.decide(&described, &NotCounting(&self.live)).unwrap();
        assert_eq!(format!("{again:?}"), format!("{decision:?}"));
        self.check_carried(&described, &decision);
        let change = decision.path_change().cloned();
        let release = |sut: &mut Self| {
            let ended = change.as_ref().and_then(PathChange::path_end);
            ended.into_iter().flat_map(|end| &end.slots).for_each(|old| sut.live.clear(old.value.slot));
            let given_up = inputs.iter().filter_map(|input| match input.source {
                Source::Managed { value, given_up: true } => Some(value.slot),
                _ => None,
            });
            given_up.for_each(|slot| sut.live.clear(slot));
            if let Some(slot) = dies {
                sut.live.clear(sut.slot(slot));
            }
        };
        let outputs = self.outputs[call.function].clone();
        let ran = match decision {
            _ if end == End::Eagerly => {
                let reason = match &decision {
                    Decision::Eager(reason) => reason.clone(),
                    _ => EagerReason::Busy,
                };
                inputs.iter().for_each(|input| {
                    if let Source::Managed { value, given_up: true } = input.source {
                        self.live.clear(value.slot);
                    }
                });
                let token = self.tree.ran_eagerly(&described, &reason).unwrap();
                self.tokens.extend(token);
                return;
            }
            Decision::Replay(_) if number.is_none() => return,
            Decision::Replay(replay) => {
                release(self);
                self.tree.replayed(replay, &described).unwrap()
            }
            Decision::Record(plan) => {
                let recording = self.tree.begin_recording(*plan, &self.live).unwrap();
                let busy = self.tree.decide(&described, &self.live).unwrap();
                assert!(matches!(busy, Decision::Eager(EagerReason::Busy)));
                match end {
                    End::Fails => return self.tree.recording_failed(recording),
                    End::Abandoned => return drop(recording),
                    _ => {}
                }
                release(self);
                self.tree.finish_recording(recording, outputs, &self.live).unwrap()
            }
            Decision::WarmUp(plan) => {
                let warm_up = self.tree.begin_warm_up(*plan).unwrap();
                if number.is_none() {
                    return drop(warm_up);
                }
                release(self);
                self.tree.finish_warm_up(warm_up, outputs, end == End::Well).unwrap()
            }
            Decision::Eager(reason) => panic!("{reason:?}"),
        };
        let number = number.unwrap();
        if number == self.nodes.len() {
            self.nodes.push(ran.node);
        }
        assert_eq!(self.nodes[number], ran.node);
        self.tokens.extend(ran.token);
        let mut evicted: Vec<_> = ran.evicted.iter().map(|node| self.number(*node)).collect();
        evicted.sort_unstable();
        assert_eq!(evicted, reference.evicted.iter().copied().collect::<Vec<_>>());
        let mut ended: Vec<_> = ran.ended_warm_ups.iter().map(|node| self.number(*node)).collect();
        ended.sort_unstable();
        assert_eq!(ended, reference.ended_warm_ups);
        self.live.set_all(ran.node, u32::try_from(self.outputs[call.function].len()).unwrap());
    }

    /// At a root every managed input is carried, elsewhere none.
    fn check_carried(&self, call: &Call<'_>, decision: &Decision) {
        let Some(end) = decision.path_change().and_then(PathChange::path_end) else { return };
        let inputs = (0..).map(InputIndex::new).zip(call.inputs);
        let managed: Vec<_> = inputs
            .filter(|(_, input)| matches!(input.source, Source::Managed { .. }))
            .map(|(index, _)| index)
            .collect();
        assert_eq!(end.carried, managed);
        assert_eq!(end.ended_by, call.function);
    }
}

impl StateMachineTest for Sut {
    type SystemUnderTest = Self;
    type Reference = Machine;

    fn init_test(state: &State) -> Self {
        let mut sut = Self {
            tree: Tree::new(Options { limits: state.reference.limits, ..Options::default() }),
            ..Self::default()
        };
        for (number, outputs) in functions().iter().enumerate() {
            sut.functions.push(sut.tree.add_function(FunctionSpec::new(format!("f{number}"))));
            let output = |(saved, old): &(bool, OldOutput)| Output {
                saved: *saved,
                ..Output::fresh().at_new_step(*old)
            };
            sut.outputs.push(outputs.iter().map(output).collect());
        }
        sut
    }

    fn apply(mut sut: Self, state: &State, _: Op) -> Self {
        match &state.done {
            Done::Nothing => {}
            Done::Call { call, expected, end, node, dies } => {
                sut.run(call, expected, *end, *node, *dies, &state.reference);
            }
            Done::Drop(slots) => slots.iter().for_each(|slot| sut.live.clear(sut.slot(*slot))),
            Done::Settle(slots, tokens) => {
                slots.iter().for_each(|slot| sut.live.clear(sut.slot(*slot)));
                tokens.iter().for_each(|token| assert!(sut.tree.discard_backward(sut.tokens[*token])));
            }
            Done::DropToken { token, was_pending } => {
                assert_eq!(sut.tree.discard_backward(sut.tokens[*token]), *was_pending);
            }
            Done::BeginStep => sut.tree.begin_step(),
            Done::Evict { node, gone } => {
                let evicted = sut.tree.evict(sut.nodes[*node], &sut.live);
                let numbers = evicted.ok().map(|nodes| {
                    let mut numbers: Vec<_> = nodes.iter().map(|node| sut.number(*node)).collect();
                    numbers.sort_unstable();
                    numbers
                });
                assert_eq!(&numbers, gone);
            }
        }
        sut
    }

    fn check_invariants(sut: &Self, state: &State) {
        let reference = &state.reference;
        let path: Vec<_> = sut.tree.path().map(|node| sut.number(node)).collect();
        assert_eq!(path, reference.path.iter().map(|entry| entry.node).collect::<Vec<_>>());
        assert_eq!(sut.tree.path_state(), reference.state);
        assert_eq!(sut.tree.step().get(), reference.step);
        assert_eq!(sut.tree.is_step_requested(), reference.requested);
        let on_path = reference.path.iter().filter(|entry| entry.token.is_some()).count();
        assert_eq!(sut.tree.pending_on_path(), on_path);
        assert_eq!(sut.tree.pending_backwards(), reference.tokens.iter().filter(|token| **token).count());
        for (number, node) in reference.nodes.iter().enumerate() {
            let seen = sut.tree.node(sut.nodes[number]);
            assert_eq!(seen.is_some(), node.is_some(), "node {number}");
            if let (Some(seen), Some(node)) = (seen, node) {
                assert_eq!(seen.epoch().get(), node.epoch);
                assert_eq!(seen.function(), sut.functions[node.function]);
                assert_eq!(seen.parent().map(|parent| sut.number(parent)), node.parent);
                assert_eq!(seen.is_warm_up(), node.is_warm_up);
            }
        }
        let limits = reference.limits;
        for function in &sut.functions {
            let all = sut.tree.nodes().filter(|(_, node)| node.function() == *function && !node.is_warm_up());
            assert!(all.count() <= limits.recordings_per_function as usize);
        }
        assert!(sut.tree.path().len() <= limits.path_length as usize);
        let over = reference.path.iter().all(|entry| entry.token.is_none()) && reference.live.is_empty();
        assert_eq!(sut.tree.is_path_over(&sut.live), over);
    }
}
