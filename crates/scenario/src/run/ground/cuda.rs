//! The first CUDA device, with kernels that are compiled when it is opened.

use std::fmt;
use std::sync::Arc;

use graphgrove::{Args, EngineBuilder, philox};
use graphgrove_cuda::{CudaDevice, CudaError, Kernel};
use graphgrove_device::Streams;
use graphgrove_sim::{CallCounts, Fault};

use crate::run::body::{Elements, Second};
use crate::run::ground::Ground;
use crate::run::task::{At, Filling, Lie, Task};
use crate::{Binary, Unary};

const SOURCE: &str = include_str!("kernels.cu");

/// How many values one launch of `values` writes.
const VALUES: usize = 8;

/// How many dimensions of a tensor a kernel knows.
const DIMS: usize = 4;

/// The first CUDA device, on which scenarios can be run. Clones are the same device.
#[derive(Clone)]
pub struct Cuda {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) code: Arc<Code>,
}

impl Cuda {
    /// Opens the device and compiles the kernels.
    ///
    /// # Errors
    /// Those of [`CudaDevice::open`], without a driver for instance, and of [`CudaDevice::compile`].
    pub fn open() -> Result<Self, CudaError> {
        let device = CudaDevice::open(0)?;
        // A product and a sum that are fused into one are rounded once, where the interpreter rounds twice.
        let text = device.compile(&format!("{}{SOURCE}", philox::CUDA), &["--fmad=false"])?;
        // SAFETY: each kernel touches the elements of the tensors behind its pointers alone, which its numbers are made from, and no more
        // than a heap of its own beside them.
        #[expect(unsafe_code, reason = "whoever loads a kernel vouches for what it touches")]
        let module = unsafe { device.load(&text) }?;
        let code = Code {
            elements: [
                module.kernel("elements1")?,
                module.kernel("elements2")?,
                module.kernel("elements3")?,
                module.kernel("elements4")?,
            ],
            matmul: module.kernel("matmul")?,
            sum: module.kernel("sum")?,
            fill: module.kernel("fill")?,
            values: module.kernel("values")?,
            draw: module.kernel("draw")?,
        };
        Ok(Self { device: Arc::new(device), code: Arc::new(code) })
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cuda").field(&self.device).finish()
    }
}

/// The kernels.
pub(crate) struct Code {
    /// With one to four tensors.
    elements: [Kernel; 4],
    matmul: Kernel,
    sum: Kernel,
    fill: Kernel,
    values: Kernel,
    draw: Kernel,
}

impl Ground for CudaDevice {
    type Code = Code;

    fn kernels(code: &Code, task: Task, args: Args) -> Result<Vec<(Kernel, Args)>, String> {
        let count = numbered(task.count())?;
        let (kernel, args) = match task {
            Task::Elements { a, op, to } => {
                let kernel = code.elements.get(args.fields().len().saturating_sub(1));
                let kernel = kernel.ok_or_else(|| "a kernel without tensors".to_owned())?;
                (kernel, elements(args, count, a, &op, &to)?)
            }
            Task::MatMul { x, y, to } => {
                let sizes = |lie: &Lie| numbered(lie.shape.last().copied().unwrap_or(1));
                let rows = numbered(to.shape.first().copied().unwrap_or(1))?;
                let args = args.scalar(rows).scalar(sizes(&x)?).scalar(sizes(&y)?);
                (&code.matmul, lies(lies(args, &x)?, &y)?)
            }
            Task::Sum { from, .. } => {
                let last = numbered(from.shape.last().copied().unwrap_or(1))?;
                (&code.sum, lies(args.scalar(count).scalar(last), &from)?)
            }
            Task::Fill { fill: Filling::Same(value), .. } => {
                (&code.fill, args.scalar(count).scalar(value).scalar(0_u32))
            }
            Task::Fill { fill: Filling::Counting, .. } => {
                (&code.fill, args.scalar(count).scalar(0.0_f32).scalar(1_u32))
            }
            Task::Fill { fill: Filling::Values(values), .. } => {
                let chunk = |(at, values): (usize, &[f32])| {
                    let args = args.clone().scalar((at * VALUES) as u32).scalar(values.len() as u32);
                    let value = |at: usize| values.get(at).copied().unwrap_or_default();
                    let args = (0..VALUES).fold(args, |args, at| args.scalar(value(at)));
                    (code.values.clone(), args)
                };
                return Ok(values.chunks(VALUES).enumerate().map(chunk).collect());
            }
            Task::Draw { base, .. } => (&code.draw, args.scalar(count).scalar(base)),
        };
        Ok(vec![(kernel.clone(), args)])
    }

    /// As a user would: pools grow by what CUDA maps at once, and the clock is the host's own.
    fn set_up(_: &Arc<Self>, builder: EngineBuilder) -> EngineBuilder {
        builder
    }

    fn driver_calls(&self) -> Option<CallCounts> {
        None
    }

    /// The driver does what it is asked. Scenarios with faults are skipped.
    fn plan_fault(&self, _: Fault) {}

    fn forget_faults(&self) {}

    fn found(&self) -> Result<(), String> {
        // A kernel that has touched memory that is not there says so here.
        self.synchronize().map_err(|error| error.to_string())
    }

    /// What the driver has free is also what other programs leave free, and the driver keeps some memory for itself.
    fn has_everything_back(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The numbers behind the tensors of an elementwise kernel.
fn elements(args: Args, count: u32, a: Lie, op: &Elements<At>, to: &At) -> Result<Args, String> {
    let word = match op {
        Elements::Unary(Unary::Neg) => 0_u32,
        Elements::Unary(Unary::Relu) => 1,
        Elements::Unary(Unary::Square) => 2,
        Elements::Binary(Binary::Add, _) => 3,
        Elements::Binary(Binary::Sub, _) => 4,
        Elements::Binary(Binary::Mul, _) => 5,
        Elements::Binary(Binary::Min, _) => 6,
        Elements::Binary(Binary::Max, _) => 7,
        Elements::Mix(..) => 8,
        Elements::Copy(_) => 9,
    };
    let none = Second::Number(0.0);
    let first = Second::Tensor(At { argument: 0, lie: a });
    let (a, b, k) = match op {
        Elements::Unary(_) => (&first, &none, &none),
        Elements::Binary(_, b) => (&first, b, &none),
        Elements::Mix(b, k) => (&first, b, k),
        Elements::Copy(b) => (&none, b, &none),
    };
    let is_distinct = u32::from(is_distinct(&dims(&to.lie)?));
    let args = args.scalar(word).scalar(count).scalar(is_distinct).scalar(to.argument as i32);
    [a, b, k].into_iter().try_fold(lies(args, &to.lie)?, operand)
}

fn operand(args: Args, second: &Second<At>) -> Result<Args, String> {
    match second {
        Second::Number(number) => {
            let args = args.scalar(-1_i32).scalar(*number).scalar(1_u32);
            Ok((0..DIMS).fold(args, |args, _| args.scalar(packed((1, 0)))))
        }
        Second::Tensor(at) => {
            let count = numbered(at.lie.count())?;
            lies(args.scalar(at.argument as i32).scalar(0.0_f32).scalar(count), &at.lie)
        }
    }
}

/// How a tensor lies, as a kernel takes it.
fn lies(args: Args, lie: &Lie) -> Result<Args, String> {
    Ok(dims(lie)?.into_iter().fold(args, |args, dim| args.scalar(packed(dim))))
}

fn packed((size, stride): (u32, u32)) -> u64 {
    u64::from(size) << 32 | u64::from(stride)
}

fn numbered(number: u64) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("{number} is more than the kernels for CUDA count to"))
}

/// Size and stride of each dimension, those merged that have no gap between them. Dimensions of one element say nothing.
fn dims(lie: &Lie) -> Result<[(u32, u32); DIMS], String> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (size, stride) in lie.shape.iter().copied().zip(lie.strides.iter().copied()) {
        match merged.last_mut() {
            _ if size == 1 => {}
            Some((outer, by)) if *by == size * stride => (*outer, *by) = (*outer * size, stride),
            _ => merged.push((size, stride)),
        }
    }
    let mut dims = [(1, 0); DIMS];
    let Some(unused) = DIMS.checked_sub(merged.len()) else {
        return Err(format!(
            "the kernels for CUDA know tensors of {DIMS} dimensions with gaps, not {}",
            merged.len()
        ));
    };
    for (dim, (size, stride)) in dims.iter_mut().skip(unused).zip(merged) {
        *dim = (numbered(size)?, numbered(stride)?);
    }
    Ok(dims)
}

/// Whether no two elements lie in the same place, as far as that is seen dimension by dimension.
fn is_distinct(dims: &[(u32, u32)]) -> bool {
    let mut dims: Vec<_> = dims.iter().filter(|(size, _)| *size > 1).copied().collect();
    dims.sort_unstable_by_key(|(_, stride)| *stride);
    let mut last = 0;
    dims.into_iter().all(|(size, stride)| {
        let is_behind = u64::from(stride) > last;
        last += u64::from(size - 1) * u64::from(stride);
        is_behind
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lie(shape: &[u64], strides: &[u64]) -> Lie {
        Lie { shape: shape.to_vec(), strides: strides.to_vec(), dense: false }
    }

    #[test]
    fn dimensions_without_a_gap_between_them_are_one() {
        assert_eq!(dims(&lie(&[2, 3, 4], &[12, 4, 1])).unwrap(), [(1, 0), (1, 0), (1, 0), (24, 1)]);
        assert_eq!(dims(&lie(&[3, 1, 2], &[1, 9, 3])).unwrap(), [(1, 0), (1, 0), (3, 1), (2, 3)]);
        assert_eq!(dims(&lie(&[], &[])).unwrap(), [(1, 0); DIMS]);
        let five = lie(&[2; 5], &[10000, 1000, 100, 10, 1]);
        assert!(dims(&five).unwrap_err().contains("not 5"));
        assert!(dims(&lie(&[2], &[1 << 32])).is_err());
    }

    #[test]
    fn elements_that_share_a_place_are_seen() {
        assert!(is_distinct(&[(1, 0), (3, 1), (2, 3)]));
        assert!(!is_distinct(&[(3, 1), (2, 2)]));
        assert!(!is_distinct(&[(4, 0)]));
        assert!(is_distinct(&[(1, 0)]));
    }

    #[test]
    fn an_elementwise_kernel_is_given_its_operands_by_their_places_among_the_tensors() {
        let at = |argument| At { argument, lie: lie(&[2], &[1]) };
        let op = Elements::Mix(Second::Number(2.0), Second::Tensor(at(1)));
        let args = elements(Args::new(), 2, lie(&[2], &[3]), &op, &at(2)).unwrap();
        assert_eq!(args.fields().len(), 4 + 4 + 3 * 7);
        let operands = [0, 1, 2].map(|operand| args.word(8 + 7 * operand));
        assert_eq!(operands, [Some(0), Some(u64::from(u32::MAX)), Some(1)]);
        assert_eq!(args.word(14), Some(2 << 32 | 3));
    }
}
