//! Random programs.

use graphgrove_replay::Route;
use graphgrove_storage::Readers;
use proptest::prelude::*;

use crate::function::{Cut, Function, Ret, Step};

/// One operation. Positions are counted from the last one back, and taken modulo what is there.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A tensor of the caller's own, whose elements count up from here.
    New(i32),
    View(usize, Cut),
    Clone(usize),
    Drop(usize),
    /// The caller writes to memory of its own.
    Write(usize, i32),
    /// A handle of a parameter, as an ordinary tensor.
    TakeParam(usize),
    ReplaceParam(usize, NewParam),
    /// Lets go of what some backward reads.
    DropSaved(usize),
    Call(Call),
    NewStep,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum NewParam {
    /// Another tensor.
    Fresh(i32),
    /// The same one again.
    Same,
    /// A tensor at an address that is not aligned.
    Odd(i32),
    /// Some tensor that the caller has.
    Held(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: usize,
    pub(crate) at: At,
    pub(crate) args: [Arg; 3],
    /// Whether it runs on the side stream.
    pub(crate) aside: bool,
}

/// Where on the path a call runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Root,
    End,
    Place(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    Kept(usize),
    GivenUp(usize),
    Value(u64),
}

/// How a round differs from the one that all rounds repeat.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Skip,
    Instead(Op),
    Before(Op),
    /// Somebody else holds clones of the last handles until the round is over.
    Aside,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// Values are looked at after so many operations.
    pub(crate) looks: usize,
    pub(crate) functions: Vec<Function>,
    pub(crate) base: Vec<Op>,
    pub(crate) rounds: Vec<Round>,
}

#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) changes: Vec<(usize, Change)>,
    /// Whether no handle is dropped in it.
    pub(crate) hoards: bool,
    /// Whether it ends with a new step; else all handles of outputs are dropped.
    pub(crate) steps: bool,
}

/// Mostly one of the last handles.
fn recent() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 0_usize..3, 2 => 0_usize..8]
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        4 => (0_u64..8, 1_u64..8, 1_u64..3).prop_map(|(from, count, step)| Cut::Slice { from, count, step }),
        1 => (0_u64..8).prop_map(|from| Cut::Slice { from: from / 4 * 4, count: 4, step: 1 }),
        1 => (0_u64..8, 2_u64..5).prop_map(|(at, count)| Cut::Repeat { at, count }),
    ]
}

fn arg() -> impl Strategy<Value = Arg> {
    prop_oneof![
        6 => recent().prop_map(Arg::Kept),
        6 => recent().prop_map(Arg::GivenUp),
        1 => (0_u64..2).prop_map(Arg::Value),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let at = prop_oneof![16 => Just(At::End), 1 => Just(At::Root), 1 => any::<usize>().prop_map(At::Place)];
    (any::<usize>(), at, [arg(), arg(), arg()], prop::bool::weighted(0.2))
        .prop_map(|(function, at, args, aside)| Call { function, at, args, aside })
}

fn op() -> impl Strategy<Value = Op> {
    let new_param = prop_oneof![
        any::<i8>().prop_map(|value| NewParam::Fresh(value.into())),
        Just(NewParam::Same),
        any::<i8>().prop_map(|value| NewParam::Odd(value.into())),
        any::<usize>().prop_map(NewParam::Held),
    ];
    prop_oneof![
        2 => any::<i8>().prop_map(|value| Op::New(value.into())),
        3 => (recent(), cut()).prop_map(|(of, cut)| Op::View(of, cut)),
        1 => recent().prop_map(Op::Clone),
        4 => recent().prop_map(Op::Drop),
        1 => (any::<usize>(), any::<i8>()).prop_map(|(to, value)| Op::Write(to, value.into())),
        1 => any::<usize>().prop_map(Op::TakeParam),
        1 => (0_usize..2, new_param).prop_map(|(param, new)| Op::ReplaceParam(param, new)),
        1 => any::<usize>().prop_map(Op::DropSaved),
        12 => call().prop_map(Op::Call),
        1 => Just(Op::NewStep),
    ]
}

fn function() -> impl Strategy<Value = Function> {
    let step = prop_oneof![
        6 => (any::<usize>(), any::<usize>(), -3_i32..4).prop_map(|(a, b, more)| Step::Sum(a, b, more)),
        2 => (any::<usize>(), 1_i32..4).prop_map(|(to, by)| Step::Bump(to, by)),
        2 => (any::<usize>(), cut()).prop_map(|(of, cut)| Step::View(of, cut)),
        3 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Copy),
    ];
    let readers =
        prop_oneof![4 => Just(Readers::Caller), 1 => Just(Readers::Backward), 1 => Just(Readers::Both)];
    let ret = prop_oneof![
        10 => (any::<usize>(), readers).prop_map(|(reg, readers)| Ret::Reg(reg, readers)),
        1 => Just(Ret::Empty),
        1 => Just(Ret::NotTensor),
        1 => Just(Ret::Constant),
    ];
    let route = prop_oneof![2 => Just(Route::Copied), 1 => Just(Route::Patched)];
    (
        0_usize..4,
        prop::bool::weighted(0.4),
        route,
        prop::collection::vec(step, 1..6),
        prop::collection::vec(ret, 1..4),
    )
        .prop_map(|(arity, has_params, route, steps, rets)| Function {
            arity,
            has_params,
            route,
            steps,
            rets,
        })
}

pub(crate) fn programs() -> impl Strategy<Value = Program> {
    let change = prop_oneof![
        3 => Just(Change::Skip),
        1 => op().prop_map(Change::Instead),
        2 => op().prop_map(Change::Before),
        6 => Just(Change::Aside),
        1 => recent().prop_map(|of| Change::Before(Op::Drop(of))),
    ];
    let changes = prop::collection::vec((any::<usize>(), change), 0..3);
    let round = (changes, prop::bool::weighted(0.2), prop::bool::weighted(0.3))
        .prop_map(|(changes, hoards, steps)| Round { changes, hoards, steps });
    let snippet = prop_oneof![
        3 => op().prop_map(|op| vec![op]),
        2 => (call(), recent()).prop_map(|(call, drop)| vec![Op::Call(call), Op::Drop(drop)]),
    ];
    let base = prop::collection::vec(snippet, 1..8).prop_map(|snippets| snippets.concat());
    (
        any::<u64>(),
        1_usize..8,
        prop::collection::vec(function(), 1..4),
        base,
        prop::collection::vec(round, 3..8),
    )
        .prop_map(|(seed, looks, functions, base, rounds)| Program {
            seed,
            looks,
            functions,
            base,
            rounds,
        })
}
