//! The storage cache: one storage per block on a path.

use std::collections::BTreeMap;

use graphgrove_device::DevicePtr;

use crate::{Error, Storage, StorageId, Watch};

/// The live storages of a path, by where their blocks lie.
///
/// It answers the one question that handles cannot: which storage an address belongs to, when memory comes back from code
/// that hands out addresses. A hit is always a live storage. Identity is the allocation: when a storage has died and its
/// address is handed out again, the new storage takes its place.
#[derive(Default)]
pub struct StorageCache {
    /// A (base -> entry) pair means: the block that starts at this address was that storage's when it was added.
    blocks: BTreeMap<u64, Entry>,
}

struct Entry {
    bytes: u64,
    /// What knows the storage, which has the identity of its slot once it is an output.
    watch: Watch,
}

impl StorageCache {
    /// A cache without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a storage. One without memory has nothing to be found by and is not added; one that is there already stays.
    ///
    /// # Errors
    /// [`Error::BlockShared`] if another live storage has some of the block, [`Error::Stale`].
    pub fn add(&mut self, storage: &Storage) -> Result<Option<StorageId>, Error> {
        let (Some(id), Some(watch)) = (storage.id()?, storage.watch()) else { return Ok(None) };
        let (base, bytes) = (storage.base()?, storage.bytes()?);
        if bytes == 0 || base.is_null() {
            return Ok(None);
        }
        let end = base.get().saturating_add(bytes);
        let mut dead = Vec::new();
        for (&start, entry) in self.blocks.range(..end).rev() {
            // Live blocks do not overlap, so the first live one that ends before this block has none behind it that reaches it.
            let reaches = start.saturating_add(entry.bytes) > base.get();
            match (reaches, entry.watch.id()) {
                (true, Some(holder)) if holder == id => return Ok(Some(id)),
                (true, Some(holder)) => return Err(Error::BlockShared { base, bytes, holder }),
                (_, None) => dead.push(start),
                (false, Some(_)) => break,
            }
        }
        for start in dead {
            self.blocks.remove(&start);
        }
        self.blocks.insert(base.get(), Entry { bytes, watch });
        Ok(Some(id))
    }

    /// The live storage that has all of these bytes, and how far from its start they lie.
    #[must_use]
    pub fn find(&self, at: DevicePtr, bytes: u64) -> Option<(StorageId, u64)> {
        let mut before = self.blocks.range(..=at.get()).rev();
        let (start, size, id) =
            before.find_map(|(&start, entry)| Some((start, entry.bytes, entry.watch.id()?)))?;
        let offset = at.get() - start;
        let end = offset.checked_add(bytes)?;
        (end <= size).then_some((id, offset))
    }

    /// The live storages, lowest address first.
    pub fn live(&self) -> impl Iterator<Item = (StorageId, DevicePtr, u64)> {
        self.blocks
            .iter()
            .filter_map(|(&start, entry)| Some((entry.watch.id()?, DevicePtr::new(start), entry.bytes)))
    }

    /// Forgets the storage whose block starts here, as when the call that brings its last handles is about to drop them.
    pub fn forget(&mut self, base: DevicePtr) {
        self.blocks.remove(&base.get());
    }

    /// Forgets what has died.
    pub fn sweep(&mut self) {
        self.blocks.retain(|_, entry| entry.watch.is_live());
    }

    /// Forgets everything, as when a path is over.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}
