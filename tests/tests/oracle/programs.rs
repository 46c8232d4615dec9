//! Random programs under every mode and every prefix of the layers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use graphgrove::Mode;
use graphgrove_tests::program::Program;
use graphgrove_tests::rig;
use graphgrove_tests::setup::Setup;
use graphgrove_tests::strategy::{cases, program};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn config(default: u32) -> ProptestConfig {
    ProptestConfig {
        cases: cases(default),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/oracle/programs.regressions",
        ))),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

/// What a run of a program has panicked with.
fn failure(program: &Program, setup: Setup) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| rig::check(program, setup))).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn invariant_08_every_calls_result_equals_the_eager_result(program in program()) {
        for setup in Setup::all() {
            let failure = failure(&program, setup);
            prop_assert!(failure.is_none(), "{setup:?}: {}", failure.unwrap());
        }
    }

    #[test]
    fn invariant_11_the_same_calls_make_the_same_trees_and_addresses(program in program(), at in any::<prop::sample::Index>()) {
        let setups = Setup::all();
        let setup = *at.get(&setups);
        prop_assert_eq!(rig::trace(&program, setup), rig::trace(&program, setup));
    }

    #[test]
    fn random_traffic_stays_within_a_small_budget_never_fails_and_gives_what_eager_gives(
        program in program(), budget in 0_u64..64 << 10,
    ) {
        for mode in [Mode::Trees, Mode::OnePool, Mode::Auto] {
            let setup = Setup::within(mode, budget);
            let failure = failure(&program, setup);
            prop_assert!(failure.is_none(), "{setup:?}: {}", failure.unwrap());
        }
    }
}
