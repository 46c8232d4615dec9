//! Rules about the crates of the workspace.

use std::path::{Path, PathBuf};

use super::Finding;
use crate::error::{Error, Result};
use crate::layers::{Purity, STACK};
use crate::workspace;

/// The document with the code map.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let crates = folders(root)?;
    for folder in &crates {
        if !root.join(folder).join("README.md").is_file() {
            findings.push(Finding::new(folder.join("README.md"), 1, "the crate has no README"));
        }
    }
    for folder in crates.iter().cloned().chain(["xtask", "tests", "benches"].map(PathBuf::from)) {
        findings.extend(lints(root, &folder)?);
    }
    for layer in STACK.iter().filter(|layer| layer.purity == Purity::Pure && layer.exists(root)) {
        findings.extend(forbids_unsafe(root, Path::new(layer.folder))?);
    }
    findings.extend(code_map(root, &crates)?);
    findings.extend(unlisted(&crates));
    Ok(findings)
}

/// The folders of the crates, from the root.
fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let parent = root.join("crates");
    let at = |source| Error::File { path: parent.clone(), source };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(&parent).map_err(at)? {
        let entry = entry.map_err(at)?;
        if entry.path().join("Cargo.toml").is_file() {
            folders.push(Path::new("crates").join(entry.file_name()));
        }
    }
    folders.sort();
    Ok(folders)
}

fn lints(root: &Path, folder: &Path) -> Result<Option<Finding>> {
    let manifest = folder.join("Cargo.toml");
    if !root.join(&manifest).is_file() {
        return Ok(None);
    }
    let text = workspace::read(&root.join(&manifest))?;
    let inherited = takes_workspace_lints(&text);
    Ok((!inherited).then(|| {
        Finding::new(manifest, 1, "the lints of the workspace do not apply: [lints] workspace = true")
    }))
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let inherits =
            (section == "[lints]" && line == "workspace = true") || line == "lints.workspace = true";
        if inherits {
            return true;
        }
    }
    false
}

fn forbids_unsafe(root: &Path, folder: &Path) -> Result<Option<Finding>> {
    for file in ["src/lib.rs", "src/main.rs"] {
        let file = folder.join(file);
        if root.join(&file).is_file() {
            let forbids = workspace::read(&root.join(&file))?.contains("#![forbid(unsafe_code)]");
            return Ok((!forbids).then(|| {
                Finding::new(file, 1, "a crate without unsafe code says so: #![forbid(unsafe_code)]")
            }));
        }
    }
    Ok(None)
}

/// The code map mentions every crate, so that it cannot fall behind unnoticed.
fn code_map(root: &Path, crates: &[PathBuf]) -> Result<Vec<Finding>> {
    if !root.join(ARCHITECTURE).is_file() {
        return Ok(vec![Finding::new(ARCHITECTURE, 1, "there is no code map")]);
    }
    let text = workspace::read(&root.join(ARCHITECTURE))?;
    let missing = crates.iter().filter(|folder| !mentions(&text, &folder.to_string_lossy()));
    let finding = |folder: &PathBuf| {
        Finding::new(ARCHITECTURE, 1, format!("the code map does not mention {}", folder.display()))
    };
    Ok(missing.map(finding).collect())
}

/// Whether the text holds the folder's name and not only one that begins with it.
fn mentions(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(place, _)| {
        let next = text[place + folder.len()..].chars().next();
        !next.is_some_and(|next| next.is_alphanumeric() || next == '-' || next == '_')
    })
}

/// A crate that is no layer would be built and never tested by `stack-test`.
fn unlisted(crates: &[PathBuf]) -> Vec<Finding> {
    let listed = |folder: &Path| STACK.iter().any(|layer| Path::new(layer.folder) == folder);
    let unlisted = crates.iter().filter(|folder| !listed(folder));
    unlisted
        .map(|folder| {
            let reason = "stack-test does not know the crate: add it to xtask/src/layers.rs";
            Finding::new(folder.join("Cargo.toml"), 1, reason)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with one crate, in which every rule is kept.
    struct Sample {
        shell: xshell::Shell,
        folder: xshell::TempDir,
    }

    impl Sample {
        fn new() -> Self {
            let shell = xshell::Shell::new().unwrap();
            let folder = shell.create_temp_dir().unwrap();
            let sample = Self { shell, folder };
            sample
                .write("crates/device/Cargo.toml", "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n");
            sample.write("crates/device/README.md", "# device\n");
            sample.write("crates/device/src/lib.rs", "//! Docs.\n#![forbid(unsafe_code)]\n");
            sample.write(ARCHITECTURE, "- `crates/device`: the contract.\n");
            sample
        }

        fn write(&self, file: &str, text: &str) {
            self.shell.write_file(self.folder.path().join(file), text).unwrap();
        }

        fn remove(&self, file: &str) {
            self.shell.remove_path(self.folder.path().join(file)).unwrap();
        }

        /// What is found, as lines of a report.
        fn findings(&self) -> Vec<String> {
            findings(self.folder.path()).unwrap().iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn a_crate_that_keeps_the_rules_is_not_found() {
        assert_eq!(Sample::new().findings(), [""; 0]);
    }

    #[test]
    fn a_crate_without_readme_is_found() {
        let sample = Sample::new();
        sample.remove("crates/device/README.md");
        assert_eq!(sample.findings(), ["crates/device/README.md:1: the crate has no README"]);
    }

    #[test]
    fn a_crate_outside_of_the_workspace_lints_is_found() {
        let sample = Sample::new();
        sample.write(
            "crates/device/Cargo.toml",
            "[package]\nname = \"a\"\n\n[dependencies]\nworkspace = true\n",
        );
        assert_eq!(sample.findings().len(), 1);
        sample.write("crates/device/Cargo.toml", "lints.workspace = true\n");
        assert_eq!(sample.findings(), [""; 0]);
    }

    #[test]
    fn a_pure_crate_that_does_not_forbid_unsafe_code_is_found() {
        let sample = Sample::new();
        sample.write("crates/device/src/lib.rs", "//! Docs.\n");
        assert!(sample.findings()[0].starts_with("crates/device/src/lib.rs:1: "));
    }

    #[test]
    fn a_crate_that_the_code_map_leaves_out_is_found() {
        let sample = Sample::new();
        sample.write(ARCHITECTURE, "- `crates/devices`: not the same.\n");
        assert_eq!(sample.findings(), ["ARCHITECTURE.md:1: the code map does not mention crates/device"]);
        sample.remove(ARCHITECTURE);
        assert_eq!(sample.findings(), ["ARCHITECTURE.md:1: there is no code map"]);
    }

    #[test]
    fn a_crate_that_stack_test_does_not_know_is_found() {
        let sample = Sample::new();
        sample.write("crates/new/Cargo.toml", "[lints]\nworkspace = true\n");
        sample.write("crates/new/README.md", "# new\n");
        sample.write(ARCHITECTURE, "`crates/device`, `crates/new`\n");
        assert_eq!(sample.findings().len(), 1);
        assert!(sample.findings()[0].contains("stack-test does not know the crate"));
    }
}
