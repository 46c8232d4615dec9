//! Replays on the simulated device's null launch, in nanoseconds, with all figures of a row from the same run:
//! `cargo xtask bench replay`, or
//!
//! ```text
//! cargo bench -p graphgrove-replay --bench nanoseconds -- [--rounds N] [--json FILE]
//! ```

#![allow(clippy::unwrap_used, reason = "a benchmark whose set-up does not work measures nothing")]

#[path = "../cases/mod.rs"]
mod cases;
mod report;
mod rows;
mod timing;

use std::error::Error;
use std::path::PathBuf;

use timing::Timing;

struct Options {
    rounds: usize,
    json: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let mut rows = rows::all();
    let mut timing = Timing::new();
    // All rows in each round, so that whatever slows the machine down for a while slows all of them down.
    for _ in 0..options.rounds {
        rows.iter_mut().for_each(|row| row.measure(&mut timing));
    }
    let empty = timing.empty();
    print!("{}", report::table(&rows, empty));
    if let Some(path) = options.json {
        std::fs::write(path, report::json(&rows, empty))?;
    }
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { rounds: 101, json: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--rounds" => options.rounds = value()?.parse()?,
            "--json" => options.json = Some(value()?.into()),
            "--bench" => {} // What cargo says to every benchmark.
            _ => {
                return Err(format!("unknown option {argument}; there are --rounds N and --json FILE").into());
            }
        }
    }
    if options.rounds == 0 {
        return Err("without a round there is nothing to report".into());
    }
    Ok(options)
}
