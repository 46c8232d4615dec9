//! Memory with an owner of its own: parameters, constants, tensors from elsewhere, and the pool's blocks while a function
//! runs.

use std::any::{Any, TypeId};
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

struct State {
    owner: Option<Owner>,
    /// How often somebody has the block's address and cannot be told of a new one; once the block is a slot's, the slot
    /// counts that.
    pins: usize,
}

/// One piece of memory that was obtained at one time.
pub(crate) struct Block {
    pub(crate) id: AllocationId,
    pub(crate) base: DevicePtr,
    pub(crate) bytes: u64,
    pub(crate) origin: Origin,
    /// The type of the owner that it began with.
    owned_by: Option<TypeId>,
    state: Mutex<State>,
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
            owned_by: owner.as_deref().map(Any::type_id),
            state: Mutex::new(State { owner, pins: 0 }),
            adopted: OnceLock::new(),
        })
    }

    #[inline]
    pub(crate) fn adopted(&self) -> Option<&Hold> {
        self.adopted.get()
    }

    /// Makes the block a slot's, pins included. Returns the owner of its memory; none if there was none or the block is a
    /// slot's already.
    pub(crate) fn adopt(&self, hold: Hold) -> Option<Owner> {
        let mut state = lock(&self.state);
        // Under the lock under which pins are taken: one that is not among those passed on here finds the slot.
        self.adopted.set(hold).ok()?;
        if let Some(hold) = self.adopted() {
            hold.sheet().add_pins(hold.slot(), std::mem::take(&mut state.pins));
        }
        state.owner.take()
    }

    /// Whether its memory is given back by a `T`. A block that never was is told apart without the lock.
    #[inline]
    pub(crate) fn is_owned_by<T: Any>(&self) -> bool {
        self.owned_by == Some(TypeId::of::<T>()) && lock(&self.state).owner.is_some()
    }

    /// Pins the block's address. Returns whether it did: a block that is a slot's already is pinned there.
    pub(crate) fn pin(&self) -> bool {
        let mut state = lock(&self.state);
        let is_free = self.adopted().is_none();
        state.pins += usize::from(is_free);
        is_free
    }

    /// Takes back one pin, wherever it is counted now.
    pub(crate) fn unpin(&self) {
        let mut state = lock(&self.state);
        match self.adopted() {
            Some(hold) => hold.sheet().unpin(hold.slot()),
            None => state.pins = state.pins.saturating_sub(1),
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes at {})", self.id, self.bytes, self.base)
    }
}
