//! Generates text with a tiny language model, for batches of several sizes that share one pool.
//!
//! `cargo run --release --example decode`
//!
//! The cache is a parameter set that the function writes to in place, and the batch size is the shape of its input. Each size is
//! recorded once, for prompts that come from outside and for tokens that the step before has left, and all sizes share the
//! memory of the largest. The tokens have to be those of an eager run.

mod generation;
mod kernels;
mod model;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use graphgrove::{EngineStats, Mode};

use crate::generation::{Generated, generate};
use crate::model::MOST_SEQUENCES;

/// Generates text for batches of several sizes, and says what sharing one pool saves.
#[derive(Debug, Parser)]
#[command(name = "decode")]
struct Arguments {
    /// The batch sizes, each from 1 to 8, in the order in which a round runs them.
    #[arg(long, value_delimiter = ',', default_value = "8,4,2,1",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SEQUENCES)))]
    sizes: Vec<u32>,
    /// How often all sizes run.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Where the weights start, and the order in which the device runs what may run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("decode: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all tokens are those of the eager run.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let Arguments { sizes, rounds, seed } = arguments;
    let mut out = std::io::stdout().lock();
    let eager = generate(Mode::Eager, sizes, *rounds, *seed)?;
    let shared = generate(Mode::Trees, sizes, *rounds, *seed)?;
    let is_equal = shared.tokens == eager.tokens;

    writeln!(
        out,
        "{:>9} {:>6} {:>10} {:>8} {:>6} {:>13}",
        "sequences", "calls", "recordings", "replays", "eager", "own pool KiB"
    )?;
    let mut sum = 0;
    for work in &shared.work {
        let alone = generate(Mode::Trees, &[work.sequences], *rounds, *seed)?;
        sum += pool_bytes(&alone.stats);
        writeln!(
            out,
            "{:>9} {:>6} {:>10} {:>8} {:>6} {:>13}",
            work.sequences,
            work.calls,
            work.recordings,
            work.replays,
            work.eager,
            kib(pool_bytes(&alone.stats)),
        )?;
    }
    writeln!(out)?;
    let Generated { tokens, stats, .. } = &shared;
    writeln!(
        out,
        "one pool for all sizes: {} KiB; one pool for each: {} KiB",
        kib(pool_bytes(stats)),
        kib(sum)
    )?;
    let verdict = if is_equal { "equal to the eager run" } else { "NOT equal to the eager run" };
    writeln!(out, "{} tokens, {verdict}", tokens.len())?;
    Ok(is_equal)
}

/// The most bytes that the pools of recordings have held.
fn pool_bytes(stats: &EngineStats) -> u64 {
    stats.pools.iter().map(|pool| pool.ranges.peak_reserved).sum()
}

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}
