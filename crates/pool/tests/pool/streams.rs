//! Blocks that several streams use, inside of captures and outside.

use graphgrove_device::{Call, StreamHandle, Streams, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Cause, Holding, HoldingState, Live, WhyNot};
use graphgrove_sim::Finding;

use crate::world::{UNIT, World, config, fill, request};

#[test]
fn a_join_at_an_event_before_the_use_does_not_free_the_block() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let block = world.take(UNIT, "shared");
    let address = block.ptr();
    world.pool.order(&world.stream, &side).unwrap();
    let (event, early) = (world.device.create_event().unwrap(), world.pool.marked(&side));
    world.device.record_event(&event, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    world.device.fill(&side, address, 1, UNIT).unwrap();
    drop(block);
    world.device.wait_event(&world.stream, &event).unwrap();
    world.pool.ordered_behind(&early, &world.stream);
    assert_ne!(world.take(UNIT, "too early").ptr(), address);

    let late = world.pool.marked(&side);
    world.device.record_event(&event, &side).unwrap();
    world.device.wait_event(&world.stream, &event).unwrap();
    world.pool.ordered_behind(&late, &world.stream);
    assert_eq!(world.take(UNIT, "in time").ptr(), address);
    world.verdict();
}

#[test]
fn a_block_used_on_two_streams_waits_for_both_also_through_a_third() {
    let world = World::new(config());
    let streams: Vec<_> = (0..3).map(|_| world.device.create_stream().unwrap()).collect();
    let block = world.take(UNIT, "shared");
    let (id, address) = (block.id(), block.ptr());
    world.fill(&block, 1);
    for (side, half) in streams.iter().take(2).zip([0, UNIT / 2]) {
        world.pool.order(&world.stream, side).unwrap();
        world.pool.used_on(&block, side).unwrap();
        world.device.fill(side, address.checked_add(half).unwrap(), 2, UNIT / 2).unwrap();
    }
    drop(block);
    world.pool.order(&streams[0], &world.stream).unwrap();
    let WhyNot::Held(Holding { state, .. }) = world.pool.why_not(address) else { unreachable!() };
    assert_eq!(state, HoldingState::Awaits { streams: vec![streams[1].id()] });
    assert!(!world.pool.is_live(id));
    assert_eq!(world.pool.stats().awaited, UNIT);
    world.pool.order(&streams[1], &streams[2]).unwrap();
    assert_eq!(world.pool.stats().awaited_blocks, 1);
    world.pool.order(&streams[2], &world.stream).unwrap();
    assert_eq!(world.pool.stats().awaited_blocks, 0);
    assert!(matches!(world.pool.why_not(address), WhyNot::Free { .. }));
}

#[test]
fn a_use_can_be_declared_by_any_address_in_a_block() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let block = world.take(UNIT, "shared");
    let inside = block.ptr().checked_add(UNIT / 2).unwrap();
    let early = world.pool.used_at(inside, &side).unwrap_err();
    assert_eq!(early, PoolError::Unordered { block: block.id(), stream: side.id() });
    world.pool.order(&world.stream, &side).unwrap();
    assert_eq!(world.pool.used_at(inside, &side), Ok(true));
    world.device.fill(&side, block.ptr(), 1, UNIT).unwrap();
    drop(block);
    assert_eq!(world.pool.stats().awaited_blocks, 1);
    // A dead block, and memory of somebody else.
    assert_eq!(world.pool.used_at(inside, &side), Ok(false));
    assert_eq!(world.pool.used_at(graphgrove_device::DevicePtr::NULL, &side), Ok(false));
    world.pool.order(&side, &world.stream).unwrap();
    assert_eq!(world.pool.stats().awaited_blocks, 0);
    world.verdict();
}

#[test]
fn a_use_on_a_stream_that_is_not_behind_the_birth_is_refused() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let early = world.take(UNIT, "early");
    world.pool.order(&world.stream, &side).unwrap();
    let late = world.take(UNIT, "late");
    assert_eq!(world.pool.used_on(&early, &side), Ok(()));
    let error = world.pool.used_on(&late, &side).unwrap_err();
    assert_eq!(error, PoolError::Unordered { block: late.id(), stream: side.id() });
    assert_eq!(world.pool.used_on(&late, &world.stream), Ok(()));
}

#[test]
fn without_the_join_the_checker_would_find_the_race_that_the_pool_prevents() {
    // The same program with the use kept secret from the pool: what the pool would do without the declaration is wrong.
    let races = |declared: bool| {
        let world = World::new(config());
        let side = world.device.create_stream().unwrap();
        let block = world.take(UNIT, "shared");
        world.pool.order(&world.stream, &side).unwrap();
        if declared {
            world.pool.used_on(&block, &side).unwrap();
        }
        world.device.fill(&side, block.ptr(), 1, UNIT).unwrap();
        drop(block);
        let next = world.take(UNIT, "next");
        world.fill(&next, 2);
        world.pool.audit().unwrap();
        world.device.verdict()
    };
    assert_eq!(races(true), Ok(()));
    let findings = races(false).unwrap_err().findings;
    assert!(findings.iter().any(|finding| matches!(finding, Finding::Race { .. })), "{findings:?}");
}

#[test]
fn a_shortage_that_a_join_would_have_spared_is_blamed_on_the_streams() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let block = world.take(15 * UNIT, "shared");
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    drop(block);
    let next = world.take(15 * UNIT, "next");
    assert_eq!(world.pool.shortages().last().unwrap().cause(), Cause::Streams);
    drop(next);
}

#[test]
fn waiting_for_the_device_frees_what_streams_used() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let block = world.take(UNIT, "shared");
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    world.device.fill(&side, block.ptr(), 1, UNIT).unwrap();
    drop(block);
    assert_eq!(world.pool.stats().awaited_blocks, 1);
    assert!(world.pool.trim().unwrap() > 0);
    assert_eq!((world.pool.stats().awaited_blocks, world.reserved()), (0, 0));
    world.verdict();
}

#[test]
fn a_stream_is_waited_for_as_long_as_the_pool_was_told_of_it_since_the_last_wait() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let waits = || {
        let before = world.device.counts().of(Call::SynchronizeStream);
        world.pool.trim().unwrap();
        world.device.counts().of(Call::SynchronizeStream) - before
    };
    assert_eq!(waits(), 1);
    let block = world.take(UNIT, "shared");
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    assert_eq!(waits(), 2);
    assert_eq!(waits(), 1);
    world.pool.used_on(&block, &side).unwrap();
    drop(block);
    // One more, since the checker was told of the block's death in between.
    assert_eq!(waits(), 3);
}

#[test]
fn a_stream_that_has_been_joined_is_not_kept() {
    let world = World::new(config());
    let gone = || world.device.counts().of(Call::DestroyStream);
    let block = world.take(UNIT, "shared");
    let sides = [world.device.create_stream().unwrap(), world.device.create_stream().unwrap()];
    for side in &sides {
        world.pool.order(&world.stream, side).unwrap();
        world.pool.used_on(&block, side).unwrap();
    }
    world.pool.order(&sides[0], &world.stream).unwrap();
    drop(sides);
    assert_eq!(gone(), 1);
    world.pool.trim().unwrap();
    assert_eq!(gone(), 2);
}

#[test]
fn the_stream_of_a_warm_up_is_not_kept_when_it_is_over() {
    let world = World::new(config());
    let other = world.device.create_stream().unwrap();
    let session = world.pool.warm_up(&other).unwrap();
    let block = session.allocate(request(UNIT, "block")).unwrap();
    fill(&session, &other, &block, 1).unwrap();
    drop(session.finish(vec![block]).unwrap());
    drop(other);
    assert_eq!(world.device.counts().of(Call::DestroyStream), 1);
    // The pool's stream lies behind it.
    world.pool.trim().unwrap();
    assert_eq!(world.reserved(), 0);
    world.verdict();
}

#[test]
fn a_warm_up_on_the_stream_that_used_a_dead_block_frees_it() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let share = |label| {
        let block = world.take(UNIT, label);
        world.pool.order(&world.stream, &side).unwrap();
        world.pool.used_on(&block, &side).unwrap();
        world.device.fill(&side, block.ptr(), 1, UNIT).unwrap();
        block
    };
    let (first, second) = (share("first"), share("second"));
    let addresses = [first.ptr(), second.ptr()];
    drop(first);
    // What comes in the warm-up lies behind the use, and what comes after it as well.
    let session = world.pool.warm_up(&side).unwrap();
    let block = session.allocate(request(UNIT, "inside")).unwrap();
    assert_eq!(block.ptr(), addresses[0]);
    fill(&session, &side, &block, 2).unwrap();
    drop(second);
    let finished = session.finish(vec![block]).unwrap();
    assert_eq!(world.pool.stats().awaited_blocks, 0);
    let after = world.take(UNIT, "after");
    assert_eq!(after.ptr(), addresses[1]);
    world.fill(&after, 3);
    drop(finished);
    world.verdict();
}

#[test]
fn a_block_that_a_restore_takes_away_from_a_stream_stays_out_of_reach_until_it_is_joined() {
    for live in [Live::AsRecorded, Live::Except(&[]), Live::Only(&[])] {
        let world = World::new(config());
        let side = world.device.create_stream().unwrap();
        let empty = world.pool.checkpoint().unwrap();
        let block = world.take(UNIT, "shared");
        let (id, address) = (block.id(), block.ptr());
        world.pool.order(&world.stream, &side).unwrap();
        world.pool.used_on(&block, &side).unwrap();
        world.device.fill(&side, address, 1, UNIT).unwrap();
        world.pool.restore(&empty, live).unwrap();
        assert!(!world.pool.is_live(id));
        let next = world.take(UNIT, "next");
        assert_ne!(next.ptr(), address);
        world.fill(&next, 2);
        world.pool.order(&side, &world.stream).unwrap();
        let after = world.take(UNIT, "after");
        assert_eq!(after.ptr(), address);
        world.fill(&after, 3);
        // The handle is one of a life that is over.
        drop(block);
        assert!(world.pool.is_live(after.id()));
        world.verdict();
    }
}

#[test]
fn a_restore_does_not_put_a_block_where_a_stream_still_works() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let old = world.take(UNIT, "old");
    let checkpoint = world.pool.checkpoint().unwrap();
    let address = old.ptr();
    drop(old);
    let new = world.take(UNIT, "new");
    assert_eq!(new.ptr(), address);
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&new, &side).unwrap();
    let before = world.pool.holdings();
    let error = world.pool.restore(&checkpoint, Live::AsRecorded).unwrap_err();
    assert!(matches!(error, PoolError::Overlap { block, .. } if block == new.id()), "{error}");
    assert_eq!(world.pool.holdings(), before);
    world.pool.order(&side, &world.stream).unwrap();
    world.pool.restore(&checkpoint, Live::AsRecorded).unwrap();
    assert_eq!(world.pool.holdings()[0].label, "old");
}

#[test]
fn a_mark_of_another_pool_frees_nothing() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let other = World::new(config()).pool;
    let block = world.take(UNIT, "shared");
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    drop(block);
    let marks = [(); 3].map(|()| other.marked(&side));
    marks.iter().for_each(|mark| world.pool.ordered_behind(mark, &world.stream));
    assert_eq!(world.pool.stats().awaited_blocks, 1);
}

#[test]
fn blocks_wait_for_their_own_streams_and_no_others() {
    let world = World::new(config());
    let sides = [world.device.create_stream().unwrap(), world.device.create_stream().unwrap()];
    let blocks = [world.take(UNIT, "first"), world.take(UNIT, "second"), world.take(UNIT, "third")];
    let ids = blocks.each_ref().map(graphgrove_pool::Block::id);
    let checkpoint = world.pool.checkpoint().unwrap();
    for (block, side) in blocks.iter().zip([0, 1, 1]) {
        world.pool.order(&world.stream, &sides[side]).unwrap();
        world.pool.used_on(block, &sides[side]).unwrap();
    }
    drop(blocks);
    // The second lives again; the others go on waiting.
    world.pool.restore(&checkpoint, Live::Only(&[ids[1]])).unwrap();
    assert_eq!((world.pool.stats().awaited, world.live()), (2 * UNIT, 3 * UNIT));
    assert!(world.pool.is_live(ids[1]));
    world.pool.order(&sides[0], &world.stream).unwrap();
    assert_eq!((world.pool.stats().awaited, world.live()), (UNIT, 2 * UNIT));
    world.pool.order(&sides[1], &world.stream).unwrap();
    assert_eq!((world.pool.stats().awaited, world.live()), (0, UNIT));
    assert!(world.pool.is_live(ids[1]));
}

#[test]
fn a_dead_block_that_a_stream_uses_stays_out_of_reach_through_a_restore() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let empty = world.pool.checkpoint().unwrap();
    let block = world.take(UNIT, "shared");
    let address = block.ptr();
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    world.device.fill(&side, address, 1, UNIT).unwrap();
    drop(block);
    for live in [Live::AsRecorded, Live::Claimed, Live::Except(&[]), Live::Only(&[])] {
        world.pool.restore(&empty, live).unwrap();
        let next = world.take(UNIT, "next");
        assert_ne!(next.ptr(), address);
        world.fill(&next, 2);
    }
    world.pool.order(&side, &world.stream).unwrap();
    assert_eq!(world.take(UNIT, "after").ptr(), address);
    world.verdict();
}

#[test]
fn a_checkpoint_taken_while_a_stream_uses_a_dead_block_does_not_bring_it_back() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let block = world.take(UNIT, "shared");
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    drop(block);
    let checkpoint = world.pool.checkpoint().unwrap();
    world.pool.order(&side, &world.stream).unwrap();
    assert_eq!(world.live(), 0);
    world.pool.restore(&checkpoint, Live::AsRecorded).unwrap();
    assert_eq!(world.live(), 0);
}

#[test]
fn a_block_that_a_stream_uses_lives_again_by_a_restore_unless_it_is_named_as_dead() {
    let awaited = || {
        let world = World::new(config());
        let side = world.device.create_stream().unwrap();
        let block = world.take(UNIT, "shared");
        let checkpoint = world.pool.checkpoint().unwrap();
        world.pool.order(&world.stream, &side).unwrap();
        world.pool.used_on(&block, &side).unwrap();
        let id = block.id();
        drop(block);
        (world, side, checkpoint, id)
    };
    let (world, side, checkpoint, id) = awaited();
    world.pool.restore(&checkpoint, Live::AsRecorded).unwrap();
    assert!(world.pool.is_live(id));
    assert_eq!(world.pool.stats().awaited_blocks, 0);
    world.pool.order(&side, &world.stream).unwrap();
    assert!(world.pool.is_live(id));

    let (world, side, checkpoint, id) = awaited();
    world.pool.restore(&checkpoint, Live::Except(&[id])).unwrap();
    assert!(!world.pool.is_live(id));
    assert_eq!((world.pool.stats().awaited_blocks, world.live()), (1, UNIT));
    world.pool.order(&side, &world.stream).unwrap();
    assert_eq!((world.pool.stats().awaited_blocks, world.live()), (0, 0));
}

#[test]
fn what_a_recording_leaves_on_side_streams_is_free_when_its_capture_is_over() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let recorded = world
        .record(|session| {
            let shared = session.allocate(request(UNIT, "shared"))?;
            let output = session.allocate(request(UNIT, "output"))?;
            world.pool.order(&world.stream, &side)?;
            world.pool.used_on(&shared, &side)?;
            fill(session, &side, &shared, 1)?;
            fill(session, &world.stream, &output, 2)?;
            drop(shared);
            // The pool is not told of the join, but a capture without one has no graph.
            let event = world.device.create_event()?;
            world.device.record_event(&event, &side)?;
            world.device.wait_event(&world.stream, &event)?;
            Ok(vec![output])
        })
        .unwrap();
    assert_eq!((world.live(), world.pool.stats().awaited_blocks), (UNIT, 0));
    world.launch(&recorded);
    world.verdict();
}

#[test]
fn an_order_made_in_a_capture_does_not_free_what_eager_work_uses() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let block = world.take(UNIT, "eager");
    let address = block.ptr();
    world.pool.order(&world.stream, &side).unwrap();
    world.pool.used_on(&block, &side).unwrap();
    world.device.fill(&side, address, 1, UNIT).unwrap();
    drop(block);
    let recorded = world
        .record(|session| {
            world.pool.order(&world.stream, &side)?;
            world.pool.order(&side, &world.stream)?;
            let output = session.allocate(request(UNIT, "output"))?;
            assert_ne!(output.ptr(), address);
            fill(session, &world.stream, &output, 2)?;
            Ok(vec![output])
        })
        .unwrap();
    world.launch(&recorded);
    world.pool.order(&side, &world.stream).unwrap();
    assert_eq!(world.take(UNIT, "after").ptr(), address);
    world.verdict();
}
