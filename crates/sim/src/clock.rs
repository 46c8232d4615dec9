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
/// A lane that is given back is used again, with its count going on, once the host knows that everything on it is over.
/// Whatever is enqueued from then on runs behind all of that, so the old owner and the new one cannot be confused.
#[derive(Debug)]
pub(crate) struct Lanes {
    counts: Vec<u32>,
    /// The counts of the lanes when the past was last forgotten: all of that is over, although no clock says so any more.
    forgotten: Vec<u32>,
    given_back: Vec<Lane>,
    /// Lanes that were given back and of which all is forgotten.
    free: Vec<Lane>,
    /// Where new lanes begin to count.
    first_count: u32,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0],
            forgotten: Vec::new(),
            given_back: Vec::new(),
            free: Vec::new(),
            first_count: 0,
        }
    }

    /// A lane for a new owner. `host` is what the host knows to be over.
    pub(crate) fn take(&mut self, host: &Clock) -> Lane {
        if let Some(lane) = self.free.pop() {
            return lane;
        }
        let over = self.given_back.iter().position(|lane| host.get(*lane) >= self.counts[lane.index()]);
        match over {
            Some(place) => self.given_back.swap_remove(place),
            None => {
                self.counts.push(self.first_count);
                Lane(self.counts.len() as u32 - 1)
            }
        }
    }

    /// How many lanes there are.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Forgets the past, as all clocks do at the same time: everything that has run on any lane is over. The last lanes are struck
    /// off if they have no owner.
    pub(crate) fn forget(&mut self) {
        self.free.append(&mut self.given_back);
        self.free.sort_unstable_by(|one, other| other.cmp(one));
        let mut struck_off = 0;
        while let Some(last) = self.free.get(struck_off).filter(|last| last.index() + 1 == self.counts.len())
        {
            // A lane of the same number may be made again while a clock still remembers this one.
            self.first_count = self.first_count.max(self.counts[last.index()]);
            self.counts.pop();
            struck_off += 1;
        }
        self.free.drain(..struck_off);
        self.forgotten.clone_from(&self.counts);
    }

    /// Gives a lane back on which nothing is going to run any more.
    pub(crate) fn give_back(&mut self, lane: Lane) {
        let is_forgotten = self.forgotten.get(lane.index()) == self.counts.get(lane.index());
        let list = if is_forgotten { &mut self.free } else { &mut self.given_back };
        list.push(lane);
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
        let host = Clock::default();
        let (a, b) = (lanes.take(&host), lanes.take(&host));
        let (mut left, mut right) = (Clock::default(), Clock::default());
        left.set(a, 3);
        right.set(a, 1);
        right.set(b, 2);
        left.join(&right);
        assert_eq!((left.get(a), left.get(b), left.get(Lane::HOST)), (3, 2, 0));
    }

    #[test]
    fn a_lane_is_used_again_when_the_host_knows_that_it_is_over() {
        let mut lanes = Lanes::new();
        let mut host = Clock::default();
        let lane = lanes.take(&host);
        assert_ne!(lane, Lane::HOST);
        assert_eq!(lanes.tick(lane), 1);
        lanes.give_back(lane);
        assert_ne!(lanes.take(&host), lane);
        host.set(lane, 1);
        assert_eq!(lanes.take(&host), lane);
        assert_ne!(lanes.take(&host), lane);
        assert_eq!(lanes.tick(lane), 2);
    }

    #[test]
    fn lanes_without_an_owner_are_struck_off_and_never_count_from_zero_again() {
        let mut lanes = Lanes::new();
        let host = Clock::default();
        let (kept, gone) = (lanes.take(&host), lanes.take(&host));
        lanes.tick(gone);
        lanes.forget();
        assert_eq!(lanes.len(), 3);
        lanes.give_back(gone);
        lanes.forget();
        assert_eq!(lanes.len(), 2);
        let again = lanes.take(&Clock::default());
        assert_eq!((again, lanes.tick(again)), (gone, 2));
        assert_ne!(again, kept);
    }

    #[test]
    fn a_lane_of_which_all_is_forgotten_is_used_again_whenever_it_is_given_back() {
        let mut lanes = Lanes::new();
        let host = Clock::default();
        let [early, late, running, _kept] = [(); 4].map(|()| lanes.take(&host));
        [early, late, running].into_iter().for_each(|lane| _ = lanes.tick(lane));
        lanes.give_back(early);
        lanes.forget();
        lanes.tick(running);
        lanes.give_back(late);
        lanes.give_back(running);
        assert_eq!([(); 2].map(|()| lanes.take(&host)), [late, early]);
        assert_eq!((lanes.tick(late), lanes.len()), (2, 5));
        assert_ne!(lanes.take(&host), running, "what has run since is not over");
    }
}
