//! Single rules of the allocator, one at a time. Random programs are in the crate's `tests/` folder.

use super::*;
use crate::error::PoolError;

const KIB: u64 = 1024;

/// An allocator with one growing region of `len` bytes.
fn growing(len: u64) -> (Ranges, RegionId) {
    let mut ranges = Ranges::default();
    let region = ranges.add_region(RegionKind::Growing, len).unwrap();
    (ranges, region)
}

fn alloc(ranges: &mut Ranges, bytes: u64) -> Block {
    ranges.alloc(bytes, 1).unwrap()
}

fn offsets(ranges: &Ranges) -> Vec<u64> {
    ranges.live_blocks().map(|block| block.offset).collect()
}

#[test]
fn the_smallest_hole_that_fits_is_used_and_among_equals_the_lowest() {
    let (mut ranges, _) = growing(64 * KIB);
    let sizes = [4, 1, 2, 1, 3, 1, 2, 1].map(|kib| alloc(&mut ranges, kib * KIB));
    for hole in [0, 2, 4, 6] {
        ranges.free(sizes[hole].id).unwrap();
    }
    assert_eq!(alloc(&mut ranges, 2 * KIB).offset, sizes[2].offset);
    assert_eq!(alloc(&mut ranges, 2 * KIB).offset, sizes[6].offset);
    assert_eq!(alloc(&mut ranges, 2 * KIB).offset, sizes[4].offset);
    assert_eq!(alloc(&mut ranges, 2 * KIB).offset, sizes[0].offset);
    ranges.audit().unwrap();
}

#[test]
fn a_tail_is_used_only_when_no_hole_fits() {
    let (mut ranges, _) = growing(128 * KIB);
    let large = alloc(&mut ranges, 32 * KIB);
    let guard = alloc(&mut ranges, KIB);
    ranges.free(large.id).unwrap();
    assert_eq!(alloc(&mut ranges, KIB).offset, 0);
    assert_eq!(alloc(&mut ranges, 31 * KIB + 1).offset, guard.offset + KIB);
}

const MIB: u64 = 1 << 20;

/// A hole of `hole` bytes, one block of 1 KiB behind it, and a growing region of `len` bytes.
fn hole_and_guard(hole: u64, len: u64) -> (Ranges, RegionId, Block) {
    let (mut ranges, region) = growing(len);
    let large = alloc(&mut ranges, hole);
    let guard = alloc(&mut ranges, KIB);
    ranges.free(large.id).unwrap();
    (ranges, region, guard)
}

#[test]
fn a_small_block_spares_a_large_hole_as_long_as_the_tails_stretch_has_room() {
    let (mut ranges, region, guard) = hole_and_guard(40 * MIB, 256 * MIB);
    let first = alloc(&mut ranges, 8 * MIB);
    assert_eq!(first.offset, guard.offset + KIB);
    // The stretch ends at the next multiple of 32 MiB, however long the region is.
    let full = alloc(&mut ranges, 8 * MIB);
    let rest = alloc(&mut ranges, 8 * MIB - KIB);
    assert_eq!((full.offset, rest.offset + rest.bytes), (first.offset + 8 * MIB, 64 * MIB));
    assert_eq!((alloc(&mut ranges, KIB).offset, ranges.used_end(region)), (0, Some(64 * MIB)));
}

#[test]
fn a_hole_of_less_than_16_mib_is_used_and_so_is_any_by_more_than_8_mib() {
    let (mut ranges, _, guard) = hole_and_guard(16 * MIB, 256 * MIB);
    assert_eq!(alloc(&mut ranges, KIB).offset, guard.offset + KIB);
    assert_eq!(alloc(&mut ranges, 8 * MIB + 1).offset, 0);
    let (mut ranges, ..) = hole_and_guard(16 * MIB - 512, 256 * MIB);
    assert_eq!(alloc(&mut ranges, KIB).offset, 0);
}

#[test]
fn a_region_says_by_how_much_it_is_too_short_to_spare_a_hole() {
    let (mut ranges, region, guard) = hole_and_guard(32 * MIB, 32 * MIB + KIB);
    let end = guard.offset + KIB;
    assert_eq!(ranges.spares_by_growing(MIB, 1), Some(MIB));
    assert_eq!(ranges.spares_by_growing(MIB, 2 * MIB), Some(3 * MIB - KIB));
    assert_eq!(ranges.alloc_sparing(MIB, 1), Ok(None));
    // Nothing to gain: too large a request, one that no stretch holds, and none at all.
    for (bytes, align) in [(8 * MIB + 1, 1), (MIB, 64 * MIB), (0, 1), (MIB, 3)] {
        assert_eq!(ranges.spares_by_growing(bytes, align), None, "{bytes} aligned to {align}");
        let mut same = ranges.clone();
        let (sparing, plain) = (same.alloc_sparing(bytes, align), ranges.clone().alloc(bytes, align));
        assert_eq!(sparing, plain.map(Some));
    }
    // Where the region stays as it is, the hole is there to be used.
    let mut short = ranges.clone();
    assert_eq!(alloc(&mut short, MIB).offset, 0);
    ranges.resize_region(region, end + MIB).unwrap();
    assert_eq!(ranges.spares_by_growing(MIB, 1), None);
    let block = ranges.alloc_sparing(MIB, 1).unwrap();
    assert_eq!(block.map(|block| block.offset), Some(end));
}

#[test]
fn the_books_count_places_for_versions_and_what_separates_them() {
    let (mut ranges, _) = growing(64 * KIB);
    let [first, second] = [(); 2].map(|()| alloc(&mut ranges, KIB));
    let root = ranges.checkpoint();
    ranges.free(first.id).unwrap();
    let third = alloc(&mut ranges, 2 * KIB);
    // The edge of the region and the parked block have slots as well.
    assert_eq!(ranges.books(), RangeBooks { slots: 4, versions: 1, journal: 2 });
    let child = ranges.checkpoint();
    ranges.free(second.id).unwrap();
    ranges.free(third.id).unwrap();
    assert_eq!(ranges.books(), RangeBooks { slots: 4, versions: 2, journal: 4 });
    // The child takes the place of a root that nobody holds, and what only the root had is forgotten.
    ranges.discard(root).unwrap();
    assert_eq!((ranges.versions(), ranges.books().journal, ranges.remembers(first.id)), (1, 2, false));
    ranges.discard(child).unwrap();
    assert_eq!((ranges.versions(), ranges.books().journal), (0, 0));
}

#[test]
fn freeing_merges_with_both_neighbours() {
    let (mut ranges, region) = growing(64 * KIB);
    let blocks = [(); 5].map(|()| alloc(&mut ranges, KIB));
    for at in [1, 3, 2] {
        ranges.free(blocks[at].id).unwrap();
        ranges.audit().unwrap();
    }
    let free: Vec<_> = ranges.free_runs().map(|run| (run.offset, run.bytes)).collect();
    assert_eq!(free, [(KIB, 3 * KIB), (5 * KIB, 59 * KIB)]);
    ranges.free(blocks[4].id).unwrap();
    assert_eq!(ranges.used_end(region), Some(KIB));
}

#[test]
fn blocks_never_reach_across_regions_and_free_runs_never_merge_across_them() {
    let mut ranges = Ranges::default();
    for kind in [RegionKind::Fixed, RegionKind::Fixed, RegionKind::Growing] {
        ranges.add_region(kind, 4 * KIB).unwrap();
    }
    assert_eq!(
        ranges.alloc(6 * KIB, 1).unwrap_err(),
        PoolError::NoRoom {
            asked: 6 * KIB,
            align: 1,
            largest_free: 4 * KIB,
            free: 12 * KIB,
            grow_by: Some(2 * KIB)
        }
    );
    let blocks = [(); 3].map(|()| alloc(&mut ranges, 4 * KIB));
    assert_eq!(blocks.map(|block| (block.region.index(), block.offset)), [(0, 0), (1, 0), (2, 0)]);
    for block in blocks {
        ranges.free(block.id).unwrap();
    }
    let stats = ranges.stats();
    assert_eq!((stats.free_runs, stats.largest_free, stats.free), (3, 4 * KIB, 12 * KIB));
    ranges.audit().unwrap();
}

#[test]
fn alignment_is_kept_and_the_gap_stays_usable() {
    let (mut ranges, _) = growing(64 * KIB);
    let small = alloc(&mut ranges, 512);
    let aligned = ranges.alloc(3 * KIB, 4 * KIB).unwrap();
    assert_eq!(aligned.offset, 4 * KIB);
    assert_eq!(alloc(&mut ranges, 3584).offset, 512, "the gap before the aligned block is a hole");
    ranges.free(aligned.id).unwrap();
    ranges.free(small.id).unwrap();
    assert_eq!(ranges.alloc(512, 2 * KIB).unwrap().offset, 0);
    ranges.audit().unwrap();
}

#[test]
fn a_hole_that_fits_only_unaligned_is_passed_over() {
    let (mut ranges, _) = growing(64 * KIB);
    let blocks = [512, 2 * KIB, 512, 3 * KIB + 512, 512].map(|bytes| alloc(&mut ranges, bytes));
    ranges.free(blocks[1].id).unwrap();
    ranges.free(blocks[3].id).unwrap();
    // 2 KiB at 512 would have to start at 2 KiB, where the first hole has 512 bytes left.
    assert_eq!(ranges.alloc(2 * KIB, 2 * KIB).unwrap().offset, 4 * KIB);
    ranges.audit().unwrap();
}

#[test]
fn a_request_without_room_says_what_is_missing_and_changes_nothing() {
    let (mut ranges, region) = growing(8 * KIB);
    let first = alloc(&mut ranges, 2 * KIB);
    alloc(&mut ranges, KIB);
    ranges.free(first.id).unwrap();
    let before = format!("{ranges:?}");
    let error = ranges.alloc(6 * KIB, 4 * KIB).unwrap_err();
    let grow_by = Some(2 * KIB);
    assert_eq!(
        error,
        PoolError::NoRoom { asked: 6 * KIB, align: 4 * KIB, largest_free: 5 * KIB, free: 7 * KIB, grow_by }
    );
    assert_eq!(format!("{ranges:?}"), before);
    ranges.resize_region(region, 10 * KIB).unwrap();
    assert_eq!(ranges.alloc(6 * KIB, 4 * KIB).unwrap().offset, 4 * KIB);
}

#[test]
fn growing_by_what_the_error_says_is_exactly_enough() {
    for (used, asked, align) in
        [(0, 512, 1), (1, 9 * KIB, 512), (5 * KIB, 5 * KIB, 4 * KIB), (8 * KIB, 1, 2 * KIB)]
    {
        let (mut ranges, region) = growing(8 * KIB);
        if used > 0 {
            alloc(&mut ranges, used);
        }
        let Err(PoolError::NoRoom { grow_by: Some(grow_by), .. }) = ranges.alloc(asked, align) else {
            continue;
        };
        ranges.resize_region(region, 8 * KIB + grow_by - 512).unwrap();
        assert!(ranges.alloc(asked, align).is_err(), "a granule less is too little for {asked}");
        ranges.resize_region(region, 8 * KIB + grow_by).unwrap();
        ranges.alloc(asked, align).unwrap();
    }
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_the_reason() {
    let (mut ranges, region) = growing(8 * KIB);
    let max = 512 * (u64::from(u32::MAX) - 1);
    assert_eq!(ranges.alloc(0, 1), Err(PoolError::ZeroBytes));
    assert_eq!(ranges.alloc(1, 3), Err(PoolError::BadAlignment { align: 3 }));
    assert_eq!(ranges.alloc(1, 0), Err(PoolError::BadAlignment { align: 0 }));
    assert_eq!(ranges.alloc(u64::MAX, 1), Err(PoolError::TooLarge { asked: u64::MAX, max }));
    assert_eq!(ranges.alloc_at(region, 256, 1), Err(PoolError::BadAlignment { align: 256 }));
    let beyond = PoolError::Occupied { region, offset: 7 * KIB, bytes: 2 * KIB };
    assert_eq!(ranges.alloc_at(region, 7 * KIB, 2 * KIB), Err(beyond));
    assert_eq!(ranges.add_region(RegionKind::Fixed, 511), Err(PoolError::ZeroBytes));
    assert_eq!(
        ranges.add_region(RegionKind::Fixed, max + 512),
        Err(PoolError::TooLarge { asked: max + 512, max })
    );
    let none = PoolError::NoRegion { region: RegionId(7) };
    assert_eq!(ranges.alloc_at(RegionId(7), 0, 1), Err(none.clone()));
    assert_eq!(ranges.remove_region(RegionId(7)), Err(none));
    // An alignment that no offset can have is a question of room, not a malformed request.
    assert!(matches!(ranges.alloc(1 << 20, 1 << 40), Err(PoolError::NoRoom { .. })));
}

#[test]
fn a_stale_name_is_refused_even_when_its_slot_is_used_again() {
    let (mut ranges, _) = growing(8 * KIB);
    let old = alloc(&mut ranges, KIB);
    ranges.free(old.id).unwrap();
    assert_eq!(ranges.free(old.id), Err(PoolError::NotLive { block: old.id }));
    let new = alloc(&mut ranges, KIB);
    assert_eq!((new.offset, new.id.slot()), (old.offset, old.id.slot()));
    assert_eq!(ranges.free(old.id), Err(PoolError::NotLive { block: old.id }));
    assert_eq!(ranges.block(old.id), None);
    assert_eq!(ranges.block(new.id), Some(new));
}

#[test]
fn a_block_can_be_placed_anywhere_that_is_free() {
    let (mut ranges, region) = growing(64 * KIB);
    let far = ranges.alloc_at(region, 32 * KIB, KIB).unwrap();
    let near = ranges.alloc_at(region, 4 * KIB, 2 * KIB).unwrap();
    assert_eq!((far.offset, near.offset), (32 * KIB, 4 * KIB));
    for (offset, bytes) in [(4 * KIB, 512), (5 * KIB, 4 * KIB), (3 * KIB, 2 * KIB), (30 * KIB, 3 * KIB)] {
        assert_eq!(
            ranges.alloc_at(region, offset, bytes),
            Err(PoolError::Occupied { region, offset, bytes })
        );
    }
    assert_eq!(alloc(&mut ranges, 4 * KIB).offset, 0);
    ranges.audit().unwrap();
}

#[test]
fn the_block_that_holds_an_address_is_found() {
    let (mut ranges, region) = growing(64 * KIB);
    let first = alloc(&mut ranges, 3 * KIB);
    let second = alloc(&mut ranges, KIB);
    ranges.free(first.id).unwrap();
    assert_eq!(ranges.block_at(region, 3 * KIB), Some(second));
    assert_eq!(ranges.block_at(region, 4 * KIB - 1), Some(second));
    assert_eq!(ranges.block_at(region, 4 * KIB), None);
    assert_eq!(ranges.block_at(region, KIB), None);
    assert_eq!(ranges.block_at(RegionId(3), 0), None);
}

#[test]
fn a_region_shrinks_to_its_last_block_and_no_further() {
    let (mut ranges, region) = growing(64 * KIB);
    alloc(&mut ranges, 2 * KIB);
    let last = alloc(&mut ranges, 2 * KIB);
    let refused = PoolError::TailInUse { region, used: 4 * KIB, len: 3 * KIB };
    assert_eq!(ranges.resize_region(region, 3 * KIB), Err(refused));
    ranges.resize_region(region, 4 * KIB).unwrap();
    assert_eq!(ranges.stats().free, 0);
    ranges.free(last.id).unwrap();
    ranges.resize_region(region, 2 * KIB).unwrap();
    let stats = ranges.stats();
    assert_eq!((stats.reserved, stats.peak_reserved, stats.peak_live), (2 * KIB, 64 * KIB, 4 * KIB));
    ranges.reset_peaks();
    assert_eq!((ranges.stats().peak_reserved, ranges.stats().peak_live), (2 * KIB, 2 * KIB));
}

#[test]
fn a_fixed_region_neither_grows_nor_goes_while_it_is_in_use() {
    let mut ranges = Ranges::default();
    let region = ranges.add_region(RegionKind::Fixed, 4 * KIB).unwrap();
    assert_eq!(ranges.resize_region(region, 8 * KIB), Err(PoolError::FixedRegion { region }));
    let block = alloc(&mut ranges, KIB);
    let held = PoolError::RegionInUse { region, live: 1, remembered: 0 };
    assert_eq!(ranges.remove_region(region), Err(held));
    ranges.free(block.id).unwrap();
    assert_eq!(ranges.remove_region(region), Ok(4 * KIB));
    assert_eq!(ranges.stats().reserved, 0);
    assert_eq!(ranges.remove_region(region), Err(PoolError::NoRegion { region }));
    assert_eq!(ranges.add_region(RegionKind::Growing, 0), Ok(region));
    ranges.audit().unwrap();
}

#[test]
fn fragmentation_is_zero_for_one_run_and_near_one_for_dust() {
    let (mut ranges, _) = growing(64 * KIB);
    assert!(ranges.stats().fragmentation().abs() < f64::EPSILON);
    let blocks = [(); 128].map(|()| alloc(&mut ranges, 512));
    assert!(ranges.stats().fragmentation().abs() < f64::EPSILON, "nothing is free");
    for block in blocks.iter().step_by(2) {
        ranges.free(block.id).unwrap();
    }
    let stats = ranges.stats();
    assert_eq!((stats.free_runs, stats.largest_free), (64, 512));
    assert!((stats.fragmentation() - (1.0 - 1.0 / 64.0)).abs() < 1e-12);
}

#[test]
fn addresses_do_not_depend_on_how_far_a_region_has_grown() {
    let program = |len| {
        let (mut ranges, _) = growing(len);
        let first = [5, 1, 2, 1].map(|kib| alloc(&mut ranges, kib * KIB));
        ranges.free(first[0].id).unwrap();
        ranges.free(first[2].id).unwrap();
        for kib in [2, 6, 4] {
            alloc(&mut ranges, kib * KIB);
        }
        offsets(&ranges)
    };
    assert_eq!(program(16 * KIB), program(1 << 30));
}
