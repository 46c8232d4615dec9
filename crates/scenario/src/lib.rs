#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod error;
mod expectation;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod parse;
mod place;
mod print;
pub mod program;
mod run;
mod setting;
mod setup;

pub use error::{ParseError, Problem, Result};
pub use expectation::{Comparison, Counter, Demand, Expectation, Measure, Values};
pub use parse::parse;
pub use place::Place;
pub use program::{
    Binary, ErrorKind, Fill, Function, ModeName, Name, NewTensor, Number, Old, Operand, Scenario, Shape,
    Statement, Unary, View, What, When, mixed,
};
pub use run::{Finding, Options, Outcome, Report, run, setups};
pub use setting::{Capability, Filter, Limit, Setting};
pub use setup::{LAYERS, Setup};
