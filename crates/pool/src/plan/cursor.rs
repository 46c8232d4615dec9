//! Serving the requests of a recording from a plan.

use std::sync::Arc;

use super::Plan;
use crate::error::PoolError;
use crate::ranges::{Block, Ranges, RegionId};

/// Why a recording stopped following its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Departure {
    /// More requests came than the plan has.
    TooMany {
        /// Requests in the plan.
        planned: u32,
    },
    /// A request has another size than planned, after rounding.
    Size {
        /// The position of the request.
        request: u32,
        /// Bytes planned.
        planned: u64,
        /// Bytes asked for.
        asked: u64,
    },
    /// A request needs a larger alignment than planned.
    Alignment {
        /// The position of the request.
        request: u32,
        /// The alignment planned, in bytes.
        planned: u64,
        /// The alignment asked for, in bytes.
        asked: u64,
    },
    /// The place of a request is not free: a block lives longer than it did, or the region is too short.
    PlaceTaken {
        /// The position of the request.
        request: u32,
        /// The planned offset in bytes.
        offset: u64,
    },
}

/// Follows a plan request by request.
///
/// From the first request on that is not as planned, all requests are served by search. What was placed before stays where it is.
#[derive(Clone, Debug)]
pub struct Cursor {
    plan: Arc<Plan>,
    region: RegionId,
    next: u32,
    departure: Option<Departure>,
}

impl Cursor {
    /// Starts at the first request of `plan`, whose offsets are those of `region`. The region should be at least as long as the plan's
    /// peak.
    #[must_use]
    pub fn new(plan: Arc<Plan>, region: RegionId) -> Self {
        Self { plan, region, next: 0, departure: None }
    }

    /// Serves the next request: at its planned place, or where [`Ranges::alloc`] finds one.
    ///
    /// # Errors
    ///
    /// Those of [`Ranges::alloc`]. A request that no allocator could serve is refused and leaves the plan in force.
    pub fn alloc(&mut self, ranges: &mut Ranges, bytes: u64, align: u64) -> Result<Block, PoolError> {
        let granule = self.plan.granule();
        let sound = granule.ceil(bytes).is_some_and(|size| size > 0) && granule.alignment(align).is_ok();
        if self.departure.is_none() && sound {
            match self.follow(ranges, bytes, align) {
                Ok(block) => return Ok(block),
                Err(departure) => self.departure = Some(departure),
            }
        }
        ranges.alloc(bytes, align)
    }

    /// Why the plan is not followed any more.
    #[must_use]
    pub fn departure(&self) -> Option<Departure> {
        self.departure
    }

    /// How many requests were served from the plan.
    #[must_use]
    pub fn served(&self) -> u32 {
        self.next
    }

    fn follow(&mut self, ranges: &mut Ranges, bytes: u64, align: u64) -> Result<Block, Departure> {
        let request = self.next;
        let at = request as usize;
        let planned = self.plan.requests().get(at).zip(self.plan.offsets().get(at));
        let Some((planned, &offset)) = planned else { return Err(Departure::TooMany { planned: request }) };
        let granule = self.plan.granule();
        if granule.ceil(planned.bytes) != granule.ceil(bytes) {
            return Err(Departure::Size { request, planned: planned.bytes, asked: bytes });
        }
        if align > planned.align {
            return Err(Departure::Alignment { request, planned: planned.align, asked: align });
        }
        let place = ranges.alloc_at(self.region, offset, bytes);
        let block = place.map_err(|_| Departure::PlaceTaken { request, offset })?;
        self.next += 1;
        Ok(block)
    }
}
