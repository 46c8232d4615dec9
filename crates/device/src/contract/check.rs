//! One check, and the run of all of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::rig::Rig;
use super::{Entry, Harness, Outcome, Report, Verdict, Violation};
use crate::{Capabilities, Streams};

/// One rule that every device has to keep, and the code that finds out whether one does.
pub struct Check<H: Harness> {
    /// The name: the rule as a sentence, in snake case.
    pub name: &'static str,
    /// The rule in one sentence.
    pub rule: &'static str,
    /// Where the rule comes from: a section of the CUDA Programming Guide, a function of the driver API, or the method
    /// of this contract that adds it.
    pub section: &'static str,
    /// What a device must be able to do for the rule to apply to it.
    pub needs: Capabilities,
    body: fn(&Rig<'_, H>) -> Verdict,
}

impl<H: Harness> Check<H> {
    pub(super) const fn new(
        name: &'static str,
        rule: &'static str,
        section: &'static str,
        needs: Capabilities,
        body: fn(&Rig<'_, H>) -> Verdict,
    ) -> Self {
        Self { name, rule, section, needs, body }
    }

    /// Runs the check on a device of its own. A panic on the way is a failure.
    ///
    /// The check is skipped if the harness says that it cannot hold, or if the device lacks a capability it needs.
    pub fn run(&self, harness: &H) -> Outcome {
        if let Some(reason) = harness.unsupported(self.name) {
            return Outcome::Skipped(reason);
        }
        catch_unwind(AssertUnwindSafe(|| self.run_on_a_new_device(harness)))
            .unwrap_or_else(|panic| Outcome::Failed(panicked(panic.as_ref())))
    }

    fn run_on_a_new_device(&self, harness: &H) -> Outcome {
        let rig = match Rig::open(harness) {
            Ok(rig) => rig,
            Err(violation) => return Outcome::Failed(violation),
        };
        let missing = self.needs.difference(rig.device.capabilities());
        if !missing.is_empty() {
            let names: Vec<_> =
                missing.iter_names().map(|(name, _)| name.to_lowercase().replace('_', " ")).collect();
            return Outcome::Skipped(format!("the device lacks {}", names.join(", ")));
        }
        if let Err(violation) = (self.body)(&rig) {
            return Outcome::Failed(violation);
        }
        match harness.complaint(&rig.device) {
            None => Outcome::Passed,
            Some(complaint) => Outcome::Failed(Violation {
                step: None,
                expected: "no complaint of the device about the check".into(),
                seen: complaint,
            }),
        }
    }
}

impl<H: Harness> fmt::Debug for Check<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .field("section", &self.section)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// Lists a check under the name of its function, so that the two cannot differ.
macro_rules! check {
    ($body:ident, $rule:expr, $section:expr) => {
        $crate::contract::check::check!($body, $rule, $section, $crate::Capabilities::empty())
    };
    ($body:ident, $rule:expr, $section:expr, $needs:expr) => {
        $crate::contract::Check::new(stringify!($body), $rule, $section, $needs, $body)
    };
}

pub(super) use check;

/// Runs the checks whose name contains `filter`; an empty filter runs all.
pub fn run<H: Harness>(harness: &H, filter: &str) -> Report {
    run_each(harness, filter, |_| {})
}

/// Runs the checks as [`run`] does, and hands each entry of the report over as soon as its check has ended: who prints them
/// sees the last check before one that hangs.
pub fn run_each<H: Harness>(harness: &H, filter: &str, mut seen: impl FnMut(&Entry)) -> Report {
    let mut report = Report::default();
    for check in super::checks::<H>().iter().filter(|check| check.name.contains(filter)) {
        let entry = Entry { name: check.name, rule: check.rule, outcome: check.run(harness) };
        seen(&entry);
        report.add(entry);
    }
    report
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Violation {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    Violation { step: None, expected: "no panic".into(), seen: format!("the panic `{message}`") }
}

#[cfg(test)]
mod idle_device;
#[cfg(test)]
mod tests;
