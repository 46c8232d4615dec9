//! Where memory comes from, when it goes back, and how much there may be.

use graphgrove_device::{Annotation, Call, CaptureGuard, CaptureMode, Memory, SegmentMemory, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{
    Block, Cause, Growth, Holder, Limit, Live, Owner, PoolConfig, Range, Request, Shortage, WhyNot,
};
use graphgrove_sim::SimDevice;

const MIB: u64 = 1 << 20;

use crate::world::{PAGE, UNIT, World, config, fill, request, segments};

#[test]
fn a_pool_is_primed_with_one_piece() {
    for (config, call) in [(config(), Call::Map), (segments(), Call::Allocate)] {
        let world = World::new(PoolConfig { prime: 64 * PAGE, ..config });
        assert_eq!((world.reserved(), world.device.counts().of(call)), (64 * PAGE, 1));
        let blocks: Vec<_> = (0..64).map(|_| world.take(PAGE, "block")).collect();
        assert_eq!((world.reserved(), world.device.counts().of(call)), (64 * PAGE, 1));
        drop(blocks);
        assert_eq!(world.pool.stats().ranges.largest_free, 64 * PAGE);
    }
}

#[test]
fn a_growing_pool_is_one_range_and_a_block_may_span_what_was_mapped_at_different_times() {
    let world = World::new(config());
    let first = world.take(PAGE, "first");
    let second = world.take(3 * PAGE, "second");
    assert_eq!(second.ptr(), first.ptr().checked_add(PAGE).unwrap());
    world.fill(&second, 1);
    assert!(world.holds(&second, 1));
    assert_eq!(world.device.counts().of(Call::Allocate), 0);
    world.verdict();
}

/// A pool in pages of 2 MiB in which a workspace of 32 MiB has died in front of a block that lives on.
fn after_a_workspace(memory: u64, config: PoolConfig) -> (World, Block<SimDevice>) {
    let growth = Growth { small_limit: 2 * MIB, small: 2 * MIB, large: 2 * MIB, unit: 2 * MIB };
    let device = SimDevice::builder().granularity(2 * MIB).memory_bytes(memory).build();
    let world = World::on(device, PoolConfig { growth, ..config });
    let workspace = world.take(32 * MIB, "workspace");
    let kept = world.take(UNIT, "kept");
    assert_eq!((kept.ptr().offset_from(workspace.ptr()), world.reserved()), (Some(32 * MIB), 34 * MIB));
    (world, kept)
}

#[test]
fn a_pool_grows_before_a_small_block_breaks_the_hole_of_a_workspace() {
    let (world, kept) = after_a_workspace(1 << 30, PoolConfig::default());
    let beside = world.take(MIB, "in the page that is there");
    assert_eq!((beside.ptr().offset_from(kept.ptr()), world.reserved()), (Some(UNIT), 34 * MIB));
    let small = world.take(4 * MIB, "small");
    assert_eq!((small.ptr().offset_from(beside.ptr()), world.reserved()), (Some(MIB), 38 * MIB));
    let workspace = world.take(32 * MIB, "next workspace");
    assert_eq!((kept.ptr().offset_from(workspace.ptr()), world.reserved()), (Some(32 * MIB), 38 * MIB));
    assert!(world.pool.shortages().iter().all(|shortage| shortage.label != "small"));
    world.verdict();
}

#[test]
fn where_a_pool_cannot_grow_a_small_block_breaks_the_hole_of_a_workspace() {
    let budget = PoolConfig { budget: Some(39 * MIB), ..PoolConfig::default() };
    let range = PoolConfig { range: Range::Bytes(38 * MIB), ..PoolConfig::default() };
    for (memory, config) in [(1 << 30, budget), (39 * MIB, PoolConfig::default()), (1 << 30, range)] {
        let (world, kept) = after_a_workspace(memory, config);
        let first = world.take(3 * MIB, "first");
        assert_eq!((first.ptr().offset_from(kept.ptr()), world.reserved()), (Some(UNIT), 36 * MIB));
        let small = world.take(4 * MIB, "small");
        assert_eq!((kept.ptr().offset_from(small.ptr()), world.reserved()), (Some(32 * MIB), 36 * MIB));
        world.fill(&small, 1);
        assert!(world.holds(&small, 1));
        world.verdict();
    }
}

#[test]
fn small_requests_share_a_segment_and_large_ones_get_their_own() {
    let world = World::new(segments());
    let small: Vec<_> = (0..4).map(|_| world.take(UNIT, "small")).collect();
    assert_eq!((world.device.live_segments(), world.reserved()), (1, 2 * PAGE));
    let middle = world.take(2 * PAGE, "middle");
    assert_eq!((world.device.live_segments(), world.reserved()), (2, 6 * PAGE));
    let large = world.take(9 * PAGE + 1, "large");
    assert_eq!((world.device.live_segments(), world.reserved()), (3, 16 * PAGE));
    drop((small, middle, large));
    assert_eq!(world.pool.trim(), Ok(16 * PAGE));
    assert_eq!((world.device.live_segments(), world.reserved()), (0, 0));
}

#[test]
fn a_range_that_is_full_is_followed_by_segments() {
    let world = World::new(PoolConfig { range: Range::Bytes(4 * PAGE), ..config() });
    let first = world.take(3 * PAGE, "first");
    assert_eq!(world.device.live_segments(), 0);
    let second = world.take(3 * PAGE, "second");
    assert_eq!(world.device.live_segments(), 1);
    world.fill(&first, 1);
    world.fill(&second, 2);
    assert!(world.holds(&first, 1) && world.holds(&second, 2));
    world.verdict();
}

#[test]
fn memory_that_the_caller_brings_is_used_first_and_outlives_the_pool() {
    let world = World::new(segments());
    let own = world.device.allocate(8 * PAGE).unwrap();
    let adopted = world.device.adopt_segment(own.base(), own.bytes()).unwrap();
    assert_eq!(world.pool.adopt_segment(adopted), Ok(own.base()));
    let block = world.take(5 * PAGE, "block");
    assert_eq!(block.ptr(), own.base());
    world.fill(&block, 3);
    assert!(world.holds(&block, 3));
    drop(block);
    assert_eq!((world.pool.trim(), world.reserved()), (Ok(0), 8 * PAGE));
    let World { device, pool, stream } = world;
    drop(pool);
    let back = Annotation::Acquired { at: own.base(), bytes: own.bytes(), label: "the caller's again" };
    device.annotate(&stream, back).unwrap();
    device.fill(&stream, own.base(), 4, 8 * PAGE).unwrap();
    drop(stream);
    device.verdict().unwrap();
    assert_eq!(device.live_segments(), 1);
}

#[test]
fn a_segment_is_not_taken_in_in_the_middle_of_a_session() {
    let world = World::new(segments());
    let session = world.pool.warm_up(&world.stream).unwrap();
    let segment = world.device.allocate(PAGE).unwrap();
    assert_eq!(world.pool.adopt_segment(segment), Err(PoolError::SessionOpen));
    assert!(matches!(world.pool.warm_up(&world.stream), Err(PoolError::SessionOpen)));
    assert_eq!(world.pool.replayed(), Err(PoolError::SessionOpen));
    drop(session);
    assert_eq!(world.device.live_segments(), 0);
}

#[test]
fn a_pool_grows_inside_of_every_kind_of_capture() {
    for config in [config(), segments()] {
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            let world = World::new(config);
            let session = world.pool.recording(&world.stream, None).unwrap();
            let capture = CaptureGuard::begin(&*world.device, &world.stream, mode).unwrap();
            let block = session.allocate(request(20 * PAGE, "block")).unwrap();
            fill(&session, &world.stream, &block, 1).unwrap();
            capture.end().unwrap();
            drop(session.finish(vec![block]).unwrap());
            world.pool.audit().unwrap();
        }
    }
}

#[test]
fn a_drop_inside_of_a_capture_reaches_the_device_at_no_time() {
    let world = World::new(segments());
    let blocks: Vec<_> = (0..10).map(|_| world.take(PAGE, "block")).collect();
    let capture = CaptureGuard::begin(&*world.device, &world.stream, CaptureMode::Global).unwrap();
    let before = world.device.counts();
    drop(blocks);
    let after = world.device.counts();
    assert!(Call::ALL.iter().all(|&call| before.of(call) == after.of(call)));
    capture.end().unwrap();
    assert_eq!(world.live(), 0);
}

#[test]
fn pages_go_back_only_behind_what_is_live_and_addresses_stay() {
    let world = World::new(config());
    let low = world.take(2 * PAGE, "low");
    let high = world.take(14 * PAGE, "high");
    world.fill(&low, 1);
    assert_eq!(world.pool.trim(), Ok(0));
    drop(high);
    let before = world.reserved();
    let returned = world.pool.trim().unwrap();
    assert_eq!(world.reserved(), before - returned);
    assert_eq!(
        world.device.memory_info().unwrap().total - world.device.memory_info().unwrap().free,
        world.reserved()
    );
    assert!(world.reserved() < 8 * PAGE);
    assert!(world.holds(&low, 1));
    let again = world.take(14 * PAGE, "again");
    world.fill(&again, 2);
    assert!(world.holds(&again, 2) && world.holds(&low, 1));
    world.verdict();
}

#[test]
fn what_a_recording_needs_stays_until_its_checkpoint_goes() {
    for config in [config(), segments()] {
        let world = World::new(config);
        let recorded = world
            .record(|session| {
                let temporary = session.allocate(request(9 * PAGE, "temporary"))?;
                fill(session, &world.stream, &temporary, 1)?;
                Ok(Vec::new())
            })
            .unwrap();
        assert_eq!(world.live(), 0);
        let reserved = world.reserved();
        assert_eq!((world.pool.trim(), world.reserved()), (Ok(0), reserved));
        world.launch(&recorded);
        drop(recorded);
        assert_eq!((world.pool.trim(), world.reserved()), (Ok(reserved), 0));
        world.verdict();
    }
}

#[test]
fn an_input_given_up_in_a_recording_stays_in_place_for_the_replays_that_read_it() {
    for config in [config(), segments()] {
        let world = World::new(config);
        // The input lies behind everything else, and the state after the recording does not have it.
        let filler = world.take(4 * PAGE, "filler");
        let input = world.take(7 * PAGE, "input");
        world.fill(&input, 3);
        drop(filler);
        let recorded = world
            .record(|session| {
                let output = session.allocate(request(UNIT, "output"))?;
                world.device.copy(&world.stream, output.ptr(), input.ptr(), UNIT)?;
                drop(input);
                Ok(vec![output])
            })
            .unwrap();
        world.pool.trim().unwrap();
        world.launch(&recorded);
        world.verdict();
        drop(recorded);
        assert!(world.pool.trim().unwrap() >= 7 * PAGE);
        assert_eq!(world.reserved(), 0);
    }
}

#[test]
fn over_budget_the_error_says_what_is_live_and_who_holds_it() {
    for config in [config(), segments()] {
        let world = World::new(PoolConfig { budget: Some(16 * PAGE), ..config });
        let a = world.pool.allocate(Request::bytes(6 * PAGE).owner(Owner::Output).label("logits")).unwrap();
        let b =
            world.pool.allocate(Request::bytes(2 * PAGE).owner(Owner::Workspace).label("scratch")).unwrap();
        let error = world.pool.allocate(request(12 * PAGE, "large")).unwrap_err();
        let PoolError::Exhausted(exhaustion) = &error else { unreachable!("{error}") };
        assert_eq!((exhaustion.asked, exhaustion.limit), (12 * PAGE, Limit::Budget { bytes: 16 * PAGE }));
        assert_eq!((exhaustion.live, exhaustion.reserved), (8 * PAGE, world.reserved()));
        assert_eq!(exhaustion.largest_free, world.pool.stats().ranges.largest_free);
        assert_eq!(
            exhaustion.holders,
            [
                Holder { owner: Owner::Output, label: "logits", blocks: 1, bytes: 6 * PAGE },
                Holder { owner: Owner::Workspace, label: "scratch", blocks: 1, bytes: 2 * PAGE },
            ]
        );
        assert!(world.reserved() <= 16 * PAGE);
        drop((a, b));
        assert!(world.pool.allocate(request(16 * PAGE, "all")).is_ok());
        world.pool.set_budget(Some(20 * PAGE));
        assert!(world.pool.allocate(request(20 * PAGE, "all")).is_ok());
        world.verdict();
    }
}

#[test]
fn under_pressure_free_segments_go_back_before_a_request_is_refused() {
    let world = World::new(PoolConfig { budget: Some(10 * PAGE), ..segments() });
    let blocks = [world.take(4 * PAGE, "a"), world.take(4 * PAGE, "b")];
    assert!(world.pool.allocate(request(6 * PAGE, "c")).is_err());
    drop(blocks);
    let returns = world.pool.stats().counts.returns;
    let large = world.take(10 * PAGE, "large");
    assert_eq!((world.reserved(), world.device.live_segments()), (10 * PAGE, 1));
    assert!(world.pool.stats().counts.returns > returns);
    drop(large);
}

#[test]
fn under_pressure_a_pool_waits_for_streams_that_still_use_dead_blocks() {
    let world = World::new(PoolConfig { budget: Some(8 * PAGE), ..segments() });
    let side = graphgrove_device::Streams::create_stream(&*world.device).unwrap();
    let block = world.take(8 * PAGE, "shared");
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    world.device.fill(&side, block.ptr(), 1, 8 * PAGE).unwrap();
    drop(block);
    let next = world.take(8 * PAGE, "next");
    world.fill(&next, 2);
    assert!(world.holds(&next, 2));
    world.verdict();
}

#[test]
fn a_request_that_nothing_could_serve_is_refused_as_such() {
    let world = World::new(config());
    assert_eq!(world.pool.allocate(Request::bytes(0)).unwrap_err(), PoolError::ZeroBytes);
    let odd = world.pool.allocate(Request::bytes(1).align(3)).unwrap_err();
    assert_eq!(odd, PoolError::BadAlignment { align: 3 });
    assert!(matches!(world.pool.allocate(Request::bytes(u64::MAX)), Err(PoolError::TooLarge { .. })));
    assert_eq!(world.pool.stats().counts.growths, 0);
    // The range is only aligned to pages, so that much and no more can be promised.
    let aligned = world.pool.allocate(Request::bytes(1).align(PAGE)).unwrap();
    assert!(aligned.ptr().is_aligned_to(PAGE));
    let before = world.pool.spans();
    let far = world.pool.allocate(Request::bytes(1).align(1 << 40)).unwrap_err();
    assert!(matches!(far, PoolError::BadAlignment { .. } | PoolError::Exhausted(_)), "{far}");
    assert_eq!(world.pool.spans(), before);
}

#[test]
fn reports_name_every_block_and_every_free_run() {
    let world = World::new(config());
    let a = world.pool.allocate(Request::bytes(1000).owner(Owner::Staging).label("x")).unwrap();
    let b = world.pool.allocate(Request::bytes(2000).owner(Owner::Staging).label("x")).unwrap();
    assert_eq!(format!("{a:?}"), format!("staging `x` {}: 1000 bytes at {}", a.id(), a.ptr()));
    assert_eq!(world.pool.holders(), [Holder { owner: Owner::Staging, label: "x", blocks: 2, bytes: 3072 }]);
    assert_eq!((a.owner(), a.label(), a.bytes()), (Owner::Staging, "x", 1000));
    let inside = b.ptr().checked_add(1999).unwrap();
    assert!(matches!(world.pool.why_not(inside), WhyNot::Held(holding) if holding.id == b.id()));
    let behind = b.ptr().checked_add(2048).unwrap();
    assert_eq!(world.pool.why_not(behind), WhyNot::Free { run: 4 * PAGE - 3072 });
    let beyond = a.ptr().checked_add(4 * PAGE).unwrap();
    assert_eq!(world.pool.why_not(beyond), WhyNot::Elsewhere);
    let counts = world.pool.stats().counts;
    assert_eq!((counts.allocations, counts.releases, counts.growths), (2, 0, 1));
    assert!(format!("{:?}", world.pool).contains("allocations: 2"));
    assert_eq!(format!("{:?}", world.pool.checkpoint().unwrap()), "checkpoint c0.0");
    assert_eq!(
        world.pool.books().records,
        3,
        "two blocks and the edge of the region, whose slot is the first"
    );
    let _others = [(Owner::Output, "x"), (Owner::Staging, "y")]
        .map(|(owner, label)| world.pool.allocate(Request::bytes(512).owner(owner).label(label)).unwrap());
    let holders: Vec<_> = world.pool.holders().iter().map(|holder| (holder.owner, holder.label)).collect();
    assert_eq!(holders, [(Owner::Staging, "x"), (Owner::Output, "x"), (Owner::Staging, "y")]);
}

#[test]
fn a_free_run_is_told_by_its_own_segment() {
    let world = World::new(segments());
    let small = world.take(UNIT, "small");
    let large = world.take(3 * PAGE, "large");
    let behind = |block: &Block<_>| block.ptr().checked_add(block.bytes()).unwrap();
    assert_eq!(world.pool.why_not(behind(&small)), WhyNot::Free { run: 2 * PAGE - UNIT });
    // Three pages are more than half of the size that segments share, so the segment is the block.
    assert_eq!(world.pool.why_not(behind(&large)), WhyNot::Elsewhere);
    let middle = world.take(2 * PAGE - 512, "middle");
    assert_eq!(world.pool.why_not(behind(&middle)), WhyNot::Free { run: 2 * PAGE + 512 });
    drop(large);
    assert_eq!(world.pool.trim(), Ok(3 * PAGE));
}

#[test]
fn a_shortage_in_spite_of_enough_free_bytes_is_blamed_on_fragmentation() {
    let world = World::new(segments());
    let blocks: Vec<_> = (0..8).map(|_| world.take(UNIT, "block")).collect();
    let kept: Vec<_> = blocks.into_iter().step_by(2).collect();
    drop(world.take(2 * UNIT, "larger"));
    let shortages = world.pool.shortages();
    let causes: Vec<_> = shortages.iter().map(Shortage::cause).collect();
    assert_eq!(causes, [Cause::Live, Cause::Fragmentation]);
    assert_eq!(
        (shortages[1].asked, shortages[1].free, shortages[1].largest_free),
        (2 * UNIT, 4 * UNIT, UNIT)
    );
    drop(kept);
}

#[test]
fn only_the_last_shortages_are_remembered() {
    let world = World::new(segments());
    for _ in 0..70 {
        drop(world.take(4 * PAGE, "block"));
        world.pool.trim().unwrap();
    }
    assert_eq!(world.pool.shortages().len(), 64);
}

#[test]
fn a_trim_while_replays_run_keeps_what_they_write() {
    let world = World::new(config());
    let recorded = world
        .record(|session| {
            let output = session.allocate(request(9 * PAGE, "output"))?;
            fill(session, &world.stream, &output, 1)?;
            Ok(vec![output])
        })
        .unwrap();
    world.pool.replayed().unwrap();
    assert_eq!(world.pool.trim(), Ok(0));
    world.launch(&recorded);
    world.pool.restore(&recorded.memory.checkpoint, Live::AsRecorded).unwrap();
    assert!(world.holds(&recorded.memory.outputs[0], 1));
    world.verdict();
}
