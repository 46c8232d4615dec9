//! Parameter sets: inputs whose addresses are declared stable, compared by one number.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove_device::DevicePtr;
use graphgrove_storage::{Signature, StorageId, Tensor};

use crate::Error;

/// The identity of a parameter set. Ids are not used again in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamSetId(u64);

/// How often a set was changed. It moves with every change, so an equal number means equal addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamVersion(u64);

impl ParamSetId {
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl ParamVersion {
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The parameters of a function: weights, caches, buffers whose addresses stay from call to call.
///
/// A set holds its tensors, so their memory lives for as long as it may be launched with; and the only way to change one is
/// to change the set, which moves its version. So a replay compares one number, however many parameters there are, and can
/// never launch with an address that was freed or moved (pytorch/pytorch#122251, lablup/mlxcel#831).
///
/// ```
/// use graphgrove_device::DevicePtr;
/// use graphgrove_replay::ParamSet;
/// use graphgrove_storage::{Layout, Storage, Tensor};
///
/// let weight = |at| Tensor::new(Storage::unowned(DevicePtr::new(at), 64), Layout::of::<f32>(&[16]).unwrap(), 0).unwrap();
/// let mut params = ParamSet::new(vec![weight(0x1000), weight(0x2000)])?;
/// let before = params.version();
/// params.replace(1, weight(0x3000))?;
/// assert_ne!(params.version(), before);
/// # Ok::<(), graphgrove_replay::Error>(())
/// ```
pub struct ParamSet {
    id: ParamSetId,
    version: ParamVersion,
    tensors: Vec<Tensor>,
    places: Arc<[ParamPlace]>,
}

/// Where a parameter is, and what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParamPlace {
    pub(crate) address: DevicePtr,
    pub(crate) signature: Signature,
    /// Bytes from the first element to the end of the last one.
    pub(crate) span: u64,
}

impl ParamSet {
    /// A set of these tensors.
    ///
    /// # Errors
    /// [`Error::StaleParameter`], and [`Error::UnstableParameter`] for an output of a recorded function, whose memory is written over.
    pub fn new(tensors: Vec<Tensor>) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let tensors: Vec<Tensor> = tensors.into_iter().map(apart).collect();
        let places = tensors.iter().enumerate().map(|(param, tensor)| place(param, tensor));
        Ok(Self {
            id: ParamSetId(NEXT.fetch_add(1, Ordering::Relaxed)),
            version: ParamVersion(1),
            places: places.collect::<Result<_, _>>()?,
            tensors,
        })
    }

    /// Puts another tensor in a parameter's place, as when weights are loaded anew, and returns the one that was there.
    ///
    /// # Errors
    /// [`Error::NoSuchParameter`], and as [`new`](Self::new). The set is as it was then.
    pub fn replace(&mut self, param: usize, tensor: Tensor) -> Result<Tensor, Error> {
        let count = self.tensors.len();
        let slot = self.tensors.get_mut(param).ok_or(Error::NoSuchParameter { param, count })?;
        let tensor = apart(tensor);
        let new = place(param, &tensor)?;
        self.places =
            self.places.iter().enumerate().map(|(at, old)| if at == param { new } else { *old }).collect();
        self.version = ParamVersion(self.version.0 + 1);
        Ok(std::mem::replace(slot, tensor))
    }

    /// The identity of the set.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> ParamSetId {
        self.id
    }

    /// How often the set was changed.
    #[must_use]
    #[inline]
    pub const fn version(&self) -> ParamVersion {
        self.version
    }

    /// The parameters.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The address of each parameter; null for one without memory.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = DevicePtr> {
        self.places.iter().map(|place| place.address)
    }

    pub(crate) fn places(&self) -> &Arc<[ParamPlace]> {
        &self.places
    }
}

/// A view of nothing is a parameter wherever it was, and it would be stale with what it is a view of; so the set holds nothing in its place.
fn apart(tensor: Tensor) -> Tensor {
    if tensor.layout().is_empty() && tensor.storage().stale().is_none() {
        return Tensor::empty(tensor.layout().clone()).unwrap_or(tensor);
    }
    tensor
}

fn place(param: usize, tensor: &Tensor) -> Result<ParamPlace, Error> {
    let passed = tensor.as_input().map_err(|error| Error::StaleParameter { param, error })?;
    match passed.storage {
        Some(StorageId::Slot(value)) => {
            let producer = tensor.storage().producer().cloned().unwrap_or_else(|| "a function".into());
            Err(Error::UnstableParameter { param, output: value.slot, producer })
        }
        _ => Ok(ParamPlace {
            address: passed.address,
            signature: passed.signature,
            span: tensor.layout().span_bytes(),
        }),
    }
}

impl fmt::Debug for ParamSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParamSet({}, version {}, {} tensors)", self.id.0, self.version.0, self.tensors.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphgrove_storage::{Layout, Ledger, PlannedOutput, Slab, SlotIndex, Step, Storage};

    fn weight(at: u64) -> Tensor {
        let layout = Layout::of::<f32>(&[4]).unwrap();
        Tensor::new(Storage::unowned(DevicePtr::new(at), 16), layout, 0).unwrap()
    }

    #[test]
    fn every_change_moves_the_version_and_no_two_sets_share_an_id() {
        let mut set = ParamSet::new(vec![weight(0x100), weight(0x200)]).unwrap();
        let other = ParamSet::new(Vec::new()).unwrap();
        assert!(set.id() != other.id() && set.id().get() != other.id().get());
        let before = set.version();
        let old = set.replace(1, weight(0x300)).unwrap();
        assert_eq!(old.address().unwrap(), DevicePtr::new(0x200));
        assert_ne!(set.version(), before);
        assert_eq!(set.addresses().map(DevicePtr::get).collect::<Vec<_>>(), [0x100, 0x300]);
        assert_eq!(set.tensors().len(), 2);
    }

    #[test]
    fn an_output_is_no_parameter_and_a_refused_change_changes_nothing() {
        let planned = PlannedOutput::fresh(DevicePtr::new(0x900), 16, Layout::of::<f32>(&[4]).unwrap());
        let mut slab = Slab::new(&Ledger::new(), "F", 0, vec![planned]).unwrap();
        let output = |slab: &mut Slab| {
            slab.hand_back(Step::new(1), |_, _| None).unwrap().outputs.take(SlotIndex::new(0)).unwrap()
        };
        let unstable = output(&mut slab);
        let nothing = unstable.slice(0, 0..0, 1).unwrap();
        assert!(
            ParamSet::new(vec![nothing.clone()]).is_ok(),
            "a view of nothing has no memory that is written over"
        );
        let mut set = ParamSet::new(vec![weight(0x100)]).unwrap();
        let before = (set.version(), set.addresses().collect::<Vec<_>>());
        assert!(matches!(set.replace(0, unstable.clone()), Err(Error::UnstableParameter { param: 0, .. })));
        assert_eq!(set.replace(1, weight(0x300)).unwrap_err(), Error::NoSuchParameter { param: 1, count: 1 });
        let _ = output(&mut slab);
        assert!(matches!(set.replace(0, unstable), Err(Error::StaleParameter { param: 0, .. })));
        assert!(matches!(set.replace(0, nothing), Err(Error::StaleParameter { param: 0, .. })));
        assert_eq!((set.version(), set.addresses().collect::<Vec<_>>()), before);
    }
}
