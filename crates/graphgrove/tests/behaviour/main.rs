//! What the engine promises, by behaviour.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod garden;
mod guide;
mod memory;
mod no_room;
mod random;
mod side_streams;
