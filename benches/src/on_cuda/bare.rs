//! Graphs by driver calls alone: what everything is compared with.

use std::error::Error;
use std::ffi::CString;

use cudarc::driver::sys;
use graphgrove_cuda::Stream;
use graphgrove_device::{DevicePtr, LaunchDims, StreamHandle};

use crate::kernel::{ADD, DIMS};

/// The kernel of [`ADD`], loaded by the driver.
#[derive(Clone, Copy)]
pub(crate) struct BareKernel(sys::CUfunction);

impl BareKernel {
    /// Loads it. A device has to be open, whose context is current then.
    pub(crate) fn load() -> Result<Self, Box<dyn Error>> {
        let text = CString::new(ADD)?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the text ends in a null byte, and the output outlives the call.
        check(unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) })?;
        // SAFETY: the module was loaded above, and stays so.
        check(unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) })?;
        Ok(Self(function))
    }
}

/// A graph and its exec.
pub(crate) struct Bare {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Bare {
    /// Captures a launch for each pair of addresses to read and to write, and instantiates the graph.
    pub(crate) fn record(
        stream: &Stream,
        kernel: BareKernel,
        launches: &[(DevicePtr, DevicePtr)],
    ) -> Result<Self, Box<dyn Error>> {
        let raw = raw(stream);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live.
        check(unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
        let LaunchDims { grid, block, .. } = DIMS;
        for (from, to) in launches {
            let (mut from, mut to) = (from.get(), to.get());
            let mut arguments = [(&raw mut from).cast(), (&raw mut to).cast()];
            // SAFETY: the kernel takes these two arguments, and the stream is live.
            check(unsafe {
                sys::cuLaunchKernel(
                    kernel.0,
                    grid[0],
                    1,
                    1,
                    block[0],
                    1,
                    1,
                    0,
                    raw,
                    arguments.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            })?;
        }
        let mut bare = Self { graph: std::ptr::null_mut(), exec: std::ptr::null_mut() };
        // SAFETY: the capture was begun above, and the output outlives the call.
        check(unsafe { sys::cuStreamEndCapture(raw, &raw mut bare.graph) })?;
        // SAFETY: the graph was captured above, and the output outlives the call.
        check(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut bare.exec, bare.graph, 0) })?;
        Ok(bare)
    }

    /// Launches it.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), Box<dyn Error>> {
        // SAFETY: exec and stream are live, and the memory that the kernels touch is that of the caller, who waits for them.
        check(unsafe { sys::cuGraphLaunch(self.exec, raw(stream)) })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            // SAFETY: the exec was made for this value and is destroyed once.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
        if !self.graph.is_null() {
            // SAFETY: the graph was captured for this value and is destroyed once.
            let _ = unsafe { sys::cuGraphDestroy(self.graph) };
        }
    }
}

fn raw(stream: &Stream) -> sys::CUstream {
    stream.raw().get() as sys::CUstream
}

fn check(code: sys::CUresult) -> Result<(), Box<dyn Error>> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{code:?}").into()) }
}
