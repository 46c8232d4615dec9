//! What a restore costs, against the number of blocks that exist.

use std::error::Error;
use std::time::Instant;

use graphgrove_pool::ranges::{Ranges, RegionKind, Survivors};

const REPEATS: usize = 201;

pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!(
        "Restore: microseconds to return to a checkpoint after 10 blocks were freed and 10 others allocated; {REPEATS} times."
    );
    println!();
    println!("{:>10} {:>12} {:>12} {:>20}", "blocks", "median", "worst", "first checkpoint");
    for blocks in [100_u64, 1_000, 10_000, 100_000] {
        let mut ranges = Ranges::default();
        ranges.add_region(RegionKind::Growing, blocks * 64 * 512)?;
        let live: Vec<_> =
            (0..blocks).map(|at| ranges.alloc(512 * (1 + at * 7 % 31), 1)).collect::<Result<_, _>>()?;
        let start = Instant::now();
        let checkpoint = ranges.checkpoint();
        let first = start.elapsed().as_secs_f64() * 1e6;
        let mut times = Vec::new();
        for repeat in 0..REPEATS {
            for at in 0..10 {
                ranges.free(live[(repeat * 7919 + at * 104_729) % live.len()].id)?;
                ranges.alloc(512 * (1 + at as u64), 1)?;
            }
            let start = Instant::now();
            ranges.restore(checkpoint, Survivors::AsRecorded)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        println!("{blocks:>10} {:>12.2} {:>12.1} {first:>20.1}", times[REPEATS / 2], times[REPEATS - 1]);
    }
    Ok(())
}
