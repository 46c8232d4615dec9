//! What recording a call costs: the engine beside a bare capture of the same launches.

use std::error::Error;
use std::sync::Arc;

use graphgrove::{Engine, args};
use graphgrove_cuda::CudaDevice;
use graphgrove_device::{DevicePtr, Memory, SegmentMemory, Streams};
use serde_json::{Value, json};

use crate::bare::{Bare, BareKernel};
use crate::kernel::{DIMS, OUTPUT, args as kernel_args, load, output, tensor};
use crate::timing::{Turn, Turns, medians};

const KERNELS: [usize; 5] = [1, 10, 50, 160, 320];
const TURNS: Turns = Turns { warm_ups: 5, timed: 60 };

pub(crate) fn measure(device: &Arc<CudaDevice>) -> Result<Value, Box<dyn Error>> {
    println!(
        "us until a call that is recorded returns, beside capture, instantiation and first launch by driver calls alone:"
    );
    println!("median of {}", TURNS.timed);
    println!("{:>7} {:>9} {:>9} {:>6}", "kernels", "bare", "engine", "ratio");
    KERNELS.into_iter().map(|kernels| row(device, kernels)).collect::<Result<_, _>>().map(Value::Array)
}

fn row(device: &Arc<CudaDevice>, kernels: usize) -> Result<Value, Box<dyn Error>> {
    let stream = device.create_stream()?;
    let memory = device.allocate(kernels as u64 * OUTPUT)?;
    let input = tensor(device, 1.0)?;
    let at = |number: usize| DevicePtr::new(memory.base().get() + number as u64 * OUTPUT);
    let from = input.address()?;
    let launches: Vec<_> = (0..kernels).map(|number| (from, at(number))).collect();
    let bare_kernel = BareKernel::load()?;

    let engine = Engine::new(Arc::clone(device))?;
    let kernel = load(device)?;
    let function = engine.function("recorded", move |cx| {
        let mut made = Vec::with_capacity(kernels);
        for _ in 0..kernels {
            let out = cx.empty(output()?)?;
            cx.launch(&kernel, DIMS, &kernel_args(from, out.address()?))?;
            made.push(out);
        }
        Ok(made)
    });
    let mut kept = None;
    let [bare, engine_us] = medians(device, &stream, TURNS, |variant, turn| {
        match (variant, turn) {
            // What the last turn has left is destroyed outside of what is timed.
            (0, Turn::Prepare) => drop(kept.take()),
            (0, Turn::Timed) => {
                let bare = kept.insert(Bare::record(&stream, bare_kernel, &launches)?);
                bare.launch(&stream)?;
            }
            (_, Turn::Prepare) => {
                engine.reset()?;
                drop(function.call(args![])?);
                device.synchronize()?;
            }
            (_, Turn::Timed) => drop(function.call(args![])?),
        }
        Ok(())
    })?;
    let calls = engine.stats()?.calls;
    if calls.recordings != 1 || calls.failures > 0 {
        return Err(format!("the engine did not record: {calls:?}").into());
    }
    println!("{kernels:>7} {bare:>9.1} {engine_us:>9.1} {:>5.2}x", engine_us / bare);
    Ok(json!({ "kernels": kernels, "bare_us": bare, "engine_us": engine_us, "ratio": engine_us / bare }))
}
