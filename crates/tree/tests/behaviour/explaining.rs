//! Reasons in the words of the program.

use crate::driver::{Driver, x};
use graphgrove_tree::{
    Address, EagerReason, FunctionId, InputIndex, Mismatch, NodeId, Notice, ParamIndex, Phase, RecordReason,
    Signature, Slot, SlotIndex, WarmUpReason,
};

const INPUT: InputIndex = InputIndex::new(1);

/// A tree that knows a recording of `forward` and what signatures 7 and 8 are.
struct Known {
    driver: Driver,
    forward: FunctionId,
    node: NodeId,
}

fn known() -> Known {
    let mut driver = Driver::default();
    let forward = driver.function("forward", 2);
    let recorded = [(); 2].map(|()| {
        let outcome = driver.infer(forward, &[x(7)]);
        driver.forget(&outcome);
        outcome
    });
    driver.tree.name_signature(Signature::new(7), || "f32[4]".into());
    driver.tree.name_signature(Signature::new(8), || "f32[5]".into());
    driver.tree.name_signature(Signature::new(9), || "f32[5]".into());
    Known { forward, node: recorded[1].node(), driver }
}

impl Known {
    fn says(&self, mismatch: &Mismatch) -> String {
        self.driver.tree.explain(mismatch, Phase::Inference)
    }

    fn slot(&self) -> Slot {
        Slot { node: self.node, index: SlotIndex::new(1) }
    }
}

fn differs(recorded: u64, called: u64) -> Mismatch {
    Mismatch::Signature { input: INPUT, recorded: Signature::new(recorded), called: Signature::new(called) }
}

#[test]
fn shapes_and_values_are_said_as_they_are() {
    let known = known();
    assert_eq!(known.says(&differs(7, 8)), "input 1 is f32[5], recorded as f32[4]");
    assert_eq!(known.says(&differs(3, 4)), "input 1 is 4, recorded as 3");
    let alike = known.says(&differs(8, 9));
    assert!(alike.starts_with("input 1 is f32[5] as recorded, and lies in its storage"), "{alike}");
}

#[test]
fn functions_and_who_made_an_output_are_named_while_they_are_known() {
    let known = known();
    let recorded = known.slot();
    let gone = Slot { node: NodeId::default(), index: SlotIndex::new(0) };
    let brought = Mismatch::ManagedInput { input: INPUT, recorded, called: gone };
    assert_eq!(
        known.says(&brought),
        "input 1 is output 0 of an earlier call, recorded as output 1 of `forward`"
    );
    let live = Mismatch::StillLive { slot: recorded };
    assert_eq!(known.says(&live), "output 1 of `forward` is still live, and the recording reuses its memory");
    let another = Mismatch::Function { recorded: known.forward, called: FunctionId::new(99) };
    assert_eq!(known.says(&another), "it records `forward`, not function f99");
}

#[test]
fn inputs_and_parameters_are_counted_and_a_backward_says_from_where() {
    let known = known();
    let held = Mismatch::InputStillHeld { input: INPUT };
    let (kept, used) = (known.says(&held), known.says(&Mismatch::Use { input: INPUT }));
    assert_eq!(kept, "input 1 is still held by the caller, and the recording reuses its memory");
    assert_eq!(used, "input 1 is used in another way than recorded");
    let backward = known.driver.tree.explain(&held, Phase::Backward);
    assert!(backward.starts_with("input 1, counted behind what is saved, is still held"), "{backward}");
    let [recorded, called] = [1, 2].map(Address::new);
    let moved = Mismatch::ParamAddress { param: ParamIndex::new(3), recorded, called };
    assert_eq!(known.says(&moved), format!("parameter 3 is at {called}, recorded at {recorded}"));
    let count = Mismatch::InputCount { recorded: 1, called: 2 };
    assert_eq!(known.says(&count), count.to_string());
}

#[test]
fn reasons_say_what_they_hold_in_words_too() {
    let known = known();
    let tree = &known.driver.tree;
    let recorded = RecordReason::NoneFits { closest: known.node, mismatch: differs(7, 8) };
    assert_eq!(
        tree.explain(&recorded, Phase::Inference),
        "no recording in this place fits; the closest: input 1 is f32[5], recorded as f32[4]"
    );
    assert_eq!(tree.explain(&RecordReason::First, Phase::Inference), RecordReason::First.to_string());
    let below = WarmUpReason::BelowWarmUp { node: known.node };
    let below = tree.explain(&below, Phase::Backward);
    assert!(below.starts_with("what `forward` has left when it warmed up is still in use"), "{below}");
    assert_eq!(tree.explain(&WarmUpReason::Cold, Phase::Forward), WarmUpReason::Cold.to_string());

    let function = known.forward;
    let again = EagerReason::Rerecorded { calls: 12, mismatch: differs(7, 8) };
    let eager = |reason: &EagerReason| tree.explain(reason, Phase::Inference);
    assert_eq!(
        eager(&again),
        "recorded again too often in this place; the next try is 12 calls away: input 1 is f32[5], recorded as f32[4]"
    );
    let [siblings, everywhere] = [
        EagerReason::Siblings { function, limit: 4 },
        EagerReason::FunctionRecordings { function, limit: 5 },
    ];
    assert_eq!(eager(&siblings), "no recording of `forward` in this place can make room; the limit is 4");
    assert_eq!(eager(&everywhere), "no recording of `forward` can make room; the limit is 5");
    let written = EagerReason::MutatesForeignInput { input: INPUT };
    assert!(eager(&written).starts_with("input 1 is written to"), "{}", eager(&written));
    assert_eq!(eager(&EagerReason::KeyNotListed), EagerReason::KeyNotListed.to_string());
}

#[test]
fn notices_name_their_functions() {
    let known = known();
    let (tree, function) = (&known.driver.tree, known.forward);
    let says = |notice: &Notice| tree.explain(notice, Phase::Inference);
    assert!(
        says(&Notice::ManySignatures { function, count: 9 }).starts_with("`forward` has warmed up with 9")
    );
    assert!(
        says(&Notice::PendingBackwards { function, pending: 2 })
            .starts_with("`forward` keeps growing its path, because 2")
    );
    assert!(
        says(&Notice::HeldByWarmUp { function, holder: function })
            .ends_with("something that `forward` left behind is still needed")
    );
    let reason = EagerReason::Rerecorded { calls: 1, mismatch: differs(7, 8) };
    assert!(
        says(&Notice::RanEagerly { function, reason }).ends_with("input 1 is f32[5], recorded as f32[4]")
    );
}

#[test]
fn the_outline_says_the_shapes_of_what_is_staged() {
    let mut known = known();
    let line = |known: &Known| known.driver.tree.outline().lines().last().unwrap().to_owned();
    assert!(line(&known).contains("1 staged (f32[4]), 2 out"), "{}", line(&known));
    let forward = known.forward;
    for _ in 0..2 {
        let outcome = known.driver.infer(forward, &[7, 8, 6, 7, 8, 9].map(x));
        known.driver.forget(&outcome);
    }
    assert!(line(&known).contains("6 staged (f32[4], f32[5], f32[4], f32[5], ...)"), "{}", line(&known));
}
