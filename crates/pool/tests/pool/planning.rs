//! Recordings that follow the plan made from their warm-up.

use std::sync::Arc;

use graphgrove_device::CaptureMode;
use graphgrove_device::{CaptureGuard, SegmentMemory};
use graphgrove_pool::plan::{Departure, Plan};
use graphgrove_pool::pool::{Block, Demand, Live, PoolConfig, Session};
use graphgrove_sim::SimDevice;

use crate::world::{PAGE, Result, World, config, fill, request, segments};

type Body<'a> = dyn Fn(&Session<SimDevice>) -> Result<Vec<Block<SimDevice>>> + 'a;

/// Online, the long-lived output lands behind the short-lived temporary; planned, it lies below.
fn body(world: &World) -> impl Fn(&Session<SimDevice>) -> Result<Vec<Block<SimDevice>>> {
    move |session| {
        let first = session.allocate(request(4 * PAGE, "first"))?;
        fill(session, &world.stream, &first, 1)?;
        let output = session.allocate(request(PAGE, "output"))?;
        fill(session, &world.stream, &output, 2)?;
        drop(first);
        let second = session.allocate(request(5 * PAGE, "second"))?;
        fill(session, &world.stream, &second, 3)?;
        Ok(vec![output])
    }
}

fn warm_up(world: &World, body: &Body<'_>) -> Demand {
    let session = world.pool.warm_up(&world.stream).unwrap();
    let outputs = body(&session).unwrap();
    session.finish(outputs).unwrap().demand
}

fn peak_of(world: &World, plan: Option<&Arc<Plan>>, body: &Body<'_>) -> u64 {
    let recorded = world.pool.record(&world.stream, plan, |session| body(session)).unwrap();
    world.launch(&recorded);
    assert!(world.holds(&recorded.memory.outputs[0], 2));
    world.verdict();
    world.reserved()
}

#[test]
fn a_recording_that_follows_its_plan_needs_the_least_that_is_possible() {
    let body_of = |world: &World, plan: Option<&Arc<Plan>>| peak_of(world, plan, &body(world));
    let (online, planned) = (World::new(config()), World::new(config()));
    let reserved = body_of(&online, None);
    let warm = World::new(config());
    let demand = warm_up(&warm, &body(&warm));
    let plan = planned.pool.plan(&demand).unwrap();
    assert_eq!((plan.peak(), plan.bound()), (6 * PAGE, 6 * PAGE));
    assert!(reserved > 6 * PAGE, "{reserved}");
    assert_eq!(body_of(&planned, Some(&plan)).next_multiple_of(2 * PAGE), 6 * PAGE);
    let counts = planned.pool.stats().counts;
    assert_eq!((counts.planned, counts.departures), (3, 0));
}

#[test]
fn a_recording_that_asks_for_something_else_goes_on_without_its_plan_and_says_why() {
    let world = World::new(config());
    let demand = warm_up(&world, &body(&world));
    let plan = world.pool.plan(&demand).unwrap();
    let recorded = world
        .pool
        .record(&world.stream, Some(&plan), |session| {
            let first = session.allocate(request(4 * PAGE, "first"))?;
            let other = session.allocate(request(3 * PAGE, "other"))?;
            fill(session, &world.stream, &other, 2)?;
            drop(first);
            Ok::<_, graphgrove_pool::PoolError>(vec![other])
        })
        .unwrap();
    let planned = recorded.memory.planned.unwrap();
    assert_eq!(planned.served, 1);
    assert_eq!(planned.departure, Some(Departure::Size { request: 1, planned: PAGE, asked: 3 * PAGE }));
    let counts = world.pool.stats().counts;
    assert_eq!((counts.planned, counts.departures), (1, 1));
    world.launch(&recorded);
    world.verdict();
}

#[test]
fn a_plan_goes_around_what_is_live_and_uses_what_dies() {
    let world = World::new(config());
    let kept = world.take(PAGE, "kept");
    world.fill(&kept, 8);
    let input = world.take(2 * PAGE, "input");
    let id = input.into_id();
    let session = world.pool.warm_up(&world.stream).unwrap();
    let small = session.allocate(request(PAGE, "small")).unwrap();
    world.pool.release(id);
    let large = session.allocate(request(2 * PAGE, "large")).unwrap();
    drop((small, large));
    let demand = session.finish(Vec::new()).unwrap().demand;
    assert_eq!(demand.deaths.len(), 1);
    assert_eq!((demand.deaths[0].0, demand.requests.len()), (id, 2));

    let plan = world.pool.plan(&demand).unwrap();
    let low = plan.offsets().iter().min().unwrap();
    assert!(*low >= PAGE, "{:?}", plan.offsets());
    assert!(world.holds(&kept, 8));
}

#[test]
fn recordings_that_follow_each_other_fit_better_by_the_parts_of_one_plan() {
    // The first leaves two blocks. The second gives one of them up for a larger one, which only fits if the other is at the bottom.
    let run = |together: bool| {
        let world = World::new(config());
        let forward = |session: &Session<SimDevice>| -> Result<Vec<_>> {
            Ok(vec![session.allocate(request(2 * PAGE, "first"))?, session.allocate(request(PAGE, "stays"))?])
        };
        let backward = |first: Block<SimDevice>, session: &Session<SimDevice>| -> Result<Vec<_>> {
            fill(session, &world.stream, &first, 1)?;
            drop(first);
            let larger = session.allocate(request(3 * PAGE, "larger"))?;
            fill(session, &world.stream, &larger, 2)?;
            Ok(vec![larger])
        };
        let empty = world.pool.checkpoint().unwrap();
        let session = world.pool.warm_up(&world.stream).unwrap();
        let outputs = forward(&session).unwrap();
        let mut warm = session.finish(outputs).unwrap();
        let session = world.pool.warm_up(&world.stream).unwrap();
        let outputs = backward(warm.outputs.remove(0), &session).unwrap();
        let second = session.finish(outputs).unwrap().demand;
        let first = warm.demand.clone();
        drop(warm);
        world.pool.restore(&empty, Live::AsRecorded).unwrap();

        let whole = world.pool.plan(&first.clone().then(&second)).unwrap();
        let alone = world.pool.plan(&first).unwrap();
        let plan = if together { Arc::new(whole.part(..2)) } else { alone };
        let mut recorded = world.pool.record(&world.stream, Some(&plan), forward).unwrap();
        let input = recorded.memory.outputs.remove(0);
        let plan = if together { Arc::new(whole.part(2..)) } else { world.pool.plan(&second).unwrap() };
        let next = world.pool.record(&world.stream, Some(&plan), |session| backward(input, session)).unwrap();
        for recorded in [&recorded, &next] {
            assert_eq!(recorded.memory.planned.unwrap().departure, None);
        }
        world.launch(&recorded);
        world.launch(&next);
        assert!(world.holds(&next.memory.outputs[0], 2));
        world.verdict();
        let spans = world.pool.spans();
        let ends = spans.iter().filter(|span| span.block.is_some()).map(|span| span.offset + span.bytes);
        (whole.peak(), ends.max().unwrap())
    };
    assert_eq!(run(true), (4 * PAGE, 4 * PAGE));
    assert_eq!(run(false), (4 * PAGE, 6 * PAGE));
}

#[test]
fn a_plan_for_more_memory_than_there_is_begins_nothing() {
    let world = World::new(PoolConfig { budget: Some(4 * PAGE), ..config() });
    let large = World::new(config());
    let demand = warm_up(&large, &body(&large));
    let plan = world.pool.plan(&demand).unwrap();
    let before = world.pool.spans();
    assert!(world.pool.recording(&world.stream, Some(&plan)).is_err());
    assert_eq!((world.pool.spans(), world.reserved()), (before, 0));
    assert!(world.pool.recording(&world.stream, None).is_ok());
}

#[test]
fn without_a_growing_range_a_plan_is_followed_in_the_longest_segment() {
    let world = World::new(segments());
    let short = graphgrove_device::Memory::allocate(&*world.device, 2 * PAGE).unwrap();
    let long = graphgrove_device::Memory::allocate(&*world.device, 8 * PAGE).unwrap();
    let base = long.base();
    world.pool.adopt_segment(short).unwrap();
    world.pool.adopt_segment(long).unwrap();
    let demand = warm_up(&world, &body(&world));
    let plan = world.pool.plan(&demand).unwrap();
    let session = world.pool.recording(&world.stream, Some(&plan)).unwrap();
    let capture = CaptureGuard::begin(&*world.device, &world.stream, CaptureMode::ThreadLocal).unwrap();
    let outputs = body(&world)(&session).unwrap();
    assert!(outputs[0].ptr() >= base && outputs[0].ptr() < base.checked_add(8 * PAGE).unwrap());
    session.settle();
    capture.end().unwrap();
    let finished = session.finish(outputs).unwrap();
    assert_eq!(finished.planned.unwrap().served, 3);
    assert_eq!(world.reserved(), 10 * PAGE);
}

#[test]
fn of_segments_of_the_same_length_a_plan_is_followed_in_the_first() {
    let world = World::new(segments());
    let [first, second] =
        [(); 2].map(|()| graphgrove_device::Memory::allocate(&*world.device, 8 * PAGE).unwrap());
    let base = world.pool.adopt_segment(first).unwrap();
    world.pool.adopt_segment(second).unwrap();
    let demand = warm_up(&world, &body(&world));
    let plan = world.pool.plan(&demand).unwrap();
    let session = world.pool.recording(&world.stream, Some(&plan)).unwrap();
    let block = session.allocate(request(4 * PAGE, "first")).unwrap();
    assert_eq!(block.ptr().offset_from(base), Some(plan.offsets()[0]));
}

#[test]
fn a_failed_allocation_leaves_the_plan_in_force() {
    use graphgrove_sim::{Failure, Fault};
    let world = World::new(config());
    let demand = warm_up(&world, &body(&world));
    let plan = world.pool.plan(&demand).unwrap();
    let session = world.pool.recording(&world.stream, Some(&plan)).unwrap();
    assert!(session.allocate(request(0, "nothing")).is_err());
    world.device.inject(Fault::at_any(1, Failure::Driver(7)));
    // The planned place is there, so nothing of the device's fails but the next call.
    let first = session.allocate(request(4 * PAGE, "first")).unwrap();
    world.device.clear_faults();
    let output = session.allocate(request(PAGE, "output")).unwrap();
    drop(first);
    let finished = session.finish(vec![output]).unwrap();
    assert_eq!(finished.planned.map(|planned| (planned.served, planned.departure)), Some((2, None)));
}
