//! Rules about single files: their names and their text.

use std::path::Path;

use super::Finding;

/// The most lines that a source file may have.
const MOST_LINES: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 4] = ["utils", "helpers", "common", "misc"];

/// What may not stand in Rust code, and what to do instead. Each is written in two pieces, so that this file is tidy itself.
const FORBIDDEN: [(&str, &str); 3] = [
    (concat!("#[", "ignore"), "an ignored test: mend it, or take it out"),
    (concat!("#[", "should_panic"), "a test that expects a panic: return an error, and test that"),
    (concat!("to", "do!"), "unfinished code"),
];

/// Whether the text of a file is looked at.
pub(super) fn is_checked(file: &Path) -> bool {
    extension(file, "rs") || extension(file, "toml") || extension(file, "md")
}

fn extension(file: &Path, wanted: &str) -> bool {
    file.extension().is_some_and(|extension| extension == wanted)
}

/// Looks at the name of a file and of every folder above it.
pub(super) fn name(file: &Path) -> Option<Finding> {
    let empty = file.iter().find_map(|part| {
        let stem = Path::new(part).file_stem()?.to_str()?;
        EMPTY_NAMES.into_iter().find(|&name| name == stem)
    })?;
    Some(Finding::new(file, 1, format!("`{empty}` says nothing about what is inside")))
}

/// Looks at the text of a file.
pub(super) fn contents(file: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_rust = extension(file, "rs");
    for (number, line) in (1..).zip(text.lines()) {
        if line.ends_with([' ', '\t']) {
            findings.push(Finding::new(file, number, "a trailing space"));
        }
        if line.contains('\t') {
            findings.push(Finding::new(file, number, "a tab: indent with spaces"));
        }
        if is_rust {
            let forbidden = FORBIDDEN.iter().filter(|(pattern, _)| line.contains(pattern));
            findings.extend(forbidden.map(|(_, reason)| Finding::new(file, number, *reason)));
        }
    }
    if is_rust {
        findings.extend(length(file, text));
        findings.extend(module_docs(file, text));
    }
    findings
}

fn length(file: &Path, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    (lines > MOST_LINES).then(|| {
        Finding::new(
            file,
            MOST_LINES + 1,
            format!("{lines} lines, more than {MOST_LINES}: split it by concept"),
        )
    })
}

/// A module says what it holds before anything else, save other inner attributes; a crate may say it by its README.
fn module_docs(file: &Path, text: &str) -> Option<Finding> {
    let is_docs = |line: &str| line.starts_with("//!") || line.starts_with("#![doc");
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.find(|line| is_docs(line) || !line.starts_with("#!["));
    let documented = first.is_some_and(is_docs);
    (!documented).then(|| Finding::new(file, 1, "no module documentation: begin with a line of //!"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, text: &str) -> Vec<(usize, String)> {
        let findings = contents(Path::new(file), text);
        findings.into_iter().map(|finding| (finding.line, finding.reason)).collect()
    }

    #[test]
    fn a_tidy_file_has_no_findings() {
        assert_eq!(lines("a.rs", "//! Docs.\n\nfn a() {}\n"), []);
        assert_eq!(lines("a.rs", "#![forbid(unsafe_code)]\n//! Docs.\n"), []);
        assert_eq!(lines("a.rs", "#![doc = include_str!(\"../README.md\")]\nmod a;\n"), []);
        assert_eq!(lines("a.md", "Text.\n"), []);
    }

    #[test]
    fn trailing_spaces_and_tabs_are_found_by_line() {
        assert_eq!(
            lines("a.md", "one \ntwo\n\tthree\n").iter().map(|found| found.0).collect::<Vec<_>>(),
            [1, 3]
        );
        assert_eq!(lines("a.toml", "[a]\t\n").len(), 2);
    }

    #[test]
    fn what_may_not_stand_in_code_is_found() {
        for (pattern, reason) in FORBIDDEN {
            let text = format!("//! Docs.\n    {pattern}()]\n");
            assert_eq!(lines("a.rs", &text), [(2, reason.to_owned())]);
            assert_eq!(lines("a.md", &text), []);
        }
    }

    #[test]
    fn a_file_of_600_lines_is_not_too_long_and_one_of_601_is() {
        let text = format!("//! Docs.\n{}", "\n".repeat(599));
        assert_eq!(lines("a.rs", &text), []);
        assert_eq!(lines("a.rs", &format!("{text}\n"))[0].0, 601);
    }

    #[test]
    fn a_module_without_docs_is_found() {
        for text in [
            "",
            "#![forbid(unsafe_code)]\nmod a;\n",
            "use std::fmt;\n//! Too late.\n",
            "// A comment.\n",
            "/// Docs of an item.\nfn a() {}\n",
        ] {
            assert_eq!(lines("a.rs", text).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn names_that_say_nothing_are_found_in_files_and_folders() {
        for file in ["src/utils.rs", "tests/common/rig.rs", "misc.md", "a/helpers/b.rs"] {
            assert!(name(Path::new(file)).is_some(), "{file}");
        }
        for file in ["src/lib.rs", "src/common_ground.rs", "src/miscount.rs"] {
            assert_eq!(name(Path::new(file)), None, "{file}");
        }
    }

    #[test]
    fn sources_manifests_and_documents_are_looked_at_and_nothing_else() {
        let checked =
            ["a.rs", "a.toml", "a.md", "a.lock", "a.json", "LICENSE"].map(|file| is_checked(Path::new(file)));
        assert_eq!(checked, [true, true, true, false, false, false]);
    }
}
