//! Memory of the caller's own, given back to the device only once no work can use it any more.

use std::sync::Arc;

use graphgrove::{Storage, Tensor};
use graphgrove_device::{Memory, SegmentMemory, Streams};
use graphgrove_sim::SimDevice;
use parking_lot::Mutex;

use crate::kernels::layout;

type Segment = <SimDevice as Memory>::Segment;

/// Segments whose last handle is gone and that work may still use. A driver does not wait for work when memory is freed, so a careful
/// caller does.
#[derive(Clone, Debug, Default)]
pub struct Graveyard(Arc<Mutex<Vec<Segment>>>);

struct Grave {
    segment: Option<Segment>,
    yard: Graveyard,
}

impl Drop for Grave {
    fn drop(&mut self) {
        self.yard.0.lock().extend(self.segment.take());
    }
}

impl Graveyard {
    /// A tensor of these elements, in memory of its own.
    #[must_use]
    pub fn tensor(&self, device: &SimDevice, values: &[u32]) -> Tensor {
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
    pub fn settle(&self, device: &SimDevice) {
        device.synchronize().unwrap();
        self.0.lock().clear();
    }
}
