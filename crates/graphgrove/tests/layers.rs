//! What each layer of the stack brings: one program under every prefix of the stack, with its counters side by side.
//!
//! The program is a small training loop: a forward, its backward, an evaluation whose backward never runs, a chain whose
//! intermediate results are given up, and a function that returns its input. Every value is compared with plain Rust.
#![allow(clippy::unwrap_used, reason = "a check that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use graphgrove::{Engine, Function, Layers, Layout, Storage, Tensor, args};
use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory};
use graphgrove_sim::{SimDevice, kernels};

const N: u64 = 1 << 16;
const STEPS: u32 = 12;

/// What a run of the program came to.
#[derive(Clone, Copy, Debug)]
struct Effect {
    layers: Layers,
    eager: u64,
    warm_ups: u64,
    recordings: u64,
    replays: u64,
    /// Driver calls in the last step.
    driver_calls: u64,
    /// Bytes that were live in the pool at most, recordings included.
    peak: u64,
    /// Host time of the last step in nanoseconds.
    step_ns: u128,
    wrong: u32,
}

struct Program {
    device: Arc<SimDevice>,
    engine: Engine<SimDevice>,
    six_times: Function<SimDevice>,
    forward: Function<SimDevice>,
    backward: Function<SimDevice>,
    same: Function<SimDevice>,
}

fn layout() -> Layout {
    Layout::of::<f32>(&[N]).unwrap()
}

fn launch_args(a: &Tensor, b: &Tensor, out: &Tensor) -> graphgrove::Result<Args> {
    Ok(Args::new().read(a.address()?).read(b.address()?).write(out.address()?).scalar(N as u32))
}

impl Program {
    fn new(layers: Layers) -> Self {
        let device = Arc::new(SimDevice::builder().seed(3).build());
        let engine = Engine::<SimDevice>::builder().layers(layers).build(Arc::clone(&device)).unwrap();
        let add = kernels::zip::<f32>(&device, "add", |a, b| a + b);
        let mul = kernels::zip::<f32>(&device, "mul", |a, b| a * b);
        let six_times = {
            // Its input is given up before its second temporary is made, so that one block can serve for both.
            let add = add.clone();
            engine.function("six times", move |cx| {
                let x = cx.take(0)?;
                let twice = cx.empty(layout())?;
                cx.launch(&add, LaunchDims::for_elements(N as u32), &launch_args(&x, &x, &twice)?)?;
                drop(x);
                let four_times = cx.empty(layout())?;
                let args = launch_args(&twice, &twice, &four_times)?;
                cx.launch(&add, LaunchDims::for_elements(N as u32), &args)?;
                let out = cx.empty(layout())?;
                let args = launch_args(&twice, &four_times, &out)?;
                cx.launch(&add, LaunchDims::for_elements(N as u32), &args)?;
                Ok(vec![out])
            })
        };
        let forward = {
            let mul = mul.clone();
            engine.function("forward", move |cx| {
                let out = cx.empty(layout())?;
                let (x, w) = (cx.input(0)?.clone(), cx.input(1)?.clone());
                cx.launch(&mul, LaunchDims::for_elements(N as u32), &launch_args(&x, &w, &out)?)?;
                cx.save(&out);
                Ok(vec![out])
            })
        };
        let backward = {
            let mul = mul.clone();
            engine.function("backward", move |cx| {
                let out = cx.empty(layout())?;
                let args = launch_args(cx.saved(0)?, cx.input(0)?, &out)?;
                cx.launch(&mul, LaunchDims::for_elements(N as u32), &args)?;
                Ok(vec![out])
            })
        };
        let same = engine.function("same", move |cx| {
            let x = cx.take(0)?;
            Ok(vec![x])
        });
        Self { device, engine, six_times, forward, backward, same }
    }

    fn tensor(&self, value: f32) -> Tensor {
        let segment = self.device.allocate(4 * N).unwrap();
        let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), N as usize).flatten().collect();
        self.device.write(segment.base(), &bytes).unwrap();
        let storage = Storage::outside(segment.base(), 4 * N, Box::new(segment));
        Tensor::new(storage, layout(), 0).unwrap()
    }

    fn value(&self, tensor: &Tensor) -> f32 {
        use graphgrove_device::Streams;
        self.device.synchronize().unwrap();
        let mut bytes = [0; 4];
        self.device.read(tensor.address().unwrap(), &mut bytes).unwrap();
        f32::from_le_bytes(bytes)
    }

    /// One step. Returns how many values were wrong.
    fn step(&self, x: &Tensor, w: &Tensor, value: f32) -> graphgrove::Result<u32> {
        let mut wrong = 0;
        let mut expect = |tensor: &Tensor, expected: f32| wrong += u32::from(self.value(tensor) != expected);
        let (outputs, token) = self.forward.calling().forward(args![x, w])?;
        let [y] = outputs.into_array()?;
        expect(&y, value * 3.0);
        let [gradient] = self.backward.calling().backward(token, args![w])?.into_array()?;
        expect(&gradient, value * 9.0);
        drop((y, gradient));

        // An evaluation: its backward never runs.
        let (outputs, token) = self.forward.calling().forward(args![x, w])?;
        drop(token);
        let [y] = outputs.into_array()?;
        let [y] = self.six_times.call(args![y])?.into_array()?;
        let [y] = self.six_times.call(args![y])?.into_array()?;
        expect(&y, value * 108.0);
        let [y] = self.same.call(args![y])?.into_array()?;
        expect(&y, value * 108.0);
        Ok(wrong)
    }
}

fn run(layers: Layers) -> Effect {
    let program = Program::new(layers);
    let mut effect = Effect {
        layers,
        eager: 0,
        warm_ups: 0,
        recordings: 0,
        replays: 0,
        driver_calls: 0,
        peak: 0,
        step_ns: 0,
        wrong: 0,
    };
    let w = program.tensor(3.0);
    let inputs: Vec<Tensor> = (0..STEPS).map(|step| program.tensor(step as f32)).collect();
    for (step, x) in inputs.iter().enumerate() {
        let (before, start) = (program.device.counts(), Instant::now());
        program.engine.begin_step().unwrap();
        effect.wrong += program.step(x, &w, step as f32).unwrap();
        effect.step_ns = start.elapsed().as_nanos();
        effect.driver_calls = program.device.counts().since(&before).total();
    }
    let stats = program.engine.stats().unwrap();
    let calls = stats.calls;
    effect.eager = calls.eager;
    effect.warm_ups = calls.warm_ups;
    effect.recordings = calls.recordings;
    effect.replays = calls.replays;
    effect.peak = stats.pools.iter().map(|pool| pool.ranges.peak_live).max().unwrap_or(0);
    program.device.verdict().unwrap();
    effect
}

fn main() -> ExitCode {
    let effects: Vec<Effect> = (0..=5).map(|length| run(Layers::prefix(length))).collect();
    println!(
        "{:<22} {:>6} {:>8} {:>10} {:>8} {:>12} {:>12} {:>10}",
        "layers up to",
        "eager",
        "warm-ups",
        "recordings",
        "replays",
        "driver calls",
        "peak bytes",
        "step, us"
    );
    for effect in &effects {
        let top = effect.layers.iter_names().last().map_or("none", |(name, _)| name);
        println!(
            "{top:<22} {:>6} {:>8} {:>10} {:>8} {:>12} {:>12} {:>10}",
            effect.eager,
            effect.warm_ups,
            effect.recordings,
            effect.replays,
            effect.driver_calls,
            effect.peak,
            effect.step_ns / 1000
        );
    }
    let [none, backwards, dealloc, cache, fast, switch] = effects[..] else { return ExitCode::FAILURE };
    let checks = [
        ("every value is right whatever the layers", effects.iter().all(|effect| effect.wrong == 0)),
        ("a forward whose backward never runs holds nothing back", backwards.replays > none.replays),
        ("what a recording gives up makes it smaller", dealloc.peak < backwards.peak),
        ("functions that return their input are recorded", dealloc.eager > 0 && cache.eager == 0),
        ("a replay is fewer driver calls", fast.driver_calls < cache.driver_calls),
        ("the switch takes trees", switch.replays == fast.replays),
    ];
    let failed = checks.iter().filter(|(_, holds)| !holds).count();
    for (what, holds) in checks {
        println!("{:<8} {what}", if holds { "passed" } else { "failed" });
    }
    println!("{} passed, {failed} failed, 0 skipped", checks.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
