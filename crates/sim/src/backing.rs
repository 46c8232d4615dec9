//! The host memory that stands in for device memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Host memory of a fixed length, aligned to 256 bytes so that a device address and the host address behind it have the
/// same alignment.
///
/// Obtained on first use: a large segment that nothing touches costs nothing.
#[derive(Debug)]
pub(crate) struct Backing {
    bytes: usize,
    memory: Option<Memory>,
}

/// What the host's allocator gave, and the first aligned byte in it.
#[derive(Debug)]
struct Memory {
    allocation: NonNull<u8>,
    start: NonNull<u8>,
}

// SAFETY: the memory is owned by this value alone, and every access goes through `&mut self` or through pointers that the
// device hands to one running operation at a time under its state lock.
unsafe impl Send for Backing {}

impl Backing {
    const ALIGNMENT: usize = 256;

    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, memory: None }
    }

    /// The layout that is asked of the allocator. It is not aligned itself: the standard allocator only obtains zeroed memory
    /// without touching it for alignments that every allocation has.
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(Self::ALIGNMENT)?, align_of::<u64>()).ok()
    }

    /// The first byte, valid for reads and writes of the whole length until the backing is dropped, or `None` if the host has
    /// no memory left.
    pub(crate) fn start(&mut self) -> Option<NonNull<u8>> {
        if self.memory.is_none() {
            let layout = Self::layout(self.bytes)?;
            // SAFETY: the layout has a size above zero.
            let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            let offset = allocation.as_ptr().align_offset(Self::ALIGNMENT).min(Self::ALIGNMENT);
            // SAFETY: the allocation is longer than the backing by the alignment, which is the most that the offset can be.
            let start = unsafe { allocation.add(offset) };
            self.memory = Some(Memory { allocation, start });
        }
        self.memory.as_ref().map(|memory| memory.start)
    }

    /// The bytes `from..to`, or `None` if they are outside or the host has no memory left.
    pub(crate) fn slice_mut(&mut self, from: usize, to: usize) -> Option<&mut [u8]> {
        if from > to || to > self.bytes {
            return None;
        }
        let start = self.start()?;
        // SAFETY: `from..to` is inside of the allocation, whose bytes are initialised (zeroed) and borrowed through `&mut self`.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().add(from), to - from) })
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let (Some(memory), Some(layout)) = (&self.memory, Self::layout(self.bytes)) {
            // SAFETY: the allocation came from `alloc_zeroed` with this same layout.
            unsafe { dealloc(memory.allocation.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_are_read_back_and_the_rest_is_zero() {
        let mut backing = Backing::new(64);
        backing.slice_mut(8, 16).unwrap().fill(7);
        assert_eq!(backing.slice_mut(0, 24).unwrap(), [[0; 8], [7; 8], [0; 8]].concat());
    }

    #[test]
    fn a_range_outside_is_refused() {
        let mut backing = Backing::new(64);
        assert!(backing.slice_mut(60, 65).is_none());
        assert!(backing.slice_mut(8, 7).is_none());
        assert!(backing.slice_mut(64, 64).is_some());
    }

    #[test]
    fn memory_is_aligned_to_256_bytes() {
        assert_eq!(Backing::new(10).start().unwrap().as_ptr() as usize % 256, 0);
    }
}
