//! The storage layer by behaviour.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aliases;
mod cache;
#[cfg(feature = "dlpack")]
mod dlpack;
mod epochs;
mod field_reports;
mod fuzz;
mod handles;
mod inputs;
mod masks;
mod mini;
mod old_outputs;
mod outputs;
mod pairs;
mod pins;
mod rig;
mod saved;
mod takers;
mod views;
