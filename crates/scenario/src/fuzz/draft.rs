//! A random scenario before its names are given: every number that names something is taken modulo how many of it there are, so that
//! each draft has a meaning and shrinks well.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use crate::program::FaultKind;
use crate::{Limit, ModeName, Old};

/// A random scenario before its names are given.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(super) functions: Vec<DraftFunction>,
    pub(super) steps: Vec<Step>,
    pub(super) rounds: u8,
    pub(super) seed: u8,
    pub(super) is_lazy: bool,
    pub(super) has_no_plan: bool,
    pub(super) has_two_engines: bool,
    /// Bounds that are met soon.
    pub(super) limits: Vec<(Limit, u8)>,
}

/// A function, and the backward that takes what it saves.
#[derive(Clone, Debug)]
pub(super) struct DraftFunction {
    pub(super) inputs: u8,
    pub(super) params: u8,
    pub(super) has_value: bool,
    pub(super) has_host: bool,
    pub(super) ops: Vec<DraftOp>,
    pub(super) outputs: Vec<u8>,
    pub(super) saves: Vec<u8>,
    pub(super) back: (Vec<DraftOp>, Vec<u8>),
    pub(super) old: Old,
    pub(super) mode: Option<ModeName>,
}

/// A line of a function. Tensors are counted from the newest one.
#[derive(Clone, Debug)]
pub(super) enum DraftOp {
    Mix(u8, u8, u8),
    MixValue(u8, u8),
    InPlace(u8, u8, u8),
    CopyInto(u8, u8),
    View(u8, u8, u8),
    Copy(u8),
    Drop(u8),
    Empty,
    Draw(u8),
    Side(u8, u8),
    Scratch(u8, u8),
    Fail(u8),
    Panic(u8),
    HostWait,
}

/// A statement. Tensors and tokens are counted from the newest one.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Own(u8, bool),
    Call(DraftCall),
    Backward(u8, DraftCall),
    Discard(u8),
    Clone(u8),
    View(u8, u8, u8),
    Drop(u8, bool),
    Begin,
    Reset,
    Seed(u8),
    Move(u8),
    Reload(u8),
    Become(u8, u8),
    Faulty(FaultKind, u8, DraftCall),
    Check,
    UseEngine(u8),
    Choose(Vec<Step>, Vec<Step>),
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct DraftCall {
    pub(super) function: u8,
    /// What is brought, and whether it is given up; the last one stands for all that are missing.
    pub(super) args: Vec<(u8, bool)>,
    pub(super) first_param: u8,
    pub(super) value: u8,
    pub(super) is_forward: bool,
    pub(super) is_elsewhere: bool,
    /// Which outputs are taken: one bit each.
    pub(super) taken: u8,
}

fn op() -> impl Strategy<Value = DraftOp> {
    let register = || 0_u8..8;
    prop_oneof![
        6 => (register(), register(), 0_u8..5).prop_map(|(a, b, k)| DraftOp::Mix(a, b, k)),
        1 => (register(), register()).prop_map(|(a, b)| DraftOp::MixValue(a, b)),
        2 => (register(), register(), 0_u8..5).prop_map(|(to, b, k)| DraftOp::InPlace(to, b, k)),
        1 => (register(), register()).prop_map(|(to, b)| DraftOp::CopyInto(to, b)),
        3 => (register(), 0_u8..6, 0_u8..3).prop_map(|(of, at, step)| DraftOp::View(of, at, step)),
        1 => register().prop_map(DraftOp::Copy),
        2 => register().prop_map(DraftOp::Drop),
        1 => Just(DraftOp::Empty),
        1 => (0_u8..4).prop_map(DraftOp::Draw),
        1 => (register(), register()).prop_map(|(a, b)| DraftOp::Side(a, b)),
        1 => (1_u8..4, 0_u8..4).prop_map(|(size, run)| DraftOp::Scratch(size, run)),
    ]
}

/// Lines that go wrong are rare, or nothing else is ever seen.
fn ops(most: usize) -> impl Strategy<Value = Vec<DraftOp>> {
    let bad = prop_oneof![
        3 => (1_u8..5).prop_map(DraftOp::Fail),
        3 => (1_u8..5).prop_map(DraftOp::Panic),
        1 => Just(DraftOp::HostWait),
    ];
    (vec(op(), 1..most), weighted(0.06, bad)).prop_map(|(mut ops, bad)| {
        ops.extend(bad);
        ops
    })
}

fn function() -> impl Strategy<Value = DraftFunction> {
    let old = prop_oneof![3 => Just(Old::Error), 2 => Just(Old::Copy), 1 => Just(Old::Keep)];
    let mode = prop_oneof![
        14 => Just(None),
        1 => Just(Some(ModeName::Eager)),
        1 => Just(Some(ModeName::OnePool)),
        1 => Just(Some(ModeName::Trees)),
    ];
    let shape = (1_u8..=3, 0_u8..=2, weighted_bool(0.3), weighted_bool(0.1));
    let made = (ops(6), vec(0_u8..8, 1..=4), vec(0_u8..8, 0..3));
    let back = (ops(4), vec(0_u8..8, 1..=2));
    (shape, made, back, old, mode).prop_map(
        |((inputs, params, has_value, has_host), made, back, old, mode)| {
            let (ops, outputs, saves) = made;
            DraftFunction { inputs, params, has_value, has_host, ops, outputs, saves, back, old, mode }
        },
    )
}

fn weighted_bool(of: f64) -> impl Strategy<Value = bool> {
    prop::bool::weighted(of)
}

fn call() -> impl Strategy<Value = DraftCall> {
    let arg = (0_u8..6, weighted_bool(0.4));
    let taken = prop_oneof![3 => Just(0xff_u8), 1 => any::<u8>()];
    (0_u8..4, vec(arg, 1..=3), 0_u8..3, 0_u8..3, weighted_bool(0.35), weighted_bool(0.12), taken).prop_map(
        |(function, args, first_param, value, is_forward, is_elsewhere, taken)| DraftCall {
            function,
            args,
            first_param,
            value,
            is_forward,
            is_elsewhere,
            taken,
        },
    )
}

fn plain_step() -> impl Strategy<Value = Step> {
    let tensor = || 0_u8..6;
    let fault = prop_oneof![Just(FaultKind::NoMemory), Just(FaultKind::Refuse), Just(FaultKind::Invalidate)];
    prop_oneof![
        3 => (prop_oneof![6 => Just(5_u8), 2 => Just(12_u8), 1 => 0_u8..9], weighted_bool(0.1))
            .prop_map(|(length, misaligned)| Step::Own(length, misaligned)),
        10 => call().prop_map(Step::Call),
        3 => (0_u8..3, call()).prop_map(|(token, call)| Step::Backward(token, call)),
        1 => (0_u8..3).prop_map(Step::Discard),
        1 => tensor().prop_map(Step::Clone),
        2 => (tensor(), 0_u8..6, 0_u8..3).prop_map(|(of, at, step)| Step::View(of, at, step)),
        3 => (tensor(), weighted_bool(0.2)).prop_map(|(tensor, elsewhere)| Step::Drop(tensor, elsewhere)),
        3 => Just(Step::Begin),
        1 => prop_oneof![2 => (0_u8..3).prop_map(Step::Seed), 1 => Just(Step::Reset)],
        1 => prop_oneof![
            (0_u8..3).prop_map(Step::Move),
            (0_u8..3).prop_map(Step::Reload),
            (0_u8..3, tensor()).prop_map(|(param, by)| Step::Become(param, by)),
        ],
        1 => (fault, 1_u8..14, call()).prop_map(|(kind, nth, call)| Step::Faulty(kind, nth, call)),
        1 => Just(Step::Check),
        1 => (0_u8..2).prop_map(Step::UseEngine),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let choose = (vec(plain_step(), 1..3), vec(plain_step(), 1..3));
    // What follows was recorded when this was done, and now it is not, or the other way round.
    let maybe = plain_step().prop_map(|step| Step::Choose(vec![step], Vec::new()));
    prop_oneof![
        11 => plain_step(),
        2 => maybe,
        1 => choose.prop_map(|(one, other)| Step::Choose(one, other)),
    ]
}

/// A random scenario.
pub fn draft() -> impl Strategy<Value = Draft> {
    let limit = (proptest::sample::select(Limit::ALL), 1_u8..4);
    let limits = prop_oneof![4 => Just(Vec::new()), 1 => vec(limit, 1..5)];
    let flags = (prop::bool::ANY, weighted_bool(0.3), weighted_bool(0.1));
    (vec(function(), 1..4), vec(step(), 1..14), 1_u8..7, 0_u8..4, flags, limits).prop_map(
        |(functions, steps, rounds, seed, (is_lazy, has_no_plan, has_two_engines), limits)| Draft {
            functions,
            steps,
            rounds,
            seed,
            is_lazy,
            has_no_plan,
            has_two_engines,
            limits,
        },
    )
}
