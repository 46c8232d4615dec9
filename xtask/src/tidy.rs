//! `cargo xtask tidy`: formatting, layout and documentation rules. Also run as a test.

mod citations;
mod crates;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::Outcome;
use crate::error::Result;
use crate::workspace;

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// The file, from the root.
    file: PathBuf,
    /// The line, counted from 1; rules about a whole file name its first line.
    line: usize,
    /// The rule, and what to do.
    reason: String,
}

impl Finding {
    fn new(file: impl Into<PathBuf>, line: usize, reason: impl Into<String>) -> Self {
        Self { file: file.into(), line, reason: reason.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.reason)
    }
}

pub(crate) fn run(root: &Path) -> Result<Outcome> {
    let findings = findings(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} findings", findings.len());
    Ok(if findings.is_empty() { Outcome::Green } else { Outcome::Red })
}

fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = unformatted(root)?;
    for path in workspace::files(root)? {
        let file = path.strip_prefix(root).unwrap_or(&path);
        findings.extend(text::name(file));
        if text::is_checked(file) {
            findings.extend(text::contents(file, &workspace::read(&path)?));
        }
    }
    findings.extend(crates::findings(root)?);
    findings.extend(citations::findings(root)?);
    Ok(findings)
}

/// The files that rustfmt would change.
fn unformatted(root: &Path) -> Result<Vec<Finding>> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output =
        cmd!(shell, "{cargo} fmt --all -- --check --files-with-diff").quiet().ignore_status().output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut findings: Vec<_> = listed.lines().map(|path| not_formatted(root, Path::new(path))).collect();
    if findings.is_empty() && !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        findings.push(Finding::new("Cargo.toml", 1, format!("cargo fmt stops: {}", message.trim())));
    }
    Ok(findings)
}

fn not_formatted(root: &Path, path: &Path) -> Finding {
    Finding::new(path.strip_prefix(root).unwrap_or(path), 1, "is not formatted: run cargo fmt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let findings = findings(&workspace::root()).unwrap();
        let listed: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(listed.is_empty(), "\n{}", listed.join("\n"));
    }

    #[test]
    fn a_finding_prints_as_file_line_and_reason() {
        let finding = Finding::new("crates/device/src/lib.rs", 3, "a tab: indent with spaces");
        assert_eq!(finding.to_string(), "crates/device/src/lib.rs:3: a tab: indent with spaces");
    }

    #[test]
    fn an_unformatted_file_is_found() {
        let shell = Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        let manifest =
            "[package]\nname = \"sample\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
        shell.write_file(folder.path().join("Cargo.toml"), manifest).unwrap();
        shell.write_file(folder.path().join("src/lib.rs"), "//! Sample.\n").unwrap();
        assert_eq!(unformatted(folder.path()).unwrap(), []);
        shell.write_file(folder.path().join("src/lib.rs"), "//! Sample.\nfn  a(){}\n").unwrap();
        let findings = unformatted(folder.path()).unwrap();
        assert_eq!(findings, [Finding::new("src/lib.rs", 1, "is not formatted: run cargo fmt")]);
        shell.write_file(folder.path().join("src/lib.rs"), "fn broken( {").unwrap();
        assert_eq!(unformatted(folder.path()).unwrap().len(), 1);
    }
}
