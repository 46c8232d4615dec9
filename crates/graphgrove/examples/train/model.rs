//! The classifier: two layers, and the five functions that train it.

use std::sync::Arc;

use graphgrove::{
    Args, Context, Device, Engine, Function, FunctionOptions, Layout, ParamSet, Result, Tensor,
};

use crate::kernels::{Kernels, Op};
use crate::shuffle::Shuffle;
use crate::wine::{CLASSES, FEATURES};

/// Numbers between the two layers.
const HIDDEN: usize = 64;
/// The shapes of the weights: matrix and bias of the first layer, matrix and bias of the second.
const SHAPES: [&[u64]; 4] = [
    &[FEATURES as u64, HIDDEN as u64],
    &[HIDDEN as u64],
    &[HIDDEN as u64, CLASSES as u64],
    &[CLASSES as u64],
];

/// The weights, and what the optimiser keeps for each of them.
pub(crate) struct Weights {
    /// What forward and backward read.
    pub(crate) weights: ParamSet,
    /// The same weights and then their velocities, which the optimiser writes to.
    pub(crate) state: ParamSet,
}

impl Weights {
    pub(crate) fn new<D: Device>(engine: &Engine<D>, seed: u64) -> Result<Self> {
        let mut random = Shuffle::new(seed);
        let mut weights = Vec::new();
        let mut velocities = Vec::new();
        for shape in SHAPES {
            let count: u64 = shape.iter().product();
            // Matrices start with a deviation that keeps the size of what goes through; biases start at zero.
            let size = if shape.len() == 2 { (2.0 / shape[0] as f32).sqrt() } else { 0.0 };
            let values: Vec<f32> = (0..count).map(|_| size * random.weight()).collect();
            weights.push(engine.tensor(shape, &values)?);
            velocities.push(engine.tensor(shape, &vec![0.0_f32; count as usize])?);
        }
        let state = weights.iter().cloned().chain(velocities).collect();
        Ok(Self { weights: ParamSet::new(weights)?, state: ParamSet::new(state)? })
    }
}

/// The functions of the training.
pub(crate) struct Model<D: Device> {
    /// `(measured)` with the weights -> `(logits)`. Saves what the backward reads.
    pub(crate) forward: Function<D>,
    /// `(logits, classes)` -> `(gradient of the logits, report)`. The report is the mean loss and the number of hits.
    pub(crate) loss: Function<D>,
    /// `(gradient of the logits)` with the weights -> the gradients of the four weights.
    pub(crate) backward: Function<D>,
    /// `(four sums, four gradients)` -> the sums, to which the gradients are added in place.
    pub(crate) accumulate: Function<D>,
    /// `(four gradients, rate, micro-batches)` with the state: one step of gradient descent with momentum.
    pub(crate) optimiser: Function<D>,
}

impl<D: Device> Model<D> {
    pub(crate) fn new<K: Kernels<D>>(engine: &Engine<D>, kernels: K) -> Self {
        let kernels = Arc::new(kernels);
        let bind = |body: fn(&K, &mut Context<'_, D>) -> Result<Vec<Tensor>>| {
            let kernels = Arc::clone(&kernels);
            move |cx: &mut Context<'_, D>| body(&kernels, cx)
        };
        let adds_in_place = FunctionOptions::new().mutates(0..4);
        let writes_weights = FunctionOptions::new().mutates_params();
        Self {
            forward: engine.function("forward", bind(forward::<D, K>)),
            loss: engine.function("loss", bind(loss::<D, K>)),
            backward: engine.function("backward", bind(backward::<D, K>)),
            accumulate: engine.function_with("accumulate", adds_in_place, bind(accumulate::<D, K>)),
            optimiser: engine.function_with("optimiser", writes_weights, bind(optimiser::<D, K>)),
        }
    }
}

fn forward<D: Device, K: Kernels<D>>(kernels: &K, cx: &mut Context<'_, D>) -> Result<Vec<Tensor>> {
    let measured = cx.take(0)?;
    let hidden = linear(kernels, cx, &measured, 0, true)?;
    let logits = linear(kernels, cx, &hidden, 2, false)?;
    cx.save(&measured);
    cx.save(&hidden);
    Ok(vec![logits])
}

/// A layer: its matrix is parameter `first`, its bias the one after.
fn linear<D: Device, K: Kernels<D>>(
    kernels: &K,
    cx: &mut Context<'_, D>,
    x: &Tensor,
    first: usize,
    relu: bool,
) -> Result<Tensor> {
    let (m, k, n) = (x.shape()[0], x.shape()[1], cx.param(first)?.shape()[1]);
    let y = cx.empty(Layout::of::<f32>(&[m, n])?)?;
    let args = Args::new()
        .read(x.address()?)
        .read(cx.param(first)?.address()?)
        .read(cx.param(first + 1)?.address()?)
        .write(y.address()?);
    let args = args.scalar(m as u32).scalar(n as u32).scalar(k as u32).scalar(u32::from(relu));
    kernels.run(cx, Op::Linear, m * n, args)?;
    Ok(y)
}

fn loss<D: Device, K: Kernels<D>>(kernels: &K, cx: &mut Context<'_, D>) -> Result<Vec<Tensor>> {
    let (m, n) = (cx.input(0)?.shape()[0], cx.input(0)?.shape()[1]);
    let gradient = cx.empty(Layout::of::<f32>(&[m, n])?)?;
    let report = cx.empty(Layout::of::<f32>(&[2])?)?;
    let args = Args::new()
        .read(cx.input(0)?.address()?)
        .read(cx.input(1)?.address()?)
        .write(gradient.address()?)
        .write(report.address()?);
    kernels.run(cx, Op::CrossEntropy, m, args.scalar(m as u32).scalar(n as u32))?;
    Ok(vec![gradient, report])
}

fn backward<D: Device, K: Kernels<D>>(kernels: &K, cx: &mut Context<'_, D>) -> Result<Vec<Tensor>> {
    let (measured, hidden, d_logits) = (cx.take_saved(0)?, cx.take_saved(1)?, cx.take(0)?);
    let (dw2, db2) = weight_gradients(kernels, cx, &hidden, &d_logits)?;

    let (m, n, k) = (hidden.shape()[0], d_logits.shape()[1], hidden.shape()[1]);
    let d_hidden = cx.empty(hidden.layout().clone())?;
    let args = Args::new()
        .read(d_logits.address()?)
        .read(cx.param(2)?.address()?)
        .read(hidden.address()?)
        .write(d_hidden.address()?);
    let args = args.scalar(m as u32).scalar(n as u32).scalar(k as u32);
    kernels.run(cx, Op::InputGradient, m * k, args)?;
    // What dies here is memory for the gradients below, in every recording too.
    drop((hidden, d_logits));

    let (dw1, db1) = weight_gradients(kernels, cx, &measured, &d_hidden)?;
    Ok(vec![dw1, db1, dw2, db2])
}

/// The gradients of a layer's matrix and bias, from what went into the layer and the gradient of what came out.
fn weight_gradients<D: Device, K: Kernels<D>>(
    kernels: &K,
    cx: &mut Context<'_, D>,
    x: &Tensor,
    dy: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let (m, n, k) = (x.shape()[0], dy.shape()[1], x.shape()[1]);
    let (dw, db) = (cx.empty(Layout::of::<f32>(&[k, n])?)?, cx.empty(Layout::of::<f32>(&[n])?)?);
    let args = Args::new().read(x.address()?).read(dy.address()?).write(dw.address()?);
    let args = args.scalar(m as u32).scalar(n as u32).scalar(k as u32);
    kernels.run(cx, Op::WeightGradient, k * n, args)?;
    let args = Args::new().read(dy.address()?).write(db.address()?).scalar(m as u32).scalar(n as u32);
    kernels.run(cx, Op::BiasGradient, n, args)?;
    Ok((dw, db))
}

fn accumulate<D: Device, K: Kernels<D>>(kernels: &K, cx: &mut Context<'_, D>) -> Result<Vec<Tensor>> {
    let mut sums = Vec::new();
    for weight in 0..SHAPES.len() {
        let (sum, gradient) = (cx.take(weight)?, cx.take(SHAPES.len() + weight)?);
        let n = sum.layout().elements();
        let args = Args::new().read_write(sum.address()?).read(gradient.address()?).scalar(n as u32);
        kernels.run(cx, Op::AddTo, n, args)?;
        sums.push(sum);
    }
    Ok(sums)
}

fn optimiser<D: Device, K: Kernels<D>>(kernels: &K, cx: &mut Context<'_, D>) -> Result<Vec<Tensor>> {
    let count = SHAPES.len();
    let scale = 1.0 / cx.value(count + 1)? as f32;
    for weight in 0..count {
        let n = cx.input(weight)?.layout().elements();
        let args = Args::new()
            .read(cx.input(weight)?.address()?)
            .read(cx.input(count)?.address()?)
            .read_write(cx.param(weight)?.address()?)
            .read_write(cx.param(count + weight)?.address()?);
        kernels.run(cx, Op::Momentum, n, args.scalar(n as u32).scalar(scale))?;
    }
    Ok(Vec::new())
}
