//! What a session has asked for, as the start of a plan for the next.

use std::collections::BTreeMap;

use graphgrove_device::Device;

use crate::error::PoolError;
use crate::plan::{Obstacle, Plan, Planner, Request};
use crate::ranges::BlockId;

use super::state::State;

/// The requests of a session with their lifetimes, and when blocks from before it died in it.
///
/// Recordings that follow each other on a path are best planned together: where the first one leaves its outputs decides how well the
/// second one fits around them.
///
/// ```
/// # use std::sync::Arc;
/// # use graphgrove_device::Streams;
/// # use graphgrove_pool::PoolError;
/// # use graphgrove_pool::pool::{Pool, PoolConfig, Request};
/// # use graphgrove_sim::SimDevice;
/// # let device = Arc::new(SimDevice::new());
/// # let stream = device.create_stream()?;
/// # let pool = Pool::new(Arc::clone(&device), &stream, PoolConfig::default())?;
/// # let (activation, gradient) = (Request::bytes(1 << 20), Request::bytes(1 << 20));
/// let empty = pool.checkpoint()?;
/// let session = pool.warm_up(&stream)?;
/// let output = session.allocate(activation)?;
/// let mut forward = session.finish(vec![output])?;
///
/// let session = pool.warm_up(&stream)?;
/// drop(forward.outputs.pop());
/// let output = session.allocate(gradient)?;
/// let backward = session.finish(vec![output])?;
///
/// pool.restore(&empty, graphgrove_pool::pool::Live::AsRecorded)?;
/// let first = forward.demand.requests.len();
/// let plan = pool.plan(&forward.demand.then(&backward.demand))?;
/// let (forward, backward) = (Arc::new(plan.part(..first)), Arc::new(plan.part(first..)));
/// let recorded = pool.record::<PoolError>(&stream, Some(&forward), |session| Ok(vec![session.allocate(activation)?]))?;
/// # let planned = recorded.memory.planned.unwrap();
/// # assert_eq!((planned.served, planned.departure), (1, None));
/// # assert_eq!(backward.requests().len(), 1);
/// # Ok::<(), PoolError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demand {
    /// The requests in order.
    pub requests: Vec<Request>,
    /// The blocks that served them, in the same order.
    pub blocks: Vec<BlockId>,
    /// Blocks from before the session, and when they died, in the time of the requests.
    pub deaths: Vec<(BlockId, u32)>,
}

impl Demand {
    /// What this session and the one that came right behind it have asked for, as if they were one. Blocks of this session that died in
    /// the next one die there; what died between the two counts as live to the end.
    #[must_use]
    pub fn then(mut self, next: &Self) -> Self {
        let start = self.end();
        let later = |time: u32| time.saturating_add(start);
        let positions: BTreeMap<BlockId, usize> = self.blocks.iter().copied().zip(0..).collect();
        for &(id, time) in &next.deaths {
            match positions.get(&id).and_then(|&at| self.requests.get_mut(at)) {
                Some(request) => request.death = request.death.min(later(time)),
                None => self.deaths.push((id, later(time))),
            }
        }
        let shifted = |request: &Request| Request {
            birth: later(request.birth),
            // That of a block that survives stays what it is, the largest number.
            death: later(request.death),
            ..*request
        };
        self.requests.extend(next.requests.iter().map(shifted));
        self.blocks.extend_from_slice(&next.blocks);
        self
    }

    /// The time of the last birth or death.
    fn end(&self) -> u32 {
        let lives = self.requests.iter().flat_map(|request| [request.birth, request.death]);
        let deaths = self.deaths.iter().map(|&(_, time)| time);
        lives.chain(deaths).filter(|&time| time != Request::SURVIVES).max().unwrap_or(0)
    }
}

impl<D: Device> State<D> {
    /// Lays the requests out around the blocks that are live now. A block that died in the session that was written down is expected to
    /// die at the same time again.
    pub(super) fn plan(&self, demand: &Demand) -> Result<Plan, PoolError> {
        let widest = self.backing.widest(&self.ranges).map(|(region, _)| region);
        let deaths: BTreeMap<BlockId, u32> = demand.deaths.iter().copied().collect();
        let in_the_way = self.ranges.live_blocks().filter(|block| Some(block.region) == widest);
        let obstacles: Vec<Obstacle> = in_the_way
            .map(|block| {
                let death = deaths.get(&block.id).copied().unwrap_or(Request::SURVIVES);
                Obstacle { offset: block.offset, bytes: block.bytes, death }
            })
            .collect();
        Planner::new(self.ranges.granule()).plan(&demand.requests, &obstacles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::{Ranges, RegionKind};

    #[test]
    fn a_block_that_dies_in_the_next_session_dies_there_and_others_live_to_the_end() {
        let mut ranges = Ranges::default();
        ranges.add_region(RegionKind::Fixed, 1 << 20).unwrap();
        let [old, first, second, third] = [(); 4].map(|()| ranges.alloc(1, 1).unwrap().id);
        let request = |birth, death| Request { bytes: 1, align: 1, birth, death };
        let one = Demand {
            requests: vec![request(1, Request::SURVIVES), request(2, 3), request(4, Request::SURVIVES)],
            blocks: vec![first, second, third],
            deaths: vec![(old, 5)],
        };
        let next = Demand {
            requests: vec![request(1, Request::SURVIVES), request(3, 4)],
            blocks: vec![second, old],
            deaths: vec![(first, 2), (old, 6)],
        };
        let both = one.clone().then(&next);
        let survives = Request::SURVIVES;
        let lives = |demand: &Demand| -> Vec<(u32, u32)> {
            demand.requests.iter().map(|request| (request.birth, request.death)).collect()
        };
        assert_eq!(lives(&both), [(1, 7), (2, 3), (4, survives), (6, survives), (8, 9)]);
        assert_eq!(both.deaths, [(old, 5), (old, 11)]);
        assert_eq!(both.blocks, [first, second, third, second, old]);
        assert_eq!(Demand::default().then(&one), one);
        assert_eq!(one.clone().then(&Demand::default()), one);
    }
}
