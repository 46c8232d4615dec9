//! Who can still reach which device memory, known at every moment and for almost nothing.
#![deny(unsafe_op_in_unsafe_fn)]

mod alias;
mod block;
mod cache;
mod class;
#[cfg(feature = "dlpack")]
mod dlpack;
mod dtype;
mod error;
mod hold;
mod ids;
mod inputs;
mod layout;
mod ledger;
mod masks;
mod old_outputs;
mod outputs;
mod overlap;
mod pinned;
mod saved;
mod sheet;
mod signature;
mod slab;
mod stale;
mod storage;
mod sync;
mod table;
mod tensor;
mod views;

pub use alias::{OutputSpec, plan_outputs};
pub use block::{Origin, Owner};
pub use cache::StorageCache;
pub use class::{HandBack, Liveness, Meaning, OutputClass, PersistentSource, PlannedOutput, Readers};
#[cfg(feature = "dlpack")]
pub use dlpack::{Dlpack, DlpackDevice, DlpackProblem};
pub use dtype::{DType, Element};
pub use error::Error;
pub use ids::{AllocationId, Epoch, InputIndex, SlabId, SlotIndex, SlotValue, Step, StorageId};
pub use inputs::{Conflict, InputPlan, InputRole, InputSpec, Misfit, StageGroup, Staged, StagedBecause};
pub use layout::Layout;
pub use ledger::Ledger;
pub use masks::{DeadMask, DeadMasks, LiveStorage, LiveWords, live_storages};
pub use old_outputs::{Ended, OldOutput};
pub use outputs::Outputs;
pub use pinned::Pinned;
pub use saved::SavedOutputs;
pub use sheet::Holders;
pub use signature::Signature;
pub use slab::{HandedBack, Slab};
pub use stale::{Cause, Event, Remedy, Stale};
pub use storage::{Storage, Watch};
pub use tensor::{Passed, Tensor};
