//! The program that every mode runs: epochs of mini-batches, and an evaluation after each of them.

use std::time::{Duration, Instant};

use graphgrove::{Device, Engine, Outputs, Result, Tensor, args};
use serde::Serialize;

use crate::kernels::Kernels;
use crate::model::{Model, Weights};
use crate::shuffle::Shuffle;
use crate::wine::{Batch, Wines};

/// How far each step goes in the first epoch. It halves every ten epochs.
const FIRST_RATE: f32 = 0.05;

/// All values that the program computes, to be compared bit by bit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    /// The mean loss and the hits of each micro-batch.
    pub(crate) training: Vec<[f32; 2]>,
    /// The mean loss and the hits of each evaluation batch.
    pub(crate) evaluation: Vec<[f32; 2]>,
    /// The share of held-out wines that are graded as the tasters did, after the last epoch.
    pub(crate) accuracy: f32,
    /// The weights and velocities in the end.
    pub(crate) state: Vec<Vec<f32>>,
}

impl Values {
    /// Whether all of them are the same, to the last bit.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let bits = |values: &Self| {
            let reports = values.training.iter().chain(&values.evaluation).flatten();
            let all = reports.chain(values.state.iter().flatten()).chain([&values.accuracy]);
            all.map(|value| value.to_bits()).collect::<Vec<u32>>()
        };
        bits(self) == bits(other)
    }

    /// The largest difference of a loss or a weight, and how far the accuracies are apart.
    pub(crate) fn difference(&self, other: &Self) -> Difference {
        let losses = |values: &Self| {
            let reports = values.training.iter().chain(&values.evaluation);
            reports.map(|[loss, _]| *loss).collect::<Vec<f32>>()
        };
        let state = |values: &Self| values.state.concat();
        Difference {
            loss: farthest(&losses(self), &losses(other)),
            state: farthest(&state(self), &state(other)),
            accuracy: (self.accuracy - other.accuracy).abs(),
        }
    }
}

/// How far the values of two runs are apart. A value that is no number is infinitely far from any.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) loss: f32,
    pub(crate) state: f32,
    pub(crate) accuracy: f32,
}

fn farthest(some: &[f32], others: &[f32]) -> f32 {
    if some.len() != others.len() {
        return f32::INFINITY;
    }
    let apart = some.iter().zip(others).map(|(one, other)| (one - other).abs());
    apart.map(|apart| if apart.is_nan() { f32::INFINITY } else { apart }).fold(0.0, f32::max)
}

/// What was timed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// Of each mini-batch, until its losses are read.
    pub(crate) steps: Vec<Duration>,
    /// Of each call of a function, until it returns.
    pub(crate) calls: Vec<Duration>,
}

/// One run of the program on an engine.
pub(crate) struct Training<'a, D: Device> {
    engine: &'a Engine<D>,
    model: Model<D>,
    weights: Weights,
    values: Values,
    times: Times,
}

impl<'a, D: Device> Training<'a, D> {
    pub(crate) fn new(engine: &'a Engine<D>, kernels: impl Kernels<D>, seed: u64) -> Result<Self> {
        let (model, weights) = (Model::new(engine, kernels), Weights::new(engine, seed)?);
        Ok(Self { engine, model, weights, values: Values::default(), times: Times::default() })
    }

    /// Runs the whole program. `after_epoch` is told the mean loss of each epoch.
    pub(crate) fn run(
        mut self,
        wines: &Wines,
        epochs: u32,
        seed: u64,
        mut after_epoch: impl FnMut(f32),
    ) -> Result<(Values, Times)> {
        let evaluation = wines.evaluation(self.engine)?;
        let mut shuffle = Shuffle::new(seed);
        for epoch in 0..epochs {
            let rate = FIRST_RATE * 0.5_f32.powi((epoch / 10) as i32);
            let rate = self.engine.tensor(&[1], &[rate])?;
            let before = self.values.training.len();
            for micros in wines.epoch(self.engine, &mut shuffle)? {
                self.step(&micros, &rate)?;
            }
            self.values.accuracy = self.evaluate(&evaluation)?;
            let losses = &self.values.training[before..];
            after_epoch(losses.iter().map(|[loss, _]| loss).sum::<f32>() / losses.len() as f32);
        }
        for tensor in self.weights.state.tensors() {
            self.values.state.push(self.engine.read(tensor)?);
        }
        Ok((self.values, self.times))
    }

    /// One mini-batch: the gradients of its micro-batches are added up, and then the weights are updated once.
    fn step(&mut self, micros: &[Batch], rate: &Tensor) -> Result<()> {
        let start = Instant::now();
        self.engine.begin_step()?;
        let mut sums: Option<[Tensor; 4]> = None;
        let mut reports = Vec::new();
        for micro in micros {
            let forward = self.model.forward.with(&self.weights.weights);
            let (outputs, token) = timed(&mut self.times, || forward.forward(args![&micro.measured]))?;
            let [logits] = outputs.into_array()?;
            let outputs = timed(&mut self.times, || self.model.loss.call(args![logits, &micro.classes]))?;
            let [d_logits, report] = outputs.into_array()?;
            reports.push(report);
            let backward = self.model.backward.with(&self.weights.weights);
            let outputs = timed(&mut self.times, || backward.backward(token, args![d_logits]))?;
            let gradients = outputs.into_array()?;
            sums = Some(match sums {
                None => gradients,
                Some(sums) => self.accumulate(sums, gradients)?,
            });
        }
        let Some([dw1, db1, dw2, db2]) = sums else { return Ok(()) };
        let optimiser = self.model.optimiser.with(&self.weights.state);
        let inputs = args![dw1, db1, dw2, db2, rate, micros.len() as u64];
        let _nothing: Outputs = timed(&mut self.times, || optimiser.call(inputs))?;
        for report in reports {
            self.values.training.push(self.read(&report)?);
        }
        self.times.steps.push(start.elapsed());
        Ok(())
    }

    fn accumulate(&mut self, sums: [Tensor; 4], gradients: [Tensor; 4]) -> Result<[Tensor; 4]> {
        let ([s0, s1, s2, s3], [g0, g1, g2, g3]) = (sums, gradients);
        let inputs = args![s0, s1, s2, s3, g0, g1, g2, g3];
        timed(&mut self.times, || self.model.accumulate.call(inputs))?.into_array()
    }

    /// Runs forwards whose backwards never run, and returns the share of hits.
    fn evaluate(&mut self, batches: &[Batch]) -> Result<f32> {
        let (mut hits, mut rows) = (0.0, 0);
        for batch in batches {
            self.engine.begin_step()?;
            let forward = self.model.forward.with(&self.weights.weights);
            let (outputs, token) = timed(&mut self.times, || forward.forward(args![&batch.measured]))?;
            drop(token);
            let [logits] = outputs.into_array()?;
            let outputs = timed(&mut self.times, || self.model.loss.call(args![logits, &batch.classes]))?;
            let [_, report] = outputs.into_array()?;
            let report = self.read(&report)?;
            self.values.evaluation.push(report);
            hits += report[1];
            rows += batch.rows;
        }
        Ok(hits / rows as f32)
    }

    fn read(&self, report: &Tensor) -> Result<[f32; 2]> {
        Ok(self.engine.read(report)?.try_into().unwrap_or_default())
    }
}

/// Makes a call and notes how long it took.
fn timed<T>(times: &mut Times, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let made = call();
    times.calls.push(start.elapsed());
    made
}
