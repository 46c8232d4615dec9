//! Random programs over an engine, run in lockstep with an interpreter that knows nothing of recordings.
//!
//! A [`Program`](program::Program) is plain data: functions, and the steps of a round that is run several times. A
//! [`Rig`](rig::Rig) runs it on an engine on a simulated device whose checker is on, and beside it on a
//! [`Model`](model::Model) of plain vectors; every value that can be read has to be equal in both, whatever the
//! [`Setup`](setup::Setup). A value that cannot be read has to be stale by a rule that the program has asked for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod body;
pub mod field_reports;
pub mod graveyard;
pub mod ground;
pub mod kernels;
pub mod model;
pub mod program;
pub mod rig;
pub mod scene;
pub mod setup;
pub mod strategy;
