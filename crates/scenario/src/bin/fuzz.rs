//! Searches for scenarios that fail.
fn main() {}
