//! Happens-before, as vector clocks.
//!
//! Everything that can run beside something else has a *lane*: the host, each stream, each chain of nodes in a graph. An
//! operation counts its lane up by one and carries, for every lane, the count that it is known to run behind. An
//! earlier access (lane, count) is ordered before an operation exactly when the operation's clock has reached that count.

use smallvec::SmallVec;

/// Something that runs in order with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane(u32);

impl Lane {
    /// The host. Host threads count as one lane: what they agree among each other is not visible to the device, and taking
    /// them apart would report races that a mutex rules out.
    pub(crate) const HOST: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// For every lane, the count that has been reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock(SmallVec<[u32; 8]>);

impl Clock {
    /// The count reached on a lane.
    pub(crate) fn get(&self, lane: Lane) -> u32 {
        self.0.get(lane.index()).copied().unwrap_or(0)
    }

    /// Takes over whatever the other clock has reached.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Sets the count of one lane.
    pub(crate) fn set(&mut self, lane: Lane, count: u32) {
        if self.0.len() <= lane.index() {
            self.0.resize(lane.index() + 1, 0);
        }
        self.0[lane.index()] = count;
    }
}

/// Hands out lanes and counts them.
///
/// A lane that is given back is used again with its count going on. Accesses of its old owner then look ordered before
/// what the new owner does, so a race between the two can be missed; none is reported wrongly.
#[derive(Debug)]
pub(crate) struct Lanes {
    counts: Vec<u32>,
    free: Vec<Lane>,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0], free: Vec::new() }
    }

    pub(crate) fn take(&mut self) -> Lane {
        self.free.pop().unwrap_or_else(|| {
            self.counts.push(0);
            Lane(self.counts.len() as u32 - 1)
        })
    }

    pub(crate) fn give_back(&mut self, lane: Lane) {
        if lane != Lane::HOST && !self.free.contains(&lane) {
            self.free.push(lane);
        }
    }

    /// Counts a lane up and returns the new count.
    pub(crate) fn tick(&mut self, lane: Lane) -> u32 {
        let count = &mut self.counts[lane.index()];
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_takes_the_later_count_of_each_lane() {
        let mut lanes = Lanes::new();
        let (a, b) = (lanes.take(), lanes.take());
        let (mut left, mut right) = (Clock::default(), Clock::default());
        left.set(a, 3);
        right.set(a, 1);
        right.set(b, 2);
        left.join(&right);
        assert_eq!((left.get(a), left.get(b), left.get(Lane::HOST)), (3, 2, 0));
    }

    #[test]
    fn a_lane_given_back_goes_on_counting() {
        let mut lanes = Lanes::new();
        let lane = lanes.take();
        assert_eq!(lanes.tick(lane), 1);
        lanes.give_back(lane);
        lanes.give_back(lane);
        assert_eq!(lanes.take(), lane);
        assert_ne!(lanes.take(), lane);
        assert_eq!(lanes.tick(lane), 2);
    }

    #[test]
    fn the_host_lane_is_never_handed_out() {
        let mut lanes = Lanes::new();
        lanes.give_back(Lane::HOST);
        assert_ne!(lanes.take(), Lane::HOST);
    }
}
