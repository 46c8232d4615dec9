//! A piece of pool memory, owned.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::{Device, DevicePtr};

use crate::ranges::BlockId;

use super::Shared;
use super::acquire::Acquired;
use super::gone::Gone;
use super::owner::Owner;

/// A piece of a pool's memory. Dropping it gives the memory back.
///
/// The drop may come from any thread at any time, also while a capture is open: it leaves a note and is done. It never calls the
/// driver, and never waits for work. The bytes are free at the next operation on the pool, or as soon after as every use that was
/// [declared](super::Pool::used_on) lies before what comes next; while [replays run](super::Pool::replayed), at the next restore.
///
/// A block keeps its pool's memory alive. One whose life was ended for it, by a session that was undone or a restore that did not name
/// it, is a number and no more: see [`Pool::is_live`](super::Pool::is_live).
#[must_use = "dropping a block gives its memory back"]
pub struct Block<D: Device> {
    shared: Arc<Shared<D>>,
    id: BlockId,
    epoch: u32,
    at: DevicePtr,
    bytes: u64,
    owner: Owner,
    label: &'static str,
    claimed: bool,
}

impl<D: Device> Block<D> {
    pub(super) fn new(
        shared: &Arc<Shared<D>>,
        acquired: Acquired,
        bytes: u64,
        owner: Owner,
        label: &'static str,
    ) -> Self {
        let Acquired { id, at, epoch } = acquired;
        Self { shared: Arc::clone(shared), id, epoch, at, bytes, owner, label, claimed: true }
    }

    /// The address, for kernel arguments.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.at
    }

    /// The bytes that were asked for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the block is for.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The block's name in reports and findings.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.label
    }

    /// The name by which checkpoints and restores know the block.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Takes the name out of the handle: the block stays live until [`Pool::release`](super::Pool::release) or a restore ends it. For
    /// callers who keep track of liveness themselves.
    #[must_use = "a block whose name is lost stays live until a restore"]
    pub fn into_id(mut self) -> BlockId {
        self.claimed = false;
        self.id
    }

    /// The life of the block that this is a handle of.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared<D>>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }
}

impl<D: Device> Drop for Block<D> {
    fn drop(&mut self) {
        if self.claimed {
            self.shared.drops.push(Gone::Block { id: self.id, epoch: self.epoch });
        }
    }
}

impl<D: Device> fmt::Debug for Block<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, at, bytes, owner, label, .. } = self;
        write!(f, "{owner} `{label}` {id}: {bytes} bytes at {at}")
    }
}
