//! What a run of the checks came to.

use std::fmt;

use super::Violation;

/// What one check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The device keeps the rule.
    Passed,
    /// It does not.
    Failed(Violation),
    /// The check does not apply to the device, for the reason given. It counts neither as passed nor as failed.
    Skipped(String),
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name of the check.
    pub name: &'static str,
    /// The rule that it checks.
    pub rule: &'static str,
    /// What it came to.
    pub outcome: Outcome,
}

/// What a run of the checks came to, in the order in which they ran.
///
/// Prints as a table of all checks; what was broken follows its line. The last line is `N passed, N failed, N skipped`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    entries: Vec<Entry>,
}

impl Report {
    pub(super) fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Every check that ran or was skipped.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many checks passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Passed))
    }

    /// How many checks failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// How many checks were skipped.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(_)))
    }

    /// Whether no check failed and at least one passed: a run that checked nothing shows nothing.
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.failed() == 0 && self.passed() > 0
    }

    fn count(&self, wanted: impl Fn(&Outcome) -> bool) -> usize {
        self.entries.iter().filter(|entry| wanted(&entry.outcome)).count()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rule, outcome } = self;
        match outcome {
            Outcome::Passed => write!(f, "passed   {name}"),
            Outcome::Skipped(reason) => write!(f, "skipped  {name}: {reason}"),
            Outcome::Failed(violation) => {
                write!(f, "FAILED   {name}\n         rule: {rule}\n         {violation}")
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            writeln!(f, "{entry}")?;
        }
        write!(f, "{} passed, {} failed, {} skipped", self.passed(), self.failed(), self.skipped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: Vec<Outcome>) -> Report {
        let mut report = Report::default();
        for outcome in outcomes {
            report.add(Entry { name: "a_rule_is_kept", rule: "The rule.", outcome });
        }
        report
    }

    #[test]
    fn the_last_line_counts_and_a_skipped_check_is_not_a_passed_one() {
        let report = report(vec![
            Outcome::Passed,
            Outcome::Skipped("no such memory".into()),
            Outcome::Failed(Violation::at("the end", "a graph", "nothing")),
        ]);
        let text = report.to_string();
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
        assert!(text.contains("skipped  a_rule_is_kept: no such memory"));
        assert!(text.contains("the end: expected a graph, saw nothing"));
        assert!(text.contains("rule: The rule."));
    }

    #[test]
    fn a_run_is_green_only_if_something_passed_and_nothing_failed() {
        assert!(report(vec![Outcome::Passed, Outcome::Skipped(String::new())]).is_green());
        assert!(!report(vec![Outcome::Skipped(String::new())]).is_green());
        assert!(!report(vec![]).is_green());
        let failed = Outcome::Failed(Violation::at("a", "b", "c"));
        assert!(!report(vec![Outcome::Passed, failed]).is_green());
    }
}
