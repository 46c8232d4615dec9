//! Checkpoints, one rule at a time.

use graphgrove_pool::PoolError;
use graphgrove_pool::ranges::{Block, BlockId, Ranges, RegionId, RegionKind, Restored, Survivors};

const KIB: u64 = 1024;

fn growing(len: u64) -> (Ranges, RegionId) {
    let mut ranges = Ranges::default();
    let region = ranges.add_region(RegionKind::Growing, len).unwrap();
    (ranges, region)
}

fn alloc(ranges: &mut Ranges, kib: u64) -> Block {
    ranges.alloc(kib * KIB, 1).unwrap()
}

fn live(ranges: &Ranges) -> Vec<Block> {
    ranges.audit().unwrap();
    ranges.live_blocks().collect()
}

#[test]
fn sibling_branches_get_the_same_addresses_and_neither_disturbs_the_other() {
    let (mut ranges, _) = growing(1 << 20);
    let root = alloc(&mut ranges, 4);
    let fork = ranges.checkpoint();
    let branch = |ranges: &mut Ranges| {
        ranges.restore(fork, Survivors::AsRecorded).unwrap();
        let temporary = alloc(ranges, 8);
        let output = alloc(ranges, 2);
        ranges.free(temporary.id).unwrap();
        (output, ranges.checkpoint())
    };
    let (left, left_end) = branch(&mut ranges);
    let (right, right_end) = branch(&mut ranges);
    assert_eq!(left.offset, right.offset);
    assert_ne!(left.id, right.id);
    for (end, output) in [(left_end, left), (right_end, right), (left_end, left)] {
        ranges.restore(end, Survivors::AsRecorded).unwrap();
        assert_eq!(live(&ranges), [root, output]);
    }
}

#[test]
fn temporaries_between_two_checkpoints_leave_no_trace() {
    let (mut ranges, _) = growing(1 << 20);
    let before = ranges.checkpoint();
    for kib in 1..200 {
        let temporary = alloc(&mut ranges, kib);
        ranges.free(temporary.id).unwrap();
    }
    assert_eq!(ranges.checkpoint(), before, "nothing changed, so it is the same state");
    assert_eq!(ranges.remembered_blocks(), 0);
}

#[test]
fn blocks_that_died_since_are_freed_once_even_if_several_tensors_shared_them() {
    let (mut ranges, _) = growing(1 << 20);
    let [kept, shared] = [4, 2].map(|kib| alloc(&mut ranges, kib));
    let recorded = ranges.checkpoint();
    let dead = [shared.id; 3];
    ranges.restore(recorded, Survivors::Except { dead: &dead, kept: &[] }).unwrap();
    assert_eq!(live(&ranges), [kept]);
    assert_eq!(ranges.stats().live, kept.bytes);
    ranges.restore(recorded, Survivors::AsRecorded).unwrap();
    assert_eq!(live(&ranges), [kept, shared], "the checkpoint itself has not changed");
}

#[test]
fn an_old_output_that_is_still_held_stays_where_it_is_across_a_restore() {
    let (mut ranges, _) = growing(1 << 20);
    let weights = alloc(&mut ranges, 4);
    let root = ranges.checkpoint();
    let output = alloc(&mut ranges, 2);
    ranges.restore(root, Survivors::Except { dead: &[], kept: &[output.id] }).unwrap();
    assert_eq!(live(&ranges), [weights, output]);
    let next = alloc(&mut ranges, 2);
    assert_ne!(next.offset, output.offset);
    assert_eq!(ranges.free(output.id), Ok(output));
    assert_eq!(live(&ranges), [weights, next]);
}

#[test]
fn naming_exactly_the_live_blocks_needs_no_list_of_the_dead() {
    let (mut ranges, _) = growing(1 << 20);
    let [first, second, third] = [1, 2, 3].map(|kib| alloc(&mut ranges, kib));
    let recorded = ranges.checkpoint();
    ranges.free(first.id).unwrap();
    let later = alloc(&mut ranges, 8);
    ranges.restore(recorded, Survivors::Only(&[third.id, first.id, later.id, first.id])).unwrap();
    assert_eq!(live(&ranges), [first, third, later]);
    assert_eq!(ranges.block(second.id), None);
}

#[test]
fn a_block_of_another_branch_that_lies_in_the_way_is_refused_and_nothing_changes() {
    let (mut ranges, region) = growing(1 << 20);
    let start = ranges.checkpoint();
    let left = alloc(&mut ranges, 4);
    let left_end = ranges.checkpoint();
    ranges.restore(start, Survivors::AsRecorded).unwrap();
    let right = alloc(&mut ranges, 2);
    let uncommitted = alloc(&mut ranges, 1);
    let error = ranges.restore(left_end, Survivors::Except { dead: &[], kept: &[right.id] });
    assert_eq!(error, Err(PoolError::Overlap { block: right.id, region, offset: 0 }));
    assert_eq!(live(&ranges), [right, uncommitted]);
    // With the block in the way named as dead there is room.
    ranges.restore(left_end, Survivors::Except { dead: &[left.id], kept: &[right.id] }).unwrap();
    assert_eq!(live(&ranges), [right]);
}

#[test]
fn a_region_that_shrank_must_grow_again_before_the_checkpoint_returns() {
    let (mut ranges, region) = growing(64 * KIB);
    let block = alloc(&mut ranges, 48);
    let recorded = ranges.checkpoint();
    ranges.free(block.id).unwrap();
    ranges.resize_region(region, KIB).unwrap();
    let small = alloc(&mut ranges, 1);
    let error = ranges.restore(recorded, Survivors::AsRecorded);
    assert_eq!(error, Err(PoolError::RegionTooShort { region, len: KIB, needed: 48 * KIB }));
    assert_eq!(live(&ranges), [small]);
    ranges.resize_region(region, 48 * KIB).unwrap();
    ranges.restore(recorded, Survivors::AsRecorded).unwrap();
    assert_eq!(live(&ranges), [block]);
}

#[test]
fn a_region_added_later_stays_as_free_memory() {
    let mut ranges = Ranges::default();
    let first = ranges.add_region(RegionKind::Fixed, 8 * KIB).unwrap();
    let recorded = ranges.checkpoint();
    let second = ranges.add_region(RegionKind::Fixed, 16 * KIB).unwrap();
    let block = alloc(&mut ranges, 12);
    assert_eq!(block.region, second);
    ranges.restore(recorded, Survivors::AsRecorded).unwrap();
    assert!(live(&ranges).is_empty());
    assert_eq!(ranges.stats().free, 24 * KIB);
    assert_eq!(ranges.remove_region(second), Ok(16 * KIB));
    assert_eq!(ranges.remove_region(first), Ok(8 * KIB));
}

#[test]
fn a_region_that_only_a_checkpoint_needs_cannot_be_removed() {
    let mut ranges = Ranges::default();
    let region = ranges.add_region(RegionKind::Fixed, 8 * KIB).unwrap();
    let block = alloc(&mut ranges, 1);
    let recorded = ranges.checkpoint();
    ranges.free(block.id).unwrap();
    let refused = PoolError::RegionInUse { region, live: 0, remembered: 1 };
    assert_eq!(ranges.remove_region(region), Err(refused));
    ranges.discard(recorded).unwrap();
    assert_eq!(ranges.remove_region(region), Ok(8 * KIB));
}

#[test]
fn a_block_freed_while_a_checkpoint_remembers_it_has_a_name_that_cannot_be_freed_again() {
    let (mut ranges, _) = growing(64 * KIB);
    let block = alloc(&mut ranges, 1);
    let recorded = ranges.checkpoint();
    ranges.free(block.id).unwrap();
    let other = alloc(&mut ranges, 1);
    assert_eq!((other.offset, ranges.remembers(block.id)), (block.offset, true));
    assert_eq!(ranges.free(block.id), Err(PoolError::NotLive { block: block.id }));
    ranges.discard(recorded).unwrap();
    assert!(!ranges.remembers(block.id));
    assert_eq!(live(&ranges), [other]);
}

#[test]
fn an_endless_chain_of_steps_keeps_a_bounded_history() {
    let (mut ranges, _) = growing(1 << 20);
    let mut held = Vec::new();
    let mut blocks: Vec<BlockId> = Vec::new();
    for step in 0..2_000 {
        blocks.push(alloc(&mut ranges, 1 + step % 5).id);
        if blocks.len() > 8 {
            ranges.free(blocks.swap_remove(step as usize % 8)).unwrap();
        }
        held.push(ranges.checkpoint());
        if held.len() > 4 {
            // Oldest, newest but one and middle in turn: the root, a leaf's parent and a link of the chain.
            ranges.discard(held.remove([0, 3, 2][step as usize % 3])).unwrap();
        }
        assert!(ranges.versions() <= 5, "{} versions", ranges.versions());
        assert!(ranges.remembered_blocks() <= 64, "{} blocks", ranges.remembered_blocks());
    }
    ranges.audit().unwrap();
}

#[test]
fn a_thousand_branches_below_one_checkpoint_go_without_a_trace() {
    let (mut ranges, _) = growing(1 << 20);
    let root = alloc(&mut ranges, 4);
    let fork = ranges.checkpoint();
    let mut ends = Vec::new();
    for branch in 0..1_000 {
        ranges.restore(fork, Survivors::AsRecorded).unwrap();
        alloc(&mut ranges, 1 + branch % 7);
        ends.push(ranges.checkpoint());
    }
    assert_eq!((ranges.versions(), ranges.remembered_blocks()), (1_001, 999));
    ranges.restore(fork, Survivors::AsRecorded).unwrap();
    for end in ends {
        ranges.discard(end).unwrap();
    }
    assert_eq!((ranges.versions(), ranges.remembered_blocks()), (1, 0));
    assert_eq!(live(&ranges), [root]);
}

#[test]
fn a_restore_moves_what_changed_and_not_what_exists() {
    let (mut ranges, _) = growing(1 << 30);
    let blocks: Vec<Block> = (0..10_000).map(|at| alloc(&mut ranges, 1 + at % 13)).collect();
    let before = ranges.checkpoint();
    for block in blocks.iter().step_by(1_000) {
        ranges.free(block.id).unwrap();
    }
    let after: Vec<Block> = (0..7).map(|_| alloc(&mut ranges, 2)).collect();
    for _ in 0..1_000 {
        let temporary = alloc(&mut ranges, 3);
        ranges.free(temporary.id).unwrap();
    }
    let end = ranges.checkpoint();
    let moved = |taken, placed| Ok(Restored { taken, placed });
    assert_eq!(ranges.restore(before, Survivors::AsRecorded), moved(7, 10));
    assert_eq!(live(&ranges), blocks);
    assert_eq!(ranges.restore(end, Survivors::AsRecorded), moved(10, 7));
    assert_eq!(ranges.restore(end, Survivors::AsRecorded), moved(0, 0));
    let dead = [after[3].id];
    assert_eq!(ranges.restore(end, Survivors::Except { dead: &dead, kept: &[] }), moved(1, 0));
}

#[test]
fn going_between_branches_costs_the_way_and_not_the_depth() {
    let (mut ranges, _) = growing(1 << 30);
    for _ in 0..500 {
        alloc(&mut ranges, 1);
        // Held for ever, so that the chain is really 500 versions deep.
        let _deep = ranges.checkpoint();
    }
    let fork = ranges.checkpoint();
    alloc(&mut ranges, 1);
    let left = ranges.checkpoint();
    ranges.restore(fork, Survivors::AsRecorded).unwrap();
    alloc(&mut ranges, 1);
    alloc(&mut ranges, 1);
    let right = ranges.checkpoint();
    assert_eq!(ranges.restore(left, Survivors::AsRecorded), Ok(Restored { taken: 2, placed: 1 }));
    assert_eq!(ranges.restore(right, Survivors::AsRecorded), Ok(Restored { taken: 1, placed: 2 }));
    ranges.audit().unwrap();
}
