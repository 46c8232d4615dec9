//! The kernels of the model, as closures over the simulated device's memory.

use graphgrove::{Args, Context, LaunchDims, Result};
use graphgrove_sim::{KernelFault, KernelScope, SimDevice, SimKernel};

use crate::kernels::{Kernels, Op};

pub(crate) struct SimKernels {
    embed: SimKernel,
    project: SimKernel,
    append: SimKernel,
    attend: SimKernel,
    add: SimKernel,
    choose: SimKernel,
    advance: SimKernel,
}

impl SimKernels {
    pub(crate) fn new(device: &SimDevice) -> Self {
        Self {
            embed: device.kernel("embed", embed).with_arguments(6),
            project: device.kernel("project", project).with_arguments(7),
            append: device.kernel("append", append).with_arguments(6),
            attend: device.kernel("attend", attend).with_arguments(8),
            add: device.kernel("add", add).with_arguments(3),
            choose: device.kernel("choose", choose).with_arguments(6),
            advance: device.kernel("advance", advance).with_arguments(1),
        }
    }
}

impl Kernels<SimDevice> for SimKernels {
    fn run(&self, cx: &mut Context<'_, SimDevice>, op: Op, args: Args) -> Result<()> {
        let kernel = match op {
            Op::Embed => &self.embed,
            Op::Project => &self.project,
            Op::Append => &self.append,
            Op::Attend => &self.attend,
            Op::Add => &self.add,
            Op::Choose => &self.choose,
            Op::Advance => &self.advance,
        };
        // These kernels loop by themselves, so one thread is enough.
        cx.launch(kernel, LaunchDims::ONE, &args)
    }
}

fn size(scope: &KernelScope<'_>, argument: usize) -> Result<usize, KernelFault> {
    Ok(scope.scalar::<u32>(argument)? as usize)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn embed(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (b, d, vocabulary) = (size(scope, 3)?, size(scope, 4)?, size(scope, 5)?);
    let tokens = scope.read::<u32>(0, b)?.to_vec();
    let table = scope.read::<f32>(1, vocabulary * d)?.to_vec();
    let mut x = Vec::with_capacity(b * d);
    for token in tokens {
        let row = table.chunks_exact(d).nth(token as usize);
        x.extend_from_slice(row.ok_or_else(|| KernelFault::new(format!("there is no token {token}")))?);
    }
    scope.write::<f32>(2, b * d)?.copy_from(&x);
    Ok(())
}

fn project(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (b, n, k, relu) = (size(scope, 3)?, size(scope, 4)?, size(scope, 5)?, size(scope, 6)? == 1);
    let x = scope.read::<f32>(0, b * k)?.to_vec();
    let w = scope.read::<f32>(1, k * n)?.to_vec();
    let mut y = vec![0.0_f32; b * n];
    for (x, y) in x.chunks_exact(k).zip(y.chunks_exact_mut(n)) {
        for (x, w) in x.iter().zip(w.chunks_exact(n)) {
            y.iter_mut().zip(w).for_each(|(sum, w)| *sum += x * w);
        }
        y.iter_mut().filter(|value| relu && **value < 0.0).for_each(|value| *value = 0.0);
    }
    scope.write::<f32>(2, b * n)?.copy_from(&y);
    Ok(())
}

fn append(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (b, d, capacity) = (size(scope, 3)?, size(scope, 4)?, size(scope, 5)?);
    let x = scope.read::<f32>(0, b * d)?.to_vec();
    let length = scope.read::<u32>(1, 1)?.get(0) as usize;
    if length >= capacity {
        return Err(KernelFault::new(format!("the cache of {capacity} tokens is full")));
    }
    for (sequence, row) in x.chunks_exact(d).enumerate() {
        scope.write_at::<f32>(2, (sequence * capacity + length) * d, d)?.copy_from(row);
    }
    Ok(())
}

fn attend(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (b, d, capacity) = (size(scope, 5)?, size(scope, 6)?, size(scope, 7)?);
    let q = scope.read::<f32>(0, b * d)?.to_vec();
    let so_far = scope.read::<u32>(3, 1)?.get(0) as usize + 1;
    let x = scope.read_write::<f32>(4, b * d)?;
    for (sequence, q) in q.chunks_exact(d).enumerate() {
        let keys = scope.read_at::<f32>(1, sequence * capacity * d, so_far * d)?.to_vec();
        let values = scope.read_at::<f32>(2, sequence * capacity * d, so_far * d)?.to_vec();
        let fits: Vec<f32> =
            keys.chunks_exact(d).map(|key| (dot(q, key) / (d as f32).sqrt()).exp()).collect();
        let total: f32 = fits.iter().sum();
        for column in 0..d {
            let rows = fits.iter().zip(values.chunks_exact(d));
            let mean = rows.map(|(fit, value)| fit * value[column]).sum::<f32>() / total;
            let at = sequence * d + column;
            x.set(at, x.get(at) + mean);
        }
    }
    Ok(())
}

fn add(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let n = size(scope, 2)?;
    let (y, x) = (scope.read::<f32>(0, n)?, scope.read_write::<f32>(1, n)?);
    for at in 0..n {
        x.set(at, x.get(at) + y.get(at));
    }
    Ok(())
}

fn choose(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let (b, d, vocabulary) = (size(scope, 3)?, size(scope, 4)?, size(scope, 5)?);
    let x = scope.read::<f32>(0, b * d)?.to_vec();
    let table = scope.read::<f32>(1, vocabulary * d)?.to_vec();
    let best = |x: &[f32]| {
        let scores = (0_u32..).zip(table.chunks_exact(d).map(|row| dot(x, row)));
        scores.fold((0, f32::NEG_INFINITY), |best, next| if next.1 > best.1 { next } else { best }).0
    };
    let tokens: Vec<u32> = x.chunks_exact(d).map(best).collect();
    scope.write::<u32>(2, b)?.copy_from(&tokens);
    Ok(())
}

fn advance(scope: &KernelScope<'_>) -> Result<(), KernelFault> {
    let length = scope.read_write::<u32>(0, 1)?;
    length.set(0, length.get(0) + 1);
    Ok(())
}
