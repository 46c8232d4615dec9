//! Runs scenario files, and says for each whether everything is as it should be.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use graphgrove_scenario::{Cuda, Finding, ModeName, Options, Outcome, ParseError, Report, RunOn, parse, run};

/// What was asked for.
#[derive(Debug, Parser)]
#[command(name = "scenario", about = "Runs scenario files in every mode and with every prefix of the layers")]
struct Arguments {
    /// The files, or folders of them.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The device: `sim` or `cuda`.
    #[arg(long, default_value = "sim")]
    device: String,
    /// Only this mode: `trees`, `one-pool` or `eager`.
    #[arg(long, value_parser = mode)]
    mode: Option<ModeName>,
    /// Only so many of the layers, 0 to 5.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=5))]
    layers: Option<u32>,
    /// Another seed than that of the files.
    #[arg(long)]
    seed: Option<u64>,
    /// Says what the engine made of each program: the last calls, the reasons, the trees.
    #[arg(long)]
    explain: bool,
    /// Prints one JSON object a file, and one for the sum.
    #[arg(long)]
    json: bool,
}

fn mode(word: &str) -> Result<ModeName, String> {
    ModeName::of(word).ok_or_else(|| "the modes are trees, one-pool and eager".to_owned())
}

/// How many files came to what.
#[derive(Debug, Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
    /// Files that are no scenarios.
    broken: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let device = match arguments.device.as_str() {
        "sim" => RunOn::Sim,
        "cuda" => match Cuda::open() {
            Ok(cuda) => RunOn::Cuda(cuda),
            Err(error) => {
                eprintln!("scenario: --device cuda: {error}");
                return ExitCode::from(2);
            }
        },
        other => {
            eprintln!("scenario: there is no device `{other}`: the devices are sim and cuda");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let mut tally = Tally::default();
    let options = Options {
        device,
        mode: arguments.mode,
        layers: arguments.layers,
        seed: arguments.seed,
        explain: arguments.explain,
    };
    for path in &arguments.files {
        match files(path) {
            Ok(files) => files.iter().for_each(|file| one(file, &options, arguments.json, &mut tally)),
            Err(error) => unreadable(path, &error, arguments.json, &mut tally),
        }
    }
    let Tally { passed, failed, skipped, broken } = tally;
    let seconds = start.elapsed().as_secs_f64();
    if arguments.json {
        let sum = serde_json::json!({
            "passed": passed, "failed": failed + broken, "skipped": skipped, "seconds": seconds
        });
        println!("{sum}");
    } else {
        println!("\n{:.1} s\n{passed} passed, {} failed, {skipped} skipped", seconds, failed + broken);
    }
    match (broken, failed) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    }
}

/// The files of an argument: itself, or the scenarios in a folder, in the order of their names.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "scn") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A file or a folder that is not there, or is no text. It has no line and no column.
fn unreadable(path: &Path, error: &std::io::Error, json: bool, tally: &mut Tally) {
    let shown = path.display().to_string();
    eprintln!("{shown}: {error}");
    if json {
        println!("{}", serde_json::json!({ "file": shown, "error": { "why": error.to_string() } }));
    }
    tally.broken += 1;
}

fn one(file: &Path, options: &Options, json: bool, tally: &mut Tally) {
    let shown = file.display().to_string();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return unreadable(file, &error, json, tally),
    };
    let scenario = match parse(&text) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{}", error.in_context(&shown, &text));
            if json {
                let ParseError { place, problem } = &error;
                let error = serde_json::json!({
                    "line": place.line, "column": place.column, "why": problem.to_string()
                });
                println!("{}", serde_json::json!({ "file": shown, "error": error }));
            }
            tally.broken += 1;
            return;
        }
    };
    let report = run(&scenario, options);
    match &report.outcome {
        Outcome::Passed => tally.passed += 1,
        Outcome::Skipped { .. } => tally.skipped += 1,
        Outcome::Failed(_) => tally.failed += 1,
        Outcome::Impossible(_) => tally.broken += 1,
    }
    if json {
        println!("{}", serde_json::json!({ "file": shown, "report": report }));
    } else {
        print(&shown, &text, &report);
    }
}

fn print(file: &str, text: &str, report: &Report) {
    match &report.outcome {
        Outcome::Passed if report.setups == 0 => println!("passed   {file} (no set-up is left to run it in)"),
        Outcome::Passed => {
            println!("passed   {file} ({} set-ups, {} tensors compared)", report.setups, report.compared);
        }
        Outcome::Skipped { why } => println!("skipped  {file}: {why}"),
        Outcome::Failed(finding) => found("FAILED", file, text, finding),
        Outcome::Impossible(finding) => found("IMPOSSIBLE", file, text, finding),
    }
    for (setup, explained) in &report.explained {
        println!("-- {setup}\n{explained}");
    }
}

fn found(what: &str, file: &str, text: &str, finding: &Finding) {
    let Finding { setup, line, why, explained } = finding;
    println!("{what:<8} {file}:{line} in {setup}: {why}");
    if let Some(line) = text.lines().nth(line.saturating_sub(1) as usize) {
        println!("  {line}");
    }
    print!("{explained}");
}
