//! What errors and reasons say: shapes, places and functions, as the program knows them.

use graphgrove::{Arg, Engine, Error, FunctionOptions, Layout, Mode, Result, args};
use graphgrove_device::Memory;
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, copied};

const MODES: [Mode; 3] = [Mode::Trees, Mode::OnePool, Mode::Eager];

#[test]
fn a_recording_that_does_not_fit_says_which_shape_came_and_which_was_recorded() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = garden.engine.function("f", |cx| {
        cx.value(1)?;
        let layout = cx.input(0)?.layout().clone();
        Ok(vec![cx.empty(layout)?])
    });
    for (size, value) in [(4, 1), (4, 1), (5, 1), (5, 1), (5, 2), (5, 2)] {
        let input = garden.engine.tensor(&[size], &vec![1.0_f32; size as usize]).unwrap();
        drop(f.call(args![&input, value]).unwrap());
    }
    let closest = |what: &str| format!("no recording in this place fits; the closest: {what}");
    for what in ["input 0 is f32[5], recorded as f32[4]", "input 1 is 2, recorded as 1"] {
        assert!(garden.has_reason(&closest(what)), "{what}: {:?}", garden.engine.reasons());
    }
    let outline = garden.engine.outline().unwrap();
    assert!(outline.contains("input 0 is f32[5], recorded as f32[4]"), "{outline}");
}

#[test]
fn a_call_below_a_warm_up_says_whose_it_is() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (first, second) = (garden.copy("first"), garden.copy("second"));
    let input = garden.fresh(3.0);
    let held = first.call(args![&input]).unwrap();
    drop(second.call(args![&input]).unwrap());
    assert!(garden.has_reason("what `first` has left when it warmed up"), "{:?}", garden.engine.reasons());
    drop(held);
}

#[test]
fn an_input_of_another_kind_says_which_it_is() {
    type Ask = fn(&mut graphgrove::Context<'_, SimDevice>) -> Result<()>;
    let asks: [(Ask, &str); 7] = [
        (|cx| cx.input(1).map(drop), "f has no input 1: it is a value"),
        (|cx| cx.take(2).map(drop), "f has no input 2: it is host memory"),
        (|cx| cx.value(0).map(drop), "f has no value 0: it is a tensor"),
        (|cx| cx.value(3).map(drop), "f has no value 3: the call brings 3"),
        (|cx| cx.param(0).map(drop), "f has no parameter 0: the call brings 0"),
        (|cx| cx.saved(0).map(drop), "f has no saved tensor 0: the call brings 0"),
        (
            |cx| {
                drop(cx.take(0)?);
                cx.input(0).map(drop)
            },
            "f has no input 0: it was taken",
        ),
    ];
    for mode in MODES {
        for (ask, says) in asks {
            let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
            let f = garden.engine.function("f", move |cx| ask(cx).map(|()| Vec::new()));
            let (input, host) = (garden.fresh(1.0), garden.device.host_buffer(16).unwrap());
            let error = f.call(args![&input, 7_u64, Arg::Host(&host)]).unwrap_err();
            assert_eq!(error.to_string(), says, "{mode:?}");
        }
    }
}

#[test]
fn a_function_that_says_how_many_inputs_it_takes_gets_no_other_number() {
    for mode in MODES {
        let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
        let options = FunctionOptions::new().inputs(1);
        let f = garden.engine.function_with("f", options, |cx| {
            let out = copied(cx)?;
            cx.save(&out);
            Ok(vec![out])
        });
        let b = garden.engine.function_with("b", FunctionOptions::new().inputs(0), |cx| {
            let saved = cx.take_saved(0)?;
            Ok(vec![cx.empty(saved.layout().clone())?])
        });
        let input = garden.fresh(3.0);
        for _ in 0..4 {
            let (_, token) = f.forward(args![&input]).unwrap();
            drop(b.backward(token, args![]).unwrap());
            let refused = |given| Err(Error::InputCount { function: "f".into(), expected: 1, given });
            assert_eq!(f.call(args![]).map(drop), refused(0), "{mode:?}");
            assert_eq!(f.call(args![&input, &input]).map(drop), refused(2), "{mode:?}");
        }
    }
}

#[test]
fn a_function_that_fails_by_itself_says_why_in_its_own_words() {
    for mode in MODES {
        let garden = Garden::new(Engine::<SimDevice>::builder().mode(mode));
        let f = garden.engine.function("f", |cx| match cx.value(0)? {
            0 => Err(cx.fail("nothing to do")),
            count => Ok(vec![cx.empty(Layout::of::<f32>(&[count])?)?]),
        });
        assert_eq!(f.call(args![0_u64]).unwrap_err().to_string(), "f failed: nothing to do");
        assert_eq!(f.call(args![3_u64]).unwrap().len(), 1);
    }
}
