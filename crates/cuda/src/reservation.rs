//! Address ranges whose memory comes and goes (CUDA Driver API, "Virtual Memory Management").

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemAllocationProp, CUmemLocation, CUresult};
use graphgrove_device::{Call, DeviceError, DeviceId, DevicePtr, Problem, ReservedRange, Result};

use crate::fields::{write_field, zeroed};
use crate::shared::Shared;
use crate::status::{self, Subject};

// The location is written as two numbers below, because its second field is an `int` up to CUDA 13.1 and a union with
// the same `int` at the same place from 13.2 on.
const _: () = assert!(size_of::<CUmemLocation>() == size_of::<[i32; 2]>());

/// A range of addresses, of which pieces are mapped to memory. The drop unmaps and releases all of it.
pub struct Reservation {
    shared: Arc<Shared>,
    base: DevicePtr,
    bytes: u64,
    pieces: Pieces,
}

impl Reservation {
    pub(crate) fn reserve(shared: &Arc<Shared>, bytes: u64) -> Result<Self> {
        let call = Call::Reserve;
        let granularity = shared.limits.granularity;
        if granularity == 0 {
            return Err(DeviceError::Unsupported { call });
        }
        if bytes == 0 {
            return Err(DeviceError::invalid(call, Problem::ZeroBytes));
        }
        let rounded = bytes.checked_next_multiple_of(granularity);
        let Some(size) = rounded.and_then(|bytes| usize::try_from(bytes).ok()) else {
            return Err(shared.error(call, CUresult::CUDA_ERROR_OUT_OF_MEMORY, Subject::Bytes(bytes)));
        };
        let mut base = 0;
        // SAFETY: `base` outlives the call; a fixed address and flags of 0 leave the choice to the driver.
        let code = unsafe { sys::cuMemAddressReserve(&raw mut base, size, granularity as usize, 0, 0) };
        // Nothing else than the size can be wrong.
        let code = if code == CUresult::CUDA_ERROR_INVALID_VALUE {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        } else {
            code
        };
        shared.check(call, code, Subject::Bytes(bytes))?;
        let base = DevicePtr::new(base);
        Ok(Self { shared: Arc::clone(shared), base, bytes: size as u64, pieces: Pieces::default() })
    }

    pub(crate) fn map(&mut self, offset: u64, bytes: u64) -> Result<()> {
        let call = Call::Map;
        self.check(call, offset, bytes)?;
        if self.pieces.overlap(offset, bytes) {
            return Err(DeviceError::invalid(call, Problem::AlreadyMapped { offset, bytes }));
        }
        let fail = |code| self.shared.error(call, code, Subject::Bytes(bytes));
        let at = self.base.get() + offset;
        let memory = PhysicalMemory::create(self.shared.limits.hardware, bytes).map_err(fail)?;
        let mapping = Mapping::map(at, memory).map_err(fail)?;
        mapping.allow(self.shared.limits.hardware).map_err(fail)?;
        self.pieces.0.insert(offset, mapping);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, offset: u64, bytes: u64) -> Result<()> {
        let call = Call::Unmap;
        self.check(call, offset, bytes)?;
        match self.pieces.take(offset, bytes) {
            Some(mappings) => {
                drop(mappings);
                Ok(())
            }
            None => Err(DeviceError::invalid(call, Problem::NotMapped { offset, bytes })),
        }
    }

    pub(crate) fn owner(&self) -> DeviceId {
        self.shared.id
    }

    fn check(&self, call: Call, offset: u64, bytes: u64) -> Result<()> {
        let granularity = self.shared.limits.granularity;
        if bytes == 0 {
            return Err(DeviceError::invalid(call, Problem::ZeroBytes));
        }
        for value in [offset, bytes] {
            if !value.is_multiple_of(granularity) {
                return Err(DeviceError::invalid(call, Problem::Granularity { value, granularity }));
            }
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(DeviceError::invalid(call, Problem::OutOfRange { offset, bytes, length: self.bytes })),
        }
    }
}

impl ReservedRange for Reservation {
    fn device(&self) -> DeviceId {
        self.shared.id
    }

    fn base(&self) -> DevicePtr {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn mapped_bytes(&self) -> u64 {
        self.pieces.0.values().map(|mapping| mapping.memory.bytes).sum()
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("base", &self.base)
            .field("bytes", &self.bytes)
            .field("mapped_bytes", &self.mapped_bytes())
            .finish_non_exhaustive()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        let (base, bytes) = (self.base.get(), self.bytes as usize);
        self.shared.destroy(move |_| {
            drop(pieces);
            // SAFETY: the range was reserved for this value, nothing is mapped in it any more, and it is freed once.
            let _ = unsafe { sys::cuMemAddressFree(base, bytes) };
        });
    }
}

/// The mapped pieces of a range by their offset.
#[derive(Debug, Default)]
struct Pieces(BTreeMap<u64, Mapping>);

impl Pieces {
    fn overlap(&self, offset: u64, bytes: u64) -> bool {
        let before = self.0.range(..offset + bytes).next_back();
        before.is_some_and(|(start, mapping)| start + mapping.memory.bytes > offset)
    }

    /// Takes the pieces that make up the range out, if it is one mapping or several whole ones without a hole.
    fn take(&mut self, offset: u64, bytes: u64) -> Option<Vec<Mapping>> {
        let end = offset + bytes;
        let mut next = offset;
        while next < end {
            next += self.0.get(&next)?.memory.bytes;
        }
        if next != end {
            return None;
        }
        let mut rest = self.0.split_off(&offset);
        self.0.append(&mut rest.split_off(&end));
        Some(rest.into_values().collect())
    }
}

/// Memory without an address, released when it goes.
#[derive(Debug)]
struct PhysicalMemory {
    handle: sys::CUmemGenericAllocationHandle,
    bytes: u64,
}

impl PhysicalMemory {
    fn create(hardware: sys::CUdevice, bytes: u64) -> Result<Self, CUresult> {
        let properties = properties(hardware);
        let mut handle = 0;
        // SAFETY: the output and the properties outlive the call.
        let code = unsafe { sys::cuMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0) };
        if code == CUresult::CUDA_SUCCESS { Ok(Self { handle, bytes }) } else { Err(code) }
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        // SAFETY: the handle was created for this value and is released once.
        let _ = unsafe { sys::cuMemRelease(self.handle) };
    }
}

/// Memory at an address, unmapped when it goes.
#[derive(Debug)]
struct Mapping {
    at: u64,
    memory: PhysicalMemory,
}

impl Mapping {
    fn map(at: u64, memory: PhysicalMemory) -> Result<Self, CUresult> {
        // SAFETY: the addresses are reserved and not mapped, and the memory is as long as the mapping.
        let code = unsafe { sys::cuMemMap(at, memory.bytes as usize, 0, memory.handle, 0) };
        if code == CUresult::CUDA_SUCCESS { Ok(Self { at, memory }) } else { Err(code) }
    }

    fn allow(&self, hardware: sys::CUdevice) -> Result<(), CUresult> {
        let access = sys::CUmemAccessDesc {
            location: location(hardware),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the range is this mapping, and the description outlives the call.
        let code = unsafe { sys::cuMemSetAccess(self.at, self.memory.bytes as usize, &raw const access, 1) };
        if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly one mapping and is unmapped once; the caller promised that nothing uses it.
        let _ = unsafe { sys::cuMemUnmap(self.at, self.memory.bytes as usize) };
    }
}

/// The granularity in bytes at which the device maps memory.
pub(crate) fn granularity(hardware: sys::CUdevice) -> Result<u64> {
    let properties = properties(hardware);
    let mut bytes = 0;
    // SAFETY: the output and the properties outlive the call.
    let code = unsafe {
        sys::cuMemGetAllocationGranularity(
            &raw mut bytes,
            &raw const properties,
            sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        )
    };
    status::check(Call::Reserve, code)?;
    Ok(bytes as u64)
}

fn location(hardware: sys::CUdevice) -> CUmemLocation {
    const DEVICE: i32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as i32;
    // SAFETY: the size is asserted above; the first number is a value of the type's enum, the second the device's ordinal.
    unsafe { std::mem::transmute::<[i32; 2], CUmemLocation>([DEVICE, hardware]) }
}

fn properties(hardware: sys::CUdevice) -> CUmemAllocationProp {
    let mut properties = zeroed::<CUmemAllocationProp>();
    let pinned = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    write_field!(properties, CUmemAllocationProp, type_ = pinned);
    write_field!(properties, CUmemAllocationProp, location = location(hardware));
    // SAFETY: zeros are right for every other field: no handle type, no metadata, no flags.
    unsafe { properties.assume_init() }
}
