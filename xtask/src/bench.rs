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
    /// A replay against a bare launch and the reference path: by outputs, staged inputs, depth, siblings and parameters.
    Replay(Replay),
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
struct Replay {
    /// How often each row is measured, 10 calls of each column at a time; the median counts.
    #[arg(long)]
    rounds: Option<usize>,
    /// A file to which the figures are also written, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
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
            Subject::Replay(replay) => replay.command()?,
            Subject::Calls(calls) => calls.command()?,
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.current_dir(root).status().map_err(|source| Error::Start { program, source })?;
        Ok(if status.success() { Outcome::Green } else { Outcome::Red })
    }
}

impl Pool {
    fn command(&self) -> Result<Command> {
        let mut command = cargo();
        command.args(["run", "--release", "--package", "graphgrove-pool", "--example", "trace_bench", "--"]);
        if let Some(folder) = &self.traces {
            command.arg("--traces").arg(absolute(folder)?);
        }
        if let Some(rounds) = self.rounds {
            command.arg("--rounds").arg(rounds.to_string());
        }
        Ok(command)
    }
}

impl Replay {
    fn command(&self) -> Result<Command> {
        let mut command = cargo();
        command.args(["bench", "--package", "graphgrove-replay", "--bench", "nanoseconds", "--"]);
        if let Some(rounds) = self.rounds {
            command.arg("--rounds").arg(rounds.to_string());
        }
        if let Some(file) = &self.json {
            command.arg("--json").arg(absolute(file)?);
        }
        Ok(command)
    }
}

impl Calls {
    fn command(&self) -> Result<Command> {
        let mut command = cargo();
        command.args(["run", "--release", "--package", "graphgrove-benches", "--bin", "calls", "--"]);
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

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A path that stays right where the benchmark runs, which is in the root or in a package wherever the command was given.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source })
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
    fn replays_are_measured_by_the_benchmark_of_their_crate_and_written_where_the_command_was_given() {
        let bare = arguments(Replay { rounds: None, json: None }.command());
        assert_eq!(bare, ["bench", "--package", "graphgrove-replay", "--bench", "nanoseconds", "--"]);
        let given = arguments(Replay { rounds: Some(7), json: Some("replay.json".into()) }.command());
        let [.., rounds, count, json, file] = &given[..] else { unreachable!("{given:?}") };
        assert_eq!((rounds.as_str(), count.as_str(), json.as_str()), ("--rounds", "7", "--json"));
        assert!(Path::new(file).is_absolute() && file.ends_with("replay.json"));
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
