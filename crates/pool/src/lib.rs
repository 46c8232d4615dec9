#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod error;
pub mod plan;
pub mod pool;
pub mod ranges;
pub mod trace;

pub use error::PoolError;
pub use pool::{Block, Pool, PoolConfig};
