//! The tree against a naive reference, under random functions, calls, drops, tokens, steps, failures and evictions.

mod reference;

use graphgrove_tree::{
    Address, Call, CallKind, Decision, EagerReason, Epoch, Fate, FunctionId, FunctionSpec, Input, InputIndex,
    Limits, LiveTable, Liveness, NodeId, OldOutput, Options, Output, ParamSetId, ParamVersion, Params,
    PathChange, Phase, RecordReason, Signature, Slot, SlotIndex, SlotValue, Source, TokenId, Tree,
};
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use reference::{Change, Expected, RCall, RDemotion, RInput, RParams, RSlot, RSource, RValue, Reference};

/// What happens next. Numbers that choose something are taken modulo what there is to choose from.
#[derive(Clone, Debug)]
enum Op {
    /// One of the calls that the program is made of: which, by how much its parameters and path inputs differ from those of
    /// the program, and how it ends.
    Call(usize, usize, End),
    /// Another call.
    NewCall(OpCall),
    /// All values and tokens are dropped.
    Settle,
    DropValue(usize),
    DropAll,
    DropToken(usize),
    BeginStep,
    Evict(usize),
}

#[derive(Clone, Debug)]
struct OpCall {
    function: usize,
    phase: u8,
    token: usize,
    inputs: Vec<OpInput>,
    /// The parameter set, and which of its addresses it has now.
    params: Option<(u64, u64)>,
    end: End,
    /// A value that dies while the call runs.
    dies: Option<usize>,
}

#[derive(Clone, Debug)]
enum OpInput {
    Staged(u64),
    Scalar(u64),
    Path { which: usize, given_up: bool, mutated: bool },
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Well,
    /// A warm-up asks for another one.
    NotReady,
    /// A recording fails and says so; anything else is abandoned.
    Fails,
    Abandoned,
    /// The layers above run it eagerly whatever was decided.
    Eagerly,
}

/// What the system under test has to do and to find.
#[derive(Clone, Debug)]
enum Done {
    Nothing,
    Call { call: RCall, expected: Expected, end: End, node: Option<usize>, dies: Option<RSlot> },
    Drop(Vec<RSlot>),
    Settle(Vec<RSlot>, Vec<usize>),
    DropToken { token: usize, was_pending: bool },
    BeginStep,
    Evict { node: usize, gone: Option<Vec<usize>> },
}

#[derive(Clone, Debug)]
struct State {
    reference: Reference,
    /// The calls that the program repeats.
    program: Vec<OpCall>,
    sets: [(u64, u64); 2],
    done: Done,
}

/// The outputs of each function: whether saved, and what becomes of them at a new step.
fn functions() -> Vec<Vec<(bool, OldOutput)>> {
    use OldOutput::{CopyOut, Error, Keep};
    vec![
        vec![(false, Error), (true, Error)],
        vec![(false, CopyOut)],
        vec![(false, Keep), (true, CopyOut)],
        vec![],
        vec![(false, Error)],
    ]
}

fn address(set: u64, variant: u64, index: u64) -> u64 {
    let moves = index == 0 || variant > 2;
    100 * set + 10 * index + if moves { variant } else { 0 }
}

fn input() -> impl Strategy<Value = OpInput> {
    prop_oneof![
        2 => (0..2_u64).prop_map(OpInput::Staged),
        1 => (0..2_u64).prop_map(OpInput::Scalar),
        4 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(which, given_up, mutated)| OpInput::Path { which, given_up, mutated }),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        20 => Just(End::Well), 1 => Just(End::NotReady), 1 => Just(End::Fails),
        1 => Just(End::Abandoned), 1 => Just(End::Eagerly),
    ]
}

fn call() -> impl Strategy<Value = OpCall> {
    let params = prop_oneof![2 => Just(None), 1 => (0..2_u64, 0..4_u64).prop_map(Some)];
    let dies = prop_oneof![8 => Just(None), 1 => any::<usize>().prop_map(Some)];
    (0..5_usize, 0..4_u8, any::<usize>(), prop::collection::vec(input(), 0..3), params, end(), dies).prop_map(
        |(function, phase, token, inputs, params, end, dies)| OpCall {
            function,
            phase,
            token,
            inputs,
            params,
            end,
            dies,
        },
    )
}

impl State {
    fn resolve(&mut self, op: &OpCall) -> RCall {
        let values = self.reference.values();
        let mut inputs = Vec::new();
        let mut used = Vec::new();
        for input in &op.inputs {
            inputs.push(match *input {
                OpInput::Staged(signature) => RInput { signature, source: RSource::Staged, mutated: false },
                OpInput::Scalar(signature) => RInput { signature, source: RSource::Scalar, mutated: false },
                OpInput::Path { .. } if values.is_empty() => {
                    RInput { signature: 0, source: RSource::Staged, mutated: false }
                }
                OpInput::Path { which, given_up, mutated } => {
                    let value = values[which % values.len()];
                    // The last handle of a storage can be given up once, and then nothing else of it is held.
                    let given_up = given_up && !used.contains(&value.slot);
                    used.push(value.slot);
                    RInput { signature: 0, source: RSource::Path { value, given_up }, mutated }
                }
            });
        }
        // An input given up first and named again later is still held by the second one.
        let again = |at: usize, value: RValue, inputs: &[RInput]| {
            inputs.iter().enumerate().any(|(other, input)| {
                other != at && matches!(input.source, RSource::Path { value: same, .. } if same == value)
            })
        };
        for at in 0..inputs.len() {
            if let RSource::Path { value, given_up: true } = inputs[at].source
                && again(at, value, &inputs)
            {
                inputs[at].source = RSource::Path { value, given_up: false };
            }
        }
        let pending: Vec<_> =
            (0..self.reference.tokens.len()).filter(|token| self.reference.tokens[*token]).collect();
        let (phase, token) = match op.phase {
            2 | 3 if !pending.is_empty() => (Phase::Backward, Some(pending[op.token % pending.len()])),
            1 => (Phase::Forward, None),
            _ => (Phase::Inference, None),
        };
        let params = op.params.map(|(set, variant)| {
            let current = &mut self.sets[set as usize];
            if current.1 != variant {
                *current = (current.0 + 1, variant);
            }
            let addresses = (0..3).map(|index| address(set, variant, index)).collect();
            RParams { set, version: current.0, addresses }
        });
        RCall { function: op.function, phase, token, inputs, params }
    }

    fn apply_call(&mut self, op: &OpCall) {
        let call = self.resolve(op);
        let expected = self.reference.decide(&call);
        let in_pool =
            matches!(expected, Expected::Replay { .. } | Expected::Record { .. } | Expected::WarmUp { .. });
        let starts = matches!(expected, Expected::Record { .. } | Expected::WarmUp { .. });
        let mut end = op.end;
        if end == End::NotReady && !matches!(expected, Expected::WarmUp { .. }) {
            end = End::Well;
        }
        let held = self.reference.values();
        let dies = op.dies.filter(|_| starts && !held.is_empty()).map(|which| held[which % held.len()].slot);
        // What the call itself holds does not die under it.
        let dies = dies.filter(|slot| {
            !call
                .inputs
                .iter()
                .any(|input| matches!(input.source, RSource::Path { value, .. } if value.slot == *slot))
        });
        let mut node = None;
        let reference = &mut self.reference;
        if !in_pool || end == End::Eagerly {
            end = End::Eagerly;
            held.iter()
                .filter(|value| {
                    call.inputs.iter().any(|input| {
                    matches!(input.source, RSource::Path { value: given, given_up: true } if given == **value)
                })
                })
                .for_each(|value| {
                    reference.live.remove(&value.slot);
                });
            if let Some(token) = call.token {
                reference.end_token(token);
            }
            if call.phase == Phase::Forward {
                reference.tokens.push(true);
            }
            reference.tick(call.function);
        } else if end == End::Fails && matches!(expected, Expected::Record { .. }) {
            reference.fail(call.function);
        } else if end == End::Well || end == End::NotReady {
            reference.evicted.clear();
            node = Some(reference.commit(&call, &expected, end == End::Well, dies));
        }
        self.done = Done::Call { call, expected, end, node, dies };
    }
}

struct Machine;

impl ReferenceStateMachine for Machine {
    type State = State;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<State> {
        let tight = Limits {
            path_length: 6,
            loop_length: 3,
            siblings: 3,
            liveness_variants: 2,
            recordings_per_function: 5,
            rerecordings: 3,
            rerecordings_decay: 5,
            changes_before_staged: 1,
            changes_decay: 6,
            failures: 1,
            failures_decay: 4,
            ..Limits::default()
        };
        let limits = prop_oneof![Just(Limits::default()), Just(tight), Just(Limits { siblings: 1, ..tight })];
        (limits, prop::collection::vec(call(), 2..6))
            .prop_map(|(limits, program)| State {
                reference: Reference::new(limits, &functions()),
                program,
                sets: [(0, 0); 2],
                done: Done::Nothing,
            })
            .boxed()
    }

    fn transitions(_: &State) -> BoxedStrategy<Op> {
        let vary = prop_oneof![3 => Just(0), 1 => 1..4_usize];
        Union::new_weighted(vec![
            (
                24,
                (any::<usize>(), vary, end())
                    .prop_map(|(which, vary, end)| Op::Call(which, vary, end))
                    .boxed(),
            ),
            (2, call().prop_map(Op::NewCall).boxed()),
            (6, any::<usize>().prop_map(Op::DropValue).boxed()),
            (2, Just(Op::DropAll).boxed()),
            (6, Just(Op::Settle).boxed()),
            (2, any::<usize>().prop_map(Op::DropToken).boxed()),
            (2, Just(Op::BeginStep).boxed()),
            (1, any::<usize>().prop_map(Op::Evict).boxed()),
        ])
        .boxed()
    }

    fn apply(mut state: State, op: &Op) -> State {
        let reference = &mut state.reference;
        let values = reference.values();
        match op {
            Op::Call(which, vary, end) => {
                let mut call = state.program[which % state.program.len()].clone();
                call.params = call.params.map(|(set, variant)| (set, (variant + *vary as u64) % 4));
                for input in &mut call.inputs {
                    if let OpInput::Path { which, .. } = input {
                        *which = which.wrapping_add(*vary);
                    }
                }
                state.apply_call(&OpCall { end: *end, ..call });
            }
            Op::NewCall(call) => state.apply_call(call),
            Op::Settle => {
                reference.live.clear();
                let pending: Vec<_> =
                    (0..reference.tokens.len()).filter(|token| reference.tokens[*token]).collect();
                pending.iter().for_each(|token| reference.end_token(*token));
                let slots = values.iter().map(|value| value.slot).collect();
                state.done = Done::Settle(slots, pending);
            }
            Op::DropValue(which) => {
                let slot = values.get(which % values.len().max(1)).map(|value| value.slot);
                slot.iter().for_each(|slot| {
                    reference.live.remove(slot);
                });
                state.done = Done::Drop(slot.into_iter().collect());
            }
            Op::DropAll => {
                reference.live.clear();
                state.done = Done::Drop(values.iter().map(|value| value.slot).collect());
            }
            Op::DropToken(which) => {
                state.done = Done::Nothing;
                if !reference.tokens.is_empty() {
                    let token = which % reference.tokens.len();
                    let was_pending = reference.tokens[token];
                    reference.end_token(token);
                    state.done = Done::DropToken { token, was_pending };
                }
            }
            Op::BeginStep => {
                reference.requested = true;
                state.done = Done::BeginStep;
            }
            Op::Evict(which) => {
                state.done = Done::Nothing;
                let all: Vec<_> =
                    (0..reference.nodes.len()).filter(|id| reference.nodes[*id].is_some()).collect();
                if let Some(&node) = all.get(which % all.len().max(1)) {
                    let on_path = reference.path.iter().any(|entry| entry.node == node);
                    reference.evicted.clear();
                    if !on_path {
                        reference.remove(node);
                    }
                    let gone = (!on_path).then(|| reference.evicted.iter().copied().collect());
                    state.done = Done::Evict { node, gone };
                }
            }
        }
        state
    }
}

/// The same bits, by storage that does not count its live slots.
struct NotCounting<'a>(&'a LiveTable);

impl Liveness for NotCounting<'_> {
    fn live_word(&self, node: NodeId, word: u32) -> u64 {
        self.0.live_word(node, word)
    }
}

/// The tree, and the names that it gave to what the reference numbers.
#[derive(Debug, Default)]
struct Sut {
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

prop_state_machine! {
    #![proptest_config(Config { cases: Config::default().cases, max_shrink_iters: 20_000, ..Config::default() })]

    /// Every decision, every effect and every state is what the naive reference says.
    #[test]
    fn the_tree_does_what_a_naive_one_does(sequential 1..120 => Sut);
}
