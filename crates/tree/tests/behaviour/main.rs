//! What the tree does, by behaviour.

#![allow(clippy::unwrap_used, reason = "a test that unwraps what is not there fails, as it should")]

mod backwards;
mod driver;
mod field_reports;
mod limits;
mod matching;
mod model;
mod outline;
mod properties;
mod rerecording;
mod steps;
mod transitions;
