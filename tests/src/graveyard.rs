//! Memory of the caller's own, given back to the device only once no work can use it any more.

use std::sync::Arc;

use graphgrove::{Storage, Tensor};
use graphgrove_device::{Device, SegmentMemory};
use parking_lot::Mutex;

use crate::kernels::layout;

/// Segments whose last handle is gone and that work may still use. A driver does not wait for work when memory is freed, so a careful
/// caller does.
pub struct Graveyard<D: Device>(Arc<Mutex<Vec<D::Segment>>>);

impl<D: Device> Clone for Graveyard<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> Default for Graveyard<D> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

struct Grave<D: Device> {
    segment: Option<D::Segment>,
    yard: Graveyard<D>,
}

impl<D: Device> Drop for Grave<D> {
    fn drop(&mut self) {
        self.yard.0.lock().extend(self.segment.take());
    }
}

impl<D: Device> Graveyard<D> {
    /// A tensor of these elements, in memory of its own.
    #[must_use]
    pub fn tensor(&self, device: &D, values: &[u32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        if bytes.is_empty() {
            return Tensor::empty(layout(0)).unwrap();
        }
        let segment = device.allocate(bytes.len() as u64).unwrap();
        let base = segment.base();
        device.write(base, &bytes).unwrap();
        let grave = Grave { segment: Some(segment), yard: self.clone() };
        let storage = Storage::outside(base, bytes.len() as u64, Box::new(grave));
        Tensor::new(storage, layout(values.len()), 0).unwrap()
    }

    /// Waits for all work, and gives back what nobody holds.
    pub fn settle(&self, device: &D) {
        device.synchronize().unwrap();
        self.0.lock().clear();
    }
}
