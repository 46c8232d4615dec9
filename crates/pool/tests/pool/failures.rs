//! What fails leaves the pool as it was, at whatever call it fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use graphgrove_device::{Call, Capture, CaptureStatus, DevicePtr, Graphs, Streams};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Block, Live, Pool, PoolConfig, Session};
use graphgrove_sim::{Failure, Fault, SimDevice, SimGraph, SimStream};

use crate::world::{PAGE, Result, UNIT, World, builder, config, fill, request, segments};

type Kept = (Block<SimDevice>, Block<SimDevice>);

/// What has to be as before.
fn snapshot(world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    let stats = world.pool.stats();
    let shape = (stats.ranges.reserved, stats.ranges.live, stats.ranges.free_runs, stats.awaited);
    (shape, world.pool.spans(), world.pool.holdings(), world.device.live_segments())
}

/// A world with two live blocks and a hole between them.
fn world(config: PoolConfig) -> (World, Kept) {
    let world = World::on(builder().build(), config);
    let first = world.take(UNIT, "first");
    let gap = world.take(UNIT, "gap");
    let last = world.take(UNIT, "last");
    drop(gap);
    world.fill(&first, 1);
    world.fill(&last, 2);
    (world, (first, last))
}

/// Work on a session that uses a side stream, temporaries, the hole, and more memory than there is.
fn busy(world: &World, side: &SimStream, session: &Session<SimDevice>) -> Result<Vec<Block<SimDevice>>> {
    let small = session.allocate(request(UNIT, "small"))?;
    fill(session, &world.stream, &small, 3)?;
    world.pool.order(&world.stream, side)?;
    let large = session.allocate(request(5 * PAGE, "large"))?;
    fill(session, &world.stream, &large, 4)?;
    world.pool.used_on(&small, side)?;
    fill(session, side, &small, 5)?;
    drop(small);
    let output = session.allocate(request(2 * PAGE, "output"))?;
    fill(session, &world.stream, &output, 6)?;
    drop(large);
    world.pool.order(side, &world.stream)?;
    let last = session.allocate(request(UNIT, "last"))?;
    fill(session, &world.stream, &last, 7)?;
    Ok(vec![output, last])
}

/// The outputs of a run, with the graph if it was recorded.
type Outputs = (Option<SimGraph>, Vec<Block<SimDevice>>);
type Run = fn(&World, &SimStream) -> Result<Outputs>;

fn recording(world: &World, side: &SimStream) -> Result<Outputs> {
    let recorded = world.record(|session| busy(world, side, session))?;
    Ok((Some(recorded.graph), recorded.memory.outputs))
}

fn warm_up(world: &World, side: &SimStream) -> Result<Outputs> {
    let session = world.pool.warm_up(&world.stream)?;
    let outputs = busy(world, side, &session)?;
    Ok((None, session.finish(outputs)?.outputs))
}

/// Replays a recording, and looks at the outputs.
fn works(world: &World, (graph, outputs): &Outputs) {
    if let Some(graph) = graph {
        let mut exec = world.device.instantiate(graph).unwrap();
        world.device.launch_exec(&mut exec, &world.stream).unwrap();
    }
    assert!(world.holds(&outputs[0], 6) && world.holds(&outputs[1], 7));
}

fn is_capturing(world: &World) -> bool {
    world.device.capture_status(&world.stream).unwrap() != CaptureStatus::None
}

/// Fails each call of the recording in turn, and says in how many calls the recording failed as well: all but those whose error nobody
/// can be told: destructions, the drop of a guard.
fn fail_each(config: PoolConfig, failure: &Failure, run: Run) -> (u64, u64) {
    let calls = {
        let (world, _kept) = world(config);
        let side = world.device.create_stream().unwrap();
        let before = world.device.counts().total();
        drop(run(&world, &side).unwrap());
        world.device.counts().total() - before
    };
    let mut failed = 0;
    for nth in 1..=calls {
        let (world, kept) = world(config);
        let side = world.device.create_stream().unwrap();
        let before = snapshot(&world);
        world.device.inject(Fault::at_any(nth, failure.clone()));
        let outcome = run(&world, &side);
        world.device.clear_faults();
        match outcome {
            Ok(outputs) => works(&world, &outputs),
            Err(_) => {
                failed += 1;
                assert!(!is_capturing(&world));
                assert_eq!(snapshot(&world), before, "call {nth}");
                assert!(world.holds(&kept.0, 1) && world.holds(&kept.1, 2));
                works(&world, &run(&world, &side).unwrap());
            }
        }
        world.verdict();
    }
    (calls, failed)
}

#[test]
fn invariant_10_a_recording_that_fails_at_any_call_leaves_the_pool_as_before() {
    for config in [config(), segments()] {
        let (calls, failed) = fail_each(config, &Failure::Driver(999), recording);
        assert!(calls > 15 && 4 * failed >= 3 * calls, "{failed} of {calls}");
    }
}

#[test]
fn invariant_10_a_recording_whose_capture_is_invalidated_at_any_call_leaves_the_pool_as_before() {
    // Calls outside of the capture have none to invalidate.
    let (calls, failed) = fail_each(config(), &Failure::InvalidateCaptures, recording);
    assert!(calls > 15 && 4 * failed >= 3 * calls, "{failed} of {calls}");
}

#[test]
fn invariant_10_a_recording_that_runs_out_of_memory_at_any_call_leaves_the_pool_as_before() {
    for config in [config(), segments()] {
        let (calls, failed) = fail_each(config, &Failure::OutOfMemory, recording);
        assert!(calls > 15 && 2 * failed >= calls, "{failed} of {calls}");
    }
}

#[test]
fn invariant_10_a_warm_up_that_fails_at_any_call_leaves_the_pool_as_before() {
    for (config, failure) in [(config(), Failure::Driver(999)), (segments(), Failure::OutOfMemory)] {
        let (calls, failed) = fail_each(config, &failure, warm_up);
        assert!(calls > 12 && 2 * failed >= calls, "{failed} of {calls}");
    }
}

#[test]
fn invariant_10_memory_that_cannot_be_had_at_first_is_asked_for_in_a_smaller_piece() {
    for (config, call) in [(config(), Call::Map), (segments(), Call::Allocate)] {
        let (world, _kept) = world(config);
        world.device.inject(Fault::at(call, 1, Failure::OutOfMemory));
        let block = world.pool.allocate(request(3 * UNIT + 2 * PAGE, "block"));
        assert!(block.is_ok(), "{block:?}");
        world.verdict();
    }
}

#[test]
fn invariant_10_a_recording_that_runs_out_of_memory_leaves_the_pool_as_before() {
    for config in [config(), segments()] {
        let (world, _kept) = world(config);
        let before = snapshot(&world);
        let error = world
            .record(|session| {
                let first = session.allocate(request(4 * PAGE, "first"))?;
                let second = session.allocate(request(64 << 20, "second"))?;
                Ok(vec![first, second])
            })
            .unwrap_err();
        let PoolError::Exhausted(exhaustion) = &error else { unreachable!("{error}") };
        assert_eq!((exhaustion.asked, exhaustion.holders[0].label), (64 << 20, "first"));
        assert!(!is_capturing(&world));
        assert_eq!(snapshot(&world), before);
        world.verdict();
    }
}

#[test]
fn invariant_10_a_panic_at_any_point_of_the_body_leaves_the_pool_as_before() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for point in 0..4 {
        let (world, kept) = world(config());
        let before = snapshot(&world);
        let body = || {
            world.record(|session| {
                let stop = |at| {
                    if at == point {
                        std::panic::panic_any(at)
                    }
                };
                stop(0);
                let temporary = session.allocate(request(6 * PAGE, "temporary"))?;
                stop(1);
                fill(session, &world.stream, &temporary, 1)?;
                drop(temporary);
                stop(2);
                let output = session.allocate(request(UNIT, "output"))?;
                stop(3);
                Ok(vec![output])
            })
        };
        let caught = catch_unwind(AssertUnwindSafe(body));
        assert!(caught.is_err());
        assert!(!is_capturing(&world));
        assert_eq!(snapshot(&world), before);
        assert!(world.holds(&kept.0, 1));
        world.verdict();
    }
    std::panic::set_hook(hook);
}

#[test]
fn invariant_10_an_allocation_that_fails_at_any_call_leaves_the_pool_as_before() {
    for config in [config(), segments()] {
        for nth in 1..=3 {
            let (world, _kept) = world(config);
            let before = snapshot(&world);
            world.device.inject(Fault::at_any(nth, Failure::Driver(1)));
            let outcome = world.pool.allocate(request(9 * PAGE, "block"));
            world.device.clear_faults();
            if outcome.is_err() {
                assert_eq!(snapshot(&world), before, "call {nth}");
            }
            drop(outcome);
            drop(world.take(9 * PAGE, "block"));
            world.verdict();
        }
    }
}

#[test]
fn invariant_10_a_warm_up_that_fails_waits_for_its_work_and_leaves_no_trace() {
    for config in [config(), segments()] {
        let (world, kept) = world(config);
        let other = world.device.create_stream().unwrap();
        let before = snapshot(&world);
        let session = world.pool.warm_up(&other).unwrap();
        let block = session.allocate(request(7 * PAGE, "large")).unwrap();
        fill(&session, &other, &block, 9).unwrap();
        let error = world.pool.allocate(request(UNIT, "outside")).unwrap_err();
        assert_eq!(error, PoolError::SessionOpen);
        drop(session);
        assert_eq!(snapshot(&world), before);
        drop(block);
        assert!(world.holds(&kept.0, 1));
        world.verdict();
    }
}

#[test]
fn what_the_device_refuses_while_a_warm_up_is_undone_is_counted() {
    let world = World::new(config());
    let session = world.pool.warm_up(&world.stream).unwrap();
    world.device.inject(Fault::at_any(1, Failure::Driver(7)));
    drop(session);
    world.device.clear_faults();
    let counts = world.pool.stats().counts;
    assert_eq!((counts.rollbacks, counts.refusals), (1, 1));
}

#[test]
fn invariant_10_an_undone_warm_up_waits_for_the_side_streams_that_it_used() {
    for seed in 0..8 {
        let world = World::on(builder().seed(seed).build(), segments());
        let side = world.device.create_stream().unwrap();
        let session = world.pool.warm_up(&world.stream).unwrap();
        let block = session.allocate(request(3 * PAGE, "shared")).unwrap();
        world.pool.order(&world.stream, &side).unwrap();
        world.pool.used_on(&block, &side).unwrap();
        fill(&session, &side, &block, 1).unwrap();
        if seed % 2 == 0 {
            drop(block);
        }
        drop(session);
        assert_eq!((world.reserved(), world.device.live_segments()), (0, 0));
        let counts = world.pool.stats().counts;
        assert_eq!((counts.growths, counts.returns, counts.rollbacks, counts.refusals), (1, 1, 1, 0));
        world.verdict();
    }
}

#[test]
fn invariant_10_an_input_that_is_given_up_in_an_undone_recording_stays_given_up() {
    let (world, (first, last)) = world(config());
    let (id, live, deaths) = (first.id(), world.live(), world.pool.stats().counts.releases);
    let error = world
        .record(|session| {
            drop(first);
            let reuses = session.allocate(request(UNIT, "reuses"))?;
            fill(session, &world.stream, &reuses, 1)?;
            Err::<Vec<_>, _>(PoolError::ForeignHandle)
        })
        .unwrap_err();
    assert_eq!(error, PoolError::ForeignHandle);
    assert!(!world.pool.is_live(id));
    assert_eq!(world.live(), live - UNIT);
    // That of the input, and that of the block that was recorded.
    assert_eq!(world.pool.stats().counts.releases, deaths + 2);
    assert!(world.holds(&last, 2));
    world.verdict();
}

#[test]
fn invariant_10_a_restore_that_cannot_be_done_changes_nothing() {
    let (world, kept) = world(config());
    let checkpoint = world.pool.checkpoint().unwrap();
    let stray = world.take(UNIT, "stray").id();
    let before = snapshot(&world);
    let gone = world.pool.restore(&checkpoint, Live::Except(&[stray])).unwrap_err();
    assert_eq!(gone, PoolError::NotLive { block: stray });
    assert_eq!(snapshot(&world), before);

    let other = World::new(config());
    let error = other.pool.restore(&checkpoint, Live::AsRecorded).unwrap_err();
    assert_eq!(error, PoolError::ForeignHandle);

    // The place of a block that died is taken by one that shall stay.
    let dead = kept.0.ptr();
    let id = kept.0.id();
    drop(kept.0);
    let taker = world.take(UNIT, "taker");
    let taker = if taker.ptr() == dead { taker } else { world.take(UNIT, "taker") };
    assert_eq!(taker.ptr(), dead);
    let before = snapshot(&world);
    let error = world.pool.restore(&checkpoint, Live::Only(&[id, taker.id()])).unwrap_err();
    assert!(matches!(error, PoolError::Overlap { .. }), "{error}");
    assert_eq!(snapshot(&world), before);
    world.verdict();
}

#[test]
fn a_pool_whose_first_memory_cannot_be_had_keeps_nothing() {
    for (range, nth) in [(config().range, 1), (config().range, 2), (config().range, 3), (segments().range, 1)]
    {
        let device = std::sync::Arc::new(builder().build());
        let stream = device.create_stream().unwrap();
        device.inject(Fault::at_any(nth, Failure::Driver(2)));
        let config = PoolConfig { prime: 4 * PAGE, range, ..config() };
        assert!(Pool::new(std::sync::Arc::clone(&device), &stream, config).is_err(), "{nth}");
        let info = graphgrove_device::Memory::memory_info(&*device).unwrap();
        assert_eq!((info.free, device.live_segments()), (info.total, 0));
    }
}

#[test]
fn pages_that_the_device_does_not_take_back_are_there_to_be_used() {
    let world = World::new(config());
    drop(world.take(16 * PAGE, "pieces"));
    let (reserved, spans) = (world.reserved(), world.pool.spans());
    assert_eq!(reserved, 16 * PAGE);
    world.device.inject(Fault::at(Call::Unmap, 1, Failure::Driver(3)));
    assert!(matches!(world.pool.trim(), Err(PoolError::Device(_))));
    assert_eq!((world.reserved(), world.pool.spans()), (reserved, spans));
    let block = world.take(16 * PAGE, "all");
    world.fill(&block, 1);
    assert!(world.holds(&block, 1));
    drop(block);
    assert_eq!((world.pool.trim(), world.reserved()), (Ok(16 * PAGE), 0));
    world.verdict();
}

#[test]
fn memory_from_a_poisoned_device_is_refused_and_handles_still_go() {
    let (world, kept) = world(config());
    world.device.inject(Fault::at(Call::Map, 1, Failure::Poison));
    let error = world.pool.allocate(request(16 * PAGE, "large")).unwrap_err();
    assert!(matches!(error, PoolError::Device(_)), "{error}");
    drop(kept);
    assert_eq!(world.live(), 0);
    assert_ne!(world.pool.holdings().first().map(|holding| holding.at), Some(DevicePtr::NULL));
}
