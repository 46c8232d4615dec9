//! Handles that go on the thread that ran the node, beside those that go elsewhere.

use super::*;

#[test]
fn the_last_two_of_a_word_that_go_at_home_and_elsewhere_at_once_leave_nothing_live() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let (elsewhere, at_home) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let dropper = thread::spawn(move || drop(elsewhere));
        drop(at_home);
        assert_eq!(slab.live_word(0) & 0b1, 0);
        dropper.join().unwrap();
        assert!(!slab.any_live());
        // Neither does the one at home let go of anything of the next run.
        let new = take(&mut slab, 2);
        assert_eq!(slab.live_word(0), 0b11);
        drop(new);
        assert!(!slab.any_live());
        drop(slab);
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_run_that_begins_on_another_thread_while_a_handle_goes_at_home_keeps_its_own_outputs() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0), output(1)]);
        let mut old = take(&mut slab, 1);
        let kept = old.pop().unwrap();
        let engine = thread::spawn(move || {
            drop(kept);
            let new = take(&mut slab, 2);
            (slab, new)
        });
        drop(old);
        let (slab, new) = engine.join().unwrap();
        assert_eq!(slab.live_word(0), 0b11);
        assert!(new.iter().all(|tensor| tensor.address().is_ok()));
        drop((new, slab));
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn what_a_holder_did_at_home_comes_before_what_another_thread_does_once_the_slot_is_dead() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let kept = tensors.pop().unwrap();
        let memory = Memory::new();
        let engine = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                if !slab.is_live(slot(0)) {
                    memory.write();
                }
                slab
            }
        });
        memory.write();
        drop(tensors);
        drop((engine.join().unwrap(), kept));
    });
}

#[test]
fn memory_of_a_slab_that_goes_while_its_last_two_handles_do_goes_once_and_after_they_used_it() {
    bounded().check(|| {
        let memories = [Memory::new(), Memory::new()];
        let (mut slab, drops) = slab_over(&memories, vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let (elsewhere, at_home) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let holder = thread::spawn(use_and_drop(&memories[0], elsewhere));
        let engine = thread::spawn(move || {
            slab.sweep();
            drop(slab);
        });
        use_and_drop(&memories[1], at_home)();
        holder.join().unwrap();
        engine.join().unwrap();
        // Had the last two not seen each other go, this would find what they have left behind.
        let (another, _) = self::slab(vec![output(0)]);
        assert_eq!(drops.count(), 1);
        drop(another);
    });
}

#[test]
fn handles_of_a_slab_that_has_gone_free_its_memory_with_the_last_and_after_they_used_it() {
    // In one word, and in two; of a slab that went at home, and of one that went elsewhere.
    for (last, at_home) in [(1, true), (64, true), (1, false), (64, false)] {
        loom::model(move || {
            let memories = [Memory::new(), Memory::new()];
            let (mut slab, drops) = slab_over(&memories, (0..=last).map(output).collect());
            let mut tensors = take(&mut slab, 1);
            let (high, low) = (tensors.pop().unwrap(), tensors.swap_remove(0));
            drop(tensors);
            if at_home {
                drop(slab);
            } else {
                thread::spawn(move || drop(slab)).join().unwrap();
            }
            let holder = thread::spawn(use_and_drop(&memories[0], high));
            use_and_drop(&memories[1], low)();
            holder.join().unwrap();
            assert_eq!(drops.count(), 1);
        });
    }
}

#[test]
fn what_the_last_two_left_behind_goes_at_the_end_of_the_home_when_the_slab_went_meanwhile() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let (elsewhere, at_home) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let engine = thread::spawn(move || drop((elsewhere, slab)));
        drop(at_home);
        end_thread();
        engine.join().unwrap();
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_watch_that_saw_its_value_die_does_not_see_it_come_back() {
    // The last of a word clears its bit; one that is not the last only notes that it has gone.
    for outputs in [1, 2] {
        loom::model(move || {
            let (mut slab, _drops) = slab((0..outputs).map(output).collect());
            let mut tensors = take(&mut slab, 1);
            let watch = tensors[0].storage().watch().unwrap();
            let watcher = thread::spawn(move || {
                let first = watch.is_live();
                let second = watch.is_live();
                assert!(first || !second, "a dead value came back to life");
            });
            drop(tensors.remove(0));
            drop(tensors);
            let new = take(&mut slab, 2);
            watcher.join().unwrap();
            drop(new);
        });
    }
}

#[test]
fn what_holders_did_elsewhere_comes_before_what_is_done_once_nothing_is_live() {
    // In one word, and in two.
    for last in [1, 64] {
        loom::model(move || {
            let (mut slab, _drops) = slab((0..=last).map(output).collect());
            let mut tensors = take(&mut slab, 1);
            let (high, low) = (tensors.pop().unwrap(), tensors.swap_remove(0));
            drop(tensors);
            let memories = [Memory::new(), Memory::new()];
            let one = thread::spawn(use_and_drop(&memories[0], low));
            let two = thread::spawn(use_and_drop(&memories[1], high));
            if !slab.any_live() {
                memories.iter().for_each(|memory| memory.write());
            }
            one.join().unwrap();
            two.join().unwrap();
        });
    }
}

#[test]
fn what_a_holder_did_at_home_comes_before_what_is_done_elsewhere_once_nothing_is_live() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let kept = tensors.pop();
        let memory = Memory::new();
        let engine = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                drop(kept);
                if !slab.any_live() {
                    memory.write();
                }
                slab.sweep();
                if !slab.any_live() {
                    memory.write();
                }
                slab
            }
        });
        memory.write();
        drop(tensors);
        drop(engine.join().unwrap());
    });
}

#[test]
fn what_a_holder_did_at_home_comes_before_what_the_last_holder_does_once_all_is_dead() {
    bounded().check(|| {
        let ledger = Ledger::new();
        let mut slab = Slab::new(&ledger, "F", 0, vec![output(0), output(1)]).unwrap();
        let mut tensors = take(&mut slab, 1);
        let (last, at_home) = (tensors.pop(), tensors.pop().unwrap());
        let memory = Memory::new();
        let engine = thread::spawn(move || {
            slab.sweep();
            slab
        });
        let holder = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                drop(last);
                if ledger.all_dead() {
                    memory.write();
                }
            }
        });
        use_and_drop(&memory, at_home)();
        holder.join().unwrap();
        drop(engine.join().unwrap());
    });
}

#[test]
fn what_a_holder_did_elsewhere_comes_before_what_is_done_at_home_once_nothing_is_live() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let elsewhere = tensors.pop().unwrap();
        let memory = Memory::new();
        let holder = thread::spawn(use_and_drop(&memory, elsewhere));
        drop(tensors);
        slab.sweep();
        if !slab.any_live() {
            memory.write();
        }
        holder.join().unwrap();
    });
}

#[test]
fn a_run_and_a_sweep_come_upon_what_the_last_two_of_a_word_have_left_undone_in_an_earlier_run() {
    for sweeps in [false, true] {
        loom::model(move || {
            let ledger = Ledger::new();
            let mut slab = Slab::new(&ledger, "F", 0, vec![output(0), output(1)]).unwrap();
            let mut first = take(&mut slab, 1);
            let second = take(&mut slab, 2);
            let elsewhere = first.pop();
            let dropper = thread::spawn(move || drop(elsewhere));
            drop(first);
            dropper.join().unwrap();
            if sweeps {
                slab.sweep();
            } else {
                drop(take(&mut slab, 3));
            }
            drop(second);
            assert!(ledger.all_dead());
        });
    }
}

#[test]
fn a_sweep_does_what_the_last_two_of_a_word_have_left_undone() {
    loom::model(|| {
        let ledger = Ledger::new();
        let mut slab = Slab::new(&ledger, "F", 0, vec![output(0), output(1)]).unwrap();
        let mut tensors = take(&mut slab, 1);
        let (elsewhere, at_home) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let dropper = thread::spawn(move || drop(elsewhere));
        drop(at_home);
        slab.sweep();
        dropper.join().unwrap();
        slab.sweep();
        assert!(ledger.all_dead());
        slab.sweep();
        drop((take(&mut slab, 2), slab));
        assert!(ledger.all_dead());
    });
}

#[test]
fn a_slot_that_somebody_holds_is_live_whatever_goes_around_it() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0), output(1)]);
        let tensors = take(&mut slab, 1);
        let watch = tensors[0].storage().watch().unwrap();
        let again = tensors[0].clone();
        let holder = thread::spawn(move || {
            assert!(watch.is_live());
            drop(again);
        });
        drop(tensors);
        holder.join().unwrap();
        assert!(!slab.any_live());
    });
}

#[test]
fn a_handle_that_was_cloned_elsewhere_outlives_the_one_that_it_was_cloned_from() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0)]);
        let shared = loom::sync::Arc::new(take(&mut slab, 1).pop().unwrap());
        let cloner = thread::spawn({
            let shared = loom::sync::Arc::clone(&shared);
            move || Tensor::clone(&shared)
        });
        drop(shared);
        let again = cloner.join().unwrap();
        assert!(slab.is_live(slot(0)) && again.address().is_ok());
        drop(again);
        assert!(!slab.any_live());
    });
}

#[test]
fn outputs_that_nobody_took_go_elsewhere_while_a_handle_of_their_word_goes_at_home() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0), output(1).read_by(Readers::Both), output(2)]);
        let mut back = slab.hand_back(Step::new(1), none).unwrap();
        let at_home = (back.outputs.take(slot(0)), back.outputs.take(slot(1)));
        let outputs = thread::spawn(move || drop(back.outputs));
        drop(at_home);
        assert_eq!(slab.live_word(0) & 0b011, 0b010, "the backward has it");
        outputs.join().unwrap();
        drop((back.saved, slab));
        assert_eq!(drops.count(), 1);
    });
}
