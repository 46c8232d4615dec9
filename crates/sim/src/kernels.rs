//! Kernels that come with the device.
//!
//! They are plain closures over [`KernelScope`](crate::KernelScope), and examples of how to write one. Every function makes
//! the kernel for one device; `n`, `m` and `k` are numbers of elements as `u32` arguments.

use graphgrove_device::Scalar;

use crate::{Element, SimDevice, SimKernel};

/// `(write to, u32 n, T value)`: `to[i] = value`.
pub fn fill<T: Element + Scalar>(device: &SimDevice) -> SimKernel {
    device
        .kernel("fill", |scope| {
            let n = scope.scalar::<u32>(1)? as usize;
            scope.write::<T>(0, n)?.copy_from(&vec![scope.scalar::<T>(2)?; n]);
            Ok(())
        })
        .with_arguments(3)
}

/// `(read from, write to, u32 n)`: `to[i] = from[i]`.
pub fn copy<T: Element>(device: &SimDevice) -> SimKernel {
    map(device, "copy", |value: T| value)
}

/// `(read from, write to, u32 n)`: `to[i] = f(from[i])`.
pub fn map<T: Element>(
    device: &SimDevice,
    name: &'static str,
    f: impl Fn(T) -> T + Send + Sync + 'static,
) -> SimKernel {
    device
        .kernel(name, move |scope| {
            let n = scope.scalar::<u32>(2)? as usize;
            let (from, to) = (scope.read::<T>(0, n)?, scope.write::<T>(1, n)?);
            for i in 0..n {
                to.set(i, f(from.get(i)));
            }
            Ok(())
        })
        .with_arguments(3)
}

/// `(read a, read b, write to, u32 n)`: `to[i] = f(a[i], b[i])`.
pub fn zip<T: Element>(
    device: &SimDevice,
    name: &'static str,
    f: impl Fn(T, T) -> T + Send + Sync + 'static,
) -> SimKernel {
    device
        .kernel(name, move |scope| {
            let n = scope.scalar::<u32>(3)? as usize;
            let (a, b, to) = (scope.read::<T>(0, n)?, scope.read::<T>(1, n)?, scope.write::<T>(2, n)?);
            for i in 0..n {
                to.set(i, f(a.get(i), b.get(i)));
            }
            Ok(())
        })
        .with_arguments(4)
}

/// `(read x, read_write y, u32 n, f32 a)`: `y[i] = a * x[i] + y[i]`.
///
/// The product is not rounded before it is added ([`f32::mul_add`]), as in CUDA's `fmaf`. A comparison on the host has to do the same,
/// or the last bit may differ.
pub fn axpy(device: &SimDevice) -> SimKernel {
    device
        .kernel("axpy", |scope| {
            let (n, a) = (scope.scalar::<u32>(2)? as usize, scope.scalar::<f32>(3)?);
            let (x, y) = (scope.read::<f32>(0, n)?, scope.read_write::<f32>(1, n)?);
            for i in 0..n {
                y.set(i, a.mul_add(x.get(i), y.get(i)));
            }
            Ok(())
        })
        .with_arguments(4)
}

/// `(read a, read b, write to, u32 m, u32 n, u32 k)`: the matrix product of `a` (m x k) and `b` (k x n), row by row.
///
/// Each element is summed in the order of `k`, so the result is the same however often it is computed.
pub fn matmul(device: &SimDevice) -> SimKernel {
    device
        .kernel("matmul", |scope| {
            let size = |argument| scope.scalar::<u32>(argument).map(|n| n as usize);
            let (m, n, k) = (size(3)?, size(4)?, size(5)?);
            let (a, b) = (scope.read::<f32>(0, m * k)?.to_vec(), scope.read::<f32>(1, k * n)?.to_vec());
            let mut to = vec![0.0_f32; m * n];
            for (row, a) in to.chunks_exact_mut(n.max(1)).zip(a.chunks_exact(k.max(1))) {
                for (&a, b) in a.iter().zip(b.chunks_exact(n.max(1))) {
                    for (sum, &b) in row.iter_mut().zip(b) {
                        *sum += a * b;
                    }
                }
            }
            scope.write::<f32>(2, m * n)?.copy_from(&to);
            Ok(())
        })
        .with_arguments(6)
}

/// `(read from, write to, u32 m, u32 n)`: `to[i]` is the sum of row `i` of `from` (m x n), added from left to right.
pub fn sum_rows(device: &SimDevice) -> SimKernel {
    device
        .kernel("sum rows", |scope| {
            let (m, n) = (scope.scalar::<u32>(2)? as usize, scope.scalar::<u32>(3)? as usize);
            let (from, to) = (scope.read::<f32>(0, m * n)?, scope.write::<f32>(1, m)?);
            for row in 0..m {
                to.set(row, (0..n).map(|column| from.get(row * n + column)).sum());
            }
            Ok(())
        })
        .with_arguments(4)
}
