//! The aliasing fuzz: programs of functions whose outputs alias inputs, parameters, each other and ancestors, with views,
//! clones, drops, threads, empties and steps. What must hold is what [`Mini::check`](crate::mini::Mini::check) compares
//! after each operation:
//!
//! * liveness of a block is the union over its tensors, whoever has them;
//! * two live storages never share a block;
//! * a run never writes a block that is live, and a stale handle never reads: it errors, or its value was preserved;
//! * no block is read after its death, by the simulated device's memory checker.

use graphgrove_storage::OldOutput;
use proptest::prelude::*;

use crate::mini::{Mini, Out};

#[derive(Clone, Debug)]
enum Op {
    Call { function: usize, pick: usize, moved: bool, leak: bool },
    Take(usize),
    TakeAll,
    DropWaiting(usize),
    Outside,
    Clone(usize),
    View(usize, u64),
    Drop(usize),
    Token(usize, bool),
    Threads(usize),
    Step([OldOutput; 3]),
}

fn out() -> impl Strategy<Value = Out> {
    prop_oneof![
        4 => Just(Out::Fresh),
        1 => Just(Out::Saved),
        1 => Just(Out::SavedToo),
        2 => (0..3_usize).prop_map(Out::Sibling),
        2 => Just(Out::OfInput),
        1 => Just(Out::OfWeight),
        1 => Just(Out::Empty),
        1 => Just(Out::NotTensor),
    ]
}

fn rule() -> impl Strategy<Value = OldOutput> {
    prop_oneof![3 => Just(OldOutput::Error), 3 => Just(OldOutput::CopyOut), 1 => Just(OldOutput::Keep)]
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0..64_usize;
    prop_oneof![
        6 => (0..4_usize, which.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(function, pick, moved, leak)| Op::Call { function, pick, moved, leak }),
        4 => which.clone().prop_map(Op::Take),
        2 => Just(Op::TakeAll),
        1 => which.clone().prop_map(Op::DropWaiting),
        1 => Just(Op::Outside),
        2 => which.clone().prop_map(Op::Clone),
        3 => (which.clone(), 0..40_u64).prop_map(|(pick, start)| Op::View(pick, start)),
        6 => which.clone().prop_map(Op::Drop),
        2 => (which.clone(), any::<bool>()).prop_map(|(pick, look)| Op::Token(pick, look)),
        1 => which.prop_map(Op::Threads),
        2 => [rule(), rule(), rule()].prop_map(Op::Step),
    ]
}

fn perform(mini: &mut Mini, op: &Op) {
    match *op {
        Op::Call { function, pick, moved, leak } => mini.call(function, pick, moved, leak),
        Op::Take(pick) => mini.take_waiting(pick),
        Op::TakeAll => (0..40).for_each(|_| mini.take_waiting(0)),
        Op::DropWaiting(pick) => mini.drop_waiting(pick),
        Op::Outside => mini.add_outside(),
        Op::Clone(pick) => mini.clone_tensor(pick),
        Op::View(pick, start) => mini.view(pick, start),
        Op::Drop(pick) => mini.drop_tensor(pick),
        Op::Token(pick, look) => mini.use_token(pick, look),
        Op::Threads(keep) => mini.on_threads(keep),
        Op::Step(rules) => mini.begin_step(rules),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        // PROPTEST_CASES raises it.
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200),
        ..ProptestConfig::default()
    })]

    #[test]
    fn liveness_of_a_block_is_the_union_over_its_tensors_and_no_stale_handle_reads(
        functions in prop::collection::vec(prop::collection::vec(out(), 1..6), 1..4),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut mini = Mini::new(functions);
        for op in &ops {
            perform(&mut mini, op);
            mini.check();
        }
        mini.finish();
    }
}

#[test]
fn the_fuzzed_engine_does_replay() {
    let mut mini = Mini::new(vec![vec![Out::Fresh, Out::Sibling(0), Out::Saved], vec![Out::OfInput]]);
    for _ in 0..4 {
        mini.add_outside();
        for op in [
            Op::Call { function: 0, pick: 0, moved: true, leak: false },
            Op::TakeAll,
            Op::Call { function: 1, pick: 0, moved: true, leak: false },
            Op::TakeAll,
            Op::Token(0, false),
        ] {
            perform(&mut mini, &op);
            mini.check();
        }
        perform(&mut mini, &Op::Step([OldOutput::Error; 3]));
        (0..9).for_each(|_| mini.drop_tensor(0));
    }
    assert_eq!(mini.replays, 6, "the first turn records both, the others replay both");
    mini.finish();
}
