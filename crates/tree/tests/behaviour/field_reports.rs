//! Reports from the field, as far as they are about nodes, steps, pending backwards and limits.

use crate::driver::{Did, Driver, Outcome, kept, moved, x};
use graphgrove_tree::{
    Address, Call, EagerReason, Fate, FunctionSpec, Input, Limits, OldOutput, Options, Output, ParamIndex,
    ParamSetId, ParamVersion, Params, PathChange, Step,
};

fn limited(limits: Limits) -> Driver {
    Driver::new(Options { limits, ..Options::default() })
}

/// pytorch/pytorch#148439: one flag for all pending backwards let the path of an older micro-batch go.
#[test]
fn r01_several_forwards_in_flight_keep_only_their_own_saved_outputs() {
    let mut e = Driver::default();
    let a = e.function_of(FunctionSpec::new("a"), vec![Output::fresh(), Output::saved()]);
    let b = e.function("b", 1);
    for _ in 0..4 {
        // Steps are asked for in the middle of it, as the generation counter did.
        let mut forwards: Vec<Outcome> = (0..3).map(|_| e.forward(a, &[x(1)])).collect();
        let run_backward = |e: &mut Driver, y: &Outcome| {
            assert!(e.live.is_live(y.outputs[1].slot), "a saved output was lost");
            let g = e.backward(b, y.token(), &[moved(y.outputs[1])]);
            assert!(!e.live.is_live(y.outputs[1].slot), "a saved output outlives its backward");
            e.release(&y.outputs[..1]);
            e.forget(&g);
        };
        run_backward(&mut e, &forwards[0]);
        forwards.push(e.forward(a, &[x(1)]));
        for (at, y) in forwards.iter().enumerate().skip(1) {
            for later in &forwards[at..] {
                assert!(e.tree.is_pending(later.token()) && e.live.is_live(later.outputs[1].slot));
            }
            run_backward(&mut e, y);
        }
        assert!(e.tree.is_path_over(&e.live));
    }
    assert_eq!(e.ran_eagerly, 0);
    assert!(e.replayed >= 16, "the schedule settles");
}

/// pytorch/pytorch#148439, with the steps that the report's generation counter began.
#[test]
fn r01_a_step_in_the_middle_of_a_pipeline_copies_what_pending_backwards_need() {
    let mut e = Driver::default();
    let a = e.function_of(FunctionSpec::new("a"), vec![Output::fresh(), Output::saved()]);
    e.settle(&Call::forward(a, &[x(1)]));
    let y = e.forward(a, &[x(1)]);
    e.release(&y.outputs[..1]);
    e.tree.begin_step();
    let z = e.forward(a, &[x(1)]);
    let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
    let slots: Vec<_> = end.slots.iter().map(|old| (old.value, old.fate)).collect();
    assert_eq!(slots, [(y.outputs[1], Fate::CopyOutForBackward(y.token()))]);
}

/// pytorch/pytorch#158551, #170604, #177192: the error recommended what had caused it.
#[test]
fn r03_an_output_that_becomes_stale_is_named_with_its_producer_and_with_what_ended_its_step() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    for turn in 1..=4 {
        e.tree.begin_step();
        let z = e.infer(f, &[x(1)]);
        if turn > 1 {
            let end = z.change.as_ref().and_then(PathChange::path_end).unwrap();
            assert_eq!((end.ended_by, end.step), (f, Step::new(turn)));
            let old = end.slots[0];
            assert_eq!((old.producer, old.made_in, old.fate), (f, Step::new(turn - 1), Fate::Invalidate));
        }
    }
    // The same in a warm-up, a recording and a replay: those were turns 2, 3 and 4.
    assert_eq!((e.warmed_up, e.recorded, e.replayed), (1, 1, 2));
}

/// pytorch/pytorch#176846, #176865: a forward inside a functional gradient has no backward of its own.
#[test]
fn r08_a_discarded_token_frees_its_forward_at_once() {
    let mut e = Driver::default();
    let a = e.function_of(FunctionSpec::new("a"), vec![Output::fresh(), Output::saved()]);
    for turn in 0..6 {
        let y = e.forward(a, &[x(1)]);
        assert!(e.tree.discard_backward(y.token()));
        assert_eq!(e.tree.pending_on_path(), 0);
        e.release(&y.outputs);
        assert!(e.tree.is_path_over(&e.live));
        assert_eq!(y.is_replay(), turn >= 2);
    }
    assert_eq!(e.tree.take_notices(), []);
}

/// pytorch/pytorch#98112, #97168, #101129: a forward whose backward never ran held the engine in warm-up.
#[test]
fn r09_after_a_forward_without_backward_the_third_call_is_a_replay() {
    let mut e = Driver::default();
    let a = e.function("a", 1);
    let dids: Vec<_> = (0..3)
        .map(|_| {
            let y = e.forward(a, &[x(1)]);
            e.forget(&y);
            y
        })
        .collect();
    assert!(dids[0].is_warm_up() && dids[1].is_record() && dids[2].is_replay());
}

/// pytorch/pytorch#120474: a library moved its weights to and fro.
#[test]
fn r16_a_parameter_that_moves_to_and_fro_has_one_recording_per_address() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let places = [[Address::new(0x100)], [Address::new(0x200)]];
    for turn in 0..40 {
        let addresses = &places[turn % 2];
        let version = ParamVersion::new(turn as u64);
        let params = Params { set: ParamSetId::new(1), version, addresses };
        let y = e.call(&Call::inference(f, &[x(1)]).with_params(params));
        e.forget(&y);
        assert_eq!(y.is_replay(), turn >= 3, "turn {turn}: {:?}", y.did);
    }
    assert_eq!((e.recorded, e.ran_eagerly), (2, 0));
}

/// pytorch/pytorch#129349: one attribute was bound anew at each step.
#[test]
fn r17_of_eight_parameters_only_the_one_that_moves_is_staged() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let mut last = None;
    for turn in 0..100 {
        let mut addresses: Vec<_> = (0..8).map(|weight| Address::new(0x1000 * weight)).collect();
        addresses[5] = Address::new(0x10_0000 + turn);
        let params =
            Params { set: ParamSetId::new(1), version: ParamVersion::new(turn), addresses: &addresses };
        let y = e.call(&Call::inference(f, &[x(1)]).with_params(params));
        e.forget(&y);
        last = Some(y);
    }
    let last = last.unwrap();
    assert!(last.is_replay());
    assert_eq!(e.tree.node(last.node()).unwrap().params().unwrap().staged(), [ParamIndex::new(5)]);
    // Warm-up, the first recording, four changes, and the one that stages it.
    assert_eq!((e.warmed_up, e.recorded, e.ran_eagerly), (1, 6, 0));
}

/// pytorch/pytorch#176267: a state that a function returns goes into its next call, and replays overwrote it.
#[test]
fn r22_a_loop_that_feeds_itself_keeps_a_bounded_number_of_recordings_and_one_state_alive() {
    for steps in [false, true] {
        let mut e = Driver::default();
        let s = e.function("s", 1);
        let mut state: Option<Input> = None;
        for _ in 0..200 {
            if steps {
                e.tree.begin_step();
            }
            let y = e.infer(s, &[x(1), state.unwrap_or(x(1))]);
            state = Some(moved(y.outputs[0]));
            assert!(e.tree.is_path_over(&e.live) == (e.live_on_path() == 0) && e.live_on_path() == 1);
        }
        let bound = if steps { 1 } else { Limits::default().loop_length as usize };
        assert_eq!((e.tree.recordings(), e.ran_eagerly), (bound, 0));
        assert!(e.replayed >= 200 - 2 * bound);
    }
}

/// ggml-org/llama.cpp#20315, #25082, #25835 and others: graph caches keyed by objects grew for ever.
#[test]
fn r34_fresh_objects_of_the_same_structure_share_one_recording() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let addresses = [Address::new(0x100), Address::new(0x200)];
    for object in 0..1000 {
        let params =
            Params { set: ParamSetId::new(object), version: ParamVersion::new(0), addresses: &addresses };
        let y = e.call(&Call::inference(f, &[x(1)]).with_params(params));
        e.forget(&y);
    }
    assert_eq!((e.recorded, e.replayed), (1, 998));
}

/// The second half of the same reports: a thousand structures.
#[test]
fn r34_a_thousand_structures_stay_within_the_bounds_and_then_run_eagerly() {
    let limits = Limits { siblings: 16, rerecordings: 20, rerecordings_decay: 100, ..Limits::default() };
    let mut e = limited(limits);
    let f = e.function("f", 1);
    for structure in 0..1000 {
        for _ in 0..2 {
            let y = e.infer(f, &[x(structure)]);
            e.forget(&y);
        }
        assert!(e.tree.recordings() <= 16);
    }
    assert_eq!(e.recorded, 1 + 20 + 19, "the burst, and one in a hundred of the calls after it");
    let y = e.infer(f, &[x(1)]);
    assert!(matches!(y.eager(), Some(EagerReason::Rerecorded { .. })));
}

/// pytorch/pytorch#119640, #128424, #131387 and others: a recording for every size never settles.
#[test]
fn r40_sizes_without_end_cost_few_recordings_and_three_sizes_cost_three() {
    let mut e = Driver::default();
    let (dynamic, fixed) = (e.function("dynamic", 1), e.function("fixed", 1));
    let mut random = 0x9E37_79B9_u64;
    for _ in 0..2000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let y = e.infer(dynamic, &[Input::scalar(1 + (random >> 33) % 1000)]);
        e.forget(&y);
        let z = e.infer(fixed, &[x(1)]);
        e.forget(&z);
        assert_eq!(z.eager(), None, "the limits of one function are not those of another");
    }
    assert!(e.recorded <= 2000 / 10, "{} recordings", e.recorded);
    let mut e = Driver::default();
    let f = e.function("f", 1);
    for turn in 0..300 {
        let y = e.infer(f, &[Input::scalar([8, 16, 32][turn % 3])]);
        e.forget(&y);
        assert_eq!(y.is_replay(), turn >= 6);
    }
    assert_eq!(e.recorded, 3);
}

/// google-research/multinerf#139, elixir-nx/nx#1602, ggml-org/llama.cpp#12420: two structures in turn ended
/// in graphs being switched off for good.
#[test]
fn r57_two_structures_in_turn_have_a_recording_each_and_too_many_changes_are_forgiven() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    for turn in 0..100 {
        let y = e.infer(f, &[x(turn % 2)]);
        e.forget(&y);
    }
    assert_eq!((e.recorded, e.ran_eagerly), (2, 0));
    // A storm of structures exhausts the budget; after it one structure alone is recorded again.
    let mut e = limited(Limits { rerecordings: 4, rerecordings_decay: 16, ..Limits::default() });
    let f = e.function("f", 1);
    for structure in 0..40 {
        for _ in 0..2 {
            let y = e.infer(f, &[x(structure)]);
            e.forget(&y);
        }
    }
    assert!(matches!(e.infer(f, &[x(39)]).did, Did::Eager(EagerReason::Rerecorded { .. })));
    let until_replay = (0..100).find(|_| {
        let y = e.infer(f, &[x(39)]);
        e.forget(&y);
        y.is_replay()
    });
    assert!(until_replay.unwrap() <= 17, "{until_replay:?}");
}

/// pytorch/pytorch#175557, #154824: the cache of a decode loop was reclaimed by the very call that it went
/// into.
#[test]
fn r06_an_old_output_that_goes_into_the_call_that_begins_the_step_is_read_first() {
    let mut e = Driver::default();
    let spec = FunctionSpec::new("decode").at_new_step(OldOutput::CopyOut);
    let d = e.function_of(spec, vec![Output::fresh(); 2]);
    let mut cache = None;
    for turn in 0..10 {
        e.tree.begin_step();
        let y = e.infer(d, &[x(1), cache.map_or(x(1), kept)]);
        let end = y.change.as_ref().and_then(PathChange::path_end);
        assert_eq!(end.map_or(0, |end| end.carried.len()), usize::from(turn > 0));
        assert_eq!(
            end.map_or(0, |end| end.slots.len()),
            usize::from(turn > 0),
            "one copy for each live storage"
        );
        e.release(&y.outputs[..1]);
        cache = Some(y.outputs[1]);
    }
    assert_eq!(e.recorded, 1);
}
