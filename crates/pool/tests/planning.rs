//! Plans: sound for any requests, near the bound for those of real shape, and safe to follow when a program changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

use std::sync::Arc;

use graphgrove_pool::PoolError;
use graphgrove_pool::plan::{Cursor, Departure, Obstacle, Order, Plan, Planner, Recorder, Request};
use graphgrove_pool::ranges::{Block, Granule, Ranges, RegionId, RegionKind};
use graphgrove_pool::trace::replay::{Cut, online, planned};
use graphgrove_pool::trace::{Trace, synthetic};
use proptest::prelude::*;

const GRANULE: u64 = 512;

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (1..60 * GRANULE, 0..4_u32, 0..50_u32, 1..30_u32);
    prop::collection::vec(request, 0..40).prop_map(|requests| {
        let request = |(bytes, shift, birth, life): (u64, u32, u32, u32)| {
            let death = if life > 25 { Request::SURVIVES } else { birth + life };
            Request { bytes, align: GRANULE << shift, birth, death }
        };
        requests.into_iter().map(request).collect()
    })
}

/// Obstacles that do not overlap each other, one in each stretch of 50 granules.
fn obstacles() -> impl Strategy<Value = Vec<Obstacle>> {
    prop::collection::vec((0..20_u64, 1..30 * GRANULE, 1..60_u32), 0..5).prop_map(|obstacles| {
        let place = |(at, (skip, bytes, death)): (u64, (u64, u64, u32))| Obstacle {
            offset: (at * 50 + skip) * GRANULE,
            bytes,
            death,
        };
        (0..).zip(obstacles).map(place).collect()
    })
}

/// Everything that occupies memory under a plan, as (offset, end, birth, death).
fn occupied(plan: &Plan, obstacles: &[Obstacle]) -> Vec<(u64, u64, u32, u32)> {
    let size = |bytes: u64| bytes.next_multiple_of(GRANULE);
    let placed = plan.requests().iter().zip(plan.offsets());
    let placed = placed.map(|(r, &offset)| (offset, offset + size(r.bytes), r.birth, r.death));
    placed.chain(obstacles.iter().map(|o| (o.offset, o.offset + size(o.bytes), 0, o.death))).collect()
}

fn least_sum(occupied: &[(u64, u64, u32, u32)]) -> u64 {
    let at = |time: u32| {
        let live = occupied.iter().filter(|&&(_, _, birth, death)| birth <= time && time < death);
        live.map(|(offset, end, _, _)| end - offset).sum::<u64>()
    };
    occupied.iter().map(|&(_, _, birth, _)| at(birth)).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn a_plan_keeps_apart_all_that_lives_at_the_same_time(requests in requests(), obstacles in obstacles()) {
        let plan = Planner::new(Granule::DEFAULT).rounds(50).tolerance(0.0).plan(&requests, &obstacles).unwrap();
        let occupied = occupied(&plan, &obstacles);
        for (at, a) in occupied.iter().enumerate().take(requests.len()) {
            prop_assert_eq!(a.0 % plan.requests()[at].align, 0);
            for b in &occupied[..at] {
                prop_assert!(a.1 <= b.0 || b.1 <= a.0 || a.3 <= b.2 || b.3 <= a.2, "{:?} and {:?}", a, b);
            }
            for b in &occupied[requests.len()..] {
                prop_assert!(a.1 <= b.0 || b.1 <= a.0 || b.3 <= a.2, "{:?} and {:?}", a, b);
            }
        }
        let top = occupied.iter().map(|placed| placed.1).max().unwrap_or(0);
        prop_assert_eq!(plan.peak(), top);
        let floor = obstacles.iter().map(|o| (o.offset + o.bytes).next_multiple_of(GRANULE)).max().unwrap_or(0);
        prop_assert_eq!(plan.bound(), least_sum(&occupied).max(floor));
        prop_assert!(plan.bound() <= plan.peak());
    }

    #[test]
    fn the_same_requests_have_the_same_plan(requests in requests(), obstacles in obstacles()) {
        let planner = Planner::new(Granule::DEFAULT).rounds(50).tolerance(0.0);
        prop_assert_eq!(planner.plan(&requests, &obstacles), planner.plan(&requests, &obstacles));
    }

    #[test]
    fn a_program_that_does_what_it_did_follows_its_plan_to_the_end(
        ops in prop::collection::vec((1..60 * GRANULE, 0..4_u32, any::<prop::sample::Index>(), 0..3_u8), 1..80),
    ) {
        // The warm-up.
        let mut recorder = Recorder::new();
        let mut live = Vec::new();
        let mut program = Vec::new();
        for (bytes, shift, pick, kind) in ops {
            if kind > 0 || live.is_empty() {
                live.push(recorder.alloc(bytes, GRANULE << shift));
                program.push(Some((bytes, GRANULE << shift)));
            } else {
                let request = live.swap_remove(pick.index(live.len()));
                recorder.free(request);
                program.push(None);
            }
        }
        let requests = recorder.finish();
        let plan = Arc::new(Planner::new(Granule::DEFAULT).rounds(0).plan(&requests, &[]).unwrap());
        // The recording: each free is that of the block whose death the plan knows at this moment.
        let (mut ranges, region) = region(plan.peak());
        let mut cursor = Cursor::new(Arc::clone(&plan), region);
        let mut blocks: Vec<Block> = Vec::new();
        for (at, op) in program.into_iter().enumerate() {
            match op {
                Some((bytes, align)) => blocks.push(cursor.alloc(&mut ranges, bytes, align).unwrap()),
                None => {
                    let dead = requests.iter().position(|request| request.death as usize == at + 1).unwrap();
                    ranges.free(blocks[dead].id).unwrap();
                }
            }
        }
        prop_assert_eq!((cursor.departure(), cursor.served() as usize), (None, requests.len()));
        let offsets: Vec<u64> = blocks.iter().map(|block| block.offset).collect();
        prop_assert_eq!(offsets.as_slice(), plan.offsets());
    }
}

fn region(len: u64) -> (Ranges, RegionId) {
    let mut ranges = Ranges::default();
    let region = ranges.add_region(RegionKind::Growing, len).unwrap();
    (ranges, region)
}

fn survivor(bytes: u64, birth: u32) -> Request {
    Request { bytes, align: GRANULE, birth, death: Request::SURVIVES }
}

/// A cursor for three surviving blocks of 1, 2 and 4 granules, in a region with room for twice as much.
fn three() -> (Ranges, RegionId, Cursor) {
    let requests: Vec<_> = (0..3).map(|at| survivor(GRANULE << at, at)).collect();
    let plan = Planner::new(Granule::DEFAULT).plan(&requests, &[]).unwrap();
    let (ranges, region) = region(14 * GRANULE);
    (ranges, region, Cursor::new(Arc::new(plan), region))
}

#[test]
fn a_departure_says_why_and_later_requests_are_served_by_search() {
    let (mut ranges, _, mut cursor) = three();
    cursor.alloc(&mut ranges, GRANULE, GRANULE).unwrap();
    cursor.alloc(&mut ranges, 3 * GRANULE, GRANULE).unwrap();
    let size = Departure::Size { request: 1, planned: 2 * GRANULE, asked: 3 * GRANULE };
    assert_eq!((cursor.departure(), cursor.served()), (Some(size), 1));
    cursor.alloc(&mut ranges, 4 * GRANULE, GRANULE).unwrap();
    assert_eq!((ranges.stats().live_blocks, cursor.departure()), (3, Some(size)));

    let (mut ranges, _, mut cursor) = three();
    cursor.alloc(&mut ranges, GRANULE, 2 * GRANULE).unwrap();
    let alignment = Departure::Alignment { request: 0, planned: GRANULE, asked: 2 * GRANULE };
    assert_eq!(cursor.departure(), Some(alignment));

    let (mut ranges, _, mut cursor) = three();
    for granules in [1, 2, 4, 1] {
        cursor.alloc(&mut ranges, granules * GRANULE, 1).unwrap();
    }
    assert_eq!(cursor.departure(), Some(Departure::TooMany { planned: 3 }));
}

#[test]
fn a_block_that_lives_longer_than_it_did_is_not_overwritten() {
    let requests = [Request { death: 1, ..survivor(GRANULE, 0) }, survivor(GRANULE, 1)];
    let plan = Arc::new(Planner::new(Granule::DEFAULT).plan(&requests, &[]).unwrap());
    assert_eq!((plan.offsets(), plan.peak()), ([0, 0].as_slice(), GRANULE));
    let (mut ranges, region) = region(4 * GRANULE);
    let mut cursor = Cursor::new(plan, region);
    let first = cursor.alloc(&mut ranges, GRANULE, 1).unwrap();
    let second = cursor.alloc(&mut ranges, GRANULE, 1).unwrap();
    assert_ne!(first.offset, second.offset);
    assert_eq!(cursor.departure(), Some(Departure::PlaceTaken { request: 1, offset: 0 }));
}

#[test]
fn sizes_that_round_to_the_same_are_the_same_request() {
    let (mut ranges, _, mut cursor) = three();
    for bytes in [1, 2 * GRANULE - 1, 4 * GRANULE - 100] {
        cursor.alloc(&mut ranges, bytes, 1).unwrap();
    }
    assert_eq!(cursor.departure(), None);
}

#[test]
fn a_malformed_request_is_refused_and_the_plan_goes_on() {
    let (mut ranges, _, mut cursor) = three();
    assert_eq!(cursor.alloc(&mut ranges, 0, 1), Err(PoolError::ZeroBytes));
    assert_eq!(cursor.alloc(&mut ranges, GRANULE, 3), Err(PoolError::BadAlignment { align: 3 }));
    assert!(matches!(cursor.alloc(&mut ranges, u64::MAX, 1), Err(PoolError::TooLarge { .. })));
    for granules in [1, 2, 4] {
        cursor.alloc(&mut ranges, granules * GRANULE, 1).unwrap();
    }
    assert_eq!((cursor.departure(), cursor.served()), (None, 3));
}

#[test]
fn requests_that_no_allocator_could_serve_are_refused() {
    let planner = Planner::new(Granule::DEFAULT);
    let plan = |request: Request| planner.plan(&[survivor(1, 0), request], &[]).unwrap_err();
    let dead = Request { death: 3, ..survivor(1, 3) };
    assert_eq!(plan(dead), PoolError::BadLifetime { request: 1, birth: 3, death: 3 });
    assert_eq!(plan(survivor(0, 0)), PoolError::ZeroBytes);
    assert_eq!(plan(Request { align: 48, ..survivor(1, 0) }), PoolError::BadAlignment { align: 48 });
    assert!(matches!(plan(survivor(u64::MAX, 0)), PoolError::TooLarge { asked: u64::MAX, .. }));
}

#[test]
fn the_parts_of_a_plan_are_where_the_plan_has_them() {
    let requests = [
        survivor(3 * GRANULE, 1),
        Request { death: 3, ..survivor(GRANULE - 1, 2) },
        survivor(2 * GRANULE, 3),
    ];
    let plan = Planner::new(Granule::DEFAULT).plan(&requests, &[]).unwrap();
    let parts = [plan.part(..1), plan.part(1..2), plan.part(2..)];
    let offsets: Vec<u64> = parts.iter().flat_map(|part| part.offsets().to_vec()).collect();
    assert_eq!(offsets, plan.offsets());
    assert_eq!(parts.each_ref().map(|part| part.requests()[0]), requests);
    for (part, bytes) in parts.iter().zip([3, 1, 2]) {
        assert_eq!(part.peak(), part.offsets()[0] + bytes * GRANULE);
        assert!(part.bound() <= part.peak());
    }
    assert_eq!(parts.iter().map(Plan::peak).max(), Some(plan.peak()));
    assert_eq!(plan.part(..), plan);
    assert_eq!((plan.part(3..).requests().len(), plan.part(5..9).peak()), (0, 0));
}

#[test]
fn blocks_that_all_live_to_the_end_are_stacked_as_they_are_asked_for() {
    let requests: Vec<Request> =
        (0..4).map(|birth| survivor((u64::from(birth) + 1) * GRANULE, birth)).collect();
    let below = [Obstacle { offset: 0, bytes: 2 * GRANULE, death: Request::SURVIVES }];
    for (obstacles, floor) in [(&[][..], 0), (&below[..], 2)] {
        let plan = Planner::new(Granule::DEFAULT).plan(&requests, obstacles).unwrap();
        assert_eq!(plan.offsets(), [0, 1, 3, 6].map(|at| (floor + at) * GRANULE));
        assert_eq!((plan.peak(), plan.bound()), ((floor + 10) * GRANULE, (floor + 10) * GRANULE));
        assert_eq!((plan.method().order, plan.method().improved), (Order::Birth, false));
    }
}

#[test]
fn where_stacking_would_waste_memory_another_layout_is_searched_for() {
    // A gap below an obstacle, a gap in front of an aligned block, and a block that dies.
    let gap = [Obstacle { offset: 4 * GRANULE, bytes: GRANULE, death: Request::SURVIVES }];
    let aligned = [survivor(GRANULE, 0), Request { align: 4 * GRANULE, ..survivor(4 * GRANULE, 1) }];
    let dying = [Request { death: 1, ..survivor(GRANULE, 0) }, survivor(GRANULE, 1)];
    let cases = [
        (&[survivor(4 * GRANULE, 0)][..], &gap[..], 5),
        (&aligned[..], &[][..], 5),
        (&dying[..], &[][..], 1),
    ];
    for (requests, obstacles, peak) in cases {
        let plan = Planner::new(Granule::DEFAULT).plan(requests, obstacles).unwrap();
        assert_eq!((plan.peak(), plan.bound()), (peak * GRANULE, peak * GRANULE));
    }
}

#[test]
fn nothing_needs_no_memory() {
    let plan = Planner::new(Granule::DEFAULT).plan(&[], &[]).unwrap();
    assert_eq!((plan.peak(), plan.bound(), plan.offsets().len()), (0, 0, 0));
}

#[test]
fn a_training_step_is_planned_within_two_percent_of_what_is_live() {
    let trace = Trace::parse(&synthetic(12, 3)).unwrap();
    for cut in [Cut::Phase, Cut::Step] {
        let run = planned(&trace, GRANULE, cut, Planner::new(Granule::DEFAULT)).unwrap();
        assert_eq!((run.plans, run.departures), (if cut == Cut::Phase { 9 } else { 3 }, 0));
        let ratio = run.stats.peak_reserved as f64 / trace.peak_live() as f64;
        assert!(ratio <= 1.02, "{cut:?}: {ratio}");
        assert_eq!(run.stats.live, 0);
    }
    let search = online(&trace, GRANULE).unwrap();
    assert_eq!((search.stats.live, search.plans, search.stats.free_runs), (0, 0, 1));
}
