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
}

#[derive(Debug, Args)]
struct Pool {
    /// A folder with files `NAME.trace` or `NAME.trace.gz`; without it, the small synthetic trace of the crate.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// How often each trace is run for its time; the fastest run counts.
    #[arg(long)]
    rounds: Option<usize>,
}

impl Bench {
    /// Red if the benchmark does not build or run to its end; its figures decide nothing.
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome> {
        let mut command = match &self.subject {
            Subject::Pool(pool) => pool.command()?,
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.current_dir(root).status().map_err(|source| Error::Start { program, source })?;
        Ok(if status.success() { Outcome::Green } else { Outcome::Red })
    }
}

impl Pool {
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["run", "--release", "--package", "graphgrove-pool", "--example", "trace_bench", "--"]);
        if let Some(folder) = &self.traces {
            // The benchmark runs in the root, wherever the command was given.
            let absolute =
                std::path::absolute(folder).map_err(|source| Error::File { path: folder.clone(), source })?;
            command.arg("--traces").arg(absolute);
        }
        if let Some(rounds) = self.rounds {
            command.arg("--rounds").arg(rounds.to_string());
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(pool: &Pool) -> Vec<String> {
        let command = pool.command().unwrap();
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_bare_run_measures_the_trace_of_the_crate() {
        let bare = arguments(&Pool { traces: None, rounds: None });
        assert_eq!(
            bare,
            ["run", "--release", "--package", "graphgrove-pool", "--example", "trace_bench", "--"]
        );
    }

    #[test]
    fn options_are_passed_on_with_an_absolute_folder() {
        let given = arguments(&Pool { traces: Some("traces".into()), rounds: Some(3) });
        let [.., traces, folder, rounds, count] = &given[..] else { unreachable!("{given:?}") };
        assert_eq!((traces.as_str(), rounds.as_str(), count.as_str()), ("--traces", "--rounds", "3"));
        assert!(Path::new(folder).is_absolute() && folder.ends_with("traces"));
    }
}
