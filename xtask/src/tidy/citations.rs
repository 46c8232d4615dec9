//! Rules about documents that say which test shows what.

use std::path::Path;

use super::Finding;
use crate::error::Result;
use crate::workspace;

/// The documents whose tables name tests, in their last columns.
const DOCUMENTS: [&str; 1] = ["docs/pytorch-suite.md"];

/// The heading of a column of tests.
const COLUMN: &str = "shown by";

pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        if root.join(document).is_file() {
            let text = workspace::read(&root.join(document))?;
            findings.extend(of_document(root, document, &text)?);
        }
    }
    Ok(findings)
}

/// Looks at each row of each table with a column of tests: a file has to be there, and to have a test of each name behind it.
fn of_document(root: &Path, document: &str, text: &str) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut is_shown = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(last) = last_cell(line) else {
            is_shown = false;
            continue;
        };
        if last == COLUMN {
            is_shown = true;
        } else if is_shown && !last.starts_with("---") {
            let reasons = of_cell(root, last)?;
            findings.extend(reasons.into_iter().map(|reason| Finding::new(document, number, reason)));
        }
    }
    Ok(findings)
}

/// The last cell of a table's row; none of a line that is no row.
fn last_cell(line: &str) -> Option<&str> {
    line.trim().strip_prefix('|')?.strip_suffix('|')?.rsplit('|').next().map(str::trim)
}

/// What is wrong with a cell: `file.rs`: `test`, `test`; `other.rs`: `test`.
fn of_cell(root: &Path, cell: &str) -> Result<Vec<String>> {
    let mut reasons = Vec::new();
    let mut tests = 0;
    let mut file: Option<(&str, String)> = None;
    for quoted in cell.split('`').skip(1).step_by(2) {
        if quoted.ends_with(".rs") {
            let path = root.join(quoted);
            if path.is_file() {
                file = Some((quoted, workspace::read(&path)?));
            } else {
                reasons.push(format!("there is no file {quoted}"));
                file = None;
            }
        } else if let Some((path, text)) = &file {
            tests += 1;
            if !has_test(text, quoted) && !is_listed(root, Path::new(path), quoted)? {
                reasons.push(format!("{path} has no test {quoted}"));
            }
        }
    }
    if tests == 0 && reasons.is_empty() {
        reasons.push("the row names no test".to_owned());
    }
    Ok(reasons)
}

/// Whether a file has a function of that name that the test harness runs.
fn has_test(text: &str, name: &str) -> bool {
    let declaration = format!("fn {name}(");
    let Some(at) = text.find(&declaration) else { return false };
    let above = text.get(..at).unwrap_or_default();
    // The attribute stands among the lines directly above, which other attributes and comments may be part of.
    let lines = above.lines().rev().map(str::trim);
    let near = lines.take_while(|line| line.is_empty() || line.starts_with(['#', '/']));
    near.into_iter().any(|line| line == "#[test]")
}

/// Whether a program that runs its tests itself, `tests/name.rs` for the files in `tests/name`, lists the function.
fn is_listed(root: &Path, file: &Path, name: &str) -> Result<bool> {
    let (Some(folder), Some(module)) = (file.parent(), file.file_stem()) else { return Ok(false) };
    let harness = root.join(folder.with_extension("rs"));
    let entry = format!(" {}::{name},", module.to_string_lossy());
    Ok(harness.is_file() && workspace::read(&harness)?.contains(&entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a document, where `tests/a.rs` has one test and one function beside it.
    fn reasons(text: &str) -> Vec<(usize, String)> {
        let shell = xshell::Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        let tests = "#[test]\n// Why.\nfn it_works() {}\n\nfn no_test() {}\n";
        shell.write_file(folder.path().join("tests/a.rs"), tests).unwrap();
        shell.write_file(folder.path().join("tests/own.rs"), "list![ b::listed, ]").unwrap();
        shell.write_file(folder.path().join("tests/own/b.rs"), "fn listed() {}\nfn unlisted() {}").unwrap();
        shell.write_file(folder.path().join(DOCUMENTS[0]), text).unwrap();
        let findings = findings(folder.path()).unwrap();
        findings.into_iter().map(|finding| (finding.line, finding.reason)).collect()
    }

    #[test]
    fn a_test_that_is_there_is_no_finding() {
        assert_eq!(reasons("| what | shown by |\n|---|---|\n| x | `tests/a.rs`: `it_works` |\n"), []);
    }

    #[test]
    fn a_test_or_a_file_that_is_not_there_is_found_by_line() {
        let text = "| what | shown by |\n|---|---|\n| x | `tests/a.rs`: `it_works`, `gone` |\n| y | `b.rs`: `it_works` |\n";
        let expected = [(3, "tests/a.rs has no test gone"), (4, "there is no file b.rs")];
        assert_eq!(reasons(text), expected.map(|(line, reason)| (line, reason.to_owned())));
    }

    #[test]
    fn a_function_that_is_no_test_and_a_row_without_tests_are_found() {
        let text = "| what | shown by |\n|---|---|\n| x | `tests/a.rs`: `no_test` |\n| y | later |\n";
        let expected = [(3, "tests/a.rs has no test no_test"), (4, "the row names no test")];
        assert_eq!(reasons(text), expected.map(|(line, reason)| (line, reason.to_owned())));
    }

    #[test]
    fn a_program_that_runs_its_tests_itself_lists_them() {
        let text = "| what | shown by |\n|---|---|\n| x | `tests/own/b.rs`: `listed`, `unlisted` |\n";
        assert_eq!(reasons(text), [(3, "tests/own/b.rs has no test unlisted".to_owned())]);
    }

    #[test]
    fn tables_without_a_column_of_tests_are_left_alone() {
        let text = "| what | shown by |\n|---|---|\n| x | `tests/a.rs`: `it_works` |\n\n| what | waits for |\n|---|---|\n| y | z |\n";
        assert_eq!(reasons(text), []);
    }
}
