//! One pool of device memory for many recordings.
//!
//! A captured graph has the addresses of its memory frozen into it, so whoever records several graphs decides who may use which bytes
//! when. Here they share one pool: what is given up inside of a recording is free for its next request, what a recording leaves is
//! described by a [checkpoint](Checkpoint), and the next recording starts from the state that the one before it left.
//!
//! | part | what it does |
//! |---|---|
//! | [`Pool`] | obtains memory from the device, hands out [`Block`]s, takes checkpoints and restores them, reports |
//! | [`Session`] | one warm-up or recording: finished, or undone without a trace |
//! | [`Checkpoint`] | the state after a recording, and the memory that its replays need |
//!
//! # Streams
//!
//! Blocks are handed out on one stream: the pool's own, or that of the session. All graphs that share the pool are launched in
//! one order, on that stream or ordered with it. Work with a block on another stream has to be declared by [`Pool::used_on`], and what
//! orders streams by [`Pool::ordered`], or [`Pool::marked`] and [`Pool::ordered_behind`], as events are recorded and waited for. Then
//! a dead block's bytes are free again as soon as the main stream lies behind all of its uses, inside of a capture as well, where no
//! event can be asked (pytorch/pytorch#155398); and not before.
//!
//! Nobody says when a stream is gone. So the order of 64 streams is remembered, the last that the pool was told of, and of all whose uses
//! are not joined yet. One that was forgotten has to be ordered behind the main stream again before it uses memory.
//!
//! # How memory comes and goes
//!
//! Where the device can, the pool is one range of addresses that grows by mapping pages behind its end. Elsewhere it is made of
//! segments. It grows inside of captures too, with the calling thread's capture mode relaxed for that one call. What the caller
//! [brings](Pool::adopt_segment) is used first. [`Pool::trim`] gives back what is wholly free and not needed by any recording; the
//! pool does the same by itself before it says that there is no memory. Everything goes back when the last pool handle, block and
//! checkpoint are gone; whoever drops the last one makes sure that no work is left that uses the memory.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::{Capabilities, Device, DevicePtr, SegmentMemory};
use parking_lot::{Mutex, MutexGuard};

use crate::error::PoolError;
use crate::plan::Plan;
use crate::ranges::{BlockId, Restored};

mod acquire;
mod backing;
mod block;
mod books;
mod checkpoint;
mod config;
mod demand;
mod exhaustion;
mod footprint;
mod frontier;
mod gone;
mod inspect;
mod owner;
mod phase;
mod record;
mod records;
mod release;
mod report;
mod request;
mod restore;
mod session;
mod state;
mod stats;
mod streams;
mod trim;
mod waiting;

pub use block::Block;
pub use books::Books;
pub use checkpoint::{Checkpoint, Live};
pub use config::{Growth, PoolConfig, Range};
pub use demand::Demand;
pub use exhaustion::{Exhaustion, Limit};
pub use frontier::Mark;
pub use owner::Owner;
pub use phase::SessionKind;
pub use record::Recorded;
pub use report::{Cause, Holder, Holding, HoldingState, Shortage, WhyNot};
pub use request::Request;
pub use session::{Finished, Planned, Session};
pub use stats::{Counts, PoolStats};

use acquire::Acquired;
use footprint::Footprint;
use gone::Drops;
use phase::{Phase, Replaying};
use state::State;

struct Shared<D: Device> {
    device: Arc<D>,
    state: Mutex<State<D>>,
    drops: Drops,
}

/// A pool of device memory. Clones are the same pool; its memory goes back when the last of them and the last block and checkpoint are
/// gone.
///
/// ```
/// use std::sync::Arc;
///
/// use graphgrove_device::Streams;
/// use graphgrove_pool::pool::{Owner, Pool, PoolConfig, Request};
/// use graphgrove_sim::SimDevice;
///
/// let device = Arc::new(SimDevice::new());
/// let stream = device.create_stream()?;
/// let pool = Pool::new(Arc::clone(&device), &stream, PoolConfig::default())?;
///
/// let block = pool.allocate(Request::bytes(1000).owner(Owner::Output).label("logits"))?;
/// let address = block.ptr();
/// assert_eq!(pool.stats().ranges.live, 1024);
/// drop(block);
/// assert_eq!(pool.allocate(Request::bytes(1024))?.ptr(), address);
/// # Ok::<(), graphgrove_pool::PoolError>(())
/// ```
pub struct Pool<D: Device>(Arc<Shared<D>>);

impl<D: Device> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<D: Device> Pool<D> {
    /// A pool whose blocks are handed out on `stream`.
    ///
    /// # Errors
    /// [`PoolError::Device`] or [`PoolError::Exhausted`] if what the configuration asks for at the start cannot be had; nothing is kept
    /// then.
    pub fn new(device: Arc<D>, stream: &D::Stream, config: PoolConfig) -> Result<Self, PoolError> {
        let mut state: State<D> = State::new(stream, config);
        let range = match config.range {
            _ if !device.capabilities().contains(Capabilities::RESERVE_MAP) => None,
            Range::Never => None,
            Range::Auto => Some(device.memory_info()?.total),
            Range::Bytes(bytes) => Some(bytes),
        };
        if let Some(bytes) = range {
            state.backing.reserve(&device, &mut state.ranges, bytes)?;
        }
        if config.prime > 0 {
            state.prime(&device, config.prime)?;
        }
        Ok(Self(Arc::new(Shared { device, state: Mutex::new(state), drops: Drops::default() })))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// The state, up to date with what was dropped.
    fn enter(&self) -> MutexGuard<'_, State<D>> {
        let mut state = self.0.state.lock();
        let drops = self.0.drops.take();
        state.apply(&self.0.device, drops);
        state
    }

    /// Takes memory that the caller has obtained into the pool, from its first aligned address on. It is used before the pool grows, and
    /// kept until the pool goes. What it holds afterwards is undefined, and a checking device takes it for given back until it is told
    /// otherwise.
    ///
    /// # Errors
    /// [`PoolError::ZeroBytes`] if it is too short for one block, [`PoolError::TooLarge`], [`PoolError::TooManyRegions`],
    /// [`PoolError::SessionOpen`]; the segment is dropped then.
    pub fn adopt_segment(&self, segment: D::Segment) -> Result<DevicePtr, PoolError> {
        let mut guard = self.enter();
        let state = &mut *guard;
        if matches!(state.phase, Phase::Session(_)) {
            return Err(PoolError::SessionOpen);
        }
        let base = segment.base();
        state.backing.add(&mut state.ranges, segment, true)?;
        Ok(base)
    }

    /// A block of undefined contents, to be used on the pool's stream, and on others once they are ordered behind it.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] if neither the pool nor the device has the room, or the budget forbids it; [`PoolError::ZeroBytes`],
    /// [`PoolError::TooLarge`]; [`PoolError::BadAlignment`] for an alignment that is no power of two or that the memory's own
    /// addresses do not have; [`PoolError::SessionOpen`] while a session is under way, which has its own
    /// [`allocate`](Session::allocate); [`PoolError::NotRestored`]; [`PoolError::Device`]. The pool is as before then.
    pub fn allocate(&self, request: Request) -> Result<Block<D>, PoolError> {
        let mut state = self.enter();
        state.phase.expect_open()?;
        let acquired = state.acquire(&self.0.device, request)?;
        Ok(Block::new(&self.0, acquired, request.bytes, request.owner, request.label))
    }

    /// Begins a warm-up on `stream`: its work runs plainly, behind what the pool's stream was given, and what comes later on the pool's
    /// stream runs behind it. A warm-up that is undone waits for its work.
    ///
    /// # Errors
    /// [`PoolError::SessionOpen`], [`PoolError::NotRestored`], [`PoolError::Capturing`], [`PoolError::Device`]; nothing is begun then.
    pub fn warm_up(&self, stream: &D::Stream) -> Result<Session<D>, PoolError> {
        Session::begin(self, SessionKind::WarmUp, stream, None)
    }

    /// Begins a recording on `stream`, which the caller then captures; [`record`](Pool::record) does both. With a plan, requests are
    /// served from it for as long as they are those that it was made for.
    ///
    /// # Errors
    /// [`PoolError::SessionOpen`], [`PoolError::NotRestored`], and [`PoolError::Exhausted`] or [`PoolError::Device`] if the pool cannot
    /// grow to the plan's length; nothing is begun then.
    pub fn recording(&self, stream: &D::Stream, plan: Option<&Arc<Plan>>) -> Result<Session<D>, PoolError> {
        Session::begin(self, SessionKind::Recording, stream, plan)
    }

    /// Lays out what a session has asked for around what is live now, for a recording that will ask for the same.
    ///
    /// # Errors
    /// Those of [`Planner::plan`](crate::plan::Planner::plan).
    pub fn plan(&self, demand: &Demand) -> Result<Arc<Plan>, PoolError> {
        self.enter().plan(demand).map(Arc::new)
    }

    /// Names the present state.
    ///
    /// # Errors
    /// [`PoolError::SessionOpen`] in the middle of a session, [`PoolError::NotRestored`] when replays have run since the last restore.
    pub fn checkpoint(&self) -> Result<Checkpoint<D>, PoolError> {
        let mut state = self.enter();
        state.phase.expect_open()?;
        let mut footprint = Footprint::default();
        let (id, awaited) = state.name_state(&mut footprint);
        Ok(Checkpoint::new(&self.0, id, footprint, awaited))
    }

    /// Says that recordings were replayed, so that what is live is not what the allocator last knew. Until the next restore nothing is
    /// handed out; handles that are dropped meanwhile are taken note of.
    ///
    /// # Errors
    /// [`PoolError::SessionOpen`] in the middle of a session.
    pub fn replayed(&self) -> Result<(), PoolError> {
        let mut state = self.enter();
        match state.phase {
            Phase::Session(_) => return Err(PoolError::SessionOpen),
            Phase::Replaying(_) => {}
            Phase::Open => state.phase = Phase::Replaying(Replaying::default()),
        }
        Ok(())
    }

    /// Applies the drops so far. It happens by itself at the next operation; whoever is about to enqueue work of which the pool is not
    /// told does it before, so that a checked device hears of the deaths before that work, which may use the same memory.
    pub fn settle(&self) {
        drop(self.enter());
    }

    /// Says that the session under way is going to be undone, and the capture of its work is over. What dies in a recording until then
    /// is no news to a checked device, which would take it for something that happens now.
    pub fn abandon(&self) {
        // Not by way of `enter`, which applies the drops so far and tells the device.
        let mut state = self.0.state.lock();
        state.muted = state.is_recording();
    }

    /// Goes to the state of a checkpoint, with the blocks that are named as live: they keep address and contents. Those that died since
    /// are freed, once, whoever shared them. Blocks that streams still use stay out of reach until they are joined: dead ones, and those
    /// whose life the restore ends because it names them not.
    ///
    /// # Errors
    /// [`PoolError::SessionOpen`], [`PoolError::ForeignHandle`], [`PoolError::NotLive`] for a name that nothing remembers,
    /// [`PoolError::Overlap`] if a block that should stay, or that a stream still uses, lies where the checkpoint has a block of its own.
    /// Everything is as before then.
    pub fn restore(&self, checkpoint: &Checkpoint<D>, live: Live<'_>) -> Result<Restored, PoolError> {
        if !checkpoint.is_of(&self.0) {
            return Err(PoolError::ForeignHandle);
        }
        self.enter().restore(&self.0.device, checkpoint.id(), checkpoint.awaited(), live)
    }

    /// Another handle of a block that is live or, after replays, of one that a checkpoint remembers: the replays have written it anew. The
    /// block dies with the last handle.
    ///
    /// While replays run, the checkpoint alone keeps the block's place: it has to stay until a restore has named the block as live.
    ///
    /// # Errors
    /// [`PoolError::NotLive`] if there is no such block, or it is dead.
    pub fn adopt(&self, id: BlockId) -> Result<Block<D>, PoolError> {
        let mut guard = self.enter();
        let State { phase, ranges, records, .. } = &mut *guard;
        let live = ranges.block(id).is_some();
        let replaying = matches!(phase, Phase::Replaying(_)) && ranges.remembers(id);
        let Some(record) = records.get_mut(id).filter(|record| replaying || (live && record.awaited == 0))
        else {
            return Err(PoolError::NotLive { block: id });
        };
        record.claims += 1;
        if let Phase::Replaying(replaying) = phase
            && !live
        {
            replaying.adopted.insert(id);
        }
        let (at, epoch, asked, owner, label) =
            (record.at, record.epoch, record.asked, record.owner, record.label);
        Ok(Block::new(&self.0, Acquired { id, at, epoch }, asked, owner, label))
    }

    /// Gives up the claim to a block whose name was taken [out of its handle](Block::into_id): the same death as by a handle's drop.
    pub fn release(&self, id: BlockId) {
        self.enter().give_up(&self.0.device, id, None);
    }

    /// Whether a block is live as far as the allocator knows.
    #[must_use]
    pub fn is_live(&self, id: BlockId) -> bool {
        let state = self.enter();
        state.ranges.block(id).is_some() && state.records.get(id).is_some_and(|record| record.awaited == 0)
    }

    /// Gives memory back to the device that is wholly free and that no recording needs, and says how many bytes. It waits for the pool's
    /// stream and for those that the pool was told of; work on others has to be over.
    ///
    /// In the middle of a session, or of a capture on one of these streams, it does nothing, and counts that
    /// (pytorch/pytorch#101038: a library empties the caches while it is being warmed up).
    ///
    /// # Errors
    /// [`PoolError::Device`]; what was given back by then is gone.
    pub fn trim(&self) -> Result<u64, PoolError> {
        self.enter().trim(&self.0.device)
    }

    /// Sets the most bytes that the pool may hold. It gives nothing back by itself.
    pub fn set_budget(&self, bytes: Option<u64>) {
        self.enter().config.budget = bytes;
    }
}

impl<D: Device> State<D> {
    /// Obtains the first memory, in one piece of just this size.
    fn prime(&mut self, device: &D, bytes: u64) -> Result<(), PoolError> {
        let growth = self.config.growth;
        self.config.growth = Growth { small_limit: 0, small: 0, large: bytes, unit: 1 };
        let done = self.extend(device, bytes, Some(bytes));
        self.config.growth = growth;
        self.grown.clear();
        done
    }
}
