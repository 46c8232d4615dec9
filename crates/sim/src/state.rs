//! Everything about a simulated device that changes, under its one lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use graphgrove_device::{CaptureId, DevicePtr, EventId, StreamId};

use crate::access::Log;
use crate::capture_state::{CaptureState, Membership};
use crate::clock::{Clock, Lane, Lanes};
use crate::fault::FaultPlan;
use crate::finding::Site;
use crate::host_call::RunningCall;
use crate::op::Op;
use crate::program::Program;
use crate::random::Random;
use crate::scheduler::GraphRun;
use crate::shadow::Mark;
use crate::space::Space;
use crate::stream::NULL;

/// Clocks of at most this many lanes are cheap enough to keep.
const REMEMBERED_LANES: usize = 64;

/// A point in a stream, reached or not. Once reached it holds the clock of everything behind which it lies.
#[derive(Debug, Default)]
pub(crate) struct Recording(OnceLock<Clock>);

impl Recording {
    pub(crate) fn reached(&self) -> Option<&Clock> {
        self.0.get()
    }

    pub(crate) fn reach(&self, clock: Clock) {
        // A recording stands in one place of one stream, so it is reached once.
        let _ = self.0.set(clock);
    }
}

/// One launch of a graph, as it waits in a stream.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: Arc<Program>,
    pub(crate) lanes: Arc<[Lane]>,
    /// The launch of the same exec before this one.
    pub(crate) after: Option<Arc<Recording>>,
    pub(crate) done: Arc<Recording>,
}

/// What can wait in a stream.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "work is the common case, and a box would cost each piece an allocation"
)]
pub(crate) enum Item {
    Op(Op),
    Record(Arc<Recording>),
    Wait(Arc<Recording>),
    Launch(Launch),
}

/// An item with what the host knew to be finished when it enqueued it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) item: Item,
    pub(crate) host: Clock,
    /// Its place in the order in which everything was enqueued.
    pub(crate) ticket: u64,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) queue: VecDeque<Queued>,
    /// The graph that the stream is in the middle of.
    pub(crate) running: Option<GraphRun>,
    /// Whether a host function that the stream called has not returned yet.
    pub(crate) calling: bool,
    /// The ticket of what ran last.
    pub(crate) ticket: u64,
    pub(crate) clock: Clock,
    pub(crate) lane: Lane,
    /// Whether it and the null stream wait for each other.
    pub(crate) blocking: bool,
    pub(crate) capture: Option<Membership>,
    /// Whether its last handle is gone; it goes itself when its work is done.
    pub(crate) abandoned: bool,
}

impl StreamState {
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_none() && !self.calling
    }
}

/// An event.
#[derive(Debug, Clone)]
pub(crate) enum EventState {
    Unrecorded,
    Recorded(Arc<Recording>),
    /// Recorded in a capture, behind these nodes of it.
    Captured {
        capture: CaptureId,
        behind: Vec<u32>,
    },
}

/// Everything about the device that changes.
pub(crate) struct State {
    pub(crate) space: Space,
    pub(crate) log: Log,
    pub(crate) lanes: Lanes,
    pub(crate) pasts: Arc<AtomicU64>,
    pub(crate) host_clock: Clock,
    pub(crate) streams: BTreeMap<StreamId, StreamState>,
    /// The streams that have work, in the order in which they got some.
    pub(crate) active: Vec<StreamId>,
    /// The stream that ran last; it goes on with some probability.
    pub(crate) favourite: Option<StreamId>,
    pub(crate) queued: usize,
    pub(crate) next_ticket: u64,
    /// How many host functions have been called and have not returned.
    pub(crate) calling: usize,
    /// Whether work is dropped instead of run.
    pub(crate) null_launch: bool,
    pub(crate) events: BTreeMap<EventId, EventState>,
    pub(crate) captures: BTreeMap<CaptureId, CaptureState>,
    /// An (address -> whether it is allocated) pair for memory that is allocated and freed in stream order or by graphs, as of
    /// everything that the host has enqueued.
    pub(crate) ordered: BTreeMap<DevicePtr, bool>,
    pub(crate) fault: Option<String>,
    pub(crate) faults: FaultPlan,
    pub(crate) random: Random,
    pub(crate) next_id: u64,
    /// A number that depends on everything that ran and on the order in which it ran.
    pub(crate) digest: u64,
    /// Finished work, dropped outside of the lock: a closure may own handles whose drop takes the lock.
    pub(crate) garbage: Vec<Garbage>,
}

/// What has to be dropped outside of the lock.
pub(crate) enum Garbage {
    Item { _item: Item },
    Program { _program: Arc<Program> },
    Call { _call: RunningCall },
    Capture { _capture: CaptureState },
}

impl State {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn take_lane(&mut self) -> Lane {
        self.lanes.take(&self.host_clock)
    }

    /// Gives the lanes of an exec back, unless a launch that has not ended still runs on them: it does so at its end then.
    pub(crate) fn give_lanes_back(&mut self, lanes: Arc<[Lane]>) {
        if Arc::strong_count(&lanes) == 1 {
            lanes.iter().for_each(|&lane| self.lanes.give_back(lane));
        }
    }

    /// Places an access of the host in happens-before.
    pub(crate) fn host_access(&mut self, name: &str) -> (Clock, Mark) {
        let count = self.lanes.tick(Lane::HOST);
        self.host_clock.set(Lane::HOST, count);
        let mark = Mark { lane: Lane::HOST, count, site: Arc::new(Site::host(name)) };
        (self.host_clock.clone(), mark)
    }

    /// Puts an item at the end of a stream that exists.
    fn push(&mut self, stream: StreamId, item: Item) {
        let host = self.host_clock.clone();
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if state.is_idle() {
            self.active.push(stream);
        }
        self.next_ticket += 1;
        state.queue.push_back(Queued { item, host, ticket: self.next_ticket });
        self.queued += 1;
    }

    /// Enqueues an item on a stream, behind what the null stream's rule puts before it.
    pub(crate) fn enqueue(&mut self, stream: StreamId, item: Item) {
        if self.null_launch {
            self.drop_item(item);
            return;
        }
        if stream == NULL {
            self.order_null();
        } else if self.streams.get(&stream).is_some_and(|state| state.blocking) {
            self.order(NULL, stream);
        }
        self.push(stream, item);
    }

    /// Makes the null stream wait for what every blocking stream has enqueued so far.
    pub(crate) fn order_null(&mut self) {
        let blocking: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| stream.blocking).map(|(&id, _)| id).collect();
        for other in blocking {
            self.order(other, NULL);
        }
    }

    /// The ticket of the oldest work that has not run to its end.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        let busy = self.active.iter().filter_map(|stream| self.streams.get(stream));
        busy.filter_map(|stream| match stream.queue.front() {
            _ if stream.running.is_some() || stream.calling => Some(stream.ticket),
            front => front.map(|queued| queued.ticket),
        })
        .min()
    }

    /// Takes an allocation away on behalf of the host. Work that uses it has to be known to be over.
    pub(crate) fn remove_allocation(&mut self, base: u64, name: &str) {
        let site = Arc::new(Site::host(name));
        if let Some(allocation) = self.space.get_mut(base) {
            let bytes = allocation.bytes;
            if let Some(finding) = allocation.in_use(0, bytes, &self.host_clock, &site) {
                self.log.add(finding);
            }
        }
        self.space.remove(base, site, self.next_ticket);
    }

    /// Forgets the past once the host knows that all of it is over: otherwise clocks would keep an entry for every stream that
    /// there ever was.
    pub(crate) fn forget_the_past(&mut self) {
        if self.lanes.len() <= REMEMBERED_LANES || self.calling > 0 || !self.active.is_empty() {
            return;
        }
        self.space.forget_accesses();
        self.pasts.fetch_add(1, Ordering::Relaxed);
        for stream in self.streams.values_mut() {
            stream.clock = Clock::default();
        }
        self.lanes.forget();
        self.host_clock = Clock::default();
    }

    /// Drops an item instead of running it; whoever waits for it need not.
    pub(crate) fn drop_item(&mut self, item: Item) {
        match &item {
            Item::Record(recording) => recording.reach(Clock::default()),
            Item::Launch(launch) => launch.done.reach(Clock::default()),
            // Memory that is freed in stream order has to come back although nothing runs.
            Item::Op(Op::Free { address }) => self.free_in_order(*address),
            Item::Op(_) | Item::Wait(_) => {}
        }
        self.garbage.push(Garbage::Item { _item: item });
    }

    /// Makes the second stream wait for what the first has enqueued so far.
    fn order(&mut self, first: StreamId, second: StreamId) {
        let Some(state) = self.streams.get(&first) else { return };
        let recording = Arc::new(Recording::default());
        if state.is_idle() {
            recording.reach(state.clock.clone());
        } else {
            self.push(first, Item::Record(Arc::clone(&recording)));
        }
        self.push(second, Item::Wait(recording));
    }

    /// Poisons the device: the first cause is the one that is reported from then on.
    pub(crate) fn poison(&mut self, cause: String) {
        self.fault.get_or_insert(cause);
    }

    /// Takes a stream away if nobody holds it and it has nothing left to do.
    pub(crate) fn reap(&mut self, stream: StreamId) {
        let gone =
            self.streams.get(&stream).is_some_and(|s| s.abandoned && s.is_idle() && s.capture.is_none());
        if gone && let Some(state) = self.streams.remove(&stream) {
            self.lanes.give_back(state.lane);
        }
    }
}
