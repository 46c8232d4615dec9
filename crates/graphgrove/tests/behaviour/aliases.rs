//! Outputs that are inputs, parameters, constants, or other outputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove::{Engine, Error, FunctionOptions, OldOutput, ParamSet, Tensor, args};
use graphgrove_sim::SimDevice;
use parking_lot::Mutex;

use crate::garden::{Garden, N, layout};

#[test]
fn an_input_that_is_returned_shares_its_storage_with_its_view_and_both_die_together() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let make = garden.copy("make");
    let pair = garden.engine.function("pair", |cx| {
        let input = cx.take(0)?;
        let view = input.slice(0, 2..N, 1)?;
        Ok(vec![input, view])
    });
    let start = garden.fresh(3.0);
    for turn in 0..5 {
        let [made] = make.call(args![&start]).unwrap().into_array().unwrap();
        let [same, view] = pair.call(args![made]).unwrap().into_array().unwrap();
        assert!(same.shares_storage(&view).unwrap(), "{turn}");
        assert_eq!(view.address().unwrap().get() - same.address().unwrap().get(), 8);
        drop(same);
        assert_eq!(garden.engine.read::<f32>(&view).unwrap(), vec![3.0; N as usize - 2]);
        drop(view);
        // Nothing is left, so that the next turn starts at the root.
        assert_eq!(garden.depths().len(), 2 * usize::from(turn > 0), "{turn}");
    }
    assert_eq!(garden.engine.stats().unwrap().calls.recordings, 2);
    garden.device.verdict().unwrap();
}

#[test]
fn views_of_a_parameter_lie_in_it_and_outlive_every_step() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let weight = garden.fresh(3.0);
    let params = ParamSet::new(vec![weight.clone()]).unwrap();
    let views = garden.engine.function("views", |cx| {
        let weight = cx.param(0)?.clone();
        let part = weight.slice(0, 1..N, 1)?;
        Ok(vec![weight, part])
    });
    let more = garden.engine.function("more", |cx| Ok(vec![cx.input(0)?.clone()]));
    let mut first = None;
    for turn in 0..5 {
        garden.engine.begin_step().unwrap();
        let [whole, part] = views.with(&params).call(args![]).unwrap().into_array().unwrap();
        let [again] = more.call(args![&part]).unwrap().into_array().unwrap();
        for view in [&whole, &part, &again] {
            assert!(view.shares_storage(&weight).unwrap(), "{turn}");
        }
        // Views of the first step are as good as ever.
        let first = first.get_or_insert((whole, part, again));
        assert_eq!(garden.value(&first.0), 3.0);
        assert_eq!(garden.engine.read::<f32>(&first.2).unwrap(), vec![3.0; N as usize - 1]);
    }
    assert_eq!(garden.engine.stats().unwrap().calls.copied_out, 0);
    garden.device.verdict().unwrap();
}

#[test]
fn a_constant_output_is_the_functions_own_tensor_at_every_call() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let constant = garden.fresh(4.0);
    let own = constant.clone();
    let f = garden.engine.function("f", move |cx| {
        let out = cx.empty(own.layout().clone())?;
        cx.copy(&out, &own)?;
        Ok(vec![own.clone(), own.slice(0, 3..N, 1)?, out])
    });
    let mut kept = Vec::new();
    for turn in 0..5 {
        garden.engine.begin_step().unwrap();
        let [whole, part, out] = f.call(args![]).unwrap().into_array().unwrap();
        assert!(
            whole.shares_storage(&constant).unwrap() && part.shares_storage(&constant).unwrap(),
            "{turn}"
        );
        assert_eq!(garden.value(&out), 4.0);
        kept.push((whole, part));
    }
    for (whole, part) in &kept {
        assert_eq!((garden.value(whole), garden.value(part)), (4.0, 4.0));
    }
    assert_eq!(garden.engine.stats().unwrap().calls.replays, 3);
    garden.device.verdict().unwrap();
}

#[test]
fn a_constant_is_written_in_place_once_for_each_call() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let kernel = graphgrove_sim::kernels::axpy(&garden.device);
    let total = garden.fresh(0.0);
    let own = total.clone();
    let count = garden.engine.function("count", move |cx| {
        let args = graphgrove::Args::new().read(cx.input(0)?.address()?).read_write(own.address()?);
        cx.launch(
            &kernel,
            graphgrove::LaunchDims::for_elements(N as u32),
            &args.scalar(N as u32).scalar(1.0_f32),
        )?;
        Ok(vec![])
    });
    let one = garden.fresh(1.0);
    for turn in 1..=6 {
        let _ = count.call(args![&one]).unwrap();
        assert_eq!(garden.value(&total), turn as f32);
    }
    assert_eq!(garden.engine.stats().unwrap().calls.replays, 4);
    garden.device.verdict().unwrap();
}

#[test]
fn two_outputs_in_one_storage_keep_its_block_until_both_are_dead() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let pair = garden.engine.function("pair", |cx| {
        let from = cx.take(0)?;
        let out = cx.empty(from.layout().clone())?;
        cx.copy(&out, &from)?;
        Ok(vec![out.clone(), out.slice(0, 4..N, 1)?])
    });
    let (other, next, input) = (garden.copy("other"), garden.add("next"), garden.fresh(3.0));
    for turn in 0..5 {
        let [whole, part] = pair.call(args![&input]).unwrap().into_array().unwrap();
        let (gone, left) = if turn % 2 == 0 { (whole, part) } else { (part, whole) };
        drop(gone);
        let [out] = other.call(args![&input]).unwrap().into_array().unwrap();
        assert!(!out.shares_storage(&left).unwrap());
        assert_eq!((garden.value(&left), garden.value(&out)), (3.0, 3.0), "{turn}");
        drop((left, out));
        // Freed once, and for the next one to use.
        let [_next] = next.call(args![&input, &input]).unwrap().into_array().unwrap();
        assert!(turn > 2 || garden.live_blocks() == 1, "{turn}");
    }
    garden.device.verdict().unwrap();
}

#[test]
fn a_view_keeps_an_output_that_a_replay_made_when_its_own_handle_is_gone() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g, input) = (garden.copy("f"), garden.copy("g"), garden.fresh(3.0));
    for turn in 0..6 {
        let [out] = f.call(args![&input]).unwrap().into_array().unwrap();
        let view = out.slice(0, 2..N, 1).unwrap();
        drop(out);
        let [other] = g.call(args![&garden.fresh(9.0)]).unwrap().into_array().unwrap();
        assert_eq!((garden.value(&view), garden.value(&other)), (3.0, 9.0), "{turn}");
    }
    assert_eq!(garden.depths(), [0, 1]);
    garden.device.verdict().unwrap();
}

#[test]
fn handles_of_one_output_over_several_functions_are_one_storage() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let options = FunctionOptions::new();
    let first = garden.engine.function_with("first", options.clone(), |cx| {
        let from = cx.take(0)?;
        let out = cx.empty(from.layout().clone())?;
        cx.copy(&out, &from)?;
        Ok(vec![out.clone(), out.slice(0, 1..N, 1)?])
    });
    let second = garden.engine.function_with("second", options, |cx| {
        let (seen, own) = (cx.input(0)?.clone(), cx.empty(cx.input(0)?.layout().clone())?);
        cx.copy(&own, &seen)?;
        Ok(vec![seen.clone(), seen.slice(0, 2..N, 1)?, own])
    });
    let input = garden.fresh(3.0);
    for turn in 0..4 {
        let [a, b] = first.call(args![&input]).unwrap().into_array().unwrap();
        let [c, d, e] = second.call(args![&a]).unwrap().into_array().unwrap();
        for alias in [&b, &c, &d] {
            assert!(alias.shares_storage(&a).unwrap(), "{turn}");
        }
        assert!(!e.shares_storage(&a).unwrap());
        drop((a, b, c));
        assert_eq!(garden.value(&d), 3.0);
        drop((d, e));
        assert_eq!(garden.depths().len(), 2 * usize::from(turn > 0));
    }
    garden.device.verdict().unwrap();
}

#[test]
fn what_a_failed_call_has_made_is_gone_wherever_it_was_kept() {
    // After one run it is the recording that fails; one that something survives is run plainly instead, and what is kept then is its own.
    for (fails, runs_before) in [("error", 0), ("error", 1), ("panic", 0), ("panic", 1), ("survivor", 0)] {
        let garden = Garden::new(Engine::<SimDevice>::builder().old_outputs(OldOutput::Keep));
        let kept = Arc::new(Mutex::new(None::<Tensor>));
        let now = Arc::new(AtomicBool::new(false));
        let (keeps, is_now) = (Arc::clone(&kept), Arc::clone(&now));
        let f = garden.engine.function("f", move |cx| {
            let hidden = cx.empty(layout())?;
            cx.fill(&hidden, 1)?;
            if is_now.load(Ordering::Relaxed) {
                *keeps.lock() = Some(hidden);
                match fails {
                    "error" => return Err(cx.fail("no more")),
                    "panic" => std::panic::resume_unwind(Box::new("no more")),
                    _ => {}
                }
            }
            Ok(vec![cx.empty(layout())?])
        });
        for _ in 0..runs_before {
            drop(f.call(args![]).unwrap());
        }
        now.store(true, Ordering::Relaxed);
        let failed = catch_unwind(AssertUnwindSafe(|| f.call(args![]).map(drop)));
        assert!(!matches!(failed, Ok(Ok(()))), "{fails}");
        let other = garden.copy("other");
        let input = garden.fresh(7.0);
        let outputs: Vec<_> =
            (0..3).map(|_| other.call(args![&input]).unwrap().into_array::<1>().unwrap()).collect();
        let hidden = kept.lock().take().unwrap();
        let gone = garden.engine.read::<f32>(&hidden).unwrap_err().to_string();
        assert!(gone.contains("a tensor that f has made") && gone.contains("that call failed"), "{gone}");
        assert!(matches!(other.call(args![&hidden]).map(drop), Err(Error::Storage(_))), "{fails}");
        assert!(outputs.iter().flatten().all(|output| garden.value(output) == 7.0));
        drop((hidden, outputs));
        garden.device.verdict().unwrap();
    }
}
