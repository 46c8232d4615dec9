//! What becomes of a device that work has broken.
//!
//! CUDA poisons the process, so this runs in a process of its own.

use graphgrove_cuda::CudaDevice;
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, DeviceError, DevicePtr, Graphs, LaunchDims, Memory,
    SegmentMemory, Streams, Work,
};

use crate::device::child::{Part, in_a_process_of_its_own};
use crate::support::kernel;

pub(crate) fn a_fault_poisons_the_device_and_everything_still_ends(_device: &CudaDevice) {
    in_a_process_of_its_own(Part::Fault);
}

pub(crate) fn break_the_device(device: &CudaDevice) {
    let (stream, other) = (device.create_stream().unwrap(), device.create_stream().unwrap());
    let memory = device.allocate(4096).unwrap();
    let host = device.host_buffer(64).unwrap();
    let event = device.create_event().unwrap();
    let wild = kernel(device, "wild").unwrap();
    let record = || {
        let capture = CaptureGuard::begin(device, &other, CaptureMode::ThreadLocal).unwrap();
        device.upload(&other, memory.base(), &host, 0, 64).unwrap();
        capture.end().unwrap()
    };
    let graph = record();
    let mut exec = device.instantiate(&graph).unwrap();
    let open = CaptureGuard::begin(device, &other, CaptureMode::Relaxed).unwrap();

    let args = Args::new().write(DevicePtr::new(16));
    device.launch(&stream, &wild, LaunchDims::ONE, &args).unwrap();
    let fault = device.synchronize_stream(&stream).unwrap_err();
    assert!(fault.is_fatal(), "{fault}");

    let poisoned = |error: DeviceError| assert_eq!(error, fault);
    poisoned(device.allocate(16).unwrap_err());
    poisoned(device.create_stream().unwrap_err());
    poisoned(device.memory_info().unwrap_err());
    poisoned(device.launch_exec(&mut exec, &stream).unwrap_err());
    poisoned(device.query_event(&event).unwrap_err());
    poisoned(device.audit(&graph).unwrap_err());
    poisoned(device.begin_capture(&stream, CaptureMode::Global).unwrap_err());
    assert!(open.end().is_err());
    // Everything is dropped now, and the process has to come to its end.
}
