//! Trains a two-layer classifier on a data set of wines, in every mode of the engine but `Auto`, and compares the modes.
//!
//! `cargo run --release --example train`, and with `-- --device cuda` on a GPU.
//!
//! Forward, loss, backward and optimiser are functions of their own. Gradients are accumulated over two micro-batches, the
//! last mini-batch is a single shorter one, and between two epochs an evaluation runs forwards whose backwards never run. Every
//! mode runs the same program, and its losses, accuracy and weights have to be those of the eager run to the last bit. Those of a GPU
//! are compared with those of the simulated device too, from which rounding alone may tell them.

#[path = "../devices/device.rs"]
mod device;
mod kernels;
mod model;
mod on_cuda;
mod on_sim;
#[path = "../devices/products.rs"]
mod products;
mod report;
mod setup;
mod shuffle;
mod training;
mod wine;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use graphgrove::{EngineStats, JsonLines};
use indicatif::{ProgressBar, ProgressStyle};

use crate::device::{Backend, Cuda, Simulated};
use crate::report::{Report, Row, Simulation};
use crate::setup::Setup;
use crate::training::{Times, Training, Values};
use crate::wine::Wines;

/// Trains a small classifier on real data in the modes eager, one-pool, trees and trees-reference, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "train")]
struct Arguments {
    /// How often all wines are gone through.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    epochs: u32,
    /// The mode to run, along with the eager run that it is compared with. All of them by default.
    #[arg(long)]
    mode: Option<Setup>,
    /// Where random numbers start: the weights, the order of the wines, and the order in which the device runs what may run in any.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The device.
    #[arg(long, default_value = "sim")]
    device: DeviceChoice,
    /// Multiplies matrices by a kernel of this example even where cuBLAS is there.
    #[arg(long)]
    without_library: bool,
    /// Prints JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Also prints why calls were not replayed, and the trees.
    #[arg(long)]
    explain: bool,
    /// Writes all that the engines do to a file, as lines of JSON. Each mode begins again at line 0.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceChoice {
    /// The simulated device.
    Sim,
    /// The first CUDA device.
    Cuda,
}

type AnyError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match arguments.device {
        DeviceChoice::Sim => run(&Simulated { seed: arguments.seed }, &arguments, None),
        DeviceChoice::Cuda => match Cuda::open(arguments.without_library) {
            Ok(cuda) => run(&cuda, &arguments, Some(&Simulated { seed: arguments.seed })),
            Err(error) => {
                eprintln!("train: --device cuda: {error}");
                return if Cuda::is_missing(&error) { ExitCode::from(2) } else { ExitCode::FAILURE };
            }
        },
    };
    match ran {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(complaint)) => {
            eprintln!("train: {complaint}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("train: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every mode that was asked for, and the eager mode on the device that the values are compared with, if there is one. What
/// is wrong with the values, if anything is.
fn run<B: Backend>(
    backend: &B,
    arguments: &Arguments,
    compared_with: Option<&Simulated>,
) -> Result<Option<&'static str>, AnyError> {
    let wines = Wines::load(arguments.seed);
    let trace = match &arguments.trace {
        Some(path) => Some(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?),
        None => None,
    };
    let setups = Setup::ALL
        .into_iter()
        .filter(|setup| *setup == Setup::Eager || arguments.mode.is_none_or(|mode| mode == *setup));
    let mut report = Report::new(arguments.epochs, arguments.seed);
    let mut eager = None;
    for setup in setups {
        let (values, times, stats) = run_one(backend, setup, &wines, arguments, trace.as_ref())?;
        let eager = eager.get_or_insert_with(|| values.clone());
        report.modes.push(Row::new(setup, &times, &stats, &values, eager));
    }
    if let (Some(simulated), Some(eager)) = (compared_with, &eager) {
        let (values, ..) = run_one(simulated, Setup::Eager, &wines, arguments, None)?;
        report.simulation = Some(Simulation::new(eager.difference(&values)));
    }
    report.device = backend.name();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(report.complaint())
}

/// Runs the program on a fresh engine.
fn run_one<B: Backend>(
    backend: &B,
    setup: Setup,
    wines: &Wines,
    arguments: &Arguments,
    trace: Option<&File>,
) -> Result<(Values, Times, EngineStats), AnyError> {
    let device = backend.device();
    let lines = trace.map(|file| file.try_clone().map(|file| Arc::new(JsonLines::new(BufWriter::new(file)))));
    let lines = lines.transpose()?;
    let builder = match &lines {
        Some(lines) => setup.builder(backend.pool()).observer(Arc::clone(lines)),
        None => setup.builder(backend.pool()),
    };
    let engine = builder.build(Arc::clone(&device))?;
    let bar = ProgressBar::new(arguments.epochs.into())
        .with_style(ProgressStyle::with_template("{prefix:16} {wide_bar} {pos:>3}/{len} epochs  {msg}")?)
        .with_prefix(setup.name());
    let training = Training::new(&engine, backend.kernels(&engine)?, arguments.seed)?;
    let trained = training.run(wines, arguments.epochs, arguments.seed, |loss| {
        bar.set_message(format!("loss {loss:.4}"));
        bar.inc(1);
    });
    bar.finish();
    if arguments.explain {
        eprintln!("{}:", setup.name());
        for reason in engine.reasons()? {
            eprintln!("  {:>6} x {}: {}", reason.calls, reason.function, reason.why);
        }
        eprint!("{}", engine.outline()?);
    }
    // A finding of the device says more than the fault that it may have led to.
    backend.verdict(&device)?;
    let (values, times) = trained?;
    let stats = engine.stats()?;
    engine.shutdown()?;
    if let Some(lines) = lines {
        lines.flush()?;
    }
    Ok((values, times, stats))
}
