//! How sessions end.

use graphgrove_device::{CaptureGuard, CaptureMode, Memory, StreamHandle, Streams, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Live, Pool};
use graphgrove_sim::Finding;

use crate::world::{PAGE, UNIT, World, builder, config, fill, request, segments};

#[test]
fn a_warm_up_on_another_stream_is_ordered_with_the_pools_stream_on_both_sides() {
    for seed in 0..8 {
        let world = World::on(builder().seed(seed).build(), config());
        let other = world.device.create_stream().unwrap();
        let input = world.take(UNIT, "input");
        world.fill(&input, 1);
        let session = world.pool.warm_up(&other).unwrap();
        let output = session.allocate(request(UNIT, "output")).unwrap();
        world.device.copy(&other, output.ptr(), input.ptr(), UNIT).unwrap();
        let temporary = session.allocate(request(UNIT, "temporary")).unwrap();
        fill(&session, &other, &temporary, 2).unwrap();
        drop(temporary);
        let finished = session.finish(vec![output]).unwrap();
        let next = world.take(UNIT, "next");
        world.fill(&next, 3);
        assert!(world.holds(&finished.outputs[0], 1));
        world.verdict();
    }
}

#[test]
fn a_warm_up_under_a_capture_is_refused_and_leaves_the_capture_alone() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    for captured in [&world.stream, &side] {
        let guard = CaptureGuard::begin(&*world.device, captured, CaptureMode::ThreadLocal).unwrap();
        let error = world.pool.warm_up(&side).unwrap_err();
        assert_eq!(error, PoolError::Capturing { stream: captured.id() });
        assert!(guard.end().is_ok());
    }
    assert!(world.pool.warm_up(&side).is_ok());
    world.verdict();
}

#[test]
fn memory_given_up_in_a_recording_serves_its_next_request() {
    let world = World::new(config());
    let input = world.take(3 * PAGE, "input");
    let address = input.ptr();
    world.fill(&input, 1);
    let recorded = world
        .record(|session| {
            let output = session.allocate(request(UNIT, "output"))?;
            world.device.copy(&world.stream, output.ptr(), input.ptr(), UNIT)?;
            drop(input);
            let large = session.allocate(request(3 * PAGE, "large"))?;
            assert_eq!(large.ptr(), address);
            fill(session, &world.stream, &large, 2)?;
            Ok(vec![output, large])
        })
        .unwrap();
    world.launch(&recorded);
    assert!(world.holds(&recorded.memory.outputs[0], 1) && world.holds(&recorded.memory.outputs[1], 2));
    world.verdict();
}

#[test]
fn a_use_of_a_dead_block_is_found_inside_of_a_recording_and_outside() {
    let use_after_release = |world: &World| {
        let findings = world.device.verdict().unwrap_err().findings;
        findings.iter().any(|finding| matches!(finding, Finding::UseAfterRelease { .. }))
    };
    let world = World::new(config());
    let block = world.take(UNIT, "dead");
    let address = block.ptr();
    drop(block);
    assert_eq!(world.live(), 0);
    world.device.fill(&world.stream, address, 1, UNIT).unwrap();
    assert!(use_after_release(&world));

    let recorded = world
        .record(|session| {
            let block = session.allocate(request(UNIT, "dead"))?;
            fill(session, &world.stream, &block, 1)?;
            let address = block.ptr();
            drop(block);
            session.settle();
            world.device.fill(&world.stream, address, 2, UNIT)?;
            Ok(Vec::new())
        })
        .unwrap();
    world.launch(&recorded);
    assert!(use_after_release(&world));
}

#[test]
fn a_block_does_not_show_what_its_bytes_held_before() {
    let world = World::new(config());
    let first = world.take(UNIT, "first");
    world.fill(&first, 1);
    drop(first);
    let second = world.take(UNIT, "second");
    let target = world.take(UNIT, "target");
    world.device.copy(&world.stream, target.ptr(), second.ptr(), UNIT).unwrap();
    let findings = world.device.verdict().unwrap_err().findings;
    let [Finding::NeverWritten { target, .. }] = &findings[..] else { unreachable!("{findings:?}") };
    assert_eq!(target.label, Some("second"));
}

#[test]
fn survivors_can_be_kept_until_their_handles_go() {
    let world = World::new(config());
    let session = world.pool.warm_up(&world.stream).unwrap();
    let workspace = session.allocate(request(2 * UNIT, "workspace")).unwrap();
    let output = session.allocate(request(UNIT, "output")).unwrap();
    let labels: Vec<_> = session.survivors().iter().map(|holding| holding.label).collect();
    assert_eq!(labels, ["workspace", "output"]);
    let finished = session.finish_keeping(vec![output]).unwrap();
    assert!(world.pool.is_live(workspace.id()));
    drop(finished);
    assert_eq!(world.live(), 2 * UNIT);
    drop(workspace);
    assert_eq!(world.live(), 0);
    world.verdict();
}

#[test]
fn an_undone_recording_returns_memory_once_a_checking_device_is_done_with_it() {
    // Before its capture begins, a device is told of the block at once, on the stream; in a capture, nothing can be waited for.
    for case in 0..8 {
        let config = if case & 1 == 0 { config() } else { segments() };
        let (on_side, captures) = (case & 2 != 0, case & 4 != 0);
        let world = World::new(config);
        let side = world.device.create_stream().unwrap();
        let stream = if on_side { &side } else { &world.stream };
        let session = world.pool.recording(stream, None).unwrap();
        let capture =
            captures.then(|| CaptureGuard::begin(&*world.device, stream, CaptureMode::ThreadLocal).unwrap());
        let block = session.allocate(request(UNIT, "undone")).unwrap();
        drop(session);
        assert!(capture.is_none_or(|capture| capture.end().is_ok()));
        drop(block);
        assert_eq!((world.live(), world.reserved()), (0, 0));
        let refusals = world.pool.stats().counts.refusals;
        assert_eq!(refusals, 0, "{config:?}, on another stream: {on_side}, in a capture: {captures}");
        world.verdict();
    }
}

#[test]
fn what_an_undone_recording_was_handed_on_another_stream_before_its_capture_can_be_handed_out_again() {
    for seed in 0..8 {
        let world = World::on(builder().seed(seed).build(), config());
        let side = world.device.create_stream().unwrap();
        let kept = world.take(UNIT, "kept");
        let reserved = world.reserved();
        let session = world.pool.recording(&side, None).unwrap();
        let undone = session.allocate(request(UNIT, "undone")).unwrap();
        let address = undone.ptr();
        assert_eq!(world.reserved(), reserved);
        drop((session, undone));
        let next = world.take(UNIT, "next");
        assert_eq!(next.ptr(), address);
        world.fill(&next, 1);
        world.fill(&kept, 2);
        assert!(world.holds(&next, 1) && world.holds(&kept, 2));
        world.verdict();
    }
}

#[test]
fn an_output_or_a_use_of_another_pool_is_refused() {
    let (world, other) = (World::new(config()), World::new(config()));
    let foreign = other.take(UNIT, "foreign");
    assert_eq!(world.pool.used_on(&foreign, &world.stream), Err(PoolError::ForeignHandle));
    let session = world.pool.warm_up(&world.stream).unwrap();
    let error = session.finish(vec![foreign]).unwrap_err();
    assert_eq!(error, PoolError::ForeignHandle);
    let session = world.pool.warm_up(&world.stream).unwrap();
    drop(session.finish_keeping(Vec::new()).unwrap());
    assert_eq!(world.pool.stats().counts.rollbacks, 1);
}

#[test]
fn an_output_or_a_use_of_a_life_that_is_over_is_refused() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let empty = world.pool.checkpoint().unwrap();
    // Undone with its session, released by name, or taken away by a restore and brought back by another.
    let mut undone = None;
    let error = world.record(|session| {
        undone = Some(session.allocate(request(UNIT, "undone"))?);
        Err(PoolError::ForeignHandle)
    });
    assert_eq!(error.unwrap_err(), PoolError::ForeignHandle);
    let revived = world.take(UNIT, "revived");
    let checkpoint = world.pool.checkpoint().unwrap();
    world.pool.restore(&empty, Live::AsRecorded).unwrap();
    world.pool.restore(&checkpoint, Live::AsRecorded).unwrap();
    let again = world.pool.adopt(revived.id()).unwrap();
    assert_eq!(world.pool.used_on(&again, &world.stream), Ok(()));
    let released = world.take(UNIT, "released");
    world.pool.release(released.id());
    for stale in [undone.unwrap(), revived, released] {
        let gone = PoolError::NotLive { block: stale.id() };
        assert_eq!(world.pool.used_on(&stale, &side).unwrap_err(), gone);
        let live = world.live();
        let error = world.record(|session| {
            let output = session.allocate(request(UNIT, "output"))?;
            Ok(vec![output, stale])
        });
        assert_eq!(error.unwrap_err(), gone);
        assert_eq!(world.live(), live);
    }
    world.verdict();
}

#[test]
fn a_recording_in_which_a_library_allocates_for_itself_is_refused() {
    let world = World::new(config());
    let error = world
        .record(|session| {
            let output = session.allocate(request(UNIT, "output"))?;
            let hidden = world.device.allocate_async(&world.stream, UNIT)?;
            world.device.free_async(&world.stream, hidden)?;
            Ok(vec![output])
        })
        .unwrap_err();
    assert!(error.to_string().starts_with("the graph allocates: 2 memory nodes"), "{error}");
    assert_eq!((world.live(), world.reserved()), (0, 0));
}

#[test]
fn a_pool_and_its_blocks_can_be_used_from_several_threads() {
    let world = World::new(config());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let pool: Pool<_> = world.pool.clone();
            scope.spawn(move || {
                for round in 1..200_u64 {
                    let blocks: Vec<_> =
                        (1..4).map(|n| pool.allocate(request(n * round, "block")).unwrap()).collect();
                    drop(blocks);
                }
            });
        }
    });
    assert_eq!(world.live(), 0);
    world.verdict();
}
