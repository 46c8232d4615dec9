//! Epochs: every way to a value whose time is over is an error that says why.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    Cause, Error, Event, InputPlan, InputSpec, OldOutput, Remedy, Stale, Storage, StorageCache, Tensor,
    Watch, abandon,
};

use crate::rig::{Census, Rig, began, floats, outside, run, slab_of, slot, step, take};

fn stale(error: &Error) -> &Stale {
    match error {
        Error::Stale(stale) => stale,
        other => panic!("expected a stale handle, found {other}"),
    }
}

#[test]
fn reuse_of_a_slot_makes_every_older_handle_stale() {
    let mut slab = slab_of(2);
    let old = take(&mut slab, 1);
    let view = old[0].slice(0, 1..3, 1).unwrap();
    let new = take(&mut slab, 2);
    for handle in [&old[0], &old[1], &view] {
        let error = handle.address().unwrap_err();
        assert_eq!(stale(&error).cause, Cause { event: Event::RanAgain, step: step(2), by: None });
    }
    assert!(new.iter().all(|tensor| tensor.address().is_ok()));
    assert_eq!((slab.epoch().get(), slab.live_word(0)), (2, 0b11));
    // The old handles' drops are not taken for drops of the new ones.
    drop((old, view));
    assert_eq!(slab.live_word(0), 0b11);
    drop(new);
    assert_eq!(slab.live_word(0), 0);
}

#[test]
fn a_value_is_one_of_its_own_slab_slot_and_run_for_as_long_as_it_is_there() {
    let mut rig = Rig::new();
    let (mut slab, mut other) = (slab_of(2), slab_of(2));
    let (mine, theirs) = (take(&mut slab, 1), take(&mut other, 1));
    assert!(mine[0].is_value_of(&slab, slot(0)) && mine[0].is_output_of(&slab, slot(0)));
    assert!(!mine[0].is_value_of(&slab, slot(1)) && !mine[0].is_output_of(&slab, slot(1)));
    let view = mine[1].slice(0, 1..3, 1).unwrap();
    assert!(view.is_value_of(&slab, slot(1)) && !view.is_output_of(&slab, slot(1)));
    let rule = |of| if of == slot(0) { OldOutput::Error } else { OldOutput::Keep };
    let at = rig.block();
    slab.end_step(&rig.device, &rig.stream, &began(2), rule, |_| Ok((at, Box::new(())))).unwrap();
    assert!(!mine[0].is_value_of(&slab, slot(0)) && mine[1].is_value_of(&slab, slot(1)));
    assert!(!mine[1].is_output_of(&slab, slot(1)), "that takes a closer look");
    for (number, tensor) in (0..).map(slot).zip(&theirs) {
        assert!(!tensor.is_value_of(&slab, number) && !tensor.is_output_of(&slab, number));
    }
    drop(mine);
    let again = take(&mut slab, 3);
    assert!(again[1].is_value_of(&slab, slot(1)) && !view.is_value_of(&slab, slot(1)));
}

#[test]
fn a_tensor_is_located_under_its_own_layout_and_while_it_is_there() {
    let mut slab = slab_of(1);
    let output = take(&mut slab, 1).remove(0);
    let foreign = outside(0x1000, 8);
    for tensor in [&output, &foreign] {
        let view = tensor.slice(0, 1..3, 1).unwrap();
        for (of, other) in [(tensor, &view), (&view, tensor)] {
            let address = of.address().ok();
            assert_eq!((of.locate(), of.locate_as(of.signature())), (address, address));
            assert_eq!(of.locate_as(other.signature()), None);
        }
    }
    slab.invalidate(&began(2)).unwrap();
    assert_eq!((output.locate(), output.locate_as(output.signature())), (None, None));
    assert!(foreign.locate().is_some());
}

#[test]
fn each_way_to_a_stale_value_is_an_error_with_producer_step_and_cause() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 3).remove(0);
    slab.invalidate(&began(4)).unwrap();
    let expected =
        Stale { producer: "F".into(), slot: slot(0), epoch: slab.epoch(), made_in: step(3), cause: began(4) };
    let other = take(&mut slab_of(1), 1).remove(0);
    let ways = [
        ("address", tensor.address().err()),
        ("view", tensor.slice(0, 0..1, 1).err()),
        ("transpose", tensor.transpose(0, 0).err()),
        ("reshape", tensor.reshape(&[8]).err()),
        ("reshape otherwise", tensor.reshape(&[2, 4]).err()),
        ("input", tensor.as_input().err()),
        ("input plan", InputPlan::new(&[InputSpec::read(&tensor)], 16, |_| true).err()),
        ("comparison", tensor.shares_storage(&other).err()),
        ("comparison from the other side", other.shares_storage(&tensor).err()),
        ("base", tensor.storage().base().err()),
        ("length", tensor.storage().bytes().err()),
        ("identity", tensor.storage().id().err()),
        ("slot", tensor.storage().slot_value().err()),
        ("cache", StorageCache::new().add(tensor.storage()).err()),
        ("clone", tensor.clone().address().err()),
    ];
    for (way, error) in ways {
        let error = error.unwrap_or_else(|| panic!("{way} went through"));
        assert_eq!(stale(&error), &expected, "{way}");
    }
    assert_eq!(tensor.storage().stale().as_deref(), Some(&expected));
    assert_eq!(tensor.shape(), [8], "what was recorded of it can still be asked");
    assert!(format!("{tensor:?}").contains("is gone"));
    assert!(other.storage().stale().is_none());
}

#[test]
fn the_error_names_only_remedies_for_its_cause() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 1).remove(0);
    slab.invalidate(&began(2)).unwrap();
    let error = tensor.address().unwrap_err();
    assert_eq!(stale(&error).remedy(), Remedy::CopyOutOrKeep);
    assert_eq!(
        error.to_string(),
        "output 0 of F, made in step 1, is gone: step 2 began with G; let the output be copied out or kept"
    );
    let tensor = take(&mut slab, 3).remove(0);
    slab.invalidate(&Cause { event: Event::Released, step: step(3), by: None }).unwrap();
    assert_eq!(stale(&tensor.address().unwrap_err()).remedy(), Remedy::CopyBefore);
}

#[test]
fn what_is_invalid_is_dead_at_once_whoever_still_has_handles() {
    let mut slab = slab_of(2);
    let tensors = take(&mut slab, 1);
    slab.invalidate(&began(2)).unwrap();
    assert!(!slab.any_live() && slab.holders(slot(0)).is_none());
    assert_eq!(slab.died().count(), 2);
    drop(tensors);
    assert_eq!(slab.died().count(), 0);
}

#[test]
fn invalidating_twice_keeps_the_first_cause() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 1).remove(0);
    slab.invalidate(&began(2)).unwrap();
    slab.invalidate(&began(3)).unwrap();
    let new = take(&mut slab, 4);
    assert_eq!(stale(&tensor.address().unwrap_err()).cause, began(2));
    assert!(new[0].address().is_ok());
}

#[test]
fn what_became_of_a_run_is_not_found_by_handles_of_the_next_one() {
    let mut rig = Rig::new();
    let mut slab = slab_of(2);
    let old = take(&mut slab, 1);
    slab.invalidate(&began(2)).unwrap();
    drop(old); // So the very same sheet begins the next run.
    let new = take(&mut slab, 2);
    let watch = new[0].storage().watch().unwrap();
    assert!(watch.is_live());
    let rule = |of| if of == slot(0) { OldOutput::Keep } else { OldOutput::Error };
    let at = rig.block();
    slab.end_step(&rig.device, &rig.stream, &began(3), rule, |_| Ok((at, Box::new(())))).unwrap();
    assert!(new[0].address().is_ok() && watch.is_live());
    assert_eq!(stale(&new[1].address().unwrap_err()).cause, began(3));
}

#[test]
fn an_ending_that_is_dropped_or_comes_after_another_run_changes_nothing() {
    let rig = Rig::new();
    let mut slab = slab_of(2);
    let old = take(&mut slab, 1);
    let rule = |of| if of == slot(0) { OldOutput::Keep } else { OldOutput::Error };
    let prepare = |slab: &graphgrove_storage::Slab| {
        let no_room = |_| Err(Error::TooLarge);
        slab.prepare_end(&rig.device, &rig.stream, &began(2), rule, no_room).unwrap()
    };
    drop(prepare(&slab));
    assert!(old.iter().all(|tensor| tensor.address().is_ok()));
    let of_before = prepare(&slab);
    assert_eq!(of_before.kept(), [slot(0)]);
    drop(old);
    let new = take(&mut slab, 2);
    assert_eq!(slab.end(of_before), graphgrove_storage::Ended::default());
    assert!(new.iter().all(|tensor| tensor.address().is_ok()));
    let ending = prepare(&slab);
    let ended = slab.end(ending);
    assert_eq!((ended.kept, ended.stale), (vec![slot(0)], vec![slot(1)]));
    assert!(new[0].address().is_ok());
    assert_eq!(stale(&new[1].address().unwrap_err()).cause, began(2));
}

#[test]
fn a_dead_slot_does_not_make_its_neighbours_stale() {
    let mut slab = slab_of(2);
    let mut tensors = take(&mut slab, 1);
    drop(tensors.remove(0));
    assert!(tensors[0].address().is_ok());
}

#[test]
fn outputs_taken_after_their_step_are_stale_and_not_lost() {
    let mut slab = slab_of(1);
    let mut back = run(&mut slab, 1);
    slab.invalidate(&began(2)).unwrap();
    let tensor = back.outputs.take(slot(0)).unwrap();
    assert_eq!(stale(&tensor.address().unwrap_err()).cause, began(2));
}

#[test]
fn stale_handles_of_many_runs_never_meet() {
    let mut slab = slab_of(3);
    let mut old = Vec::new();
    for number in 1..=20 {
        old.push(take(&mut slab, number));
        assert_eq!(slab.live_word(0), 0b111);
    }
    for (number, tensors) in (1..20).zip(&old) {
        assert_eq!(stale(&tensors[0].address().unwrap_err()).made_in, step(number));
    }
    assert!(old[19][2].address().is_ok());
    old.truncate(19);
    old.clear();
    assert_eq!(slab.live_word(0), 0, "the last run's handles went with the others");
    assert_eq!(take(&mut slab, 21).len(), 3);
}

#[test]
fn a_watch_sees_death_staleness_and_reuse() {
    let mut slab = slab_of(2);
    let mut tensors = take(&mut slab, 1);
    let watches: Vec<_> = tensors.iter().map(|tensor| tensor.storage().watch().unwrap()).collect();
    assert!(watches.iter().all(Watch::is_live));
    drop(tensors.remove(0));
    assert!(!watches[0].is_live() && watches[1].is_live());
    slab.invalidate(&began(2)).unwrap();
    assert!(!watches[1].is_live());
    drop(tensors);
    let _new = take(&mut slab, 2);
    assert!(!watches[0].is_live() && !watches[1].is_live());
}

#[test]
fn a_watch_of_a_kept_output_stays_true_when_its_neighbour_goes_stale() {
    let mut rig = Rig::new();
    let mut slab = slab_of(2);
    let tensors = take(&mut slab, 1);
    let watches: Vec<_> = tensors.iter().map(|tensor| tensor.storage().watch().unwrap()).collect();
    let rule = |of| if of == slot(0) { OldOutput::Keep } else { OldOutput::Error };
    let at = rig.block();
    slab.end_step(&rig.device, &rig.stream, &began(2), rule, |_| Ok((at, Box::new(())))).unwrap();
    assert!(watches[0].is_live() && !watches[1].is_live());
    assert!(tensors[0].address().is_ok() && tensors[1].address().is_err());
}

#[test]
fn what_a_failed_call_has_made_is_stale_for_whoever_has_it_and_its_owner_goes() {
    let census = Census::default();
    let block = |number: u64| Storage::pool_block(DevicePtr::new(0x1000 * number), 512, census.owner());
    let [kept, viewed, gone] = [1, 2, 3].map(block);
    let plain = Storage::outside(DevicePtr::new(0x9000), 512, census.owner());
    let watches: Vec<_> = [&kept, &viewed, &gone, &plain].into_iter().filter_map(Storage::watch).collect();
    drop(gone);
    let tensor = Tensor::new(viewed, floats(8), 32).unwrap();
    abandon(&watches, &"F".into(), step(4));
    assert_eq!(census.alive(), 1, "what is not the pool's is left alone");
    assert!(kept.base().is_err() && kept.id().is_err() && plain.base().is_ok());
    let error = tensor.address().unwrap_err();
    let said = "a tensor that F has made in step 4 is gone: that call failed; a function keeps nothing but what it returns or saves";
    assert_eq!((error.to_string().as_str(), stale(&error).remedy()), (said, Remedy::Return));
    assert!(watches.iter().map(Watch::is_live).eq([false, false, false, true]));
    abandon(&watches, &"G".into(), step(5));
    assert_eq!(tensor.address().unwrap_err(), error, "it is over once");
    drop((kept, tensor));
}
