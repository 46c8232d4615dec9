//! Tests of the run, and of the checks against devices that do nothing.

use super::idle_device::{IdleHarness, Manner};
use super::*;
use crate::contract::checks;

fn check(body: fn(&Rig<'_, IdleHarness>) -> Verdict) -> Check<IdleHarness> {
    Check::new("a_rule", "A rule.", "Nowhere", Capabilities::empty(), body)
}

fn outcome(body: fn(&Rig<'_, IdleHarness>) -> Verdict) -> Outcome {
    check(body).run(&IdleHarness::new(Manner::Nods))
}

#[test]
fn a_check_passes_or_fails_by_its_verdict() {
    assert_eq!(outcome(|_| Ok(())), Outcome::Passed);
    let violation = Violation::at("a step", "this", "that");
    assert_eq!(outcome(|_| Err(Violation::at("a step", "this", "that"))), Outcome::Failed(violation));
}

#[test]
fn a_check_that_panics_has_failed() {
    let Outcome::Failed(violation) = outcome(|_| std::panic::panic_any("out of luck")) else {
        panic!("the panic was not reported as a failure");
    };
    assert_eq!(violation.seen, "the panic `out of luck`");
}

#[test]
fn a_check_that_the_device_complains_of_has_failed() {
    let harness = IdleHarness { complaint: Some("a race"), ..IdleHarness::new(Manner::Nods) };
    let Outcome::Failed(violation) = check(|_| Ok(())).run(&harness) else {
        panic!("the complaint was not reported as a failure");
    };
    assert_eq!(violation.seen, "a race");
}

#[test]
fn a_check_that_the_harness_declares_unsupported_is_skipped_with_the_reason() {
    let check = Check { name: "what_no_device_can_do", ..check(|_| Ok(())) };
    assert_eq!(check.run(&IdleHarness::new(Manner::Nods)), Outcome::Skipped("it cannot be done".into()));
}

#[test]
fn a_check_whose_capability_is_missing_is_skipped_by_name() {
    let check = Check { needs: Capabilities::RESERVE_MAP | Capabilities::EXEC_BYTES, ..check(|_| Ok(())) };
    let harness = IdleHarness { capabilities: Capabilities::EXEC_BYTES, ..IdleHarness::new(Manner::Nods) };
    assert_eq!(check.run(&harness), Outcome::Skipped("the device lacks reserve map".into()));
    assert_eq!(check.run(&IdleHarness::new(Manner::Nods)), Outcome::Passed);
}

#[test]
fn a_device_that_does_not_open_fails_every_check() {
    let harness = IdleHarness { opens: false, ..IdleHarness::new(Manner::Nods) };
    let report = run(&harness, "");
    assert_eq!((report.failed(), report.entries().len()), (checks::<IdleHarness>().len(), report.failed()));
    assert!(report.to_string().contains("no device: none is plugged in"));
}

#[test]
fn a_filter_picks_the_checks_whose_name_contains_it() {
    let mut seen = Vec::new();
    let report = run_each(&IdleHarness::new(Manner::Refuses), "gather", |entry| seen.push(entry.clone()));
    assert_eq!(seen, report.entries());
    assert!(report.entries().len() > 10);
    assert!(report.entries().iter().all(|entry| entry.name.contains("gather")));
    assert!(report.entries().len() < checks::<IdleHarness>().len());
}

#[test]
fn every_check_has_a_name_of_its_own_and_states_a_rule() {
    let checks = checks::<IdleHarness>();
    let mut names: Vec<_> = checks.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), checks.len());
    assert!(checks.len() >= 60, "only {} checks", checks.len());
    for check in &checks {
        assert!(check.rule.ends_with('.') && check.rule.len() > 20, "{}: {}", check.name, check.rule);
        assert!(!check.section.is_empty(), "{} names no source", check.name);
    }
}

#[test]
fn a_device_that_refuses_everything_passes_nothing() {
    let report = run(&IdleHarness::new(Manner::Refuses), "");
    let passed: Vec<_> = passed(&report);
    assert!(passed.is_empty(), "{passed:?}");
}

/// A check that a device passes by nodding shows nothing about the device. The one left cannot look behind the answers,
/// since it asks for nothing but the answers.
#[test]
fn a_device_that_nods_to_everything_and_does_nothing_passes_next_to_nothing() {
    let report = run(&IdleHarness::new(Manner::Nods), "");
    assert_eq!(passed(&report), ["a_segment_is_aligned_and_long_enough"], "\n{report}");
}

fn passed(report: &Report) -> Vec<&'static str> {
    let entries = report.entries().iter();
    entries.filter(|entry| entry.outcome == Outcome::Passed).map(|entry| entry.name).collect()
}
