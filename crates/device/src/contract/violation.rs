//! How a check says what it expected and what it saw.

use std::fmt;

use crate::{DeviceError, Result};

/// What a device did against a rule: the step of the check, what had to happen, and what did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The step of the check, or `None` where a step that every check relies on did not succeed.
    pub step: Option<String>,
    /// What the rule demands.
    pub expected: String,
    /// What the device did.
    pub seen: String,
}

/// What a check comes to.
pub type Verdict<T = ()> = Result<T, Violation>;

impl Violation {
    /// A violation met in a step of a check.
    pub fn at(step: impl Into<String>, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { step: Some(step.into()), expected: expected.into(), seen: seen.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = &self.step {
            write!(f, "{step}: ")?;
        }
        write!(f, "expected {}, saw {}", self.expected, self.seen)
    }
}

/// A step without an expectation of its own has to succeed.
impl From<DeviceError> for Violation {
    fn from(error: DeviceError) -> Self {
        Self { step: None, expected: "success".into(), seen: format!("the error `{error}`") }
    }
}

/// Demands that two values are equal.
pub(super) fn equal<T: fmt::Debug + PartialEq>(step: &str, seen: T, expected: T) -> Verdict {
    if seen == expected {
        return Ok(());
    }
    Err(Violation::at(step, format!("{expected:?}"), format!("{seen:?}")))
}

/// Demands that a condition holds; `expected` says which, `seen` shows the values it was asked of.
pub(super) fn holds(step: &str, condition: bool, expected: &str, seen: impl fmt::Debug) -> Verdict {
    if condition {
        return Ok(());
    }
    Err(Violation::at(step, expected, format!("{seen:?}")))
}

/// Demands success of a step whose name should appear in the report.
pub(super) fn succeeds<T>(step: &str, result: Result<T>) -> Verdict<T> {
    result.map_err(|error| Violation::at(step, "success", format!("the error `{error}`")))
}

/// Demands an error of the kind that `is_expected` accepts; [`refused!`] is the way to write it.
pub(super) fn refusal<T>(
    step: &str,
    result: Result<T>,
    expected: &str,
    is_expected: impl FnOnce(&DeviceError) -> bool,
) -> Verdict {
    // A pattern that went through two macros is printed with spaces around its colons.
    let expected = expected.replace(" :: ", "::");
    match result {
        Err(error) if is_expected(&error) => Ok(()),
        Err(error) => Err(Violation::at(step, expected, format!("the error `{error}` ({error:?})"))),
        Ok(_) => Err(Violation::at(step, expected, "success")),
    }
}

/// Demands an error that matches a pattern of [`DeviceError`].
macro_rules! refused {
    ($step:expr, $result:expr, $pattern:pat) => {
        $crate::contract::violation::refusal($step, $result, stringify!($pattern), |error| {
            matches!(error, $pattern)
        })
    };
}

/// Demands [`DeviceError::Invalid`] with a problem that matches a pattern.
macro_rules! invalid {
    ($step:expr, $result:expr, $pattern:pat) => {
        $crate::contract::violation::refusal($step, $result, stringify!($pattern), |error| {
            matches!(error, $crate::DeviceError::Invalid { problem: $pattern, .. })
        })
    };
}

/// Demands [`DeviceError::Capture`] with a failure that matches a pattern.
macro_rules! breaks_capture_rule {
    ($step:expr, $result:expr, $pattern:pat) => {
        $crate::contract::violation::refusal($step, $result, stringify!($pattern), |error| {
            matches!(error.capture_failure(), Some($pattern))
        })
    };
}

pub(super) use {breaks_capture_rule, invalid, refused};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, CaptureFailure, Problem};

    #[test]
    fn a_violation_prints_step_expectation_and_sight() {
        let violation = equal("the sum", 3, 4).unwrap_err();
        assert_eq!(violation.to_string(), "the sum: expected 4, saw 3");
        let violation = Violation::from(DeviceError::invalid(Call::Copy, Problem::ZeroBytes));
        assert_eq!(violation.to_string(), "expected success, saw the error `copy: zero bytes`");
    }

    #[test]
    fn a_refusal_has_to_be_the_expected_one() {
        let zero: Result<()> = Err(DeviceError::invalid(Call::Copy, Problem::ZeroBytes));
        assert_eq!(invalid!("copying", zero.clone(), Problem::ZeroBytes), Ok(()));
        let violation = invalid!("copying", zero.clone(), Problem::NullAddress).unwrap_err();
        assert_eq!(violation.expected, "Problem::NullAddress");
        assert!(breaks_capture_rule!("copying", zero, CaptureFailure::Merge).is_err());
        let violation = refused!("copying", Ok(()), DeviceError::Unsupported { .. }).unwrap_err();
        assert_eq!(violation.seen, "success");
    }
}
