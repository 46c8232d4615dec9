//! Draws are taken once a call, whichever way it runs.

use std::sync::Arc;

use graphgrove::philox::draw;
use graphgrove::{
    Args, Context, Engine, Error, Function, FunctionOptions, GeneratorState, LaunchDims, Layers, Layout,
    Mode, ParamSet, Random, Result, Tensor, args,
};
use graphgrove_sim::{Failure, Fault, SimDevice, SimKernel};

const N: u32 = 8;

fn layout() -> Layout {
    Layout::of::<u32>(&[u64::from(N)]).unwrap()
}

/// `(read state, u64 base, read_write to, u32 n)`: `to[i] = to[i] * 31 + draw number i`.
fn blur(device: &SimDevice) -> SimKernel {
    let kernel = device.kernel("blur", |scope| {
        let (state, base, n) = (scope.read::<u64>(0, 2)?, scope.scalar::<u64>(1)?, scope.scalar::<u32>(3)?);
        let to = scope.read_write::<u32>(2, n as usize)?;
        for i in 0..n {
            let [word, ..] = draw(state.get(0), state.get(1).wrapping_add(base + u64::from(i)));
            to.set(i as usize, to.get(i as usize).wrapping_mul(31).wrapping_add(word));
        }
        Ok(())
    });
    kernel.with_arguments(4)
}

fn blur_args(random: &Random, to: &Tensor) -> Result<Args> {
    Ok(Args::new().read(random.address()?).scalar(random.base()).read_write(to.address()?).scalar(N))
}

fn blurred(values: &mut [u32], seed: u64, number: u64) {
    for (value, number) in values.iter_mut().zip(number..) {
        *value = value.wrapping_mul(31).wrapping_add(draw(seed, number)[0]);
    }
}

struct Bed {
    device: Arc<SimDevice>,
    engine: Engine<SimDevice>,
    blur: SimKernel,
}

impl Bed {
    fn new(mode: Mode, layers: Layers) -> Self {
        let device = Arc::new(SimDevice::builder().seed(5).build());
        let engine =
            Engine::<SimDevice>::builder().mode(mode).layers(layers).build(Arc::clone(&device)).unwrap();
        Self { blur: blur(&device), device, engine }
    }

    fn trees() -> Self {
        Self::new(Mode::Trees, Layers::all())
    }

    /// Returns `N` draws.
    fn noise(&self) -> Function<SimDevice> {
        let kernel = self.blur.clone();
        self.engine.function("noise", move |cx| {
            let out = cx.empty(layout())?;
            cx.fill(&out, 0)?;
            let random = cx.random(u64::from(N))?;
            cx.launch(&kernel, LaunchDims::ONE, &blur_args(&random, &out)?)?;
            Ok(vec![out])
        })
    }

    fn read(&self, call: &Function<SimDevice>) -> Vec<u32> {
        let [out] = call.call(args![]).unwrap().into_array().unwrap();
        self.engine.read(&out).unwrap()
    }
}

fn noise_of(seed: u64, number: u64) -> Vec<u32> {
    let mut values = vec![0; N as usize];
    blurred(&mut values, seed, number);
    values
}

#[test]
fn the_same_calls_draw_the_same_numbers_in_every_mode_and_with_every_prefix_of_the_layers() {
    let prefixes = (0..=5).map(|layers| (Mode::Trees, Layers::prefix(layers)));
    for (mode, layers) in prefixes.chain([(Mode::Eager, Layers::all()), (Mode::OnePool, Layers::all())]) {
        let bed = Bed::new(mode, layers);
        let noise = bed.noise();
        bed.engine.seed(9).unwrap();
        for turn in 0..7 {
            assert_eq!(bed.read(&noise), noise_of(9, 8 * turn), "{mode:?} {layers} {turn}");
        }
        assert_eq!(bed.engine.generator().state(), GeneratorState { seed: 9, offset: 56 });
        bed.device.verdict().unwrap();
    }
}

#[test]
fn r50_a_generator_that_is_seeded_anew_repeats_itself_under_replays_and_between_plain_runs() {
    let bed = Bed::trees();
    let noise = bed.noise();
    let kernel = bed.blur.clone();
    let plain = bed.engine.function_with("plain", FunctionOptions::new().mode(Mode::Eager), move |cx| {
        let out = cx.empty(layout())?;
        cx.fill(&out, 0)?;
        let random = cx.random(3)?;
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&random, &out)?)?;
        Ok(vec![out])
    });
    for _ in 0..3 {
        bed.read(&noise);
    }
    assert_ne!(bed.read(&noise), bed.read(&noise));
    for _ in 0..2 {
        bed.engine.seed(1 << 40).unwrap();
        assert_eq!(bed.read(&noise), noise_of(1 << 40, 0));
        assert_eq!(bed.read(&plain), noise_of(1 << 40, 8));
        assert_eq!(bed.read(&noise), noise_of(1 << 40, 11));
    }
    // As a training run that goes on from a checkpoint.
    let state = bed.engine.generator().state();
    let next = bed.read(&noise);
    bed.read(&noise);
    bed.engine.generator().set_state(state);
    assert_eq!(bed.read(&noise), next);
    let calls = bed.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings), (1, 1), "{calls:?}");
    bed.device.verdict().unwrap();
}

#[test]
fn replays_in_flight_draw_numbers_of_their_own() {
    let bed = Bed::trees();
    let kernel = bed.blur.clone();
    let options = FunctionOptions::new().mutates_params();
    let step = bed.engine.function_with("step", options, move |cx| {
        let first = cx.random(u64::from(N))?;
        let second = cx.random(u64::from(N))?;
        let state = cx.param(0)?.clone();
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&first, &state)?)?;
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&second, &state)?)?;
        Ok(Vec::new())
    });
    let params = ParamSet::new(vec![bed.engine.tensor(&[8], &[1_u32; 8]).unwrap()]).unwrap();
    let other = graphgrove_device::Streams::create_stream(&*bed.device).unwrap();
    let mut expected = vec![1; N as usize];
    // Nothing waits for the device in between, and more calls are in flight than there are notes on a page.
    for turn in 0..2500_u64 {
        let call = step.with(&params);
        let call = if turn % 7 == 0 { call.on(&other) } else { call };
        let _ = call.call(args![]).unwrap();
        blurred(&mut expected, 0, 16 * turn);
        blurred(&mut expected, 0, 16 * turn + 8);
    }
    assert_eq!(bed.engine.read::<u32>(&params.tensors()[0]).unwrap(), expected);
    assert_eq!(bed.engine.stats().unwrap().calls.replays, 2498);
    bed.device.verdict().unwrap();
}

#[test]
fn a_replay_that_draws_costs_one_driver_call_more_and_one_that_does_not_none() {
    let bed = Bed::trees();
    let noise = bed.noise();
    let quiet = bed.engine.function("quiet", |cx| {
        let out = cx.empty(layout())?;
        cx.fill(&out, 0)?;
        Ok(vec![out])
    });
    let cost = |function: &Function<SimDevice>| {
        for _ in 0..4 {
            let _ = function.call(args![]).unwrap();
        }
        let before = bed.device.counts();
        let _ = function.call(args![]).unwrap();
        bed.device.counts().since(&before).total()
    };
    assert_eq!((cost(&quiet), cost(&noise)), (1, 2));
}

#[test]
fn invariant_10_a_call_that_fails_takes_no_draws() {
    for warm in 0..4 {
        for failure in [Failure::OutOfMemory, Failure::Driver(999), Failure::InvalidateCaptures] {
            let mut reached = true;
            let mut nth = 0;
            while reached {
                nth += 1;
                let bed = Bed::trees();
                let noise = bed.noise();
                for _ in 0..warm {
                    bed.read(&noise);
                }
                let before = bed.device.counts();
                bed.device.inject(Fault::at_any(nth, failure.clone()));
                let called = noise.call(args![]);
                bed.device.clear_faults();
                reached = bed.device.counts().since(&before).total() >= nth;
                let drawn = match called {
                    Ok(outputs) => {
                        let [out] = outputs.into_array().unwrap();
                        assert_eq!(bed.engine.read::<u32>(&out).unwrap(), noise_of(0, 8 * warm));
                        warm + 1
                    }
                    Err(_) => warm,
                };
                let state = GeneratorState { seed: 0, offset: 8 * drawn };
                assert_eq!(bed.engine.generator().state(), state, "{warm} {failure:?} {nth}");
                for turn in drawn..drawn + 3 {
                    assert_eq!(bed.read(&noise), noise_of(0, 8 * turn), "{warm} {failure:?} {nth}");
                }
                bed.device.verdict().unwrap();
            }
            assert!(nth > 1);
        }
    }
}

#[test]
fn r49_a_function_that_fails_after_drawing_draws_the_same_when_it_is_called_again() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let bed = Bed::trees();
    let fails = Arc::new(AtomicBool::new(false));
    let (kernel, flag) = (bed.blur.clone(), Arc::clone(&fails));
    let moody = bed.engine.function("moody", move |cx| {
        let out = cx.empty(layout())?;
        cx.fill(&out, 0)?;
        let random = cx.random(u64::from(N))?;
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&random, &out)?)?;
        if flag.load(Ordering::Relaxed) {
            cx.input(7)?;
        }
        Ok(vec![out])
    });
    for turn in 0..3 {
        fails.store(true, Ordering::Relaxed);
        // A warm-up and a recording fail; a replay does not run the function.
        let failed = moody.call(args![]).map(drop).is_err();
        assert_eq!(failed, turn < 2);
        fails.store(false, Ordering::Relaxed);
        if failed {
            assert_eq!(bed.read(&moody), noise_of(0, 8 * turn));
        }
    }
    bed.device.verdict().unwrap();
}

#[test]
fn r52_a_backward_draws_what_its_own_forward_drew() {
    let bed = Bed::trees();
    let kernel = bed.blur.clone();
    let forward = bed.engine.function("forward", move |cx| {
        let out = cx.empty(layout())?;
        cx.fill(&out, 0)?;
        let random = cx.random(u64::from(N))?;
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&random, &out)?)?;
        cx.save(random.state());
        Ok(vec![out])
    });
    let kernel = bed.blur.clone();
    let backward = bed.engine.function("backward", move |cx| {
        let out = cx.empty(layout())?;
        cx.fill(&out, 0)?;
        // The forward's first draw has base 0.
        let args = Args::new().read(cx.saved(0)?.address()?).scalar(0_u64).read_write(out.address()?);
        cx.launch(&kernel, LaunchDims::ONE, &args.scalar(N))?;
        Ok(vec![out])
    });
    for turn in 0..5 {
        bed.engine.begin_step().unwrap();
        let (first, first_token) = forward.forward(args![]).unwrap();
        let (second, second_token) = forward.forward(args![]).unwrap();
        let masks = [first, second].map(|outputs| {
            let [mask] = outputs.into_array().unwrap();
            bed.engine.read::<u32>(&mask).unwrap()
        });
        assert_eq!(masks, [noise_of(0, 16 * turn), noise_of(0, 16 * turn + 8)]);
        let again = [second_token, first_token].map(|token| {
            let [mask] = backward.backward(token, args![]).unwrap().into_array().unwrap();
            bed.engine.read::<u32>(&mask).unwrap()
        });
        assert_eq!([&again[1], &again[0]], [&masks[0], &masks[1]]);
    }
    assert!(bed.engine.stats().unwrap().calls.replays > 0);
    bed.device.verdict().unwrap();
}

#[test]
fn generators_are_apart_and_one_of_another_engine_is_refused() {
    let (bed, other) = (Bed::trees(), Bed::trees());
    let own = bed.engine.new_generator(4);
    let (kernel, generator) = (bed.blur.clone(), own.clone());
    let both = bed.engine.function("both", move |cx: &mut Context<'_, SimDevice>| {
        let (a, b) = (cx.empty(layout())?, cx.empty(layout())?);
        for out in [&a, &b] {
            cx.fill(out, 0)?;
        }
        let (first, second) = (cx.random_from(&generator, 8)?, cx.random(2)?);
        let third = cx.random_from(&generator, 1)?;
        assert_eq!((first.base(), second.base(), third.base()), (0, 0, 8));
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&first, &a)?)?;
        cx.launch(&kernel, LaunchDims::ONE, &blur_args(&second, &b)?)?;
        Ok(vec![a, b])
    });
    for turn in 0..4 {
        let [a, b] = both.call(args![]).unwrap().into_array().unwrap();
        assert_eq!(bed.engine.read::<u32>(&a).unwrap(), noise_of(4, 9 * turn));
        assert_eq!(bed.engine.read::<u32>(&b).unwrap(), noise_of(0, 2 * turn));
    }
    own.seed(6);
    let [a, b] = both.call(args![]).unwrap().into_array().unwrap();
    assert_eq!(bed.engine.read::<u32>(&a).unwrap(), noise_of(6, 0));
    assert_eq!(bed.engine.read::<u32>(&b).unwrap(), noise_of(0, 8));
    let foreign = other.engine.function("foreign", move |cx| cx.random_from(&own, 1).map(|_| Vec::new()));
    let refused = foreign.call(args![]).map(drop);
    assert_eq!(refused, Err(Error::ForeignHandle { what: "generator" }));
    bed.device.verdict().unwrap();
}
