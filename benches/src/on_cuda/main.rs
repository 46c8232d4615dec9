//! What replays, recordings, memory and a whole training step cost on a CUDA device, each beside what it is compared with.
//!
//! Host times are of calls alone, each with the device idle before, and variants take turns, so that what the machine does besides
//! meets all of them. `cargo run --release -p graphgrove-benches --bin on-cuda -- --json FILE`, with the names of sections to run
//! those alone; it says that it is skipped where there is no device, and ends with status 2.

mod bare;
mod chain;
mod kernel;
mod recording;
mod replay;
mod rows;
mod sizes;
mod step;
mod timing;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use graphgrove_cuda::CudaDevice;
use graphgrove_device::DeviceError;
use serde_json::{Map, Value, json};

type Section = fn(&Arc<CudaDevice>) -> Result<Value, Box<dyn Error>>;

const SECTIONS: [(&str, Section); 5] = [
    ("replay", rows::measure),
    ("recording", recording::measure),
    ("sizes", sizes::measure),
    ("chain", chain::measure),
    ("step", step::measure),
];

/// Measures on the first CUDA device.
#[derive(Debug, Parser)]
#[command(name = "on-cuda")]
struct Arguments {
    /// The sections to run, of replay, recording, sizes, chain and step. All of them by default.
    sections: Vec<String>,
    /// Also writes the figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let device = match CudaDevice::open(0) {
        Ok(device) => Arc::new(device),
        Err(DeviceError::NoDevice { reason }) => {
            println!("skipped: {reason}");
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("on-cuda: {error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&Arguments::parse(), &device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("on-cuda: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, device: &Arc<CudaDevice>) -> Result<(), Box<dyn Error>> {
    let mut figures = Map::new();
    println!("{}, driver of CUDA {}", device.name()?, device.driver_version()?);
    figures.insert("card".to_owned(), json!(device.name()?));
    figures.insert("cuda".to_owned(), json!(device.driver_version()?));
    for (name, measure) in SECTIONS {
        if arguments.sections.is_empty() || arguments.sections.iter().any(|section| section == name) {
            println!("\n== {name} ==");
            figures.insert(name.to_owned(), measure(device)?);
            // What was measured so far is there even if a later section fails.
            if let Some(file) = &arguments.json {
                std::fs::write(file, serde_json::to_string_pretty(&Value::Object(figures.clone()))?)?;
            }
        }
    }
    Ok(())
}
