//! Looking at blocks and free runs.

use super::Ranges;
use super::ids::{BlockId, RegionId};
use super::region::{Region, RegionKind};
use super::slots::{SlotIx, State};

/// One live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's name, which frees it.
    pub id: BlockId,
    /// The region it lies in.
    pub region: RegionId,
    /// Where it starts in its region, in bytes.
    pub offset: u64,
    /// Its length in bytes, rounded up to whole granules.
    pub bytes: u64,
}

/// A run of bytes of one region: a live block, or free memory between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// Where the run starts in its region, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The block that lies there, or `None` for free memory.
    pub block: Option<BlockId>,
}

impl Ranges {
    #[inline]
    pub(super) fn describe(&self, ix: SlotIx) -> Block {
        let slot = &self.slots[ix];
        Block {
            id: self.slots.name(ix),
            region: RegionId(slot.region.into()),
            offset: self.granule.to_bytes(slot.offset),
            bytes: self.granule.to_bytes(slot.size),
        }
    }

    /// The block of this name, if it is live.
    #[must_use]
    pub fn block(&self, id: BlockId) -> Option<Block> {
        Some(self.describe(self.slots.find_live(id)?))
    }

    /// The live block that the byte `offset` of `region` lies in. Tidies the index by address on the way, and changes nothing else.
    #[must_use]
    pub fn block_at(&mut self, region: RegionId, offset: u64) -> Option<Block> {
        let at = self.granule.floor(offset)?;
        let ix = self.slot_at_or_before(u16::try_from(region.0).ok()?, at)?;
        let hit = self.slots[ix].state == State::Live && at < self.slots[ix].end();
        hit.then(|| self.describe(ix))
    }

    /// The last block of a region that starts at or before `offset`, or the region's edge.
    pub(super) fn slot_at_or_before(&mut self, region: u16, offset: u32) -> Option<SlotIx> {
        let Region { edge, index, .. } =
            self.regions.get_mut(usize::from(region)).filter(|region| region.kind.is_some())?;
        Some(index.at_or_before(&self.slots, region, *edge, offset))
    }

    /// The regions in order of preference, with kind and length in bytes.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, RegionKind, u64)> {
        self.regions.iter().enumerate().filter_map(|(at, region)| {
            Some((RegionId(at as u32), region.kind?, self.granule.to_bytes(region.len)))
        })
    }

    /// Where the last live block of `region` ends, in bytes: what shrinking can go down to.
    #[must_use]
    pub fn used_end(&self, region: RegionId) -> Option<u64> {
        let region = self.regions.get(region.0 as usize).filter(|region| region.kind.is_some())?;
        Some(self.granule.to_bytes(self.slots[region.last].end()))
    }

    /// All blocks and free runs by rising address. Together they cover every region without gap or overlap.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.regions().flat_map(move |(id, _, _)| {
            let region = &self.regions[id.0 as usize];
            let mut next = region.edge;
            let slots = std::iter::from_fn(move || {
                let ix = next;
                next = self.slots.get(ix.at())?.next;
                Some(ix)
            });
            slots.flat_map(move |ix| {
                let slot = &self.slots[ix];
                let free = if ix == region.last { region.len - slot.end() } else { slot.gap };
                let span = |offset, size, block| Span {
                    region: id,
                    offset: self.granule.to_bytes(offset),
                    bytes: self.granule.to_bytes(size),
                    block,
                };
                let block = (slot.state == State::Live)
                    .then(|| span(slot.offset, slot.size, Some(self.slots.name(ix))));
                let hole = (free > 0).then(|| span(slot.end(), free, None));
                block.into_iter().chain(hole)
            })
        })
    }

    /// The live blocks by rising address.
    pub fn live_blocks(&self) -> impl Iterator<Item = Block> {
        self.spans().filter_map(|span| {
            Some(Block { id: span.block?, region: span.region, offset: span.offset, bytes: span.bytes })
        })
    }

    /// The runs of free memory by rising address, tails included.
    pub fn free_runs(&self) -> impl Iterator<Item = Span> {
        self.spans().filter(|span| span.block.is_none())
    }
}
