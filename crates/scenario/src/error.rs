//! What can be wrong with a scenario file itself.

use std::fmt;

use crate::Place;

/// A file that is no scenario. Its text points at the place:
///
/// ```
/// let error = graphgrove_scenario::parse("repeat 3\n  y = cal f(x)\n").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "2:7: found `cal`, expected a call (`call`, `forward`, `backward`), a tensor (`[4] 1`, `rand [4]`, `count [4]`), \
///      `view` or `clone`"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ParseError {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub problem: Problem,
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Something else stands there than may stand there.
    #[error("found {found}, expected {expected}")]
    Unexpected {
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: String,
    },
    /// The words are known, and what they say cannot be.
    #[error("{0}")]
    Impossible(String),
}

impl ParseError {
    pub(crate) fn unexpected(place: Place, found: impl Into<String>, expected: impl Into<String>) -> Self {
        let problem = Problem::Unexpected { found: found.into(), expected: expected.into() };
        Self { place, problem }
    }

    pub(crate) fn impossible(place: Place, why: impl Into<String>) -> Self {
        Self { place, problem: Problem::Impossible(why.into()) }
    }

    /// The error with the line that it is about, and a mark below the place.
    #[must_use]
    pub fn in_context<'a>(&'a self, file: &'a str, text: &'a str) -> impl fmt::Display + 'a {
        InContext { error: self, file, text }
    }
}

struct InContext<'a> {
    error: &'a ParseError,
    file: &'a str,
    text: &'a str,
}

impl fmt::Display for InContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, file, text } = self;
        write!(f, "{file}:{error}")?;
        let line = text.lines().nth(error.place.line.saturating_sub(1) as usize).unwrap_or_default();
        write!(f, "\n  {line}\n  {:>column$}", '^', column = error.place.column.max(1) as usize)
    }
}

/// The result of reading a scenario.
pub type Result<T, E = ParseError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_context_marks_the_place_below_its_line() {
        let error = ParseError::unexpected(Place { line: 2, column: 3 }, "`b`", "`c`");
        let text = error.in_context("x.scn", "a\n  b\n").to_string();
        assert_eq!(text, "x.scn:2:3: found `b`, expected `c`\n    b\n    ^");
    }
}
