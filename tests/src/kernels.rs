//! The two kernels that all functions are made of, as arithmetic and as what a function launches.

use graphgrove::{Context, DType, Layout, Result, Tensor};
use graphgrove_device::{Args, Device, LaunchDims};

use crate::body::Machine;
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
pub struct Kernels<D: Device> {
    /// `(read a, read b, write out, u32 n, u32 stride of a, u32 length of b, u32 stride of b, u32 k)`
    pub mix: D::Kernel,
    /// `(read_write to, read b, u32 n, u32 stride of to, u32 length of b, u32 stride of b, u32 k)`
    pub accumulate: D::Kernel,
}

impl<D: Device> Clone for Kernels<D> {
    fn clone(&self) -> Self {
        Self { mix: self.mix.clone(), accumulate: self.accumulate.clone() }
    }
}

/// A running function of an engine, as what operations run on.
pub struct Running<'r, 'c, D: Device> {
    /// What the function sees.
    pub context: &'r mut Context<'c, D>,
    /// The kernels.
    pub kernels: &'r Kernels<D>,
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

impl<D: Device> Machine for Running<'_, '_, D> {
    type Tensor = Tensor;
    type Error = graphgrove::Error;

    fn mix(&mut self, a: &Tensor, b: &Tensor, k: u32) -> Result<Tensor> {
        let out = self.context.empty(layout(len(a) as usize))?;
        if len(a) > 0 {
            let args = Args::new().read(a.address()?).read(b.address()?).write(out.address()?);
            let args = args.scalar(len(a)).scalar(stride(a)).scalar(len(b)).scalar(stride(b)).scalar(k);
            self.context.launch(&self.kernels.mix, LaunchDims::for_elements(len(a)), &args)?;
        }
        Ok(out)
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
