//! The pool on the simulated device, whose checker is the oracle: every test that runs work ends with its verdict.
//!
//! Properties, by the numbers of the project's invariants:
//! - 1: no two live blocks overlap, in any state.
//! - 5: memory given up before or during a recording is reusable inside it; the two ways to die end in the same state.
//! - 6: a restored state is the one that was named, and live blocks keep address and contents.
//! - 10: what fails leaves the pool as it was.
//! - 11: the same operations lead to the same addresses.
//! - 13: when the last handle is gone, so is the memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod failures;
mod field_reports;
mod memory;
mod planning;
mod programs;
mod restoring;
mod sessions;
mod streams;
mod world;
