//! Where things lie.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Every file below the folder in a fixed order, hidden entries and build outputs left out.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(folder, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let at = |source| Error::File { path: folder.to_path_buf(), source };
    for entry in std::fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_folder = entry.file_type().map_err(at)?.is_dir();
        if name.starts_with('.') || is_folder && is_output(&name) {
            continue;
        }
        if is_folder {
            collect(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Folders that commands write, as `.gitignore` names them.
fn is_output(name: &str) -> bool {
    name == "target" || name == "gpu-bundle" || name.starts_with("mutants.out")
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_and_the_walk_finds_this_file() {
        let root = root();
        assert!(read(&root.join("Cargo.toml")).unwrap().contains("[workspace]"));
        let files = files(&root.join("xtask")).unwrap();
        assert!(files.contains(&root.join("xtask/src/workspace.rs")));
        assert!(files.is_sorted());
    }

    #[test]
    fn outputs_are_not_walked_into() {
        assert!(is_output("target") && is_output("mutants.out.old") && !is_output("tests"));
        assert!(files(&root()).unwrap().iter().all(|file| !file.starts_with(root().join("target"))));
    }
}
