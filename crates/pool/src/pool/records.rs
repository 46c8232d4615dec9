//! What the pool knows of each block besides its place.

use graphgrove_device::DevicePtr;

use crate::ranges::BlockId;

use super::frontier::Stamp;
use super::owner::Owner;

/// A block that is live or that a checkpoint remembers.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: BlockId,
    /// Rises when the block dies, so that handles of an earlier life cannot end a later one.
    pub(super) epoch: u32,
    /// How many handles and names somebody still has to give up.
    pub(super) claims: u32,
    pub(super) owner: Owner,
    pub(super) label: &'static str,
    pub(super) at: DevicePtr,
    /// Its length in bytes, rounded to granules.
    pub(super) bytes: u64,
    /// Bytes asked for.
    pub(super) asked: u64,
    pub(super) birth: Stamp,
    /// The last use on each stream other than the main one.
    pub(super) uses: Vec<Stamp>,
    /// How many of the uses have to be waited for before the bytes are free: not zero only after the block's death.
    pub(super) awaited: u32,
    /// The session that the block was born in, 0 for none, and the position of its request in it.
    pub(super) session: u64,
    pub(super) request: u32,
}

/// A (slot -> record) table: no two blocks that are live or remembered share a slot. A record of a block that is neither stays until
/// its slot is used again, and is never found, since the name differs.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Option<Record>>);

impl Records {
    pub(super) fn insert(&mut self, record: Record) {
        let at = record.id.slot() as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(record);
    }

    pub(super) fn get(&self, id: BlockId) -> Option<&Record> {
        self.0.get(id.slot() as usize)?.as_ref().filter(|record| record.id == id)
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> Option<&mut Record> {
        self.0.get_mut(id.slot() as usize)?.as_mut().filter(|record| record.id == id)
    }

    /// Forgets a block that never counted.
    pub(super) fn remove(&mut self, id: BlockId) {
        if self.get(id).is_some() {
            self.0[id.slot() as usize] = None;
        }
    }

    /// Ends the life of a block that somebody may still have a claim to: the claims count no more, and none of them ends a later life.
    pub(super) fn end_life(&mut self, id: BlockId) {
        if let Some(record) = self.get_mut(id) {
            record.claims = 0;
            record.epoch = record.epoch.wrapping_add(1);
        }
    }

    /// How many blocks the table has room for.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The blocks that somebody still has a claim to.
    pub(super) fn claimed(&self) -> impl Iterator<Item = BlockId> {
        self.0.iter().flatten().filter(|record| record.claims > 0).map(|record| record.id)
    }
}
