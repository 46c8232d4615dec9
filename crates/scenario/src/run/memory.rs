//! Memory of the caller's own, given back to the device only once no work can use it any more.

use std::sync::Arc;

use graphgrove::{DType, Layout, Storage, Tensor};
use graphgrove_device::{DeviceError, Memory, SegmentMemory};
use parking_lot::Mutex;

/// Segments whose last handle is gone and that work may still use. A driver does not wait for work when memory is freed, so a
/// careful caller does.
pub(crate) struct Graveyard<D: Memory>(Arc<Mutex<Vec<D::Segment>>>);

struct Grave<D: Memory> {
    segment: Option<D::Segment>,
    yard: Graveyard<D>,
}

impl<D: Memory> Drop for Grave<D> {
    fn drop(&mut self) {
        self.yard.0.lock().extend(self.segment.take());
    }
}

/// Why there is no tensor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Storage(#[from] graphgrove_storage::Error),
}

/// How far behind a multiple of sixteen bytes a misaligned tensor begins.
const ODD: u64 = 4;

impl<D: Memory> Clone for Graveyard<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Memory> Default for Graveyard<D> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<D: Memory> Graveyard<D> {
    /// A tensor of these elements, in memory of its own.
    pub(crate) fn tensor(
        &self,
        device: &D,
        shape: &[u64],
        values: &[f32],
        misaligned: bool,
    ) -> Result<Tensor, MemoryError> {
        let layout = Layout::contiguous(DType::F32, shape)?;
        if layout.is_empty() {
            return Ok(Tensor::empty(layout)?);
        }
        let offset = if misaligned { ODD } else { 0 };
        let segment = device.allocate(layout.span_bytes() + offset)?;
        let base = segment.base();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let start = base.checked_add(offset).unwrap_or(base);
        device.write(start, &bytes)?;
        let grave = Grave { segment: Some(segment), yard: self.clone() };
        let storage = Storage::outside(base, layout.span_bytes() + offset, Box::new(grave));
        Ok(Tensor::new(storage, layout, offset)?)
    }

    /// Waits for all work, and gives back what nobody holds.
    pub(crate) fn settle(&self, device: &D) -> Result<(), DeviceError> {
        device.synchronize()?;
        self.0.lock().clear();
        Ok(())
    }

    /// Gives back what nobody holds without waiting, as when the device is broken.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The elements of a tensor in row-major order. All work must be over.
pub(crate) fn read(device: &impl Memory, tensor: &Tensor) -> Result<Vec<f32>, graphgrove_storage::Error> {
    let address = tensor.address()?;
    let layout = tensor.layout();
    let mut bytes = vec![0; layout.span_bytes() as usize];
    if !bytes.is_empty() {
        if layout.is_contiguous() {
            device.read(address, &mut bytes)?;
        } else {
            // What lies between the elements may never have been written.
            for at in places(layout.shape(), layout.strides()) {
                let at = 4 * at;
                if let (Some(from), Some(to)) =
                    (address.checked_add(at), bytes.get_mut(at as usize..at as usize + 4))
                {
                    device.read(from, to)?;
                }
            }
        }
    }
    let value = |at: u64| {
        let bytes = bytes.get(4 * at as usize..).and_then(<[u8]>::first_chunk::<4>);
        bytes.map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes))
    };
    Ok(places(layout.shape(), layout.strides()).map(value).collect())
}

/// Where each element lies, counted in elements from the first one, in row-major order.
pub(crate) fn places(shape: &[u64], strides: &[u64]) -> impl Iterator<Item = u64> + use<> {
    let dims: Vec<(u64, u64)> = shape.iter().copied().zip(strides.iter().copied()).rev().collect();
    let count: u64 = shape.iter().product();
    (0..count).map(move |number| {
        let step =
            |(rest, at): (u64, u64), &(size, stride): &(u64, u64)| (rest / size, at + rest % size * stride);
        dims.iter().fold((number, 0), step).1
    })
}
