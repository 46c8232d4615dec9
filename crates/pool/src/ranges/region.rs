//! One region: an address range that blocks never reach across.

use super::addresses::AddressIndex;
use super::slots::SlotIx;

/// How a region gets its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// One allocation of the device. Free memory at its end is a hole like any other.
    Fixed,
    /// A reserved address range whose pages are mapped from the start as needed. The free memory behind its last block is its *tail*:
    /// the last choice of every request, so that addresses do not depend on how much happens to be mapped.
    Growing,
}

/// Lengths and offsets are in granules.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// `None` once the region was removed, until its name is given to another.
    pub(super) kind: Option<RegionKind>,
    pub(super) len: u32,
    /// Where the tail starts: the end of the last live block of a growing region, the length of a fixed one.
    pub(super) tail: u32,
    /// The slots with the lowest and the highest address.
    pub(super) first: SlotIx,
    pub(super) last: SlotIx,
    pub(super) index: AddressIndex,
}

impl Region {
    pub(super) fn new(kind: RegionKind, len: u32) -> Self {
        let tail = if kind == RegionKind::Fixed { len } else { 0 };
        let none = SlotIx::NONE;
        Self { kind: Some(kind), len, tail, first: none, last: none, index: AddressIndex::default() }
    }

    /// What is left of a region until its name is given to another.
    pub(super) fn removed() -> Self {
        Self { kind: None, ..Self::new(RegionKind::Fixed, 0) }
    }

    pub(super) fn grows(&self) -> bool {
        self.kind == Some(RegionKind::Growing)
    }
}
