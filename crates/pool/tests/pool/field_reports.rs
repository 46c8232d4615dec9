//! What users of other pools ran into, each as the test that it became.

use std::time::{Duration, Instant};

use graphgrove_device::{CaptureGuard, CaptureMode, Memory, SegmentMemory, Streams, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Cause, Holding, HoldingState, Live, Owner, Request, WhyNot};
use graphgrove_sim::SimDevice;

use crate::world::{PAGE, UNIT, World, builder, config, fill, request, segments};

/// pytorch/pytorch#97419: a pool that is keyed by stream serves no other.
#[test]
fn r25_a_second_recording_from_another_stream_needs_no_more_memory() {
    let world = World::new(config());
    let body = |stream: &graphgrove_sim::SimStream| {
        let stream = stream.clone();
        move |session: &graphgrove_pool::pool::Session<SimDevice>| {
            let output = session.allocate(request(3 * UNIT, "output"))?;
            fill(session, &stream, &output, 1)?;
            Ok::<_, PoolError>(vec![output])
        }
    };
    let first = world.pool.record(&world.stream, None, body(&world.stream)).unwrap();
    let (reserved, address) = (world.reserved(), first.memory.outputs[0].ptr());
    drop(first);
    for _ in 0..3 {
        let other = world.device.create_stream().unwrap();
        let second = world.pool.record(&other, None, body(&other)).unwrap();
        assert_eq!((world.reserved(), second.memory.outputs[0].ptr()), (reserved, address));
    }
    world.verdict();
}

/// pytorch/pytorch#155398: what was used on a side stream is never free again inside of the capture.
#[test]
fn r26_a_block_used_on_a_side_stream_is_free_after_the_join_and_not_before() {
    let world = World::new(config());
    let side = world.device.create_stream().unwrap();
    let recorded = world
        .record(|session| {
            let block = session.allocate(request(UNIT, "shared"))?;
            let address = block.ptr();
            world.pool.order(&world.stream, &side)?;
            world.pool.used_on(&block, &side)?;
            fill(session, &side, &block, 1)?;
            drop(block);

            let before = session.allocate(request(UNIT, "before"))?;
            assert_ne!(before.ptr(), address);
            fill(session, &world.stream, &before, 2)?;

            world.pool.order(&side, &world.stream)?;
            let after = session.allocate(request(UNIT, "after"))?;
            assert_eq!(after.ptr(), address);
            fill(session, &world.stream, &after, 3)?;
            Ok(vec![before, after])
        })
        .unwrap();
    world.launch(&recorded);
    assert!(world.holds(&recorded.memory.outputs[0], 2) && world.holds(&recorded.memory.outputs[1], 3));
    world.verdict();
}

/// pytorch/pytorch#158352: the first mend made captures up to 20 times slower.
#[test]
fn r26_ten_thousand_operations_on_streams_cost_less_than_twenty_times_one_stream() {
    const OPERATIONS: usize = 10_000;
    let run = |streams: usize| -> Duration {
        let world = World::on(builder().null_launch(true).checker(false).build(), config());
        let sides: Vec<_> = (0..streams).map(|_| world.device.create_stream().unwrap()).collect();
        let session = world.pool.recording(&world.stream, None).unwrap();
        let start = Instant::now();
        for at in 0..OPERATIONS {
            let block = session.allocate(request(UNIT, "block")).unwrap();
            if let Some(side) = sides.get(at % streams.max(1)) {
                world.pool.ordered(&world.stream, side);
                world.pool.used_on(&block, side).unwrap();
                drop(block);
                // Most blocks wait for a while: every hundredth operation joins.
                if at % 100 < streams {
                    world.pool.ordered(side, &world.stream);
                }
            }
        }
        start.elapsed()
    };
    let best = |streams| (0..3).map(|_| run(streams)).min().unwrap();
    let (one, four) = (best(0), best(4));
    println!("10,000 operations: {one:?} on one stream, {four:?} on four more");
    assert!(four < one * 20, "{one:?} {four:?}");
}

/// pytorch/pytorch#99985: a library keeps a workspace that it allocated while it was being recorded.
#[test]
fn r27_a_hidden_survivor_is_named_and_the_pool_is_as_before() {
    let world = World::new(config());
    let kept = world.take(UNIT, "kept");
    let before = world.pool.spans();
    let mut hidden = None;
    let error = world
        .record(|session| {
            let workspace = Request::bytes(3000).owner(Owner::Workspace).label("matmul workspace");
            hidden = Some(session.allocate(workspace)?);
            let output = session.allocate(request(UNIT, "output"))?;
            Ok(vec![output])
        })
        .unwrap_err();
    let PoolError::Survivors { blocks } = &error else { unreachable!("{error}") };
    let [Holding { asked: 3000, label: "matmul workspace", owner: Owner::Workspace, .. }] = blocks[..] else {
        unreachable!("{blocks:?}")
    };
    assert_eq!(
        error.to_string(),
        "the recording leaves 1 blocks behind that nobody declared, the first is workspace `matmul workspace` of 3000 bytes"
    );
    assert_eq!(world.pool.spans(), before);
    let hidden = hidden.unwrap();
    assert!(!world.pool.is_live(hidden.id()) && world.pool.is_live(kept.id()));

    let next = world.record(|session| Ok(vec![session.allocate(request(UNIT, "output"))?])).unwrap();
    drop(hidden);
    assert!(world.pool.is_live(next.memory.outputs[0].id()));
    assert_eq!(world.pool.stats().counts.stale_drops, 1);
    world.verdict();
}

/// pytorch/pytorch#99196: one more workspace for every capture.
#[test]
fn r28_recordings_with_a_workspace_need_no_more_memory_from_the_second_on() {
    let world = World::new(config());
    let mut flat = None;
    for round in 0..50 {
        let recorded = world
            .record(|session| {
                let workspace =
                    session.allocate(Request::bytes(5 * UNIT).owner(Owner::Workspace).label("workspace"))?;
                fill(session, &world.stream, &workspace, 1)?;
                let output = session.allocate(request(UNIT, "output"))?;
                fill(session, &world.stream, &output, 2)?;
                Ok(vec![output])
            })
            .unwrap();
        world.launch(&recorded);
        drop(recorded);
        if round == 1 {
            flat = Some(world.reserved());
        }
        assert!(round < 1 || Some(world.reserved()) == flat);
    }
    // Eager work on the recording's stream gets memory of its own.
    let eager = world.device.allocate(5 * UNIT).unwrap();
    assert_eq!(world.pool.why_not(eager.base()), WhyNot::Elsewhere);
    world.device.fill(&world.stream, eager.base(), 3, 5 * UNIT).unwrap();
    world.verdict();
}

/// pytorch/pytorch#101038: an autotuner empties the caches in the middle of a warm-up.
#[test]
fn r29_emptying_the_cache_in_a_warm_up_does_nothing_and_is_counted() {
    let world = World::new(segments());
    let kept = world.take(UNIT, "kept");
    world.fill(&kept, 7);
    let session = world.pool.warm_up(&world.stream).unwrap();
    drop(session.allocate(request(3 * PAGE, "scratch")).unwrap());
    let reserved = world.reserved();
    assert_eq!((world.pool.trim(), world.pool.trim()), (Ok(0), Ok(0)));
    assert_eq!((world.reserved(), world.pool.stats().counts.trims_refused), (reserved, 2));
    drop(session.finish(Vec::new()).unwrap());
    assert!(world.holds(&kept, 7));
    assert!(world.pool.trim().unwrap() > 0);
    assert!(world.holds(&kept, 7));
    world.verdict();
}

/// The same while a capture is open that the pool has nothing to do with: waiting for its stream would break it.
#[test]
fn r29_emptying_the_cache_under_a_capture_of_the_pools_stream_leaves_the_capture_alone() {
    let world = World::new(segments());
    drop(world.take(UNIT, "free"));
    let capture = CaptureGuard::begin(&*world.device, &world.stream, CaptureMode::Global).unwrap();
    assert_eq!(world.pool.trim(), Ok(0));
    capture.end().unwrap();
    assert_eq!(world.pool.trim(), Ok(2 * PAGE));
}

/// pytorch/pytorch#128068: checkpoints did not understand memory that is not mapped.
#[test]
fn r31_pages_beyond_a_restored_state_go_or_are_used_again_and_live_outputs_stay() {
    let world = World::new(config());
    let output_of = |bytes, value| {
        world
            .record(|session| {
                let output = session.allocate(request(bytes, "output"))?;
                fill(session, &world.stream, &output, value)?;
                Ok(vec![output])
            })
            .unwrap()
    };
    let a = output_of(UNIT, 1);
    world.launch(&a);
    let small = world.reserved();
    let b = output_of(20 * PAGE, 2);
    world.launch(&b);
    let large = world.reserved();
    assert!(large > small + 16 * PAGE);

    world.pool.replayed().unwrap();
    world.launch(&a);
    world.pool.restore(&a.memory.checkpoint, Live::AsRecorded).unwrap();
    // As long as the second recording can be replayed, its pages stay.
    assert_eq!(world.pool.trim().unwrap(), 0);
    let b_address = b.memory.outputs[0].ptr();
    drop(b);
    let c = output_of(8 * PAGE, 3);
    assert_eq!((c.memory.outputs[0].ptr(), world.reserved()), (b_address, large));
    assert!(world.pool.trim().unwrap() > 0);
    assert!(world.reserved() < large);
    world.launch(&c);
    assert!(world.holds(&a.memory.outputs[0], 1) && world.holds(&c.memory.outputs[0], 3));
    world.verdict();
}

/// tinygrad/tinygrad#4100: graphs that keep their inputs double the memory.
#[test]
fn r33_a_recording_keeps_no_input_alive() {
    let world = World::new(config());
    let (x, w) = (world.take(8 * PAGE, "x"), world.take(UNIT, "w"));
    world.fill(&x, 5);
    world.fill(&w, 6);
    let recorded = world
        .record(|session| {
            let staged = session.allocate(Request::bytes(UNIT).owner(Owner::Staging).label("x staged"))?;
            world.device.copy(&world.stream, staged.ptr(), x.ptr(), UNIT)?;
            let y = session.allocate(request(UNIT, "y"))?;
            world.device.copy(&world.stream, y.ptr(), staged.ptr(), UNIT)?;
            Ok(vec![y])
        })
        .unwrap();
    world.launch(&recorded);
    let (live, address, id) = (world.live(), x.ptr(), x.id());
    drop(x);
    assert_eq!(world.live(), live - 8 * PAGE);
    assert!(!world.pool.is_live(id));
    let new = world.take(8 * PAGE, "new x");
    assert_eq!(new.ptr(), address);
    world.fill(&new, 9);
    world.launch(&recorded);
    assert!(world.holds(&recorded.memory.outputs[0], 9));
    world.verdict();
}

/// vllm-project/vllm#9724: every captured size keeps an output of its own.
#[test]
fn r35_recordings_of_several_sizes_need_as_much_as_the_largest() {
    let reserved = |sizes: [u64; 4]| {
        let world = World::new(config());
        let empty = world.pool.checkpoint().unwrap();
        let mut recordings = Vec::new();
        for size in sizes {
            world.pool.restore(&empty, Live::Except(&[])).unwrap();
            let recorded = world.record(|session| {
                let temporary = session.allocate(request(size * 8 * PAGE, "temporary"))?;
                fill(session, &world.stream, &temporary, 1)?;
                let output = session.allocate(request(size * 4 * PAGE, "output"))?;
                fill(session, &world.stream, &output, 2)?;
                Ok(vec![output])
            });
            recordings.push(recorded.unwrap());
        }
        for recorded in &recordings {
            world.launch(recorded);
        }
        world.verdict();
        world.reserved()
    };
    let largest = 4 * 12 * PAGE;
    let (falling, rising) = (reserved([4, 3, 2, 1]), reserved([1, 2, 3, 4]));
    println!("largest {largest}, falling {falling}, rising {rising}");
    assert_eq!(falling, largest);
    assert_eq!(rising, largest);
}

/// Lightning-AI/lightning-thunder#1792: a shared pool saves nothing, and nobody can say why.
#[test]
fn r36_memory_that_is_not_used_again_says_who_holds_it() {
    let world = World::new(config());
    let record = |label: &'static str| {
        let recorded = world.record(|session| {
            let output = session.allocate(Request::bytes(2 * PAGE).owner(Owner::Output).label(label))?;
            fill(session, &world.stream, &output, 1)?;
            Ok(vec![output])
        });
        recorded.unwrap()
    };
    let a = record("logits of a");
    let address = a.memory.outputs[0].ptr();
    let b = record("logits of b");
    assert_ne!(b.memory.outputs[0].ptr(), address);
    let WhyNot::Held(holding) = world.pool.why_not(address) else { unreachable!() };
    assert_eq!((holding.owner, holding.label, holding.bytes), (Owner::Output, "logits of a", 2 * PAGE));
    assert_eq!(holding.state, HoldingState::Live { claims: 1 });
    let shortage = *world.pool.shortages().last().unwrap();
    assert_eq!((shortage.cause(), shortage.label), (Cause::Live, "logits of a"));

    drop((a, b));
    assert!(matches!(world.pool.why_not(address), WhyNot::Free { .. }));
    assert_eq!(record("logits of c").memory.outputs[0].ptr(), address);
    world.verdict();
}

/// openxla/xla#36487: recording the same thing again leaves a little behind every time.
#[test]
fn r37_recording_a_thousand_times_leaves_nothing_behind() {
    let world = World::new(config());
    let empty = world.pool.checkpoint().unwrap();
    let mut after_ten = None;
    for round in 0..1000 {
        world.pool.restore(&empty, Live::AsRecorded).unwrap();
        let recorded = world.record(|session| {
            let output = session.allocate(request(3 * UNIT, "output"))?;
            let temporary = session.allocate(request(UNIT, "temporary"))?;
            fill(session, &world.stream, &temporary, 1)?;
            Ok(vec![output])
        });
        let state = (recorded.unwrap().memory.outputs[0].ptr(), world.device.memory_info().unwrap().free);
        if round == 10 {
            after_ten = Some(state);
        }
        assert!(round < 10 || Some(state) == after_ten);
    }
    assert_eq!(world.live(), 0);
    world.verdict();
}
