//! Searches for scenarios that fail, and writes each, made small, to a file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use graphgrove_scenario::fuzz::{Found, Search};

/// What was asked for.
#[derive(Debug, Parser)]
#[command(name = "fuzz", about = "Runs random scenarios in every mode and with every prefix of the layers")]
struct Arguments {
    /// For how many minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Where the search begins.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder for scenarios that fail.
    #[arg(long, default_value = ".")]
    into: PathBuf,
}

/// How often the search says how far it is.
const REPORTS: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let Arguments { minutes, seed, into } = Arguments::parse();
    let (start, end) = (Instant::now(), Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let mut search = Search::new(seed);
    let mut reported = start;
    while start.elapsed() < end {
        if let Err(found) = search.step() {
            return report(&found, seed, search.cases, &into);
        }
        if reported.elapsed() > REPORTS {
            reported = Instant::now();
            let (cases, compared) = (search.cases, search.compared);
            println!(
                "{:.0} s: {cases} scenarios, {compared} tensors compared",
                start.elapsed().as_secs_f64()
            );
        }
    }
    let (cases, compared) = (search.cases, search.compared);
    println!("seed {seed}, {minutes} minutes: {cases} scenarios, {compared} tensors compared, none failed");
    ExitCode::SUCCESS
}

fn report(found: &Found, seed: u64, case: u64, into: &std::path::Path) -> ExitCode {
    let Found { scenario, finding } = found;
    println!("seed {seed}, scenario {case} fails in {}: {}", finding.setup, finding.why);
    print!("{scenario}{}", finding.explained);
    let file = into.join(format!("fuzz-{seed}-{case}.scn"));
    let text = format!("# In {}: {}\n{scenario}", finding.setup, finding.why.replace('\n', " "));
    match std::fs::create_dir_all(into).and_then(|()| std::fs::write(&file, text)) {
        Ok(()) => println!("written to {}", file.display()),
        Err(error) => eprintln!("{}: {error}", file.display()),
    }
    ExitCode::FAILURE
}
