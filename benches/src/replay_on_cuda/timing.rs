//! Medians of several variants that take turns.

use std::error::Error;
use std::time::{Duration, Instant};

use graphgrove_cuda::{CudaDevice, Stream};
use graphgrove_device::Streams;

/// How many variants a row has.
pub(crate) const VARIANTS: usize = 5;
const WARM_UPS: usize = 200;
const TURNS: usize = 2_000;

/// What a variant is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// To bring everything into the state in which it is timed.
    Prepare,
    /// To be timed.
    Timed,
}

/// Runs the variants in turn, each with the device idle before, and returns the median host time of each in microseconds.
pub(crate) fn medians(
    device: &CudaDevice,
    stream: &Stream,
    mut run: impl FnMut(usize, Turn) -> Result<(), Box<dyn Error>>,
) -> Result<[f64; VARIANTS], Box<dyn Error>> {
    let mut taken: [Vec<Duration>; VARIANTS] = std::array::from_fn(|_| Vec::with_capacity(TURNS));
    for turn in 0..WARM_UPS + TURNS {
        for (variant, taken) in taken.iter_mut().enumerate() {
            run(variant, Turn::Prepare)?;
            device.synchronize_stream(stream)?;
            let start = Instant::now();
            run(variant, Turn::Timed)?;
            let spent = start.elapsed();
            if turn >= WARM_UPS {
                taken.push(spent);
            }
        }
    }
    Ok(taken.map(|mut taken| {
        taken.sort_unstable();
        taken.get(TURNS / 2).map_or(f64::NAN, |median| median.as_nanos() as f64 / 1000.0)
    }))
}
