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
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(Outcome::Green) => ExitCode::SUCCESS,
        Ok(Outcome::Red) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
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
    fn cases_and_seed_are_numbers() {
        let parsed =
            Arguments::try_parse_from(["xtask", "stack-test", "pool", "--cases", "10", "--seed", "3"]);
        assert!(matches!(parsed.unwrap().command, Command::StackTest(_)));
        assert!(Arguments::try_parse_from(["xtask", "stack-test", "--seed", "three"]).is_err());
    }
}
