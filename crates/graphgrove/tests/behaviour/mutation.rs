//! Functions that write to their inputs.

use graphgrove::{Engine, Error, Function, FunctionOptions, Layout, Mode, ParamSet, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, N, layout};

/// Adds one to an input, and returns nothing.
fn bump(garden: &Garden, name: &'static str) -> Function<SimDevice> {
    let (kernel, one) = (graphgrove_sim::kernels::axpy(&garden.device), garden.fresh(1.0));
    garden.engine.function_with(name, FunctionOptions::new().mutates([0]), move |cx| {
        let args = graphgrove::Args::new().read(one.address()?).read_write(cx.input(0)?.address()?);
        cx.launch(
            &kernel,
            graphgrove::LaunchDims::for_elements(N as u32),
            &args.scalar(N as u32).scalar(1.0_f32),
        )?;
        Ok(vec![])
    })
}

#[test]
fn what_a_function_writes_to_an_input_of_the_callers_is_written_once_for_each_call() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let bump = bump(&garden, "bump");
    for start in [0.0, 100.0] {
        let state = garden.fresh(start);
        for turn in 1..=5 {
            let _ = bump.call(args![&state]).unwrap();
            assert_eq!(garden.value(&state), start + turn as f32);
        }
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays, calls.eager), (1, 1, 8, 0));
    garden.device.verdict().unwrap();
}

#[test]
fn an_output_of_the_path_is_written_where_it_is_and_a_copy_from_elsewhere_is_written_back() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (make, bump, input) = (garden.copy("make"), bump(&garden, "bump"), garden.fresh(3.0));
    for turn in 0..6 {
        let [made] = make.call(args![&input]).unwrap().into_array().unwrap();
        let foreign = garden.fresh(50.0);
        let target = if turn % 2 == 0 { &made } else { &foreign };
        let _ = bump.call(args![target]).unwrap();
        let _ = bump.call(args![target]).unwrap();
        let expected = if turn % 2 == 0 { (5.0, 50.0) } else { (3.0, 52.0) };
        assert_eq!((garden.value(&made), garden.value(&foreign)), expected, "{turn}");
    }
    // Nothing was skipped, in whatever order the two came.
    assert_eq!(garden.engine.stats().unwrap().calls.eager, 0);
    garden.device.verdict().unwrap();
}

#[test]
fn a_buffer_that_is_a_parameter_is_written_in_place_and_stays_right() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (kernel, one) = (graphgrove_sim::kernels::axpy(&garden.device), garden.fresh(1.0));
    let count = garden.engine.function_with("count", FunctionOptions::new().mutates_params(), move |cx| {
        let args = graphgrove::Args::new().read(one.address()?).read_write(cx.param(0)?.address()?);
        cx.launch(
            &kernel,
            graphgrove::LaunchDims::for_elements(N as u32),
            &args.scalar(N as u32).scalar(1.0_f32),
        )?;
        let (out, buffer) = (cx.empty(cx.param(0)?.layout().clone())?, cx.param(0)?.clone());
        cx.copy(&out, &buffer)?;
        Ok(vec![out])
    });
    let params = ParamSet::new(vec![garden.fresh(0.0)]).unwrap();
    for turn in 1..=6 {
        let [seen] = count.with(&params).call(args![]).unwrap().into_array().unwrap();
        assert_eq!((garden.value(&seen), garden.value(&params.tensors()[0])), (turn as f32, turn as f32));
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (1, 4));
    garden.device.verdict().unwrap();
}

#[test]
fn a_write_to_an_input_that_is_not_declared_is_refused_in_every_mode_and_leaves_all_as_it_was() {
    for mode in [Mode::Eager, Mode::Trees, Mode::OnePool, Mode::Auto] {
        let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
        let spoil = garden.engine.function("spoil", |cx| {
            let bytes = cx.value(2)?;
            let (input, param) = (cx.input(1)?.clone(), cx.param(0)?.clone());
            cx.fill(if bytes == 0 { &input } else { &param }, 0)?;
            Ok(vec![])
        });
        let (a, b, weight) = (garden.fresh(1.0), garden.fresh(2.0), garden.fresh(3.0));
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        for _ in 0..4 {
            let call = |which: u64| spoil.with(&params).call(args![&a, &b, which]).map(|_| ());
            let named = |what, index| Error::UndeclaredWrite { function: "spoil".into(), what, index };
            assert_eq!((call(0), call(1)), (Err(named("input", 1)), Err(named("parameter", 0))), "{mode:?}");
        }
        assert_eq!([&a, &b, &weight].map(|tensor| garden.value(tensor)), [1.0, 2.0, 3.0]);
        // One that the call gives up may be a copy too. When the function has let go of it, its memory is the function's.
        let reuse = garden.engine.function("reuse", |cx| {
            let refused = cx.fill(&cx.input(0)?.clone(), 0);
            assert!(matches!(refused, Err(Error::UndeclaredWrite { index: 0, .. })), "{refused:?}");
            drop(cx.take(0)?);
            let out = cx.empty(layout())?;
            cx.fill(&out, 0)?;
            Ok(vec![out])
        });
        for _ in 0..4 {
            let [out] = reuse.call(args![garden.fresh(4.0)]).unwrap().into_array().unwrap();
            let [out] = reuse.call(args![out]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), 0.0, "{mode:?}");
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_copy_of_a_tensor_with_gaps_or_of_more_than_there_is_room_for_is_refused() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (long, every_second) = (garden.fresh(1.0), garden.fresh(2.0).slice(0, 0..N, 2).unwrap());
    let copy = garden.engine.function("copy", |cx| {
        let out = cx.empty(Layout::of::<f32>(&[N / 2])?)?;
        let input = cx.input(0)?.clone();
        cx.copy(&out, &input)?;
        Ok(vec![out])
    });
    let refused = |has_gaps, from| Error::CopyMisfit { function: "copy".into(), from, has_gaps, to: 2 * N };
    assert_eq!(copy.call(args![&long]).map(|_| ()), Err(refused(false, 4 * N)));
    assert_eq!(copy.call(args![&every_second]).map(|_| ()), Err(refused(true, 4 * (N - 1))));
    let short = long.slice(0, 0..N / 2, 1).unwrap();
    assert_eq!(copy.call(args![&short]).map(|_| ()), Ok(()));
    garden.device.verdict().unwrap();
}
