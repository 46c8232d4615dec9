//! What the engine makes of recorded programs, beside what `torch` made of them.
//!
//! ```text
//! cargo run --release -p graphgrove-benches --bin calls -- [--calls DIR] [--json FILE] [--explain]
//! ```
//!
//! `DIR` holds files `NAME.calls` or `NAME.calls.gz`; without it the small synthetic trace of this folder is played. Each call of
//! a trace is made on the simulated device, with a body that allocates and frees what the recorded one did and writes outputs that
//! follow from all of its inputs. Every output is compared with that of a run without recordings.
#![forbid(unsafe_code)]

mod body;
mod bound;
mod error;
mod function;
mod kernels;
mod play;
mod program;
mod report;
mod synthetic;
mod trace;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::{Error, Result};
use crate::program::Program;
use crate::report::Row;
use crate::trace::Trace;

#[derive(Debug, Default)]
struct Options {
    calls: Option<PathBuf>,
    json: Option<PathBuf>,
    /// Whether to say why each call ran as it did.
    explain: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("calls: {error}");
            ExitCode::from(2)
        }
    }
}

/// Says whether every value was right.
fn run() -> Result<bool> {
    let options = options(std::env::args().skip(1))?;
    let traces = match &options.calls {
        Some(folder) => read_folder(folder)?,
        None => vec![synthetic::TRACE.to_owned()],
    };
    let mut rows = Vec::new();
    for text in &traces {
        rows.push(Row::of(Program::new(&Trace::parse(text)?)?)?);
    }
    report::print(&rows);
    if options.explain {
        rows.iter().for_each(report::explain);
    }
    if let Some(path) = options.json {
        std::fs::write(&path, report::json(&rows)).map_err(|source| Error::File { path, source })?;
    }
    Ok(rows.iter().all(|row| row.wrong() == 0 && row.findings() == 0))
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(option) = arguments.next() {
        let mut path = || arguments.next().map(PathBuf::from);
        let taken = match option.as_str() {
            "--calls" => {
                options.calls = path();
                options.calls.is_some()
            }
            "--json" => {
                options.json = path();
                options.json.is_some()
            }
            "--explain" => {
                options.explain = true;
                true
            }
            _ => return Err(Error::UnknownOption { given: option }),
        };
        if !taken {
            return Err(Error::NoValue { option });
        }
    }
    Ok(options)
}

/// The traces of a folder, by name.
fn read_folder(folder: &Path) -> Result<Vec<String>> {
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    };
    let mut traces = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut text = String::new();
        if name.ends_with(".calls.gz") {
            let file = std::fs::File::open(&path).map_err(at(&path))?;
            flate2::read::GzDecoder::new(file).read_to_string(&mut text).map_err(at(&path))?;
        } else if name.ends_with(".calls") {
            text = std::fs::read_to_string(&path).map_err(at(&path))?;
        } else {
            continue;
        }
        traces.push((name, text));
    }
    if traces.is_empty() {
        return Err(Error::NoTrace { folder: folder.to_path_buf() });
    }
    traces.sort();
    Ok(traces.into_iter().map(|(_, text)| text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options> {
        options(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn options_are_taken_and_others_are_refused_by_name() {
        let given = parse(&["--calls", "a", "--json", "b", "--explain"]).unwrap();
        assert_eq!((given.calls, given.json, given.explain), (Some("a".into()), Some("b".into()), true));
        assert!(matches!(parse(&["--jsom", "b"]), Err(Error::UnknownOption { given }) if given == "--jsom"));
        assert!(matches!(parse(&["--json"]), Err(Error::NoValue { option }) if option == "--json"));
    }

    #[test]
    fn a_folder_without_traces_is_an_error() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert!(matches!(read_folder(&folder), Err(Error::NoTrace { .. })));
        assert_eq!(read_folder(&folder.with_file_name("traces")).unwrap().len(), 1);
    }
}
