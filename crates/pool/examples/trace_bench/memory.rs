//! Peak reserved against peak live.

use std::error::Error;
use std::time::Instant;

use graphgrove_pool::plan::Planner;
use graphgrove_pool::ranges::Granule;
use graphgrove_pool::trace::replay::{Cut, online, planned};
use graphgrove_pool::trace::{Event, Trace};

/// The ratios of `torch` 2.11.0, eager, with CUDA 13.0, on the recorded traces: (its peak of reserved bytes - the bytes live before the
/// trace began) / peak live bytes of the trace. Both sums were taken by its own counters while the trace was recorded, and stand in the
/// head of each trace as `torch_peak_reserved`, `outside_live_bytes` and `trace_peak_live_bytes`.
fn torch_ratio(trace: &Trace) -> Option<f64> {
    let note = |key| trace.note(key)?.parse::<f64>().ok();
    Some((note("torch_peak_reserved")? - note("outside_live_bytes")?) / note("trace_peak_live_bytes")?)
}

const PAGE: u64 = 2 << 20;

pub(crate) fn print(traces: &[(&str, Trace)]) -> Result<(), Box<dyn Error>> {
    println!("Memory: peak reserved / peak live bytes of the trace. One growing region; granule 512 bytes.");
    println!("  bytes: mapped to the granule; pages: mapped in pages of 2 MiB, as a device does.");
    println!("  planned: each phase, or each step, is one recording whose requests and lifetimes are known.");
    println!(
        "  plan ms: the mean time to plan a phase. torch: from the head of the trace; its segments are 2 MiB or 20 MiB and more."
    );
    println!("  no free: nothing is freed until the end of the trace.");
    println!();
    println!(
        "{:<16} {:>9} {:>7} | {:>7} {:>7} | {:>7} {:>7} {:>7} {:>7} {:>9} | {:>7} {:>8}",
        "trace",
        "peak MiB",
        "pairs",
        "online",
        "pages",
        "phase",
        "pages",
        "step",
        "pages",
        "plan ms",
        "torch",
        "no free"
    );
    for (name, trace) in traces {
        let live = trace.peak_live() as f64;
        let ratio = |bytes: u64| bytes as f64 / live;
        let granule = Granule::DEFAULT;
        let planner = Planner::new(granule);
        let free = online(trace, granule.bytes())?;
        let paged = online(trace, PAGE)?;
        let start = Instant::now();
        let phase = planned(trace, granule.bytes(), Cut::Phase, planner)?;
        let phase_ms = start.elapsed().as_secs_f64() * 1e3 / f64::from(phase.plans);
        let phase_paged = planned(trace, PAGE, Cut::Phase, planner)?;
        let step = planned(trace, granule.bytes(), Cut::Step, planner)?;
        let step_paged = planned(trace, PAGE, Cut::Step, planner)?;
        let departures = phase.departures + step.departures;
        if departures > 0 {
            println!("  {departures} recordings of {name} departed from their plans");
        }
        let torch = torch_ratio(trace).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        println!(
            "{:<16} {:>9.1} {:>7} | {:>7.4} {:>7.4} | {:>7.4} {:>7.4} {:>7.4} {:>7.4} {:>9.1} | {:>7} {:>8.1}",
            name,
            live / f64::from(1 << 20),
            trace.blocks(),
            ratio(free.stats.peak_reserved),
            ratio(paged.stats.peak_reserved),
            ratio(phase.stats.peak_reserved),
            ratio(phase_paged.stats.peak_reserved),
            ratio(step.stats.peak_reserved),
            ratio(step_paged.stats.peak_reserved),
            phase_ms,
            torch,
            ratio(everything(trace)),
        );
    }
    Ok(())
}

/// All bytes that the trace ever asks for, in granules: what an allocator needs that frees nothing until the end.
fn everything(trace: &Trace) -> u64 {
    let sizes = trace.events.iter().map(|event| match event {
        Event::Alloc { bytes, .. } => bytes.next_multiple_of(Granule::DEFAULT.bytes()),
        _ => 0,
    });
    sizes.sum()
}
