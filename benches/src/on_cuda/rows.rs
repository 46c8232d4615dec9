//! Replays by number of outputs and of staged inputs.

use std::error::Error;
use std::sync::Arc;

use graphgrove_cuda::CudaDevice;
use serde_json::{Value, json};

use crate::replay::Rig;
use crate::timing::{Turn, Turns, medians};

const OUTPUTS: [usize; 5] = [1, 10, 50, 160, 320];
const STAGED: [usize; 5] = [0, 1, 8, 32, 128];
const TURNS: Turns = Turns { warm_ups: 100, timed: 1_000 };

pub(crate) fn measure(device: &Arc<CudaDevice>) -> Result<Value, Box<dyn Error>> {
    println!(
        "host time of one call, us: median of {}, of two passes the calmer; in brackets what it is more than a bare launch",
        TURNS.timed
    );
    println!(
        "layer: the replay layer alone; call: Function::call, on the engine's stream; bulk: outputs let go of together; each: taken into a list, and let go of one by one"
    );
    println!(
        "{:>7} {:>6} {:>6}  {:>13} {:>13} {:>13} {:>13} {:>13} {:>13}",
        "outputs",
        "staged",
        "bare",
        "layer bulk",
        "layer each",
        "layer change",
        "call bulk",
        "call each",
        "call change"
    );
    let mut rows = Vec::new();
    for staged in STAGED {
        for outputs in OUTPUTS {
            rows.push(row(device, outputs, staged)?);
        }
    }
    Ok(Value::Array(rows))
}

fn row(device: &Arc<CudaDevice>, outputs: usize, staged: usize) -> Result<Value, Box<dyn Error>> {
    let mut rig = Rig::new(device, outputs, staged)?;
    // Hosts are shared, and what others do there can double every figure for a while: of two passes the calmer one counts.
    let (first, second) = (pass(device, &mut rig)?, pass(device, &mut rig)?);
    let host = if first[0] <= second[0] { first } else { second };
    let more = |at: usize| format!("{:.2} ({:+.2})", host[at], host[at] - host[0]);
    let changed = |at: usize| if staged > 0 { more(at) } else { "-".to_owned() };
    println!(
        "{outputs:>7} {staged:>6} {:>6.2}  {:>13} {:>13} {:>13} {:>13} {:>13} {:>13}",
        host[0],
        more(1),
        more(2),
        changed(3),
        more(4),
        more(5),
        changed(6)
    );
    rig.check()?;
    let changed = |at: usize| (staged > 0).then_some(host[at]);
    Ok(json!({
        "outputs": outputs,
        "staged": staged,
        "bare_us": host[0],
        "layer_bulk_us": host[1],
        "layer_each_us": host[2],
        "layer_changed_us": changed(3),
        "call_bulk_us": host[4],
        "call_each_us": host[5],
        "call_changed_us": changed(6),
    }))
}

/// The medians of all variants: a bare launch; of the layer in bulk, one by one, with changed addresses; of a call likewise.
fn pass(device: &CudaDevice, rig: &mut Rig) -> Result<[f64; 7], Box<dyn Error>> {
    let stream = rig.stream.clone();
    medians(device, &stream, TURNS, |variant, turn| match (variant, turn) {
        (0, Turn::Prepare) => Ok(()),
        (0, Turn::Timed) => rig.bare.launch(&stream),
        // The last replay before each had the first set of inputs.
        (1..=3, Turn::Prepare) => rig.replay(false, false),
        (1, Turn::Timed) => rig.replay(false, false),
        (2, Turn::Timed) => rig.replay(true, false),
        (3, Turn::Timed) => rig.replay(false, true),
        (_, Turn::Prepare) => rig.call(false, false),
        (4, Turn::Timed) => rig.call(false, false),
        (5, Turn::Timed) => rig.call(true, false),
        (_, Turn::Timed) => rig.call(false, true),
    })
}
