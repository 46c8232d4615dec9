//! A training step of the size of ResNet-50's: the same kernels under each mode of the engine.
//!
//! The shapes are those of K. He et al., "Deep residual learning for image recognition" (2016), at a batch of 4: 53 convolutions, each
//! with its normalisation and activation, and a last layer; 161 parameters and 160 saved outputs. The kernels are stand-ins that read
//! and write as much as the real ones have to and do next to no arithmetic, so that the host's share shows.

mod layers;
mod model;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphgrove::{EngineBuilder, Layers, Mode};
use graphgrove_cuda::{CudaDevice, CudaError};
use graphgrove_device::Streams;
use serde_json::{Value, json};

use crate::timing::median;
use model::Training;

const WARM_UPS: usize = 10;
const STEPS: usize = 100;

pub(crate) fn measure(device: &Arc<CudaDevice>) -> Result<Value, Box<dyn Error>> {
    let module = match model::compile(device) {
        Err(CudaError::NoCompiler { reason }) => {
            println!("skipped: {reason}");
            return Ok(Value::Null);
        }
        compiled => compiled?,
    };
    let trees = EngineBuilder::default().mode(Mode::Trees);
    let setups = [
        ("eager", EngineBuilder::default().mode(Mode::Eager)),
        ("one pool for each function", EngineBuilder::default().mode(Mode::OnePool)),
        ("trees without FAST_REPLAY", trees.clone().layers(Layers::prefix(3))),
        ("trees", trees),
    ];
    let mut trainings = Vec::new();
    for (name, builder) in setups {
        trainings.push((name, Training::new(device, &module, builder)?, Vec::new(), Vec::new()));
    }
    let mut checks = Vec::new();
    for turn in 0..WARM_UPS + STEPS {
        for (_, training, host, done) in &mut trainings {
            let (start, returned) = (Instant::now(), training.step()?);
            let returned: Duration = returned.duration_since(start);
            device.synchronize()?;
            if turn >= WARM_UPS {
                host.push(returned);
                done.push(start.elapsed());
            }
        }
    }
    println!(
        "ms of a step until the device is done, and until the last call has returned: median of {STEPS}; MiB of memory"
    );
    println!(
        "{:<28} {:>8} {:>9} {:>8} {:>8} {:>8} {:>10} {:>8}",
        "", "ms", "speed-up", "host ms", "pools", "others", "recordings", "replays"
    );
    let mut rows = Vec::new();
    let mut eager = None;
    for (name, training, host, done) in &mut trainings {
        let (host, done) = (median(host) / 1000.0, median(done) / 1000.0);
        let of_eager = *eager.get_or_insert(done) / done;
        let stats = training.stats()?;
        let pools: u64 = stats.pools.iter().map(|pool| pool.ranges.peak_reserved).sum();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "{name:<28} {done:>8.3} {of_eager:>8.2}x {host:>8.3} {:>8.0} {:>8.0} {:>10} {:>8}",
            mib(pools),
            mib(stats.plain.ranges.peak_reserved),
            stats.calls.recordings,
            stats.calls.replays
        );
        rows.push(json!({
            "mode": name,
            "done_ms": done,
            "host_ms": host,
            "speed_up": of_eager,
            "pool_bytes": pools,
            "other_bytes": stats.plain.ranges.peak_reserved,
            "recordings": stats.calls.recordings,
            "replays": stats.calls.replays,
            "eager": stats.calls.eager,
        }));
        checks.push(training.weights()?);
    }
    // Every mode has taken as many steps from the same weights.
    if checks.iter().any(|weights| weights != &checks[0]) {
        return Err("a mode has computed other weights than the eager one".into());
    }
    Ok(Value::Array(rows))
}
