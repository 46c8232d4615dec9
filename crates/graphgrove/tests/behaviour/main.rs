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
mod no_room;
mod observing;
mod old_outputs;
mod parameters;
mod random;
mod saying;
mod shapes;
mod side_streams;
mod switching;
mod trees;
