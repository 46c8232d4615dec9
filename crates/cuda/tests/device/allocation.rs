//! The fast path leaves the heap alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use graphgrove_cuda::CudaDevice;
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, DevicePtr, GatherRow, Graphs, LaunchDims, Memory,
    SegmentMemory, Streams, Work,
};

use crate::support::kernel;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
pub(crate) struct Counting;

// SAFETY: everything is passed on to the system's allocator; the counter is a plain number of the calling thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: by the promise of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the promise of the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Allocations of this thread while `work` ran, those of the driver excepted, which has an allocator of its own.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

pub(crate) fn launching_and_patching_allocate_nothing_on_the_host(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(1 << 16).unwrap();
    let at = |offset| memory.base().checked_add(offset).unwrap();
    let add = kernel(device, "add").unwrap();
    let args = Args::new().read_write(at(0)).scalar(4_u32).scalar(1_u32);
    let rows: Vec<_> = (0..32).map(|row| GatherRow { to: at(4096 + row * 64), bytes: 64 }).collect();
    let sources =
        |shift: u64| -> [DevicePtr; 32] { std::array::from_fn(|row| at(32_768 + shift + row as u64 * 64)) };
    let hosts = [device.host_buffer(64).unwrap(), device.host_buffer(64).unwrap()];
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let gather = device.gather(&stream, &rows, &sources(0)).unwrap().unwrap();
    let node = device.launch(&stream, &add, LaunchDims::ONE, &args).unwrap().unwrap();
    let upload = device.upload(&stream, at(0), &hosts[0], 0, 64).unwrap().unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(device.audit(&graph).unwrap().nodes, 3);
    let mut exec = device.instantiate(&graph).unwrap();
    device.launch_exec(&mut exec, &stream).unwrap();
    device.patch_gather(&mut exec, gather, &sources(16)).unwrap();
    // Each buffer gets its event when it is replaced for the first time.
    for host in hosts.iter().chain(&hosts) {
        device.patch_upload(&mut exec, upload, at(0), host, 0).unwrap();
        device.launch_exec(&mut exec, &stream).unwrap();
    }
    let counted = allocations(|| {
        for (shift, host) in (0..100).zip(hosts.iter().cycle()) {
            device.patch_upload(&mut exec, upload, at(0), host, 0).unwrap();
            device.patch_gather(&mut exec, gather, &sources(shift)).unwrap();
            device.patch_kernel(&mut exec, node, &args).unwrap();
            device.launch_exec(&mut exec, &stream).unwrap();
        }
    });
    assert_eq!(counted, 0);
    device.synchronize_stream(&stream).unwrap();
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) > 0, "the counter counts");
}
