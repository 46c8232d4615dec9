//! What simulated launches cost: 10,000 empty kernels, and replays of a graph of 1,000 nodes.
//!
//! `cargo run --release -p graphgrove-sim --example launch_rate`

use std::time::{Duration, Instant};

use graphgrove_device::{Args, CaptureGuard, CaptureMode, Graphs, LaunchDims, Result, Streams, Work};
use graphgrove_sim::{SimBuilder, SimDevice};

/// The median of 11 runs: one run on a busy machine says little.
fn median(mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut times = (0..11).map(|_| run()).collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times[5])
}

fn launches(builder: &SimBuilder) -> Result<Duration> {
    let device = builder.clone().build();
    let stream = device.create_stream()?;
    let empty = device.kernel("empty", |_| Ok(()));
    median(|| {
        let start = Instant::now();
        for _ in 0..10_000 {
            device.launch(&stream, &empty, LaunchDims::ONE, &Args::new())?;
        }
        device.synchronize_stream(&stream)?;
        Ok(start.elapsed())
    })
}

fn replays(builder: &SimBuilder) -> Result<(Duration, u64)> {
    let device = builder.clone().build();
    let stream = device.create_stream()?;
    let empty = device.kernel("empty", |_| Ok(()));
    let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal)?;
    for _ in 0..1000 {
        device.launch(&stream, &empty, LaunchDims::ONE, &Args::new())?;
    }
    let mut exec = device.instantiate(&capture.end()?)?;
    let before = device.counts();
    let time = median(|| {
        let start = Instant::now();
        device.launch_exec(&mut exec, &stream)?;
        let time = start.elapsed();
        device.synchronize_stream(&stream)?;
        Ok(time)
    })?;
    // Every run made one launch and one wait.
    Ok((time, device.counts().since(&before).total() / 11 - 1))
}

fn main() -> Result<()> {
    for (name, builder) in [
        ("checker on", SimDevice::builder()),
        ("checker off", SimDevice::builder().checker(false)),
        ("null launch", SimDevice::builder().null_launch(true)),
    ] {
        let launched = launches(&builder)?;
        let (replayed, calls) = replays(&builder)?;
        println!(
            "{name:12} 10,000 empty launches {launched:>10.2?}   replay of 1,000 nodes {replayed:>10.2?}, {calls} call"
        );
    }
    Ok(())
}
