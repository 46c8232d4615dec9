//! Execs of the contract: instantiate, update, patch, launch.

use std::mem::MaybeUninit;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{
    Args, Call, DeviceError, DevicePtr, Graphs, HostMemory as _, LaunchDims, NodeId, NodeKind, Problem,
    Result,
};

use crate::capture_table::Node;
use crate::device::CudaDevice;
use crate::exec::Exec;
use crate::fields::{write_field, zeroed};
use crate::graph::{Graph, function_of, kernel_parameters};
use crate::host_buffer::HostBuffer;
use crate::kernel::argument_pointers;
use crate::memory::unknown_target;
use crate::recording::Recording;
use crate::status::Subject;
use crate::stream::Stream;

impl CudaDevice {
    /// The answer to a launch or upload: a refused value can only mean an allocation that still lives.
    #[inline]
    fn launched(&self, call: Call, exec: &Exec, code: CUresult) -> Result<()> {
        if code == CUresult::CUDA_ERROR_INVALID_VALUE
            && let Some(address) = exec.current.unfreed()
        {
            return Err(DeviceError::LiveAllocation { address });
        }
        self.shared.check(call, code, Subject::Nothing)
    }

    /// Whether a kernel node that other code captured takes arguments of this layout, as far as the driver tells.
    fn foreign_layout(&self, function: sys::CUfunction, args: &Args) -> Result<bool> {
        let call = Call::PatchKernel;
        let ask = self.shared.symbols.parameter_info.filter(|_| !function.is_null());
        let Some(ask) = ask else { return Err(DeviceError::Unsupported { call }) };
        for (place, field) in args.fields().iter().map(Some).chain([None]).enumerate() {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the function is that of a live kernel node, and both outputs outlive the call.
            let code = unsafe { ask(function, place, &raw mut offset, &raw mut bytes) };
            let fits = match (code, field) {
                (CUresult::CUDA_SUCCESS, Some(field)) => field.bytes as usize == bytes,
                // Behind the last parameter there is none.
                (CUresult::CUDA_ERROR_INVALID_VALUE, None) => true,
                (CUresult::CUDA_SUCCESS, None) | (CUresult::CUDA_ERROR_INVALID_VALUE, Some(_)) => false,
                (code, _) => return Err(self.shared.error(call, code, Subject::Nothing)),
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Graphs for CudaDevice {
    type Exec = Exec;

    fn instantiate(&self, graph: &Graph) -> Result<Exec> {
        self.shared.own(Call::Instantiate, graph.0.shared.id)?;
        self.shared.enter()?;
        Exec::instantiate(&self.shared, graph)
    }

    fn update(&self, exec: &mut Exec, graph: &Graph) -> Result<()> {
        self.shared.own(Call::Update, exec.shared.id)?;
        self.shared.own(Call::Update, graph.0.shared.id)?;
        self.shared.enter()?;
        exec.update(graph)
    }

    fn upload_exec(&self, exec: &mut Exec, stream: &Stream) -> Result<()> {
        let call = Call::UploadExec;
        self.shared.own(call, exec.shared.id)?;
        self.enter_on(call, stream)?;
        // SAFETY: exec and stream are live, and `&mut` keeps other threads from the exec.
        let code = unsafe { sys::cuGraphUpload(exec.handle.0, stream.handle()) };
        self.launched(call, exec, code)
    }

    #[inline]
    fn launch_exec(&self, exec: &mut Exec, stream: &Stream) -> Result<()> {
        let call = Call::LaunchExec;
        self.shared.own(call, exec.shared.id)?;
        self.enter_on(call, stream)?;
        exec.note_stream(stream);
        // SAFETY: exec and stream are live, and `&mut` keeps other threads from the exec.
        let code = unsafe { sys::cuGraphLaunch(exec.handle.0, stream.handle()) };
        self.launched(call, exec, code)?;
        exec.uploads.launched(stream);
        Ok(())
    }

    fn patch_kernel(&self, exec: &mut Exec, node: NodeId, args: &Args) -> Result<()> {
        let call = Call::PatchKernel;
        self.shared.own(call, exec.shared.id)?;
        self.shared.enter_fast()?;
        let place = exec.origin.node(call, node)?;
        let mut arguments = argument_pointers(args);
        let mismatch = || DeviceError::invalid(call, Problem::ArgumentLayout);
        let mut parameters = match &exec.current.node(call, node)?.recording {
            Recording::Kernel { kernel, dims, args: recorded } => {
                if !recorded.same_layout(args) {
                    return Err(mismatch());
                }
                kernel_node(kernel.function(), *dims)
            }
            Recording::Foreign { kind: NodeKind::Kernel, .. } => {
                let handle = exec.current.node(call, node)?.handle;
                let recorded = exec
                    .current
                    .with_handle(|_| kernel_parameters(handle))
                    .map_err(|code| self.shared.error(call, code, Subject::Nothing))?;
                if !self.foreign_layout(function_of(&recorded), args)? {
                    return Err(mismatch());
                }
                recorded
            }
            _ => return Err(DeviceError::invalid(call, Problem::NoSuchNode { node })),
        };
        parameters.kernelParams = arguments.as_mut_ptr();
        parameters.extra = std::ptr::null_mut();
        self.shared.check(call, set_kernel(exec, place, &parameters), Subject::Nothing)
    }

    fn patch_gather(&self, exec: &mut Exec, node: NodeId, sources: &[DevicePtr]) -> Result<()> {
        let call = Call::PatchGather;
        self.shared.own(call, exec.shared.id)?;
        self.shared.enter_fast()?;
        let Exec { handle, origin, gathers, .. } = exec;
        let place = origin.node(call, node)?;
        let gather = gathers
            .iter_mut()
            .find_map(|(id, gather)| (*id == node).then_some(gather))
            .ok_or(DeviceError::invalid(call, Problem::NoSuchNode { node }))?;
        if gather.compare(call, sources)? {
            return Ok(());
        }
        let code = gather.with_sources(sources, |gather, arguments| {
            let mut parameters = kernel_node(gather.function.0, gather.dims);
            parameters.kernelParams = arguments.as_mut_ptr();
            // SAFETY: the exec is live and used by this thread alone, the node is one of the graph that it was made
            // from, and the arguments are as many and as long as the kernel takes.
            origin.with_handle(|_| unsafe {
                sys::cuGraphExecKernelNodeSetParams_v2(handle.0, place.handle.0, &raw const parameters)
            })
        });
        self.shared.check(call, code, Subject::Nothing)
    }

    fn patch_copy(&self, exec: &mut Exec, node: NodeId, to: DevicePtr, from: DevicePtr) -> Result<()> {
        let call = Call::PatchCopy;
        self.shared.own(call, exec.shared.id)?;
        self.shared.enter()?;
        let place = exec.origin.node(call, node)?;
        let Recording::Copy(copy) = exec.current.node(call, node)?.recording else {
            return Err(DeviceError::invalid(call, Problem::NoSuchNode { node }));
        };
        if to.is_null() || from.is_null() {
            return Err(DeviceError::invalid(call, Problem::NullAddress));
        }
        copy.check(&self.shared, call, to, from)?;
        let code = copy.with_ends(to, from, |arguments| {
            let mut parameters = kernel_node(copy.function.0, copy.dims);
            parameters.kernelParams = arguments.as_mut_ptr();
            set_kernel(exec, place, &parameters)
        });
        self.shared.check(call, code, Subject::Nothing)
    }

    fn patch_upload(
        &self,
        exec: &mut Exec,
        node: NodeId,
        to: DevicePtr,
        from: &HostBuffer,
        offset: usize,
    ) -> Result<()> {
        let call = Call::PatchUpload;
        self.shared.own(call, exec.shared.id)?;
        self.shared.own(call, from.device())?;
        self.shared.enter()?;
        let place = exec.origin.node(call, node)?;
        let Recording::Upload { bytes } = exec.current.node(call, node)?.recording else {
            return Err(DeviceError::invalid(call, Problem::NoSuchNode { node }));
        };
        if to.is_null() {
            return Err(DeviceError::invalid(call, Problem::NullAddress));
        }
        from.check_range(call, offset, bytes)?;
        let Some(pages) = from.pages() else {
            return Err(DeviceError::invalid(call, Problem::UnknownHandle));
        };
        let code = set_upload(exec, place, &upload_node(to, pages.at(offset), bytes));
        self.shared.check(call, code, unknown_target(to, bytes as u64, code))?;
        exec.uploads.replace(node, from);
        Ok(())
    }

    /// An estimate by the number of nodes: the driver does not say, and free memory moves in steps of 2 MiB that several execs share.
    /// It is what driver 580 takes on an H200, to within a tenth. Of execs that are gone the driver keeps the memory for later ones, so
    /// the sum over all that live at once is what counts.
    fn exec_bytes(&self, exec: &Exec) -> Option<u64> {
        Some(EXEC_BYTES + NODE_BYTES * exec.current.nodes().len() as u64)
    }
}

/// Bytes that the driver takes for an exec, whatever it holds.
const EXEC_BYTES: u64 = 112_750;
/// Bytes that it takes for each node beyond that.
const NODE_BYTES: u64 = 2_593;

fn set_kernel(exec: &Exec, place: &Node, parameters: &sys::CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    // SAFETY: the exec is live and used by this thread alone, the node is one of the graph that it was made from, and the
    // arguments are as many and as long as the kernel takes.
    exec.origin.with_handle(|_| unsafe {
        sys::cuGraphExecKernelNodeSetParams_v2(exec.handle.0, place.handle.0, parameters)
    })
}

fn kernel_node(function: sys::CUfunction, dims: LaunchDims) -> sys::CUDA_KERNEL_NODE_PARAMS {
    let ([x, y, z], [a, b, c]) = (dims.grid, dims.block);
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: a,
        blockDimY: b,
        blockDimZ: c,
        sharedMemBytes: dims.shared_bytes,
        kernelParams: std::ptr::null_mut(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

/// Gives an upload node other parameters. The context has to be bound, and the parameters to be of [`upload_node`].
fn set_upload(exec: &Exec, place: &Node, parameters: &MaybeUninit<sys::CUDA_MEMCPY3D>) -> CUresult {
    let mut context = std::ptr::null_mut();
    // SAFETY: the output outlives the call.
    let code = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
    if code != CUresult::CUDA_SUCCESS {
        return code;
    }
    // SAFETY: the exec is live and used by this thread alone, the node is one of the graph that it was made from, and the
    // driver reads the parameters before it returns. The caller has the exec keep host memory that they name.
    exec.origin.with_handle(|_| unsafe {
        sys::cuGraphExecMemcpyNodeSetParams(exec.handle.0, place.handle.0, parameters.as_ptr(), context)
    })
}

/// A copy of one row of bytes from pinned host memory to the device.
fn upload_node(to: DevicePtr, from: *const u8, bytes: usize) -> MaybeUninit<sys::CUDA_MEMCPY3D> {
    let mut copy = zeroed::<sys::CUDA_MEMCPY3D>();
    macro_rules! set {
        ($($field:ident = $value:expr;)*) => {$(
            write_field!(copy, sys::CUDA_MEMCPY3D, $field = $value);
        )*};
    }
    set! {
        srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        srcHost = from.cast::<std::ffi::c_void>();
        dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        dstDevice = to.get();
        WidthInBytes = bytes;
        Height = 1_usize;
        Depth = 1_usize;
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::read_field;

    #[test]
    fn the_parameters_of_an_upload_name_one_row_of_host_memory() {
        let bytes = [0_u8; 24];
        let mut copy = upload_node(DevicePtr::new(512), &raw const bytes[8], 16);
        let row = [
            read_field!(copy, sys::CUDA_MEMCPY3D, dstDevice as u64),
            read_field!(copy, sys::CUDA_MEMCPY3D, dstMemoryType as u32).into(),
            read_field!(copy, sys::CUDA_MEMCPY3D, WidthInBytes as u64),
            read_field!(copy, sys::CUDA_MEMCPY3D, Height as u64),
            read_field!(copy, sys::CUDA_MEMCPY3D, Depth as u64),
        ];
        assert_eq!(row, [512, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u64, 16, 1, 1]);
        let kind = read_field!(copy, sys::CUDA_MEMCPY3D, srcMemoryType as u32);
        assert_eq!(kind, sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32);
        assert_eq!(read_field!(copy, sys::CUDA_MEMCPY3D, srcHost as *const u8), &raw const bytes[8]);
    }
}
