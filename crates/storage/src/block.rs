//! Memory with an owner of its own: parameters, constants, tensors from elsewhere, and the pool's blocks while a function
//! runs.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use graphgrove_device::DevicePtr;

use crate::AllocationId;
use crate::hold::Hold;
use crate::sync::{Mutex, lock};

/// Whatever gives memory back when it is dropped.
pub type Owner = Box<dyn Any + Send + Sync>;

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the pool, for the function that is running. When it becomes an output, its block passes to the output's slot.
    Pool,
    /// From anywhere else.
    Outside,
}

/// One piece of memory that was obtained at one time.
pub(crate) struct Block {
    pub(crate) id: AllocationId,
    pub(crate) base: DevicePtr,
    pub(crate) bytes: u64,
    pub(crate) origin: Origin,
    owner: Mutex<Option<Owner>>,
    /// The slot that the block became, once it is an output. The hold is for the handles of the block that are left: they
    /// count for the slot's liveness, wherever they have got to, and go stale with it.
    adopted: OnceLock<Hold>,
}

impl Block {
    pub(crate) fn new(base: DevicePtr, bytes: u64, origin: Origin, owner: Option<Owner>) -> Arc<Self> {
        Arc::new(Self {
            id: AllocationId::next(),
            base,
            bytes,
            origin,
            owner: Mutex::new(owner),
            adopted: OnceLock::new(),
        })
    }

    pub(crate) fn adopted(&self) -> Option<&Hold> {
        self.adopted.get()
    }

    /// Makes the block a slot's. Returns the owner of its memory; none if there was none or the block is a slot's already.
    pub(crate) fn adopt(&self, hold: Hold) -> Option<Owner> {
        self.adopted.set(hold).ok()?;
        lock(&self.owner).take()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes at {})", self.id, self.bytes, self.base)
    }
}
