//! Work on side streams inside of functions. The device's checker finds what is not ordered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove::{
    Args, Engine, Error, FunctionOptions, LaunchDims, Layers, Layout, Mode, ParamSet, SideStream, Tensor,
    args,
};
use graphgrove_device::{Call, StreamHandle, Streams, Work};
use graphgrove_sim::{SimDevice, kernels};
use parking_lot::Mutex;

use crate::garden::{Garden, N, layout, zip_args};

const DIMS: LaunchDims = LaunchDims::ONE;

/// Gardens of every mode, and of every prefix of the layers.
fn gardens() -> Vec<Garden> {
    let prefixes = (0..=5).map(|layers| (Mode::Trees, Layers::prefix(layers)));
    let all = prefixes.chain([(Mode::Eager, Layers::all()), (Mode::OnePool, Layers::all())]);
    all.map(|(mode, layers)| Garden::new(Engine::<SimDevice>::builder().mode(mode).layers(layers))).collect()
}

#[test]
fn work_on_two_streams_is_the_same_in_every_mode() {
    for garden in gardens() {
        let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let mul = kernels::zip::<f32>(&garden.device, "mul", |a, b| a * b);
        let function = garden.engine.function("both", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let side = cx.fork()?;
            // On the side: allocated there, and used by what comes there.
            let product = cx.on(&side)?.empty(layout())?;
            cx.on(&side)?.launch(&mul, DIMS, &zip_args(&a, &b, &product)?)?;
            let twice = cx.on(&side)?.empty(layout())?;
            cx.on(&side)?.launch(&add, DIMS, &zip_args(&product, &product, &twice)?)?;
            let sum = cx.empty(layout())?;
            cx.launch(&add, DIMS, &zip_args(&a, &b, &sum)?)?;
            cx.join(side)?;
            let out = cx.empty(layout())?;
            cx.launch(&add, DIMS, &zip_args(&sum, &twice, &out)?)?;
            Ok(vec![out, product])
        });
        for turn in 0..5_u8 {
            let (a, b) = (garden.tensor(f32::from(turn)), garden.tensor(3.0));
            let [out, product] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
            let turn = f32::from(turn);
            assert_eq!((garden.value(&out), garden.value(&product)), (turn + 3.0 + 6.0 * turn, 3.0 * turn));
            garden.engine.begin_step().unwrap();
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn memory_that_a_side_stream_still_reads_goes_to_nobody_before_the_join() {
    for garden in gardens() {
        let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let places: Arc<Mutex<Vec<[u64; 3]>>> = Arc::default();
        let noted = Arc::clone(&places);
        let function = garden.engine.function("drops", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let (temporary, sum) = (cx.empty(layout())?, cx.empty(layout())?);
            cx.launch(&add, DIMS, &zip_args(&a, &b, &temporary)?)?;
            let side = cx.fork()?;
            cx.on(&side)?.launch(&add, DIMS, &zip_args(&temporary, &a, &sum)?)?;
            let first = temporary.address()?.get();
            drop(temporary);
            let before = cx.empty(layout())?;
            cx.launch(&add, DIMS, &zip_args(&b, &b, &before)?)?;
            cx.join(side)?;
            let after = cx.empty(layout())?;
            cx.launch(&add, DIMS, &zip_args(&b, &b, &after)?)?;
            noted.lock().push([first, before.address()?.get(), after.address()?.get()]);
            Ok(vec![sum, before, after])
        });
        for turn in 0..4_u8 {
            let (a, b) = (garden.tensor(f32::from(turn)), garden.tensor(3.0));
            let [sum, before, after] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&sum), 2.0 * f32::from(turn) + 3.0);
            assert_eq!((garden.value(&before), garden.value(&after)), (6.0, 6.0));
            garden.engine.begin_step().unwrap();
        }
        for [temporary, before, after] in places.lock().iter() {
            assert_ne!(temporary, before);
            assert_eq!(temporary, after, "the join gives it back");
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_struct_by_value_and_the_stream_itself_keep_memory_from_others_too() {
    for garden in gardens() {
        // `(blob {address of from, address of to, n})`, as a library passes its arguments.
        let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let function = garden.engine.function("hidden", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let (one, two) = (cx.empty(layout())?, cx.empty(layout())?);
            let addresses = [one.address()?.get(), two.address()?.get()];
            let side = cx.fork()?;
            let blob: Vec<u8> = addresses[..1].iter().flat_map(|at| at.to_le_bytes()).collect();
            let out = cx.empty(layout())?;
            let hidden = zip_args(&a, &b, &out)?.blob(&blob);
            // The kernel looks at the addresses that it knows of, and has the other one in its struct.
            let kernel = add.clone().with_arguments(5);
            cx.on(&side)?.launch(&kernel, DIMS, &hidden)?;
            let mut on = cx.on(&side)?;
            on.uses(&two)?;
            assert!(on.stream().id() != cx.stream().id());
            drop((one, two));
            let (three, four) = (cx.empty(layout())?, cx.empty(layout())?);
            let new = [three.address()?.get(), four.address()?.get()];
            assert!(new.iter().all(|at| !addresses.contains(at)), "{new:?} {addresses:?}");
            for tensor in [&three, &four] {
                cx.fill(tensor, 0)?;
            }
            cx.join(side)?;
            Ok(vec![out])
        });
        for _ in 0..3 {
            let (a, b) = (garden.tensor(1.0), garden.tensor(3.0));
            let [out] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&out), 4.0);
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_side_stream_draws_beside_the_calls_own() {
    for garden in gardens() {
        let kernel = garden.device.kernel("words", |scope| {
            let (state, base) = (scope.read::<u64>(0, 2)?, scope.scalar::<u64>(1)?);
            let [word, ..] = graphgrove::philox::draw(state.get(0), state.get(1) + base);
            scope.write::<f32>(2, 1)?.set(0, graphgrove::philox::unit_f32(word));
            Ok(())
        });
        let function = garden.engine.function("draws", move |cx| {
            let (first, second, third) = (cx.empty(layout())?, cx.empty(layout())?, cx.empty(layout())?);
            let side = cx.fork()?;
            let mut draws = vec![(cx.on(&side)?.random(1)?, &first)];
            draws.push((cx.random(1)?, &second));
            draws.push((cx.on(&side)?.random(1)?, &third));
            for (at, (random, out)) in draws.iter().enumerate() {
                let args = Args::new().read(random.address()?).scalar(random.base()).write(out.address()?);
                match at {
                    1 => cx.launch(&kernel, DIMS, &args)?,
                    _ => cx.on(&side)?.launch(&kernel, DIMS, &args)?,
                }
            }
            drop(draws);
            cx.join(side)?;
            Ok(vec![first, second, third])
        });
        for turn in 0..4 {
            let outputs = function.call(args![]).unwrap().into_vec().unwrap();
            for (at, out) in (0..).zip(&outputs) {
                let [word, ..] = graphgrove::philox::draw(0, 3 * turn + at);
                assert_eq!(garden.value(out), graphgrove::philox::unit_f32(word), "{turn} {at}");
            }
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_forgotten_join_is_an_error_that_names_the_function_and_corrupts_nothing() {
    for garden in gardens() {
        let forgets = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&forgets);
        let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let function = garden.engine.function("forgetful", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let sum = cx.empty(layout())?;
            let side = cx.fork()?;
            cx.on(&side)?.launch(&add, DIMS, &zip_args(&a, &b, &sum)?)?;
            if !flag.load(Ordering::Relaxed) {
                cx.join(side)?;
            }
            Ok(vec![sum])
        });
        let other = garden.add("other");
        let (a, b) = (garden.tensor(1.0), garden.tensor(2.0));
        for turn in 0..3 {
            forgets.store(true, Ordering::Relaxed);
            match function.call(args![&a, &b]) {
                // A replay does not run the function.
                Ok(outputs) => {
                    assert_eq!(turn, 2);
                    let [sum] = outputs.into_array().unwrap();
                    assert_eq!(garden.value(&sum), 3.0);
                }
                Err(error) => {
                    assert_eq!(error, Error::Unjoined { function: "forgetful".to_owned(), streams: 1 });
                    assert_eq!(error.to_string(), "forgetful left 1 side streams unjoined");
                }
            }
            let [sum] = other.call(args![&b, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&sum), 4.0);
            drop(sum);
            garden.engine.begin_step().unwrap();
            forgets.store(false, Ordering::Relaxed);
            let [sum] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
            assert_eq!(garden.value(&sum), 3.0);
            drop(sum);
            garden.engine.begin_step().unwrap();
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn a_function_that_fails_or_panics_with_an_open_fork_takes_nothing_with_it() {
    for garden in gardens() {
        let mood = Arc::new(Mutex::new(0_u8));
        let now = Arc::clone(&mood);
        let add = kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
        let function = garden.engine.function("moody", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let sum = cx.empty(layout())?;
            let side = cx.fork()?;
            cx.on(&side)?.launch(&add, DIMS, &zip_args(&a, &b, &sum)?)?;
            let mood = *now.lock();
            assert!(mood != 2, "a bad mood");
            if mood == 1 {
                cx.input(7)?;
            }
            cx.join(side)?;
            Ok(vec![sum])
        });
        let other = garden.add("other");
        let (a, b) = (garden.tensor(1.0), garden.tensor(2.0));
        for _ in 0..3 {
            for bad in [1, 2, 0] {
                *mood.lock() = bad;
                let called = catch_unwind(AssertUnwindSafe(|| function.call(args![&a, &b])));
                if let Ok(Ok(outputs)) = called {
                    let [sum] = outputs.into_array().unwrap();
                    assert_eq!(garden.value(&sum), 3.0);
                }
                let [sum] = other.call(args![&b, &b]).unwrap().into_array().unwrap();
                assert_eq!(garden.value(&sum), 4.0);
                drop(sum);
                garden.engine.begin_step().unwrap();
            }
        }
        garden.device.verdict().unwrap();
    }
}

#[test]
fn what_a_failed_call_has_on_a_side_stream_comes_before_the_next_call() {
    for garden in gardens() {
        let fails = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&fails);
        let (axpy, add) =
            (kernels::axpy(&garden.device), kernels::zip::<f32>(&garden.device, "add", |a, b| a + b));
        let options = FunctionOptions::new().mutates_params();
        let update = garden.engine.function_with("update", options, move |cx| {
            let side = cx.fork()?;
            let args = Args::new().read(cx.input(0)?.address()?).read_write(cx.param(0)?.address()?);
            cx.on(&side)?.launch(&axpy, DIMS, &args.scalar(N as u32).scalar(1.0_f32))?;
            if flag.load(Ordering::Relaxed) {
                cx.input(7)?;
            }
            cx.join(side)?;
            Ok(Vec::new())
        });
        let twice = garden.engine.function("twice", move |cx| {
            let out = cx.empty(layout())?;
            cx.launch(&add, DIMS, &zip_args(cx.param(0)?, cx.param(0)?, &out)?)?;
            Ok(vec![out])
        });
        let a = garden.tensor(1.0);
        let params = ParamSet::new(vec![garden.tensor(10.0)]).unwrap();
        let (mut streams, mut known) = (0, 10.0);
        for _ in 0..4 {
            fails.store(true, Ordering::Relaxed);
            let before = garden.device.counts();
            let _ = update.with(&params).call(args![&a]);
            streams += garden.device.counts().since(&before).of(Call::CreateStream);
            fails.store(false, Ordering::Relaxed);
            let [out] = twice.with(&params).call(args![]).unwrap().into_array().unwrap();
            // A capture that fails has done nothing; what has run has run once.
            let done = garden.value(&params.tensors()[0]);
            assert!(done - known == 0.0 || done - known == 1.0, "{known} {done}");
            assert_eq!(garden.value(&out), 2.0 * done);
            let _ = update.with(&params).call(args![&a]).unwrap();
            known = done + 1.0;
            assert_eq!(garden.value(&params.tensors()[0]), known);
        }
        assert_eq!(streams, 1, "a side stream is lent again after a failure");
        garden.device.verdict().unwrap();
    }
}

#[test]
fn an_input_that_a_side_stream_has_read_is_there_for_the_plain_run_after_a_recording_without_room() {
    let garden = Garden::new(Engine::<SimDevice>::builder().budget(4 << 20));
    let make = garden.copy("make");
    let add = kernels::map::<f32>(&garden.device, "add", |x| x + 1.0);
    let side = garden.engine.function("side", move |cx| {
        let (input, out) = (cx.take(0)?, cx.empty(layout())?);
        let forked = cx.fork()?;
        let args = Args::new().read(input.address()?).write(out.address()?).scalar(N as u32);
        cx.on(&forked)?.launch(&add, LaunchDims::for_elements(N as u32), &args)?;
        drop(input);
        // The budget has no room for it, so that the recording is thrown away with the fork open.
        let scratch = cx.empty(Layout::of::<u8>(&[16 << 20])?)?;
        cx.fill(&scratch, 0)?;
        cx.join(forked)?;
        Ok(vec![out])
    });
    let input = garden.fresh(1.0);
    for turn in 0..5 {
        garden.engine.begin_step().unwrap();
        let [made] = make.call(args![&input]).unwrap().into_array().unwrap();
        let [out] = side.call(args![made]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&out), 2.0, "{turn}");
    }
    assert!(garden.has_reason("budget"), "{:?}", garden.engine.reasons());
    garden.device.verdict().unwrap();
}

#[test]
fn a_side_stream_of_another_call_is_refused() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let kept: Arc<Mutex<Option<SideStream>>> = Arc::default();
    let place = Arc::clone(&kept);
    let keeps = garden.engine.function("keeps", move |cx| {
        *place.lock() = Some(cx.fork()?);
        Ok(Vec::new())
    });
    let place = Arc::clone(&kept);
    let uses = garden.engine.function("uses", move |cx| {
        let foreign = place.lock().take();
        let foreign = foreign.ok_or(Error::ShutDown)?;
        let refused = cx.on(&foreign).map(drop);
        assert_eq!(refused, Err(Error::ForeignHandle { what: "side stream" }));
        cx.join(foreign).map(|()| Vec::new())
    });
    assert!(matches!(keeps.call(args![]).map(drop), Err(Error::Unjoined { .. })));
    assert_eq!(uses.call(args![]).map(drop), Err(Error::ForeignHandle { what: "side stream" }));
}

#[test]
fn a_stream_that_catches_up_sees_what_the_calls_own_has_done_since_the_fork() {
    for garden in gardens() {
        let (add, device) =
            (kernels::zip::<f32>(&garden.device, "add", |a, b| a + b), Arc::clone(&garden.device));
        let function = garden.engine.function("catches up", move |cx| {
            let (a, b) = (cx.take(0)?, cx.take(1)?);
            let (sum, out, raw): (Tensor, Tensor, Tensor) =
                (cx.empty(layout())?, cx.empty(layout())?, cx.empty(layout())?);
            let side = cx.fork()?;
            cx.launch(&add, DIMS, &zip_args(&a, &b, &sum)?)?;
            let mut on = cx.on(&side)?;
            on.catch_up()?;
            on.launch(&add, DIMS, &zip_args(&sum, &b, &out)?)?;
            on.uses(&raw)?;
            device.copy(on.stream(), raw.address()?, out.address()?, 4 * N)?;
            cx.join(side)?;
            Ok(vec![out, raw])
        });
        for _ in 0..4 {
            let (a, b) = (garden.tensor(1.0), garden.tensor(3.0));
            let [out, raw] = function.call(args![&a, &b]).unwrap().into_array().unwrap();
            assert_eq!((garden.value(&out), garden.value(&raw)), (7.0, 7.0));
        }
        garden.device.synchronize().unwrap();
        garden.device.verdict().unwrap();
    }
}
