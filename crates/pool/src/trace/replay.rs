//! Running a trace through the allocator.

use std::sync::Arc;

use super::{Event, Trace};
use crate::error::PoolError;
use crate::plan::{Cursor, Obstacle, Planner, Recorder, Request};
use crate::ranges::{Block, RangeStats, Ranges, RegionId, RegionKind};

/// What counts as one recording of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each phase: blocks that outlive it are in the way of later plans until they die. When they die is known from the warm-up of the
    /// whole step.
    Phase,
    /// All phases of a step together: as one recording, or as several that follow the [parts](crate::plan::Plan::part) of one plan.
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
    for Recording { events: recording, later } in recordings(trace, cut) {
        let (requests, obstacles) = run.foresee(recording, later);
        let plan = planner.plan(&requests, &obstacles)?;
        run.ensure(plan.peak())?;
        let mut cursor = Cursor::new(Arc::new(plan), run.region);
        run.events(recording, Some(&mut cursor))?;
        run.plans += 1;
        run.departures += u32::from(cursor.departure().is_some());
    }
    Ok(run.finish())
}

/// A part of a trace that is recorded as one.
struct Recording<'a> {
    events: &'a [Event],
    /// What follows in the same step: it shows when the blocks that outlive the recording die.
    later: &'a [Event],
}

/// The recordings of a trace. What comes before the first phase belongs to the first one.
fn recordings(trace: &Trace, cut: Cut) -> Vec<Recording<'_>> {
    let phases = trace.events.iter().enumerate().filter_map(|(at, event)| match event {
        Event::Phase(phase) => Some((at, trace.phases.get(*phase as usize)?.step)),
        _ => None,
    });
    let phases: Vec<(usize, u32)> = phases.collect();
    let end = trace.events.len();
    let step_ends = |from: usize| {
        let step = phases.get(from).map(|&(_, step)| step);
        phases.iter().skip(from + 1).find(|&&(_, other)| Some(other) != step).map_or(end, |&(at, _)| at)
    };
    let mut recordings = Vec::new();
    let mut start = 0;
    let mut phase = 0;
    while start < end {
        let step_end = step_ends(phase);
        let next = match cut {
            Cut::Phase => phases.get(phase + 1).map_or(end, |&(at, _)| at),
            Cut::Step => step_end,
        };
        recordings
            .push(Recording { events: &trace.events[start..next], later: &trace.events[next..step_end] });
        phase = phases.partition_point(|&(at, _)| at < next);
        start = next;
    }
    recordings
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
        let first = match cursor.filter(|cursor| cursor.departure().is_none()) {
            Some(cursor) => cursor.alloc(&mut self.ranges, bytes, 1),
            None => self.alloc_online(bytes),
        };
        match first {
            Err(PoolError::NoRoom { grow_by: Some(grow_by), .. }) => {
                self.ensure(self.ranges.stats().reserved + grow_by)?;
                self.ranges.alloc(bytes, 1)
            }
            other => other,
        }
    }

    fn alloc_online(&mut self, bytes: u64) -> Result<Block, PoolError> {
        if let Some(block) = self.ranges.alloc_sparing(bytes, 1)? {
            return Ok(block);
        }
        let grow_by = self.ranges.spares_by_growing(bytes, 1).unwrap_or(0);
        self.ensure(self.ranges.stats().reserved + grow_by)?;
        self.ranges.alloc(bytes, 1)
    }

    /// Makes the region at least `len` bytes long, in whole pages.
    fn ensure(&mut self, len: u64) -> Result<(), PoolError> {
        if len <= self.ranges.stats().reserved {
            return Ok(());
        }
        self.ranges.resize_region(self.region, len.next_multiple_of(self.page))
    }

    /// What a recording is going to ask for, and what is there before it.
    fn foresee(&self, events: &[Event], later: &[Event]) -> (Vec<Request>, Vec<Obstacle>) {
        let mut recorder = Recorder::new();
        let mut requests = vec![None; self.blocks.len()];
        let mut deaths = vec![Request::SURVIVES; self.blocks.len()];
        for (event, within) in
            events.iter().map(|event| (event, true)).chain(later.iter().map(|event| (event, false)))
        {
            match *event {
                Event::Alloc { block, bytes, .. } if within && bytes > 0 => {
                    requests[block as usize] = Some(recorder.alloc(bytes, 1));
                }
                Event::Free { block } => match requests[block as usize] {
                    Some(request) => recorder.free(request),
                    None => deaths[block as usize] = recorder.free_obstacle(),
                },
                // Memory of no bytes has no address, and what later recordings ask for is theirs to plan.
                Event::Alloc { .. } | Event::Phase(_) => {}
            }
        }
        let live = self.blocks.iter().zip(deaths).filter_map(|(block, death)| {
            let block = (*block)?;
            Some(Obstacle { offset: block.offset, bytes: block.bytes, death })
        });
        (recorder.finish(), live.collect())
    }

    fn finish(self) -> Run {
        Run { stats: self.ranges.stats(), plans: self.plans, departures: self.departures }
    }
}
