//! Writing down what a warm-up asks for.

use super::Request;

/// Collects the requests of a run and their lifetimes, with an event counter as the clock.
///
/// ```
/// use graphgrove_pool::plan::{Planner, Recorder};
/// use graphgrove_pool::ranges::Granule;
///
/// let mut recorder = Recorder::new();
/// let temporary = recorder.alloc(4096, 256);
/// recorder.alloc(1024, 256);
/// recorder.free(temporary);
/// recorder.alloc(4096, 256);
/// let plan = Planner::new(Granule::DEFAULT).plan(&recorder.finish(), &[])?;
/// assert_eq!((plan.peak(), plan.bound()), (5120, 5120));
/// # Ok::<(), graphgrove_pool::PoolError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    requests: Vec<Request>,
    now: u32,
}

impl Recorder {
    /// A recorder at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes an allocation, and returns the position of the request.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> u32 {
        let birth = self.tick();
        self.requests.push(Request { bytes, align, birth, death: Request::SURVIVES });
        self.requests.len() as u32 - 1
    }

    /// Notes that the block of a request was freed. The first free counts; an unknown position changes nothing.
    pub fn free(&mut self, request: u32) {
        let now = self.tick();
        let request = self.requests.get_mut(request as usize);
        if let Some(request) = request.filter(|request| request.death == Request::SURVIVES) {
            request.death = now;
        }
    }

    /// Notes that a block which was there before was freed, and returns when: the death of an
    /// [`Obstacle`](super::Obstacle).
    pub fn free_obstacle(&mut self) -> u32 {
        self.tick()
    }

    /// The requests in the order in which they were made.
    #[must_use]
    pub fn finish(self) -> Vec<Request> {
        self.requests
    }

    fn tick(&mut self) -> u32 {
        self.now += 1;
        self.now
    }
}
