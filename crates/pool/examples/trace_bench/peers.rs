//! One interface for the allocators that are compared.
//!
//! `gpu-allocator` is not among them: its sub-allocators are private to the crate, and what it exports needs a device of Vulkan,
//! Direct3D 12 or Metal.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use graphgrove_pool::ranges::{BlockId, Ranges, RegionKind};

/// An allocator with its table of live blocks. Sizes are in granules.
pub(crate) trait Peer {
    fn name(&self) -> &'static str;
    fn alloc(&mut self, block: usize, size: u32);
    fn free(&mut self, block: usize);
    /// Called between two rounds, when nothing is live.
    fn end_round(&mut self) {}
}

/// This crate's allocator.
pub(crate) struct Ours {
    ranges: Ranges,
    blocks: Vec<BlockId>,
    recording: bool,
}

impl Ours {
    /// With `recording`, a checkpoint is held all the time, so that every operation is noted.
    pub(crate) fn new(capacity: u32, blocks: usize, recording: bool) -> Self {
        let mut ranges = Ranges::default();
        ranges.add_region(RegionKind::Growing, u64::from(capacity) * 512).expect("the capacity is in range");
        let filler = ranges.alloc(1, 1).expect("there is room");
        ranges.free(filler.id).expect("the block is live");
        if recording {
            let _held = ranges.checkpoint();
        }
        Self { ranges, blocks: vec![filler.id; blocks], recording }
    }
}

impl Peer for Ours {
    fn name(&self) -> &'static str {
        if self.recording { "graphgrove, noting" } else { "graphgrove" }
    }

    fn alloc(&mut self, block: usize, size: u32) {
        self.blocks[block] = self.ranges.alloc(u64::from(size) * 512, 1).expect("there is room").id;
    }

    fn free(&mut self, block: usize) {
        self.ranges.free(self.blocks[block]).expect("the block is live");
    }
}

/// The crate `offset-allocator`.
pub(crate) struct Offsets {
    inner: offset_allocator::Allocator,
    blocks: Vec<Option<offset_allocator::Allocation>>,
}

impl Offsets {
    pub(crate) fn new(capacity: u32, blocks: usize) -> Self {
        Self { inner: offset_allocator::Allocator::new(capacity), blocks: vec![None; blocks] }
    }
}

impl Peer for Offsets {
    fn name(&self) -> &'static str {
        "offset-allocator"
    }

    fn alloc(&mut self, block: usize, size: u32) {
        self.blocks[block] = Some(self.inner.allocate(size).expect("there is room"));
    }

    fn free(&mut self, block: usize) {
        self.inner.free(self.blocks[block].take().expect("the block is live"));
    }
}

/// The crate `rlsf`. It keeps its headers in the memory that it hands out, so a granule is 32 bytes of host memory here.
pub(crate) struct Tlsf {
    inner: rlsf::Tlsf<'static, u32, u32, 32, 32>,
    blocks: Vec<Option<NonNull<u8>>>,
}

const HOST_GRANULE: usize = 32;

impl Tlsf {
    pub(crate) fn new(capacity: u32, blocks: usize) -> Self {
        let mut inner = rlsf::Tlsf::new();
        let mut memory = Vec::new();
        memory.resize(capacity as usize * HOST_GRANULE, MaybeUninit::uninit());
        // Leaked, because the allocator borrows its memory and both would have to live in one struct.
        let _pool = inner.insert_free_block(Vec::leak(memory));
        Self { inner, blocks: vec![None; blocks] }
    }
}

impl Peer for Tlsf {
    fn name(&self) -> &'static str {
        "rlsf"
    }

    fn alloc(&mut self, block: usize, size: u32) {
        // Its header takes one of the granules, as it would for a pool of host memory.
        let layout =
            Layout::from_size_align(size as usize * HOST_GRANULE - 16, 16).expect("the size is in range");
        self.blocks[block] = Some(self.inner.allocate(layout).expect("there is room"));
    }

    fn free(&mut self, block: usize) {
        let pointer = self.blocks[block].take().expect("the block is live");
        // SAFETY: the pointer came from `allocate` of the same pool with alignment 16, and was taken out of the table.
        unsafe { self.inner.deallocate(pointer, 16) };
    }
}

/// Frees nothing until the end: the least work that an allocator can do.
pub(crate) struct Bump {
    next: u64,
    blocks: Vec<u64>,
}

impl Bump {
    pub(crate) fn new(blocks: usize) -> Self {
        Self { next: 0, blocks: vec![0; blocks] }
    }
}

impl Peer for Bump {
    fn name(&self) -> &'static str {
        "no free"
    }

    fn alloc(&mut self, block: usize, size: u32) {
        self.blocks[block] = self.next;
        self.next += u64::from(size);
    }

    fn free(&mut self, block: usize) {
        std::hint::black_box(self.blocks[block]);
    }

    fn end_round(&mut self) {
        self.next = 0;
    }
}
