//! What enqueued work keeps alive, and when it lets go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self, CUresult};
use graphgrove_cuda::{CudaDevice, Stream};
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, CaptureStatus, DeviceError, DevicePtr, GatherRow, Graphs,
    HostMemory, LaunchDims, Memory, Problem, Progress, SegmentMemory, Streams, Work,
};

use crate::device::child::{Part, in_a_process_of_its_own};
use crate::support::kernel;

/// Enqueues work that takes 50 ms and uses no memory.
fn delay(device: &CudaDevice, stream: &Stream) {
    let spin = kernel(device, "spin").unwrap();
    device.launch(stream, &spin, LaunchDims::ONE, &Args::new().scalar(50_000_u32)).unwrap();
}

pub(crate) fn a_dropped_exec_still_finishes_and_then_frees_what_it_used(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let (from, to) = (device.allocate(4096).unwrap(), device.allocate(8192).unwrap());
    device.write(from.base(), &[4; 4096]).unwrap();
    let host = device.host_buffer(4096).unwrap();
    host.write(0, &[9; 4096]).unwrap();
    let second = to.base().checked_add(4096).unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    device.gather(&stream, &[GatherRow { to: to.base(), bytes: 4096 }], &[from.base()]).unwrap();
    device.upload(&stream, second, &host, 0, 4096).unwrap();
    let graph = capture.end().unwrap();
    let mut exec = device.instantiate(&graph).unwrap();
    delay(device, &stream);
    device.launch_exec(&mut exec, &stream).unwrap();
    drop((exec, graph, host));
    // This would take the places of what was freed too early.
    let other = device.host_buffer(4096).unwrap();
    other.write(0, &[1; 4096]).unwrap();
    device.synchronize_stream(&stream).unwrap();
    let mut seen = [0; 8192];
    device.read(to.base(), &mut seen).unwrap();
    assert_eq!(seen[..4096], [4; 4096]);
    assert_eq!(seen[4096..], [9; 4096]);
}

/// A host function, the count of its calls, and whether it still lives.
fn counted() -> (Arc<AtomicU32>, Box<dyn FnMut() + Send>) {
    let count = Arc::new(AtomicU32::new(0));
    let inner = Arc::clone(&count);
    let call = move || {
        inner.fetch_add(1, Ordering::SeqCst);
    };
    (count, Box::new(call))
}

pub(crate) fn a_host_function_is_dropped_after_it_ran_and_not_before(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let (count, call) = counted();
    delay(device, &stream);
    device.host_call(&stream, call).unwrap();
    assert_eq!((count.load(Ordering::SeqCst), Arc::strong_count(&count)), (0, 2));
    device.synchronize_stream(&stream).unwrap();
    device.memory_info().unwrap();
    assert_eq!((count.load(Ordering::SeqCst), Arc::strong_count(&count)), (1, 1));
}

pub(crate) fn a_host_function_lives_as_long_as_its_graph(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let (count, call) = counted();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    device.host_call(&stream, call).unwrap();
    let graph = capture.end().unwrap();
    let mut exec = device.instantiate(&graph).unwrap();
    drop(graph);
    for _ in 0..3 {
        device.launch_exec(&mut exec, &stream).unwrap();
    }
    delay(device, &stream);
    device.launch_exec(&mut exec, &stream).unwrap();
    drop(exec);
    assert_eq!(Arc::strong_count(&count), 2);
    device.synchronize_stream(&stream).unwrap();
    device.memory_info().unwrap();
    assert_eq!((count.load(Ordering::SeqCst), Arc::strong_count(&count)), (4, 1));
}

pub(crate) fn an_update_keeps_what_running_launches_use(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let record = |call| {
        let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
        device.host_call(&stream, call).unwrap();
        capture.end().unwrap()
    };
    let (counts, calls): (Vec<_>, Vec<_>) = (0..3).map(|_| counted()).unzip();
    let handles = || counts.iter().map(Arc::strong_count).collect::<Vec<_>>();
    let mut graphs = calls.into_iter().map(record);
    let mut exec = device.instantiate(&graphs.next().unwrap()).unwrap();
    delay(device, &stream);
    device.launch_exec(&mut exec, &stream).unwrap();
    for graph in graphs {
        device.update(&mut exec, &graph).unwrap();
        drop(graph);
        device.launch_exec(&mut exec, &stream).unwrap();
    }
    assert_eq!(handles(), [2, 2, 2]);
    device.synchronize_stream(&stream).unwrap();
    assert_eq!(counts.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>(), [1, 1, 1]);
    device.memory_info().unwrap();
    // The graph that it was made of lives as long as the exec, and the last one is its own; the one between is gone.
    assert_eq!(handles(), [2, 1, 2]);
    drop(exec);
    device.memory_info().unwrap();
    assert_eq!(handles(), [1, 1, 1]);
}

pub(crate) fn dropping_a_host_buffer_does_not_wait_for_its_copy(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(64).unwrap();
    let host = device.host_buffer(64).unwrap();
    host.write(0, &[6; 64]).unwrap();
    delay(device, &stream);
    device.upload(&stream, memory.base(), &host, 0, 64).unwrap();
    drop(host);
    assert_eq!(device.query_stream(&stream).unwrap(), Progress::Pending);
    device.synchronize_stream(&stream).unwrap();
    let mut seen = [0; 64];
    device.read(memory.base(), &mut seen).unwrap();
    assert_eq!(seen, [6; 64]);
}

pub(crate) fn patching_and_dropping_a_host_buffer_does_not_wait_for_launches(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4 * 64).unwrap();
    let to = |place: u64| memory.base().checked_add(64 * place).unwrap();
    let mut hosts: Vec<_> = (0..4).map(|_| device.host_buffer(64).unwrap()).collect();
    for (byte, host) in (1..).zip(&hosts) {
        host.write(0, &[byte; 64]).unwrap();
    }
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let node = device.upload(&stream, to(0), &hosts[0], 0, 64).unwrap().unwrap();
    let mut exec = device.instantiate(&capture.end().unwrap()).unwrap();
    delay(device, &stream);
    device.launch_exec(&mut exec, &stream).unwrap();
    for (place, host) in (1..).zip(hosts.drain(1..)) {
        device.patch_upload(&mut exec, node, to(place), &host, 0).unwrap();
        drop(host);
        device.launch_exec(&mut exec, &stream).unwrap();
    }
    device.patch_upload(&mut exec, node, to(0), &hosts[0], 0).unwrap();
    assert_eq!(device.query_stream(&stream).unwrap(), Progress::Pending);
    device.synchronize_stream(&stream).unwrap();
    let mut seen = [0; 4 * 64];
    device.read(memory.base(), &mut seen).unwrap();
    assert_eq!(seen.chunks(64).map(|row| row[0]).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(seen.chunks(64).all(|row| row.iter().all(|&byte| byte == row[0])));
}

pub(crate) fn a_drop_does_not_reach_the_driver_while_a_capture_is_open(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let segment = device.allocate(32 << 20).unwrap();
    let free = || device.memory_info().unwrap().free;
    let before = free();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::Relaxed).unwrap();
    drop(segment);
    assert_eq!(free(), before);
    drop(capture);
    assert_eq!(free(), before + (32 << 20));
}

pub(crate) fn a_fill_of_unknown_memory_is_refused_and_leaves_the_capture_valid(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(64).unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let error = device.fill(&stream, DevicePtr::new(1 << 20), 1, 64).unwrap_err();
    assert!(matches!(error, DeviceError::Invalid { problem: Problem::NotAllocated { .. }, .. }), "{error}");
    device.fill(&stream, memory.base(), 1, 64).unwrap();
    assert_eq!(device.audit(&capture.end().unwrap()).unwrap().nodes, 1);
}

pub(crate) fn a_capture_goes_with_its_stream(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    device.begin_capture(&stream, CaptureMode::Global).unwrap();
    let segment = device.create_event().unwrap();
    drop(stream);
    drop(segment);
    let other = device.create_stream().unwrap();
    assert_eq!(device.capture_status(&other).unwrap(), CaptureStatus::None);
    // A global capture that lived on would forbid this.
    device.allocate(4096).unwrap();
    device.synchronize().unwrap();
}

pub(crate) fn the_context_goes_with_the_last_handle(_device: &CudaDevice) {
    in_a_process_of_its_own(Part::Closing);
}

/// Whether the primary context of the first device exists.
fn context_is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both outputs outlive the call.
    let code = unsafe { sys::cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    active == 1
}

/// Uses everything that could hold the device without being a handle, and demands that closing it is the end of its context.
pub(crate) fn use_and_close_a_device() {
    for round in 0..3 {
        let device = CudaDevice::open(0).unwrap();
        let stream = device.create_stream().unwrap();
        let memory = device.allocate(8192).unwrap();
        let host = device.host_buffer(64).unwrap();
        let second = memory.base().checked_add(4096).unwrap();
        let other = device.host_buffer(64).unwrap();
        let (count, call) = counted();
        let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal).unwrap();
        device.gather(&stream, &[GatherRow { to: second, bytes: 64 }], &[memory.base()]).unwrap();
        let node = device.upload(&stream, memory.base(), &host, 0, 64).unwrap().unwrap();
        device.host_call(&stream, call).unwrap();
        let graph = capture.end().unwrap();
        let mut exec = device.instantiate(&graph).unwrap();
        delay(&device, &stream);
        device.launch_exec(&mut exec, &stream).unwrap();
        device.upload(&stream, memory.base(), &host, 0, 64).unwrap();
        for from in [&other, &host] {
            device.patch_upload(&mut exec, node, memory.base(), from, 0).unwrap();
            device.launch_exec(&mut exec, &stream).unwrap();
        }
        // While the stream of the last launch captures, what is replaced has to wait.
        let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal).unwrap();
        device.patch_upload(&mut exec, node, memory.base(), &other, 0).unwrap();
        drop(capture);
        assert!(context_is_active());
        drop(device);
        drop((graph, exec, host, other));
        assert!(context_is_active(), "a stream and memory are left");
        drop((memory, stream));
        assert!(!context_is_active(), "round {round}");
        assert_eq!((count.load(Ordering::SeqCst), Arc::strong_count(&count)), (3, 1));
    }
}
