//! What handles cost on this machine: `cargo run --release -p graphgrove-storage --example handle_cost`.
//!
//! Each figure is the best of many rounds, since other work on the machine only ever adds. `Arc` is measured beside it in
//! the same run: its clone and drop are one atomic operation each, which is the least that a shared handle can do.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use graphgrove_device::DevicePtr;
use graphgrove_storage::{
    DeadMask, DeadMasks, Error, HandedBack, Layout, Ledger, OutputClass, PlannedOutput, Slab, SlotIndex,
    Step, Tensor,
};

/// Nanoseconds of one `work`, by the best of the rounds.
fn best(mut work: impl FnMut()) -> f64 {
    const CALLS: u32 = 2_000;
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..CALLS {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}

/// Nanoseconds of `timed`, which ends what `prepare` began; only that is timed.
fn best_of_part<T, U>(mut prepare: impl FnMut() -> T, mut timed: impl FnMut(T) -> U) -> f64 {
    let clock = {
        let mut least = f64::INFINITY;
        for _ in 0..20_000 {
            let start = Instant::now();
            least = least.min(start.elapsed().as_nanos() as f64);
        }
        least
    };
    let mut best = f64::INFINITY;
    for _ in 0..20_000 {
        let prepared = black_box(prepare());
        let start = Instant::now();
        let left = black_box(timed(prepared));
        best = best.min(start.elapsed().as_nanos() as f64);
        drop(left);
    }
    best - clock
}

fn slab(outputs: u64) -> Result<Slab, Error> {
    let layout = Layout::of::<f32>(&[8])?;
    let output = |number| PlannedOutput::fresh(DevicePtr::new(0x1000 + 512 * number), 512, layout.clone());
    Slab::new(&Ledger::new(), "F", 0, (0..outputs).map(output).collect())
}

fn none(_: SlotIndex, _: OutputClass) -> Option<Tensor> {
    None
}

fn hand_back(slab: &mut Slab) -> Option<HandedBack> {
    slab.hand_back(Step::new(1), none).ok()
}

fn main() -> Result<(), Error> {
    let mut one = slab(1)?;
    let tensor = hand_back(&mut one).and_then(|mut back| back.outputs.take(SlotIndex::new(0)));
    let Some(tensor) = tensor else { return Ok(()) };
    let shared = Arc::new(0_u64);
    let arc = best(|| drop(black_box(Arc::clone(black_box(&shared)))));
    let clone = best(|| drop(black_box(black_box(&tensor).clone())));
    let address = best(|| {
        black_box(black_box(&tensor).address().is_ok());
    });
    println!("clone and drop of a tensor      {clone:7.2} ns   (of an Arc: {arc:.2} ns)");
    println!("address, with the stale check   {address:7.2} ns");

    let mut wide = slab(320)?;
    let bulk = best_of_part(|| (), |()| hand_back(&mut wide));
    println!("hand back 320 outputs in bulk   {bulk:7.2} ns");
    let mut taken: Vec<Tensor> = Vec::with_capacity(320);
    let mut into = best_taken(&mut wide, &mut taken);
    println!("take 320 outputs one by one     {into:7.2} ns each");
    into = best_of_part(
        || {
            let mut back = hand_back(&mut wide);
            let tensors: Vec<_> =
                back.as_mut().map(|back| back.outputs.take_all().flatten().collect()).unwrap_or_default();
            (back, tensors)
        },
        |(back, mut tensors): (_, Vec<Tensor>)| {
            tensors.clear();
            (back, tensors)
        },
    );
    println!("drop 320 tensors one by one     {:7.2} ns each", into / 320.0);
    let bulk = best_of_part(|| hand_back(&mut wide), drop);
    println!("drop 320 outputs in bulk        {bulk:7.2} ns");

    let path: Vec<Slab> = (0..4).map(|_| slab(256)).collect::<Result<_, _>>()?;
    let masks = (0..4).flat_map(|place| (0..4).map(move |word| DeadMask { place, word, mask: u64::MAX }));
    let masks = DeadMasks::new(masks.collect());
    let check = best(|| {
        black_box(black_box(&masks).hold(black_box(&path[..])));
    });
    println!("must-be-dead check, 1,024 slots {check:7.2} ns");
    Ok(())
}

/// Nanoseconds of taking one of 320 outputs, into a vector that has room.
fn best_taken(wide: &mut Slab, taken: &mut Vec<Tensor>) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..20_000 {
        taken.clear();
        let Some(mut back) = hand_back(wide) else { return f64::NAN };
        let start = Instant::now();
        for output in 0..320 {
            if let Some(tensor) = back.outputs.take(SlotIndex::new(output)) {
                taken.push(tensor);
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    best / 320.0
}
