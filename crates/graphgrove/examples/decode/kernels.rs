//! The kernels of the language model, as closures over the simulated device's memory.

use graphgrove_sim::{KernelFault, KernelScope, SimDevice, SimKernel};

#[derive(Clone)]
pub(crate) struct Kernels {
    /// `(read tokens, read table, write x, u32 b, u32 d, u32 vocabulary)`: row `tokens[i]` of the table for each sequence.
    pub(crate) embed: SimKernel,
    /// `(read x, read w, write y, u32 b, u32 n, u32 k, u32 relu)`: `y = x * w` with `x` b x k and `w` k x n.
    pub(crate) project: SimKernel,
    /// `(read x, read length, read_write cache, u32 b, u32 d, u32 capacity)`: writes a row of each sequence at `length`.
    pub(crate) append: SimKernel,
    /// `(read q, read keys, read values, read length, read_write x, u32 b, u32 d, u32 capacity)`: adds to `x` the mean of the
    /// values so far, weighted by how well their keys fit `q`.
    pub(crate) attend: SimKernel,
    /// `(read y, read_write x, u32 n)`: `x += y`.
    pub(crate) add: SimKernel,
    /// `(read x, read table, write tokens, u32 b, u32 d, u32 vocabulary)`: the token whose row is most like `x`.
    pub(crate) choose: SimKernel,
    /// `(read_write length)`: one more.
    pub(crate) advance: SimKernel,
}

impl Kernels {
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
