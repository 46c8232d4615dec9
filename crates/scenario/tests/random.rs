//! Random scenarios, and what is done with one that fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use graphgrove_scenario::fuzz::{Search, draft};
use graphgrove_scenario::parse;
use proptest::prelude::*;

/// How many cases are tried, unless `PROPTEST_CASES` says otherwise.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

#[test]
fn random_scenarios_are_those_of_the_plain_interpreter_in_every_set_up() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut search = Search::new(seed);
    for _ in 0..cases(150) {
        if let Err(found) = search.step() {
            panic!("{} in {}:\n{}", found.finding.why, found.finding.setup, found.scenario);
        }
    }
    assert!(search.compared > 0);
}

#[test]
fn the_same_seed_searches_the_same_way() {
    let compared = |seed| {
        let mut search = Search::new(seed);
        (0..5).filter(|_| search.step().is_ok()).count();
        search.compared
    };
    assert_eq!(compared(3), compared(3));
    assert!((4..20).any(|seed| compared(seed) != compared(3)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_scenario_reads_back_from_its_text(draft in draft()) {
        let scenario = draft.scenario();
        let text = scenario.to_string();
        let read = parse(&text);
        prop_assert_eq!(read.as_ref(), Ok(&scenario), "{}", text);
    }
}
