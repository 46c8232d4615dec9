//! What a run is summed up as: a line of the table, or JSON.

use std::fmt;
use std::time::Duration;

use graphgrove::EngineStats;
use serde::Serialize;

use crate::setup::Setup;
use crate::training::{Difference, Times, Values};

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    mode: &'static str,
    /// Median nanoseconds of a mini-batch, until its losses are read.
    step_ns: u64,
    /// Median nanoseconds of a call, until it returns.
    call_ns: u64,
    /// Bytes that the pools of recordings held at most.
    pool_bytes: u64,
    /// Bytes that the pool of plain runs, of copies and of the data held at most.
    plain_bytes: u64,
    warm_ups: u64,
    recordings: u64,
    replays: u64,
    eager: u64,
    /// The mean loss of the last evaluation batch.
    last_loss: f32,
    accuracy: f32,
    /// Whether every loss, the accuracy, and all weights are those of the eager run to the last bit.
    equal_to_eager: bool,
}

impl Row {
    pub(crate) fn new(
        setup: Setup,
        times: &Times,
        stats: &EngineStats,
        values: &Values,
        eager: &Values,
    ) -> Self {
        Self {
            mode: setup.name(),
            step_ns: median(&times.steps),
            call_ns: median(&times.calls),
            pool_bytes: stats.pools.iter().map(|pool| pool.ranges.peak_reserved).sum(),
            plain_bytes: stats.plain.ranges.peak_reserved,
            warm_ups: stats.calls.warm_ups,
            recordings: stats.calls.recordings,
            replays: stats.calls.replays,
            eager: stats.calls.eager,
            last_loss: values.evaluation.last().map_or(0.0, |[loss, _]| *loss),
            accuracy: values.accuracy,
            equal_to_eager: values.is_same_as(eager),
        }
    }
}

fn median(times: &[Duration]) -> u64 {
    let mut times: Vec<u64> = times.iter().map(|time| time.as_nanos() as u64).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The whole table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) epochs: u32,
    pub(crate) seed: u64,
    pub(crate) device: String,
    pub(crate) modes: Vec<Row>,
    /// How the eager run compares with that of the simulated device.
    pub(crate) simulation: Option<Simulation>,
}

/// How far values are from those of the simulated device, whose sums are added up in another order.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Simulation {
    difference: Difference,
    /// The most that is allowed.
    tolerance: Difference,
}

impl Simulation {
    /// What rounding may come to over all epochs, each of which starts from the roundings of the one before.
    const TOLERANCE: Difference = Difference { loss: 0.01, state: 0.01, accuracy: 0.02 };

    pub(crate) const fn new(difference: Difference) -> Self {
        Self { difference, tolerance: Self::TOLERANCE }
    }

    fn is_close(&self) -> bool {
        let Self { difference, tolerance } = self;
        difference.loss <= tolerance.loss
            && difference.state <= tolerance.state
            && difference.accuracy <= tolerance.accuracy
    }
}

impl Report {
    pub(crate) const fn new(epochs: u32, seed: u64) -> Self {
        Self { epochs, seed, device: String::new(), modes: Vec::new(), simulation: None }
    }

    /// What is wrong with the values, if anything is.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        if !self.modes.iter().all(|row| row.equal_to_eager) {
            return Some("a mode computed other values than the eager run");
        }
        match &self.simulation {
            Some(simulation) if !simulation.is_close() => {
                Some("the values are farther from the simulated device's than rounding explains")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10} {:>8} {:>7} {:>8} {:>9}  equal to eager",
            "mode",
            "time/step",
            "host/call",
            "pool KiB",
            "other KiB",
            "peak KiB",
            "warm-ups",
            "recordings",
            "replays",
            "eager",
            "loss",
            "accuracy",
        )?;
        for row in &self.modes {
            writeln!(
                f,
                "{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10} {:>8} {:>7} {:>8.4} {:>8.1}%  {}",
                row.mode,
                micros(row.step_ns),
                micros(row.call_ns),
                row.pool_bytes.div_ceil(1024),
                row.plain_bytes.div_ceil(1024),
                (row.pool_bytes + row.plain_bytes).div_ceil(1024),
                row.warm_ups,
                row.recordings,
                row.replays,
                row.eager,
                row.last_loss,
                row.accuracy * 100.0,
                if row.equal_to_eager { "yes" } else { "NO" },
            )?;
        }
        writeln!(
            f,
            "pool: what recordings need. other: data, weights, plain runs, copies. loss: of the last evaluation batch."
        )?;
        if let Some(Simulation { difference, tolerance }) = &self.simulation {
            writeln!(
                f,
                "{}. Farthest from the simulated device's eager run: a loss by {:.1e} (at most {:.1e}), a weight by {:.1e} \
                 (at most {:.1e}), the accuracy by {:.2}% (at most {:.2}%).",
                self.device,
                difference.loss,
                tolerance.loss,
                difference.state,
                tolerance.state,
                difference.accuracy * 100.0,
                tolerance.accuracy * 100.0,
            )?;
        }
        Ok(())
    }
}

fn micros(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1000.0)
}
