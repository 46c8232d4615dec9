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

/// The length is in granules.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// `None` once the region was removed, until its name is given to another.
    pub(super) kind: Option<RegionKind>,
    pub(super) len: u32,
    /// The slot before the first block.
    pub(super) edge: SlotIx,
    /// The last block, or the edge of a region without blocks. The tail of a growing region begins where it ends.
    pub(super) last: SlotIx,
    pub(super) index: AddressIndex,
}

impl Region {
    pub(super) fn new(kind: RegionKind, len: u32, edge: SlotIx) -> Self {
        Self { kind: Some(kind), len, edge, last: edge, index: AddressIndex::default() }
    }

    /// What is left of a region until its name is given to another.
    pub(super) fn removed() -> Self {
        let none = SlotIx::NONE;
        Self { kind: None, len: 0, edge: none, last: none, index: AddressIndex::default() }
    }

    #[inline]
    pub(super) fn grows(&self) -> bool {
        self.kind == Some(RegionKind::Growing)
    }
}
