//! Handles: who holds a slot, and what the last one to let go does.

use std::sync::{Arc, Barrier};
use std::thread;

use graphgrove_storage::{Ledger, Outputs, Pinned, SavedOutputs, Slab, Storage, Tensor};

use crate::rig::{Census, fresh, no_source, run, slab, slab_of, slot, step, take};

#[test]
fn a_slot_lives_until_its_last_handle_is_gone() {
    let mut slab = slab_of(3);
    let mut tensors = take(&mut slab, 1);
    assert_eq!(slab.live_word(0), 0b111);
    let again = tensors[1].clone();
    let view = again.slice(0, 2..4, 1).unwrap();
    tensors.remove(1);
    drop(again);
    assert_eq!(slab.live_word(0), 0b111);
    drop(view);
    assert_eq!(slab.live_word(0), 0b101);
    assert_eq!(slab.live().collect::<Vec<_>>(), [slot(0), slot(2)]);
    tensors.clear();
    assert!(!slab.any_live() && !slab.is_live(slot(0)));
}

#[test]
fn a_slab_that_never_ran_is_dead() {
    let mut slab = slab_of(2);
    assert!(!slab.any_live());
    assert_eq!((slab.epoch().get(), slab.died().count(), slab.words()), (0, 0, 1));
    assert_eq!((slab.live_word(0), slab.live_word(9), slab.own_word(0), slab.own_word(9)), (0, 0, 0b11, 0));
}

#[test]
fn a_slot_is_dead_the_moment_that_it_is_dropped_and_reported_once() {
    let mut slab = slab_of(70);
    let mut tensors = take(&mut slab, 1);
    assert_eq!(slab.died().count(), 0);
    tensors.swap_remove(65);
    tensors.swap_remove(3);
    assert_eq!(slab.died().collect::<Vec<_>>(), [slot(3), slot(65)]);
    assert_eq!(slab.died().count(), 0);
    tensors.clear();
    assert_eq!(slab.died().count(), 68);
    drop(run(&mut slab, 2));
    assert_eq!(slab.died().count(), 70);
}

#[test]
fn handles_cross_threads() {
    fn can_cross<T: Send + Sync>() {}
    can_cross::<Tensor>();
    can_cross::<Storage>();
    can_cross::<Slab>();
    can_cross::<Outputs>();
    can_cross::<SavedOutputs>();
    can_cross::<Pinned>();
    let mut slab = slab_of(100);
    let tensors = Arc::new(take(&mut slab, 1));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let tensors = Arc::clone(&tensors);
            thread::spawn(move || {
                for _ in 0..200 {
                    let copies: Vec<_> = tensors.iter().cloned().collect();
                    drop(copies);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(slab.live().count(), 100);
    assert_eq!(slab.holders(slot(99)).handles, 1);
    drop(tensors);
    assert!(!slab.any_live());
}

#[test]
fn handles_outlive_the_slab_and_keep_what_the_ledger_keeps() {
    let census = Census::default();
    let ledger = Ledger::keeping(census.owner());
    let mut slab = slab(&ledger, (0..65).map(fresh).collect());
    let tensors = take(&mut slab, 1);
    let last = tensors[64].transpose(0, 0).unwrap();
    drop((slab, ledger));
    assert_eq!(census.alive(), 1);
    assert!(last.address().is_ok());
    drop(tensors);
    assert_eq!(census.alive(), 1);
    assert_eq!(last.address().unwrap().get(), 0x10_0000 + 64 * 512);
    drop(last);
    assert_eq!(census.alive(), 0);
}

#[test]
fn what_waits_and_what_is_saved_outlives_the_slab_too() {
    let census = Census::default();
    let ledger = Ledger::keeping(census.owner());
    let saved = fresh(1).read_by(graphgrove_storage::Readers::Backward);
    let mut slab = slab(&ledger, vec![fresh(0), saved]);
    let mut back = run(&mut slab, 1);
    drop((slab, ledger));
    let output = back.outputs.take(slot(0)).unwrap();
    drop(back.outputs);
    drop(output);
    assert_eq!(census.alive(), 1);
    let read = back.saved.as_ref().unwrap().tensor(slot(1)).unwrap();
    drop(back.saved);
    assert_eq!((census.alive(), read.address().is_ok()), (1, true));
    drop(read);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_ledger_knows_in_one_look_whether_anything_is_held() {
    let ledger = Ledger::new();
    let mut slabs: Vec<_> = (0..3).map(|_| slab(&ledger, (0..130).map(fresh).collect())).collect();
    assert!(ledger.all_dead());
    let held: Vec<_> = slabs.iter_mut().map(|slab| take(slab, 1)).collect();
    assert!(!ledger.all_dead());
    let mut last = held.into_iter().next_back().unwrap();
    assert!(!ledger.all_dead());
    last.truncate(1);
    assert!(!ledger.all_dead());
    drop(last);
    assert!(ledger.all_dead());
    assert_eq!(format!("{ledger:?}"), "Ledger { all_dead: true, .. }");
}

#[test]
fn who_holds_a_slot_is_told_apart() {
    let both = fresh(1).read_by(graphgrove_storage::Readers::Both);
    let mut slab = slab(&Ledger::new(), vec![fresh(0), both]);
    let mut back = run(&mut slab, 1);
    let holders = slab.holders(slot(1));
    assert_eq!((holders.handles, holders.waiting, holders.saved), (0, 1, true));
    let tensor = back.outputs.take(slot(1)).unwrap();
    let view = tensor.reshape(&[2, 4]).unwrap();
    let holders = slab.holders(slot(1));
    assert_eq!((holders.handles, holders.waiting, holders.saved), (2, 0, true));
    drop(back.saved);
    assert!(!slab.holders(slot(1)).saved);
    drop((tensor, view));
    assert!(slab.holders(slot(1)).is_none() && !slab.holders(slot(0)).is_none());
}

#[test]
fn a_slab_says_what_it_is() {
    let mut slab = slab_of(2);
    let _back = slab.hand_back(step(4), no_source).unwrap();
    assert_eq!((slab.key(), slab.producer(), slab.outputs().len()), (7, "F", 2));
    assert_eq!(slab.block(slot(1)).unwrap().0.get(), 0x10_0200);
    assert_eq!(slab.block(slot(2)), None);
    assert_eq!(format!("{slab:?}"), format!("Slab({} of F, epoch 1, live [0, 1])", slab.id()));
}

#[test]
fn handles_of_one_word_that_go_on_several_threads_at_once_all_count() {
    let rounds = if cfg!(miri) { 1 } else { 200 };
    let mut slab = slab_of(64);
    for number in 0..rounds {
        let mut parts: [Vec<Tensor>; 4] = Default::default();
        for (tensor, part) in take(&mut slab, number).into_iter().zip((0..4).cycle()) {
            parts[part].push(tensor);
        }
        let [at_home, elsewhere @ ..] = parts;
        let at_once = Barrier::new(4);
        thread::scope(|scope| {
            for part in elsewhere {
                scope.spawn(|| {
                    at_once.wait();
                    drop(part);
                });
            }
            at_once.wait();
            drop(at_home);
        });
        assert_eq!(slab.live_word(0), 0, "round {number}");
    }
}

#[test]
fn handles_of_a_slab_that_has_gone_on_another_thread_free_its_memory_with_the_last_of_each_run() {
    let census = Census::default();
    let ledger = Ledger::keeping(census.owner());
    let mut slab = slab(&ledger, (0..65).map(fresh).collect());
    let kept: Vec<_> = (1..4).map(|number| take(&mut slab, number)).collect();
    let watch = kept[1][64].storage().watch().unwrap();
    thread::spawn(move || drop((slab, ledger))).join().unwrap();
    assert!(kept.iter().flatten().all(|tensor| tensor.storage().watch().is_some()));
    let [first, second, mut last] = <[_; 3]>::try_from(kept).unwrap();
    drop((first, second));
    assert_eq!((census.alive(), watch.is_live()), (1, false));
    drop(watch);
    last.swap_remove(0);
    assert_eq!((census.alive(), last[0].address().unwrap().get()), (1, 0x10_0000 + 64 * 512));
    drop(last);
    assert_eq!(census.alive(), 0);
}

#[test]
fn the_only_handle_of_a_slab_that_has_gone_on_another_thread_frees_its_memory() {
    let census = Census::default();
    let mut slab = slab(&Ledger::keeping(census.owner()), vec![fresh(0)]);
    let only = take(&mut slab, 1);
    thread::spawn(move || drop(slab)).join().unwrap();
    assert_eq!(census.alive(), 1);
    drop(only);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_thread_that_ends_leaves_handles_to_others_and_their_slots_to_whoever_runs_next() {
    let mut slab = slab_of(3);
    for number in 1..20 {
        let (back, kept) = thread::spawn(move || {
            let mut tensors = take(&mut slab, number);
            let kept = tensors.pop();
            drop(tensors.pop());
            (slab, (tensors, kept))
        })
        .join()
        .unwrap();
        slab = back;
        assert_eq!(slab.live_word(0), 0b101);
        thread::scope(|scope| {
            scope.spawn(|| drop(kept.0));
            scope.spawn(|| assert!(kept.1.is_some_and(|tensor| tensor.address().is_ok())));
        });
        assert!(!slab.any_live());
    }
}
