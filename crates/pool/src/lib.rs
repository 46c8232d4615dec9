#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod error;
pub mod ranges;

pub use error::PoolError;
