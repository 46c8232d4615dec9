//! Memory of the contract.

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{
    Call, DeviceError, DevicePtr, Memory, MemoryInfo, Problem, Result, StreamHandle as _,
};

use crate::async_memory::Maker;
use crate::device::CudaDevice;
use crate::host_buffer::HostBuffer;
use crate::recording::Recording;
use crate::reservation::Reservation;
use crate::segment::{Segment, check_range, is_allocated, zero_bytes};
use crate::shared::Relaxed;
use crate::status::Subject;
use crate::stream::Stream;
use crate::work::Enqueued;

impl Memory for CudaDevice {
    type Segment = Segment;
    type Reservation = Reservation;
    type HostBuffer = HostBuffer;

    fn allocate(&self, bytes: u64) -> Result<Segment> {
        self.shared.enter()?;
        Segment::allocate(&self.shared, bytes)
    }

    fn adopt_segment(&self, base: DevicePtr, bytes: u64) -> Result<Segment> {
        self.shared.enter()?;
        Segment::adopt(&self.shared, base, bytes)
    }

    fn granularity(&self) -> u64 {
        self.shared.limits.granularity
    }

    fn reserve(&self, bytes: u64) -> Result<Reservation> {
        self.shared.enter()?;
        Reservation::reserve(&self.shared, bytes)
    }

    fn map(&self, range: &mut Reservation, offset: u64, bytes: u64) -> Result<()> {
        self.shared.own(Call::Map, range.owner())?;
        self.shared.enter()?;
        range.map(offset, bytes)
    }

    fn unmap(&self, range: &mut Reservation, offset: u64, bytes: u64) -> Result<()> {
        self.shared.own(Call::Unmap, range.owner())?;
        self.shared.enter()?;
        range.unmap(offset, bytes)
    }

    fn allocate_async(&self, stream: &Stream, bytes: u64) -> Result<DevicePtr> {
        let call = Call::AllocateAsync;
        if !self.shared.limits.async_allocation {
            return Err(DeviceError::Unsupported { call });
        }
        self.shared.own(call, stream.device())?;
        if bytes == 0 {
            self.shared.enter()?;
            return Err(zero_bytes(&self.shared, call));
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut address = 0;
        let at: *mut _ = &raw mut address;
        let enqueued = self.enqueue(
            call,
            stream,
            Subject::Bytes(bytes),
            None,
            // SAFETY: the driver has written the address before the node is described, on this thread.
            || Recording::Allocate { address: DevicePtr::new(unsafe { at.read() }), bytes },
            // SAFETY: the output outlives the call, and the handle keeps the stream alive.
            || unsafe { sys::cuMemAllocAsync(at, size, stream.handle()) },
        )?;
        let address = DevicePtr::new(address);
        let maker = if matches!(enqueued, Enqueued::Eagerly) { Maker::Stream } else { Maker::Graph };
        self.shared.async_allocations.made(address, bytes, maker);
        Ok(address)
    }

    fn free_async(&self, stream: &Stream, address: DevicePtr) -> Result<()> {
        let call = Call::FreeAsync;
        self.shared.own(call, stream.device())?;
        if address.is_null() {
            return Err(DeviceError::invalid(call, Problem::NullAddress));
        }
        self.shared.alive()?;
        if !self.shared.async_allocations.contains(address) {
            return Err(DeviceError::invalid(call, Problem::NotAllocated { address, bytes: 0 }));
        }
        self.enqueue(
            call,
            stream,
            Subject::Range { address, bytes: 0 },
            None,
            || Recording::Free { address },
            // SAFETY: the address came from a stream-ordered allocation, and the handle keeps the stream alive.
            || unsafe { sys::cuMemFreeAsync(address.get(), stream.handle()) },
        )?;
        self.shared.async_allocations.freed(address);
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.shared.enter()?;
        self.shared.sweep();
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outputs outlive the call, and the context is bound.
        let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        self.shared.check(Call::MemoryInfo, code, Subject::Nothing)?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer> {
        self.shared.enter()?;
        self.shared.sweep();
        HostBuffer::allocate(&self.shared, bytes)
    }

    fn write(&self, to: DevicePtr, data: &[u8]) -> Result<()> {
        let call = Call::Write;
        let bytes = data.len() as u64;
        self.shared.enter()?;
        check_range(call, to, bytes)?;
        // SAFETY: `data` is as long as the copy and outlives it. The driver refuses a destination that it does not know.
        let code = unsafe { sys::cuMemcpyHtoD_v2(to.get(), data.as_ptr().cast(), data.len()) };
        self.shared.check(call, code, Subject::Range { address: to, bytes })?;
        // The driver returns as soon as it has read `data`, which may be before the bytes are at their place (CUDA Driver
        // API, "API synchronization behavior"). The wait itself is of the calls that captures forbid, the copy is not.
        let _relaxed = Relaxed::swap();
        // SAFETY: the null stream always lives.
        let code = unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) };
        self.shared.check(call, code, Subject::Nothing)
    }

    fn read(&self, from: DevicePtr, data: &mut [u8]) -> Result<()> {
        let call = Call::Read;
        let bytes = data.len() as u64;
        self.shared.enter()?;
        check_range(call, from, bytes)?;
        // SAFETY: `data` is as long as the copy, which has ended when the call returns. The driver refuses a source that it
        // does not know before it copies anything.
        let code = unsafe { sys::cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), from.get(), data.len()) };
        self.shared.check(call, code, Subject::Range { address: from, bytes })
    }
}

/// The range of device memory that a copy from the host was to go to, if the driver has refused the copy because it does
/// not know the range. The context has to be bound.
pub(crate) fn unknown_target(to: DevicePtr, bytes: u64, code: CUresult) -> Subject {
    if code == CUresult::CUDA_ERROR_INVALID_VALUE && !is_allocated(to, bytes) {
        return Subject::Range { address: to, bytes };
    }
    Subject::Nothing
}

/// Which of two ranges the driver does not know, after it has refused a copy. The context has to be bound.
pub(crate) fn unknown_range(to: DevicePtr, from: DevicePtr, bytes: u64, code: CUresult) -> Subject {
    if code != CUresult::CUDA_ERROR_INVALID_VALUE {
        return Subject::Nothing;
    }
    let address = if is_allocated(to, bytes) { from } else { to };
    Subject::Range { address, bytes }
}
