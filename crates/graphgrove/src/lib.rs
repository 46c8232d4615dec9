#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod arg;
mod captured;
mod context;
mod describe;
mod engine;
mod error;
mod function;
mod grove;
mod layers;
mod layouts;
mod memory;
mod mode;
mod outputs;
mod path_end;
mod plain;
mod reasons;
mod recorded;
mod stats;
mod warmed;

pub use arg::Arg;
pub use context::Context;
pub use engine::{Engine, EngineBuilder};
pub use error::{Error, Result};
pub use function::{Calling, Function, FunctionOptions};
pub use graphgrove_replay::ParamSet;
pub use graphgrove_storage::{DType, Element, Layout, Storage, Tensor};
pub use graphgrove_tree::{Limits, OldOutput};
pub use layers::Layers;
pub use mode::Mode;
pub use outputs::{Backward, Outputs};
pub use stats::{CallStats, EngineStats, Reason};
