//! What a run of a scenario came to.

use serde::Serialize;

use crate::Setup;
use crate::run::failure::Failure;

/// What a run of a scenario came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What became of it.
    pub outcome: Outcome,
    /// In how many set-ups it ran.
    pub setups: u32,
    /// How many tensors were compared with those of the plain interpreter.
    pub compared: u64,
    /// What the engines made of it, if that was asked for.
    #[serde(serialize_with = "by_name")]
    pub explained: Vec<(Setup, String)>,
}

fn by_name<S: serde::Serializer>(explained: &[(Setup, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(explained.iter().map(|(setup, text)| (setup.to_string(), text)))
}

/// What became of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// Everything is as it should be, in every set-up.
    Passed,
    /// It was not run.
    Skipped {
        /// Why.
        why: String,
    },
    /// Something is not as it should be.
    Failed(Finding),
    /// The program cannot be run: shapes that do not fit, for instance.
    Impossible(Finding),
}

/// The first thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// In which set-up.
    pub setup: String,
    /// In which line of the file.
    pub line: u32,
    /// What it is.
    pub why: String,
    /// What the engine has made of the program up to there.
    pub explained: String,
}

impl Outcome {
    pub(crate) fn of(setup: Setup, failure: Failure, explained: String) -> Self {
        let finding = |line, why| Finding { setup: setup.to_string(), line, why, explained };
        match failure {
            Failure::Wrong { line, why } => Self::Failed(finding(line, why)),
            Failure::Impossible { line, why } => Self::Impossible(finding(line, why)),
        }
    }
}

impl Report {
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self { outcome, setups: 0, compared: 0, explained: Vec::new() }
    }
}
