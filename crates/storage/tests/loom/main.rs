//! Every interleaving of clone, drop, bulk set, epoch change and stale read, by the model checker loom:
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p graphgrove-storage --test loom --target-dir target/loom`
//!
//! Without that configuration there is nothing here.
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod home;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Real};

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    Cause, Error, Event, Layout, Ledger, OutputClass, PlannedOutput, Readers, Slab, SlotIndex, Step, Storage,
    Tensor, end_thread,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// Counts its drops, outside of loom's sight.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

struct Counted(Drops);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Real::Relaxed);
    }
}

impl Drops {
    fn count(&self) -> usize {
        self.0.load(Real::Relaxed)
    }
}

/// What only one may use at a time.
struct Memory(UnsafeCell<u32>);
// SAFETY: that no two threads touch the cell at once is what loom checks here.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    fn write(&self) {
        // SAFETY: loom checks that nobody else does this meanwhile.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

fn slot(number: u32) -> SlotIndex {
    SlotIndex::new(number)
}

fn output(number: u64) -> PlannedOutput {
    PlannedOutput::fresh(DevicePtr::new(0x1000 + 64 * number), 64, Layout::of::<f32>(&[8]).unwrap())
}

fn slab(outputs: Vec<PlannedOutput>) -> (Slab, Drops) {
    let drops = Drops::default();
    let ledger = Ledger::keeping(Counted(drops.clone()));
    (Slab::new(&ledger, "F", 0, outputs).unwrap(), drops)
}

/// A slab whose memory goes with what its holders write to.
fn slab_over(memories: &[Arc<Memory>], outputs: Vec<PlannedOutput>) -> (Slab, Drops) {
    struct Kept(Vec<Arc<Memory>>, #[expect(dead_code, reason = "it is there to be dropped")] Counted);
    impl Drop for Kept {
        fn drop(&mut self) {
            self.0.iter().for_each(|memory| memory.write());
        }
    }
    let drops = Drops::default();
    let ledger = Ledger::keeping(Kept(memories.to_vec(), Counted(drops.clone())));
    (Slab::new(&ledger, "F", 0, outputs).unwrap(), drops)
}

/// What a thread does that has a handle: it uses the memory, and lets go.
fn use_and_drop(memory: &Arc<Memory>, tensor: Tensor) -> impl FnOnce() + use<> {
    let memory = Arc::clone(memory);
    move || {
        memory.write();
        drop(tensor);
    }
}

fn none(_: SlotIndex, _: OutputClass) -> Option<Tensor> {
    None
}

fn take(slab: &mut Slab, number: u64) -> Vec<Tensor> {
    slab.hand_back(Step::new(number), none).unwrap().outputs.take_all().flatten().collect()
}

fn cause() -> Cause {
    Cause { event: Event::StepBegan, step: Step::new(2), by: None }
}

/// All interleavings of three threads that each may take a lock take hours: those with at most three preemptions.
fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model
}

#[test]
fn clones_and_drops_on_three_threads_clear_the_bit_once_and_only_in_the_end() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0), output(1)]);
        let mut tensors = take(&mut slab, 1);
        let (b, a) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let again = a.clone();
        let one = thread::spawn(move || {
            let third = a.clone();
            drop(a);
            drop(third);
        });
        let two = thread::spawn(move || drop(again));
        assert!(slab.is_live(slot(1)));
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(slab.live_word(0), 0b10);
        drop(slab);
        assert_eq!(drops.count(), 0);
        drop(b);
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_run_that_begins_while_the_last_handle_is_dropped_keeps_its_own_outputs() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0)]);
        let old = take(&mut slab, 1);
        let dropper = thread::spawn(move || drop(old));
        // Whether the old handle is still there or not decides on which sheet this runs.
        let new = take(&mut slab, 2);
        dropper.join().unwrap();
        assert_eq!(slab.live_word(0), 0b1);
        assert!(new[0].address().is_ok());
        drop((new, slab));
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_reader_that_knows_of_the_new_epoch_finds_its_handle_stale() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0)]);
        let tensor = take(&mut slab, 1).pop().unwrap();
        let told = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let told = Arc::clone(&told);
            move || {
                let first = tensor.address();
                let knows = told.load(Ordering::Acquire);
                let second = tensor.address();
                assert!(first.is_ok() || second.is_err(), "a stale handle came back to life");
                assert!(!knows || matches!(second, Err(Error::Stale(_))));
                tensor
            }
        });
        slab.invalidate(&cause()).unwrap();
        told.store(true, Ordering::Release);
        let tensor = reader.join().unwrap();
        assert!(matches!(tensor.address(), Err(Error::Stale(stale)) if stale.cause == cause()));
        assert!(!slab.any_live());
    });
}

#[test]
fn what_a_holder_did_comes_before_what_is_done_once_the_slot_is_dead() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0)]);
        let a = take(&mut slab, 1).pop().unwrap();
        let b = a.clone();
        let memories = [Memory::new(), Memory::new()];
        let threads = [a, b]
            .into_iter()
            .zip(&memories)
            .map(|(tensor, memory)| thread::spawn(use_and_drop(memory, tensor)));
        let threads: Vec<_> = threads.collect();
        if !slab.is_live(slot(0)) {
            memories.iter().for_each(|memory| memory.write());
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_token_and_a_users_view_of_what_it_saves_let_go_at_once() {
    loom::model(|| {
        let saved = output(0).read_by(Readers::Backward);
        let (mut slab, drops) = slab(vec![saved, output(1).read_by(Readers::Both)]);
        let mut back = slab.hand_back(Step::new(1), none).unwrap();
        let token = back.saved.take().unwrap();
        let view = token.tensor(slot(0)).unwrap();
        let backward = thread::spawn(move || drop(token));
        let outputs = thread::spawn(move || drop(back.outputs));
        drop(view);
        backward.join().unwrap();
        outputs.join().unwrap();
        assert!(!slab.any_live());
        drop(slab);
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn the_engine_and_its_last_handles_go_in_any_order_and_memory_goes_once() {
    bounded().check(|| {
        let (mut slab, drops) = slab(vec![output(0), output(1)]);
        let mut back = slab.hand_back(Step::new(1), none).unwrap();
        let tensor = back.outputs.take(slot(0)).unwrap();
        let watch = tensor.storage().watch().unwrap();
        let holder = thread::spawn(move || drop(tensor));
        let engine = thread::spawn(move || drop(slab));
        let _ = watch.is_live();
        drop(watch);
        drop(back);
        holder.join().unwrap();
        engine.join().unwrap();
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_slot_that_dies_on_another_thread_is_reported_exactly_once() {
    loom::model(|| {
        let (mut slab, _drops) = slab(vec![output(0), output(1)]);
        let tensors = take(&mut slab, 1);
        let dropper = thread::spawn(move || drop(tensors));
        let early = slab.died().count();
        dropper.join().unwrap();
        assert_eq!(early + slab.died().count(), 2);
    });
}

#[test]
fn outputs_taken_on_another_thread_are_those_of_their_own_run() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0)]);
        let mut late = slab.hand_back(Step::new(1), none).unwrap().outputs;
        let taker = thread::spawn(move || {
            let tensor = late.take(slot(0)).unwrap();
            drop(late);
            tensor
        });
        let new = take(&mut slab, 2);
        let old = taker.join().unwrap();
        assert!(old.address().is_err() && new[0].address().is_ok());
        drop(old);
        assert!(slab.is_live(slot(0)));
        drop((new, slab));
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn outputs_that_are_all_taken_reach_nothing_of_the_run_that_begins_meanwhile() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0)]);
        let mut late = slab.hand_back(Step::new(1), none).unwrap().outputs;
        let taker = thread::spawn(move || {
            drop(late.take(slot(0)).unwrap());
            // The slot is dead, so the next run may have begun, but these outputs have nothing to do with it.
            assert!(late.take(slot(0)).is_none());
        });
        let new = slab.hand_back(Step::new(2), none).unwrap();
        taker.join().unwrap();
        assert!(slab.is_live(slot(0)));
        drop((new, slab));
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_pin_that_is_taken_while_its_block_becomes_an_output_is_one_of_the_output() {
    loom::model(|| {
        let (mut slab, drops) = slab(vec![output(0)]);
        let block = Storage::pool_block(DevicePtr::new(0x1000), 64, Box::new(Counted(drops.clone())));
        let recorded = Tensor::new(block, Layout::of::<f32>(&[8]).unwrap(), 0).unwrap();
        let early = recorded.pin().unwrap();
        let elsewhere = recorded.clone();
        let pins = thread::spawn(move || elsewhere.pin().unwrap());
        let unpins = thread::spawn(move || drop(early));
        let (back, owners) = slab.hand_back_recorded(Step::new(1), &[Some(recorded)], none).unwrap();
        let late = pins.join().unwrap();
        unpins.join().unwrap();
        drop(back);
        assert_eq!((slab.pinned(), owners.len()), (Some(slot(0)), 1));
        drop(late);
        assert!(slab.pinned().is_none() && !slab.any_live());
        drop((slab, owners));
        assert_eq!(drops.count(), 2);
    });
}
