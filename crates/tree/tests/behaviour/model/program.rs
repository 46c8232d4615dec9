//! Random programs: a few calls that repeat, with drops, tokens, steps, failures and evictions between them.

use super::reference::{Expected, RCall, RInput, RParams, RSlot, RSource, RValue, Reference};
use graphgrove_tree::{Limits, OldOutput, Phase};
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest_state_machine::ReferenceStateMachine;

/// What happens next. Numbers that choose something are taken modulo what there is to choose from.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// One of the calls that the program is made of: which, by how much its parameters and path inputs differ
    /// from those of the program, and how it ends.
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
pub(super) struct OpCall {
    pub(super) function: usize,
    pub(super) phase: u8,
    pub(super) token: usize,
    pub(super) inputs: Vec<OpInput>,
    /// The parameter set, and which of its addresses it has now.
    pub(super) params: Option<(u64, u64)>,
    pub(super) end: End,
    /// A value that dies while the call runs.
    pub(super) dies: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum OpInput {
    Staged(u64),
    Scalar(u64),
    Path { which: usize, given_up: bool, mutated: bool },
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
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
pub(super) enum Done {
    Nothing,
    Call { call: RCall, expected: Expected, end: End, node: Option<usize>, dies: Option<RSlot> },
    Drop(Vec<RSlot>),
    Settle(Vec<RSlot>, Vec<usize>),
    DropToken { token: usize, was_pending: bool },
    BeginStep,
    Evict { node: usize, gone: Option<Vec<usize>> },
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) reference: Reference,
    /// The calls that the program repeats.
    pub(super) program: Vec<OpCall>,
    pub(super) sets: [(u64, u64); 2],
    pub(super) done: Done,
}

/// The outputs of each function: whether saved, and what becomes of them at a new step.
pub(super) fn functions() -> Vec<Vec<(bool, OldOutput)>> {
    use OldOutput::{CopyOut, Error, Keep};
    vec![
        vec![(false, Error), (true, Error)],
        vec![(false, CopyOut)],
        vec![(false, Keep), (true, CopyOut)],
        vec![],
        vec![(false, Error)],
    ]
}

pub(super) fn address(set: u64, variant: u64, index: u64) -> u64 {
    let moves = index == 0 || variant > 2;
    100 * set + 10 * index + if moves { variant } else { 0 }
}

pub(super) fn input() -> impl Strategy<Value = OpInput> {
    prop_oneof![
        2 => (0..2_u64).prop_map(OpInput::Staged),
        1 => (0..2_u64).prop_map(OpInput::Scalar),
        4 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(which, given_up, mutated)| OpInput::Path { which, given_up, mutated }),
    ]
}

pub(super) fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        20 => Just(End::Well), 1 => Just(End::NotReady), 1 => Just(End::Fails),
        1 => Just(End::Abandoned), 1 => Just(End::Eagerly),
    ]
}

pub(super) fn call() -> impl Strategy<Value = OpCall> {
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
                let token = reference.tokens.len() - 1;
                reference.saved_outside.extend(call.inputs.iter().filter_map(|input| match input.source {
                    RSource::Path { value, .. } => Some((token, value)),
                    _ => None,
                }));
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

pub(super) struct Machine;

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
            unreplayed: 4,
            unreplayed_decay: 7,
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
