//! The allocator of offsets against a plain model, over random programs, and rule by rule where a rule deserves a story.
//!
//! Properties, by the numbers of the project's invariants:
//! - 1: live blocks never overlap, and free + live = capacity.
//! - 6: a restored state is the state that was named, on any tree of checkpoints.
//! - 11: the same operations lead to the same addresses.
//! - 13: when everything is freed, all memory is one run again and can be returned.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod model;
mod programs;
mod restoring;
