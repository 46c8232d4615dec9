//! Nanoseconds for a pair of one allocation and one free, of all allocators in turn on the same operations.

use std::error::Error;
use std::time::Instant;

use graphgrove_pool::trace::{Event, Trace};

use crate::peers::{Bump, Offsets, Ours, Peer, Tlsf};

#[derive(Clone, Copy)]
enum Step {
    Alloc { block: u32, size: u32 },
    Free { block: u32 },
}

pub(crate) fn print(traces: &[(&str, Trace)], rounds: usize) -> Result<(), Box<dyn Error>> {
    println!("Speed: nanoseconds for one alloc + free pair; median of {rounds} rounds, allocators in turn.");
    println!("  noting: with a checkpoint held, so that every operation is noted for a restore.");
    println!(
        "  rlsf writes its headers into the memory that it manages, which a host cannot do with a device's."
    );
    println!("  Ratios: graphgrove / offset-allocator, and graphgrove / rlsf.");
    println!();
    let mut head = false;
    for (name, trace) in traces {
        let (steps, capacity) = steps(trace)?;
        let blocks = trace.blocks();
        let mut peers: Vec<Box<dyn Round>> = vec![
            Box::new(Ours::new(capacity, blocks, false)),
            Box::new(Ours::new(capacity, blocks, true)),
            Box::new(Offsets::new(capacity, blocks)),
            Box::new(Tlsf::new(capacity, blocks)),
            Box::new(Bump::new(blocks)),
        ];
        if !head {
            let names: Vec<_> = peers.iter().map(|peer| format!("{:>18}", peer.title())).collect();
            println!("{:<16} {} {:>9} {:>9}", "trace", names.join(" "), "/ offset", "/ rlsf");
            head = true;
        }
        let mut times = vec![Vec::with_capacity(rounds); peers.len()];
        for round in 0..rounds + 2 {
            for (peer, times) in peers.iter_mut().zip(&mut times) {
                let start = Instant::now();
                peer.round(&steps);
                let elapsed = start.elapsed().as_secs_f64() * 1e9 / blocks as f64;
                // The first two rounds fill tables and caches.
                if round >= 2 {
                    times.push(elapsed);
                }
            }
        }
        let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
        let shown: Vec<_> = medians.iter().map(|median| format!("{median:>18.1}")).collect();
        println!(
            "{name:<16} {} {:>9.2} {:>9.2}",
            shown.join(" "),
            medians[0] / medians[2],
            medians[0] / medians[3]
        );
    }
    Ok(())
}

/// A whole trace through one allocator. Generic below this call, so that nothing within a round is called through a pointer.
trait Round {
    fn title(&self) -> &'static str;
    fn round(&mut self, steps: &[Step]);
}

impl<P: Peer> Round for P {
    fn title(&self) -> &'static str {
        self.name()
    }

    fn round(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Alloc { block, size } => self.alloc(block as usize, size),
                Step::Free { block } => self.free(block as usize),
            }
        }
        self.end_round();
    }
}

/// The operations of a trace, with everything freed at the end, and a capacity that is ample for every allocator.
fn steps(trace: &Trace) -> Result<(Vec<Step>, u32), Box<dyn Error>> {
    let mut steps = Vec::new();
    let mut live = std::collections::BTreeSet::new();
    for event in &trace.events {
        match *event {
            Event::Alloc { block, bytes, .. } => {
                steps.push(Step::Alloc { block, size: u32::try_from(bytes.div_ceil(512).max(1))? });
                live.insert(block);
            }
            Event::Free { block } => {
                steps.push(Step::Free { block });
                live.remove(&block);
            }
            Event::Phase(_) => {}
        }
    }
    steps.extend(live.into_iter().map(|block| Step::Free { block }));
    Ok((steps, u32::try_from(trace.peak_live() * 2 / 512 + 4096)?))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
