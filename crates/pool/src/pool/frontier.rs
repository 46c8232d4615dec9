//! What is ordered before what, over the streams that use a pool's memory.
//!
//! Each stream is a *lane*, cut into numbered stretches by the points that others may wait for. A lane remembers for each other lane
//! up to which stretch that lies before everything that comes next on it: a vector clock (Mattern, 1989) that moves at event
//! recordings only. So declaring a use is one step, and a wait costs one step for each lane, however many operations were enqueued.
//!
//! A recording has lanes of its own: its events order captured work, and say nothing about work outside. Its main lane lies behind
//! everything that the pool's stream had been given, since the graph is launched there or behind it. When the recording ends, all its
//! lanes are joined, as CUDA asks of a capture, so that its uses are over as far as later work is concerned.
//!
//! Programs make streams and let them go, of which nobody tells the pool. So a lane is given to another stream once there are many, the
//! main lane lies behind all that the old stream has done and seen, and others were heard of since. The times of the lane go on. Of its
//! old stream, only what came before the main lane's present stretch is known from then on: a stream that is behind that is behind it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove_device::StreamId;

/// One stream, inside of a recording or outside of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane(u32);

impl Lane {
    pub(super) const FIRST: Self = Self(0);
}

#[cfg(test)]
mod tests;

/// How many lanes there are before one is given to another stream.
const LANES: usize = 64;

/// A number that no other era of any pool in the process has, so that marks of another pool order nothing.
fn new_era() -> u64 {
    static ERAS: AtomicU64 = AtomicU64::new(0);
    ERAS.fetch_add(1, Ordering::Relaxed)
}

/// A stretch of a lane. The era says which lanes it speaks of: a recording has an era of its own, and another one begins outside
/// whenever the host has waited for everything. What belongs to an era that is over lies before whatever comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) lane: Lane,
    era: u64,
    pub(super) time: u64,
}

/// A point in a stream that others can be ordered behind: what an event's recording is to the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    era: u64,
    seen: Vec<u64>,
}

#[derive(Debug)]
struct LaneState {
    stream: StreamId,
    /// When it was last asked for.
    touched: u64,
    /// Its stretches before this one are those of streams that had the lane before.
    since: u64,
    /// The lane and stretch that all of them lie before.
    handed_on: Option<(Lane, u64)>,
    now: u64,
    /// The last stretch in which memory was used, 0 for none.
    last_use: u64,
    /// A (lane -> stretch) pair means that the lane's stretches up to that one lie before everything to come here.
    seen: Vec<u64>,
}

/// What the outside looked like when a recording began.
#[derive(Debug)]
struct Outside {
    main: Lane,
    by_stream: BTreeMap<StreamId, Lane>,
    lanes: usize,
    era: u64,
}

#[derive(Debug)]
pub(super) struct Frontier {
    lanes: Vec<LaneState>,
    by_stream: BTreeMap<StreamId, Lane>,
    main: Lane,
    /// The pool's own stream.
    home: StreamId,
    era: u64,
    clock: u64,
    outside: Option<Outside>,
}

impl Frontier {
    pub(super) fn new(main: StreamId) -> Self {
        let mut new = Self {
            lanes: Vec::new(),
            by_stream: BTreeMap::new(),
            main: Lane(0),
            home: main,
            era: new_era(),
            clock: 0,
            outside: None,
        };
        new.main = new.lane(main);
        new
    }

    fn lane(&mut self, stream: StreamId) -> Lane {
        self.clock += 1;
        let lane = match self.by_stream.get(&stream) {
            Some(&lane) => lane,
            None => self.open_lane(stream),
        };
        self.lanes[lane.0 as usize].touched = self.clock;
        lane
    }

    #[cold]
    fn open_lane(&mut self, stream: StreamId) -> Lane {
        let mut new = LaneState {
            stream,
            touched: 0,
            since: 0,
            handed_on: None,
            now: 1,
            last_use: 0,
            seen: Vec::new(),
        };
        let lane = if let Some(lane) = self.spare_lane() {
            let old = &self.lanes[lane.0 as usize];
            self.by_stream.remove(&old.stream);
            // A mark has ended the stretch before this one: whatever was done on a joined lane lies in earlier ones.
            (new.since, new.now, new.last_use) = (old.now, old.now, old.last_use);
            new.handed_on = Some((self.main, self.lanes[self.main.0 as usize].now));
            self.lanes[lane.0 as usize] = new;
            lane
        } else {
            self.lanes.push(new);
            Lane(self.lanes.len() as u32 - 1)
        };
        self.by_stream.insert(stream, lane);
        lane
    }

    /// The lane that may be given to another stream and has not been asked for the longest.
    fn spare_lane(&self) -> Option<Lane> {
        let at_home = self.outside.is_none() && self.stream(self.main) == Some(self.home);
        if self.lanes.len() < LANES || !at_home {
            return None;
        }
        let lanes = (0..self.lanes.len() as u32).map(Lane);
        let spare = lanes.filter(|&lane| lane != self.main && self.is_joined(lane));
        spare.min_by_key(|lane| self.lanes[lane.0 as usize].touched)
    }

    /// Whether the main lane lies behind the uses of a lane, and behind whatever that one lies behind.
    fn is_joined(&self, lane: Lane) -> bool {
        let LaneState { last_use, seen, .. } = &self.lanes[lane.0 as usize];
        let mut seen = seen.iter().enumerate();
        *last_use <= self.reached(lane) && seen.all(|(other, &time)| time <= self.reached(Lane(other as u32)))
    }

    /// How many lanes there are.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn stream(&self, lane: Lane) -> Option<StreamId> {
        self.lanes.get(lane.0 as usize).map(|state| state.stream)
    }

    /// Whether the stream is the one that blocks are handed out on.
    pub(super) fn is_main(&self, stream: StreamId) -> bool {
        self.by_stream.get(&stream) == Some(&self.main)
    }

    /// Where the main lane is now.
    pub(super) fn here(&self) -> Stamp {
        self.stamp(self.main)
    }

    /// Where a stream is now, which uses memory there.
    pub(super) fn on(&mut self, stream: StreamId) -> Stamp {
        let lane = self.lane(stream);
        let state = &mut self.lanes[lane.0 as usize];
        state.last_use = state.now;
        self.stamp(lane)
    }

    /// Whether the stream has used memory since the main lane last came to lie behind it. In a recording, that is said of the streams
    /// outside as well: what they did has not been waited for there.
    pub(super) fn has_open_use(&self, stream: StreamId) -> bool {
        let outside = self.outside.as_ref().and_then(|outside| outside.by_stream.get(&stream));
        let lanes = self.by_stream.get(&stream).into_iter().chain(outside);
        lanes.copied().any(|lane| {
            let last = self.lanes.get(lane.0 as usize).map_or(0, |state| state.last_use);
            self.reached(lane) < last
        })
    }

    /// Whether any stream has used memory since the main lane last came to lie behind it.
    pub(super) fn has_open_uses(&self) -> bool {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .map(|(at, state)| (Lane(at as u32), state.last_use))
            .any(|(lane, last)| self.reached(lane) < last)
    }

    fn stamp(&self, lane: Lane) -> Stamp {
        let time = self.lanes.get(lane.0 as usize).map_or(0, |state| state.now);
        // In a recording only its own lanes are asked for, so that the era is always theirs.
        Stamp { lane, era: self.era, time }
    }

    /// Whether an era is over. Its lanes were joined, so that everything on them lies before whatever comes.
    fn is_over(&self, era: u64) -> bool {
        era != self.era && self.outside.as_ref().is_none_or(|outside| era != outside.era)
    }

    /// Whether a stamp is of the present era, and not of a recording that is over.
    pub(super) fn counts(&self, stamp: Stamp) -> bool {
        !self.is_over(stamp.era)
    }

    fn is_before(&self, stamp: Stamp, lane: Lane) -> bool {
        if self.is_over(stamp.era) {
            return true;
        }
        let (Some(state), Some(other)) =
            (self.lanes.get(lane.0 as usize), self.lanes.get(stamp.lane.0 as usize))
        else {
            return false;
        };
        match other.handed_on.filter(|_| stamp.time < other.since) {
            None => stamp.lane == lane || state.seen(stamp.lane) >= stamp.time,
            Some((main, time)) => lane == main || state.seen(main) >= time,
        }
    }

    /// Whether everything in the stretch lies before whatever comes next on the main lane.
    pub(super) fn is_before_main(&self, stamp: Stamp) -> bool {
        self.is_before(stamp, self.main)
    }

    /// Whether everything up to the start of the stretch lies before whatever comes next on the stream.
    pub(super) fn is_before_stream(&mut self, stamp: Stamp, stream: StreamId) -> bool {
        let lane = self.lane(stream);
        self.is_before(stamp, lane)
    }

    /// Up to which stretch of a lane the main lane has waited. All of the main lane itself lies before what comes next on it.
    pub(super) fn reached(&self, lane: Lane) -> u64 {
        if lane == self.main {
            return u64::MAX;
        }
        self.lanes.get(self.main.0 as usize).map_or(0, |state| state.seen(lane))
    }

    /// The present end of a stream, to be waited for.
    pub(super) fn mark(&mut self, stream: StreamId) -> Mark {
        let lane = self.lane(stream);
        let state = &mut self.lanes[lane.0 as usize];
        let mut seen = state.seen.clone();
        raise(&mut seen, lane, state.now);
        state.now += 1;
        Mark { era: self.era, seen }
    }

    /// Orders whatever comes next on the stream behind a mark. A mark of another era orders nothing: a capture cannot wait for what
    /// was recorded outside of it, nor the other way round.
    pub(super) fn wait(&mut self, stream: StreamId, mark: &Mark) {
        if mark.era == self.era {
            let lane = self.lane(stream);
            self.lanes[lane.0 as usize].join(&mark.seen);
        }
    }

    /// Goes on with another stream as the main one, which is ordered behind the one before.
    pub(super) fn turn_to(&mut self, stream: StreamId) {
        if let Some(before) = self.stream(self.main) {
            let mark = self.mark(before);
            self.wait(stream, &mark);
        }
        self.main = self.lane(stream);
    }

    /// Opens lanes for a recording on `stream`.
    pub(super) fn begin_recording(&mut self, stream: StreamId) {
        let Some(main) = self.stream(self.main) else { return };
        let start = self.mark(main);
        let by_stream = std::mem::take(&mut self.by_stream);
        self.outside = Some(Outside { main: self.main, by_stream, lanes: self.lanes.len(), era: self.era });
        self.era = new_era();
        self.main = self.lane(stream);
        self.lanes[self.main.0 as usize].join(&start.seen);
    }

    /// Closes the lanes of the recording, and says which is the first of them.
    pub(super) fn end_recording(&mut self) -> Option<Lane> {
        let outside = self.outside.take()?;
        self.lanes.truncate(outside.lanes);
        self.main = outside.main;
        self.by_stream = outside.by_stream;
        self.era = outside.era;
        Some(Lane(outside.lanes as u32))
    }

    /// Takes note that the host has waited for all streams: a new era begins, before which everything lies. Changes nothing inside of
    /// a recording, whose work the host cannot wait for.
    pub(super) fn all_reached(&mut self) {
        let Some(main) = self.stream(self.main).filter(|_| self.outside.is_none()) else { return };
        self.lanes.clear();
        self.by_stream.clear();
        self.era = new_era();
        self.main = self.lane(main);
    }
}

impl LaneState {
    fn seen(&self, lane: Lane) -> u64 {
        self.seen.get(lane.0 as usize).copied().unwrap_or(0)
    }

    fn join(&mut self, other: &[u64]) {
        for (lane, &time) in other.iter().enumerate() {
            raise(&mut self.seen, Lane(lane as u32), time);
        }
    }
}

fn raise(seen: &mut Vec<u64>, lane: Lane, time: u64) {
    let at = lane.0 as usize;
    if seen.len() <= at {
        seen.resize(at + 1, 0);
    }
    seen[at] = seen[at].max(time);
}
