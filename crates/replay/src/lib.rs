#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod call;
mod check;
mod costs;
mod error;
mod expected;
mod journal;
mod mismatch;
mod node;
mod order;
mod outputs;
mod params;
mod path;
mod record;
mod reference;
mod replayer;
mod runs;
mod stage_plan;
mod staging;
mod uploads;

pub use call::{AsInput, Call, Input};
pub use costs::Costs;
pub use error::{Error, Unpatchable};
pub use expected::{Expected, Route, param_input};
pub use mismatch::Mismatch;
pub use node::Recording;
pub use outputs::CallOutputs;
pub use params::{ParamSet, ParamSetId, ParamVersion};
pub use record::{Captured, Recorder, Uses};
pub use replayer::{Checked, Method, NodeKey, Replayed, Replayer};
pub use stage_plan::{MOST_RUNS, StagePlan, Staged};
