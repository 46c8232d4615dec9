//! The functions of a trace as functions of the engine.

use std::sync::Arc;

use graphgrove::{Context, Engine, Error, Function, FunctionOptions, Layout, Result, Tensor};
use graphgrove_device::{DevicePtr, LaunchDims};
use graphgrove_sim::SimDevice;

use crate::body::{Body, Returned, Work};
use crate::kernels::{self, FOLDED, Kernels, mix};

/// Every body has a block of this many bytes besides those of the trace: the sum of what it has read so far.
pub(crate) const SUM_BYTES: u64 = 8;

const DIMS: LaunchDims = LaunchDims::for_elements(1);

/// Registers a function that does what a body says.
pub(crate) fn register(
    engine: &Engine<SimDevice>,
    number: usize,
    body: &Arc<Body>,
    scalars: Vec<usize>,
    kernels: &Kernels,
) -> Function<SimDevice> {
    let options = FunctionOptions::new();
    let options = if body.mutated.is_empty() { options } else { options.mutates_params() };
    let running = Running { number, body: Arc::clone(body), scalars, kernels: kernels.clone() };
    engine.function_with(format!("f{number}"), options, move |cx| running.run(cx))
}

struct Running {
    number: usize,
    body: Arc<Body>,
    /// The arguments that are no tensors.
    scalars: Vec<usize>,
    kernels: Kernels,
}

impl Running {
    fn run(&self, cx: &mut Context<'_, SimDevice>) -> Result<Vec<Tensor>> {
        let Self { number, body, scalars, kernels } = self;
        let sum = bytes(cx, SUM_BYTES)?;
        let at = sum.address()?;
        let mut value = *number as u64;
        for scalar in scalars {
            value = mix(value, cx.value(*scalar)?);
        }
        cx.launch(&kernels.start, DIMS, &kernels::start(at, value))?;
        self.read_all(cx, at)?;

        let mut blocks: Vec<Option<Tensor>> = Vec::new();
        for (tag, work) in body.work.iter().enumerate() {
            match *work {
                Work::Allocate { bytes: count, .. } => {
                    let block = bytes(cx, count)?;
                    if let Some((to, words)) = words(&block)? {
                        cx.launch(&kernels.make, DIMS, &kernels::make(at, to, words, tag as u64))?;
                    }
                    blocks.push(Some(block));
                }
                Work::Free { block } => {
                    blocks.get_mut(block).map(Option::take);
                }
                Work::LetGo { argument } if scalars.contains(&argument) => {}
                Work::LetGo { argument } => {
                    let input = cx.take(argument)?;
                    if let Some(read) = words(&input)? {
                        cx.launch(&kernels.fold, DIMS, &kernels::fold(at, &[read]))?;
                    }
                }
            }
        }
        for parameter in &body.mutated {
            if let Some((to, words)) = words(cx.param(*parameter)?)? {
                let args = graphgrove_device::Args::new().read(at).read_write(to).scalar(words);
                cx.launch(&kernels.change, DIMS, &args)?;
            }
        }
        self.returned(cx, &mut blocks)
    }

    /// Mixes all inputs and parameters into the sum.
    fn read_all(&self, cx: &mut Context<'_, SimDevice>, sum: DevicePtr) -> Result<()> {
        let mut all = Vec::new();
        for at in 0.. {
            match cx.input(at) {
                Ok(input) => all.extend(words(input)?),
                Err(_) if self.scalars.contains(&at) => {}
                Err(_) => break,
            }
        }
        for at in 0.. {
            let Ok(parameter) = cx.param(at) else { break };
            all.extend(words(parameter)?);
        }
        for some in all.chunks(FOLDED) {
            cx.launch(&self.kernels.fold, DIMS, &kernels::fold(sum, some))?;
        }
        Ok(())
    }

    fn returned(
        &self,
        cx: &mut Context<'_, SimDevice>,
        blocks: &mut [Option<Tensor>],
    ) -> Result<Vec<Tensor>> {
        let mut outputs: Vec<Tensor> = Vec::new();
        for output in &self.body.outputs {
            let tensor = match *output {
                Returned::Block(block) => blocks.get(block).cloned().flatten(),
                Returned::Argument(argument) => Some(cx.input(argument)?.clone()),
                Returned::Parameter(at) => Some(cx.param(at)?.clone()),
                Returned::Sibling(of) => outputs.get(of).cloned(),
                Returned::Nothing => Some(bytes(cx, 0)?),
            };
            let index = outputs.len();
            outputs.push(tensor.ok_or(Error::NoOutput { index, count: self.body.outputs.len() })?);
        }
        Ok(outputs)
    }
}

fn bytes(cx: &mut Context<'_, SimDevice>, count: u64) -> Result<Tensor> {
    cx.empty(Layout::of::<u8>(&[count])?)
}

/// Where a tensor begins and how many words it has; none if it has no whole word.
pub(crate) fn words(tensor: &Tensor) -> Result<Option<(DevicePtr, u64)>> {
    let words = tensor.layout().span_bytes() / 8;
    if words == 0 { Ok(None) } else { Ok(Some((tensor.address()?, words))) }
}
