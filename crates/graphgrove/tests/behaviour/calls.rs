//! The way of calls: warm-up, recording, replay.

use graphgrove::{Engine, LaunchDims, Layers, Mode, ParamSet, args};
use graphgrove_sim::{SimDevice, kernels};

use crate::garden::{Garden, N, layout, zip_args};

#[test]
fn a_function_warms_up_is_recorded_and_is_replayed_with_the_inputs_of_each_call() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let add = garden.add("add");
    for turn in 0..5 {
        let (a, b) = (garden.tensor(turn as f32), garden.tensor(10.0));
        let [sum] = add.call(args![&a, &b]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&sum), turn as f32 + 10.0, "{turn}");
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays, calls.eager), (1, 1, 3, 0));
    garden.device.verdict().unwrap();
}

#[test]
fn a_chain_of_calls_is_a_path_and_its_steps_are_replayed() {
    for mode in [Mode::Trees, Mode::OnePool, Mode::Eager] {
        let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
        let (add, mul) = (garden.add("add"), garden.mul("mul"));
        for turn in 0..6 {
            let (a, b) = (garden.tensor(turn as f32), garden.tensor(3.0));
            let [sum] = add.call(args![&a, &b]).unwrap().into_array().unwrap();
            let [product] = mul.call(args![sum, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&product), (turn as f32 + 3.0) * 3.0, "{mode:?} {turn}");
        }
        let calls = garden.engine.stats().unwrap().calls;
        match mode {
            Mode::Eager => assert_eq!(calls.eager, 12),
            _ => assert_eq!((calls.recordings, calls.replays, calls.eager), (2, 8, 0), "{mode:?}"),
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn an_output_may_lie_where_an_input_was_given_up_with_every_set_of_layers() {
    for layers in (0..=5).map(Layers::prefix) {
        let garden = Garden::new(Engine::<SimDevice>::builder().layers(layers).mode(Mode::Trees));
        let add = garden.add("add");
        let twice_copied = garden.engine.function("twice copied", |cx| {
            let (from, between) = (cx.take(0)?, cx.empty(layout())?);
            cx.copy(&between, &from)?;
            drop(from);
            let out = cx.empty(layout())?;
            cx.copy(&out, &between)?;
            Ok(vec![out])
        });
        for turn in 0..5 {
            let (a, b) = (garden.tensor(turn as f32), garden.tensor(3.0));
            let [sum] = add.call(args![&a, &b]).unwrap().into_array().unwrap();
            let [copy] = twice_copied.call(args![sum]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&copy), turn as f32 + 3.0, "{layers} {turn}");
        }
        assert!(garden.engine.stats().unwrap().calls.replays > 0, "{layers}");
        garden.device.verdict().unwrap();
    }
}

#[test]
fn an_input_that_the_step_before_has_left_needs_no_recording_of_its_own() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let add = garden.add("add");
    let b = garden.tensor(1.0);
    let mut last = None;
    for turn in 0..12 {
        // Every fourth input comes from outside.
        let outside = || garden.engine.tensor(&[N], &[0.0_f32; N as usize]).unwrap();
        let a = last.take().filter(|_| turn % 4 != 0).unwrap_or_else(outside);
        garden.engine.begin_step().unwrap();
        let [sum] = add.call(args![a, &b]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&sum), (turn % 4) as f32 + 1.0, "{turn}");
        last = Some(sum);
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays, calls.eager), (1, 1, 10, 0));
    garden.device.verdict().unwrap();
}

#[test]
fn a_parameter_that_is_never_where_it_was_is_staged_after_a_few_recordings() {
    for layers in [Layers::all(), Layers::prefix(3)] {
        let garden = Garden::new(Engine::<SimDevice>::builder().layers(layers));
        let kernel = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let shift = garden.engine.function("shift", move |cx| {
            let out = cx.empty(layout())?;
            let args = zip_args(cx.input(0)?, cx.param(0)?, &out)?;
            cx.launch(&kernel, LaunchDims::for_elements(N as u32), &args)?;
            Ok(vec![out])
        });
        let x = garden.tensor(1.0);
        let mut params = ParamSet::new(vec![garden.tensor(0.0)]).unwrap();
        let mut old = Vec::new();
        for turn in 0..20_u8 {
            // What is still held is where nothing else can be.
            old.push(params.replace(0, garden.tensor(f32::from(turn))).unwrap());
            let [out] = shift.with(&params).call(args![&x]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), 1.0 + f32::from(turn), "{layers}");
        }
        let calls = garden.engine.stats().unwrap().calls;
        assert_eq!(calls.eager, 0, "{calls:?}");
        assert!(calls.recordings <= 6 && calls.replays >= 13, "{calls:?}");
    }
}
