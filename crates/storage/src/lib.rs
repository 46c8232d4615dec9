//! Who can still reach which device memory: known at every moment, exactly, and for almost nothing.
//!
//! # Storages and tensors
//!
//! A [`Storage`] owns one piece of memory; a [`Tensor`] is a typed, strided view of one. The memory is *live* while any of
//! them exists, whoever has it. A storage is either an output of a recorded node, a slot of a [`Slab`], or memory with an
//! owner of its own: a parameter, the caller's own tensor, a block that the pool has just handed to a function. Identity is
//! the allocation ([`StorageId`]), never the address.
//!
//! # A node's outputs
//!
//! A slab is made once a node. Each run of the node [hands its outputs back](Slab::hand_back): their bits are set, 64 at a
//! time, in a new [`Epoch`]. The [`Outputs`] hold them until they are taken one by one; the [`SavedOutputs`] hold what only
//! a backward reads, for as long as its token. The last holder of a slot clears its bit, and that is all that a drop does:
//! what has [died](Slab::died) is asked for by whoever owns the pool. Every handle of an earlier run is [`Stale`]. A report of
//! who keeps a slot alive has the numbers from its [`Holders`], and names from its [takers](Slab::takers) while they are noted.
//!
//! # Aliases
//!
//! Two questions are answered once, when a function is recorded, and are data from then on. [`InputPlan`] says which inputs
//! are used where they are and which are copied first, alignment and overlap included. [`plan_outputs`] says what each
//! output is: fresh, or an alias of a parameter, a constant, an earlier slot, a sibling or a staged input, or empty, or not
//! a tensor. [`OutputClass::meaning`] says what that means for liveness, caching, hand-back and checkpoint.
//!
//! # Whole paths
//!
//! [`DeadMasks`] are what a recording relies on; [`live_storages`] what a checkpoint keeps; a [`StorageCache`] finds the one
//! live storage that an address lies in. [`Slab::end_step`] deals with what is still live when a new step begins.
//!
//! # Threads
//!
//! Handles, outputs and tokens are `Send + Sync` and may be dropped anywhere at any time. A slab belongs to whoever runs the
//! node and is changed by `&mut`. A tensor's [address](Tensor::address) is right until the next step begins; whoever cannot
//! know when that is [pins](Tensor::pin) it.
//!
//! # Unsafe code
//!
//! Handles are bare pointers kept valid by the very bits that they set, since a reference count of their own would double
//! what taking, cloning and dropping them costs. It is all in `hold.rs` and `root.rs`, in the drop of a tensor,
//! and in the places that give a counted hold up or take one over; the invariant is stated in `sheet.rs`.

mod abandoned;
mod alias;
mod block;
mod cache;
mod class;
#[cfg(feature = "dlpack")]
mod dlpack;
mod dtype;
mod error;
mod hold;
mod home;
mod ids;
mod inputs;
mod layout;
mod ledger;
mod masks;
mod misfit;
mod old_outputs;
mod orphans;
mod outputs;
mod overlap;
mod pinned;
mod release;
mod root;
mod runs;
mod saved;
mod sheet;
mod signature;
mod slab;
mod staging;
mod stale;
mod storage;
mod sync;
mod table;
mod takers;
mod tensor;
mod views;
mod word;

pub use abandoned::abandon;
pub use alias::{OutputSpec, plan_outputs};
pub use block::{Origin, Owner};
pub use cache::StorageCache;
pub use class::{HandBack, Liveness, Meaning, OutputClass, PersistentSource, PlannedOutput, Readers};
#[cfg(feature = "dlpack")]
pub use dlpack::{Dlpack, DlpackDevice, DlpackProblem};
pub use dtype::{DType, Element};
pub use error::Error;
#[cfg(loom)]
pub use home::end_thread;
pub use ids::{AllocationId, Epoch, InputIndex, SlabId, SlotIndex, SlotValue, Step, StorageId};
pub use inputs::{InputPlan, InputRole, InputSpec, Staged, StagedBecause};
pub use layout::Layout;
pub use ledger::Ledger;
pub use masks::{DeadMask, DeadMasks, LiveStorage, LiveWords, live_storages};
pub use misfit::Misfit;
pub use old_outputs::{Ended, Ending, OldOutput};
pub use outputs::{Outputs, TakeAll};
pub use pinned::Pinned;
pub use runs::{ByteRuns, Repeat};
pub use saved::SavedOutputs;
pub use sheet::Holders;
pub use signature::Signature;
pub use slab::{HandedBack, Slab};
pub use staging::{Conflict, StageGroup};
pub use stale::{Cause, Event, Remedy, Stale};
pub use storage::{Storage, Watch};
pub use takers::Taker;
pub use tensor::{Passed, Tensor};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
