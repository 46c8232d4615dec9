//! What a device can do, read once when it is opened.

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use graphgrove_device::{Call, DeviceError, LaunchDims, Problem, Result};

use crate::status;

/// What a device can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
    threads: u32,
    shared_bytes: u32,
    pub(crate) multiprocessors: u32,
    /// Major and minor compute capability.
    pub(crate) compute: (u32, u32),
    pub(crate) async_allocation: bool,
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
            grid: [
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            block: [
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            threads: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            compute: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            async_allocation: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 1,
            granularity: if mapping { crate::reservation::granularity(hardware)? } else { 0 },
            hardware,
        })
    }

    /// Refuses a launch that the device cannot make. It has to be done here: the driver would refuse it too, but would
    /// invalidate an open capture by that.
    pub(crate) fn check_launch(&self, call: Call, dims: LaunchDims, kernel_threads: u32) -> Result<()> {
        let within = |sizes: [u32; 3], most: [u32; 3]| {
            sizes.iter().zip(most).all(|(&n, most)| (1..=most).contains(&n))
        };
        let threads = dims.block.iter().fold(1_u64, |all, &n| all.saturating_mul(u64::from(n)));
        let fits = within(dims.grid, self.grid)
            && within(dims.block, self.block)
            && threads <= u64::from(self.threads.min(kernel_threads))
            && dims.shared_bytes <= self.shared_bytes;
        if fits {
            Ok(())
        } else {
            Err(DeviceError::invalid(call, Problem::Dimensions { grid: dims.grid, block: dims.block }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        grid: [u32::MAX >> 1, 65_535, 65_535],
        block: [1024, 1024, 64],
        threads: 1024,
        shared_bytes: 49_152,
        multiprocessors: 1,
        compute: (5, 2),
        async_allocation: false,
        granularity: 0,
        hardware: 0,
    };

    fn dims(grid: [u32; 3], block: [u32; 3]) -> LaunchDims {
        LaunchDims { grid, block, shared_bytes: 0 }
    }

    #[test]
    fn a_launch_within_every_limit_is_let_through() {
        for fits in
            [dims([1; 3], [1; 3]), dims([1 << 30, 65_535, 65_535], [1024, 1, 1]), dims([1; 3], [4, 4, 64])]
        {
            assert_eq!(LIMITS.check_launch(Call::Launch, fits, 1024), Ok(()));
        }
    }

    #[test]
    fn a_launch_past_any_limit_is_refused() {
        let refused = [
            dims([0, 1, 1], [1; 3]),
            dims([1; 3], [0, 1, 1]),
            dims([1, 65_536, 1], [1; 3]),
            dims([1; 3], [1, 1, 65]),
            dims([1; 3], [64, 64, 1]),
            dims([u32::MAX; 3], [u32::MAX; 3]),
            LaunchDims { shared_bytes: 49_153, ..LaunchDims::ONE },
        ];
        for dims in refused {
            let problem = Problem::Dimensions { grid: dims.grid, block: dims.block };
            assert_eq!(
                LIMITS.check_launch(Call::Launch, dims, 1024),
                Err(DeviceError::invalid(Call::Launch, problem))
            );
        }
    }

    #[test]
    fn a_kernel_that_needs_many_registers_has_a_limit_of_its_own() {
        assert!(LIMITS.check_launch(Call::Launch, dims([1; 3], [512, 1, 1]), 256).is_err());
    }
}
