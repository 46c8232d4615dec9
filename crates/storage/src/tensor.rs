//! Tensors: typed, strided views of storages.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::DevicePtr;

use crate::storage::{Kind, check_bounds};
use crate::{DType, Error, Layout, Signature, Slab, SlotIndex, Storage};

/// A typed, strided view of a storage.
///
/// Clones and views hold the same storage and count for its liveness wherever they go. Cloning one, and dropping it, is
/// one atomic operation while its layout is the recorded one, two after a view was taken.
#[derive(Clone)]
pub struct Tensor {
    storage: Storage,
    /// The layout, and the bytes from where the storage starts to the first element. None means those recorded for the slot
    /// that the storage is, so that taking an output need not read them.
    view: Option<(Arc<Layout>, u64)>,
}

/// What stands in for a recorded layout that cannot be missing.
static NO_LAYOUT: std::sync::LazyLock<Layout> = std::sync::LazyLock::new(Layout::nothing);

impl Tensor {
    /// A view of a storage, `offset` bytes from its start on. A layout without elements needs no memory, and lies at the
    /// storage's end if its offset is larger.
    ///
    /// # Errors
    /// [`Error::OutOfStorage`], [`Error::Stale`]
    pub fn new(storage: Storage, layout: Layout, offset: u64) -> Result<Self, Error> {
        Self::with(storage, Arc::new(layout), offset)
    }

    /// A tensor without elements.
    ///
    /// # Errors
    /// [`Error::OutOfStorage`] if the layout has elements.
    pub fn empty(layout: Layout) -> Result<Self, Error> {
        Self::new(Storage::empty(), layout, 0)
    }

    pub(crate) fn with(storage: Storage, layout: Arc<Layout>, offset: u64) -> Result<Self, Error> {
        let bytes = storage.bytes()?;
        let offset = if layout.is_empty() {
            offset.min(bytes)
        } else {
            check_bounds(offset, layout.span_bytes(), bytes)?;
            offset
        };
        Ok(Self { storage, view: Some((layout, offset)) })
    }

    /// The output recorded for the slot that the storage is.
    #[inline]
    pub(crate) fn recorded(storage: Storage) -> Self {
        Self { storage, view: None }
    }

    /// A view whose bounds were checked when its node was recorded.
    pub(crate) fn checked(storage: Storage, view: Option<(Arc<Layout>, u64)>) -> Self {
        Self { storage, view }
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The storage, without the tensor.
    #[must_use]
    pub fn into_storage(self) -> Storage {
        self.storage
    }

    /// Where the elements lie, counted from the first one.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.shared_layout().map_or(&NO_LAYOUT, |layout| layout)
    }

    pub(crate) fn shared_layout(&self) -> Option<&Arc<Layout>> {
        match (&self.view, &self.storage.0) {
            (Some((layout, _)), _) => Some(layout),
            (None, Kind::Slot(hold)) => hold.sheet().table.layout(hold.slot()),
            _ => None,
        }
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.layout().dtype()
    }

    /// The size of each dimension.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        self.layout().shape()
    }

    /// The stride of each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[u64] {
        self.layout().strides()
    }

    /// What a recording compares of its inputs: element type, shape and strides in one word.
    #[must_use]
    #[inline]
    pub fn signature(&self) -> Signature {
        match &self.view {
            Some((layout, _)) => layout.signature(),
            None => self.layout().signature(),
        }
    }

    /// The bytes from where the storage starts to the first element.
    #[must_use]
    #[inline]
    pub fn offset_bytes(&self) -> u64 {
        match (&self.view, &self.storage.0) {
            (Some((_, offset)), _) => *offset,
            (None, Kind::Slot(hold)) => hold.sheet().table.place(hold.slot()).offset,
            _ => 0,
        }
    }

    /// The address of the first element; null for a tensor without memory.
    ///
    /// It is right for as long as the handle does not go stale: until a new step begins or the node runs again.
    ///
    /// # Errors
    /// [`Error::Stale`]
    #[inline]
    pub fn address(&self) -> Result<DevicePtr, Error> {
        let base = self.storage.base()?;
        if base.is_null() {
            return Ok(base);
        }
        base.checked_add(self.offset_bytes()).ok_or(Error::TooLarge)
    }

    /// Everything that a call asks of a tensor that is passed to it.
    ///
    /// # Errors
    /// [`Error::Stale`]
    pub fn as_input(&self) -> Result<Passed, Error> {
        let storage = self.storage.id()?.filter(|_| !self.layout().is_empty());
        Ok(Passed { storage, address: self.address()?, signature: self.signature() })
    }

    /// The address of the first element, null for a tensor without memory; none if the value is gone. It is
    /// [`address`](Self::address) for whoever does not ask why.
    #[must_use]
    #[inline]
    pub fn locate(&self) -> Option<DevicePtr> {
        match &self.storage.0 {
            Kind::Block(block) if block.adopted().is_none() => {
                let offset = self.view.as_ref().map_or(0, |(_, offset)| *offset);
                block.base.checked_add(offset)
            }
            _ => self.locate_slot(),
        }
    }

    /// The address of the first element, as [`locate`](Self::locate), of a tensor with this layout; none for any other.
    #[must_use]
    #[inline]
    pub fn locate_as(&self, signature: Signature) -> Option<DevicePtr> {
        if let (Some((layout, offset)), Kind::Block(block)) = (&self.view, &self.storage.0)
            && block.adopted().is_none()
        {
            return if layout.signature() == signature { block.base.checked_add(*offset) } else { None };
        }
        if self.signature() == signature { self.locate_slot() } else { None }
    }

    #[inline(never)]
    fn locate_slot(&self) -> Option<DevicePtr> {
        self.address().ok()
    }

    /// Whether the tensor is a view of what the slab's last run left in a slot, and that is not gone.
    #[must_use]
    #[inline]
    pub fn is_value_of(&self, slab: &Slab, slot: SlotIndex) -> bool {
        let hold = match &self.storage.0 {
            Kind::Slot(hold) => hold,
            Kind::Block(block) => match block.adopted() {
                Some(hold) => hold,
                None => return false,
            },
            Kind::Empty => return false,
        };
        hold.slot() == slot && slab.is_of_last_run(hold)
    }

    /// Whether the two lie in the same memory, at whatever places.
    ///
    /// # Errors
    /// [`Error::Stale`], if either is.
    pub fn shares_storage(&self, other: &Self) -> Result<bool, Error> {
        self.storage.is_same(&other.storage)
    }

    /// The slot whose recorded output this is, if it was handed back by a node and no view was taken of it.
    #[must_use]
    pub fn output(&self) -> Option<SlotIndex> {
        match (&self.view, &self.storage.0) {
            (None, Kind::Slot(hold)) => Some(hold.slot()),
            _ => None,
        }
    }
}

/// A tensor as a call sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The identity of its memory; none for a tensor without elements.
    pub storage: Option<crate::StorageId>,
    /// The address of its first element.
    pub address: DevicePtr,
    /// Its layout.
    pub signature: Signature,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout();
        write!(f, "Tensor({} {:?} strides {:?}", layout.dtype(), layout.shape(), layout.strides())?;
        write!(f, ", byte {} of {:?})", self.offset_bytes(), self.storage)
    }
}
