//! The devices that programs are run on.

use std::sync::OnceLock;

use graphgrove::philox;
use graphgrove_cuda::{CudaDevice, Module};
use graphgrove_device::{Device, Memory, Streams};
use graphgrove_sim::SimDevice;

use crate::kernels::{Kernels, accumulated, mixed};

/// A device that programs can be run on, with the kernels that they are made of.
pub trait Ground: Device + Sized {
    /// The kernels.
    fn kernels(&self) -> Kernels<Self>;

    /// Looks at what a checking device has found.
    ///
    /// # Panics
    /// If it has found something.
    fn check(&self);

    /// Whether all memory that was taken of the device has been given back, as far as the device can tell.
    fn has_everything_back(&self) -> bool;
}

impl Ground for SimDevice {
    fn kernels(&self) -> Kernels<Self> {
        let mix = self.kernel("mix", |scope| {
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
        let accumulate = self.kernel("accumulate", |scope| {
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
        let draw = self.kernel("draw", |scope| {
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
        Kernels {
            mix: mix.with_arguments(8),
            accumulate: accumulate.with_arguments(7),
            draw: draw.with_arguments(6),
        }
    }

    fn check(&self) {
        self.verdict().unwrap();
    }

    fn has_everything_back(&self) -> bool {
        let info = self.memory_info().unwrap();
        self.live_segments() == 0 && info.free == info.total
    }
}

/// The three kernels. One thread goes through all elements, since the tensors of one kernel may overlap.
const SOURCE: &str = r#"
extern "C" __global__ void mix(const unsigned *a, const unsigned *b, unsigned *out, unsigned n, unsigned a_by, unsigned b_len,
                               unsigned b_by, unsigned k) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    for (unsigned i = 0; i < n; ++i) out[i] = a[i * a_by] * 31u + (b_len ? b[i % b_len * b_by] : 0u) * 7u + k;
}
extern "C" __global__ void accumulate(unsigned *to, const unsigned *b, unsigned n, unsigned to_by, unsigned b_len,
                                      unsigned b_by, unsigned k) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    for (unsigned i = 0; i < n; ++i) to[i * to_by] = to[i * to_by] * 3u + (b_len ? b[i % b_len * b_by] : 0u) + k;
}
extern "C" __global__ void draw(const unsigned *a, const unsigned long long *state, unsigned *out, unsigned n, unsigned a_by,
                                unsigned long long base) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    for (unsigned i = 0; i < n; ++i) out[i] = a[i * a_by] * 31u + philox_draw(state[0], state[1] + base + i).x * 7u;
}
"#;

impl Ground for CudaDevice {
    fn kernels(&self) -> Kernels<Self> {
        // Every program has kernels of its own device, and compiling takes longer than most programs.
        static CODE: OnceLock<String> = OnceLock::new();
        let code = CODE.get_or_init(|| self.compile(&format!("{}{SOURCE}", philox::CUDA), &[]).unwrap());
        // SAFETY: each kernel touches as many elements behind its pointers as its numbers say, which are those of the tensors there.
        let module: Module = unsafe { self.load(code) }.unwrap();
        let kernel = |name| module.kernel(name).unwrap();
        Kernels { mix: kernel("mix"), accumulate: kernel("accumulate"), draw: kernel("draw") }
    }

    fn check(&self) {
        // A kernel that has touched memory that is not there says so here.
        self.synchronize().unwrap();
    }

    /// What the driver has free is also what other programs leave free, and the driver keeps some memory for itself.
    fn has_everything_back(&self) -> bool {
        true
    }
}
