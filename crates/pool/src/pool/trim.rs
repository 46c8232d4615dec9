//! Giving memory back to the device.

use graphgrove_device::Device;

use crate::error::PoolError;

use super::phase::Phase;
use super::state::State;

impl<D: Device> State<D> {
    /// Gives back what can be, unless something is under way that must not be waited for; says how many bytes went.
    pub(super) fn trim(&mut self, device: &D) -> Result<u64, PoolError> {
        if matches!(self.phase, Phase::Session(_)) || self.is_capturing(device) {
            self.counts.trims_refused += 1;
            return Ok(0);
        }
        self.return_memory(device)
    }

    /// Waits for all known streams, and gives back every segment and page that is wholly free and that no recording has the address
    /// of. Addresses of everything else stay as they are.
    pub(super) fn return_memory(&mut self, device: &D) -> Result<u64, PoolError> {
        self.synchronize(device)?;
        self.grown.clear();
        let mut returned = 0;
        for region in self.backing.own_segments() {
            if self.pins.end(region) > 0 {
                continue;
            }
            // A segment with blocks in it, live or remembered, stays.
            if let Ok(bytes) = self.backing.remove_segment(&mut self.ranges, region) {
                returned += bytes;
                self.counts.returns += 1;
            }
        }
        if let Some(region) = self.backing.growing() {
            let keep = self.ranges.used_end(region).unwrap_or(0).max(self.pins.end(region));
            while let Some(bytes) = self.backing.unmap_last(device, &mut self.ranges, keep)? {
                returned += bytes;
                self.counts.returns += 1;
            }
        }
        Ok(returned)
    }
}
