#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anew;
mod call;
mod decay;
mod decide;
mod decision;
mod ending;
mod error;
mod eviction;
mod explain;
mod follow;
mod function;
mod held;
mod identity;
mod ids;
mod index;
mod limits;
mod liveness;
mod matching;
mod names;
mod need;
mod node;
mod notice;
mod outline;
mod output;
mod params;
mod path;
mod reasons;
mod recording;
mod ticket;
mod tokens;
mod transition;
mod tree;
mod warming;

pub use call::{Call, CallKind, Input, Params, Phase, Source};
pub use decision::{Decision, PathChange, PathEnd, RecordPlan, Replay, WarmUpPlan};
pub use error::Error;
pub use explain::Explain;
pub use function::FunctionSpec;
pub use ids::{
    Address, Epoch, FunctionId, InputIndex, NodeId, ParamIndex, ParamSetId, ParamVersion, Signature, Slot,
    SlotIndex, SlotValue, Step, TokenId,
};
pub use limits::{Limits, Options, PendingRule};
pub use liveness::{DeadMask, LiveTable, Liveness};
pub use node::{Expected, ExpectedParams, Node, Role, StagedWhy};
pub use notice::Notice;
pub use output::{Fate, OldOutput, OldSlot, Output, OutputKind};
pub use path::PathState;
pub use reasons::{Demotion, EagerReason, Mismatch, RecordReason, WarmUpReason};
pub use ticket::{Recording, WarmUp};
pub use transition::Ran;
pub use tree::Tree;
