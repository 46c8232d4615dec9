//! A running function of an engine, as what operations run on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove::philox::{draw, unit_f32};
use graphgrove::{Args, Context, DType, Error, LaunchDims, Layout, Result, SideStream, Tensor};
use graphgrove_device::{Memory, Streams, Work};
use graphgrove_sim::{KernelFault, KernelScope, SimDevice, SimEvent, SimKernel};
use parking_lot::Mutex;

use crate::program::{Line, Op};
use crate::run::body::{Elements, Machine, Part, Second};
use crate::run::memory::places;
use crate::run::model::{Stop, contents};
use crate::{Fill, When, mixed};

/// What an error of the function's own says is missing.
pub(crate) const LUCK: &str = "luck";

/// What an error for a program that cannot be says is missing.
pub(crate) const SENSE: &str = "sense";

/// What a function keeps beside its body.
#[derive(Default)]
pub(crate) struct FunctionState {
    /// How often the body has run.
    pub(crate) runs: AtomicU64,
    /// What the body holds beyond its end.
    pub(crate) hidden: Mutex<Vec<Tensor>>,
    /// What the caller leaves to be dropped in the body.
    pub(crate) callers: Mutex<HashMap<String, Box<dyn std::any::Any + Send>>>,
    /// An event that was recorded before any call.
    pub(crate) event: Mutex<Option<SimEvent>>,
    /// Why the program cannot be, if it was found in the body.
    pub(crate) impossible: Mutex<Option<Stop>>,
}

/// Where elements lie.
#[derive(Clone, Debug)]
struct Lie {
    shape: Vec<u64>,
    strides: Vec<u64>,
    dense: bool,
}

impl Lie {
    fn of(tensor: &Tensor) -> Self {
        let layout = tensor.layout();
        Self {
            shape: layout.shape().to_vec(),
            strides: layout.strides().to_vec(),
            dense: layout.is_contiguous(),
        }
    }

    fn count(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    fn read(&self, scope: &KernelScope<'_>, argument: usize) -> Result<Vec<f32>, KernelFault> {
        if self.dense {
            return Ok(scope.read::<f32>(argument, self.count())?.to_vec());
        }
        let element = |at: u64| Ok(scope.read_at::<f32>(argument, at as usize, 1)?.get(0));
        places(&self.shape, &self.strides).map(element).collect()
    }

    fn write(&self, scope: &KernelScope<'_>, argument: usize, values: &[f32]) -> Result<(), KernelFault> {
        if self.dense {
            scope.write::<f32>(argument, self.count())?.copy_from(values);
            return Ok(());
        }
        for (at, value) in places(&self.shape, &self.strides).zip(values) {
            scope.write_at::<f32>(argument, at as usize, 1)?.set(0, *value);
        }
        Ok(())
    }
}

/// The second operand inside of a kernel.
#[derive(Clone, Debug)]
enum Other {
    /// The argument that it is behind, and how it lies there.
    At(usize, Lie),
    Number(f32),
}

impl Other {
    /// Adds a tensor to the arguments, if it has elements: one that has none is zero.
    fn of(second: &Second<Tensor>, args: Args, next: &mut usize) -> Result<(Self, Args)> {
        Ok(match second {
            Second::Number(number) => (Self::Number(*number), args),
            Second::Tensor(tensor) if tensor.layout().is_empty() => (Self::Number(0.0), args),
            Second::Tensor(tensor) => {
                *next += 1;
                (Self::At(*next - 1, Lie::of(tensor)), args.read(tensor.address()?))
            }
        })
    }

    fn read(&self, scope: &KernelScope<'_>) -> Result<Vec<f32>, KernelFault> {
        match self {
            Self::Number(number) => Ok(vec![*number]),
            Self::At(argument, lie) => lie.read(scope, *argument),
        }
    }
}

/// A kernel that computes, element by element, from the argument 0 and others, into the argument `out`.
fn kernel_of(
    device: &SimDevice,
    a: Lie,
    op: &Elements<Tensor>,
    args: Args,
    out: Option<(usize, Lie)>,
    next: &mut usize,
) -> Result<(SimKernel, Args)> {
    let to = out.unwrap_or((0, a.clone()));
    let at = |values: &[f32], i: usize| values[i % values.len()];
    let (name, op, args) = match op {
        Elements::Unary(op) => (op.word(), Elements::Unary(*op), args),
        Elements::Binary(op, b) => {
            let (b, args) = Other::of(b, args, next)?;
            (op.word(), Elements::Binary(*op, Second::Tensor(b)), args)
        }
        Elements::Mix(b, k) => {
            let (b, args) = Other::of(b, args, next)?;
            let (k, args) = Other::of(k, args, next)?;
            ("mix", Elements::Mix(Second::Tensor(b), Second::Tensor(k)), args)
        }
        Elements::Copy(b) => {
            let (b, args) = Other::of(b, args, next)?;
            ("copy", Elements::Copy(Second::Tensor(b)), args)
        }
    };
    let second = |second: &Second<Other>, scope: &KernelScope<'_>| match second {
        Second::Number(number) => Ok(vec![*number]),
        Second::Tensor(other) => other.read(scope),
    };
    let kernel = device.kernel(name, move |scope| {
        // Everything is read before anything is written, so that operands may overlap.
        let values: Vec<f32> = match &op {
            Elements::Unary(op) => a.read(scope, 0)?.into_iter().map(|a| op.of(a)).collect(),
            Elements::Binary(op, b) => {
                let b = second(b, scope)?;
                a.read(scope, 0)?.into_iter().enumerate().map(|(i, a)| op.of(a, at(&b, i))).collect()
            }
            Elements::Mix(b, k) => {
                let (b, k) = (second(b, scope)?, second(k, scope)?);
                let a = a.read(scope, 0)?.into_iter().enumerate();
                a.map(|(i, a)| mixed(a, at(&b, i), at(&k, i))).collect()
            }
            Elements::Copy(b) => {
                let b = second(b, scope)?;
                (0..a.count()).map(|i| at(&b, i)).collect()
            }
        };
        to.1.write(scope, to.0, &values)
    });
    Ok((kernel, args))
}

/// A kernel that changes a tensor in place, and what it is launched with.
pub(crate) fn in_place_kernel(
    device: &SimDevice,
    to: &Tensor,
    op: &Elements<Tensor>,
) -> Result<Option<(SimKernel, Args)>> {
    if to.layout().is_empty() {
        return Ok(None);
    }
    let args = match op {
        Elements::Copy(_) => Args::new().write(to.address()?),
        _ => Args::new().read_write(to.address()?),
    };
    kernel_of(device, Lie::of(to), op, args, None, &mut 1).map(Some)
}

/// A running function.
pub(crate) struct DeviceRun<'r, 'c> {
    pub(crate) context: &'r mut Context<'c, SimDevice>,
    pub(crate) device: &'r SimDevice,
    pub(crate) state: &'r FunctionState,
    pub(crate) function: &'r str,
    /// Which run of the body this is, counted from 1.
    pub(crate) run: u64,
    /// What the forward has saved, until it is taken.
    pub(crate) saved: Vec<Option<Tensor>>,
    /// The side streams by name.
    pub(crate) sides: HashMap<String, SideStream>,
    /// The one that work goes to, if it is not the call's own stream.
    pub(crate) side: Option<String>,
}

impl DeviceRun<'_, '_> {
    fn new_tensor(&mut self, shape: &[u64]) -> Result<Tensor> {
        self.context.empty(Layout::contiguous(DType::F32, shape)?)
    }

    fn is_due(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Run(run) => run == self.run,
        }
    }

    fn launch(&mut self, kernel: &SimKernel, elements: u64, args: &Args) -> Result<()> {
        let dims = LaunchDims::for_elements(elements as u32);
        match self.side.as_ref().and_then(|side| self.sides.get(side)) {
            Some(side) => self.context.on(side)?.launch(kernel, dims, args),
            None => self.context.launch(kernel, dims, args),
        }
    }
}

impl Machine for DeviceRun<'_, '_> {
    type Tensor = Tensor;
    type Error = Error;

    fn impossible(&mut self, line: &Line, why: String) -> Error {
        *self.state.impossible.lock() = Some(Stop { line: line.place.line, why });
        Error::NoInput { function: self.function.to_owned(), what: SENSE, index: 0 }
    }

    fn shape(&self, tensor: &Tensor) -> Vec<u64> {
        tensor.shape().to_vec()
    }

    fn elements(&mut self, a: &Tensor, op: &Elements<Tensor>) -> Result<Tensor> {
        let shape = a.shape().to_vec();
        let out = self.new_tensor(&shape)?;
        let elements = out.layout().elements();
        if elements > 0 {
            // A copy reads its second operand alone.
            let (args, mut next) = match op {
                Elements::Copy(_) => (Args::new(), 0),
                _ => (Args::new().read(a.address()?), 1),
            };
            let mut lie = Lie::of(a);
            lie.shape.clone_from(&shape);
            let to = Lie::of(&out);
            // The output comes behind all that is read.
            let reads = next + count_tensors(op);
            let (kernel, args) = kernel_of(self.device, lie, op, args, Some((reads, to)), &mut next)?;
            self.launch(&kernel, elements, &args.write(out.address()?))?;
        }
        Ok(out)
    }

    fn in_place(&mut self, to: &Tensor, op: &Elements<Tensor>) -> Result<()> {
        if let Some((kernel, args)) = in_place_kernel(self.device, to, op)? {
            self.launch(&kernel, to.layout().elements(), &args)?;
        }
        Ok(())
    }

    fn matmul(&mut self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let (m, k) = (a.shape()[0], a.shape()[1]);
        let n = b.shape()[1];
        let out = self.new_tensor(&[m, n])?;
        if out.layout().is_empty() || k == 0 {
            return if out.layout().is_empty() { Ok(out) } else { self.fill(&[m, n], &Fill::Same(0.0)) };
        }
        let (x, y, to) = (Lie::of(a), Lie::of(b), Lie::of(&out));
        let (m, n, k) = (m as usize, n as usize, k as usize);
        let kernel = self.device.kernel("matmul", move |scope| {
            let (x, y) = (x.read(scope, 0)?, y.read(scope, 1)?);
            let mut values = vec![0.0; m * n];
            for (at, value) in values.iter_mut().enumerate() {
                let (row, column) = (at / n, at % n);
                for i in 0..k {
                    *value += x[row * k + i] * y[i * n + column];
                }
            }
            to.write(scope, 2, &values)
        });
        let args = Args::new().read(a.address()?).read(b.address()?).write(out.address()?);
        self.launch(&kernel, (m * n) as u64, &args)?;
        Ok(out)
    }

    fn sum(&mut self, a: &Tensor) -> Result<Tensor> {
        let (last, rest) = a.shape().split_last().map_or((1, &[][..]), |(last, rest)| (*last as usize, rest));
        let rest = rest.to_vec();
        if last == 0 {
            return self.fill(&rest, &Fill::Same(0.0));
        }
        let out = self.new_tensor(&rest)?;
        let elements = out.layout().elements();
        if elements > 0 {
            let (from, to) = (Lie::of(a), Lie::of(&out));
            let kernel = self.device.kernel("sum", move |scope| {
                let values = from.read(scope, 0)?;
                let sums: Vec<f32> =
                    values.chunks(last).map(|row| row.iter().fold(0.0, |sum, value| sum + value)).collect();
                to.write(scope, 1, &sums)
            });
            let args = Args::new().read(a.address()?).write(out.address()?);
            self.launch(&kernel, elements, &args)?;
        }
        Ok(out)
    }

    fn fill(&mut self, shape: &[u64], fill: &Fill) -> Result<Tensor> {
        let out = self.new_tensor(shape)?;
        let elements = out.layout().elements();
        let values = contents(fill, elements, &mut || 0.0);
        let Ok(values) = values else {
            *self.state.impossible.lock() = values.err().map(|why| Stop { line: 0, why });
            return Err(Error::NoInput { function: self.function.to_owned(), what: SENSE, index: 0 });
        };
        if elements > 0 {
            let to = Lie::of(&out);
            let kernel = self.device.kernel("fill", move |scope| to.write(scope, 0, &values));
            self.launch(&kernel, elements, &Args::new().write(out.address()?))?;
        }
        Ok(out)
    }

    fn empty(&mut self, shape: &[u64]) -> Result<Tensor> {
        self.new_tensor(shape)
    }

    fn view(&mut self, of: &Tensor, part: &Part) -> Result<std::result::Result<Tensor, String>> {
        viewed(of, part)
    }

    fn saved(&mut self, index: u64) -> Result<Tensor> {
        // It is taken, so that its memory is free once it is dropped.
        match self.saved.get_mut(index as usize).and_then(Option::take) {
            Some(tensor) => Ok(tensor),
            None => {
                let why = format!("the forward has saved no tensor {index}, or it is taken already");
                *self.state.impossible.lock() = Some(Stop { line: 0, why });
                Err(Error::NoInput { function: self.function.to_owned(), what: SENSE, index: 0 })
            }
        }
    }

    fn upload(&mut self, input: usize, shape: &[u64]) -> Result<Tensor> {
        let out = self.new_tensor(shape)?;
        if !out.layout().is_empty() {
            match self.side.as_ref().and_then(|side| self.sides.get(side)) {
                Some(side) => self.context.on(side)?.upload(&out, input)?,
                None => self.context.upload(&out, input)?,
            }
        }
        Ok(out)
    }

    fn draw(&mut self, shape: &[u64]) -> Result<Tensor> {
        let out = self.new_tensor(shape)?;
        let elements = out.layout().elements();
        if elements > 0 {
            let random = match self.side.as_ref().and_then(|side| self.sides.get(side)) {
                Some(side) => self.context.on(side)?.random(elements)?,
                None => self.context.random(elements)?,
            };
            let (to, base) = (Lie::of(&out), random.base());
            let kernel = self.device.kernel("draw", move |scope| {
                let state = scope.read::<u64>(0, 2)?;
                let (seed, first) = (state.get(0), state.get(1).wrapping_add(base));
                let number = |at: u64| unit_f32(draw(seed, first.wrapping_add(at))[0]);
                let values: Vec<f32> = (0..elements).map(number).collect();
                to.write(scope, 1, &values)
            });
            let args = Args::new().read(random.address()?).write(out.address()?);
            self.launch(&kernel, elements, &args)?;
        }
        Ok(out)
    }

    fn save(&mut self, tensor: &Tensor) {
        self.context.save(tensor);
    }

    fn effect(&mut self, op: &Op, tensor: Option<&Tensor>, number: u64) -> Result<()> {
        match op {
            Op::Fork(name) => {
                let side = self.context.fork()?;
                self.sides.insert(name.text.clone(), side);
                Ok(())
            }
            Op::Join(name) => match self.sides.remove(&name.text) {
                Some(side) => self.context.join(side),
                None => Ok(()),
            },
            Op::HostWait => Ok(self.device.synchronize()?),
            Op::Fail(when) if self.is_due(*when) => {
                Err(Error::NoInput { function: self.function.to_owned(), what: LUCK, index: 0 })
            }
            // No hook sees it, so that nothing is printed for a panic that is meant.
            Op::Panic(when) if self.is_due(*when) => {
                std::panic::resume_unwind(Box::new("the function panics"))
            }
            Op::Hide(_) => {
                self.state.hidden.lock().extend(tensor.cloned());
                Ok(())
            }
            Op::Foreign(_) => {
                let (device, bytes) = (self.device, number.max(1));
                self.context.foreign(|stream| {
                    let at = device.allocate_async(stream, bytes)?;
                    device.fill(stream, at, 0, bytes)?;
                    Ok(device.free_async(stream, at)?)
                })
            }
            Op::Scratch(_, when) if self.is_due(*when) => {
                let scratch = self.new_tensor(&[number.div_ceil(4)])?;
                self.context.fill(&scratch, 1)
            }
            Op::Poll => {
                let device = self.device;
                let event = self.state.event.lock().clone();
                let Some(event) = event else { return Ok(()) };
                let asked =
                    std::thread::scope(|scope| scope.spawn(move || device.query_event(&event)).join());
                match asked {
                    Ok(asked) => Ok(asked.map(drop)?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Op::DropCallers(name) => {
                let dropped = self.state.callers.lock().remove(&name.text);
                drop(dropped);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on(&mut self, side: Option<&str>) -> Result<()> {
        self.side = side.map(ToOwned::to_owned);
        Ok(())
    }
}

fn count_tensors(op: &Elements<Tensor>) -> usize {
    let one = |second: &Second<Tensor>| {
        usize::from(matches!(second, Second::Tensor(tensor) if !tensor.layout().is_empty()))
    };
    match op {
        Elements::Unary(_) => 0,
        Elements::Binary(_, b) | Elements::Copy(b) => one(b),
        Elements::Mix(b, k) => one(b) + one(k),
    }
}

/// The view of a tensor.
pub(crate) fn viewed(of: &Tensor, part: &Part) -> Result<std::result::Result<Tensor, String>> {
    let window = match part.window(of.shape(), of.strides()) {
        Ok(window) => window,
        Err(why) => return Ok(Err(why)),
    };
    let layout = Layout::strided(DType::F32, &window.shape, &window.strides)?;
    let offset = of.offset_bytes() + 4 * window.first;
    match Tensor::new(of.storage().clone(), layout, offset) {
        Ok(tensor) => Ok(Ok(tensor)),
        Err(error @ graphgrove_storage::Error::OutOfStorage { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Counts a run of a body.
pub(crate) fn count_run(state: &FunctionState) -> u64 {
    state.runs.fetch_add(1, Ordering::Relaxed) + 1
}
