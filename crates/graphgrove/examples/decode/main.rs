//! Generates text with a tiny language model, for batches of several sizes that share one pool.
//!
//! `cargo run --release --example decode`, and with `-- --device cuda` on a GPU.
//!
//! The cache is a parameter set that the function writes to in place, and the batch size is the shape of its input. Each size is
//! recorded once, for prompts that come from outside and for tokens that the step before has left, and all sizes share the
//! memory of the largest. The tokens have to be those of an eager run, and those of a GPU nearly all those of the simulated device.

#[path = "../devices/device.rs"]
mod device;
mod generation;
mod kernels;
mod model;
mod on_cuda;
mod on_sim;
#[path = "../devices/products.rs"]
mod products;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use graphgrove::{EngineStats, Mode};

use crate::device::{Backend, Cuda, Simulated};
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
    /// The device.
    #[arg(long, default_value = "sim")]
    device: DeviceChoice,
    /// Multiplies matrices by a kernel of this example even where cuBLAS is there.
    #[arg(long)]
    without_library: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceChoice {
    /// The simulated device.
    Sim,
    /// The first CUDA device.
    Cuda,
}

type AnyError = Box<dyn std::error::Error>;

/// The share of tokens that a GPU may choose differently: where two are as likely but for rounding, everything behind them differs.
const TOLERANCE: f64 = 0.05;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let simulated = Simulated { seed: arguments.seed };
    let ran = match arguments.device {
        DeviceChoice::Sim => run(&simulated, &arguments).map(|(is_equal, _)| is_equal),
        DeviceChoice::Cuda => match Cuda::open(arguments.without_library) {
            Ok(cuda) => run(&cuda, &arguments).and_then(|(is_equal, tokens)| {
                Ok(compare(&cuda, &simulated, &arguments, &tokens)? && is_equal)
            }),
            Err(error) => {
                eprintln!("decode: --device cuda: {error}");
                return if Cuda::is_missing(&error) { ExitCode::from(2) } else { ExitCode::FAILURE };
            }
        },
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("decode: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nearly all tokens are those of the simulated device.
fn compare(
    cuda: &Cuda,
    simulated: &Simulated,
    arguments: &Arguments,
    tokens: &[u32],
) -> Result<bool, AnyError> {
    let Arguments { sizes, rounds, seed, .. } = arguments;
    let expected = generate(simulated, Mode::Eager, sizes, *rounds, *seed)?.tokens;
    let others = tokens.iter().zip(&expected).filter(|(token, expected)| token != expected).count();
    writeln!(
        std::io::stdout(),
        "{others} of {} tokens are not those of the simulated device (at most {:.0}%); {}",
        expected.len(),
        TOLERANCE * 100.0,
        cuda.name(),
    )?;
    Ok(tokens.len() == expected.len() && others as f64 <= TOLERANCE * expected.len() as f64)
}

/// Whether all tokens are those of the eager run, and the tokens.
fn run<B: Backend>(backend: &B, arguments: &Arguments) -> Result<(bool, Vec<u32>), AnyError> {
    let Arguments { sizes, rounds, seed, .. } = arguments;
    let mut out = std::io::stdout().lock();
    let eager = generate(backend, Mode::Eager, sizes, *rounds, *seed)?;
    let shared = generate(backend, Mode::Trees, sizes, *rounds, *seed)?;
    let is_equal = shared.tokens == eager.tokens;

    writeln!(
        out,
        "{:>9} {:>6} {:>10} {:>8} {:>6} {:>13}",
        "sequences", "calls", "recordings", "replays", "eager", "own pool KiB"
    )?;
    let mut sum = 0;
    for work in &shared.work {
        let alone = generate(backend, Mode::Trees, &[work.sequences], *rounds, *seed)?;
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
    Ok((is_equal, shared.tokens))
}

/// The most bytes that the pools of recordings have held.
fn pool_bytes(stats: &EngineStats) -> u64 {
    stats.pools.iter().map(|pool| pool.ranges.peak_reserved).sum()
}

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}
