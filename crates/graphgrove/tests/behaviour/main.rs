//! What the engine promises, by behaviour.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aliases;
mod backwards;
mod budgets;
mod calls;
mod garden;
mod guide;
mod memory;
mod mutation;
mod observing;
mod old_outputs;
mod parameters;
mod shapes;
mod switching;
mod trees;
