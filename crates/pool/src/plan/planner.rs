//! Making a plan: trying all orders and keeping the best.

use std::ops::RangeBounds;

use super::improve::{Attempt, improve};
use super::order::Order;
use super::pack::{Fit, Item, Packer};
use super::{Obstacle, Request};
use crate::error::PoolError;
use crate::ranges::Granule;

/// How a plan came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The order in which blocks were placed.
    pub order: Order,
    /// How each found its place.
    pub fit: Fit,
    /// Whether the order was improved afterwards.
    pub improved: bool,
}

/// Where each block of a recording goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) requests: Vec<Request>,
    offsets: Vec<u64>,
    granule: Granule,
    peak: u64,
    bound: u64,
    method: Method,
}

impl Plan {
    /// The requests that the plan is for, in the order in which they are made.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The offset of each request in bytes.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The end of the highest block in bytes, blocks that were there before included: how long the region must be.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// No layout can have a lower peak: the largest sum of bytes live at once, rounded to granules, or the end of the highest block
    /// that was there before. For a [part](Plan::part) of a plan that of the whole, unless the part's own peak is lower.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The part of the plan that is for some of the requests, to be followed by a recording of its own. The blocks of the other parts are
    /// where the whole plan has them, so recordings that follow all parts in turn need as much as the whole plan.
    #[must_use]
    pub fn part(&self, requests: impl RangeBounds<usize>) -> Self {
        let chosen = |at: &usize| requests.contains(at);
        let positions = || (0..self.requests.len()).filter(chosen);
        let ends = positions()
            .map(|at| self.offsets[at] + self.requests[at].bytes.next_multiple_of(self.granule.bytes()));
        let peak = ends.max().unwrap_or(0);
        Self {
            requests: positions().map(|at| self.requests[at]).collect(),
            offsets: positions().map(|at| self.offsets[at]).collect(),
            peak,
            bound: self.bound.min(peak),
            ..*self
        }
    }

    /// How the plan came about.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The unit that sizes were rounded to.
    #[must_use]
    pub fn granule(&self) -> Granule {
        self.granule
    }
}

/// Makes plans.
#[derive(Clone, Copy, Debug)]
pub struct Planner {
    granule: Granule,
    tolerance: f64,
    rounds: u32,
}

impl Planner {
    /// A planner for an allocator that counts in `granule`.
    #[must_use]
    pub fn new(granule: Granule) -> Self {
        Self { granule, tolerance: 0.01, rounds: 400 }
    }

    /// How far above the bound a plan may be before improvement is tried, as a part of the bound; 0.01 by default.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How many variations improvement may try; 400 by default. Each costs about as much as one order.
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Decides where each of `requests` goes, around blocks that are there already.
    ///
    /// # Errors
    ///
    /// [`PoolError::BadLifetime`], [`PoolError::ZeroBytes`], [`PoolError::TooLarge`] and [`PoolError::BadAlignment`] for a request that
    /// no allocator could serve.
    pub fn plan(&self, requests: &[Request], obstacles: &[Obstacle]) -> Result<Plan, PoolError> {
        let items = requests.iter().enumerate().map(|(at, request)| self.item(at, request));
        let items = items.collect::<Result<Vec<Item>, _>>()?;
        let fixed = self.fixed(obstacles)?;
        let (bound, moment) = bound(&items, &fixed);
        let (method, best) = match stack(&items, &fixed, bound) {
            Some(best) => (Method { order: Order::Birth, fit: Fit::Lowest, improved: false }, best),
            None => self.search(&items, &fixed, (bound, moment)),
        };
        let bytes = |granules: u64| granules * self.granule.bytes();
        Ok(Plan {
            requests: requests.to_vec(),
            offsets: best.offsets.into_iter().map(bytes).collect(),
            granule: self.granule,
            peak: bytes(best.peak),
            bound: bytes(bound),
            method,
        })
    }

    /// Tries all orders, and improves the best if it is too far above the bound.
    fn search(
        &self,
        items: &[Item],
        fixed: &[(u64, Item)],
        (bound, moment): (u64, u32),
    ) -> (Method, Attempt) {
        let goal = bound + (bound as f64 * self.tolerance.max(0.0)) as u64;
        let mut packer = Packer::new(items, fixed);
        let mut best: Option<(Method, Attempt)> = None;
        for order in Order::ALL {
            if best.as_ref().is_some_and(|(_, best)| best.peak <= bound) {
                break;
            }
            if matches!(order, Order::Skyline(_)) && items.len() > SKYLINE_LIMIT {
                continue;
            }
            let positions = order.of(items, moment);
            for fit in [Fit::Lowest, Fit::Tightest] {
                // Only what is strictly better counts, so the earliest of equals is kept.
                let limit = best.as_ref().map_or(u64::MAX, |(_, best)| best.peak.saturating_sub(1));
                if let Some(peak) = packer.pack(&positions, fit, limit) {
                    let (order_taken, offsets) = (positions.clone(), packer.offsets.clone());
                    let attempt = Attempt { order: order_taken, fit, peak, offsets };
                    best = Some((Method { order, fit, improved: false }, attempt));
                }
            }
        }
        let (mut method, mut best) = best.unwrap_or_else(|| self.nothing(bound));
        if best.peak > goal {
            let before = best.peak;
            best = improve(&mut packer, items, best, goal, self.rounds);
            method.improved = best.peak < before;
        }
        (method, best)
    }

    /// What a plan starts from if every order was refused, which a limit of all bytes never does.
    fn nothing(&self, peak: u64) -> (Method, Attempt) {
        let method = Method { order: Order::Birth, fit: Fit::Lowest, improved: false };
        (method, Attempt { order: Vec::new(), fit: Fit::Lowest, peak, offsets: Vec::new() })
    }

    fn item(&self, at: usize, request: &Request) -> Result<Item, PoolError> {
        let &Request { bytes, align, birth, death } = request;
        if death <= birth {
            return Err(PoolError::BadLifetime { request: at, birth, death });
        }
        Ok(Item { size: self.size(bytes)?, unit: self.granule.alignment(align)?.into(), birth, death })
    }

    fn size(&self, bytes: u64) -> Result<u64, PoolError> {
        match self.granule.ceil(bytes) {
            Some(0) => Err(PoolError::ZeroBytes),
            Some(size) => Ok(size.into()),
            None => Err(PoolError::TooLarge { asked: bytes, max: self.granule.longest() }),
        }
    }

    fn fixed(&self, obstacles: &[Obstacle]) -> Result<Vec<(u64, Item)>, PoolError> {
        let place = |obstacle: &Obstacle| {
            // Whatever shares a granule with the obstacle is out of reach.
            let first = obstacle.offset / self.granule.bytes();
            let size = self.size(obstacle.bytes + obstacle.offset % self.granule.bytes())?;
            Ok((first, Item { size, unit: 1, birth: 0, death: obstacle.death }))
        };
        obstacles.iter().filter(|obstacle| obstacle.death > 0).map(place).collect()
    }
}

/// Above this many blocks a skyline packing, whose cost grows with their square, is left out.
const SKYLINE_LIMIT: usize = 8_192;

/// Stacks the blocks in the order in which they are asked for, above all that is there, if no layout has a lower peak: where none dies
/// before the last is born, as in a function without temporaries, there is nothing to search for.
fn stack(items: &[Item], fixed: &[(u64, Item)], bound: u64) -> Option<Attempt> {
    let mut peak = fixed.iter().map(|(offset, item)| offset + item.size).max().unwrap_or(0);
    let mut offsets = Vec::with_capacity(items.len());
    for item in items {
        let offset = peak.next_multiple_of(item.unit);
        peak = offset + item.size;
        if peak > bound {
            return None;
        }
        offsets.push(offset);
    }
    Some(Attempt { order: (0..items.len() as u32).collect(), fit: Fit::Lowest, peak, offsets })
}

/// The least possible peak, and a moment at which the sum of live sizes is largest.
fn bound(items: &[Item], fixed: &[(u64, Item)]) -> (u64, u32) {
    let all = items.iter().chain(fixed.iter().map(|(_, item)| item));
    // Deaths come before births of the same moment: a block may take the place of one that dies then.
    let mut changes: Vec<_> =
        all.flat_map(|item| [(item.death, false, item.size), (item.birth, true, item.size)]).collect();
    changes.sort_unstable();
    let (mut live, mut most, mut moment) = (0_u64, 0, 0);
    for (time, birth, size) in changes {
        if birth {
            live += size;
            if live > most {
                (most, moment) = (live, time);
            }
        } else {
            live -= size;
        }
    }
    let top = fixed.iter().map(|(offset, item)| offset + item.size).max().unwrap_or(0);
    (most.max(top), moment)
}
