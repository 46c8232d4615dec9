//! Parameters that move, change places, or serve several functions.

use graphgrove::{Engine, Function, ParamSet, Tensor, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, layout, zip_args};

/// The sum of an input and the only parameter.
fn shifted(garden: &Garden, name: &'static str) -> Function<SimDevice> {
    let kernel = graphgrove_sim::kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
    garden.engine.function(name, move |cx| {
        let input = cx.take(0)?;
        let out = cx.empty(layout())?;
        let args = zip_args(&input, cx.param(0)?, &out)?;
        cx.launch(&kernel, graphgrove::LaunchDims::for_elements(crate::garden::N as u32), &args)?;
        Ok(vec![out])
    })
}

fn set(garden: &Garden, value: f32) -> ParamSet {
    ParamSet::new(vec![garden.fresh(value)]).unwrap()
}

fn one(function: &Function<SimDevice>, params: &ParamSet, input: Tensor) -> Tensor {
    let [out] = function.with(params).call(args![input]).unwrap().into_array().unwrap();
    out
}

#[test]
fn each_of_several_parameter_sets_has_a_recording_and_finds_it_again() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = shifted(&garden, "f");
    let sets = [10.0, 20.0, 30.0, 40.0].map(|value| (value, set(&garden, value)));
    let input = garden.fresh(1.0);
    for turn in 0..4 {
        for (value, set) in &sets {
            assert_eq!(garden.value(&one(&f, set, input.clone())), value + 1.0, "{turn}");
        }
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.warm_ups + calls.replays, calls.eager), (4, 12, 0), "{calls:?}");
    garden.device.verdict().unwrap();
}

#[test]
fn another_set_in_a_child_records_the_child_alone_and_in_a_parent_both() {
    for (in_parent, recordings) in [(false, 3), (true, 4)] {
        let garden = Garden::new(Engine::<SimDevice>::builder());
        let (f, g) = (shifted(&garden, "f"), shifted(&garden, "g"));
        let (steady, changing) = (set(&garden, 1.0), [10.0, 20.0].map(|value| (value, set(&garden, value))));
        for turn in 0..6 {
            for (value, changing) in &changing {
                let (first, second) = if in_parent { (changing, &steady) } else { (&steady, changing) };
                let out = one(&g, second, one(&f, first, garden.fresh(0.0)));
                assert_eq!(garden.value(&out), value + 1.0, "{in_parent} {turn}");
            }
        }
        let calls = garden.engine.stats().unwrap().calls;
        assert_eq!((calls.recordings, calls.eager), (recordings, 0), "{in_parent} {calls:?}");
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_parameter_that_moved_costs_one_recording_which_names_both_addresses() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = shifted(&garden, "f");
    let mut params = set(&garden, 10.0);
    let (mut addresses, mut old) = (Vec::new(), Vec::new());
    for value in [10.0, 20.0] {
        addresses.push(params.tensors()[0].address().unwrap());
        for _ in 0..4 {
            assert_eq!(garden.value(&one(&f, &params, garden.fresh(1.0))), value + 1.0);
        }
        old.push(params.replace(0, garden.fresh(20.0)).unwrap());
    }
    assert_eq!(garden.engine.stats().unwrap().calls.recordings, 2);
    let reasons = garden.engine.reasons().unwrap();
    let said =
        reasons.iter().find(|reason| reason.why.contains("parameter 0 is at")).ok_or(&reasons).unwrap();
    for address in addresses {
        assert!(said.why.contains(&address.to_string()), "{said:?} {address}");
    }
}

#[test]
fn one_parameter_serves_two_functions_on_a_path() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g) = (shifted(&garden, "f"), shifted(&garden, "g"));
    let params = set(&garden, 10.0);
    for turn in 0..5 {
        let first = one(&f, &params, garden.fresh(turn as f32));
        let second = one(&g, &params, first.clone());
        assert_eq!((garden.value(&first), garden.value(&second)), (turn as f32 + 10.0, turn as f32 + 20.0));
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (2, 6));
    garden.device.verdict().unwrap();
}

#[test]
fn a_parameter_that_moves_at_every_call_is_staged_after_a_few_and_functions_stay_recorded() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = shifted(&garden, "f");
    let (mut params, mut old) = (set(&garden, 0.0), Vec::new());
    for turn in 0..40 {
        old.push(params.replace(0, garden.fresh(turn as f32)).unwrap());
        assert_eq!(garden.value(&one(&f, &params, garden.fresh(1.0))), turn as f32 + 1.0, "{turn}");
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert!(calls.recordings <= 8 && calls.eager == 0, "{calls:?} {:?}", garden.engine.reasons());
    assert!(garden.engine.outline().unwrap().contains("demoted p0"));
    garden.device.verdict().unwrap();
}
