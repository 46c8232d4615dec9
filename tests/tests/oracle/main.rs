//! The engine beside an oracle that knows nothing of recordings.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod failures;
mod field_reports;
mod garden;
mod invariants;
mod mended;
mod programs;
