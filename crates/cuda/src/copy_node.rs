//! A copy within the device as a node: a kernel, both ends of which are arguments.
//!
//! The driver's own copy nodes keep for good whether each end lies in plain or in mapped memory: an exec whose node was recorded
//! with the one is refused addresses of the other, by every call that changes an exec (`docs/capture-rules.md`). A program that is
//! given memory from anywhere cannot live with that.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{Call, DeviceError, DevicePtr, LaunchDims, Problem, Result};

use crate::gather::{GatherKernels, SMALLEST_CHUNK, THREADS};
use crate::raw::Raw;
use crate::segment::is_allocated;
use crate::shared::Shared;

/// A copy node as it was recorded: all but its ends.
#[derive(Clone, Copy)]
pub(crate) struct CopyNode {
    pub(crate) function: Raw<sys::CUfunc_st>,
    pub(crate) dims: LaunchDims,
    pub(crate) bytes: u64,
    /// Bytes that each block copies.
    chunk: u64,
}

impl CopyNode {
    pub(crate) fn prepare(shared: &Arc<Shared>, call: Call, bytes: u64) -> Result<Self> {
        let function = GatherKernels::of(shared, call)?.copy();
        let (blocks, chunk) = cut(bytes, shared.limits.multiprocessors);
        // There are sixteen blocks for each multiprocessor at most.
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX);
        let dims = LaunchDims { grid: [grid, 1, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
        Ok(Self { function, dims, bytes, chunk })
    }

    /// Refuses ends at which there is no memory: a kernel would meet a device fault there. The context has to be bound.
    pub(crate) fn check(&self, shared: &Shared, call: Call, to: DevicePtr, from: DevicePtr) -> Result<()> {
        let bytes = self.bytes;
        for address in [to, from] {
            if !shared.async_allocations.covers(address, bytes) && !is_allocated(address, bytes) {
                return Err(DeviceError::invalid(call, Problem::NotAllocated { address, bytes }));
            }
        }
        Ok(())
    }

    /// Calls `run` with the addresses of the kernel's arguments for these ends.
    pub(crate) fn with_ends(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        run: impl FnOnce(&mut [*mut c_void; 4]) -> CUresult,
    ) -> CUresult {
        let words = [to.get(), from.get(), self.bytes, self.chunk];
        run(&mut words.each_ref().map(|word| (&raw const *word).cast_mut().cast()))
    }
}

/// How many blocks copy so many bytes, and how many each of them: enough blocks for every multiprocessor, and chunks on multiples of
/// 16 bytes, so that each is as well aligned as the whole.
fn cut(bytes: u64, multiprocessors: u32) -> (u64, u64) {
    let blocks = u64::from(multiprocessors.max(1)) * 16;
    let chunk = bytes.div_ceil(blocks).max(SMALLEST_CHUNK).next_multiple_of(SMALLEST_CHUNK);
    (bytes.div_ceil(chunk).max(1), chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_cover_every_byte_and_none_has_nothing_to_do() {
        for bytes in [1, 15, 4096, 4097, 1 << 20, (1 << 20) + 3, 64 << 20, 1 << 40] {
            let (blocks, chunk) = cut(bytes, 132);
            assert!(blocks * chunk >= bytes && (blocks - 1) * chunk < bytes, "{bytes}");
            assert!(chunk.is_multiple_of(16) && blocks <= 132 * 16, "{bytes}");
        }
    }
}
