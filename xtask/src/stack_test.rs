//! `cargo xtask stack-test`: the layers in stack order, each built and tested with its own dependencies alone.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Outcome;
use crate::error::{Error, Result};
use crate::layers::{Layer, STACK};
use crate::tally::Tally;

/// What `stack-test` was asked to do.
#[derive(Debug, Args)]
pub(crate) struct StackTest {
    /// Test only this layer.
    layer: Option<String>,
    /// How many cases each property is tried with.
    #[arg(long)]
    cases: Option<u32>,
    /// The seed that properties draw their cases from, for a run that can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

impl StackTest {
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome> {
        let layers = match &self.layer {
            Some(name) => vec![named(name, root)?],
            None => STACK.iter().filter(|layer| layer.exists(root)).collect(),
        };
        let mut report = Report::default();
        for layer in layers {
            println!("\n== {} ==", layer.name);
            let result = self.test(root, layer.package)?;
            report.add(layer, result);
            if report.outcome() == Outcome::Red {
                break;
            }
        }
        print!("\n{report}");
        Ok(report.outcome())
    }

    /// Tests one package and passes its output on.
    fn test(&self, root: &Path, package: &str) -> Result<LayerResult> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--package", package]).current_dir(root).stdout(Stdio::piped());
        if let Some(cases) = self.cases {
            command.env("PROPTEST_CASES", cases.to_string());
        }
        if let Some(seed) = self.seed {
            command.env("PROPTEST_RNG_SEED", seed.to_string());
        }
        follow(command)
    }
}

/// The layer of that name, if it exists.
fn named(name: &str, root: &Path) -> Result<&'static Layer> {
    let Some(layer) = STACK.iter().find(|layer| layer.name == name) else {
        let known: Vec<_> = STACK.iter().map(|layer| layer.name).collect();
        return Err(Error::UnknownLayer { name: name.into(), known: known.join(", ") });
    };
    if !layer.exists(root) {
        return Err(Error::AbsentLayer { name: name.into(), folder: layer.folder });
    }
    Ok(layer)
}

/// Runs a command whose standard output is piped: prints each line and counts it.
fn follow(mut command: Command) -> Result<LayerResult> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command.spawn().map_err(|source| Error::Start { program: program.clone(), source })?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // What a test prints need not be text, so the lines are read as bytes.
        while output
            .read_until(b'\n', &mut line)
            .map_err(|source| Error::Output { program: program.clone(), source })?
            > 0
        {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            tally += Tally::of_line(&text);
            line.clear();
        }
    }
    let status = child.wait().map_err(|source| Error::Output { program, source })?;
    if !status.success() && tally.failed == 0 {
        // The package did not build, or a test took the process down before it could be counted.
        tally.failed = 1;
    }
    Ok(LayerResult { tally, time: start.elapsed() })
}

/// What testing one package came to.
#[derive(Debug, Clone, Copy)]
struct LayerResult {
    tally: Tally,
    time: Duration,
}

/// What the layers came to. Prints as a table that ends with the closing line.
#[derive(Debug, Default)]
struct Report {
    rows: Vec<(&'static Layer, LayerResult)>,
}

impl Report {
    fn add(&mut self, layer: &'static Layer, result: LayerResult) {
        self.rows.push((layer, result));
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for (_, result) in &self.rows {
            total += result.tally;
        }
        total
    }

    /// Green if nothing failed and something passed: a run that tested nothing shows nothing.
    fn outcome(&self) -> Outcome {
        let total = self.total();
        if total.failed == 0 && total.passed > 0 { Outcome::Green } else { Outcome::Red }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>7} {:>7} {:>7} {:>8} {:>8}",
            "layer", "PR", "passed", "failed", "skipped", "seconds"
        )?;
        for (layer, LayerResult { tally, time }) in &self.rows {
            let pr = layer.pr.map_or_else(|| "-".to_owned(), |pr| format!("#{pr}"));
            writeln!(
                f,
                "{:<12} {:>7} {:>7} {:>7} {:>8} {:>8.1}",
                layer.name,
                pr,
                tally.passed,
                tally.failed,
                tally.skipped,
                time.as_secs_f64()
            )?;
        }
        writeln!(f, "\n{}", self.total().closing_line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn result(passed: u64, failed: u64, skipped: u64) -> LayerResult {
        LayerResult { tally: Tally { passed, failed, skipped }, time: Duration::from_millis(1500) }
    }

    /// Tests a package of its own whose library holds the given code.
    fn test_package(code: &str) -> LayerResult {
        let shell = xshell::Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        let manifest =
            "[package]\nname = \"sample\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
        shell.write_file(folder.path().join("Cargo.toml"), manifest).unwrap();
        shell.write_file(folder.path().join("src/lib.rs"), code).unwrap();
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--offline", "--package", "sample"]).current_dir(folder.path());
        // The build folder of the workspace is locked while its own tests are run from inside of cargo.
        command.env("CARGO_TARGET_DIR", folder.path().join("target"));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        follow(command).unwrap()
    }

    #[test]
    fn a_layer_with_a_compile_error_is_red() {
        assert_eq!(test_package("fn broken( {}").tally, Tally { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_layer_counts_its_tests_and_its_contract_runs() {
        let code = "#[test] fn one() {}\n#[test] fn two() {\n\
            use std::io::Write; writeln!(std::io::stdout(), \"\\n7 passed, 0 failed, 2 skipped\").unwrap(); }";
        assert_eq!(test_package(code).tally, Tally { passed: 9, failed: 0, skipped: 2 });
    }

    #[test]
    fn a_layer_with_a_failing_test_is_red() {
        let code = "#[test] fn one() {}\n#[test] fn two() { assert_eq!(1, 2); }";
        assert_eq!(test_package(code).tally, Tally { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_layer_whose_tests_take_the_process_down_is_red() {
        let tally = test_package("#[test] fn one() { std::process::exit(3); }").tally;
        assert_eq!(tally, Tally { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn the_table_names_every_layer_and_ends_with_the_closing_line() {
        let mut report = Report::default();
        report.add(&STACK[0], result(40, 0, 1));
        report.add(&STACK[3], result(7, 0, 0));
        let text = report.to_string();
        assert_eq!(text.lines().last(), Some("47 passed, 0 failed, 1 skipped"));
        assert!(text.contains("tree          #98112       7       0        0      1.5"), "{text}");
        assert_eq!(report.outcome(), Outcome::Green);
    }

    #[test]
    fn one_failure_makes_the_run_red_and_so_does_a_run_of_nothing() {
        let mut report = Report::default();
        assert_eq!(report.outcome(), Outcome::Red);
        report.add(&STACK[0], result(40, 1, 0));
        assert_eq!(report.outcome(), Outcome::Red);
        assert_eq!(report.to_string().lines().last(), Some("40 passed, 1 failed"));
    }

    #[test]
    fn a_layer_that_is_unknown_or_not_there_is_refused_by_name() {
        let root = workspace::root();
        assert!(named("device", &root).is_ok());
        let error = named("roots", &root).unwrap_err().to_string();
        assert!(error.contains("no layer `roots`") && error.contains("device, sim"), "{error}");
        let error = named("device", Path::new("/nowhere")).unwrap_err().to_string();
        assert_eq!(error, "layer `device` has no folder crates/device yet");
    }
}
