//! What a session has asked for, as the start of a plan for the next.

use graphgrove_device::Device;

use crate::error::PoolError;
use crate::plan::{Obstacle, Plan, Planner, Request};
use crate::ranges::BlockId;

use super::state::State;

/// The requests of a session with their lifetimes, and when blocks from before it died in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demand {
    /// The requests in order.
    pub requests: Vec<Request>,
    /// Blocks from before the session, and when they died, in the time of the requests.
    pub deaths: Vec<(BlockId, u32)>,
}

impl<D: Device> State<D> {
    /// Lays the requests out around the blocks that are live now. A block that died in the session that was written down is expected to
    /// die at the same time again.
    pub(super) fn plan(&self, demand: &Demand) -> Result<Plan, PoolError> {
        let widest = self.backing.widest(&self.ranges).map(|(region, _)| region);
        let in_the_way = self.ranges.live_blocks().filter(|block| Some(block.region) == widest);
        let obstacles: Vec<Obstacle> = in_the_way
            .map(|block| {
                let died = demand.deaths.iter().find(|&&(id, _)| id == block.id);
                let death = died.map_or(Request::SURVIVES, |&(_, death)| death);
                Obstacle { offset: block.offset, bytes: block.bytes, death }
            })
            .collect();
        Planner::new(self.ranges.granule()).plan(&demand.requests, &obstacles)
    }
}
