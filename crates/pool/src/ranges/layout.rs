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

    /// The last slot of a region that starts at or before `offset`.
    pub(super) fn slot_at_or_before(&mut self, region: u16, offset: u32) -> Option<SlotIx> {
        let Region { first, index, .. } = self.regions.get_mut(usize::from(region))?;
        let ix = index.at_or_before(&self.slots, region, *first, offset);
        ix.is_some().then_some(ix)
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
        let mut last = region.last;
        while last.is_some() && self.slots[last].state == State::Hole {
            last = self.slots[last].prev;
        }
        Some(if last.is_some() { self.granule.to_bytes(self.slots[last].end()) } else { 0 })
    }

    /// All blocks and free runs by rising address. Together they cover every region without gap or overlap.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.regions().flat_map(move |(id, _, len)| {
            let region = &self.regions[id.0 as usize];
            let mut next = region.first;
            let slots = std::iter::from_fn(move || {
                let ix = next;
                ix.is_some().then(|| {
                    next = self.slots[ix].next;
                    let block = self.describe(ix);
                    let live = self.slots[ix].state == State::Live;
                    Span {
                        region: id,
                        offset: block.offset,
                        bytes: block.bytes,
                        block: live.then_some(block.id),
                    }
                })
            });
            let tail = self.granule.to_bytes(region.tail);
            let tail =
                (len > tail).then(|| Span { region: id, offset: tail, bytes: len - tail, block: None });
            slots.chain(tail)
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
