//! Which memory has to stay where it is, because a recording has its addresses.

use std::collections::BTreeMap;

use crate::ranges::{Block, RegionId};

/// Up to where each region is used, in bytes.
///
/// It counts temporaries too, which leave no trace in a checkpoint: the recorded work writes them at every replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Footprint(BTreeMap<RegionId, u64>);

impl Footprint {
    pub(super) fn add(&mut self, region: RegionId, end: u64) {
        let known = self.0.entry(region).or_default();
        *known = end.max(*known);
    }

    pub(super) fn add_block(&mut self, block: &Block) {
        self.add(block.region, block.offset + block.bytes);
    }
}

/// The footprints of all recordings that can be replayed: a (region -> end -> how many) table.
#[derive(Debug, Default)]
pub(super) struct Pins(BTreeMap<RegionId, BTreeMap<u64, u32>>);

impl Pins {
    pub(super) fn pin(&mut self, footprint: &Footprint) {
        for (&region, &end) in &footprint.0 {
            *self.0.entry(region).or_default().entry(end).or_default() += 1;
        }
    }

    pub(super) fn unpin(&mut self, footprint: &Footprint) {
        for (region, end) in &footprint.0 {
            let Some(ends) = self.0.get_mut(region) else { continue };
            if let Some(count) = ends.get_mut(end) {
                *count -= 1;
                if *count == 0 {
                    ends.remove(end);
                }
            }
            if ends.is_empty() {
                self.0.remove(region);
            }
        }
    }

    /// How many different ends are noted.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Up to where a region has to stay, in bytes; 0 if it may go.
    pub(super) fn end(&self, region: RegionId) -> u64 {
        self.0.get(&region).and_then(|ends| ends.last_key_value()).map_or(0, |(&end, _)| end)
    }
}
