//! What recordings of one function at many sizes hold together, beside the largest of them and the sum of all.

use std::error::Error;
use std::sync::Arc;

use graphgrove::{Arg, Engine, Layout};
use graphgrove_cuda::CudaDevice;
use serde_json::{Value, json};

const SIZES: u64 = 20;
/// Bytes of a tensor for each step in size.
const UNIT: u64 = 4 << 20;

pub(crate) fn measure(device: &Arc<CudaDevice>) -> Result<Value, Box<dyn Error>> {
    let all: Vec<u64> = (1..=SIZES).collect();
    let together = pool_bytes(device, &all)?;
    let alone: Vec<u64> = all.iter().map(|size| pool_bytes(device, &[*size])).collect::<Result<_, _>>()?;
    let (sum, largest) = (alone.iter().sum::<u64>(), alone.iter().copied().max().unwrap_or(1));
    let ratio = together as f64 / largest as f64;
    println!("MiB that recordings of one function at {SIZES} sizes hold");
    println!("{:>14} {:>14} {:>14} {:>22}", "one pool", "the largest", "sum of pools", "one pool / largest");
    println!("{:>14} {:>14} {:>14} {ratio:>21.3}x", mib(together), mib(largest), mib(sum));
    Ok(json!({ "sizes": SIZES, "together": together, "largest": largest, "sum": sum, "ratio": ratio }))
}

/// Records the function at these sizes and replays it once more at each, and says what the pool holds then.
fn pool_bytes(device: &Arc<CudaDevice>, sizes: &[u64]) -> Result<u64, Box<dyn Error>> {
    let engine = Engine::new(Arc::clone(device))?;
    // Two temporaries and an output: the first temporary dies before the output is made.
    let function = engine.function("sized", |cx| {
        let bytes = cx.value(0)? * UNIT;
        let layout = || Layout::of::<u8>(&[bytes]);
        let first = cx.empty(layout()?)?;
        cx.fill(&first, 1)?;
        let second = cx.empty(layout()?)?;
        cx.copy(&second, &first)?;
        drop(first);
        let out = cx.empty(layout()?)?;
        cx.copy(&out, &second)?;
        Ok(vec![out])
    });
    // Recordings stay from turn to turn, so that in the last one all of them exist.
    for turn in 0..3 {
        for size in sizes.iter().rev() {
            engine.begin_step()?;
            drop(function.call([Arg::Value(*size)])?);
        }
        if turn == 2 && engine.stats()?.calls.recordings != sizes.len() as u64 {
            return Err(format!("not every size was recorded: {:?}", engine.stats()?.calls).into());
        }
    }
    Ok(engine.stats()?.pools.iter().map(|pool| pool.ranges.reserved).sum())
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}
