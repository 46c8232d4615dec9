//! What the kernels of the classifier do, whatever the device.

use graphgrove::{Args, Context, Device, Result};

/// One computation. Matrices lie row by row without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `(read x, read w, read b, write y, u32 m, u32 n, u32 k, u32 relu)`: `y = x * w + b` with `x` m x k and `w` k x n, negative
    /// elements set to zero if `relu` is 1.
    Linear,
    /// `(read logits, read classes, write gradient, write report, u32 m, u32 n)`: softmax cross entropy over m rows. The report is
    /// the mean loss, and in how many rows the largest logit is that of the class.
    CrossEntropy,
    /// `(read x, read dy, write dw, u32 m, u32 n, u32 k)`: `dw = transpose(x) * dy`.
    WeightGradient,
    /// `(read dy, write db, u32 m, u32 n)`: the sum of each column.
    BiasGradient,
    /// `(read dy, read w, read y, write dx, u32 m, u32 n, u32 k)`: `dx = dy * transpose(w)`, where `y` (m x k) is positive.
    InputGradient,
    /// `(read_write sum, read x, u32 n)`: `sum += x`.
    AddTo,
    /// `(read gradient, read rate, read_write w, read_write v, u32 n, f32 scale)`: `v = 0.9 * v + scale * gradient`,
    /// `w -= rate * v`.
    Momentum,
}

/// The kernels of a device.
pub(crate) trait Kernels<D: Device>: Send + Sync + 'static {
    /// Enqueues a computation of so many elements.
    fn run(&self, cx: &mut Context<'_, D>, op: Op, elements: u64, args: Args) -> Result<()>;
}
