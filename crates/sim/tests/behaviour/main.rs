//! What the simulated device does, by behaviour.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod capture;
mod checker;
mod counts;
mod determinism;
mod execution;
mod faults;
mod ordering;
mod races;
mod rig;
