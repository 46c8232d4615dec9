//! Tensors: typed, strided views of storages.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use graphgrove_device::DevicePtr;

use crate::block::Origin;
use crate::root::Kind;
use crate::storage::check_bounds;
use crate::{DType, Error, Layout, Signature, Slab, SlotIndex, Storage};

/// A typed, strided view of a storage.
///
/// Clones and views hold the same storage and count for its liveness wherever they go. Cloning one, and dropping it, is
/// one atomic operation while its layout is the recorded one, two after a view was taken.
#[derive(Clone)]
pub struct Tensor {
    storage: ManuallyDrop<Storage>,
    /// None means what is recorded for the slot that the storage is, so that taking an output neither reads nor counts a layout.
    layout: ManuallyDrop<Option<Arc<Layout>>>,
    /// The bytes from where the storage starts to the first element; without a layout as recorded too, and zero here.
    offset: u64,
    /// What a replay compares, where nothing can change it.
    fixed: Fixed,
}

/// The layout and the address of a tensor whose memory neither moves nor goes stale.
#[derive(Clone, Copy)]
struct Fixed {
    signature: Signature,
    address: DevicePtr,
}

impl Fixed {
    /// What may change. Zero throughout, so that taking an output writes it at once.
    const UNKNOWN: Self = Self { signature: Signature::UNKNOWN, address: DevicePtr::NULL };

    fn of(storage: &Storage, layout: &Layout, offset: u64) -> Self {
        match storage.kind() {
            // What is not the pool's never becomes a slot's.
            Kind::Block(block) if block.origin == Origin::Outside && !block.base.is_null() => block
                .base
                .checked_add(offset)
                .map_or(Self::UNKNOWN, |address| Self { signature: layout.signature(), address }),
            _ => Self::UNKNOWN,
        }
    }
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
        let fixed = Fixed::of(&storage, &layout, offset);
        Ok(Self::of(storage, Some(layout), offset, fixed))
    }

    #[inline]
    fn of(storage: Storage, layout: Option<Arc<Layout>>, offset: u64, fixed: Fixed) -> Self {
        Self { storage: ManuallyDrop::new(storage), layout: ManuallyDrop::new(layout), offset, fixed }
    }

    /// The output recorded for the slot that the storage is.
    #[inline]
    pub(crate) fn recorded(storage: Storage) -> Self {
        Self::of(storage, None, 0, Fixed::UNKNOWN)
    }

    /// A view whose bounds were checked when its node was recorded.
    pub(crate) fn checked(storage: Storage, view: Option<(Arc<Layout>, u64)>) -> Self {
        let (layout, offset) = view.map_or((None, 0), |(layout, offset)| (Some(layout), offset));
        Self::of(storage, layout, offset, Fixed::UNKNOWN)
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The storage, without the tensor.
    #[must_use]
    pub fn into_storage(self) -> Storage {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nothing uses or drops the parts afterwards.
        unsafe {
            ManuallyDrop::drop(&mut this.layout);
            ManuallyDrop::take(&mut this.storage)
        }
    }

    /// Where the elements lie, counted from the first one.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.shared_layout().map_or(&NO_LAYOUT, |layout| layout)
    }

    pub(crate) fn shared_layout(&self) -> Option<&Arc<Layout>> {
        match (&*self.layout, self.storage.kind()) {
            (Some(layout), _) => Some(layout),
            (None, Kind::Slot(hold)) => hold.sheet().table.layout(hold.slot()),
            (None, _) => None,
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
        match &*self.layout {
            Some(layout) => layout.signature(),
            None => self.layout().signature(),
        }
    }

    /// The bytes from where the storage starts to the first element.
    #[must_use]
    #[inline]
    pub fn offset_bytes(&self) -> u64 {
        match (&*self.layout, self.storage.kind()) {
            (None, Kind::Slot(hold)) => hold.sheet().table.place(hold.slot()).offset,
            _ => self.offset,
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
        match self.storage.kind() {
            Kind::Block(block) if block.adopted().is_none() => block.base.checked_add(self.offset),
            _ => self.locate_slot(),
        }
    }

    /// The address of the first element, as [`locate`](Self::locate), of a tensor with this layout; none for any other.
    #[must_use]
    #[inline]
    pub fn locate_as(&self, signature: Signature) -> Option<DevicePtr> {
        if self.fixed.signature == signature {
            return Some(self.fixed.address);
        }
        if let (Some(layout), Kind::Block(block)) = (&*self.layout, self.storage.kind())
            && block.adopted().is_none()
        {
            return if layout.signature() == signature { block.base.checked_add(self.offset) } else { None };
        }
        if self.signature() == signature { self.locate_slot() } else { None }
    }

    /// Whether the tensor has this layout and lies at this address, both for good: its memory is from outside of the pool. False
    /// says nothing of any other tensor; [`locate_as`](Self::locate_as) does.
    #[must_use]
    #[inline]
    pub fn is_fixed_at(&self, signature: Signature, address: DevicePtr) -> bool {
        self.fixed.signature == signature && self.fixed.address == address
    }

    #[inline(never)]
    fn locate_slot(&self) -> Option<DevicePtr> {
        self.address().ok()
    }

    /// Whether the tensor is a view of what the slab's last run left in a slot, and that is not gone.
    #[must_use]
    #[inline]
    pub fn is_value_of(&self, slab: &Slab, slot: SlotIndex) -> bool {
        let hold = match self.storage.kind() {
            Kind::Slot(hold) => hold,
            Kind::Block(block) => match block.adopted() {
                Some(hold) => hold,
                None => return false,
            },
            Kind::Empty => return false,
        };
        hold.slot() == slot && slab.is_of_last_run(hold)
    }

    /// Whether the tensor is what the slab's last run left in a slot, as it was handed back and without a closer look at what
    /// became of it. False says nothing of a view of it; [`is_value_of`](Self::is_value_of) does.
    #[must_use]
    #[inline]
    pub fn is_output_of(&self, slab: &Slab, slot: SlotIndex) -> bool {
        match (&*self.layout, self.storage.kind()) {
            (None, Kind::Slot(hold)) => hold.slot() == slot && slab.is_surely_of_last_run(hold),
            _ => false,
        }
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
        match (&*self.layout, self.storage.kind()) {
            (None, Kind::Slot(hold)) => Some(hold.slot()),
            _ => None,
        }
    }
}

impl Drop for Tensor {
    /// Gives the parts away by value. If their own drops got at them by reference, a tensor that is passed on would have to lie
    /// in memory wherever it might be dropped on the way, and taking an output into a list takes four times as long.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses the parts afterwards.
        let (storage, layout) =
            unsafe { (ManuallyDrop::take(&mut self.storage), ManuallyDrop::take(&mut self.layout)) };
        let_go(storage, layout);
    }
}

#[inline(never)]
fn let_go(storage: Storage, layout: Option<Arc<Layout>>) {
    if layout.is_some() || !storage.is_slot() {
        return let_go_of_view(storage, layout);
    }
    drop(storage);
}

#[cold]
#[inline(never)]
fn let_go_of_view(storage: Storage, layout: Option<Arc<Layout>>) {
    drop((storage, layout));
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
        write!(f, ", byte {} of {:?})", self.offset_bytes(), *self.storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, PlannedOutput, Step};

    fn layout() -> Layout {
        Layout::of::<f32>(&[4]).unwrap()
    }

    fn is_fixed(tensor: &Tensor, at: u64) -> bool {
        tensor.is_fixed_at(layout().signature(), DevicePtr::new(at))
    }

    #[test]
    fn memory_from_outside_stays_at_its_address_in_every_handle() {
        let tensor = Tensor::new(Storage::unowned(DevicePtr::new(0x100), 64), layout(), 32).unwrap();
        for handle in [&tensor, &tensor.clone()] {
            assert!(is_fixed(handle, 0x120) && !is_fixed(handle, 0x100));
            assert!(
                !handle.is_fixed_at(Layout::of::<f32>(&[2, 2]).unwrap().signature(), DevicePtr::new(0x120))
            );
        }
        let view = tensor.slice(0, 2..3, 1).unwrap();
        assert!(view.is_fixed_at(view.signature(), DevicePtr::new(0x128)));
    }

    #[test]
    fn a_tensor_prints_its_layout_its_place_and_the_storage_it_lies_in() {
        let tensor = Tensor::new(Storage::unowned(DevicePtr::new(0x100), 64), layout(), 32).unwrap();
        let storage = tensor.storage();
        assert_eq!(format!("{tensor:?}"), format!("Tensor(f32 [4] strides [1], byte 32 of {storage:?})"));
        assert!(format!("{storage:?}").starts_with("Storage(allocation "));
        let empty = Tensor::empty(Layout::of::<f32>(&[0, 2]).unwrap()).unwrap();
        assert_eq!(format!("{empty:?}"), "Tensor(f32 [0, 2] strides [2, 1], byte 0 of Storage(empty))");
    }

    #[test]
    fn handles_are_small_and_so_are_places_for_one() {
        assert_eq!((size_of::<Storage>(), size_of::<Tensor>()), (16, 48));
        assert_eq!(size_of::<Option<Tensor>>(), size_of::<Tensor>());
    }

    #[test]
    fn an_output_is_told_from_its_views_and_from_those_of_other_runs_and_slabs() {
        let planned = |at| PlannedOutput::fresh(DevicePtr::new(at), 64, layout());
        let slab = |at| Slab::new(&Ledger::new(), "F", 0, vec![planned(at), planned(at + 64)]).unwrap();
        let (mut slab, mut other) = (slab(0x100), slab(0x200));
        let run = |slab: &mut Slab| {
            slab.hand_back(Step::new(1), |_, _| None).unwrap().outputs.take(SlotIndex::new(0)).unwrap()
        };
        let (output, foreign) = (run(&mut slab), run(&mut other));
        let is_it = |tensor: &Tensor, slab: &Slab, slot| tensor.is_output_of(slab, SlotIndex::new(slot));
        assert!(is_it(&output, &slab, 0) && is_it(&output.clone(), &slab, 0));
        assert!(!is_it(&output, &slab, 1) && !is_it(&output, &other, 0) && !is_it(&foreign, &slab, 0));
        assert!(!is_it(&output.slice(0, 0..4, 1).unwrap(), &slab, 0));
        let newer = run(&mut slab);
        assert!(!is_it(&output, &slab, 0) && is_it(&newer, &slab, 0));
    }

    #[test]
    fn what_may_become_stale_or_move_is_not_fixed() {
        let block = Storage::pool_block(DevicePtr::new(0x100), 64, Box::new(()));
        assert!(!is_fixed(&Tensor::new(block, layout(), 0).unwrap(), 0x100));
        let planned = PlannedOutput::fresh(DevicePtr::new(0x100), 64, layout());
        let mut slab = Slab::new(&Ledger::new(), "F", 0, vec![planned]).unwrap();
        let mut back = slab.hand_back(Step::new(1), |_, _| None).unwrap();
        let output = back.outputs.take(SlotIndex::new(0)).unwrap();
        let view = output.slice(0, 0..4, 1).unwrap();
        assert!(!is_fixed(&output, 0x100) && !is_fixed(&view, 0x100));
        assert!(
            !Tensor::empty(Layout::of::<f32>(&[0]).unwrap())
                .unwrap()
                .is_fixed_at(layout().signature(), DevicePtr::NULL)
        );
    }
}
