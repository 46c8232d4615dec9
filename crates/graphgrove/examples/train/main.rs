//! Trains a two-layer classifier on a data set of wines, in every mode of the engine, and compares the modes.
//!
//! `cargo run --release --example train`
//!
//! Forward, loss, backward and optimiser are functions of their own. Gradients are accumulated over two micro-batches, the
//! last mini-batch is a single shorter one, and between two epochs an evaluation runs forwards whose backwards never run. Every
//! mode runs the same program, and its losses, accuracy and weights have to be those of the eager run to the last bit.

mod kernels;
mod model;
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
use graphgrove_sim::SimDevice;
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::{Report, Row};
use crate::setup::Setup;
use crate::training::{Times, Training, Values};
use crate::wine::Wines;

/// Trains a small classifier on real data in every mode of the engine, and prints a table.
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
    /// A CUDA device. The kernels of this example are not there for it yet.
    Cuda,
}

type AnyError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.device == DeviceChoice::Cuda {
        eprintln!(
            "train: --device cuda is not built in: this example has its kernels for the simulated device only"
        );
        return ExitCode::from(2);
    }
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("train: a mode computed other values than the eager run");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("train: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every mode that was asked for. Whether all of them are equal to the eager run.
fn run(arguments: &Arguments) -> Result<bool, AnyError> {
    let wines = Wines::load(arguments.seed);
    let trace = match &arguments.trace {
        Some(path) => Some(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?),
        None => None,
    };
    let setups = Setup::ALL
        .into_iter()
        .filter(|setup| *setup == Setup::Eager || arguments.mode.is_none_or(|mode| mode == *setup));
    let mut report =
        Report { epochs: arguments.epochs, seed: arguments.seed, device: "sim", modes: Vec::new() };
    let mut eager = None;
    for setup in setups {
        let (values, times, stats) = run_one(setup, &wines, arguments, trace.as_ref())?;
        let eager = eager.get_or_insert_with(|| values.clone());
        report.modes.push(Row::new(setup, &times, &stats, &values, eager));
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(report.modes.iter().all(|row| row.equal_to_eager))
}

/// Runs the program on a fresh device and a fresh engine.
fn run_one(
    setup: Setup,
    wines: &Wines,
    arguments: &Arguments,
    trace: Option<&File>,
) -> Result<(Values, Times, EngineStats), AnyError> {
    let device = Arc::new(SimDevice::builder().seed(arguments.seed).granularity(4096).build());
    let lines = trace.map(|file| file.try_clone().map(|file| Arc::new(JsonLines::new(BufWriter::new(file)))));
    let lines = lines.transpose()?;
    let builder = match &lines {
        Some(lines) => setup.builder().observer(Arc::clone(lines)),
        None => setup.builder(),
    };
    let engine = builder.build(Arc::clone(&device))?;
    let bar = ProgressBar::new(arguments.epochs.into())
        .with_style(ProgressStyle::with_template("{prefix:16} {wide_bar} {pos:>3}/{len} epochs  {msg}")?)
        .with_prefix(setup.name());
    let training = Training::new(&engine, arguments.seed)?;
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
    // The device looks for races and for memory that is read before its birth or after its end. A finding says more than the
    // fault that it may have led to.
    device.verdict()?;
    let (values, times) = trained?;
    let stats = engine.stats()?;
    engine.shutdown()?;
    if let Some(lines) = lines {
        lines.flush()?;
    }
    Ok((values, times, stats))
}
