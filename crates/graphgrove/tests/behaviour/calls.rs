//! The way of calls: warm-up, recording, replay.

use graphgrove::{Args, Engine, Error, LaunchDims, Layers, Mode, args};
use graphgrove_device::{Streams, Work};
use graphgrove_sim::{SimDevice, kernels};

use crate::garden::{Garden, N, layout};

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
fn work_of_other_code_is_recorded_and_replayed_with_the_inputs_of_each_call() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (device, double) = (garden.device.clone(), kernels::map(&garden.device, "double", |x: f32| 2.0 * x));
    let function = garden.engine.function("by other code", move |cx| {
        let out = cx.empty(layout())?;
        let args = Args::new().read(cx.input(0)?.address()?).write(out.address()?).scalar(N as u32);
        // The only reader of the input is work that the engine does not see.
        cx.foreign(|stream| device.launch(stream, &double, LaunchDims::ONE, &args))?;
        Ok(vec![out])
    });
    for turn in 0..5 {
        let input = garden.tensor(turn as f32);
        let [doubled] = function.call(args![&input]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&doubled), 2.0 * turn as f32, "{turn}");
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays, calls.eager, calls.failures), (1, 3, 0, 0));
    garden.device.verdict().unwrap();
}

#[test]
fn outputs_are_taken_by_their_numbers_or_all_that_are_left_and_saved_ones_are_none_of_them() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let function = garden.engine.function("two and one", |cx| {
        let made = (0..3).map(|_| cx.empty(layout())).collect::<Result<Vec<_>, _>>()?;
        for (value, out) in (1_u8..).zip(&made) {
            cx.fill(out, value)?;
        }
        cx.save(&made[2]);
        Ok(made[..2].to_vec())
    });
    for _ in 0..4 {
        let (mut outputs, _token) = function.forward(args![]).unwrap();
        assert_eq!(outputs.len(), 2);
        assert!(matches!(outputs.take(2), Err(Error::NoOutput { index: 2, count: 2 })));
        let first = outputs.take(0).unwrap();
        assert!(matches!(outputs.take(0), Err(Error::NoOutput { index: 0, count: 2 })));
        let mut list = vec![Some(first)];
        outputs.take_into(&mut list);
        assert_eq!(list.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        assert!(matches!(outputs.into_vec(), Err(Error::NoOutput { index: 0, count: 2 })));
        let (outputs, _token) = function.forward(args![]).unwrap();
        assert_eq!(outputs.into_vec().unwrap().len(), 2);
        let (outputs, _token) = function.forward(args![]).unwrap();
        let counts = outputs.into_array::<3>().map(|_| ());
        assert!(matches!(counts, Err(Error::OutputCount { given: 2, expected: 3 })), "{counts:?}");
    }
    garden.device.verdict().unwrap();
}

#[test]
fn a_stream_of_another_device_is_refused_at_the_first_call_and_at_every_other() {
    let (garden, other) = (Garden::new(Engine::<SimDevice>::builder()), SimDevice::new());
    let (copy, input, foreign) = (garden.copy("copy"), garden.fresh(3.0), other.create_stream().unwrap());
    for _ in 0..4 {
        let refused = copy.calling().on(&foreign).call(args![&input]).map(drop);
        assert_eq!(refused, Err(Error::ForeignHandle { what: "stream" }));
        drop(copy.call(args![&input]).unwrap());
    }
    other.verdict().unwrap();
}
