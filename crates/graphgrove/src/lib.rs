#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod arg;
mod budget;
mod builder;
mod captured;
mod clock;
mod context;
mod describe;
mod draws;
mod effects;
mod engine;
mod error;
mod event;
mod function;
mod generator;
mod grove;
mod host_values;
mod json_lines;
mod kit;
mod known;
mod layers;
mod layouts;
mod lent;
mod memory;
mod mode;
mod no_room;
mod notes;
mod observer;
mod outputs;
mod path_end;
pub mod philox;
mod plain;
mod reasons;
mod recent;
mod recorded;
mod replaying;
mod retired;
mod side_stream;
mod stats;
mod switch;
mod warmed;
mod watching;

pub use arg::Arg;
pub use builder::EngineBuilder;
pub use clock::Clock;
pub use context::Context;
pub use draws::Random;
pub use engine::Engine;
pub use error::{Error, Missing, Result};
pub use event::{Event, FunctionName, How, Phase};
pub use function::{Calling, Function, FunctionOptions};
pub use generator::{Generator, GeneratorState};
pub use graphgrove_device::{Args, Device, LaunchDims};
pub use graphgrove_pool::pool::{Growth, PoolConfig, PoolStats};
pub use graphgrove_replay::ParamSet;
pub use graphgrove_storage::{DType, Element, Layout, Storage, Tensor};
pub use graphgrove_tree::{Limits, OldOutput};
pub use host_values::HostValue;
pub use json_lines::JsonLines;
pub use layers::Layers;
pub use mode::Mode;
pub use observer::Observer;
pub use outputs::{Backward, Outputs};
pub use side_stream::{OnSide, SideStream};
pub use stats::{CallStats, EngineStats, Reason};

/// The guide and the README at the top, whose examples are compiled and run along with those of the crate.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    struct Top;
    #[doc = include_str!("../../../docs/guide/concepts.md")]
    struct Concepts;
    #[doc = include_str!("../../../docs/guide/how-to.md")]
    struct HowTo;
    #[doc = include_str!("../../../docs/guide/errors.md")]
    struct Errors;
}
