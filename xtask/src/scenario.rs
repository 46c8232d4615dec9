//! `cargo xtask scenario` and `cargo xtask fuzz`: scenario files, and the search for new ones.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::Outcome;
use crate::error::{Error, Result};

/// What `scenario` was asked to run.
#[derive(Debug, Args)]
pub(crate) struct Scenario {
    /// Files, or folders of them, and the options that docs/scenarios.md names.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

/// How long `fuzz` was asked to search.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// For how many minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Where the search begins. Another seed finds other scenarios.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Scenario {
    /// Red if a scenario failed, and refused if a file is missing, is no scenario or cannot be.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Ended`] if the program has no exit status.
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome> {
        let mut command = cargo();
        command.args(["run", "--quiet", "--package", "graphgrove-scenario", "--bin", "graphgrove-scenario"]);
        command.arg("--manifest-path").arg(root.join("Cargo.toml")).arg("--");
        command.args(&self.arguments);
        // Cargo runs it where this was called, so that paths mean what they meant there.
        finish(command)
    }
}

impl Fuzz {
    /// Red if a scenario was found that fails. It is written to tests/scenarios/regressions.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Ended`] if the program has no exit status.
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome> {
        let mut command = cargo();
        command.args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "graphgrove-scenario",
            "--features",
            "fuzz",
        ]);
        command.arg("--manifest-path").arg(root.join("Cargo.toml"));
        command.args(["--bin", "graphgrove-fuzz", "--", "--minutes", &self.minutes.to_string()]);
        command.args(["--seed", &self.seed.to_string(), "--into"]);
        command.arg(root.join("tests/scenarios/regressions"));
        finish(command)
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Whatever is wrong, the program has said it, so its exit status is all that is passed on.
fn finish(mut command: Command) -> Result<Outcome> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|source| Error::Start { program: program.clone(), source })?;
    match status.code().map(u8::try_from) {
        Some(Ok(0)) => Ok(Outcome::Green),
        Some(Ok(1)) => Ok(Outcome::Red),
        Some(Ok(code)) => Ok(Outcome::Refused(code)),
        Some(Err(_)) | None => Err(Error::Ended { program, status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that ends with this status.
    fn ends_with(status: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exit {status}")]);
        command
    }

    #[test]
    fn a_failed_scenario_is_red_and_one_that_cannot_be_run_is_refused_with_its_exit_status() {
        assert_eq!(finish(ends_with("0")).unwrap(), Outcome::Green);
        assert_eq!(finish(ends_with("1")).unwrap(), Outcome::Red);
        assert_eq!(finish(ends_with("2")).unwrap(), Outcome::Refused(2));
        assert_eq!(finish(ends_with("101")).unwrap(), Outcome::Refused(101));
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_a_signal_ends_is_an_error_since_it_could_say_nothing() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -KILL $$"]);
        let error = finish(command).unwrap_err().to_string();
        assert!(error.starts_with("`sh` was ended: signal: 9"), "{error}");
    }
}
