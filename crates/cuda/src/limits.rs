//! What a device can do, read once when it is opened.

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use graphgrove_device::{Call, Result};

use crate::status;

/// What a device can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) multiprocessors: u32,
    /// Major and minor compute capability.
    pub(crate) compute: (u32, u32),
    pub(crate) async_allocation: bool,
    pub(crate) pageable_access: bool,
    /// The granularity of mapping in bytes, or 0 where the device cannot map.
    pub(crate) granularity: u64,
    pub(crate) hardware: sys::CUdevice,
}

impl Limits {
    /// Reads what the device can do.
    pub(crate) fn read(hardware: sys::CUdevice) -> Result<Self> {
        let attribute = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: `value` outlives the call, and the device is one of this driver.
            let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, hardware) };
            status::check(Call::MemoryInfo, code)?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let mapping = attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? == 1;
        Ok(Self {
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            compute: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            pageable_access: attribute(Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? == 1,
            async_allocation: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 1,
            granularity: if mapping { crate::reservation::granularity(hardware)? } else { 0 },
            hardware,
        })
    }
}
