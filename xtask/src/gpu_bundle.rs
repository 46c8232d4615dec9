//! `cargo xtask gpu-bundle DIR`: everything that a machine with a GPU and without Rust needs, in one folder.

mod programs;
mod script;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::Outcome;
use crate::error::{Error, Result};
use programs::PROGRAMS;

/// The most bytes that a bundle may have.
const MOST_BYTES: u64 = 60 << 20;

/// What `gpu-bundle` was asked to do.
#[derive(Debug, Args)]
pub(crate) struct GpuBundle {
    /// Where the bundle goes. Programs, script and scenarios of an earlier bundle there are replaced.
    folder: PathBuf,
}

impl GpuBundle {
    /// Builds the programs and puts them there, with the script that runs them. Red if they are too large to travel.
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome> {
        let folder = std::path::absolute(&self.folder)
            .map_err(|source| Error::File { path: self.folder.clone(), source })?;
        let programs = folder.join("bin");
        create(&programs)?;
        let messages = build(root)?;
        for program in PROGRAMS {
            let built = executable(&messages, program.target)
                .ok_or(Error::NotBuilt { package: program.package, target: program.target })?;
            copy(&built, &programs.join(program.name))?;
        }
        let peer = folder.join("peer");
        create(&peer)?;
        for script in programs::PEER_SCRIPTS {
            let from = root.join(script);
            if let Some(name) = from.file_name() {
                copy(&from, &peer.join(name))?;
            }
        }
        for carried in programs::FOLDERS {
            copy_folder(&root.join(carried), &folder.join(carried))?;
        }
        let script = folder.join("run.sh");
        std::fs::write(&script, script::text(PROGRAMS))
            .map_err(|source| Error::File { path: script, source })?;
        let bytes = size(&folder)?;
        println!(
            "{} programs, {:.1} MiB (at most {} MiB). On the machine with the GPU: bash {}/run.sh RESULTS",
            PROGRAMS.len(),
            bytes as f64 / f64::from(1 << 20),
            MOST_BYTES >> 20,
            self.folder.display()
        );
        Ok(if bytes <= MOST_BYTES { Outcome::Green } else { Outcome::Red })
    }
}

/// Builds the programs, without what only a debugger reads, and gives cargo's messages. All at once: built one by one, the crates that
/// they share would be built anew for each set of features.
fn build(root: &Path) -> Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--profile", "gpu", "--message-format=json-render-diagnostics"]);
    for setting in ["inherits=\"release\"", "debug=0", "strip=\"symbols\""] {
        command.arg("--config").arg(format!("profile.gpu.{setting}"));
    }
    for program in PROGRAMS {
        command.args(["--package", program.package, program.kind.option(), program.target]);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| Error::Start { program, source })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The executable of a target, as cargo's messages name it.
fn executable(messages: &str, target: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_target = |artifact: &serde_json::Value| artifact["target"]["name"] == target;
    artifacts.filter(of_target).find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).map(drop).map_err(|source| Error::File { path: from.to_owned(), source })
}

/// Puts a copy of a folder there, in place of what is there.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(|source| Error::File { path: to.to_owned(), source })?;
    }
    for file in crate::workspace::files(from)? {
        let target = to.join(file.strip_prefix(from).unwrap_or(&file));
        create(target.parent().unwrap_or(to))?;
        copy(&file, &target)?;
    }
    Ok(())
}

/// The bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in crate::workspace::files(folder)? {
        bytes += std::fs::metadata(&file).map_err(|source| Error::File { path: file, source })?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_of_a_target_is_read_from_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/there/other"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"contract"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"contract"},"executable":"/there/contract-1f"}"#,
            "\nnot a message\n",
        );
        assert_eq!(executable(messages, "contract"), Some(PathBuf::from("/there/contract-1f")));
        assert_eq!(executable(messages, "device"), None);
    }

    #[test]
    fn every_program_and_every_script_is_one_of_the_workspace() {
        let root = crate::workspace::root();
        for program in PROGRAMS {
            assert!(program.source(&root).is_file(), "{}", program.source(&root).display());
        }
        for script in programs::PEER_SCRIPTS {
            assert!(root.join(script).is_file(), "{script}");
        }
        for folder in programs::FOLDERS {
            assert!(root.join(folder).is_dir(), "{folder}");
        }
    }

    #[test]
    fn a_folder_is_copied_with_what_is_below_it_and_nothing_of_an_earlier_copy_stays() {
        let shell = xshell::Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("there/to"));
        shell.write_file(from.join("a.scn"), "a").unwrap();
        shell.write_file(from.join("below/b.scn"), "b").unwrap();
        shell.write_file(to.join("old.scn"), "old").unwrap();
        copy_folder(&from, &to).unwrap();
        let copied = crate::workspace::files(&to).unwrap();
        assert_eq!(copied, [to.join("a.scn"), to.join("below/b.scn")]);
    }

    #[test]
    fn the_size_of_a_folder_is_that_of_all_its_files() {
        let shell = xshell::Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        shell.write_file(folder.path().join("a"), "12345").unwrap();
        shell.write_file(folder.path().join("bin/b"), "1234567").unwrap();
        assert_eq!(size(folder.path()).unwrap(), 12);
    }
}
