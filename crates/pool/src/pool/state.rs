//! Everything about a pool that changes, under its one lock.

use std::collections::{BTreeMap, VecDeque};

use graphgrove_device::{Annotation, CaptureMode, CaptureStatus, Device, ModeGuard, StreamHandle, StreamId};

use crate::error::PoolError;
use crate::ranges::{self, BlockId, Ranges};

use super::backing::{Backing, Grown};
use super::block::Block;
use super::config::PoolConfig;
use super::footprint::Pins;
use super::frontier::{Frontier, Lane};
use super::owner::Owner;
use super::phase::Phase;
use super::records::{Record, Records};
use super::report::{Holding, HoldingState, Shortage};
use super::stats::{Counts, PoolStats};
use super::waiting::Waiting;

pub(super) struct State<D: Device> {
    pub(super) config: PoolConfig,
    pub(super) ranges: Ranges,
    pub(super) backing: Backing<D>,
    pub(super) records: Records,
    pub(super) frontier: Frontier,
    pub(super) waiting: Waiting,
    pub(super) phase: Phase,
    pub(super) pins: Pins,
    pub(super) counts: Counts,
    /// How the pool grew since the session began, or in the present allocation outside of sessions.
    pub(super) grown: Vec<Grown>,
    pub(super) shortages: VecDeque<Shortage>,
    pub(super) sessions: u64,
    /// Whether deaths are kept from the device: while a recording is undone.
    pub(super) muted: bool,
    /// The pool's own stream.
    pub(super) home: D::Stream,
    /// The stream on which blocks are handed out now: the pool's own, or that of a session.
    pub(super) main: D::Stream,
    /// Every stream that the pool has been told of.
    pub(super) known: BTreeMap<StreamId, D::Stream>,
}

impl<D: Device> State<D> {
    pub(super) fn new(stream: &D::Stream, config: PoolConfig) -> Self {
        Self {
            config,
            ranges: Ranges::default(),
            backing: Backing::new(),
            records: Records::default(),
            frontier: Frontier::new(stream.id()),
            waiting: Waiting::default(),
            phase: Phase::Open,
            pins: Pins::default(),
            counts: Counts::default(),
            grown: Vec::new(),
            shortages: VecDeque::new(),
            sessions: 0,
            muted: false,
            home: stream.clone(),
            main: stream.clone(),
            known: BTreeMap::from([(stream.id(), stream.clone())]),
        }
    }

    pub(super) fn know(&mut self, stream: &D::Stream) {
        self.known.entry(stream.id()).or_insert_with(|| stream.clone());
    }

    /// The number of the session under way, 0 for none.
    pub(super) fn session_number(&mut self) -> u64 {
        self.phase.session().map_or(0, |session| session.number)
    }

    /// Tells a checking device what became of a range. That it refuses is counted: a block's death must not depend on it.
    pub(super) fn annotate_released(&mut self, device: &D, block: &ranges::Block) {
        if self.muted {
            return;
        }
        let at = self.backing.address(block);
        if device.annotate(&self.main, Annotation::Released { at, bytes: block.bytes }).is_err() {
            self.counts.refusals += 1;
        }
    }

    /// Whether any stream that the pool knows is capturing, so that nothing may wait for it.
    pub(super) fn is_capturing(&self, device: &D) -> bool {
        self.known.values().any(|stream| !matches!(device.capture_status(stream), Ok(CaptureStatus::None)))
    }

    /// Waits for all streams that the pool knows; then nothing that the pool was told of uses dead blocks any more.
    ///
    /// The thread's mode is relaxed for it: waiting for these streams harms no capture of other streams. Streams other than the main ones
    /// are forgotten, until the pool is told of them again.
    pub(super) fn synchronize(&mut self, device: &D) -> Result<(), PoolError> {
        let _mode = ModeGuard::swap(device, CaptureMode::Relaxed)?;
        for stream in self.known.values() {
            device.synchronize_stream(stream)?;
        }
        self.frontier.all_reached();
        let reached = self.waiting.close(Lane::FIRST);
        if !reached.is_empty() {
            self.no_longer_awaited(device, reached);
            // A checking device was told of the deaths on the main stream, and the memory may go next.
            device.synchronize_stream(&self.main)?;
        }
        let (home, main) = (self.home.id(), self.main.id());
        self.known.retain(|&id, _| id == home || id == main);
        Ok(())
    }

    /// Whether a handle's block is still in the life that the handle is of. While replays run, that may be one that the allocator's state
    /// does not have.
    pub(super) fn is_current(&self, handle: &Block<D>) -> bool {
        let id = handle.id();
        let known = match self.phase {
            Phase::Replaying(_) => self.ranges.remembers(id),
            Phase::Open | Phase::Session(_) => self.ranges.block(id).is_some(),
        };
        known && self.records.get(id).is_some_and(|record| record.epoch == handle.epoch())
    }

    fn holding(&self, block: &ranges::Block) -> Holding {
        let record = self.records.get(block.id);
        let state = match record {
            Some(record) if record.awaited > 0 => {
                HoldingState::Awaits { streams: self.awaited_streams(record) }
            }
            _ => HoldingState::Live { claims: record.map_or(0, |record| record.claims) },
        };
        Holding {
            id: block.id,
            at: self.backing.address(block),
            bytes: block.bytes,
            asked: record.map_or(block.bytes, |record| record.asked),
            owner: record.map_or(Owner::Unknown, |record| record.owner),
            label: record.map_or("pool block", |record| record.label),
            state,
        }
    }

    fn awaited_streams(&self, record: &Record) -> Vec<StreamId> {
        let lanes = self.waiting.lanes_of(record.id, &record.uses);
        lanes.filter_map(|lane| self.frontier.stream(lane)).collect()
    }

    pub(super) fn holding_of(&self, id: BlockId) -> Option<Holding> {
        Some(self.holding(&self.ranges.block(id)?))
    }

    /// Every block that is not free, by rising address.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        self.ranges.live_blocks().map(|block| self.holding(&block)).collect()
    }

    /// Bytes and number of the dead blocks that other streams still use.
    pub(super) fn awaited(&self) -> (u64, u32) {
        (self.waiting.bytes(), self.waiting.blocks().len() as u32)
    }

    pub(super) fn stats(&self) -> PoolStats {
        let (awaited, awaited_blocks) = self.awaited();
        PoolStats { ranges: self.ranges.stats(), awaited, awaited_blocks, counts: self.counts }
    }
}
