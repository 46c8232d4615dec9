//! Matrix products by cuBLAS, in a way that can be captured.

use std::fmt;
use std::sync::{Arc, OnceLock};

use cudarc::cublas::sys as blas;
use graphgrove_device::{Call, DevicePtr, Problem, Result, StreamHandle as _};

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::event::OwnedEvent;
use crate::raw::Raw;
use crate::retire::{Kept, Retired, keep_for_good};
use crate::segment::DevicePages;
use crate::shared::lock;
use crate::status::Subject;
use crate::stream::Stream;

const LIBRARY: &str = "cuBLAS";

/// What cuBLAS recommends for Hopper; less is enough elsewhere (cuBLAS documentation, cublasSetWorkspace).
const WORKSPACE_BYTES: u64 = 32 << 20;

/// The shape of a matrix product `c = alpha * a * b + beta * c`, all matrices of `f32`, row by row without gaps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Rows of `a` (after its transposition) and of `c`.
    pub m: u32,
    /// Columns of `b` (after its transposition) and of `c`.
    pub n: u32,
    /// Columns of `a` and rows of `b` (after their transpositions).
    pub k: u32,
    /// Whether `a` lies as `k` rows of `m`.
    pub transpose_a: bool,
    /// Whether `b` lies as `n` rows of `k`.
    pub transpose_b: bool,
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of what `c` held before; it is not read if this is zero.
    pub beta: f32,
}

impl Gemm {
    /// `c = a * b`.
    #[must_use]
    pub const fn new(m: u32, n: u32, k: u32) -> Self {
        Self { m, n, k, transpose_a: false, transpose_b: false, alpha: 1.0, beta: 0.0 }
    }
}

/// cuBLAS on one stream, with a workspace of its own.
///
/// Without one the library allocates a workspace by itself, a piece of memory for each pair of handle and stream that no
/// graph may rely on (pytorch/pytorch#99196). Here a capture that uses the workspace keeps it for as long as its graph and
/// execs live. The nodes are ones that other code captures: they have ids behind those that calls of this crate return.
///
/// Make it, and run each shape once, before a capture: the library loads its code when it is first needed.
pub struct Blas {
    device: CudaDevice,
    stream: Stream,
    handle: Raw<blas::cublasContext>,
    workspace: Option<Arc<DevicePages>>,
}

impl Blas {
    /// Makes a handle of the library for the stream. It allocates, so it has no place in a capture.
    ///
    /// # Errors
    /// [`CudaError::NoLibrary`], [`CudaError::Library`], and those of an allocation.
    pub fn new(device: &CudaDevice, stream: &Stream) -> Result<Self, CudaError> {
        static PRESENT: OnceLock<bool> = OnceLock::new();
        let shared = &device.shared;
        shared.own(Call::Launch, stream.device())?;
        shared.enter()?;
        // SAFETY: loading the library runs its initialisers only, which have no preconditions.
        if !*PRESENT.get_or_init(|| unsafe { blas::is_culib_present() }) {
            return Err(CudaError::NoLibrary { library: LIBRARY });
        }
        let workspace = DevicePages::allocate(WORKSPACE_BYTES)
            .map_err(|code| shared.error(Call::Allocate, code, Subject::Bytes(WORKSPACE_BYTES)))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is bound, and the output outlives the call.
        check(unsafe { blas::cublasCreate_v2(&raw mut handle) })?;
        let at = workspace.base().get() as *mut std::ffi::c_void;
        let made = Self {
            device: device.clone(),
            stream: stream.clone(),
            handle: Raw(handle),
            workspace: Some(Arc::new(workspace)),
        };
        // Setting the stream takes the workspace away, so that comes after (cuBLAS documentation, cublasSetStream).
        // SAFETY: handle and stream are live.
        check(unsafe { blas::cublasSetStream_v2(handle, stream.handle().cast()) })?;
        // SAFETY: the handle is live, and the workspace outlives it.
        check(unsafe { blas::cublasSetWorkspace_v2(handle, at, WORKSPACE_BYTES as usize) })?;
        Ok(made)
    }

    /// Enqueues a matrix product on the stream, or captures it.
    ///
    /// # Errors
    /// [`CudaError::Library`]; [`Problem::ZeroBytes`] and [`Problem::NullAddress`] within [`CudaError::Device`]. Nothing is
    /// enqueued then.
    pub fn gemm(&mut self, shape: &Gemm, a: DevicePtr, b: DevicePtr, c: DevicePtr) -> Result<(), CudaError> {
        let call = Call::Launch;
        let refuse = |problem| Err(graphgrove_device::DeviceError::invalid(call, problem).into());
        let Some([m, n, k]) = sizes(shape) else { return refuse(Problem::ZeroBytes) };
        if a.is_null() || b.is_null() || c.is_null() {
            return refuse(Problem::NullAddress);
        }
        let kept = self.workspace.clone().map(|workspace| workspace as Kept);
        let (handle, stream) = (self.handle, self.stream.clone());
        self.device.enqueue_foreign(call, &stream, kept, || {
            let operation = |transpose| match transpose {
                true => blas::cublasOperation_t::CUBLAS_OP_T,
                false => blas::cublasOperation_t::CUBLAS_OP_N,
            };
            let pitch_a = if shape.transpose_a { m } else { k };
            let pitch_b = if shape.transpose_b { k } else { n };
            // The library counts by columns, and a matrix by rows is its transposed by columns: b' * a' = (a * b)'.
            // SAFETY: the handle is live and used by this thread alone, and the factors outlive the call.
            check(unsafe {
                blas::cublasSgemm_v2(
                    handle.0,
                    operation(shape.transpose_b),
                    operation(shape.transpose_a),
                    n,
                    m,
                    k,
                    &raw const shape.alpha,
                    b.get() as *const f32,
                    pitch_b,
                    a.get() as *const f32,
                    pitch_a,
                    &raw const shape.beta,
                    c.get() as *mut f32,
                    n,
                )
            })
        })
    }
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blas").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let (handle, stream, workspace) = (self.handle, self.stream.clone(), self.workspace.take());
        self.device.shared.destroy(move |shared| {
            let event = OwnedEvent::behind(shared, stream.handle());
            // SAFETY: the handle was made for this value and is destroyed once.
            let _ = unsafe { blas::cublasDestroy_v2({ handle }.0) };
            match (workspace, event) {
                (Some(workspace), Some(event)) => {
                    let kept: Vec<Kept> = vec![workspace];
                    lock(&shared.retired).push(Retired::new(Arc::new(kept), vec![event]));
                    crate::retire::sweep(&shared.retired, false);
                }
                // Nothing can say when the stream has passed its work.
                (workspace, _) => keep_for_good(workspace),
            }
        });
    }
}

/// The sizes as the library counts, or `None` if one is zero or too large for it.
fn sizes(shape: &Gemm) -> Option<[i32; 3]> {
    let size = |size: u32| i32::try_from(size).ok().filter(|&size| size > 0);
    Some([size(shape.m)?, size(shape.n)?, size(shape.k)?])
}

fn check(status: blas::cublasStatus_t) -> Result<(), CudaError> {
    match status {
        blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => Err(CudaError::Library { library: LIBRARY, status: format!("{status:?}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_the_library_cannot_count_are_refused() {
        assert_eq!(sizes(&Gemm::new(2, 3, 4)), Some([2, 3, 4]));
        for shape in [Gemm::new(0, 1, 1), Gemm::new(1, 0, 1), Gemm::new(1, 1, 0), Gemm::new(1, 1 << 31, 1)] {
            assert_eq!(sizes(&shape), None, "{shape:?}");
        }
    }
}
