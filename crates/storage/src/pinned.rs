//! Tensors whose addresses are in hands that cannot be told of a change.

use std::fmt;

use graphgrove_device::DevicePtr;

use crate::block::Origin;
use crate::root::Kind;
use crate::sheet::Found;
use crate::{Error, Tensor};

/// A tensor whose memory stays what it is: it does not become stale, is not copied out, and its node does not run again
/// while this exists.
///
/// It is for whoever passes an address on, to another framework or another thread, and could not take it back: a plain
/// [`address`](Tensor::address) is right only until the next step begins.
pub struct Pinned {
    tensor: Tensor,
    address: DevicePtr,
    /// Whether a pin was counted; memory from outside of the pool, with an owner of its own, needs none.
    is_counted: bool,
}

impl Tensor {
    /// Pins the tensor's memory. A block of the pool that becomes an output later is pinned as that output.
    ///
    /// # Errors
    /// [`Error::Stale`]
    pub fn pin(&self) -> Result<Pinned, Error> {
        let is_counted = match self.storage().kind() {
            Kind::Block(block) if block.origin == Origin::Pool && block.pin() => true,
            _ => match self.storage().hold() {
                None => false,
                Some(hold) => matches!(hold.sheet().pin(hold.slot(), hold.epoch())?, Found::Here),
            },
        };
        let mut pinned = Pinned { tensor: self.clone(), address: DevicePtr::NULL, is_counted };
        pinned.address = self.address()?;
        Ok(pinned)
    }
}

impl Pinned {
    /// The address of the first element; null for a tensor without memory.
    #[must_use]
    pub const fn address(&self) -> DevicePtr {
        self.address
    }

    /// The tensor.
    #[must_use]
    pub const fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        match self.tensor.storage().kind() {
            Kind::Slot(hold) if self.is_counted => hold.sheet().unpin(hold.slot()),
            Kind::Block(block) if self.is_counted => block.unpin(),
            _ => {}
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({:?})", self.tensor)
    }
}
