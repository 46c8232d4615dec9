//! Pins: an address that was passed on stays right.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{Error, Ledger, OldOutput, PlannedOutput, Storage, Tensor};

use crate::rig::{BLOCK, Rig, began, floats, no_source, outside, run, slab, slab_of, slot, step, take};

#[test]
fn a_pinned_output_is_kept_whatever_the_rule_and_its_node_does_not_run() {
    let mut rig = Rig::new();
    let mut slab = slab_of(3);
    let tensors = take(&mut slab, 1);
    let pins = [tensors[1].pin().unwrap(), tensors[1].pin().unwrap()];
    assert_eq!(pins[0].address(), tensors[1].address().unwrap());
    assert!(slab.is_pinned(slot(1)) && !slab.is_pinned(slot(0)));
    assert_eq!(slab.invalidate(&began(2)), Err(Error::Pinned { slot: slot(1) }));
    assert_eq!(slab.hand_back(step(2), no_source).unwrap_err(), Error::Pinned { slot: slot(1) });
    assert!(tensors.iter().all(|tensor| tensor.address().is_ok()), "nothing has changed");
    assert_eq!((slab.live_word(0), slab.died().count()), (0b111, 0));
    assert_eq!(slab.epoch().get(), 1);
    let at = rig.block();
    for rule in [OldOutput::Error, OldOutput::CopyOut] {
        let ended = slab.end_step(
            &rig.device,
            &rig.stream,
            &began(2),
            |of| if of == slot(0) { OldOutput::Error } else { rule },
            |_| Ok((at, Box::new(()))),
        );
        assert!(ended.unwrap().kept.contains(&slot(1)));
        assert_eq!(pins[1].address(), tensors[1].address().unwrap());
    }
    drop(pins);
    assert!(!slab.is_pinned(slot(1)));
    slab.invalidate(&began(3)).unwrap();
    assert!(matches!(tensors[1].pin(), Err(Error::Stale(_))));
}

#[test]
fn a_pin_holds_the_slot_and_goes_by_itself() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 1).remove(0);
    let first = tensor.pin().unwrap();
    let second = first.tensor().pin().unwrap();
    drop(tensor);
    drop(first);
    assert!(slab.is_live(slot(0)) && slab.is_pinned(slot(0)));
    drop(second);
    assert!(!slab.is_live(slot(0)));
    drop(run(&mut slab, 2));
}

#[test]
fn memory_with_an_owner_of_its_own_needs_no_pin() {
    let mut rig = Rig::new();
    let x = outside(0x1000, 8);
    let pin = x.pin().unwrap();
    assert_eq!((pin.address().get(), pin.tensor().shape()), (0x1000, &[8][..]));
    assert!(format!("{pin:?}").starts_with("Pinned(Tensor(f32 [8]"));
    // What was copied out lies in memory of its own too.
    let (from, to) = (rig.block(), rig.block());
    let output = PlannedOutput::fresh(from, BLOCK, floats(8));
    let mut slab = slab(&Ledger::new(), vec![output]);
    rig.write(from, 1);
    let tensor = take(&mut slab, 1).remove(0);
    slab.end_step(&rig.device, &rig.stream, &began(2), |_| OldOutput::CopyOut, |_| Ok((to, Box::new(()))))
        .unwrap();
    let pin = tensor.pin().unwrap();
    assert_eq!(pin.address(), to);
    let _new = take(&mut slab, 2);
    drop(pin);
    assert_eq!(tensor.address().unwrap(), to);
}

#[test]
fn a_block_that_is_pinned_before_it_is_an_output_is_pinned_as_one() {
    let storage = Storage::pool_block(DevicePtr::new(0x9000), BLOCK, Box::new(()));
    let recorded = Tensor::new(storage, floats(8), 0).unwrap();
    let pins = [recorded.pin().unwrap(), recorded.pin().unwrap(), recorded.pin().unwrap()];
    let [first, second, third] = pins;
    drop(first);
    let block = (DevicePtr::new(0x9000), BLOCK);
    let mut slab = slab(&Ledger::new(), vec![PlannedOutput::fresh(block.0, block.1, floats(8))]);
    let (back, _owners) = slab.hand_back_recorded(step(1), &[Some(recorded.clone())], no_source).unwrap();
    let fourth = recorded.pin().unwrap();
    for pin in [fourth, second, third] {
        assert_eq!(slab.pinned(), Some(slot(0)));
        assert_eq!(slab.invalidate(&began(2)), Err(Error::Pinned { slot: slot(0) }));
        drop(pin);
    }
    assert_eq!(slab.pinned(), None);
    slab.invalidate(&began(2)).unwrap();
    assert!(matches!(recorded.pin(), Err(Error::Stale(_))));
    drop(back);
}

#[test]
fn what_keeps_a_node_from_running_is_known_before_it_is_launched() {
    let mut slab = slab_of(70);
    assert_eq!(slab.pinned(), None);
    let tensors = take(&mut slab, 1);
    let (low, high) = (tensors[3].pin().unwrap(), tensors[69].pin().unwrap());
    drop(tensors);
    assert_eq!(slab.pinned(), Some(slot(3)));
    drop(low);
    assert_eq!(slab.pinned(), Some(slot(69)));
    assert_eq!(slab.hand_back(step(2), no_source).unwrap_err(), Error::Pinned { slot: slot(69) });
    drop(high);
    assert_eq!((slab.pinned(), run(&mut slab, 2).outputs.len()), (None, 70));
}

#[test]
fn what_is_pinned_after_an_end_was_prepared_is_kept_and_all_else_of_it_is_over() {
    let rig = Rig::new();
    let mut slab = slab_of(3);
    let tensors = take(&mut slab, 1);
    let nothing = |_| Err(Error::TooLarge);
    let ending =
        slab.prepare_end(&rig.device, &rig.stream, &began(2), |_| OldOutput::Error, nothing).unwrap();
    assert!(ending.kept().is_empty());
    let pin = tensors[1].pin().unwrap();
    let ended = slab.end(ending);
    assert_eq!((ended.kept, ended.stale), (vec![slot(1)], vec![slot(0), slot(2)]));
    assert_eq!((slab.live_word(0), slab.died().collect::<Vec<_>>()), (0b010, vec![slot(0), slot(2)]));
    let has_value: Vec<_> = tensors.iter().map(|tensor| tensor.address().is_ok()).collect();
    assert_eq!(has_value, [false, true, false]);
    drop((tensors, pin));
    assert!(!slab.any_live());
}
