//! The kernels of the model on a CUDA device: compiled at run time, with matrix products by a library if it is there.

use graphgrove::{Args, Context, Engine, LaunchDims, Result};
use graphgrove_cuda::{CudaDevice, CudaError, Gemm, Kernel, Module};
use graphgrove_device::{Call, DeviceError, Problem};

use crate::kernels::{Kernels, Op};
use crate::products::Products;

const SOURCE: &str = include_str!("kernels.cu");
/// Threads of the block that chooses a token, as `kernels.cu` has it.
const CHOOSING_THREADS: u32 = 128;

/// Compiles the kernels.
pub(crate) fn compile(device: &CudaDevice) -> Result<Module, CudaError> {
    let code = device.compile(SOURCE, &[])?;
    // SAFETY: each kernel touches as many elements behind its pointers as its numbers say, and the model passes the shapes of the
    // tensors that they point to. Tokens and lengths are compared with the sizes of what they are places in.
    unsafe { device.load(&code) }
}

pub(crate) struct CudaKernels {
    products: Products,
    embed: Kernel,
    relu: Kernel,
    append: Kernel,
    attend: Kernel,
    add: Kernel,
    choose: Kernel,
    advance: Kernel,
}

impl CudaKernels {
    pub(crate) fn new(module: &Module, engine: &Engine<CudaDevice>) -> Result<Self, CudaError> {
        Ok(Self {
            products: Products::new(engine.device(), engine.stream())?,
            embed: module.kernel("embed")?,
            relu: module.kernel("relu")?,
            append: module.kernel("append")?,
            attend: module.kernel("attend")?,
            add: module.kernel("add")?,
            choose: module.kernel("choose")?,
            advance: module.kernel("advance")?,
        })
    }

    /// What multiplies matrices.
    pub(crate) const fn products(&self) -> &'static str {
        self.products.name()
    }

    fn project(&self, cx: &mut Context<'_, CudaDevice>, args: &Args) -> Result<()> {
        let (Some(x), Some(w), Some(y)) = (args.pointer(0), args.pointer(1), args.pointer(2)) else {
            return Err(mismatch());
        };
        let (b, n, k) = (number(args, 3)?, number(args, 4)?, number(args, 5)?);
        self.products.run(cx, &Gemm::new(b, n, k), [x, w, y])?;
        if number(args, 6)? == 1 {
            let args = Args::new().read_write(y).scalar(b * n);
            cx.launch(&self.relu, LaunchDims::for_elements(b * n), &args)?;
        }
        Ok(())
    }
}

impl Kernels<CudaDevice> for CudaKernels {
    fn run(&self, cx: &mut Context<'_, CudaDevice>, op: Op, args: Args) -> Result<()> {
        let elements = |rows: usize, columns: usize| {
            Ok::<_, graphgrove::Error>(LaunchDims::for_elements(
                number(&args, rows)? * number(&args, columns)?,
            ))
        };
        let (kernel, dims) = match op {
            Op::Project => return self.project(cx, &args),
            Op::Embed => (&self.embed, elements(3, 4)?),
            Op::Append => (&self.append, elements(3, 4)?),
            Op::Attend => (&self.attend, elements(5, 6)?),
            Op::Add => (&self.add, LaunchDims::for_elements(number(&args, 2)?)),
            Op::Choose => {
                let grid = [number(&args, 3)?, 1, 1];
                (&self.choose, LaunchDims { grid, block: [CHOOSING_THREADS, 1, 1], shared_bytes: 0 })
            }
            Op::Advance => (&self.advance, LaunchDims::ONE),
        };
        cx.launch(kernel, dims, &args)
    }
}

fn number(args: &Args, at: usize) -> Result<u32> {
    args.word(at).map(|word| word as u32).ok_or_else(mismatch)
}

fn mismatch() -> graphgrove::Error {
    DeviceError::invalid(Call::Launch, Problem::ArgumentLayout).into()
}
