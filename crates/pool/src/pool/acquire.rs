//! Handing blocks out, and growing for it.

use graphgrove_device::{Annotation, Device, DeviceError, DevicePtr};

use crate::error::PoolError;
use crate::ranges::{self, BlockId};

use super::exhaustion::{Exhaustion, Limit};
use super::records::Record;
use super::report::{Shortage, sum_up};
use super::request::Request;
use super::state::State;

/// How many shortages are remembered.
const SHORTAGES: usize = 64;

/// A new block, as its first handle knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acquired {
    pub(super) id: BlockId,
    pub(super) at: DevicePtr,
    pub(super) epoch: u32,
}

impl<D: Device> State<D> {
    /// Hands a block out. If anything goes wrong, the pool is as before, and so is the plan that it follows.
    pub(super) fn acquire(&mut self, device: &D, request: Request) -> Result<Acquired, PoolError> {
        let session = self.session_number();
        if session == 0 {
            self.grown.clear();
        }
        let grown = self.grown.len();
        let cursor = self.phase.session().and_then(|session| session.cursor.clone());
        match self.try_acquire(device, &request) {
            Ok((block, at)) => {
                let position = self.phase.session().map_or(0, |session| {
                    session.born.push(block.id);
                    session.footprint.add_block(&block);
                    session.recorder.alloc(request.bytes, request.align)
                });
                let record = Record {
                    id: block.id,
                    epoch: 0,
                    claims: 1,
                    owner: request.owner,
                    label: request.label,
                    at,
                    bytes: block.bytes,
                    asked: request.bytes,
                    birth: self.frontier.here(),
                    uses: Vec::new(),
                    awaited: 0,
                    session,
                    request: position,
                };
                self.records.insert(record);
                self.counts.allocations += 1;
                Ok(Acquired { id: block.id, at, epoch: 0 })
            }
            Err(error) => {
                self.shrink_to(device, grown);
                if let Some(session) = self.phase.session() {
                    session.cursor = cursor;
                }
                Err(error)
            }
        }
    }

    fn try_acquire(
        &mut self,
        device: &D,
        request: &Request,
    ) -> Result<(ranges::Block, DevicePtr), PoolError> {
        let block = self.place(device, request)?;
        let at = self.backing.address(&block);
        let told = if at.is_aligned_to(request.align) {
            let acquired = Annotation::Acquired { at, bytes: block.bytes, label: request.label };
            device.annotate(&self.main, acquired).map_err(PoolError::from)
        } else {
            Err(PoolError::BadAlignment { align: request.align })
        };
        if let Err(error) = told {
            self.ranges.free(block.id)?;
            return Err(error);
        }
        Ok((block, at))
    }

    /// Finds a place, growing if there is none, and giving back what others could use before it gives up.
    fn place(&mut self, device: &D, request: &Request) -> Result<ranges::Block, PoolError> {
        let grow_by = match self.find(device, request) {
            Err(PoolError::NoRoom { grow_by, .. }) => grow_by,
            found => return found,
        };
        self.note_shortage(request);
        if let Err(error) = self.extend(device, request.bytes, grow_by) {
            let short = matches!(error, PoolError::Exhausted(_));
            let relieved = short && self.phase.expect_open().is_ok() && self.relieve(device)?;
            if !relieved {
                return Err(error);
            }
            match self.ranges.alloc(request.bytes, request.align) {
                Err(PoolError::NoRoom { grow_by, .. }) => self.extend(device, request.bytes, grow_by)?,
                found => return found,
            }
        }
        self.ranges.alloc(request.bytes, request.align)
    }

    fn find(&mut self, device: &D, request: &Request) -> Result<ranges::Block, PoolError> {
        let Self { phase, ranges, counts, .. } = self;
        let cursor = phase.session().and_then(|session| session.cursor.as_mut());
        if let Some(cursor) = cursor.filter(|cursor| cursor.departure().is_none()) {
            let served = cursor.served();
            let found = cursor.alloc(ranges, request.bytes, request.align);
            counts.planned += u64::from(cursor.served() - served);
            counts.departures += u64::from(cursor.departure().is_some());
            return found;
        }
        if let Some(block) = ranges.alloc_sparing(request.bytes, request.align)? {
            return Ok(block);
        }
        self.grow_to_spare(device, request);
        self.ranges.alloc(request.bytes, request.align)
    }

    /// Grows for a request that would break a large hole otherwise. Where memory for it cannot be had, the hole is there to be used.
    fn grow_to_spare(&mut self, device: &D, request: &Request) {
        let needed = self.ranges.spares_by_growing(request.bytes, request.align);
        let needed = needed.and_then(|by| by.checked_next_multiple_of(device.granularity().max(1)));
        let Some(needed) = needed.filter(|&by| by <= self.backing.growing_left()) else { return };
        let reserved = self.ranges.stats().reserved.saturating_add(needed);
        if self.config.budget.is_none_or(|budget| reserved <= budget) {
            self.extend(device, request.bytes, Some(needed)).ok();
        }
    }

    fn note_shortage(&mut self, request: &Request) {
        let stats = self.ranges.stats();
        if self.shortages.len() == SHORTAGES {
            self.shortages.pop_front();
        }
        self.shortages.push_back(Shortage {
            asked: request.bytes,
            owner: request.owner,
            label: request.label,
            reserved: stats.reserved,
            free: stats.free,
            largest_free: stats.largest_free,
            awaited: self.awaited().0,
        });
    }

    /// Gives back what is not in use, so that there is room for what is asked for. Says whether that was anything.
    fn relieve(&mut self, device: &D) -> Result<bool, PoolError> {
        if self.is_capturing(device) {
            return Ok(false);
        }
        let awaited = self.awaited().0;
        let returned = self.return_memory(device)?;
        Ok(returned > 0 || awaited > 0)
    }

    /// Obtains memory for a request: as much as the growth policy says, or else just enough.
    pub(super) fn extend(&mut self, device: &D, bytes: u64, grow_by: Option<u64>) -> Result<(), PoolError> {
        let left = self.backing.growing_left();
        let unit = device.granularity().max(1);
        let needed = grow_by.and_then(|by| by.checked_next_multiple_of(unit)).filter(|&by| by <= left);
        if let Some(needed) = needed {
            // Only what is missing at the end counts: the tail that is there is part of the new block.
            let wanted = self.config.growth.segment(needed).checked_next_multiple_of(unit);
            let wanted = wanted.unwrap_or(needed).clamp(needed, left);
            return self.obtain(bytes, [wanted, needed], |state, bytes| state.map_pieces(device, bytes));
        }
        let too_large = PoolError::TooLarge { asked: bytes, max: u64::MAX };
        let needed = bytes.checked_next_multiple_of(Request::ALIGN).ok_or(too_large)?;
        let wanted = self.config.growth.segment(bytes).max(needed);
        self.obtain(bytes, [wanted, needed], |state, bytes| {
            let step = state.backing.allocate(device, &mut state.ranges, bytes)?;
            state.grown.push(step);
            Ok(())
        })
    }

    /// Maps so many bytes behind the growing region, in pieces that can be given back one by one.
    fn map_pieces(&mut self, device: &D, bytes: u64) -> Result<(), PoolError> {
        let unit = device.granularity().max(1);
        let piece = self.config.growth.large.max(1).checked_next_multiple_of(unit).unwrap_or(bytes);
        let (start, mut left) = (self.grown.len(), bytes);
        while left > 0 {
            match self.backing.map(device, &mut self.ranges, piece.min(left)) {
                Ok(step) => self.grown.push(step),
                Err(error) => {
                    self.shrink_to(device, start);
                    return Err(error);
                }
            }
            left -= piece.min(left);
        }
        Ok(())
    }

    /// Tries to grow by one of the sizes, larger ones first.
    fn obtain(
        &mut self,
        asked: u64,
        sizes: [u64; 2],
        grow: impl Fn(&mut Self, u64) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let mut refusal = None;
        for bytes in sizes {
            let reserved = self.ranges.stats().reserved;
            if let Some(budget) = self.config.budget.filter(|&budget| reserved.saturating_add(bytes) > budget)
            {
                refusal = Some(Limit::Budget { bytes: budget });
                continue;
            }
            match grow(self, bytes) {
                Ok(()) => {
                    self.counts.growths += 1;
                    return Ok(());
                }
                Err(PoolError::Device(DeviceError::OutOfMemory { free, total, .. })) => {
                    refusal = Some(Limit::Device { free, total });
                }
                Err(error) => return Err(error),
            }
        }
        let limit = refusal.unwrap_or(Limit::Budget { bytes: 0 });
        Err(self.exhausted(asked, limit))
    }

    #[cold]
    fn exhausted(&self, asked: u64, limit: Limit) -> PoolError {
        let stats = self.ranges.stats();
        PoolError::Exhausted(Box::new(Exhaustion {
            asked,
            limit,
            reserved: stats.reserved,
            live: stats.live,
            largest_free: stats.largest_free,
            holders: sum_up(&self.holdings()),
        }))
    }

    /// Grows until the region of a plan is long enough for it, as far as that can be had.
    pub(super) fn grow_for_plan(&mut self, device: &D, peak: u64) -> Result<(), PoolError> {
        let Some(region) = self.backing.growing() else { return Ok(()) };
        let len = self.ranges.regions().find(|&(id, _, _)| id == region).map_or(0, |(_, _, len)| len);
        if peak > len {
            self.extend(device, peak - len, Some(peak - len))?;
        }
        Ok(())
    }

    /// Undoes the growth after the first so many steps.
    pub(super) fn shrink_to(&mut self, device: &D, steps: usize) {
        while self.grown.len() > steps {
            let Some(step) = self.grown.pop() else { return };
            match self.backing.undo(device, &mut self.ranges, step) {
                Ok(_) => self.counts.returns += 1,
                Err(_) => self.counts.refusals += 1,
            }
        }
    }
}
