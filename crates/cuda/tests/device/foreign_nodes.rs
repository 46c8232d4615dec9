//! Nodes that other code captures on a stream of this device.

use cudarc::driver::sys::{self, CUresult};
use graphgrove_cuda::{CudaDevice, Graph, Stream};
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, DeviceError, DevicePtr, Graphs, LaunchDims, Memory, NodeId,
    NodeKinds, Problem, SegmentMemory, StreamHandle, Streams, Work,
};

use crate::support::{PTX, kernel};

/// Loads the test kernels without this crate, as a library would.
fn foreign_add() -> sys::CUfunction {
    let text = std::ffi::CString::new(PTX).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the text ends in a null byte, and the output outlives the call.
    let loaded = unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) };
    assert_eq!(loaded, CUresult::CUDA_SUCCESS);
    // SAFETY: the module was loaded above, and stays so.
    let found = unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) };
    assert_eq!(found, CUresult::CUDA_SUCCESS);
    function
}

fn foreign_launch(function: sys::CUfunction, stream: &Stream, at: DevicePtr, value: u32) {
    let (mut at, mut n, mut value) = (at.get(), 1_u32, value);
    let mut arguments = [(&raw mut at).cast(), (&raw mut n).cast(), (&raw mut value).cast()];
    let raw = stream.raw().get() as sys::CUstream;
    let (pointers, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the kernel takes these three arguments, and the stream is live.
    let code = unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, raw, pointers, none) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

fn read(device: &CudaDevice, at: DevicePtr) -> u32 {
    let mut seen = [0; 4];
    device.read(at, &mut seen).unwrap();
    u32::from_le_bytes(seen)
}

fn add_args(at: DevicePtr, value: u32) -> Args {
    Args::new().read_write(at).scalar(1_u32).scalar(value)
}

/// Foreign, own, foreign, own: each adds to its own word.
fn mixed(device: &CudaDevice, stream: &Stream, base: DevicePtr) -> (Graph, [NodeId; 2]) {
    let (add, foreign) = (kernel(device, "add").unwrap(), foreign_add());
    let at = |word: u64| base.checked_add(word * 4).unwrap();
    let capture = CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal).unwrap();
    foreign_launch(foreign, stream, at(0), 1);
    let first = device.launch(stream, &add, LaunchDims::ONE, &add_args(at(1), 2)).unwrap().unwrap();
    foreign_launch(foreign, stream, at(2), 3);
    let second = device.launch(stream, &add, LaunchDims::ONE, &add_args(at(3), 4)).unwrap().unwrap();
    (capture.end().unwrap(), [first, second])
}

pub(crate) fn nodes_of_other_code_have_ids_behind_the_recorded_ones(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(16).unwrap();
    let (graph, ids) = mixed(device, &stream, memory.base());
    assert_eq!(ids, [NodeId::new(0), NodeId::new(1)]);
    let audit = device.audit(&graph).unwrap();
    assert_eq!((audit.nodes, audit.edges, audit.kinds), (4, 3, NodeKinds::KERNEL));
}

pub(crate) fn a_kernel_node_of_other_code_is_patched(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(16).unwrap();
    device.write(memory.base(), &[0; 16]).unwrap();
    let (graph, ids) = mixed(device, &stream, memory.base());
    let mut exec = device.instantiate(&graph).unwrap();
    let at = |word: u64| memory.base().checked_add(word * 4).unwrap();
    match device.patch_kernel(&mut exec, NodeId::new(2), &add_args(at(0), 30)) {
        Ok(()) => {}
        // The driver is older than CUDA 12.4 and does not say what a kernel takes.
        Err(DeviceError::Unsupported { .. }) => return,
        Err(error) => panic!("{error}"),
    }
    device.patch_kernel(&mut exec, ids[1], &add_args(at(3), 40)).unwrap();
    let wrong = [
        Args::new(),
        add_args(at(0), 1).scalar(1_u32),
        Args::new().scalar(1_u32).scalar(1_u32).scalar(1_u32),
    ];
    for args in wrong {
        let error = device.patch_kernel(&mut exec, NodeId::new(2), &args).unwrap_err();
        assert!(matches!(error, DeviceError::Invalid { problem: Problem::ArgumentLayout, .. }), "{error}");
    }
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize_stream(&stream).unwrap();
    assert_eq!([0, 1, 2, 3].map(|word| read(device, at(word))), [30, 2, 3, 40]);
}

pub(crate) fn an_allocation_of_other_code_is_named_by_what_came_before(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(16).unwrap();
    let add = kernel(device, "add").unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    device.launch(&stream, &add, LaunchDims::ONE, &add_args(memory.base(), 2)).unwrap();
    let raw = stream.raw().get() as sys::CUstream;
    let mut address = 0;
    // SAFETY: the output outlives the call, and the stream is live.
    assert_eq!(unsafe { sys::cuMemAllocAsync(&raw mut address, 256, raw) }, CUresult::CUDA_SUCCESS);
    // SAFETY: the allocation was made in the same capture.
    assert_eq!(unsafe { sys::cuMemFreeAsync(address, raw) }, CUresult::CUDA_SUCCESS);
    let graph = capture.end().unwrap();
    let audit = device.audit(&graph).unwrap();
    assert_eq!(audit.kinds, NodeKinds::KERNEL | NodeKinds::ALLOCATE | NodeKinds::FREE);
    let named: Vec<_> =
        audit.memory_nodes.iter().map(|node| (node.node.get(), node.after.as_str())).collect();
    assert_eq!(named, [(1, "add"), (2, "allocate on stream")]);
    assert!(matches!(audit.refuse_memory_nodes(), Err(DeviceError::MemoryNodes { count: 2, .. })));
}
