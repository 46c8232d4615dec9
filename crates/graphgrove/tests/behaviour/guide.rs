//! The guide says what each error means.

use std::collections::BTreeSet;

const ERRORS: &str = include_str!("../../src/error.rs");
const GUIDE: &str = include_str!("../../../../docs/guide/errors.md");

/// The variants of the enum, by how rustfmt lays them out: one level in, before a brace, a parenthesis or a comma.
fn variants() -> BTreeSet<&'static str> {
    let body =
        ERRORS.split("pub enum Error {").nth(1).unwrap_or_default().split("\n}").next().unwrap_or_default();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names.filter_map(|line| line.split(|end: char| !end.is_ascii_alphanumeric()).next()).collect()
}

#[test]
fn every_error_has_a_section_in_the_guide_and_no_other_has() {
    let sections: BTreeSet<&str> = GUIDE.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(variants().contains("ShutDown"));
    assert_eq!(sections, variants());
}
