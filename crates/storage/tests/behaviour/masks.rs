//! Expectations of what is dead, and what a checkpoint keeps.

use graphgrove_storage::{DeadMask, DeadMasks, LiveWords, Slab, live_storages};

use crate::rig::{slab_of, slot, take};

#[test]
fn a_recording_relies_on_everything_that_is_dead_on_its_path() {
    let mut path = [slab_of(3), slab_of(70)];
    let mut a = take(&mut path[0], 1);
    let mut b = take(&mut path[1], 1);
    assert!(DeadMasks::of(&path[..]).is_empty());
    drop(a.remove(1));
    drop(b.remove(66));
    let masks = DeadMasks::of(&path[..]);
    let expected = [DeadMask { place: 0, word: 0, mask: 0b010 }, DeadMask { place: 1, word: 1, mask: 0b100 }];
    assert_eq!(masks.masks(), expected);
    assert!(masks.hold(&path[..]));
    drop(a);
    assert!(masks.hold(&path[..]), "something expected live may be dead");
    let _again = take(&mut path[0], 2);
    assert!(!masks.hold(&path[..]), "something expected dead may not be live");
    assert_eq!(masks.violations(&path[..]).collect::<Vec<_>>(), [(0, slot(1))]);
    let by_reference: Vec<&Slab> = path.iter().collect();
    assert!(!masks.hold(&by_reference[..]));
    assert_eq!(by_reference[..].places(), 2);
}

#[test]
fn the_last_mask_counts_as_much_as_the_first() {
    let mut path = [slab_of(130)];
    let mut tensors = take(&mut path[0], 1);
    let last = tensors.remove(129);
    let first = tensors.remove(0);
    let masks = DeadMasks::new(vec![
        DeadMask { place: 0, word: 0, mask: 1 },
        DeadMask { place: 0, word: 2, mask: 0b10 },
    ]);
    assert!(!masks.hold(&path[..]));
    drop(first);
    assert!(!masks.hold(&path[..]));
    drop(last);
    assert!(masks.hold(&path[..]));
}

#[test]
fn a_child_adds_only_what_its_parent_does_not_demand() {
    let mask = |place, word, mask| DeadMask { place, word, mask };
    let parent = DeadMasks::new(vec![mask(0, 0, 0b0011), mask(2, 1, 0b1)]);
    let child = DeadMasks::new(vec![
        mask(2, 1, 0b1),
        mask(0, 0, 0b0110),
        mask(0, 0, 0b1000),
        mask(1, 0, 0b1),
        mask(3, 0, 0),
    ]);
    assert_eq!(child.masks(), [mask(0, 0, 0b1110), mask(1, 0, 0b1), mask(2, 1, 0b1)]);
    assert_eq!(child.beyond(&parent).masks(), [mask(0, 0, 0b1100), mask(1, 0, 0b1)]);
    assert_eq!(child.beyond(&DeadMasks::default()), child);
    assert!(child.beyond(&child).is_empty());
}

#[test]
fn masks_of_what_is_not_on_the_path_hold() {
    let masks = DeadMasks::new(vec![DeadMask { place: 9, word: 9, mask: 1 }]);
    assert!(masks.hold(&[slab_of(1)][..]));
}

#[test]
fn a_checkpoint_keeps_each_live_block_once() {
    let mut path = [slab_of(2), slab_of(1)];
    let a = take(&mut path[0], 1);
    let b = take(&mut path[1], 1);
    let view = a[1].reshape(&[2, 4]).unwrap();
    drop(a);
    let live: Vec<_> = live_storages(&path).map(|live| (live.place, live.slot, live.bytes)).collect();
    assert_eq!(live, [(0, slot(1), 512), (1, slot(0), 512)]);
    assert_eq!(live_storages(&path).next().unwrap().base.get(), 0x10_0200);
    drop((view, b));
    assert_eq!(live_storages(&path).count(), 0);
}

#[test]
fn two_demands_that_fail_alike_do_not_make_up_for_each_other() {
    struct Twice;
    impl LiveWords for Twice {
        fn places(&self) -> u32 {
            2
        }

        fn words(&self, _: u32) -> u32 {
            1
        }

        fn live_word(&self, _: u32, _: u32) -> u64 {
            1
        }

        fn own_word(&self, _: u32, _: u32) -> u64 {
            1
        }
    }
    let masks = DeadMasks::new(vec![
        DeadMask { place: 0, word: 0, mask: 1 },
        DeadMask { place: 1, word: 0, mask: 1 },
    ]);
    assert!(!masks.is_empty());
    assert!(!masks.hold(&Twice));
}
