//! A forward that saves 160 outputs, and the backward that consumes them.

use std::error::Error;
use std::sync::Arc;

use graphgrove::{Engine, EngineBuilder, Function, Layers, Layout, Mode, args};
use graphgrove_cuda::CudaDevice;
use graphgrove_device::{DevicePtr, Memory, SegmentMemory, Streams};
use serde_json::{Value, json};

use crate::bare::{Bare, BareKernel};
use crate::kernel::{DIMS, OUTPUT, args as kernel_args, load, tensor};
use crate::timing::{Turn, Turns, medians};

const SAVED: usize = 160;
/// Bytes of each saved output.
const BYTES: u64 = 64 << 10;
const TURNS: Turns = Turns { warm_ups: 100, timed: 1_000 };

pub(crate) fn measure(device: &Arc<CudaDevice>) -> Result<Value, Box<dyn Error>> {
    let stream = device.create_stream()?;
    let memory = device.allocate(2 * SAVED as u64 * OUTPUT)?;
    let input = tensor(device, 1.0)?;
    let at = |number: usize| DevicePtr::new(memory.base().get() + number as u64 * OUTPUT);
    let kernel = BareKernel::load()?;
    let from = input.address()?;
    let half = |first: usize| {
        let launches: Vec<_> = (first..first + SAVED).map(|number| (from, at(number))).collect();
        Bare::record(&stream, kernel, &launches)
    };
    let bare = [half(0)?, half(SAVED)?];
    let engines = [
        Chain::new(device, EngineBuilder::default().mode(Mode::Trees), from)?,
        Chain::new(device, EngineBuilder::default().mode(Mode::Trees).layers(Layers::prefix(3)), from)?,
        Chain::new(device, EngineBuilder::default().mode(Mode::OnePool), from)?,
    ];
    let host: [f64; 4] = medians(device, &stream, TURNS, |variant, turn| match (variant, turn) {
        (_, Turn::Prepare) => Ok(device.synchronize()?),
        (0, Turn::Timed) => bare.iter().try_for_each(|bare| bare.launch(&stream)),
        (variant, Turn::Timed) => engines.get(variant - 1).map_or(Ok(()), Chain::step),
    })?;
    println!(
        "a step: a forward of {SAVED} kernels that saves {SAVED} outputs, and a backward of as many; us of the host, MiB of pools"
    );
    println!("{:<28} {:>8} {:>8}", "", "us", "MiB");
    println!("{:<28} {:>8.2}", "two bare launches", host[0]);
    let names = ["trees", "trees without FAST_REPLAY", "one pool for each function"];
    let mut rows = vec![json!({ "mode": "bare", "us": host[0] })];
    for ((name, chain), us) in names.into_iter().zip(&engines).zip(&host[1..]) {
        let bytes = chain.pool_bytes()?;
        println!("{name:<28} {us:>8.2} {:>8.1}", bytes as f64 / f64::from(1 << 20));
        rows.push(json!({ "mode": name, "us": us, "pool_bytes": bytes }));
    }
    Ok(json!({ "saved": SAVED, "bytes_each": BYTES, "rows": rows }))
}

struct Chain {
    engine: Engine<CudaDevice>,
    forward: Function<CudaDevice>,
    backward: Function<CudaDevice>,
}

impl Chain {
    fn new(
        device: &Arc<CudaDevice>,
        builder: EngineBuilder,
        from: DevicePtr,
    ) -> Result<Self, Box<dyn Error>> {
        let engine = builder.build(Arc::clone(device))?;
        let kernel = load(device)?;
        let forward_kernel = kernel.clone();
        let layout = || Layout::of::<u8>(&[BYTES]);
        let forward = engine.function("forward", move |cx| {
            for _ in 0..SAVED {
                let out = cx.empty(layout()?)?;
                cx.launch(&forward_kernel, DIMS, &kernel_args(from, out.address()?))?;
                cx.save(&out);
            }
            Ok(Vec::new())
        });
        let backward = engine.function("backward", move |cx| {
            let gradient = cx.empty(layout()?)?;
            for number in 0..SAVED {
                let saved = cx.take_saved(number)?;
                cx.launch(&kernel, DIMS, &kernel_args(saved.address()?, gradient.address()?))?;
            }
            Ok(vec![gradient])
        });
        let chain = Self { engine, forward, backward };
        for _ in 0..4 {
            chain.step()?;
        }
        let calls = chain.engine.stats()?.calls;
        if calls.recordings != 2 || calls.failures > 0 {
            return Err(format!("the chain was not recorded: {calls:?}").into());
        }
        Ok(chain)
    }

    fn step(&self) -> Result<(), Box<dyn Error>> {
        self.engine.begin_step()?;
        let (outputs, token) = self.forward.forward(args![])?;
        drop(outputs);
        drop(self.backward.backward(token, args![])?);
        Ok(())
    }

    fn pool_bytes(&self) -> Result<u64, Box<dyn Error>> {
        Ok(self.engine.stats()?.pools.iter().map(|pool| pool.ranges.reserved).sum())
    }
}
