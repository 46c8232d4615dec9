//! Developer commands of the workspace: `cargo xtask COMMAND`, one file a command.
#![forbid(unsafe_code)]

mod bench;
mod error;
mod gpu_bundle;
mod layers;
mod scenario;
mod stack_test;
mod tally;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Result;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer commands of the workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures, with every figure of a comparison from the same run.
    Bench(bench::Bench),
    /// Searches for scenarios that fail, and writes the shrunk ones to tests/scenarios/regressions.
    Fuzz(scenario::Fuzz),
    /// Runs scenario files in every mode and with every prefix of the layers; see docs/scenarios.md.
    Scenario(scenario::Scenario),
    /// Builds what a machine with a GPU and without Rust needs into a folder, with a script that runs it.
    GpuBundle(gpu_bundle::GpuBundle),
    /// Tests the layers in stack order, each with its own dependencies alone, and stops at the first red one.
    StackTest(stack_test::StackTest),
    /// Checks formatting, layout and documentation rules.
    Tidy,
}

/// Whether what a command looked at is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Green,
    Red,
    /// A program did not do what it was asked for, has said why, and ended with this status.
    Refused(u8),
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()), &mut std::io::stderr())
}

/// The exit status of a command. Only what nobody has said yet is said here.
fn exit_code(outcome: Result<Outcome>, stderr: &mut impl std::io::Write) -> ExitCode {
    match outcome {
        Ok(Outcome::Green) => ExitCode::SUCCESS,
        Ok(Outcome::Red) => ExitCode::FAILURE,
        Ok(Outcome::Refused(code)) => ExitCode::from(code),
        Err(error) => {
            // Without a place to write to, the exit status has to say it alone.
            let _ = writeln!(stderr, "xtask: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome> {
    let root = workspace::root();
    match &arguments.command {
        Command::Bench(command) => command.run(&root),
        Command::Fuzz(command) => command.run(&root),
        Command::Scenario(command) => command.run(&root),
        Command::GpuBundle(command) => command.run(&root),
        Command::StackTest(command) => command.run(&root),
        Command::Tidy => tidy::run(&root),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_declared_without_contradiction() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_a_program_refused_is_not_said_again() {
        let mut said = Vec::new();
        assert_eq!(exit_code(Ok(Outcome::Refused(2)), &mut said), ExitCode::from(2));
        assert_eq!(said, b"");
        let error = error::Error::UnknownLayer { name: "a".into(), known: "b".into() };
        assert_eq!(exit_code(Err(error), &mut said), ExitCode::from(2));
        assert_eq!(said, b"xtask: there is no layer `a`; the layers are b\n");
    }

    #[test]
    fn cases_and_seed_are_numbers() {
        let parsed =
            Arguments::try_parse_from(["xtask", "stack-test", "pool", "--cases", "10", "--seed", "3"]);
        assert!(matches!(parsed.unwrap().command, Command::StackTest(_)));
        assert!(Arguments::try_parse_from(["xtask", "stack-test", "--seed", "three"]).is_err());
    }
}
