//! The kernels of the classifier on a CUDA device: compiled at run time, with matrix products by a library if it is there.

use graphgrove::{Args, Context, Engine, LaunchDims, Result};
use graphgrove_cuda::{CudaDevice, CudaError, Gemm, Kernel, Module};
use graphgrove_device::{Call, DeviceError, DevicePtr, Problem};

use crate::kernels::{Kernels, Op};
use crate::products::Products;

const SOURCE: &str = include_str!("kernels.cu");
/// Threads of the one block that adds up the loss, as `kernels.cu` has it.
const LOSS_THREADS: u32 = 128;

/// Compiles the kernels.
pub(crate) fn compile(device: &CudaDevice) -> Result<Module, CudaError> {
    let code = device.compile(SOURCE, &[])?;
    // SAFETY: each kernel touches as many elements behind its pointers as its numbers say, and the model passes the shapes of the
    // tensors that they point to. A class that does not exist is not looked up.
    unsafe { device.load(&code) }
}

pub(crate) struct CudaKernels {
    products: Products,
    bias: Kernel,
    cross_entropy: Kernel,
    bias_gradient: Kernel,
    where_positive: Kernel,
    add_to: Kernel,
    momentum: Kernel,
}

impl CudaKernels {
    pub(crate) fn new(module: &Module, engine: &Engine<CudaDevice>) -> Result<Self, CudaError> {
        Ok(Self {
            products: Products::new(engine.device(), engine.stream())?,
            bias: module.kernel("bias")?,
            cross_entropy: module.kernel("cross_entropy")?,
            bias_gradient: module.kernel("bias_gradient")?,
            where_positive: module.kernel("where_positive")?,
            add_to: module.kernel("add_to")?,
            momentum: module.kernel("momentum")?,
        })
    }

    /// What multiplies matrices.
    pub(crate) const fn products(&self) -> &'static str {
        self.products.name()
    }
}

impl Kernels<CudaDevice> for CudaKernels {
    fn run(&self, cx: &mut Context<'_, CudaDevice>, op: Op, elements: u64, args: Args) -> Result<()> {
        let all = LaunchDims::for_elements(elements as u32);
        match op {
            Op::Linear => {
                let [x, w, b, y] = pointers(&args)?;
                let [m, n, k, relu] = numbers(&args)?;
                self.products.run(cx, &Gemm::new(m, n, k), [x, w, y])?;
                let args = Args::new().read_write(y).read(b).scalar(m * n).scalar(n).scalar(relu);
                cx.launch(&self.bias, all, &args)
            }
            Op::WeightGradient => {
                let [x, dy, dw] = pointers(&args)?;
                let [m, n, k] = numbers(&args)?;
                self.products.run(cx, &Gemm { transpose_a: true, ..Gemm::new(k, n, m) }, [x, dy, dw])
            }
            Op::InputGradient => {
                let [dy, w, y, dx] = pointers(&args)?;
                let [m, n, k] = numbers(&args)?;
                self.products.run(cx, &Gemm { transpose_b: true, ..Gemm::new(m, k, n) }, [dy, w, dx])?;
                cx.launch(&self.where_positive, all, &Args::new().read_write(dx).read(y).scalar(m * k))
            }
            Op::CrossEntropy => {
                let block = LaunchDims { grid: [1; 3], block: [LOSS_THREADS, 1, 1], shared_bytes: 0 };
                cx.launch(&self.cross_entropy, block, &args)
            }
            Op::BiasGradient => cx.launch(&self.bias_gradient, all, &args),
            Op::AddTo => cx.launch(&self.add_to, all, &args),
            Op::Momentum => cx.launch(&self.momentum, all, &args),
        }
    }
}

/// The first arguments, which are pointers.
fn pointers<const N: usize>(args: &Args) -> Result<[DevicePtr; N]> {
    let all: Option<Vec<_>> = (0..N).map(|at| args.pointer(at)).collect();
    all.and_then(|all| all.try_into().ok()).ok_or_else(mismatch)
}

/// The last arguments, which are numbers.
fn numbers<const N: usize>(args: &Args) -> Result<[u32; N]> {
    let first = args.fields().len().saturating_sub(N);
    let all: Option<Vec<u32>> = (first..first + N).map(|at| Some(args.word(at)? as u32)).collect();
    all.and_then(|all| all.try_into().ok()).ok_or_else(mismatch)
}

fn mismatch() -> graphgrove::Error {
    DeviceError::invalid(Call::Launch, Problem::ArgumentLayout).into()
}
