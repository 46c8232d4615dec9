//! Matrix products on a CUDA device: by cuBLAS with a workspace of its own, or by a kernel where that library is missing.

use std::sync::Mutex;

use graphgrove::{Args, Context, LaunchDims, Result};
use graphgrove_cuda::{Blas, CudaDevice, CudaError, Gemm, Kernel, Stream};
use graphgrove_device::{Call, DeviceError, DevicePtr};

/// One thread for each element of the product.
const SOURCE: &str = r#"
extern "C" __global__ void product(const float *a, const float *b, float *c, unsigned m, unsigned n, unsigned k,
                                   unsigned transpose_a, unsigned transpose_b) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= m * n) return;
    unsigned row = at / n, column = at % n;
    float sum = 0.0f;
    for (unsigned i = 0; i < k; ++i)
        sum += (transpose_a ? a[i * m + row] : a[row * k + i]) * (transpose_b ? b[column * k + i] : b[i * n + column]);
    c[at] = sum;
}
"#;

/// What multiplies matrices.
pub(crate) enum Products {
    /// cuBLAS on one stream, by one thread at a time.
    Library(Mutex<Blas>),
    /// The kernel above.
    Kernel(Kernel),
}

impl Products {
    /// For work on this stream, which has to be the one that calls run on. By the kernel if `without_library`, too.
    pub(crate) fn new(
        device: &CudaDevice,
        stream: &Stream,
        without_library: bool,
    ) -> Result<Self, CudaError> {
        if !without_library {
            match Blas::new(device, stream) {
                Err(CudaError::NoLibrary { .. }) => {}
                blas => return Ok(Self::Library(Mutex::new(blas?))),
            }
        }
        let code = device.compile(SOURCE, &[])?;
        // SAFETY: the kernel reads m * k and k * n elements and writes m * n, which is what its callers give it.
        Ok(Self::Kernel(unsafe { device.load(&code) }?.kernel("product")?))
    }

    /// Which it is.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Library(_) => "cuBLAS",
            Self::Kernel(_) => "a kernel of its own",
        }
    }

    /// Enqueues `c = a * b`.
    pub(crate) fn run(
        &self,
        cx: &mut Context<'_, CudaDevice>,
        shape: &Gemm,
        [a, b, c]: [DevicePtr; 3],
    ) -> Result<()> {
        match self {
            Self::Library(blas) => {
                let multiply = |_: &Stream| {
                    let mut blas = blas.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    blas.gemm(shape, a, b, c)
                };
                Ok(cx.foreign(multiply).map_err(device_error)?)
            }
            Self::Kernel(kernel) => {
                let args =
                    Args::new().read(a).read(b).write(c).scalar(shape.m).scalar(shape.n).scalar(shape.k);
                let args = args.scalar(u32::from(shape.transpose_a)).scalar(u32::from(shape.transpose_b));
                cx.launch(kernel, LaunchDims::for_elements(shape.m * shape.n), &args)
            }
        }
    }
}

/// What a function of the engine can fail with.
fn device_error(error: CudaError) -> DeviceError {
    match error {
        CudaError::Device(error) => error,
        other => DeviceError::Driver { call: Call::Launch, code: 0, name: other.to_string() },
    }
}
