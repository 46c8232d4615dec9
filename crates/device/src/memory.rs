//! Device memory in large pieces, host buffers, and blocking access to both.

use crate::{DeviceId, DevicePtr, Result, Streams};

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryInfo {
    /// Bytes that can still be allocated, fragmentation aside.
    pub free: u64,
    /// Bytes that the device has.
    pub total: u64,
}

/// One contiguous piece of device memory. Dropping it gives the memory back, unless it was adopted.
///
/// The drop does not wait for work that uses the memory: whoever owns it makes sure that there is none. It never
/// reaches the driver while a capture is open on the device: it is put off until the capture has ended.
pub trait SegmentMemory: Send + Sync + 'static {
    /// The device that the memory belongs to.
    fn device(&self) -> DeviceId;

    /// The first address, aligned to 256 bytes at least.
    fn base(&self) -> DevicePtr;

    /// The length in bytes.
    fn bytes(&self) -> u64;
}

/// A range of addresses, of which pieces can be backed by memory and given back again without changing an address.
///
/// Dropping it unmaps what is mapped and releases the addresses, under the same rule as a segment.
pub trait ReservedRange: Send + 'static {
    /// The device that the range belongs to.
    fn device(&self) -> DeviceId;

    /// The first address, a multiple of the granularity.
    fn base(&self) -> DevicePtr;

    /// The length of the range in bytes, a multiple of the granularity.
    fn bytes(&self) -> u64;

    /// The bytes that are backed by memory now.
    fn mapped_bytes(&self) -> u64;
}

/// Host memory that the device can reach by itself (pinned), shared by its clones.
///
/// Every copy that was enqueued from or to it, and every graph that holds such a copy, keeps it alive.
pub trait HostMemory: Clone + Send + Sync + 'static {
    /// The device that can reach it.
    fn device(&self) -> DeviceId;

    /// The length in bytes.
    fn bytes(&self) -> usize;

    /// Whether both are clones of one buffer. Buffers that merely hold the same bytes are not.
    fn is_same(&self, other: &Self) -> bool;

    /// Copies `data` into the buffer, `offset` bytes from its start, at once. No bytes are copied at any offset.
    ///
    /// A host function that a stream [calls](crate::Work::host_call) may use it, at its place in the stream.
    ///
    /// Work that reads the same bytes has to be finished or not enqueued yet; a checked device reports a race else.
    ///
    /// # Errors
    /// [`Problem::OutOfRange`](crate::Problem::OutOfRange); nothing is written then.
    fn write(&self, offset: usize, data: &[u8]) -> Result<()>;

    /// Copies from the buffer, `offset` bytes from its start, into `data`, at once. As [`write`](HostMemory::write) otherwise.
    ///
    /// Work that writes the same bytes has to be finished or not enqueued yet; a checked device reports a race else.
    ///
    /// # Errors
    /// [`Problem::OutOfRange`](crate::Problem::OutOfRange); `data` is not changed then.
    fn read(&self, offset: usize, data: &mut [u8]) -> Result<()>;
}

/// Memory of a device.
///
/// [`allocate`](Memory::allocate), [`host_buffer`](Memory::host_buffer), and [`allocate_async`](Memory::allocate_async) and
/// [`free_async`](Memory::free_async) on a stream that does not capture are *unsafe during capture*, as
/// [`Capture`](crate::Capture) explains. A pool that must grow inside a capture does so under a
/// [`ModeGuard`](crate::ModeGuard). Reserving, mapping, unmapping, [`memory_info`](Memory::memory_info), and the blocking
/// [`read`](Memory::read) and [`write`](Memory::write) are allowed at any time, save that the latter two use the null stream
/// ([`CaptureFailure::Implicit`](crate::CaptureFailure::Implicit) while a blocking stream captures).
pub trait Memory: Streams {
    /// A contiguous piece of memory.
    type Segment: SegmentMemory;
    /// A range of addresses.
    type Reservation: ReservedRange;
    /// Pinned host memory.
    type HostBuffer: HostMemory;

    /// Obtains `bytes` of device memory. Its contents are undefined.
    ///
    /// # Errors
    /// [`Problem::ZeroBytes`](crate::Problem::ZeroBytes), [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory);
    /// nothing is allocated then.
    fn allocate(&self, bytes: u64) -> Result<Self::Segment>;

    /// Takes memory that somebody else owns into use. Dropping the segment does not free it.
    ///
    /// The caller keeps the memory alive for as long as the segment, or any graph that uses its addresses, is in use.
    ///
    /// # Errors
    /// [`Problem::NullAddress`](crate::Problem::NullAddress), [`Problem::ZeroBytes`](crate::Problem::ZeroBytes), and
    /// [`Problem::NotAllocated`](crate::Problem::NotAllocated) where the device can tell that there is no such memory.
    fn adopt_segment(&self, base: DevicePtr, bytes: u64) -> Result<Self::Segment>;

    /// The granularity in bytes of [`reserve`](Memory::reserve), [`map`](Memory::map) and [`unmap`](Memory::unmap).
    fn granularity(&self) -> u64;

    /// Reserves addresses for `bytes`, rounded up to the granularity, without memory behind them.
    ///
    /// # Errors
    /// [`Problem::ZeroBytes`](crate::Problem::ZeroBytes); [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory) where
    /// there are not that many addresses; [`DeviceError::Unsupported`](crate::DeviceError::Unsupported) without
    /// [`RESERVE_MAP`](crate::Capabilities::RESERVE_MAP).
    fn reserve(&self, bytes: u64) -> Result<Self::Reservation>;

    /// Backs `bytes` from `offset` on with memory of undefined contents. The piece is one mapping.
    ///
    /// # Errors
    /// [`Problem::ZeroBytes`](crate::Problem::ZeroBytes),
    /// [`Problem::Granularity`](crate::Problem::Granularity), [`Problem::OutOfRange`](crate::Problem::OutOfRange),
    /// [`Problem::AlreadyMapped`](crate::Problem::AlreadyMapped),
    /// [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory); nothing is mapped then.
    fn map(&self, range: &mut Self::Reservation, offset: u64, bytes: u64) -> Result<()>;

    /// Gives the memory behind `bytes` from `offset` on back; the addresses stay reserved.
    ///
    /// The piece has to be one mapping or several whole ones. Nothing may use it any more.
    ///
    /// # Errors
    /// [`Problem::ZeroBytes`](crate::Problem::ZeroBytes), [`Problem::Granularity`](crate::Problem::Granularity),
    /// [`Problem::OutOfRange`](crate::Problem::OutOfRange), [`Problem::NotMapped`](crate::Problem::NotMapped); nothing is
    /// unmapped then.
    fn unmap(&self, range: &mut Self::Reservation, offset: u64, bytes: u64) -> Result<()>;

    /// Allocates `bytes` in stream order (`cuMemAllocAsync`). In a capture this becomes a memory node.
    ///
    /// The pool never calls this; it is in the contract because libraries do, and an audit has to find it.
    ///
    /// # Errors
    /// As [`allocate`](Memory::allocate); [`DeviceError::Unsupported`](crate::DeviceError::Unsupported) without
    /// [`STREAM_ORDERED_ALLOCATION`](crate::Capabilities::STREAM_ORDERED_ALLOCATION).
    fn allocate_async(&self, stream: &Self::Stream, bytes: u64) -> Result<DevicePtr>;

    /// Frees an address that [`allocate_async`](Memory::allocate_async) gave, in stream order. In a capture this
    /// becomes a free node, for an allocation of the same capture.
    ///
    /// # Errors
    /// [`Problem::NotAllocated`](crate::Problem::NotAllocated).
    fn free_async(&self, stream: &Self::Stream, address: DevicePtr) -> Result<()>;

    /// What is free and what there is. It reaches the driver, so it has no place on a replay path.
    ///
    /// # Errors
    /// Only those of every method.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Allocates `bytes` of pinned host memory, filled with zeros.
    ///
    /// # Errors
    /// [`Problem::ZeroBytes`](crate::Problem::ZeroBytes), [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory).
    fn host_buffer(&self, bytes: usize) -> Result<Self::HostBuffer>;

    /// Copies `data` to the device and returns when it is there. It is ordered with the null stream only: work on other
    /// streams that uses the same memory has to be waited for first.
    ///
    /// # Errors
    /// [`Problem::ZeroBytes`](crate::Problem::ZeroBytes), [`Problem::NullAddress`](crate::Problem::NullAddress),
    /// [`Problem::NotAllocated`](crate::Problem::NotAllocated); nothing is written then.
    fn write(&self, to: DevicePtr, data: &[u8]) -> Result<()>;

    /// Copies from the device into `data` and returns when it is there, ordered as [`write`](Memory::write).
    ///
    /// # Errors
    /// As [`write`](Memory::write); `data` is not changed then.
    fn read(&self, from: DevicePtr, data: &mut [u8]) -> Result<()>;
}
