//! Running a trace through the allocator.

use std::sync::Arc;

use super::{Event, Phase, Trace};
use crate::error::PoolError;
use crate::plan::{Cursor, Obstacle, Planner, Recorder, Request};
use crate::ranges::{Block, RangeStats, Ranges, RegionId, RegionKind};

/// What counts as one recording of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each phase: blocks that outlive it are in the way of later plans until they die.
    Phase,
    /// All phases of a step together.
    Step,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The statistics at the end, with the peaks of the whole run.
    pub stats: RangeStats,
    /// Recordings that were planned.
    pub plans: u32,
    /// Recordings that did not follow their plan to the end.
    pub departures: u32,
}

/// Runs a trace with no knowledge of the future, in one growing region that is mapped in whole pages of `page` bytes.
///
/// # Errors
///
/// Those of the allocator; a trace that [`Trace::parse`] accepted has none but the limits on sizes.
pub fn online(trace: &Trace, page: u64) -> Result<Run, PoolError> {
    let mut run = Runner::new(trace, page)?;
    run.events(&trace.events, None)?;
    Ok(run.finish())
}

/// Runs a trace in recordings, each with a plan made from its own requests and lifetimes, as a warm-up would show them.
///
/// # Errors
///
/// As for [`online`].
pub fn planned(trace: &Trace, page: u64, cut: Cut, planner: Planner) -> Result<Run, PoolError> {
    let mut run = Runner::new(trace, page)?;
    for recording in recordings(trace, cut) {
        let (requests, obstacles) = run.foresee(recording);
        let plan = planner.plan(&requests, &obstacles)?;
        run.ensure(plan.peak())?;
        let mut cursor = Cursor::new(Arc::new(plan), run.region);
        run.events(recording, Some(&mut cursor))?;
        run.plans += 1;
        run.departures += u32::from(cursor.departure().is_some());
    }
    Ok(run.finish())
}

/// The events of each recording. What comes before the first phase belongs to the first recording.
fn recordings(trace: &Trace, cut: Cut) -> Vec<&[Event]> {
    let mut cuts = Vec::new();
    let mut last: Option<&Phase> = None;
    for (at, event) in trace.events.iter().enumerate() {
        let Event::Phase(phase) = event else { continue };
        let phase = trace.phases.get(*phase as usize);
        let same = cut == Cut::Step && last.map(|last| last.step) == phase.map(|phase| phase.step);
        if last.is_some() && !same {
            cuts.push(at);
        }
        last = phase;
    }
    cuts.push(trace.events.len());
    let mut from = 0;
    let parts = cuts.into_iter().map(|to| &trace.events[std::mem::replace(&mut from, to)..to]);
    parts.collect()
}

struct Runner {
    ranges: Ranges,
    region: RegionId,
    page: u64,
    /// Where each block of the trace is, while it is live.
    blocks: Vec<Option<Block>>,
    plans: u32,
    departures: u32,
}

impl Runner {
    fn new(trace: &Trace, page: u64) -> Result<Self, PoolError> {
        let mut ranges = Ranges::default();
        let region = ranges.add_region(RegionKind::Growing, 0)?;
        Ok(Self { ranges, region, page, blocks: vec![None; trace.blocks()], plans: 0, departures: 0 })
    }

    fn events(&mut self, events: &[Event], mut cursor: Option<&mut Cursor>) -> Result<(), PoolError> {
        for event in events {
            match *event {
                // Memory of no bytes has no address, so there is nothing to place.
                Event::Alloc { bytes: 0, .. } | Event::Phase(_) => {}
                Event::Alloc { block, bytes, .. } => {
                    let placed = self.alloc(bytes, cursor.as_deref_mut())?;
                    self.blocks[block as usize] = Some(placed);
                }
                Event::Free { block } => {
                    if let Some(block) = self.blocks[block as usize].take() {
                        self.ranges.free(block.id)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn alloc(&mut self, bytes: u64, cursor: Option<&mut Cursor>) -> Result<Block, PoolError> {
        let first = match cursor {
            Some(cursor) => cursor.alloc(&mut self.ranges, bytes, 1),
            None => self.ranges.alloc(bytes, 1),
        };
        match first {
            Err(PoolError::NoRoom { grow_by: Some(grow_by), .. }) => {
                self.ensure(self.ranges.stats().reserved + grow_by)?;
                self.ranges.alloc(bytes, 1)
            }
            other => other,
        }
    }

    /// Makes the region at least `len` bytes long, in whole pages.
    fn ensure(&mut self, len: u64) -> Result<(), PoolError> {
        if len <= self.ranges.stats().reserved {
            return Ok(());
        }
        self.ranges.resize_region(self.region, len.next_multiple_of(self.page))
    }

    /// What a recording is going to ask for, and what is there before it.
    fn foresee(&self, events: &[Event]) -> (Vec<Request>, Vec<Obstacle>) {
        let mut recorder = Recorder::new();
        let mut requests = vec![None; self.blocks.len()];
        let mut obstacles = Vec::new();
        for event in events {
            match *event {
                Event::Alloc { bytes: 0, .. } | Event::Phase(_) => {}
                Event::Alloc { block, bytes, .. } => {
                    requests[block as usize] = Some(recorder.alloc(bytes, 1));
                }
                Event::Free { block } => match (requests[block as usize], &self.blocks[block as usize]) {
                    (Some(request), _) => recorder.free(request),
                    (None, Some(old)) => {
                        let death = recorder.free_obstacle();
                        obstacles.push((old.id, Obstacle { offset: old.offset, bytes: old.bytes, death }));
                    }
                    (None, None) => {}
                },
            }
        }
        let dying: std::collections::HashSet<_> = obstacles.iter().map(|(id, _)| *id).collect();
        let staying = self.ranges.live_blocks().filter(|block| !dying.contains(&block.id));
        let staying =
            staying.map(|old| Obstacle { offset: old.offset, bytes: old.bytes, death: Request::SURVIVES });
        let obstacles = obstacles.iter().map(|(_, obstacle)| *obstacle).chain(staying).collect();
        (recorder.finish(), obstacles)
    }

    fn finish(self) -> Run {
        Run { stats: self.ranges.stats(), plans: self.plans, departures: self.departures }
    }
}
