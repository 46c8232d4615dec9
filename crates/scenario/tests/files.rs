//! Every scenario file of the workspace, and every example of the pages about scenarios.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::path::{Path, PathBuf};

use graphgrove_scenario::{Options, Outcome, parse, run};

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The scenarios in a folder, by name.
fn scenarios(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "scn") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Runs scenarios and prints how many came to what, in the form that `stack-test` counts.
fn run_all(all: &[(String, String)]) {
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for (name, text) in all {
        match parse(text).map(|scenario| run(&scenario, &Options::default()).outcome) {
            Ok(Outcome::Passed) => passed += 1,
            Ok(Outcome::Skipped { .. }) => skipped += 1,
            Ok(Outcome::Failed(finding) | Outcome::Impossible(finding)) => {
                let (line, setup, why) = (finding.line, &finding.setup, &finding.why);
                failed.push(format!("{name}:{line} in {setup}: {why}\n{}", finding.explained));
            }
            Err(error) => failed.push(format!("{name}:{error}")),
        }
    }
    // Not through the test's own capture, so that whoever counts sees it.
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{passed} passed, {} failed, {skipped} skipped", failed.len()).unwrap();
    drop(out);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_field_report_has_a_file_that_passes_or_says_why_it_is_skipped() {
    run_all(&scenarios("tests/scenarios"));
}

#[test]
fn what_random_scenarios_have_shown_once_stays_mended() {
    run_all(&scenarios("tests/scenarios/regressions"));
}

/// The blocks of a page that are scenarios, with the line at which each begins.
fn examples(page: &str, kind: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(of)) if of == kind => open = Some((number + 2, String::new())),
            (Some((start, text)), Some(_)) => {
                found.push((format!("{page}:{start}"), std::mem::take(text)));
                open = None;
            }
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    found
}

#[test]
fn every_example_of_the_pages_runs() {
    let pages = ["docs/scenarios.md", "crates/scenario/README.md"];
    let all: Vec<_> = pages.iter().flat_map(|page| examples(page, "scenario")).collect();
    assert!(all.len() > 20, "only {} examples", all.len());
    let run = |(place, text): &(String, String)| match parse(text) {
        Ok(scenario) => match run(&scenario, &Options::default()).outcome {
            Outcome::Passed | Outcome::Skipped { .. } => None,
            Outcome::Failed(finding) | Outcome::Impossible(finding) => Some(format!(
                "{place}, line {} in {}: {}\n{}",
                finding.line, finding.setup, finding.why, finding.explained
            )),
        },
        Err(error) => Some(format!("{place}: {error}\n{text}")),
    };
    let failed: Vec<String> = all.iter().filter_map(run).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_scenario_reads_back_from_its_own_text() {
    let mut all = scenarios("tests/scenarios");
    all.extend(scenarios("tests/scenarios/regressions"));
    all.extend(examples("docs/scenarios.md", "scenario"));
    for (name, text) in &all {
        let scenario = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let printed = scenario.to_string();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{name}: {error}\n{printed}"));
        assert_eq!(again, scenario, "{name}\n{printed}");
    }
}
