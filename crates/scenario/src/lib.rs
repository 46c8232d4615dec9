#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod bound;
mod check;
mod error;
mod expectation;
mod function;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod number;
mod parse;
mod place;
mod print;
pub mod program;
mod requirements;
mod run;
mod setting;
mod setup;

pub use bound::{MOST_ENGINES, MOST_STATEMENTS, MOST_THREADS};
pub use error::{ParseError, Problem, Result};
pub use expectation::{Comparison, Counter, Demand, Expectation, Measure, Values};
pub use function::{Binary, Function, Operand, Unary, When, mixed};
pub use parse::parse;
pub use place::Place;
pub use program::{
    ErrorKind, Fill, ModeName, Name, NewTensor, Number, Old, Scenario, Shape, Statement, View, What,
};
pub use run::{Cuda, Finding, Options, Outcome, Report, RunOn, run, setups};
pub use setting::{Capability, Filter, Limit, Setting};
pub use setup::{LAYERS, Setup};
