//! Tensors to other frameworks and from them, by `DLPack` 1.x (<https://dmlc.github.io/dlpack/latest/>).
//!
//! The deleter is the liveness: a tensor that was handed out holds its storage until the other framework calls it, and a
//! tensor that was taken in calls it when its last handle is gone. A foreign framework cannot be told that an address is
//! not right any more, so what is handed out is [pinned](crate::Pinned).
//!
//! What is taken in is memory from outside, a storage of its own each time, even where it is the caller's own that comes
//! back: the protocol does not say what its tensors share. Whether inputs overlap is therefore decided by address.

use std::ptr;

use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType};
use dlpark::metadata::Dynamic;
use graphgrove_device::DevicePtr;

use crate::layout::Dims;
use crate::{DType, Error, Layout, Storage, Tensor};

/// A managed tensor of the versioned protocol.
pub type Dlpack = dlpark::versioned::Dlpack;

/// The device of a managed tensor: its kind and number.
pub type DlpackDevice = DLDevice;

/// Why a managed tensor cannot be taken in, or a tensor not handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackProblem {
    /// The description breaks the protocol.
    #[error("malformed tensor: {what}")]
    Malformed {
        /// What the protocol's own check says.
        what: String,
    },
    /// It lies on another device than the one expected.
    #[error("device {kind} number {number}")]
    Device {
        /// The number of the device's kind in the protocol.
        kind: u32,
        /// The device's number.
        number: i32,
    },
    /// Elements of a type that this crate has no word for.
    #[error("elements of code {code}, {bits} bits, {lanes} lanes")]
    DType {
        /// The kind of number.
        code: u8,
        /// Bits of one number.
        bits: u8,
        /// Numbers in one element.
        lanes: u16,
    },
    /// A dimension that runs backwards.
    #[error("dimension {dim} has stride {stride}")]
    Stride {
        /// The dimension.
        dim: usize,
        /// Its stride in elements.
        stride: i64,
    },
}

impl From<DlpackProblem> for Error {
    fn from(problem: DlpackProblem) -> Self {
        Self::Dlpack(problem)
    }
}

const DTYPES: [(DType, DLDataType); 13] = [
    (DType::Bool, DLDataType::BOOL),
    (DType::U8, DLDataType::U8),
    (DType::I8, DLDataType::I8),
    (DType::U16, DLDataType::U16),
    (DType::I16, DLDataType::I16),
    (DType::U32, DLDataType::U32),
    (DType::I32, DLDataType::I32),
    (DType::U64, DLDataType::U64),
    (DType::I64, DLDataType::I64),
    (DType::F16, DLDataType::scalar(dlpark::ffi::DLDataTypeCode::FLOAT, 16)),
    (DType::Bf16, DLDataType::scalar(dlpark::ffi::DLDataTypeCode::BFLOAT, 16)),
    (DType::F32, DLDataType::F32),
    (DType::F64, DLDataType::F64),
];

fn malformed(problem: &dyn std::fmt::Display) -> Error {
    DlpackProblem::Malformed { what: problem.to_string() }.into()
}

impl Tensor {
    /// Hands the tensor to another framework. Its memory stays live and [pinned](crate::Pinned) until the deleter is called.
    ///
    /// `device` is what the other framework calls the device, as [`DlpackDevice::cuda`]. Nothing is waited for: the two
    /// sides order their streams themselves.
    ///
    /// # Errors
    /// [`Error::Stale`], and [`Error::Dlpack`] for sizes or strides that are no 63-bit numbers.
    pub fn to_dlpack(&self, device: DlpackDevice) -> Result<Dlpack, Error> {
        let pinned = self.pin()?;
        let layout = self.layout();
        let dtype = DTYPES.iter().find(|(of, _)| *of == layout.dtype()).map(|(_, dtype)| *dtype);
        let address = ptr::without_provenance_mut(pinned.address().get() as usize);
        let metadata = Dynamic::new(layout.shape(), layout.strides());
        let mut initialized = metadata.initialize(Box::new(pinned)).map_err(|error| malformed(&error))?;
        initialized.set_data(if layout.is_empty() { ptr::null_mut() } else { address });
        initialized.set_device(device).set_dtype(dtype.unwrap_or_default());
        // SAFETY: shape and strides were copied and lie inside the storage, which the context holds and pins until the
        // deleter runs; `Pinned` is `Send`, so it may run on any thread.
        Ok(unsafe { initialized.finish() })
    }

    /// Takes a tensor of another framework in. The deleter is called when the last handle of it is gone.
    ///
    /// # Errors
    /// [`Error::Dlpack`] for a tensor on another device, of other element types, with negative strides, or that breaks the
    /// protocol, [`Error::TooLarge`] for one that no memory has; the deleter has been called then.
    pub fn from_dlpack(managed: Dlpack, device: DlpackDevice) -> Result<Self, Error> {
        let (layout, address) = {
            let tensor = managed.validate().map_err(|error| malformed(&error))?;
            let on = tensor.device();
            if on != device {
                let problem =
                    DlpackProblem::Device { kind: device_kind(on.device_type), number: on.device_id };
                return Err(problem.into());
            }
            let given = tensor.dtype();
            let dtype = DTYPES.iter().find(|(_, dtype)| *dtype == given).map(|(of, _)| *of);
            let dtype = dtype.ok_or(DlpackProblem::DType {
                code: given.code.0,
                bits: given.bits,
                lanes: given.lanes,
            })?;
            let shape: Dims = tensor.shape().iter().map(|&size| size.cast_unsigned()).collect();
            let strides = tensor.strides_or_compact().map_err(|error| malformed(&error))?;
            let mut steps = Dims::new();
            for (dim, (&stride, &size)) in strides.iter().zip(&shape).enumerate() {
                steps.push(match u64::try_from(stride) {
                    Ok(step) => step,
                    Err(_) if size <= 1 => 1, // Nothing is walked by it, and frameworks leave what they like in it.
                    Err(_) => return Err(DlpackProblem::Stride { dim, stride }.into()),
                });
            }
            let layout = Layout::strided(dtype, &shape, &steps)?;
            let start = DevicePtr::new(tensor.data_ptr().addr() as u64);
            if layout.is_empty() {
                return Self::empty(layout);
            }
            if start.is_null() {
                return Err(DlpackProblem::Malformed { what: "null data".into() }.into());
            }
            let address = start.checked_add(tensor.byte_offset()).ok_or(Error::TooLarge)?;
            address.checked_add(layout.span_bytes()).ok_or(Error::TooLarge)?;
            (layout, address)
        };
        let storage = Storage::outside(address, layout.span_bytes(), Box::new(managed));
        Self::new(storage, layout, 0)
    }
}

fn device_kind(kind: DLDeviceType) -> u32 {
    kind.0
}
