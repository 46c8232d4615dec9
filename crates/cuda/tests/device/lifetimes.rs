//! What enqueued work keeps alive, and when it lets go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use graphgrove_cuda::{CudaDevice, Stream};
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, CaptureStatus, GatherRow, Graphs, HostMemory, LaunchDims,
    Memory, SegmentMemory, Streams, Work,
};

use crate::support::kernel;

/// Enqueues work that takes 50 ms.
fn delay(device: &CudaDevice, stream: &Stream) {
    let slow = kernel(device, "slow_add").unwrap();
    let memory = device.allocate(4).unwrap();
    let args = Args::new().read_write(memory.base()).scalar(1_u32).scalar(1_u32).scalar(50_000_u32);
    device.launch(stream, &slow, LaunchDims::ONE, &args).unwrap();
    // Freeing waits for the device, so the memory has to stay until the work is done.
    Box::leak(Box::new(memory));
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
    let ((first, one), (second, two)) = (counted(), counted());
    let graph = record(one);
    let mut exec = device.instantiate(&graph).unwrap();
    drop(graph);
    delay(device, &stream);
    device.launch_exec(&mut exec, &stream).unwrap();
    let graph = record(two);
    device.update(&mut exec, &graph).unwrap();
    drop(graph);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 2));
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize_stream(&stream).unwrap();
    assert_eq!((first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (1, 1));
    drop(exec);
    device.memory_info().unwrap();
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
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
