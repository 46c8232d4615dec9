//! The kernels of the classifier, as closures over the simulated device's memory.
//!
//! Every sum is added up in a fixed order, so that a result does not depend on how its kernel was launched.

use graphgrove::{Args, Context, LaunchDims, Result};
use graphgrove_sim::{KernelFault, KernelScope, SimDevice, SimKernel};

use crate::kernels::{Kernels, Op};

pub(crate) struct SimKernels {
    linear: SimKernel,
    cross_entropy: SimKernel,
    weight_gradient: SimKernel,
    bias_gradient: SimKernel,
    input_gradient: SimKernel,
    add_to: SimKernel,
    momentum: SimKernel,
}

impl SimKernels {
    pub(crate) fn new(device: &SimDevice) -> Self {
        Self {
            linear: device.kernel("linear", linear).with_arguments(8),
            cross_entropy: device.kernel("cross entropy", cross_entropy).with_arguments(6),
            weight_gradient: device.kernel("weight gradient", weight_gradient).with_arguments(6),
            bias_gradient: device.kernel("bias gradient", bias_gradient).with_arguments(4),
            input_gradient: device.kernel("input gradient", input_gradient).with_arguments(7),
            add_to: device.kernel("add to", add_to).with_arguments(3),
            momentum: device.kernel("momentum", momentum).with_arguments(6),
        }
    }
}

impl Kernels<SimDevice> for SimKernels {
    fn run(&self, cx: &mut Context<'_, SimDevice>, op: Op, elements: u64, args: Args) -> Result<()> {
        let kernel = match op {
            Op::Linear => &self.linear,
            Op::CrossEntropy => &self.cross_entropy,
            Op::WeightGradient => &self.weight_gradient,
            Op::BiasGradient => &self.bias_gradient,
            Op::InputGradient => &self.input_gradient,
            Op::AddTo => &self.add_to,
            Op::Momentum => &self.momentum,
        };
        cx.launch(kernel, LaunchDims::for_elements(elements as u32), &args)
    }
}

fn size(scope: &KernelScope<'_>, argument: usize) -> Result<usize, KernelFault> {
    Ok(scope.scalar::<u32>(argument)? as usize)
}

fn linear(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (m, n, k, relu) = (size(scope, 4)?, size(scope, 5)?, size(scope, 6)?, size(scope, 7)? == 1);
    let x = scope.read::<f32>(0, m * k)?.to_vec();
    let w = scope.read::<f32>(1, k * n)?.to_vec();
    let b = scope.read::<f32>(2, n)?.to_vec();
    let mut y = Vec::with_capacity(m * n);
    for x in x.chunks_exact(k) {
        let mut row = b.clone();
        for (x, w) in x.iter().zip(w.chunks_exact(n)) {
            row.iter_mut().zip(w).for_each(|(sum, w)| *sum += x * w);
        }
        y.extend(row.into_iter().map(|value| if relu { value.max(0.0) } else { value }));
    }
    scope.write::<f32>(3, m * n)?.copy_from(&y);
    Ok(())
}

fn cross_entropy(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (m, n) = (size(scope, 4)?, size(scope, 5)?);
    let logits = scope.read::<f32>(0, m * n)?.to_vec();
    let classes = scope.read::<u32>(1, m)?.to_vec();
    let mut gradient = Vec::with_capacity(m * n);
    let (mut loss, mut hits) = (0.0, 0.0);
    for (logits, class) in logits.chunks_exact(n).zip(classes) {
        let class = class as usize;
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let total: f32 = powers.iter().sum();
        let of_class =
            powers.get(class).ok_or_else(|| KernelFault::new(format!("there is no class {class}")))?;
        loss -= (of_class / total).ln();
        hits += if logits.iter().position(|logit| *logit == largest) == Some(class) { 1.0 } else { 0.0 };
        let target = |at: usize| if at == class { 1.0 } else { 0.0 };
        gradient.extend(powers.iter().enumerate().map(|(at, power)| (power / total - target(at)) / m as f32));
    }
    scope.write::<f32>(2, m * n)?.copy_from(&gradient);
    scope.write::<f32>(3, 2)?.copy_from(&[loss / m as f32, hits]);
    Ok(())
}

fn weight_gradient(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (m, n, k) = (size(scope, 3)?, size(scope, 4)?, size(scope, 5)?);
    let x = scope.read::<f32>(0, m * k)?.to_vec();
    let dy = scope.read::<f32>(1, m * n)?.to_vec();
    let mut dw = vec![0.0; k * n];
    for (x, dy) in x.chunks_exact(k).zip(dy.chunks_exact(n)) {
        for (x, dw) in x.iter().zip(dw.chunks_exact_mut(n)) {
            dw.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += x * dy);
        }
    }
    scope.write::<f32>(2, k * n)?.copy_from(&dw);
    Ok(())
}

fn bias_gradient(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (m, n) = (size(scope, 2)?, size(scope, 3)?);
    let dy = scope.read::<f32>(0, m * n)?.to_vec();
    let mut db = vec![0.0; n];
    for dy in dy.chunks_exact(n) {
        db.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
    }
    scope.write::<f32>(1, n)?.copy_from(&db);
    Ok(())
}

fn input_gradient(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (m, n, k) = (size(scope, 4)?, size(scope, 5)?, size(scope, 6)?);
    let dy = scope.read::<f32>(0, m * n)?.to_vec();
    let w = scope.read::<f32>(1, k * n)?.to_vec();
    let y = scope.read::<f32>(2, m * k)?.to_vec();
    let mut dx = Vec::with_capacity(m * k);
    for (dy, y) in dy.chunks_exact(n).zip(y.chunks_exact(k)) {
        dx.extend(w.chunks_exact(n).zip(y).map(|(w, y)| {
            let sum: f32 = dy.iter().zip(w).map(|(dy, w)| dy * w).sum();
            if *y > 0.0 { sum } else { 0.0 }
        }));
    }
    scope.write::<f32>(3, m * k)?.copy_from(&dx);
    Ok(())
}

fn add_to(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let n = size(scope, 2)?;
    let (sum, x) = (scope.read_write::<f32>(0, n)?, scope.read::<f32>(1, n)?);
    for at in 0..n {
        sum.set(at, sum.get(at) + x.get(at));
    }
    Ok(())
}

fn momentum(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (n, scale) = (size(scope, 4)?, scope.scalar::<f32>(5)?);
    let (gradient, rate) = (scope.read::<f32>(0, n)?, scope.read::<f32>(1, 1)?.get(0));
    let (w, v) = (scope.read_write::<f32>(2, n)?, scope.read_write::<f32>(3, n)?);
    for at in 0..n {
        v.set(at, 0.9 * v.get(at) + scale * gradient.get(at));
        w.set(at, w.get(at) - rate * v.get(at));
    }
    Ok(())
}
