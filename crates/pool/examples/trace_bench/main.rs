//! What the allocator makes of allocation traces, and how fast, against its peers.
//!
//! ```text
//! cargo run --release -p graphgrove-pool --example trace_bench -- [--traces DIR] [--rounds N]
//! ```
//!
//! `DIR` holds files `NAME.trace` or `NAME.trace.gz`; without it the bench runs the small synthetic trace of the crate. Every
//! figure is measured in this run, except the ratios of `torch`, which are looked up by the name of the trace.

mod memory;
mod peers;
mod restore;
mod speed;

use std::error::Error;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use graphgrove_pool::trace::Trace;

struct Options {
    traces: Option<PathBuf>,
    rounds: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let traces = match &options.traces {
        Some(folder) => read_folder(folder)?,
        None => vec![("synthetic".to_owned(), include_str!("../../traces/synthetic.trace").to_owned())],
    };
    let mut parsed = Vec::new();
    for (name, text) in &traces {
        parsed.push((name.as_str(), Trace::parse(text)?));
    }
    memory::print(&parsed)?;
    println!();
    speed::print(&parsed, options.rounds)?;
    println!();
    restore::print()?;
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { traces: None, rounds: 31 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--traces" => options.traces = Some(value()?.into()),
            "--rounds" => options.rounds = value()?.parse()?,
            _ => {
                return Err(
                    format!("unknown option {argument}; there are --traces DIR and --rounds N").into()
                );
            }
        }
    }
    Ok(options)
}

fn read_folder(folder: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut traces = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let mut text = String::new();
        if let Some(name) = name.strip_suffix(".trace.gz") {
            flate2::read::GzDecoder::new(std::fs::File::open(&path)?).read_to_string(&mut text)?;
            traces.push((name.to_owned(), text));
        } else if let Some(name) = name.strip_suffix(".trace") {
            std::fs::File::open(&path)?.read_to_string(&mut text)?;
            traces.push((name.to_owned(), text));
        }
    }
    traces.sort();
    if traces.is_empty() {
        return Err(format!("no trace in {}", folder.display()).into());
    }
    Ok(traces)
}
