//! What a replay costs the host on a CUDA device: a bare launch beside the replay layer and the engine, by number of outputs and
//! of staged inputs.
//!
//! Each call is timed alone with the device idle before. The variants of a row take turns; medians of 2,000 turns after 200 to
//! warm up. `cargo run --release -p graphgrove-benches --bin replay-on-cuda`; it says that it is skipped where there is no device.

mod rig;
mod timing;

use std::error::Error;
use std::sync::Arc;

use graphgrove_cuda::CudaDevice;
use graphgrove_device::{DeviceError, Graphs};

use crate::rig::Rig;
use crate::timing::{Turn, medians};

fn main() -> Result<(), Box<dyn Error>> {
    let device = match CudaDevice::open(0) {
        Ok(device) => Arc::new(device),
        Err(DeviceError::NoDevice { reason }) => {
            println!("skipped: {reason}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("{}, driver {}", device.name()?, device.driver_version()?);
    println!("host time of one call, us: median; in brackets the ratio to the bare launch");
    println!(
        "{:>8} {:>8} {:>8}  {:>16} {:>16} {:>16} {:>16}",
        "outputs", "staged", "bare", "replay", "and take each", "addresses change", "engine"
    );
    let rows = [1, 10, 50, 160, 320].map(|outputs| (outputs, 0));
    let rows = rows.into_iter().chain([1, 8, 32, 128].map(|staged| (10, staged)));
    for (outputs, staged) in rows {
        row(&device, outputs, staged)?;
    }
    Ok(())
}

fn row(device: &Arc<CudaDevice>, outputs: usize, staged: usize) -> Result<(), Box<dyn Error>> {
    let mut rig = Rig::new(device, outputs, staged)?;
    let stream = rig.stream.clone();
    let host = medians(device, &stream, |variant, turn| {
        match (variant, turn) {
            (0 | 4, Turn::Prepare) => {}
            // The last replay before each had the first set of inputs.
            (_, Turn::Prepare) => rig.replay(false, false)?,
            (0, Turn::Timed) => device.launch_exec(&mut rig.bare, &stream)?,
            (1, Turn::Timed) => rig.replay(false, false)?,
            (2, Turn::Timed) => rig.replay(true, false)?,
            (3, Turn::Timed) => rig.replay(false, true)?,
            (_, Turn::Timed) => rig.call()?,
        }
        Ok(())
    })?;
    let ratio = |at: usize| format!("{:.2} ({:.2}x)", host[at], host[at] / host[0]);
    println!(
        "{outputs:>8} {staged:>8} {:>8.2}  {:>16} {:>16} {:>16} {:>16}",
        host[0],
        ratio(1),
        ratio(2),
        if staged > 0 { ratio(3) } else { "-".to_owned() },
        ratio(4)
    );
    rig.check()?;
    Ok(())
}
