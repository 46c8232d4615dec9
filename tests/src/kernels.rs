//! The three kernels that all functions are made of, on the simulated device and as arithmetic.

use graphgrove::{Context, DType, Layout, Result, SideStream, Tensor, philox};
use graphgrove_device::{Args, LaunchDims};
use graphgrove_sim::{SimDevice, SimKernel};

use crate::body::{Lane, Machine};
use crate::model::ModelTensor;
use crate::program::View;

/// An element of a new tensor.
#[must_use]
pub const fn mixed(a: u32, b: u32, k: u32) -> u32 {
    a.wrapping_mul(31).wrapping_add(b.wrapping_mul(7)).wrapping_add(k)
}

/// An element that was changed in place.
#[must_use]
pub const fn accumulated(to: u32, b: u32, k: u32) -> u32 {
    to.wrapping_mul(3).wrapping_add(b).wrapping_add(k)
}

/// The kernels of a device.
#[derive(Clone)]
pub struct Kernels {
    /// `(read a, read b, write out, u32 n, u32 stride of a, u32 length of b, u32 stride of b, u32 k)`
    pub mix: SimKernel,
    /// `(read_write to, read b, u32 n, u32 stride of to, u32 length of b, u32 stride of b, u32 k)`
    pub accumulate: SimKernel,
    /// `(read a, read state, write out, u32 n, u32 stride of a, u64 base)`
    pub draw: SimKernel,
}

impl Kernels {
    /// Makes them.
    #[must_use]
    pub fn new(device: &SimDevice) -> Self {
        let mix = device.kernel("mix", |scope| {
            let number = |argument| scope.scalar::<u32>(argument);
            let size = |argument| number(argument).map(|size| size as usize);
            let (n, a_by, b_len, b_by, k) = (size(3)?, size(4)?, size(5)?, size(6)?, number(7)?);
            let out = scope.write::<u32>(2, n)?;
            for i in 0..n {
                let a = scope.read_at::<u32>(0, i * a_by, 1)?.get(0);
                let b = match i.checked_rem(b_len) {
                    Some(at) => scope.read_at::<u32>(1, at * b_by, 1)?.get(0),
                    None => 0,
                };
                out.set(i, mixed(a, b, k));
            }
            Ok(())
        });
        let accumulate = device.kernel("accumulate", |scope| {
            let number = |argument| scope.scalar::<u32>(argument);
            let size = |argument| number(argument).map(|size| size as usize);
            let (n, to_by, b_len, b_by, k) = (size(2)?, size(3)?, size(4)?, size(5)?, number(6)?);
            for i in 0..n {
                let b = match i.checked_rem(b_len) {
                    Some(at) => scope.read_at::<u32>(1, at * b_by, 1)?.get(0),
                    None => 0,
                };
                let old = scope.read_at::<u32>(0, i * to_by, 1)?.get(0);
                scope.write_at::<u32>(0, i * to_by, 1)?.set(0, accumulated(old, b, k));
            }
            Ok(())
        });
        let draw = device.kernel("draw", |scope| {
            let (n, a_by) = (scope.scalar::<u32>(3)? as usize, scope.scalar::<u32>(4)? as usize);
            let (state, base) = (scope.read::<u64>(1, 2)?, scope.scalar::<u64>(5)?);
            let out = scope.write::<u32>(2, n)?;
            for i in 0..n {
                let a = scope.read_at::<u32>(0, i * a_by, 1)?.get(0);
                let [word, ..] = philox::draw(state.get(0), state.get(1) + base + i as u64);
                out.set(i, mixed(a, word, 0));
            }
            Ok(())
        });
        Self {
            mix: mix.with_arguments(8),
            accumulate: accumulate.with_arguments(7),
            draw: draw.with_arguments(6),
        }
    }
}

/// A running function of an engine, as what operations run on.
pub struct Running<'r, 'c> {
    /// What the function sees.
    pub context: &'r mut Context<'c, SimDevice>,
    /// The kernels.
    pub kernels: &'r Kernels,
    /// The side stream, between a fork and its join.
    pub side: Option<SideStream>,
}

impl<'r, 'c> Running<'r, 'c> {
    /// On the call's stream alone.
    pub fn new(context: &'r mut Context<'c, SimDevice>, kernels: &'r Kernels) -> Self {
        Self { context, kernels, side: None }
    }

    /// A new tensor, to be written on a stream first.
    fn empty_on(&mut self, lane: Lane, len: u32) -> Result<Tensor> {
        match self.side.as_ref().filter(|_| lane == Lane::Side) {
            Some(side) => self.context.on(side)?.empty(layout(len as usize)),
            None => self.context.empty(layout(len as usize)),
        }
    }

    fn launch_on(&mut self, lane: Lane, kernel: &SimKernel, len: u32, args: &Args) -> Result<()> {
        match self.side.as_ref().filter(|_| lane == Lane::Side) {
            Some(side) => self.context.on(side)?.launch(kernel, LaunchDims::for_elements(len), args),
            None => self.context.launch(kernel, LaunchDims::for_elements(len), args),
        }
    }
}

/// A layout of so many elements without gaps.
#[must_use]
pub fn layout(len: usize) -> Layout {
    Layout::contiguous(DType::U32, &[len as u64]).unwrap()
}

fn len(tensor: &Tensor) -> u32 {
    tensor.layout().elements() as u32
}

fn stride(tensor: &Tensor) -> u32 {
    tensor.strides().first().map_or(1, |stride| *stride as u32)
}

impl Machine for Running<'_, '_> {
    type Tensor = Tensor;
    type Error = graphgrove::Error;

    fn mix_on(&mut self, lane: Lane, a: &Tensor, b: &Tensor, k: u32) -> Result<Tensor> {
        let out = self.empty_on(lane, len(a))?;
        if len(a) > 0 {
            let args = Args::new().read(a.address()?).read(b.address()?).write(out.address()?);
            let args = args.scalar(len(a)).scalar(stride(a)).scalar(len(b)).scalar(stride(b)).scalar(k);
            self.launch_on(lane, &self.kernels.mix, len(a), &args)?;
        }
        Ok(out)
    }

    fn draw(&mut self, lane: Lane, a: &Tensor) -> Result<Tensor> {
        let out = self.empty_on(lane, len(a))?;
        let draws = u64::from(len(a));
        let random = match self.side.as_ref().filter(|_| lane == Lane::Side) {
            Some(side) => self.context.on(side)?.random(draws)?,
            None => self.context.random(draws)?,
        };
        if len(a) > 0 {
            let args = Args::new().read(a.address()?).read(random.address()?).write(out.address()?);
            let args = args.scalar(len(a)).scalar(stride(a)).scalar(random.base());
            self.launch_on(lane, &self.kernels.draw, len(a), &args)?;
        }
        Ok(out)
    }

    fn fork(&mut self) -> Result<()> {
        self.side = Some(self.context.fork()?);
        Ok(())
    }

    fn join(&mut self) -> Result<()> {
        self.side.take().map_or(Ok(()), |side| self.context.join(side))
    }

    fn accumulate(&mut self, to: &Tensor, b: &Tensor, k: u32) -> Result<()> {
        if len(to) > 0 {
            let args = Args::new().read_write(to.address()?).read(b.address()?);
            let args = args.scalar(len(to)).scalar(stride(to)).scalar(len(b)).scalar(stride(b)).scalar(k);
            self.context.launch(&self.kernels.accumulate, LaunchDims::for_elements(len(to)), &args)?;
        }
        Ok(())
    }

    fn view(&mut self, of: &Tensor, view: View) -> Result<Tensor> {
        Ok(viewed(of, view)?)
    }

    fn empty(&mut self) -> Result<Tensor> {
        self.context.empty(layout(0))
    }
}

/// The view of a tensor.
///
/// # Errors
/// Those of [`Tensor::slice`], for a stale tensor.
pub fn viewed(of: &Tensor, view: View) -> std::result::Result<Tensor, graphgrove_storage::Error> {
    let elements = of.layout().elements();
    let (start, _, step) = ModelTensor::part(elements as usize, view);
    of.slice(0, start as u64..elements, step as u64)
}
