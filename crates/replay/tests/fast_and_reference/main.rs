//! The fast path against the reference path, and both against plain computation.
//!
//! A random program of calls runs in three worlds at once, each with a device and a pool of its own: one records and replays
//! by the fast method, one by the reference method, one records every call anew. After every operation:
//!
//! * the first two agree on what the call did or why it was refused, on every readable value, on the liveness and the epoch of
//!   every slot, on the pool's statistics, and on the path (invariants 4, 8 and 15 of the design);
//! * the third agrees with them on values, on the liveness of each place on the path, and on whether the call was refused;
//! * every value is the one that the program computes without any device, and a handle is stale exactly if its step is over;
//! * no checker has found anything.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod eager;
mod function;
mod program;
mod recording;
mod run;
mod world;

use proptest::prelude::*;

/// How many cases are tried, unless `PROPTEST_CASES` says otherwise.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn recording_and_replay_leave_the_pool_the_liveness_bits_and_every_outputs_value_the_same(
        program in program::programs(),
    ) {
        run::Run::new(&program).all(&program);
    }
}

/// What random programs reach: the property would hold just as well if nothing was ever replayed.
#[test]
fn random_programs_replay_and_refuse_for_many_reasons() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut seen = run::Seen::default();
    for _ in 0..150 {
        let program = program::programs().new_tree(&mut runner).unwrap().current();
        seen.add(&run::Run::new(&program).all(&program));
    }
    assert!(seen.replays > 200 && seen.records > 100, "{seen:?}");
    assert!(seen.given_up > 20 && seen.saved > 20, "{seen:?}");
    for reason in
        ["TailLive", "StillLive", "StillHeld", "Signature", "Managed", "Sharing", "ParamMoved", "Stale"]
    {
        assert!(seen.reasons.contains_key(reason), "{reason} was never met: {seen:?}");
    }
}
