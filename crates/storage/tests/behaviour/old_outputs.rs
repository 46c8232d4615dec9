//! Old outputs at a new step: error, copied out, or kept.

use graphgrove_device::{Call, DeviceError};
use graphgrove_sim::{Failure, Fault};
use graphgrove_storage::{
    Ended, Error, Layout, Ledger, OldOutput, OutputClass, Owner, Pinned, PlannedOutput, Readers, Slab,
    SlotIndex, Storage, Tensor,
};

use crate::rig::{BLOCK, Census, Rig, began, floats, run, slab, slot, take};

struct Step {
    rig: Rig,
    slab: Slab,
    census: Census,
}

impl Step {
    fn new(count: u64) -> Self {
        let mut rig = Rig::new();
        let outputs = (0..count).map(|_| PlannedOutput::fresh(rig.block(), BLOCK, floats(8))).collect();
        let slab = slab(&Ledger::keeping(rig.keeper()), outputs);
        Self { rig, slab, census: Census::default() }
    }

    /// The node runs: each output's bytes are ten times the run plus its number.
    fn run(&mut self, number: u64) -> Vec<Tensor> {
        for (i, output) in (0..).zip(self.slab.outputs()) {
            self.rig.write(output.block.unwrap().0, 10 * number as u8 + i);
        }
        take(&mut self.slab, number)
    }

    fn end(&mut self, number: u64, rule: impl Fn(SlotIndex) -> OldOutput) -> Result<Ended, Error> {
        let Self { rig, slab, census } = self;
        let (device, stream) = (rig.device.clone(), rig.stream.clone());
        slab.end_step(&device, &stream, &began(number), rule, |bytes| {
            assert_eq!(bytes, BLOCK);
            Ok((rig.block(), census.owner()))
        })
    }
}

#[test]
fn each_output_has_its_own_rule() {
    let mut it = Step::new(4);
    let mut tensors = it.run(1);
    drop(tensors.remove(3));
    let ended = it
        .end(2, |of| {
            [OldOutput::Error, OldOutput::CopyOut, OldOutput::Keep, OldOutput::CopyOut][of.get() as usize]
        })
        .unwrap();
    assert_eq!((ended.stale, ended.copied, ended.kept), (vec![slot(0)], vec![slot(1)], vec![slot(2)]));
    assert_eq!((ended.bytes, it.census.alive()), (BLOCK, 1), "what is dead is not copied");
    assert!(it.rig.value(&tensors[0]).is_err());
    assert_eq!((it.rig.value(&tensors[1]), it.rig.value(&tensors[2])), (Ok(11), Ok(12)));
    assert_eq!(it.slab.live_word(0), 0b100);
    assert_eq!(it.slab.died().collect::<Vec<_>>(), [slot(0), slot(1), slot(3)]);
    // What is kept is dealt with at the next step, and what was copied stays where it is.
    let ended = it.end(3, |_| OldOutput::Error).unwrap();
    assert_eq!((ended.stale, ended.copied.len()), (vec![slot(2)], 0));
    assert!(it.rig.value(&tensors[2]).is_err());
    assert_eq!(it.rig.value(&tensors[1]), Ok(11));
    it.rig.verdict();
}

#[test]
fn a_storage_is_copied_once_and_all_its_views_are_there() {
    let mut rig = Rig::new();
    let (block, to) = (rig.block(), rig.block());
    let part = PlannedOutput::alias(OutputClass::Sibling(slot(0)), Layout::of::<f32>(&[4]).unwrap(), 16);
    let outputs = vec![PlannedOutput::fresh(block, BLOCK, floats(8)).read_by(Readers::Both), part];
    let mut slab = slab(&Ledger::new(), outputs);
    rig.write(block, 7);
    let mut back = run(&mut slab, 1);
    let whole = back.outputs.take(slot(0)).unwrap();
    let view = whole.slice(0, 4..6, 1).unwrap();
    let mut asked = 0;
    let ended = slab
        .end_step(
            &rig.device,
            &rig.stream,
            &began(2),
            |_| OldOutput::CopyOut,
            |_| {
                asked += 1;
                Ok((to, Box::new(())))
            },
        )
        .unwrap();
    assert_eq!((asked, ended.bytes), (1, BLOCK));
    rig.write(block, 9);
    rig.release(block);
    // The sibling is taken only now, and the backward looks only now.
    let part = back.outputs.take(slot(1)).unwrap();
    let saved = back.saved.as_ref().unwrap().tensor(slot(0)).unwrap();
    let copies = [&whole, &view, &part, &saved];
    for tensor in copies {
        assert_eq!(rig.value(tensor), Ok(7));
        assert!(tensor.shares_storage(&whole).unwrap());
    }
    assert_eq!(view.address().unwrap(), part.address().unwrap());
    assert_eq!(whole.address().unwrap(), to);
    // Views of a copy are views of the copy.
    assert_eq!(view.slice(0, 1..2, 1).unwrap().address().unwrap().get(), to.get() + 20);
    rig.verdict();
}

#[test]
fn a_copy_is_given_back_by_the_sweep_after_its_last_handle() {
    let mut it = Step::new(2);
    let mut tensors = it.run(1);
    it.end(2, |_| OldOutput::CopyOut).unwrap();
    assert_eq!((it.census.alive(), it.slab.sweep()), (2, 0));
    let second = tensors.remove(1);
    drop(tensors);
    assert_eq!(it.census.alive(), 2, "a drop gives nothing back by itself");
    assert_eq!((it.slab.sweep(), it.census.alive()), (1, 1));
    let newer = it.run(2);
    assert_eq!((it.rig.value(&second), it.rig.value(&newer[1])), (Ok(11), Ok(21)));
    drop(second);
    assert_eq!((it.slab.sweep(), it.census.alive()), (1, 0));
    it.rig.verdict();
}

#[test]
fn copies_outlive_the_slab_and_go_with_its_last_handle() {
    let mut it = Step::new(2);
    let tensors = it.run(1);
    it.end(2, |_| OldOutput::CopyOut).unwrap();
    let Step { rig, slab, census } = it;
    drop(slab);
    assert_eq!(rig.value(&tensors[0]), Ok(10));
    drop(tensors);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_slab_that_goes_lets_go_of_copies_that_nobody_reads() {
    let mut it = Step::new(3);
    let mut tensors = it.run(1);
    it.end(2, |_| OldOutput::CopyOut).unwrap();
    tensors.truncate(1);
    let Step { rig, slab, census } = it;
    assert_eq!(census.alive(), 3);
    drop(slab);
    assert_eq!((rig.value(&tensors[0]), census.alive()), (Ok(10), 1));
    drop(tensors);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_copy_that_fails_changes_nothing() {
    let mut it = Step::new(3);
    let tensors = it.run(1);
    it.rig.device.inject(Fault::at(Call::Copy, 1, Failure::OutOfMemory));
    let failed = it.end(2, |of| if of == slot(0) { OldOutput::Error } else { OldOutput::CopyOut });
    assert!(matches!(failed, Err(Error::Device(DeviceError::OutOfMemory { .. }))), "{failed:?}");
    assert_eq!((it.slab.live_word(0), it.census.alive()), (0b111, 0));
    assert_eq!(it.rig.value(&tensors[0]), Ok(10));
    let Step { rig, slab, .. } = &mut it;
    let none = |_| Err(Error::TooLarge);
    let failed = slab.end_step(&rig.device, &rig.stream, &began(2), |_| OldOutput::CopyOut, none);
    assert_eq!(failed, Err(Error::TooLarge));
    assert_eq!(it.rig.value(&tensors[2]), Ok(12));
}

#[test]
fn keeping_everything_touches_no_handle() {
    let mut it = Step::new(2);
    let tensors = it.run(1);
    let ended = it.end(2, |_| OldOutput::Keep).unwrap();
    assert_eq!((ended.kept.len(), ended.bytes, it.slab.live_word(0)), (2, 0, 0b11));
    assert!(tensors.iter().all(|tensor| tensor.address().is_ok()));
    assert_eq!(it.slab.died().count(), 0);
}

#[test]
fn sheets_are_used_again_once_nobody_holds_them() {
    let mut it = Step::new(1);
    for number in 1..25 {
        let old = it.run(number);
        it.end(number + 1, |_| OldOutput::CopyOut).unwrap();
        assert_eq!(it.rig.value(&old[0]), Ok(10 * number as u8));
        drop(old);
        it.slab.sweep();
        assert_eq!(it.census.alive(), 0);
    }
    it.rig.verdict();
}

#[test]
fn a_sweep_keeps_one_spare_sheet_and_whatever_is_held() {
    let census = Census::default();
    let ledger = Ledger::keeping(census.owner());
    let mut f = slab(&ledger, vec![crate::rig::fresh(0)]);
    let mut old: Vec<_> = (1..5).flat_map(|number| take(&mut f, number)).collect();
    assert_eq!(f.sweep(), 0, "there are no copies");
    let last = old.pop();
    drop(old);
    f.sweep();
    assert!(last.as_ref().is_some_and(|tensor| tensor.address().is_ok()));
    // The spare is used by the next run, whose older handle keeps its own sheet.
    let newer = take(&mut f, 5);
    f.sweep();
    assert!(last.is_some_and(|tensor| tensor.address().is_err()) && newer[0].address().is_ok());
    drop((newer, f, ledger));
    assert_eq!(census.alive(), 0);
}

#[test]
fn memory_that_is_refused_is_refused_before_anything_is_copied() {
    let mut it = Step::new(3);
    let _tensors = it.run(1);
    let before = it.rig.device.counts().of(Call::Copy);
    let Step { rig, slab, census } = &mut it;
    let mut left = 2;
    let failed = slab.end_step(
        &rig.device.clone(),
        &rig.stream.clone(),
        &began(2),
        |_| OldOutput::CopyOut,
        |_| {
            left = i32::checked_sub(left, 1).filter(|left| *left >= 0).ok_or(Error::TooLarge)?;
            Ok((rig.block(), census.owner()))
        },
    );
    assert_eq!(failed, Err(Error::TooLarge));
    assert_eq!((it.rig.device.counts().of(Call::Copy), it.census.alive()), (before, 0));
}

/// What owns a copy and takes part in the slab that it is a copy from.
struct Entangled(#[expect(dead_code, reason = "it is there to be dropped")] Pinned, Tensor);

impl Drop for Entangled {
    fn drop(&mut self) {
        assert!(self.1.pin().is_ok() && self.1.address().is_ok());
    }
}

#[test]
fn what_owns_a_copy_may_use_the_slab_when_it_goes() {
    for sweeps in [true, false] {
        let (done, waits) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut it = Step::new(2);
            let mut tensors = it.run(1);
            let other = tensors.remove(1);
            let Step { rig, slab, .. } = &mut it;
            let (device, stream, to) = (rig.device.clone(), rig.stream.clone(), rig.block());
            let rule = |of| if of == slot(0) { OldOutput::CopyOut } else { OldOutput::Keep };
            let allocate = |_| {
                let owner = Entangled(other.pin()?, other.clone());
                Ok((to, Box::new(owner) as Owner))
            };
            slab.end_step(&device, &stream, &began(2), rule, allocate).unwrap();
            drop((tensors, other));
            if sweeps {
                assert_eq!(slab.sweep(), 1);
                assert!(!slab.any_live());
            }
            drop(it);
            done.send(()).unwrap();
        });
        assert!(waits.recv_timeout(std::time::Duration::from_secs(20)).is_ok(), "the thread hangs or failed");
        thread.join().unwrap();
    }
}

#[test]
fn copies_of_many_runs_are_let_go_of_by_and_by() {
    const RUNS: usize = 200;
    let mut it = Step::new(1);
    let mut kept = Vec::new();
    for number in 1..=RUNS as u64 {
        kept.extend(it.run(number % 25));
        it.end(number + 1, |_| OldOutput::CopyOut).unwrap();
    }
    let value = |it: &Step, run: usize| it.rig.value(&kept[run - 1]);
    assert_eq!((value(&it, 1), value(&it, 20)), (Ok(10), Ok(200)));
    kept.truncate(20);
    let mut swept = 0;
    let sweeps = (1..).find(|_| {
        let now = it.slab.sweep();
        assert!(now <= 64 + 1, "one sweep looked at more than it may");
        swept += now;
        swept == RUNS - 20
    });
    assert!(sweeps.unwrap() <= RUNS / 64 + 1, "{sweeps:?}");
    assert_eq!((it.census.alive(), it.slab.sweep()), (20, 0));
    drop(kept);
    assert_eq!(it.slab.sweep(), 20);
    assert_eq!(it.census.alive(), 0);
    it.rig.verdict();
}

#[test]
fn whose_memory_a_storage_is_follows_it_out_of_the_slot() {
    struct Mine;
    let mut it = Step::new(1);
    let tensors = it.run(1);
    let storage = tensors[0].storage();
    assert_eq!(storage.is_owned_by::<Mine>(), Ok(false));
    let (device, stream) = (it.rig.device.clone(), it.rig.stream.clone());
    let rig = &mut it.rig;
    let copied = it.slab.end_step(
        &device,
        &stream,
        &began(2),
        |_| OldOutput::CopyOut,
        |_| Ok((rig.block(), Box::new(Mine) as Owner)),
    );
    assert_eq!(copied.unwrap().copied, [slot(0)]);
    assert_eq!(storage.is_owned_by::<Mine>(), Ok(true));
    assert_eq!(storage.is_owned_by::<u8>(), Ok(false));
    let outside = Storage::outside(it.rig.block(), BLOCK, Box::new(Mine));
    assert_eq!(
        (outside.is_owned_by::<Mine>(), Storage::empty().is_owned_by::<Mine>()),
        (Ok(true), Ok(false))
    );
}

#[test]
fn nobody_owns_a_value_that_is_gone() {
    let mut it = Step::new(1);
    let tensors = it.run(1);
    it.end(2, |_| OldOutput::Error).unwrap();
    assert!(matches!(tensors[0].storage().is_owned_by::<u8>(), Err(Error::Stale(_))));
}
