//! Tensors from values of the host, and back.

use graphgrove_device::Device;
use graphgrove_pool::pool::{Owner, Request};
use graphgrove_storage::{Element, Layout, Tensor};

use crate::memory::plain;
use crate::{Engine, Error, Result};

mod sealed {
    pub trait Sealed {}
}

/// A type whose values can be written to a tensor and read from one.
pub trait HostValue: Element + sealed::Sealed {
    /// Appends the value as a little-endian device reads it.
    fn append_to(self, bytes: &mut Vec<u8>);

    /// The value in the first bytes, of which there must be enough; zero otherwise.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! host_values {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl HostValue for $type {
            fn append_to(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or_else(Self::default, |bytes| Self::from_le_bytes(*bytes))
            }
        }
    )*};
}

host_values!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl<D: Device> Engine<D> {
    /// A tensor that the caller owns, with these values in row-major order: weights, caches, inputs.
    ///
    /// Its memory comes from outside of every recording. This waits for the device, so it is made for setting up and for
    /// small inputs; a program that brings large inputs at each call brings them by
    /// [host memory](crate::Arg::Host) or in tensors of its own.
    ///
    /// # Errors
    /// [`Error::ElementCount`] if there are more or fewer values than the shape has elements; [`Error::Storage`] for a shape that is
    /// too large to be one; [`Error::Pool`] if there is no room; [`Error::Device`]; [`Error::Nested`].
    pub fn tensor<T: HostValue>(&self, shape: &[u64], values: &[T]) -> Result<Tensor> {
        let layout = Layout::of::<T>(shape)?;
        if layout.elements() != values.len() as u64 {
            return Err(Error::ElementCount { given: values.len(), shape: shape.to_vec() });
        }
        if layout.is_empty() {
            return Ok(Tensor::empty(layout)?);
        }
        let mut bytes = Vec::with_capacity(layout.span_bytes() as usize);
        for value in values {
            value.append_to(&mut bytes);
        }
        self.0.with("tensor", |state| {
            for grove in &mut state.groves {
                grove.sweep();
            }
            let request = Request::bytes(layout.span_bytes()).owner(Owner::Output).label("host values");
            let storage = plain(&self.0.plain, request)?;
            // Work that is still running may use the memory for whoever had it before.
            self.0.device.synchronize()?;
            self.0.device.write(storage.base()?, &bytes)?;
            Ok(Tensor::new(storage, layout, 0)?)
        })
    }

    /// The values of a tensor in row-major order, whatever its strides. This waits for the device.
    ///
    /// # Errors
    /// [`Error::ElementType`] if the elements are of another type; [`Error::Storage`] if the value is gone; [`Error::Device`];
    /// [`Error::Nested`].
    pub fn read<T: HostValue>(&self, tensor: &Tensor) -> Result<Vec<T>> {
        if tensor.dtype() != T::DTYPE {
            return Err(Error::ElementType { asked: T::DTYPE, found: tensor.dtype() });
        }
        let layout = tensor.layout();
        let mut bytes = vec![0; layout.span_bytes() as usize];
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        self.0.with("read", |_| {
            let address = tensor.address()?;
            self.0.device.synchronize()?;
            Ok(self.0.device.read(address, &mut bytes)?)
        })?;
        let size = size_of::<T>();
        let value = |element: u64| bytes.get(element as usize * size..).map(T::from_bytes);
        Ok(elements(layout).filter_map(value).collect())
    }
}

/// Where each element lies, counted in elements from the first one, in row-major order.
fn elements(layout: &Layout) -> impl Iterator<Item = u64> {
    let dims: Vec<(u64, u64)> =
        layout.shape().iter().copied().zip(layout.strides().iter().copied()).rev().collect();
    let count = layout.elements();
    (0..count).map(move |number| {
        let place =
            |(rest, at): (u64, u64), &(size, stride): &(u64, u64)| (rest / size, at + rest % size * stride);
        dims.iter().fold((number, 0), place).1
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graphgrove_sim::SimDevice;

    use super::*;

    fn engine() -> Engine<SimDevice> {
        Engine::new(Arc::new(SimDevice::new())).unwrap()
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let engine = engine();
        let tensor = engine.tensor(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(engine.read::<f32>(&tensor).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let tensor = engine.tensor(&[2], &[-1_i64, i64::MAX]).unwrap();
        assert_eq!(engine.read::<i64>(&tensor).unwrap(), [-1, i64::MAX]);
        assert_eq!(engine.read::<u8>(&engine.tensor::<u8>(&[0, 4], &[]).unwrap()).unwrap(), [0_u8; 0]);
    }

    #[test]
    fn a_view_is_read_in_its_own_order() {
        let engine = engine();
        let tensor = engine.tensor(&[2, 3], &[1_u32, 2, 3, 4, 5, 6]).unwrap();
        let turned = tensor.permute(&[1, 0]).unwrap();
        assert_eq!(engine.read::<u32>(&turned).unwrap(), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn a_count_that_is_not_the_shape_s_and_another_type_are_refused() {
        let engine = engine();
        let refused = engine.tensor(&[2, 2], &[1.0_f32; 3]).map(|_| ());
        assert_eq!(refused, Err(Error::ElementCount { given: 3, shape: vec![2, 2] }));
        let tensor = engine.tensor(&[1], &[1.0_f32]).unwrap();
        let refused = engine.read::<u32>(&tensor);
        assert_eq!(refused.unwrap_err().to_string(), "elements of type f32 asked for as u32");
    }

    #[test]
    fn memory_that_work_still_reads_is_not_written_for_the_next_tensor() {
        let device = Arc::new(SimDevice::new());
        let engine = Engine::new(Arc::clone(&device)).unwrap();
        let copy = engine.function("copy", |cx| {
            let out = cx.empty(cx.input(0)?.layout().clone())?;
            let from = cx.take(0)?;
            cx.copy(&out, &from)?;
            Ok(vec![out])
        });
        for turn in 0..4_u64 {
            let input = engine.tensor(&[1], &[turn]).unwrap();
            let [out] = copy.call(crate::args![input]).unwrap().into_array().unwrap();
            let _next = engine.tensor(&[1], &[99_u64]).unwrap();
            assert_eq!(engine.read::<u64>(&out).unwrap(), [turn]);
        }
        device.verdict().unwrap();
    }
}
