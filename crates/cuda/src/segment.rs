//! Plain device memory.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{Call, DeviceError, DeviceId, DevicePtr, Problem, Result, SegmentMemory};

use crate::shared::Shared;
use crate::status::Subject;

/// Device memory that is freed with its owner, at once. The context has to be bound when it goes, and nothing may use it.
#[derive(Debug)]
pub(crate) struct DevicePages {
    base: DevicePtr,
}

impl DevicePages {
    /// Allocates device memory. The context has to be bound.
    pub(crate) fn allocate(bytes: u64) -> Result<Self, CUresult> {
        let mut base = 0;
        // SAFETY: `base` outlives the call.
        let code = unsafe { sys::cuMemAlloc_v2(&raw mut base, usize::try_from(bytes).unwrap_or(usize::MAX)) };
        if code == CUresult::CUDA_SUCCESS { Ok(Self { base: DevicePtr::new(base) }) } else { Err(code) }
    }

    pub(crate) fn base(&self) -> DevicePtr {
        self.base
    }
}

impl Drop for DevicePages {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated for this value and is freed once.
        let _ = unsafe { sys::cuMemFree_v2(self.base.get()) };
    }
}

/// One contiguous piece of device memory, freed by its drop unless it was adopted.
pub struct Segment {
    shared: Arc<Shared>,
    base: DevicePtr,
    bytes: u64,
    pages: Option<DevicePages>,
}

impl Segment {
    pub(crate) fn allocate(shared: &Arc<Shared>, bytes: u64) -> Result<Self> {
        if bytes == 0 {
            return Err(zero_bytes(shared, Call::Allocate));
        }
        let pages = DevicePages::allocate(bytes)
            .map_err(|code| shared.error(Call::Allocate, code, Subject::Bytes(bytes)))?;
        Ok(Self { shared: Arc::clone(shared), base: pages.base(), bytes, pages: Some(pages) })
    }

    pub(crate) fn adopt(shared: &Arc<Shared>, base: DevicePtr, bytes: u64) -> Result<Self> {
        check_range(Call::AdoptSegment, base, bytes)?;
        if !is_allocated(base, bytes) {
            return Err(DeviceError::invalid(
                Call::AdoptSegment,
                Problem::NotAllocated { address: base, bytes },
            ));
        }
        Ok(Self { shared: Arc::clone(shared), base, bytes, pages: None })
    }
}

impl SegmentMemory for Segment {
    fn device(&self) -> DeviceId {
        self.shared.id
    }

    fn base(&self) -> DevicePtr {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("base", &self.base)
            .field("bytes", &self.bytes)
            .field("owned", &self.pages.is_some())
            .finish_non_exhaustive()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.shared.destroy(move |_| drop(pages));
        }
    }
}

/// The error for a call that asks for memory of no bytes: a refusal by an open capture comes first, and breaks the capture.
/// The context has to be bound.
pub(crate) fn zero_bytes(shared: &Shared, call: Call) -> DeviceError {
    match DevicePages::allocate(0) {
        Ok(_) | Err(CUresult::CUDA_ERROR_INVALID_VALUE) => DeviceError::invalid(call, Problem::ZeroBytes),
        Err(code) => shared.error(call, code, Subject::Nothing),
    }
}

/// Refuses a range without bytes or at null.
pub(crate) fn check_range(call: Call, at: DevicePtr, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Err(DeviceError::invalid(call, Problem::ZeroBytes));
    }
    if at.is_null() {
        return Err(DeviceError::invalid(call, Problem::NullAddress));
    }
    Ok(())
}

/// Whether the driver knows memory behind every byte of the range. The context has to be bound.
pub(crate) fn is_allocated(at: DevicePtr, bytes: u64) -> bool {
    let Some(end) = at.checked_add(bytes) else { return false };
    let mut next = at;
    while next < end {
        let (mut base, mut length) = (0, 0);
        // SAFETY: both outputs are places on this stack, and the driver looks the address up without touching it.
        let code = unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut length, next.get()) };
        match DevicePtr::new(base).checked_add(length as u64) {
            Some(behind) if code == CUresult::CUDA_SUCCESS && behind > next => next = behind,
            _ => return false,
        }
    }
    true
}
