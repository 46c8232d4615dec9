//! Counting what a test run printed.

use std::ops::AddAssign;

/// How many checks passed, failed and were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// What one line of output adds: the closing line of libtest (`test result: ok. 3 passed; ...`, where ignored tests
    /// count as skipped), or the closing line of a run of the device contract (`3 passed, 0 failed, 1 skipped`).
    /// Any other line adds nothing.
    pub(crate) fn of_line(line: &str) -> Self {
        let line = line.trim();
        let counts = match line.strip_prefix("test result: ") {
            Some(result) => result.split_once(". ").and_then(|(_, counts)| libtest(counts)),
            None => contract(line),
        };
        counts.unwrap_or_default()
    }

    /// The closing line of a command.
    pub(crate) fn closing_line(&self) -> String {
        let mut line = format!("{} passed, {} failed", self.passed, self.failed);
        if self.skipped > 0 {
            line.push_str(&format!(", {} skipped", self.skipped));
        }
        line
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Reads `3 passed; 0 failed; 1 ignored; ...`.
fn libtest(counts: &str) -> Option<Tally> {
    let mut parts = counts.split("; ");
    Some(Tally {
        passed: count(parts.next()?, "passed")?,
        failed: count(parts.next()?, "failed")?,
        skipped: count(parts.next()?, "ignored")?,
    })
}

/// Reads `3 passed, 0 failed, 1 skipped`, and nothing around it.
fn contract(line: &str) -> Option<Tally> {
    let mut parts = line.split(", ");
    let tally = Tally {
        passed: count(parts.next()?, "passed")?,
        failed: count(parts.next()?, "failed")?,
        skipped: count(parts.next()?, "skipped")?,
    };
    parts.next().is_none().then_some(tally)
}

/// Reads `3 WORD`.
fn count(part: &str, word: &str) -> Option<u64> {
    part.strip_suffix(word)?.strip_suffix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped }
    }

    #[test]
    fn the_closing_line_of_libtest_counts_whether_it_is_green_or_red() {
        let green =
            "test result: ok. 36 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s";
        assert_eq!(Tally::of_line(green), tally(36, 0, 2));
        let red = "test result: FAILED. 35 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.09s";
        assert_eq!(Tally::of_line(red), tally(35, 1, 0));
    }

    #[test]
    fn the_closing_line_of_a_contract_run_counts() {
        assert_eq!(Tally::of_line("245 passed, 1 failed, 3 skipped"), tally(245, 1, 3));
        assert_eq!(Tally::of_line("  245 passed, 0 failed, 0 skipped\r"), tally(245, 0, 0));
    }

    #[test]
    fn other_lines_count_nothing() {
        let lines = [
            "",
            "running 3 tests",
            "test a_test_that_passed ... ok",
            "passed   a_rule_of_the_contract",
            "about 3 passed, 0 failed, 1 skipped",
            "3 passed, 0 failed, 1 skipped, all told",
            "3 passed, 0 failed",
            "many passed, 0 failed, 1 skipped",
            "test result: unknown",
            "-1 passed, 0 failed, 0 skipped",
        ];
        for line in lines {
            assert_eq!(Tally::of_line(line), Tally::default(), "{line}");
        }
    }

    #[test]
    fn the_closing_line_names_what_was_skipped_only_if_something_was() {
        assert_eq!(tally(3, 0, 0).closing_line(), "3 passed, 0 failed");
        assert_eq!(tally(3, 1, 2).closing_line(), "3 passed, 1 failed, 2 skipped");
        assert_eq!(Tally::of_line(&tally(3, 1, 2).closing_line()), tally(3, 1, 2));
    }
}
