//! Who keeps this alive: where in the program handles were handed out, when somebody wants to know.

use graphgrove_storage::{
    Layout, Ledger, OutputClass, PlannedOutput, Readers, Slab, SlotIndex, Taker, Tensor,
};

use crate::rig::{BLOCK, fresh, no_source, run, slab, slot, step};

/// The lines of this file that took handles of a slot, with how often.
fn lines(slab: &Slab, of: SlotIndex) -> Vec<(u32, u64)> {
    let takers = slab.takers(of);
    assert!(takers.iter().all(|taker| taker.at.file() == file!()), "{takers:?}");
    takers.iter().map(|taker| (taker.at.line(), taker.times)).collect()
}

#[test]
fn nobody_is_noted_until_somebody_asks_for_it() {
    let ledger = Ledger::new();
    let mut slab = slab(&ledger, vec![fresh(0)]);
    let mut back = run(&mut slab, 1);
    ledger.note_takers(true); // From the next run on.
    let tensor = back.outputs.take(slot(0));
    assert!(tensor.is_some() && slab.takers(slot(0)).is_empty());
    drop((tensor, back));
    let mut back = run(&mut slab, 2);
    assert_eq!((slab.holders(slot(0)).waiting, slab.takers(slot(0)).len()), (1, 0));
    let tensor = back.outputs.take(slot(0));
    assert_eq!(lines(&slab, slot(0)), [(line!() - 1, 1)]);
    drop((tensor, back));
    assert!(slab.takers(slot(0)).is_empty(), "nobody has it any more");
    ledger.note_takers(false);
    let tensor = run(&mut slab, 3).outputs.take(slot(0));
    assert!(tensor.is_some() && slab.takers(slot(0)).is_empty(), "what was noted is of an earlier run");
}

#[test]
fn every_way_to_a_handle_is_noted_and_nothing_else_changes() {
    let ledger = Ledger::new();
    ledger.note_takers(true);
    let half = PlannedOutput::alias(OutputClass::Sibling(slot(0)), Layout::of::<f32>(&[4]).unwrap(), 16);
    let outputs = vec![fresh(0).read_by(Readers::Both), half, fresh(1), PlannedOutput::not_tensor()];
    let mut slab = slab(&ledger, outputs);
    for number in 1..4 {
        let mut back = run(&mut slab, number);
        let token = back.saved.take().unwrap();
        let part = back.outputs.take(slot(1)).unwrap();
        let saved = [token.tensor(slot(0)), token.tensor(slot(1))].into_iter().flatten().count();
        let read = (0..3).map(|_| token.tensor(slot(0)).unwrap()).collect::<Vec<_>>();
        let lines_of_first = lines(&slab, slot(0));
        assert_eq!(lines_of_first, [(line!() - 4, 1), (line!() - 3, 1), (line!() - 2, 3)]);
        assert_eq!((saved, part.address().unwrap().get()), (1, 0x10_0010));
        let printed = slab.takers(slot(0)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(printed[0], format!("output 1 of F was taken at {}:{}:33", file!(), lines_of_first[0].0));
        assert!(printed[2].ends_with(", 3 times"), "{printed:?}");
        drop((part, read));
        let all: Vec<_> = back.outputs.take_all().map(|taken| taken.is_some()).collect();
        assert_eq!(
            (all, slab.live_word(0)),
            (vec![true, false, true, false], 0b001),
            "the backward has the first"
        );
        drop(token);
        assert!(!slab.any_live());
    }
}

#[test]
fn an_output_in_an_earlier_slot_is_noted_where_its_memory_is() {
    let ledger = Ledger::new();
    ledger.note_takers(true);
    let mut first = slab(&ledger, vec![fresh(0)]);
    let output = run(&mut first, 1).outputs.take(slot(0)).unwrap();
    let value = output.storage().slot_value().unwrap().unwrap();
    let class = OutputClass::EarlierSlot { value, input: None };
    let alias = PlannedOutput::alias(class, output.layout().clone(), 0);
    let mut second = Slab::new(&ledger, "G", 1, vec![PlannedOutput::not_tensor(), alias]).unwrap();
    let mut kept: Vec<Tensor> = Vec::new();
    for number in 2..6 {
        let mut back = second.hand_back(step(number), |_, _| Some(output.clone())).unwrap();
        kept.extend(back.outputs.take_all().flatten());
    }
    let takers = first.takers(slot(0));
    let named = |Taker { producer, output, times, .. }: &Taker| (producer.to_string(), *output, *times);
    let names: Vec<_> = takers.iter().map(named).collect();
    assert_eq!(names, [("F".into(), slot(0), 1), ("G".into(), slot(1), 4)]);
    assert!(second.takers(slot(1)).is_empty(), "it owns no slot");
}

#[test]
fn what_nobody_takes_dies_in_a_run_that_is_noted_too() {
    let ledger = Ledger::new();
    ledger.note_takers(true);
    let mut slab = slab(&ledger, (0..130).map(fresh).collect());
    let mut back = slab.hand_back(step(1), no_source).unwrap();
    let last = back.outputs.take(slot(129)).unwrap();
    assert_eq!((back.outputs.take(slot(129)).is_none(), slab.live().count()), (true, 130));
    drop(back);
    assert_eq!(slab.live().collect::<Vec<_>>(), [slot(129)]);
    assert_eq!(last.storage().bytes(), Ok(BLOCK));
    drop(last);
    assert!(ledger.all_dead());
}
