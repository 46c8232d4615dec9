//! Functions that write to their inputs.

use graphgrove::{Engine, Function, FunctionOptions, ParamSet, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, N};

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
