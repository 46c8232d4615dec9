//! A running function of an engine, as what operations run on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove::{Args, Context, DType, Error, LaunchDims, Layout, Result, SideStream, Tensor};
use parking_lot::Mutex;

use crate::program::{Line, Op};
use crate::run::body::{Elements, Machine, Part};
use crate::run::ground::Ground;
use crate::run::model::{Stop, contents};
use crate::run::task::{Filling, Lie, Task};
use crate::{Fill, When};

/// What an error of the function's own says is missing.
pub(crate) const LUCK: &str = "luck";

/// What an error for a program that cannot be says is missing.
pub(crate) const SENSE: &str = "sense";

/// What a function keeps beside its body.
pub(crate) struct FunctionState<D: Ground> {
    /// How often the body has run.
    pub(crate) runs: AtomicU64,
    /// What the body holds beyond its end.
    pub(crate) hidden: Mutex<Vec<Tensor>>,
    /// What the caller leaves to be dropped in the body.
    pub(crate) callers: Mutex<HashMap<String, Box<dyn std::any::Any + Send>>>,
    /// An event that was recorded before any call.
    pub(crate) event: Mutex<Option<D::Event>>,
    /// Why the program cannot be, if it was found in the body.
    pub(crate) impossible: Mutex<Option<Stop>>,
}

impl<D: Ground> Default for FunctionState<D> {
    fn default() -> Self {
        Self {
            runs: AtomicU64::new(0),
            hidden: Mutex::default(),
            callers: Mutex::default(),
            event: Mutex::default(),
            impossible: Mutex::default(),
        }
    }
}

/// A running function.
pub(crate) struct DeviceRun<'r, 'c, D: Ground> {
    pub(crate) context: &'r mut Context<'c, D>,
    pub(crate) device: &'r D,
    pub(crate) code: &'r D::Code,
    pub(crate) state: &'r FunctionState<D>,
    /// Which run of the body this is, counted from 1.
    pub(crate) run: u64,
    /// What the forward has saved, until it is taken.
    pub(crate) saved: Vec<Option<Tensor>>,
    /// The side streams by name.
    pub(crate) sides: HashMap<String, SideStream>,
    /// The one that work goes to, if it is not the call's own stream.
    pub(crate) side: Option<String>,
}

impl<D: Ground> DeviceRun<'_, '_, D> {
    fn new_tensor(&mut self, shape: &[u64]) -> Result<Tensor> {
        self.context.empty(Layout::contiguous(DType::F32, shape)?)
    }

    fn is_due(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Run(run) => run == self.run,
        }
    }

    fn launch(&mut self, task: Task, args: Args) -> Result<()> {
        let dims = LaunchDims::for_elements(task.count() as u32);
        let kernels = D::kernels(self.code, task, args).map_err(|why| self.senseless(why))?;
        for (kernel, args) in kernels {
            match self.side.as_ref().and_then(|side| self.sides.get(side)) {
                Some(side) => self.context.on(side)?.launch(&kernel, dims, &args)?,
                None => self.context.launch(&kernel, dims, &args)?,
            }
        }
        Ok(())
    }

    /// The program cannot be, for a reason that no line is to blame for.
    fn senseless(&self, why: String) -> Error {
        *self.state.impossible.lock() = Some(Stop { line: 0, why });
        self.context.fail(SENSE)
    }
}

impl<D: Ground> Machine for DeviceRun<'_, '_, D> {
    type Tensor = Tensor;
    type Error = Error;

    fn impossible(&mut self, line: &Line, why: String) -> Error {
        *self.state.impossible.lock() = Some(Stop { line: line.place.line, why });
        self.context.fail(SENSE)
    }

    fn shape(&self, tensor: &Tensor) -> Vec<u64> {
        tensor.shape().to_vec()
    }

    fn elements(&mut self, a: &Tensor, op: &Elements<Tensor>) -> Result<Tensor> {
        let shape = a.shape().to_vec();
        let out = self.new_tensor(&shape)?;
        if !out.layout().is_empty() {
            let (task, args) = Task::elements(a, op, &out)?;
            self.launch(task, args)?;
        }
        Ok(out)
    }

    fn in_place(&mut self, to: &Tensor, op: &Elements<Tensor>) -> Result<()> {
        if let Some((task, args)) = Task::in_place(to, op)? {
            self.launch(task, args)?;
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
        let args = Args::new().read(a.address()?).read(b.address()?).write(out.address()?);
        self.launch(Task::MatMul { x: Lie::of(a), y: Lie::of(b), to: Lie::of(&out) }, args)?;
        Ok(out)
    }

    fn sum(&mut self, a: &Tensor) -> Result<Tensor> {
        let (last, rest) = a.shape().split_last().map_or((1, &[][..]), |(last, rest)| (*last, rest));
        let rest = rest.to_vec();
        if last == 0 {
            return self.fill(&rest, &Fill::Same(0.0));
        }
        let out = self.new_tensor(&rest)?;
        if !out.layout().is_empty() {
            let args = Args::new().read(a.address()?).write(out.address()?);
            self.launch(Task::Sum { from: Lie::of(a), to: Lie::of(&out) }, args)?;
        }
        Ok(out)
    }

    fn fill(&mut self, shape: &[u64], fill: &Fill) -> Result<Tensor> {
        let out = self.new_tensor(shape)?;
        let filling = match fill {
            Fill::Same(value) => Filling::Same(*value),
            Fill::Counting => Filling::Counting,
            Fill::Values(_) | Fill::Random => {
                let values = contents(fill, out.layout().elements(), &mut || 0.0);
                Filling::Values(values.map_err(|why| self.senseless(why))?)
            }
        };
        if !out.layout().is_empty() {
            let task = Task::Fill { fill: filling, to: Lie::of(&out) };
            self.launch(task, Args::new().write(out.address()?))?;
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
                Err(self.senseless(why))
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
            let args = Args::new().read(random.address()?).write(out.address()?);
            self.launch(Task::Draw { base: random.base(), to: Lie::of(&out) }, args)?;
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
            Op::Fail(when) if self.is_due(*when) => Err(self.context.fail(LUCK)),
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
pub(crate) fn count_run<D: Ground>(state: &FunctionState<D>) -> u64 {
    state.runs.fetch_add(1, Ordering::Relaxed) + 1
}
