//! The gather node: a kernel whose destinations lie in device memory and whose sources are its arguments.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{Call, DeviceError, DevicePtr, GatherRow, LaunchDims, Problem, Result};

use crate::error::CudaError;
use crate::kernel::Module;
use crate::raw::Raw;
use crate::segment::DevicePages;
use crate::shared::{Relaxed, Shared};
use crate::status::Subject;

/// The kernels, made from `gather.cu` beside this file.
const PTX: &str = include_str!("gather.ptx");

/// How many sources each kernel takes. The driver copies all of a node's arguments at a patch, so the smallest that
/// suffices is used.
const CAPACITIES: [usize; 3] = [8, 32, 128];

/// The most rows that one node can have.
pub(crate) const MOST_ROWS: usize = 128;

/// Threads of a block. With 16 bytes a thread, one pass of a block covers [`SMALLEST_CHUNK`].
pub(crate) const THREADS: u32 = 256;

/// What one block copies at least, unless its row is shorter.
pub(crate) const SMALLEST_CHUNK: u64 = 16 * THREADS as u64;

/// The gather kernels by capacity, and the copy kernel. The device holds them, so they may not hold the device.
pub(crate) struct GatherKernels {
    by_capacity: [Raw<sys::CUfunc_st>; CAPACITIES.len()],
    copy: Raw<sys::CUfunc_st>,
}

impl GatherKernels {
    /// Those of a device, which are loaded when they are first needed; a capture may be open then.
    pub(crate) fn of(shared: &Arc<Shared>, call: Call) -> Result<&Self> {
        if let Some(kernels) = shared.gather.get() {
            return Ok(kernels);
        }
        let kernels = Self::load(shared).map_err(|error| match error {
            CudaError::Device(error) => error,
            other => DeviceError::Driver { call, code: 0, name: other.to_string() },
        })?;
        Ok(shared.gather.get_or_init(|| kernels))
    }

    fn load(shared: &Arc<Shared>) -> Result<Self, CudaError> {
        let module = Module::load(shared, PTX)?;
        let function = |capacity| -> Result<_, CudaError> {
            Ok(Raw(module.kernel(&format!("gather_{capacity}"))?.function()))
        };
        let [few, some, many] = CAPACITIES;
        let by_capacity = [function(few)?, function(some)?, function(many)?];
        Ok(Self { by_capacity, copy: Raw(module.kernel("copy_range")?.function()) })
    }

    /// The kernel that copies one range.
    pub(crate) fn copy(&self) -> Raw<sys::CUfunc_st> {
        self.copy
    }

    /// The smallest kernel for that many rows, with its capacity.
    fn smallest(&self, rows: usize) -> Option<(usize, Raw<sys::CUfunc_st>)> {
        CAPACITIES.into_iter().zip(self.by_capacity).find(|(capacity, _)| *capacity >= rows)
    }
}

/// One chunk of a row, as the kernel reads it: destination, offset in the source, length, row.
type Chunk = [u64; 4];

/// Cuts rows into the chunks that one block copies each: small enough that every multiprocessor has some, large enough
/// that the table stays short, and on multiples of 16 bytes, so that a chunk is as well aligned as its row.
fn chunks(rows: &[GatherRow], multiprocessors: u32) -> Vec<Chunk> {
    let total: u64 = rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
    let blocks = u64::from(multiprocessors.max(1)) * 16;
    let most = total.div_ceil(blocks).max(SMALLEST_CHUNK).next_multiple_of(SMALLEST_CHUNK);
    let mut table = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut offset = 0;
        while offset < row.bytes {
            let bytes = most.min(row.bytes - offset);
            table.push([row.to.get().wrapping_add(offset), offset, bytes, index as u64]);
            offset += bytes;
        }
    }
    if table.is_empty() {
        // A kernel needs a block; this one copies nothing.
        table.push([0; 4]);
    }
    table
}

/// A gather node as it was recorded: what is needed to write its sources anew.
#[derive(Clone)]
pub(crate) struct GatherNode {
    pub(crate) function: Raw<sys::CUfunc_st>,
    pub(crate) dims: LaunchDims,
    table: DevicePtr,
    rows: Vec<GatherRow>,
    /// As many as the kernel takes; those past the rows are null.
    sources: Box<[u64]>,
}

impl GatherNode {
    /// Refuses rows and sources that do not go together.
    pub(crate) fn check(call: Call, rows: &[GatherRow], sources: &[DevicePtr]) -> Result<()> {
        if rows.is_empty() || rows.len() > MOST_ROWS || rows.len() != sources.len() {
            return Err(DeviceError::invalid(
                call,
                Problem::RowCount { rows: rows.len(), sources: sources.len() },
            ));
        }
        let null =
            |(row, source): (&GatherRow, &DevicePtr)| row.bytes > 0 && (row.to.is_null() || source.is_null());
        if rows.iter().zip(sources).any(null) {
            return Err(DeviceError::invalid(call, Problem::NullAddress));
        }
        Ok(())
    }

    /// Makes the node's table in device memory, which the caller keeps for as long as the graph. The rows and sources have
    /// been checked; a capture may be open on this thread.
    pub(crate) fn prepare(
        shared: &Arc<Shared>,
        rows: &[GatherRow],
        sources: &[DevicePtr],
    ) -> Result<(Self, DevicePages)> {
        let call = Call::Gather;
        let kernels = GatherKernels::of(shared, call)?;
        let too_many =
            || DeviceError::invalid(call, Problem::RowCount { rows: rows.len(), sources: sources.len() });
        let (capacity, function) = kernels.smallest(rows.len()).ok_or_else(too_many)?;
        let table = chunks(rows, shared.limits.multiprocessors);
        let pages = upload(shared, &table)?;
        let mut all = vec![0; capacity].into_boxed_slice();
        write_sources(&mut all, sources);
        let grid = u32::try_from(table.len()).map_err(|_| too_many())?;
        let node = Self {
            function,
            dims: LaunchDims { grid: [grid, 1, 1], block: [THREADS, 1, 1], shared_bytes: 0 },
            table: pages.base(),
            rows: rows.to_vec(),
            sources: all,
        };
        Ok((node, pages))
    }

    /// Whether the sources are those that the node has already. The count and the addresses are checked.
    pub(crate) fn compare(&self, call: Call, sources: &[DevicePtr]) -> Result<bool> {
        Self::check(call, &self.rows, sources)?;
        Ok(self.sources.iter().zip(sources).all(|(&old, new)| old == new.get()))
    }

    /// Calls `run` with the addresses of the two arguments, the table and `sources`; if it succeeds, they are the node's.
    /// Nothing is allocated.
    pub(crate) fn with_sources(
        &mut self,
        sources: &[DevicePtr],
        run: impl FnOnce(&Self, &mut [*mut c_void; 2]) -> CUresult,
    ) -> CUresult {
        let mut all = [0_u64; MOST_ROWS];
        write_sources(&mut all, sources);
        let mut arguments = [(&raw const self.table).cast_mut().cast(), all.as_mut_ptr().cast()];
        let code = run(self, &mut arguments);
        if code == CUresult::CUDA_SUCCESS {
            write_sources(&mut self.sources, sources);
        }
        code
    }
}

fn write_sources(all: &mut [u64], sources: &[DevicePtr]) {
    for (place, source) in all.iter_mut().zip(sources) {
        *place = source.get();
    }
}

/// Brings the table to the device, on a stream of its own and with the thread's capture mode relaxed, so that an open
/// capture neither forbids it nor records it.
fn upload(shared: &Arc<Shared>, table: &[Chunk]) -> Result<DevicePages> {
    let call = Call::Gather;
    let bytes = size_of_val(table);
    let _relaxed = Relaxed::swap();
    let pages = DevicePages::allocate(bytes as u64)
        .map_err(|code| shared.error(call, code, Subject::Bytes(bytes as u64)))?;
    let stream = shared.service.0;
    // SAFETY: the destination is as long as the table, which outlives the copy, since it is waited for below.
    let code = unsafe { sys::cuMemcpyHtoDAsync_v2(pages.base().get(), table.as_ptr().cast(), bytes, stream) };
    shared.check(call, code, Subject::Nothing)?;
    // SAFETY: the service stream lives as long as the device.
    let code = unsafe { sys::cuStreamSynchronize(stream) };
    shared.check(call, code, Subject::Nothing)?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::entry_parameters;

    fn row(to: u64, bytes: u64) -> GatherRow {
        GatherRow { to: DevicePtr::new(to), bytes }
    }

    #[test]
    fn the_kernels_take_a_table_and_as_many_sources_as_their_names_say() {
        for capacity in CAPACITIES {
            let parameters = entry_parameters(PTX, &format!("gather_{capacity}"));
            assert_eq!(parameters, Some(vec![8, capacity as u32 * 8]));
        }
        assert_eq!(CAPACITIES.last(), Some(&MOST_ROWS));
        assert_eq!(entry_parameters(PTX, "copy_range"), Some(vec![8; 4]));
    }

    #[test]
    fn chunks_cover_every_byte_of_every_row_once_and_in_order() {
        let rows =
            [row(0x1000, 1), row(0x2000, 0), row(0x3003, 3 * SMALLEST_CHUNK + 5), row(0x9_0000, 100 << 20)];
        let table = chunks(&rows, 132);
        for (index, row) in rows.iter().enumerate() {
            let mut covered = 0;
            for [to, offset, bytes, _] in table.iter().filter(|chunk| chunk[3] == index as u64) {
                assert_eq!((*offset, *to), (covered, row.to.get() + covered));
                assert!(offset.is_multiple_of(16));
                covered += bytes;
            }
            assert_eq!(covered, row.bytes);
        }
    }

    #[test]
    fn the_table_stays_short_however_long_the_rows_are() {
        for total in [1_u64 << 10, 1 << 26, 1 << 36] {
            let rows: Vec<_> = (0..128).map(|index| row(index << 40 | 256, total / 128)).collect();
            assert!(chunks(&rows, 132).len() <= 132 * 16 + 128);
        }
    }

    #[test]
    fn rows_without_bytes_still_make_a_block() {
        assert_eq!(chunks(&[row(256, 0)], 132), [[0; 4]]);
    }

    #[test]
    fn a_null_source_matters_only_where_bytes_are_copied() {
        let sources = [DevicePtr::NULL];
        assert_eq!(GatherNode::check(Call::Gather, &[row(256, 0)], &sources), Ok(()));
        assert_eq!(
            GatherNode::check(Call::Gather, &[row(256, 1)], &sources),
            Err(DeviceError::invalid(Call::Gather, Problem::NullAddress))
        );
        assert_eq!(
            GatherNode::check(Call::Gather, &[], &[]),
            Err(DeviceError::invalid(Call::Gather, Problem::RowCount { rows: 0, sources: 0 }))
        );
    }
}
