//! `cargo xtask bench`: the benchmarks, each an example or bench target of the crate that it measures.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};

use crate::Outcome;
use crate::error::{Error, Result};

/// What `bench` was asked to measure.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// The allocator on recorded traces: peak memory, time for a pair of allocation and free against its peers, time of a restore.
    Pool(Pool),
    /// The engine on recorded programs: what each call became beside what it became in `torch`, memory beside its lower bound.
    Calls(Calls),
}

#[derive(Debug, Args)]
struct Pool {
    /// A folder with files `NAME.trace` or `NAME.trace.gz`; without it, the small synthetic trace of the crate.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// How often each trace is run for its time; the median counts.
    #[arg(long)]
    rounds: Option<usize>,
}

#[derive(Debug, Args)]
struct Calls {
    /// A folder with files `NAME.calls` or `NAME.calls.gz`; without it, the small synthetic trace of the workspace.
    #[arg(long)]
    calls: Option<PathBuf>,
    /// Writes the figures to this file as well.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Says why each call ran as it did.
    #[arg(long)]
    explain: bool,
}

impl Bench {
    /// Red if the benchmark does not build, does not run to its end, or meets a wrong value; figures decide nothing.
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome> {
        let mut command = match &self.subject {
            Subject::Pool(pool) => pool.command()?,
            Subject::Calls(calls) => calls.command()?,
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.current_dir(root).status().map_err(|source| Error::Start { program, source })?;
        Ok(if status.success() { Outcome::Green } else { Outcome::Red })
    }
}

impl Pool {
    fn command(&self) -> Result<Command> {
        let mut command = cargo_run(&["--package", "graphgrove-pool", "--example", "trace_bench"]);
        if let Some(folder) = &self.traces {
            command.arg("--traces").arg(absolute(folder)?);
        }
        if let Some(rounds) = self.rounds {
            command.arg("--rounds").arg(rounds.to_string());
        }
        Ok(command)
    }
}

impl Calls {
    fn command(&self) -> Result<Command> {
        let mut command = cargo_run(&["--package", "graphgrove-benches", "--bin", "calls"]);
        if let Some(folder) = &self.calls {
            command.arg("--calls").arg(absolute(folder)?);
        }
        if let Some(file) = &self.json {
            command.arg("--json").arg(absolute(file)?);
        }
        if self.explain {
            command.arg("--explain");
        }
        Ok(command)
    }
}

/// Runs a program of the workspace, whose arguments are to follow.
fn cargo_run(target: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--release"]).args(target).arg("--");
    command
}

/// A path as it is from the root too, where the benchmark runs wherever the command was given.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::File { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: Result<Command>) -> Vec<String> {
        let command = command.unwrap();
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_bare_run_measures_the_trace_of_the_crate() {
        let bare = arguments(Pool { traces: None, rounds: None }.command());
        assert_eq!(
            bare,
            ["run", "--release", "--package", "graphgrove-pool", "--example", "trace_bench", "--"]
        );
    }

    #[test]
    fn options_are_passed_on_with_an_absolute_folder() {
        let given = arguments(Pool { traces: Some("traces".into()), rounds: Some(3) }.command());
        let [.., traces, folder, rounds, count] = &given[..] else { unreachable!("{given:?}") };
        assert_eq!((traces.as_str(), rounds.as_str(), count.as_str()), ("--traces", "--rounds", "3"));
        assert!(Path::new(folder).is_absolute() && folder.ends_with("traces"));
    }

    #[test]
    fn calls_are_played_by_their_own_program_with_absolute_paths() {
        let bare = Calls { calls: None, json: None, explain: false };
        let bare = arguments(bare.command());
        assert_eq!(bare, ["run", "--release", "--package", "graphgrove-benches", "--bin", "calls", "--"]);
        let given = Calls { calls: Some("calls".into()), json: Some("calls.json".into()), explain: true };
        let given = arguments(given.command());
        let [.., calls, folder, json, file, explain] = &given[..] else { unreachable!("{given:?}") };
        assert_eq!((calls.as_str(), json.as_str(), explain.as_str()), ("--calls", "--json", "--explain"));
        assert!(Path::new(folder).is_absolute() && Path::new(file).is_absolute());
    }
}
