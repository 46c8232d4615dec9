//! What the crate promises, by behaviour.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod copying_back;
mod failures;
mod field_reports;
mod inputs;
mod liveness;
mod managed;
mod outputs;
mod parameters;
mod patching;
mod pooled;
mod replaying;
mod staging;
mod streams;
mod workshop;
