//! Properties over random programs.

use graphgrove_pool::ranges::{Block, Ranges, RegionKind, Survivors};
use proptest::prelude::*;

use crate::model::{GRANULE, Op, Pair};

/// Sizes that collide often, so that programs meet exact fits, splits and merges.
fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..4 * GRANULE, 3 => 1..40 * GRANULE, 1 => 1..3000 * GRANULE]
}

fn align() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(1_u64), 1 => Just(256_u64), 2 => (20..25_u32).prop_map(|shift| 1_u64 << shift)]
}

fn picks() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<usize>(), 0..6)
}

fn memory_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (bytes(), align()).prop_map(|(bytes, align)| Op::Alloc { bytes, align }),
        2 => (any::<usize>(), 0..400_u64, bytes())
            .prop_map(|(region, at, bytes)| Op::AllocAt { region, offset: at * GRANULE, bytes }),
        8 => any::<usize>().prop_map(|pick| Op::Free { pick }),
        1 => any::<usize>().prop_map(|pick| Op::FreeStale { pick }),
        1 => (any::<bool>(), 1..400_u64).prop_map(|(grows, len)| Op::AddRegion { grows, len: len * GRANULE }),
        2 => (any::<usize>(), 0..800_u64).prop_map(|(region, len)| Op::Resize { region, len: len * GRANULE }),
        1 => any::<usize>().prop_map(|region| Op::RemoveRegion { region }),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => memory_op(),
        3 => Just(Op::Checkpoint),
        2 => any::<usize>().prop_map(|pick| Op::Discard { pick }),
        3 => any::<usize>().prop_map(|pick| Op::Restore { pick }),
        1 => (any::<usize>(), picks(), picks())
            .prop_map(|(pick, dead, kept)| Op::RestoreExcept { pick, dead, kept }),
        1 => (any::<usize>(), picks()).prop_map(|(pick, live)| Op::RestoreOnly { pick, live }),
    ]
}

fn start() -> Vec<Op> {
    vec![
        Op::AddRegion { grows: true, len: 200 * GRANULE },
        Op::AddRegion { grows: false, len: 100 * GRANULE },
    ]
}

fn program(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op, 1..120).prop_map(|ops| [start(), ops].concat())
}

proptest! {
    #[test]
    fn live_blocks_never_overlap_and_every_request_goes_where_the_rule_says(ops in program(memory_op())) {
        Pair::new().run(&ops);
    }

    #[test]
    fn a_restored_state_is_the_state_that_was_named_on_any_tree_of_checkpoints(ops in program(any_op())) {
        let mut pair = Pair::new();
        pair.run(&ops);
        // Whatever happened, every checkpoint still held can be reached from every other.
        let count = pair.checkpoints.len();
        for pick in (0..count).chain((0..count).rev()) {
            pair.run(&[Op::Resize { region: 0, len: 8000 * GRANULE }, Op::Restore { pick }]);
        }
    }

    #[test]
    fn the_same_operations_lead_to_the_same_addresses(ops in program(any_op())) {
        let outcome = || {
            let mut pair = Pair::new();
            pair.run(&ops);
            format!("{:?}", pair.ranges)
        };
        prop_assert_eq!(outcome(), outcome());
    }

    #[test]
    fn when_everything_is_freed_all_memory_is_one_run_and_all_of_it_returns(ops in program(any_op())) {
        let mut pair = Pair::new();
        pair.run(&ops);
        let count = pair.checkpoints.len();
        pair.run(&vec![Op::Discard { pick: 0 }; count]);
        prop_assert_eq!((pair.ranges.versions(), pair.ranges.remembered_blocks()), (0, 0));
        let blocks = pair.ranges.stats().live_blocks as usize;
        pair.run(&vec![Op::Free { pick: 7 }; blocks]);
        let regions: Vec<_> = pair.ranges.regions().collect();
        let runs = regions.iter().filter(|(_, _, len)| *len > 0).count();
        prop_assert_eq!(pair.ranges.stats().free_runs as usize, runs);
        pair.run(&vec![Op::RemoveRegion { region: 0 }; regions.len()]);
        prop_assert_eq!(pair.ranges.stats().reserved, 0);
    }

    #[test]
    fn the_order_of_freeing_changes_nothing_that_follows(
        sizes in prop::collection::vec(bytes(), 2..60),
        doomed in prop::collection::vec(any::<bool>(), 60),
        order in any::<prop::sample::Index>(),
        later in prop::collection::vec((bytes(), align()), 1..30),
    ) {
        let outcome = |reverse: bool, rotate: usize| {
            let mut ranges = Ranges::default();
            ranges.add_region(RegionKind::Growing, 1 << 40).unwrap();
            let blocks: Vec<Block> = sizes.iter().map(|&bytes| ranges.alloc(bytes, 1).unwrap()).collect();
            let mut gone: Vec<Block> =
                blocks.iter().zip(&doomed).filter(|(_, doomed)| **doomed).map(|(block, _)| *block).collect();
            if !gone.is_empty() {
                let by = rotate % gone.len();
                gone.rotate_left(by);
            }
            if reverse {
                gone.reverse();
            }
            for block in gone {
                ranges.free(block.id).unwrap();
            }
            later.iter().map(|&(bytes, align)| ranges.alloc(bytes, align).unwrap().offset).collect::<Vec<_>>()
        };
        let plain = outcome(false, 0);
        prop_assert_eq!(&plain, &outcome(true, 0));
        prop_assert_eq!(&plain, &outcome(true, order.index(60)));
    }

    #[test]
    fn a_failed_restore_changes_nothing(ops in program(any_op()), pick in any::<usize>()) {
        let mut pair = Pair::new();
        pair.run(&ops);
        if pair.checkpoints.is_empty() {
            return Ok(());
        }
        // Make every checkpoint whose blocks reach further than the present ones too long to restore.
        let shrink: Vec<_> = pair.ranges.regions().filter(|region| region.1 == RegionKind::Growing).collect();
        for (region, _, _) in shrink {
            let used = pair.ranges.used_end(region).unwrap();
            pair.ranges.resize_region(region, used).unwrap();
        }
        let (checkpoint, _) = pair.checkpoints[pick % pair.checkpoints.len()];
        let state = |ranges: &Ranges| {
            let spans: Vec<_> = ranges.spans().collect();
            (spans, ranges.stats(), ranges.versions(), ranges.remembered_blocks())
        };
        let before = state(&pair.ranges);
        if pair.ranges.restore(checkpoint, Survivors::AsRecorded).is_err() {
            pair.ranges.audit().unwrap();
            prop_assert_eq!(state(&pair.ranges), before);
        }
    }
}
