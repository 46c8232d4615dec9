//! Random programs.

use graphgrove::{Mode, OldOutput};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::program::{Arg, Beside, Call, FunctionSpec, Made, Op, Out, Program, Step, View};

/// How many cases a property is tried with, unless `PROPTEST_CASES` says otherwise.
#[must_use]
pub fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

fn view() -> impl Strategy<Value = View> {
    (prop_oneof![2 => Just(0), 1 => 0_u8..6], prop_oneof![2 => Just(0), 1 => 0_u8..3])
        .prop_map(|(skip, step)| View { skip, step })
}

fn made() -> impl Strategy<Value = Made> {
    let register = || 0_u8..10;
    prop_oneof![
        3 => (register(), register(), 0_u32..5).prop_map(|(a, b, k)| Made::Mix(a, b, k)),
        1 => register().prop_map(Made::Draw),
    ]
}

fn beside() -> impl Strategy<Value = Beside> {
    (vec(made(), 1..4), proptest::option::of(0_u8..10), vec(made(), 0..3))
        .prop_map(|(side, dropped, main)| Beside { side, dropped, main })
}

fn op() -> impl Strategy<Value = Op> {
    let register = || 0_u8..10;
    prop_oneof![
        5 => (register(), register(), 0_u32..5).prop_map(|(a, b, k)| Op::Mix(a, b, k)),
        1 => (register(), register()).prop_map(|(a, b)| Op::MixValue(a, b)),
        2 => (register(), register(), 0_u32..5).prop_map(|(a, b, k)| Op::MixSaved(a, b, k)),
        2 => (register(), register(), 0_u32..5).prop_map(|(to, b, k)| Op::Accumulate(to, b, k)),
        1 => register().prop_map(Op::Draw),
        1 => beside().prop_map(Op::Beside),
        2 => (register(), view()).prop_map(|(of, view)| Op::View(of, view)),
        2 => register().prop_map(Op::Drop),
    ]
}

fn out() -> impl Strategy<Value = Out> {
    prop_oneof![12 => (0_u8..10).prop_map(Out::Reg), 1 => (0_u8..4).prop_map(Out::Saved), 1 => Just(Out::Empty)]
}

fn old_output() -> impl Strategy<Value = OldOutput> {
    prop_oneof![3 => Just(OldOutput::Error), 2 => Just(OldOutput::CopyOut), 1 => Just(OldOutput::Keep)]
}

fn function() -> impl Strategy<Value = FunctionSpec> {
    let mode = prop_oneof![
        14 => Just(None),
        1 => Just(Some(Mode::Eager)),
        1 => Just(Some(Mode::OnePool)),
        1 => Just(Some(Mode::Trees)),
    ];
    let made = (vec(op(), 1..6), vec(out(), 1..=4), vec(0_u8..10, 0..3));
    (1_u8..=3, 0_u8..=2, made, old_output(), mode).prop_map(
        |(inputs, params, (ops, outputs, saves), old, mode)| FunctionSpec {
            inputs,
            params,
            ops,
            outputs,
            saves,
            old,
            mode,
        },
    )
}

fn arg() -> impl Strategy<Value = Arg> {
    prop_oneof![3 => (0_u8..8).prop_map(Arg::Kept), 2 => (0_u8..8).prop_map(Arg::Given)]
}

fn call() -> impl Strategy<Value = Call> {
    let rare = || prop_oneof![7 => Just(false), 1 => Just(true)];
    let forward = prop_oneof![2 => Just(false), 1 => Just(true)];
    let value = prop_oneof![7 => Just(0_u8), 1 => 0_u8..3];
    let taken = prop_oneof![3 => Just(0xff_u8), 1 => any::<u8>()];
    (0_u8..4, vec(arg(), 1..=3), 0_u8..2, value, rare(), forward, taken).prop_map(
        |(function, args, set, value, elsewhere, forward, taken)| Call {
            function,
            args,
            set,
            value,
            elsewhere,
            forward,
            taken,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let handle = || 0_u8..8;
    prop_oneof![
        3 => prop_oneof![8 => Just(5_u8), 2 => Just(12_u8), 1 => 0_u8..9].prop_map(Step::Own),
        9 => call().prop_map(Step::Call),
        3 => (0_u8..4, call()).prop_map(|(token, call)| Step::Backward(token, call)),
        1 => (0_u8..4).prop_map(Step::Discard),
        1 => handle().prop_map(Step::Clone),
        1 => (handle(), view()).prop_map(|(of, view)| Step::View(of, view)),
        3 => handle().prop_map(Step::Drop),
        1 => handle().prop_map(Step::DropElsewhere),
        2 => Just(Step::BeginStep),
        1 => (0_u8..3).prop_map(Step::Seed),
        1 => (0_u8..2, 0_u8..2, proptest::option::of(handle()))
            .prop_map(|(set, param, by)| Step::Replace { set, param, by }),
        1 => Just(Step::Check),
        1 => prop_oneof![3 => Just(Step::Check), 1 => Just(Step::Reset)],
    ]
}

/// A random program.
pub fn program() -> impl Strategy<Value = Program> {
    let shape = (2_u8..6, vec((0_u8..6, 0_u8..14), 0..4), 0_u8..4, 0_u8..3);
    let tight = prop_oneof![4 => Just(false), 1 => Just(true)];
    (vec(function(), 1..4), vec(step(), 1..14), shape, tight, 0_u64..4).prop_map(
        |(functions, steps, (rounds, skips, left, pending), tight, seed)| Program {
            functions,
            steps,
            rounds,
            skips,
            left,
            pending,
            tight,
            seed,
        },
    )
}
