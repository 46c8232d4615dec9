//! The host memory that a pool keeps is bounded by what there is, and not by what there has been (openxla/xla#36487).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use graphgrove_device::{Graphs, Streams, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{
    Block, Checkpoint, Growth, Live, Pool, PoolConfig, Range, Recorded, Request, Session,
};
use graphgrove_sim::{SimDevice, SimStream};

struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    HELD.with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `at` came from `alloc` above, hence from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAGE: u64 = 4096;

/// A pool, and a parameter that lives as long as it.
struct Service {
    device: Arc<SimDevice>,
    stream: SimStream,
    pool: Pool<SimDevice>,
    parameter: Block<SimDevice>,
    empty: Checkpoint<SimDevice>,
}

impl Service {
    fn new(range: Range) -> Self {
        let device =
            Arc::new(SimDevice::builder().granularity(PAGE).memory_bytes(4 << 20).checker(false).build());
        let stream = device.create_stream().unwrap();
        let growth = Growth { small_limit: 1024, small: 2 * PAGE, large: 4 * PAGE, unit: PAGE };
        let config = PoolConfig { growth, range, budget: Some(1 << 20), prime: 0 };
        let pool = Pool::new(Arc::clone(&device), &stream, config).unwrap();
        let parameter = pool.allocate(Request::bytes(PAGE)).unwrap();
        let empty = pool.checkpoint().unwrap();
        Self { device, stream, pool, parameter, empty }
    }

    /// Everything that a pool is asked for, with a stream that nobody has seen before. Under pressure it waits for all streams, after
    /// which it need not remember any.
    fn round(&self, pressure: bool) {
        let Self { device, stream, pool, parameter, empty } = self;
        pool.restore(empty, Live::Claimed).unwrap();
        let side = device.create_stream().unwrap();
        let fork = |stream: &SimStream| {
            pool.order(stream, &side).unwrap();
            pool.used_on(parameter, &side).unwrap();
        };

        let session = pool.warm_up(&side).unwrap();
        let first = session.allocate(Request::bytes(3 * PAGE)).unwrap();
        drop(first);
        let second = session.allocate(Request::bytes(PAGE)).unwrap();
        let warm = session.finish(vec![second]).unwrap();
        let plan = pool.plan(&warm.demand).unwrap();
        drop(warm);

        let record = |input: Option<Block<SimDevice>>| -> Recorded<SimDevice> {
            pool.record::<PoolError>(stream, Some(&plan), |session| {
                fork(stream);
                drop(input);
                let first = session.allocate(Request::bytes(3 * PAGE))?;
                pool.order(stream, &side)?;
                pool.used_on(&first, &side)?;
                device.fill(&side, first.ptr(), 1, first.bytes())?;
                pool.order(&side, stream)?;
                drop(first);
                Ok(vec![session.allocate(Request::bytes(PAGE))?])
            })
            .unwrap()
        };
        let mut parent = record(None);
        let id = parent.memory.outputs.remove(0).into_id();
        let child = record(Some(pool.adopt(id).unwrap()));
        pool.release(id);
        let mut exec = device.instantiate(&parent.graph).unwrap();
        for _ in 0..3 {
            pool.replayed().unwrap();
            device.launch_exec(&mut exec, stream).unwrap();
            drop(pool.adopt(id).unwrap());
        }
        let kept = pool.adopt(id).unwrap();
        pool.restore(&parent.memory.checkpoint, Live::Claimed).unwrap();

        // A hidden survivor, too much for the budget, and a handle that outlives its block.
        let mut hidden = None;
        let refused = pool.record::<PoolError>(stream, None, |session| {
            hidden = Some(session.allocate(Request::bytes(PAGE))?);
            Ok(Vec::new())
        });
        assert!(matches!(refused, Err(PoolError::Survivors { .. })));
        if pressure {
            assert!(matches!(pool.allocate(Request::bytes(2 << 20)), Err(PoolError::Exhausted(_))));
        }
        let stale = pool.allocate(Request::bytes(PAGE)).unwrap();
        let between = pool.checkpoint().unwrap();
        pool.restore(&child.memory.checkpoint, Live::Except(&[id])).unwrap();

        // Dead blocks that a stream uses, of which one is never joined by name.
        let waits = pool.allocate(Request::bytes(PAGE)).unwrap();
        fork(stream);
        pool.used_on(&waits, &side).unwrap();
        drop((waits, stale, kept, hidden));
        drop((between, parent, child));
        pool.order(&side, stream).unwrap();
        // The device keeps work until somebody waits for it.
        device.synchronize_stream(stream).unwrap();
    }
}

#[test]
fn the_counter_counts() {
    let before = HELD.get();
    let boxed = std::hint::black_box(Box::new(1_u64));
    assert_eq!(HELD.get() - before, 8);
    drop(boxed);
    assert_eq!(HELD.get(), before);
}

#[test]
fn r37_whatever_a_pool_is_asked_for_leaves_nothing_in_its_books_and_in_host_memory() {
    for (range, pressure) in [(Range::Auto, true), (Range::Never, true), (Range::Auto, false)] {
        let service = Service::new(range);
        let state = || (service.pool.books(), service.device.live_segments());
        (0..1000).for_each(|_| service.round(pressure));
        let (early, bytes) = (state(), HELD.get());
        (0..2000).for_each(|_| service.round(pressure));
        assert_eq!(state(), early);
        let grown = HELD.get() - bytes;
        assert!(grown < 1000, "{grown} bytes in 2000 rounds");
    }
}

#[test]
fn r37_replays_without_a_restore_between_them_leave_one_note_for_each_block() {
    let Service { device, stream, pool, .. } = Service::new(Range::Auto);
    let outputs = |session: &Session<SimDevice>| -> Result<_, PoolError> {
        (0..10).map(|_| session.allocate(Request::bytes(PAGE))).collect()
    };
    let mut recorded = pool.record(&stream, None, outputs).unwrap();
    let ids: Vec<_> = recorded.memory.outputs.drain(..).map(Block::into_id).collect();
    ids.iter().for_each(|&id| pool.release(id));
    let mut exec = device.instantiate(&recorded.graph).unwrap();
    let mut replay = || {
        pool.replayed().unwrap();
        device.launch_exec(&mut exec, &stream).unwrap();
        ids.iter().for_each(|&id| drop(pool.adopt(id).unwrap()));
        device.synchronize_stream(&stream).unwrap();
        pool.books().noted
    };
    replay();
    let bytes = HELD.get();
    assert_eq!((0..1000).map(|_| replay()).max(), Some(20));
    let grown = HELD.get() - bytes;
    assert!(grown < 1000, "{grown} bytes in 1000 replays");
    pool.restore(&recorded.memory.checkpoint, Live::AsRecorded).unwrap();
    assert_eq!((pool.books().noted, pool.stats().ranges.live), (0, 0));
}
