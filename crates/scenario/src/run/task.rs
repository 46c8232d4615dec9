//! What a kernel has to do, told to any device.

use graphgrove::{Args, Result, Tensor};

use crate::run::body::{Elements, Second};
use crate::run::memory::places;

/// Where the elements of a tensor lie.
#[derive(Clone, Debug)]
pub(crate) struct Lie {
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<u64>,
    /// Whether there are no gaps, and the last index runs fastest.
    pub(crate) dense: bool,
}

impl Lie {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        let layout = tensor.layout();
        Self {
            shape: layout.shape().to_vec(),
            strides: layout.strides().to_vec(),
            dense: layout.is_contiguous(),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Where each element lies, counted in elements from the first one, in row-major order.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> + use<> {
        places(&self.shape, &self.strides)
    }
}

/// A tensor in the arguments of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// Which argument points to it.
    pub(crate) argument: usize,
    /// How it lies there.
    pub(crate) lie: Lie,
}

/// What a kernel has to do. Its arguments are the addresses of the tensors, in the order in which the fields name them unless a field
/// says its place.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Everything is read before anything is written, so that operands may overlap. The first operand is argument 0; a copy has none.
    Elements { a: Lie, op: Elements<At>, to: At },
    /// Of `[m, k]` and `[k, n]`, each sum from the first product on.
    MatMul { x: Lie, y: Lie, to: Lie },
    /// Along the last dimension, from the first element on.
    Sum { from: Lie, to: Lie },
    /// A new tensor without gaps.
    Fill { fill: Filling, to: Lie },
    /// Numbers of a generator, whose state is argument 0, from so far behind where it is.
    Draw { base: u64, to: Lie },
}

/// The contents of a new tensor.
#[derive(Clone, Debug)]
pub(crate) enum Filling {
    /// One value everywhere.
    Same(f32),
    /// 0, 1, 2 and so on.
    Counting,
    /// Each has its own.
    Values(Vec<f32>),
}

impl Task {
    /// How many elements it writes.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Elements { to, .. } => to.lie.count(),
            Self::MatMul { to, .. }
            | Self::Sum { to, .. }
            | Self::Fill { to, .. }
            | Self::Draw { to, .. } => to.count(),
        }
    }

    /// Makes a tensor of others, element by element.
    pub(crate) fn elements(a: &Tensor, op: &Elements<Tensor>, to: &Tensor) -> Result<(Self, Args)> {
        let args = match op {
            Elements::Copy(_) => Args::new(),
            _ => Args::new().read(a.address()?),
        };
        let (op, args) = placed(op, args)?;
        let at = At { argument: args.fields().len(), lie: Lie::of(to) };
        Ok((Self::Elements { a: Lie::of(a), op, to: at }, args.write(to.address()?)))
    }

    /// Changes a tensor in place; none if it has no elements.
    pub(crate) fn in_place(to: &Tensor, op: &Elements<Tensor>) -> Result<Option<(Self, Args)>> {
        if to.layout().is_empty() {
            return Ok(None);
        }
        let args = match op {
            Elements::Copy(_) => Args::new().write(to.address()?),
            _ => Args::new().read_write(to.address()?),
        };
        let (op, args) = placed(op, args)?;
        let at = At { argument: 0, lie: Lie::of(to) };
        Ok(Some((Self::Elements { a: at.lie.clone(), op, to: at }, args)))
    }
}

/// Adds the second operands to the arguments, those that have elements: one that has none is zero.
fn placed(op: &Elements<Tensor>, mut args: Args) -> Result<(Elements<At>, Args)> {
    let mut one = |second: &Second<Tensor>| -> Result<Second<At>> {
        Ok(match second {
            Second::Number(number) => Second::Number(*number),
            Second::Tensor(tensor) if tensor.layout().is_empty() => Second::Number(0.0),
            Second::Tensor(tensor) => {
                let at = At { argument: args.fields().len(), lie: Lie::of(tensor) };
                args = std::mem::take(&mut args).read(tensor.address()?);
                Second::Tensor(at)
            }
        })
    };
    let op = match op {
        Elements::Unary(op) => Elements::Unary(*op),
        Elements::Binary(op, b) => Elements::Binary(*op, one(b)?),
        Elements::Mix(b, k) => Elements::Mix(one(b)?, one(k)?),
        Elements::Copy(b) => Elements::Copy(one(b)?),
    };
    Ok((op, args))
}
