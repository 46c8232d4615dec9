//! What the tree does, by behaviour.

#![allow(clippy::unwrap_used, reason = "a test that unwraps what is not there fails, as it should")]

mod aliases;
mod backwards;
mod driver;
mod explaining;
mod field_reports;
mod following;
mod held_warm_ups;
mod limits;
mod matching;
mod memory;
mod model;
mod outline;
mod properties;
mod rerecording;
mod stale_inputs;
mod steps;
mod transitions;
