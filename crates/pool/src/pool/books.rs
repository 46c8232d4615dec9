//! How much host memory a pool keeps.

use graphgrove_device::Device;

use crate::ranges::RangeBooks;

use super::phase::Phase;
use super::state::State;

/// How many entries the tables of a pool have.
///
/// What grows with the number of recordings, replays or streams that there have ever been, and not with what there is now, is a leak of
/// host memory (openxla/xla#36487). None of these does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Books {
    /// Those of the allocator of ranges.
    pub ranges: RangeBooks,
    /// Places for what is known of blocks: as many as there were ever blocks live or remembered at once, with the free ones.
    pub records: usize,
    /// Streams whose order is remembered: at most 64, and those that still use memory or know of such use.
    pub lanes: usize,
    /// Streams that the pool keeps a handle of, since it may have to wait for them.
    pub streams: usize,
    /// Dead blocks that streams still use.
    pub waiting: usize,
    /// Blocks that were noted as dead or adopted since replays have run.
    pub noted: usize,
    /// Ends of memory that recordings need.
    pub pins: usize,
}

impl<D: Device> State<D> {
    pub(super) fn books(&self) -> Books {
        let noted = match &self.phase {
            Phase::Replaying(replaying) => replaying.deaths.len() + replaying.adopted.len(),
            Phase::Open | Phase::Session(_) => 0,
        };
        Books {
            ranges: self.ranges.books(),
            records: self.records.len(),
            lanes: self.frontier.len(),
            streams: self.known.len(),
            waiting: self.waiting.blocks().len(),
            noted,
            pins: self.pins.len(),
        }
    }
}
