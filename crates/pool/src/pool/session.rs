//! Warm-ups and recordings, which leave the pool as it was unless they are finished.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use graphgrove_device::{CaptureStatus, Device, StreamHandle};

use crate::error::PoolError;
use crate::plan::{Cursor, Departure, Plan, Recorder};
use crate::ranges::{BlockId, CheckpointId, Survivors};

use super::Pool;
use super::block::Block;
use super::checkpoint::Checkpoint;
use super::demand::Demand;
use super::footprint::Footprint;
use super::phase::{Phase, SessionKind, SessionState};
use super::report::{Holding, HoldingState};
use super::request::Request;
use super::state::State;

/// A warm-up or a recording that is under way in a pool. Only one is at a time.
///
/// Dropped without being [finished](Session::finish), by an error or a panic, it leaves no trace: reserved and live bytes, free runs and
/// addresses are as before its begin, without the blocks whose last handle has gone meanwhile. Handles of blocks that were born in it
/// are stale then.
///
/// A recording's session has to outlive the capture: begin it before and end it after.
#[must_use = "dropping the session undoes it"]
pub struct Session<D: Device> {
    pool: Pool<D>,
    open: bool,
}

/// What a session leaves.
#[derive(Debug)]
#[must_use = "dropping the outputs gives their memory back"]
pub struct Finished<D: Device> {
    /// The blocks that were handed over as outputs.
    pub outputs: Vec<Block<D>>,
    /// The pool's state at the end.
    pub checkpoint: Checkpoint<D>,
    /// What the session has asked for, from which [a plan](Pool::plan) for the next one can be made.
    pub demand: Demand,
    /// How far the plan was followed; `None` if there was none.
    pub planned: Option<Planned>,
}

/// How far a plan was followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// How many requests were served from it.
    pub served: u32,
    /// Why the others were not.
    pub departure: Option<Departure>,
}

impl<D: Device> Session<D> {
    pub(super) fn begin(
        pool: &Pool<D>,
        kind: SessionKind,
        stream: &D::Stream,
        plan: Option<&Arc<Plan>>,
    ) -> Result<Self, PoolError> {
        let device = pool.device();
        {
            let mut state = pool.enter();
            state.phase.expect_open()?;
            if kind == SessionKind::WarmUp {
                for stream in [&state.home, stream] {
                    if !matches!(device.capture_status(stream)?, CaptureStatus::None) {
                        return Err(PoolError::Capturing { stream: stream.id() });
                    }
                }
                order(device, &state.home.clone(), stream)?;
            }
            state.begin_session(device, kind, stream);
        }
        let session = Self { pool: pool.clone(), open: true };
        if let Some(plan) = plan {
            // From here on an error undoes the session.
            session.pool.enter().follow_plan(device, plan)?;
        }
        Ok(session)
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    /// A block of undefined contents, to be used on the session's stream, and on others once they are ordered behind it.
    ///
    /// A session that is undone leaves the pool as it was, so nothing goes back to the device in it, free segments neither. Where memory or
    /// budget are short, [`trim`](Pool::trim) and another try of the whole session may help.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; the pool is as before then.
    pub fn allocate(&self, request: Request) -> Result<Block<D>, PoolError> {
        let mut state = self.pool.enter();
        let acquired = state.acquire(self.pool.device(), request)?;
        Ok(Block::new(&self.pool.0, acquired, request.bytes, request.owner, request.label))
    }

    /// Applies the drops so far: the bytes are free now, and a checked device knows it. It happens by itself at the next operation; a
    /// capture should end after one, so that the releases of its last temporaries are part of it.
    pub fn settle(&self) {
        drop(self.pool.enter());
    }

    /// Ends the session for good. Every block that it has made must be among `outputs` or be dead.
    ///
    /// The capture of a recording has to be over.
    ///
    /// # Errors
    /// [`PoolError::Survivors`] with the blocks that are not: a library keeps a workspace there, which the next recording would
    /// overwrite (pytorch/pytorch#99985). [`PoolError::ForeignHandle`] for an output of another pool, and [`PoolError::NotLive`] for one
    /// whose life is over. The session is undone then.
    pub fn finish(self, outputs: Vec<Block<D>>) -> Result<Finished<D>, PoolError> {
        self.end(outputs, false)
    }

    /// As [`finish`](Session::finish), but blocks that are neither dead nor among `outputs` stay live, in the checkpoint too, until their
    /// handles go.
    ///
    /// # Errors
    /// [`PoolError::ForeignHandle`] for an output of another pool, and [`PoolError::NotLive`] for one whose life is over. The session is
    /// undone then.
    pub fn finish_keeping(self, outputs: Vec<Block<D>>) -> Result<Finished<D>, PoolError> {
        self.end(outputs, true)
    }

    /// The blocks that were born in the session and are live now.
    #[must_use]
    pub fn survivors(&self) -> Vec<Holding> {
        self.pool.enter().survivors(&[])
    }

    fn end(mut self, outputs: Vec<Block<D>>, keep: bool) -> Result<Finished<D>, PoolError> {
        if outputs.iter().any(|output| !output.is_of(&self.pool.0)) {
            return Err(PoolError::ForeignHandle);
        }
        let device = self.pool.device();
        let mut state = self.pool.enter();
        if let Some(dead) = outputs.iter().find(|output| !state.is_current(output)) {
            let block = dead.id();
            drop(state);
            return Err(PoolError::NotLive { block });
        }
        if !keep {
            let names: Vec<BlockId> = outputs.iter().map(Block::id).collect();
            let blocks = state.survivors(&names);
            if !blocks.is_empty() {
                drop(state);
                return Err(PoolError::Survivors { blocks });
            }
        }
        if !state.is_recording() {
            let (home, main) = (state.home.clone(), state.main.clone());
            if let Err(error) = order(device, &main, &home) {
                drop(state);
                return Err(error);
            }
        }
        let Some(ended) = state.commit(device) else { return Err(PoolError::NotRestored) };
        drop(state);
        self.open = false;
        let Ended { checkpoint, footprint, awaited, demand, planned } = ended;
        let checkpoint = Checkpoint::new(&self.pool.0, checkpoint, footprint, awaited);
        Ok(Finished { outputs, checkpoint, demand, planned })
    }
}

impl<D: Device> Drop for Session<D> {
    fn drop(&mut self) {
        if self.open {
            let shared = &self.pool.0;
            let mut state = shared.state.lock();
            // Blocks of a recording never came to life on the device, so their deaths are no news to it.
            state.muted = state.is_recording();
            state.apply(&shared.device, shared.drops.take());
            state.roll_back(&shared.device);
        }
    }
}

impl<D: Device> fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("open", &self.open).finish_non_exhaustive()
    }
}

/// Makes whatever comes on the second stream wait for what the first has been given, by an event.
fn order<D: Device>(device: &D, first: &D::Stream, second: &D::Stream) -> Result<(), PoolError> {
    if first.id() != second.id() {
        let event = device.create_event()?;
        device.record_event(&event, first)?;
        device.wait_event(second, &event)?;
    }
    Ok(())
}

struct Ended {
    checkpoint: CheckpointId,
    footprint: Footprint,
    awaited: Vec<BlockId>,
    demand: Demand,
    planned: Option<Planned>,
}

impl<D: Device> State<D> {
    fn begin_session(&mut self, device: &D, kind: SessionKind, stream: &D::Stream) {
        self.sessions += 1;
        self.grown.clear();
        self.main = stream.clone();
        match kind {
            SessionKind::WarmUp => {
                self.know(stream);
                self.frontier.turn_to(stream.id());
                self.free_reached(device);
            }
            SessionKind::Recording => {
                self.know(stream);
                self.frontier.begin_recording(stream.id());
            }
        }
        self.phase = Phase::Session(Box::new(SessionState {
            number: self.sessions,
            kind,
            before: self.ranges.checkpoint(),
            born: Vec::new(),
            released: Vec::new(),
            footprint: Footprint::default(),
            recorder: Recorder::new(),
            deaths: Vec::new(),
            cursor: None,
        }));
    }

    pub(super) fn is_recording(&mut self) -> bool {
        self.phase.session().is_some_and(|session| session.kind == SessionKind::Recording)
    }

    fn follow_plan(&mut self, device: &D, plan: &Arc<Plan>) -> Result<(), PoolError> {
        self.grow_for_plan(device, plan.peak())?;
        let widest = self.backing.widest(&self.ranges);
        if let (Some((region, _)), Some(session)) = (widest, self.phase.session()) {
            session.cursor = Some(Cursor::new(Arc::clone(plan), region));
        }
        Ok(())
    }

    /// The blocks that were born in the session, live on, and are not named, by rising address. Costs what the session did.
    fn survivors(&self, named: &[BlockId]) -> Vec<Holding> {
        let named: BTreeSet<&BlockId> = named.iter().collect();
        let Phase::Session(session) = &self.phase else { return Vec::new() };
        let unnamed = session.born.iter().filter(|id| !named.contains(id));
        let mut holdings: Vec<Holding> = unnamed.filter_map(|&id| self.holding_of(id)).collect();
        holdings.retain(|holding| matches!(holding.state, HoldingState::Live { .. }));
        holdings.sort_unstable_by_key(|holding| holding.at);
        holdings
    }

    fn commit(&mut self, device: &D) -> Option<Ended> {
        if let Some(first) = self.frontier.end_recording() {
            // The capture's streams were joined, so nothing of the recording is still to be waited for.
            let reached = self.waiting.close(first);
            self.no_longer_awaited(device, reached);
        }
        let Phase::Session(session) = std::mem::replace(&mut self.phase, Phase::Open) else { return None };
        let SessionState { before, born, mut footprint, recorder, deaths, cursor, .. } = *session;
        self.muted = false;
        self.come_home();
        // The pool's stream lies behind that of a warm-up now.
        self.free_reached(device);
        self.forget_joined();
        let (checkpoint, awaited) = self.name_state(&mut footprint);
        self.discard(before);
        self.grown.clear();
        let planned = cursor.map(|cursor| Planned { served: cursor.served(), departure: cursor.departure() });
        Some(Ended {
            checkpoint,
            footprint,
            awaited,
            demand: Demand { requests: recorder.finish(), blocks: born, deaths },
            planned,
        })
    }

    /// Undoes the session. Nothing here can stop it half-way: what the device refuses is counted.
    fn roll_back(&mut self, device: &D) {
        if let Some(first) = self.frontier.end_recording() {
            self.waiting.close(first);
        } else {
            // The work of a warm-up runs for real, and may still be using what is about to be free.
            self.refused_if(|state| state.synchronize(device).is_err());
            let survivors = self.survivors(&[]);
            for Holding { id, .. } in &survivors {
                if let Some(block) = self.ranges.block(*id) {
                    self.annotate_released(device, &block);
                }
            }
            if !survivors.is_empty() {
                self.refused_if(|state| state.synchronize(device).is_err());
            }
        }
        let Phase::Session(session) = std::mem::replace(&mut self.phase, Phase::Open) else { return };
        let SessionState { before, born, released, .. } = *session;
        for id in born {
            self.stop_waiting(id);
            self.records.remove(id);
        }
        for &id in &released {
            self.stop_waiting(id);
            let frontier = &self.frontier;
            if let Some(record) = self.records.get_mut(id) {
                record.uses.retain(|&stamp| frontier.counts(stamp));
            }
        }
        self.refused_if(|state| state.ranges.restore(before, Survivors::AsRecorded).is_err());
        self.discard(before);
        let elsewhere = self.main.id() != self.home.id();
        if (elsewhere || !self.grown.is_empty()) && !self.is_capturing(device) {
            // A recording may have been handed blocks before its capture began, and then a checking device was told of them at once. It
            // must have heard of it before their memory goes, or is handed out on the pool's stream.
            self.refused_if(|state| state.synchronize(device).is_err());
        }
        self.shrink_to(device, 0);
        self.come_home();
        self.muted = false;
        // These deaths were counted when they came.
        let releases = self.counts.releases;
        for id in released {
            self.release(device, id);
        }
        self.counts.releases = releases;
        self.counts.rollbacks += 1;
    }

    fn come_home(&mut self) {
        self.main = self.home.clone();
        if !self.frontier.is_main(self.home.id()) {
            self.frontier.turn_to(self.home.id());
        }
    }

    pub(super) fn discard(&mut self, checkpoint: CheckpointId) {
        self.refused_if(|state| state.ranges.discard(checkpoint).is_err());
    }

    fn refused_if(&mut self, refused: impl FnOnce(&mut Self) -> bool) {
        if refused(self) {
            self.counts.refusals += 1;
        }
    }
}
