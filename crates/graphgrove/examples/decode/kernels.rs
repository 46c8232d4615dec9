//! What the kernels of the model do, whatever the device.

use graphgrove::{Args, Context, Device, Result};

/// One computation. Everything lies row by row without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `(read tokens, read table, write x, u32 b, u32 d, u32 vocabulary)`: the row of each token.
    Embed,
    /// `(read x, read w, write y, u32 b, u32 n, u32 k, u32 relu)`: `y = x * w` with `x` b x k and `w` k x n.
    Project,
    /// `(read x, read length, read_write cache, u32 b, u32 d, u32 capacity)`: writes a row of each sequence at `length`.
    Append,
    /// `(read q, read keys, read values, read length, read_write x, u32 b, u32 d, u32 capacity)`: adds to `x` the mean of the
    /// values so far, weighted by how well their keys fit `q`.
    Attend,
    /// `(read y, read_write x, u32 n)`: `x += y`.
    Add,
    /// `(read x, read table, write tokens, u32 b, u32 d, u32 vocabulary)`: the token whose row is most like `x`.
    Choose,
    /// `(read_write length)`: one more.
    Advance,
}

/// The kernels of a device.
pub(crate) trait Kernels<D: Device>: Send + Sync + 'static {
    /// Enqueues a computation.
    fn run(&self, cx: &mut Context<'_, D>, op: Op, args: Args) -> Result<()>;
}
