//! Medians of several variants that take turns.

use std::error::Error;
use std::time::{Duration, Instant};

use graphgrove_cuda::{CudaDevice, Stream};
use graphgrove_device::Streams;

/// What a variant is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// To bring everything into the state in which it is timed.
    Prepare,
    /// To be timed.
    Timed,
}

/// How often every variant runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Turns that do not count.
    pub(crate) warm_ups: usize,
    /// Turns that count.
    pub(crate) timed: usize,
}

/// Runs the variants in turn, each with the device idle before, and returns the median host time of each in microseconds.
pub(crate) fn medians<const VARIANTS: usize>(
    device: &CudaDevice,
    stream: &Stream,
    turns: Turns,
    mut run: impl FnMut(usize, Turn) -> Result<(), Box<dyn Error>>,
) -> Result<[f64; VARIANTS], Box<dyn Error>> {
    let mut taken: [Vec<Duration>; VARIANTS] = std::array::from_fn(|_| Vec::with_capacity(turns.timed));
    for turn in 0..turns.warm_ups + turns.timed {
        for (variant, taken) in taken.iter_mut().enumerate() {
            run(variant, Turn::Prepare)?;
            device.synchronize_stream(stream)?;
            let start = Instant::now();
            run(variant, Turn::Timed)?;
            let spent = start.elapsed();
            if turn >= turns.warm_ups {
                taken.push(spent);
            }
        }
    }
    device.synchronize_stream(stream)?;
    Ok(taken.map(|mut taken| median(&mut taken)))
}

/// The median in microseconds.
pub(crate) fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |median| median.as_nanos() as f64 / 1000.0)
}
