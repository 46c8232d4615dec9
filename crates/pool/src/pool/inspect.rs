//! Looking into a pool.

use graphgrove_device::{Device, DevicePtr};

use crate::ranges::{self, Span};

use super::Pool;
use super::books::Books;
use super::report::{Holder, Holding, Shortage, WhyNot, sum_up};
use super::stats::PoolStats;

impl<D: Device> Pool<D> {
    /// What the pool holds and what it has done.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.enter().stats()
    }

    /// How many entries the pool's tables have: what it keeps in host memory. Costs a pass over the states that checkpoints name.
    #[must_use]
    pub fn books(&self) -> Books {
        self.enter().books()
    }

    /// Every block that is not free, by rising address.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        self.enter().holdings()
    }

    /// Who holds how much, most bytes first.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        sum_up(&self.holdings())
    }

    /// All blocks and free runs, by rising address inside of each region.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.enter().ranges.spans().collect()
    }

    /// The last times that the memory at hand was not enough, oldest first, at most 64, and why.
    #[must_use]
    pub fn shortages(&self) -> Vec<Shortage> {
        self.enter().shortages.iter().copied().collect()
    }

    /// Why the memory at an address was not handed out again.
    #[must_use]
    pub fn why_not(&self, at: DevicePtr) -> WhyNot {
        let mut guard = self.enter();
        let state = &mut *guard;
        let Some((region, offset)) = state.backing.locate(&state.ranges, at) else {
            return WhyNot::Elsewhere;
        };
        if let Some(holding) =
            state.ranges.block_at(region, offset).and_then(|block| state.holding_of(block.id))
        {
            return WhyNot::Held(holding);
        }
        let covers =
            |run: &Span| run.region == region && (run.offset..run.offset + run.bytes).contains(&offset);
        let run = state.ranges.free_runs().find(covers);
        run.map_or(WhyNot::Elsewhere, |run| WhyNot::Free { run: run.bytes })
    }

    /// Checks that the allocator's books agree.
    ///
    /// # Errors
    /// The first fault that was found; none can come about through the public interface.
    pub fn audit(&self) -> Result<(), ranges::Fault> {
        self.enter().ranges.audit()
    }
}
