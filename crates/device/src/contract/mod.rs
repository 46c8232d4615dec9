//! The checks that every device must pass.

mod harness;

pub use harness::{Harness, TestKernel};
