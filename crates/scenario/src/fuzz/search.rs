//! The search for a scenario that fails.

use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::fuzz::{Draft, draft, shrunk};
use crate::{Finding, Options, Outcome, Report, Scenario, parse, run};

/// A search, which draws one scenario after the other.
#[derive(Debug)]
pub struct Search {
    runner: TestRunner,
    /// How many scenarios were run.
    pub cases: u64,
    /// How many tensors were compared.
    pub compared: u64,
}

/// A scenario that fails.
#[derive(Clone, Debug)]
pub struct Found {
    /// The scenario, made small.
    pub scenario: Scenario,
    /// What it shows.
    pub finding: Finding,
}

/// How often a draft is made simpler at most.
const SIMPLER: u32 = 2000;

/// How long a draft is made simpler at most.
const PATIENCE: Duration = Duration::from_secs(60);

impl Search {
    /// A search that begins at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        for (to, from) in bytes.iter_mut().zip(seed.to_le_bytes().into_iter().cycle()) {
            *to = from;
        }
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self { runner: TestRunner::new_with_rng(Config::default(), random), cases: 0, compared: 0 }
    }

    /// Runs one random scenario, and makes it small if it fails.
    ///
    /// # Errors
    /// [`Found`]
    pub fn step(&mut self) -> Result<(), Box<Found>> {
        let Ok(mut tree) = draft().new_tree(&mut self.runner) else { return Ok(()) };
        self.cases += 1;
        let report = play(&tree.current());
        self.compared += report.compared;
        let Some(mut finding) = failed(report.outcome) else { return Ok(()) };
        let mut best = tree.current();
        let start = Instant::now();
        // Simpler as a draft first, which is coarse, and then line by line.
        for _ in 0..SIMPLER {
            if start.elapsed() > PATIENCE {
                break;
            }
            let fails = fails(&tree.current()).filter(|now| kind(now) == kind(&finding));
            if let Some(now) = &fails {
                (best, finding) = (tree.current(), now.clone());
            }
            if !(if fails.is_some() { tree.simplify() } else { tree.complicate() }) {
                break;
            }
        }
        let still = |scenario: &Scenario| {
            let now = failed(run(scenario, &Options::default()).outcome);
            now.is_some_and(|now| kind(&now) == kind(&finding))
        };
        let scenario = shrunk(&best.scenario(), still);
        // The lines are those of the file.
        if let Ok(read) = parse(&scenario.to_string())
            && let Some(now) = failed(run(&read, &Options::default()).outcome)
        {
            finding = now;
        }
        Err(Box::new(Found { scenario, finding }))
    }
}

/// Runs a draft as what it is as text, which has lines.
fn play(draft: &Draft) -> Report {
    let scenario = draft.scenario();
    match parse(&scenario.to_string()) {
        Ok(read) => run(&read, &Options::default()),
        // A draft is always a program that can be; one that is not is a finding too.
        Err(error) => Report::of(Outcome::Impossible(Finding {
            setup: "none".to_owned(),
            line: error.place.line,
            why: error.to_string(),
            explained: String::new(),
        })),
    }
}

/// What kind of failure it is: the words without what is counted or named, so that taking things away does not end at another one.
fn kind(finding: &Finding) -> String {
    let mut is_name = false;
    let words = finding.why.split(" is ").next().unwrap_or_default();
    let keep = |c: &char| {
        is_name ^= *c == '`';
        !is_name && c.is_alphabetic()
    };
    words.chars().filter(keep).take(60).collect()
}

fn fails(draft: &Draft) -> Option<Finding> {
    failed(play(draft).outcome)
}

fn failed(outcome: Outcome) -> Option<Finding> {
    match outcome {
        Outcome::Failed(finding) | Outcome::Impossible(finding) => Some(finding),
        Outcome::Passed | Outcome::Skipped { .. } => None,
    }
}
