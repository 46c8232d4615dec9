#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod context;
mod engine;
mod error;
mod output;

pub use context::{Buffer, Context};
pub use engine::{CallStats, Engine, Function, Input};
pub use error::{Error, Result};
pub use output::Output;
