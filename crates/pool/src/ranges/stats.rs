//! Statistics that are always on.

use super::Ranges;
use super::slots::State;

/// Counters in granules, kept by every operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) live: u64,
    pub(super) live_blocks: u32,
    peak_live: u64,
    pub(super) reserved: u64,
    peak_reserved: u64,
}

impl Tally {
    pub(super) fn add_live(&mut self, size: u32) {
        self.live += u64::from(size);
        self.live_blocks += 1;
    }

    pub(super) fn remove_live(&mut self, size: u32) {
        self.live -= u64::from(size);
        self.live_blocks -= 1;
    }

    /// Notes a state that a caller can see. A restore passes through states that nobody sees, which must not count.
    pub(super) fn note_peak(&mut self) {
        self.peak_live = self.peak_live.max(self.live);
    }

    pub(super) fn reserve(&mut self, len: u64) {
        self.reserved += len;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    pub(super) fn release(&mut self, len: u64) {
        self.reserved -= len;
    }
}

/// What an allocator holds, all in bytes unless said otherwise. Live bytes are counted as rounded to granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeStats {
    /// The length of all regions together.
    pub reserved: u64,
    /// The most that was ever reserved at once.
    pub peak_reserved: u64,
    /// The bytes of live blocks.
    pub live: u64,
    /// The most bytes that were ever live at once.
    pub peak_live: u64,
    /// `reserved - live`.
    pub free: u64,
    /// The longest run of free bytes, tails included.
    pub largest_free: u64,
    /// How many blocks are live.
    pub live_blocks: u32,
    /// How many runs of free memory there are, tails included.
    pub free_runs: u32,
}

impl RangeStats {
    /// How far the free memory is from being one run: 0 when it is (or when there is none), near 1 when it is dust.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free as f64 }
    }
}

impl Ranges {
    /// What the allocator holds now. Costs O(log holes) and one step for each growing region.
    #[must_use]
    pub fn stats(&self) -> RangeStats {
        let bytes = |granules: u64| granules * self.granule.bytes();
        let mut largest = self.holes.largest(&self.slots);
        let mut free_runs = self.holes.count();
        for &region in &self.growing {
            let region = &self.regions[usize::from(region)];
            let tail = region.len - self.slots[region.last].end();
            largest = largest.max(tail);
            free_runs += u32::from(tail > 0);
        }
        RangeStats {
            reserved: bytes(self.tally.reserved),
            peak_reserved: bytes(self.tally.peak_reserved),
            live: bytes(self.tally.live),
            peak_live: bytes(self.tally.peak_live),
            free: bytes(self.tally.reserved - self.tally.live),
            largest_free: self.granule.to_bytes(largest),
            live_blocks: self.tally.live_blocks,
            free_runs,
        }
    }

    /// Starts the peaks anew from what is live and reserved now.
    pub fn reset_peaks(&mut self) {
        self.tally.peak_live = self.tally.live;
        self.tally.peak_reserved = self.tally.reserved;
    }

    /// How many blocks are not live and remembered by a checkpoint. Costs a pass over the side table.
    #[must_use]
    pub fn remembered_blocks(&self) -> usize {
        self.slots.iter().filter(|(_, slot)| slot.state == State::Parked).count()
    }
}
