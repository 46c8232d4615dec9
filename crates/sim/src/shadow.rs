//! What the checker knows about each byte of an allocation: what state it is in, and who accessed it last.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::clock::{Clock, Lane};
use crate::finding::Site;

/// One access, by its place in happens-before, and who made it.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) lane: Lane,
    pub(crate) count: u32,
    pub(crate) site: Arc<Site>,
}

impl Mark {
    fn is_before(&self, clock: &Clock) -> bool {
        clock.get(self.lane) >= self.count
    }
}

/// What a byte is.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Addresses without memory behind them.
    Unmapped,
    /// Memory that nothing has been written to.
    Undefined,
    /// Memory that has been written.
    Defined,
    /// Memory that its owner has given back.
    Released(Arc<Site>),
}

/// What an access ran into.
#[derive(Debug, Clone)]
pub(crate) enum Clash {
    Unmapped { at: u64 },
    NeverWritten { at: u64 },
    Released { at: u64, by: Arc<Site> },
    Race { at: u64, with: Arc<Site>, other_writes: bool },
}

#[derive(Debug, Clone)]
struct Cell {
    end: u64,
    content: Content,
    write: Option<Mark>,
    reads: SmallVec<[Mark; 2]>,
}

/// The state of an allocation's bytes, as runs of equal state; offsets are in bytes from its start.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// A (start -> cell) pair means that the bytes `start..cell.end` are in the cell's state. The cells cover the allocation
    /// without gaps or overlaps.
    cells: BTreeMap<u64, Cell>,
}

/// Ranges whose undefined bytes were read, which the device then fills with poison.
pub(crate) type Undefined = SmallVec<[(u64, u64); 1]>;

impl Shadow {
    pub(crate) fn new(bytes: u64, content: Content) -> Self {
        let cell = Cell { end: bytes, content, write: None, reads: SmallVec::new() };
        Self { cells: BTreeMap::from([(0, cell)]) }
    }

    /// Notes a read of `from..to` and reports what it ran into, at most one clash of each kind.
    pub(crate) fn read(&mut self, from: u64, to: u64, clock: &Clock, mark: &Mark) -> (Vec<Clash>, Undefined) {
        self.split(from);
        self.split(to);
        let (mut clashes, mut undefined) = (Clashes::default(), Undefined::new());
        for (&at, cell) in self.cells.range_mut(from..to) {
            match &cell.content {
                Content::Unmapped => clashes.add(Clash::Unmapped { at }),
                Content::Undefined => {
                    clashes.add(Clash::NeverWritten { at });
                    undefined.push((at, cell.end));
                    // One report is enough; the poison that is there from now on is a value like any other.
                    cell.content = Content::Defined;
                }
                Content::Released(by) => clashes.add(Clash::Released { at, by: Arc::clone(by) }),
                Content::Defined => {}
            }
            if let Some(write) = &cell.write
                && !write.is_before(clock)
            {
                clashes.add(Clash::Race { at, with: Arc::clone(&write.site), other_writes: true });
            }
            cell.reads.retain(|read| read.lane != mark.lane && !read.is_before(clock));
            cell.reads.push(mark.clone());
        }
        (clashes.0, undefined)
    }

    /// Notes a write of `from..to` and reports what it ran into, at most one clash of each kind.
    pub(crate) fn write(&mut self, from: u64, to: u64, clock: &Clock, mark: &Mark) -> Vec<Clash> {
        let clashes = self.overwrite(from, to, clock, mark, None);
        clashes.into_iter().filter(|clash| !matches!(clash, Clash::NeverWritten { .. })).collect()
    }

    /// Sets the content of `from..to`, as an access that has to be ordered with every other one.
    pub(crate) fn set(
        &mut self,
        from: u64,
        to: u64,
        content: Content,
        clock: &Clock,
        mark: &Mark,
    ) -> Vec<Clash> {
        let clashes = self.overwrite(from, to, clock, mark, Some(content));
        clashes.into_iter().filter(|clash| matches!(clash, Clash::Race { .. })).collect()
    }

    /// Sets the content of `from..to` and forgets who accessed it: memory that is new, or gone.
    pub(crate) fn reset(&mut self, from: u64, to: u64, content: Content) {
        if from >= to {
            return;
        }
        self.split(from);
        self.split(to);
        self.replace(from, to, Cell { end: to, content, write: None, reads: SmallVec::new() });
    }

    /// Forgets who accessed what, and keeps what is written and what is not.
    pub(crate) fn forget_accesses(&mut self) {
        for cell in self.cells.values_mut() {
            cell.write = None;
            cell.reads.clear();
        }
    }

    /// Somebody whose access the clock does not know to be over.
    pub(crate) fn in_use(&self, from: u64, to: u64, clock: &Clock) -> Option<(u64, Arc<Site>)> {
        self.cells.iter().filter(|(at, cell)| **at < to && cell.end > from).find_map(|(&at, cell)| {
            let mut marks = cell.write.iter().chain(&cell.reads);
            marks.find(|mark| !mark.is_before(clock)).map(|mark| (at, Arc::clone(&mark.site)))
        })
    }

    fn overwrite(
        &mut self,
        from: u64,
        to: u64,
        clock: &Clock,
        mark: &Mark,
        content: Option<Content>,
    ) -> Vec<Clash> {
        if from >= to {
            return Vec::new();
        }
        self.split(from);
        self.split(to);
        let mut clashes = Clashes::default();
        for (&at, cell) in self.cells.range(from..to) {
            match &cell.content {
                Content::Unmapped => clashes.add(Clash::Unmapped { at }),
                Content::Released(by) => clashes.add(Clash::Released { at, by: Arc::clone(by) }),
                Content::Undefined | Content::Defined => {}
            }
            if let Some(write) = &cell.write
                && !write.is_before(clock)
            {
                clashes.add(Clash::Race { at, with: Arc::clone(&write.site), other_writes: true });
            }
            if let Some(read) = cell.reads.iter().find(|read| !read.is_before(clock)) {
                clashes.add(Clash::Race { at, with: Arc::clone(&read.site), other_writes: false });
            }
        }
        if content.is_none() && clashes.0.iter().any(|clash| matches!(clash, Clash::Unmapped { .. })) {
            // Nothing can be written where there is no memory.
            return clashes.0;
        }
        let content = content.unwrap_or(Content::Defined);
        self.replace(from, to, Cell { end: to, content, write: Some(mark.clone()), reads: SmallVec::new() });
        clashes.0
    }

    fn replace(&mut self, from: u64, to: u64, cell: Cell) {
        let inside: SmallVec<[u64; 8]> = self.cells.range(from..to).map(|(&start, _)| start).collect();
        for start in inside {
            self.cells.remove(&start);
        }
        self.cells.insert(from, cell);
    }

    fn split(&mut self, at: u64) {
        let Some((&start, cell)) = self.cells.range_mut(..at).next_back() else { return };
        if start < at && at < cell.end {
            let mut right = cell.clone();
            right.end = cell.end;
            cell.end = at;
            self.cells.insert(at, right);
        }
    }
}

/// Clashes of one access, at most one of each kind: a kernel that reads a thousand stale cells made one mistake.
#[derive(Default)]
struct Clashes(Vec<Clash>);

impl Clashes {
    fn add(&mut self, clash: Clash) {
        let same = |other: &Clash| match (other, &clash) {
            (Clash::Race { other_writes: a, .. }, Clash::Race { other_writes: b, .. }) => a == b,
            _ => std::mem::discriminant(other) == std::mem::discriminant(&clash),
        };
        if !self.0.iter().any(same) {
            self.0.push(clash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(lanes: &mut crate::clock::Lanes, lane: Lane) -> Mark {
        Mark { lane, count: lanes.tick(lane), site: Arc::new(Site::host("test")) }
    }

    fn clock_after(marks: &[&Mark]) -> Clock {
        let mut clock = Clock::default();
        for mark in marks {
            clock.set(mark.lane, mark.count);
        }
        clock
    }

    #[test]
    fn a_read_behind_the_write_is_clean_and_one_beside_it_is_a_race() {
        let mut lanes = crate::clock::Lanes::new();
        let (a, b) = (lanes.take(&Clock::default()), lanes.take(&Clock::default()));
        let mut shadow = Shadow::new(64, Content::Undefined);
        let write = mark(&mut lanes, a);
        assert!(shadow.write(0, 32, &clock_after(&[]), &write).is_empty());
        let read = mark(&mut lanes, b);
        assert!(shadow.read(0, 32, &clock_after(&[&write]), &read).0.is_empty());
        let (clashes, _) = shadow.read(8, 16, &clock_after(&[]), &read);
        assert!(matches!(clashes[..], [Clash::Race { at: 8, other_writes: true, .. }]));
    }

    #[test]
    fn a_write_beside_a_read_is_a_race_unless_the_ranges_are_apart() {
        let mut lanes = crate::clock::Lanes::new();
        let (a, b) = (lanes.take(&Clock::default()), lanes.take(&Clock::default()));
        let mut shadow = Shadow::new(64, Content::Defined);
        let read = mark(&mut lanes, a);
        shadow.read(0, 32, &clock_after(&[]), &read);
        let write = mark(&mut lanes, b);
        assert!(shadow.write(32, 64, &clock_after(&[]), &write).is_empty());
        let clashes = shadow.write(31, 32, &clock_after(&[]), &write);
        assert!(matches!(clashes[..], [Clash::Race { at: 31, other_writes: false, .. }]));
    }

    #[test]
    fn a_read_of_undefined_bytes_is_reported_once_and_names_the_bytes() {
        let mut lanes = crate::clock::Lanes::new();
        let lane = lanes.take(&Clock::default());
        let mut shadow = Shadow::new(64, Content::Undefined);
        let first = mark(&mut lanes, lane);
        shadow.write(0, 16, &clock_after(&[]), &first);
        let clock = clock_after(&[&first]);
        let (clashes, undefined) = shadow.read(8, 40, &clock, &mark(&mut lanes, lane));
        assert!(matches!(clashes[..], [Clash::NeverWritten { at: 16 }]));
        assert_eq!(undefined[..], [(16, 40)]);
        assert!(shadow.read(8, 40, &clock, &mark(&mut lanes, lane)).0.is_empty());
    }

    #[test]
    fn released_bytes_clash_until_they_are_set_anew() {
        let mut lanes = crate::clock::Lanes::new();
        let lane = lanes.take(&Clock::default());
        let mut shadow = Shadow::new(64, Content::Defined);
        let release = mark(&mut lanes, lane);
        let by = Arc::new(Site::host("release"));
        shadow.set(0, 64, Content::Released(by), &clock_after(&[]), &release);
        let clock = clock_after(&[&release]);
        assert!(matches!(shadow.write(0, 8, &clock, &release)[..], [Clash::Released { at: 0, .. }]));
        assert!(matches!(shadow.read(8, 16, &clock, &release).0[..], [Clash::Released { at: 8, .. }]));
        shadow.set(0, 64, Content::Undefined, &clock, &release);
        assert!(shadow.write(0, 64, &clock, &release).is_empty());
    }

    #[test]
    fn an_empty_range_touches_nothing() {
        let mut lanes = crate::clock::Lanes::new();
        let lane = lanes.take(&Clock::default());
        let mut shadow = Shadow::new(64, Content::Unmapped);
        let mark = mark(&mut lanes, lane);
        assert!(shadow.write(8, 8, &Clock::default(), &mark).is_empty());
        assert!(shadow.read(8, 8, &Clock::default(), &mark).0.is_empty());
        assert!(matches!(shadow.write(0, 64, &Clock::default(), &mark)[..], [Clash::Unmapped { at: 0 }]));
    }
}
