//! Streams, memory and contexts that other code has made.

use cudarc::driver::sys::{self, CUresult};
use graphgrove_cuda::CudaDevice;
use graphgrove_device::{
    Args, DeviceError, LaunchDims, Memory, Problem, RawStream, SegmentMemory, StreamHandle, Streams, Work,
};

use crate::support::kernel;

fn foreign_stream() -> sys::CUstream {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the output outlives the call; opening the device has made its context current.
    let code = unsafe { sys::cuStreamCreate(&raw mut raw, 1) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    raw
}

pub(crate) fn a_stream_that_nobody_vouches_for_is_not_adopted(device: &CudaDevice) {
    let error = device.adopt_stream(RawStream::new(0x1234)).unwrap_err();
    assert!(matches!(error, DeviceError::Invalid { problem: Problem::UnknownHandle, .. }), "{error}");
    let own = device.create_stream().unwrap();
    let adopted = device.adopt_stream(own.raw()).unwrap();
    assert_eq!(adopted.raw(), own.raw());
    assert!(device.adopt_stream(RawStream::new(0)).unwrap().is_null());
}

pub(crate) fn a_stream_of_other_code_is_adopted_and_outlives_its_handles(device: &CudaDevice) {
    let raw = foreign_stream();
    let name = RawStream::new(raw as u64);
    // SAFETY: the stream is destroyed at the end of this test, after the adopted handle.
    unsafe { device.vouch_for_stream(name) };
    let memory = device.allocate(4).unwrap();
    device.write(memory.base(), &[0; 4]).unwrap();
    let args = Args::new().read_write(memory.base()).scalar(1_u32).scalar(5_u32);
    let add = kernel(device, "add").unwrap();
    let adopted = device.adopt_stream(name).unwrap();
    device.launch(&adopted, &add, LaunchDims::ONE, &args).unwrap();
    drop(adopted);
    // SAFETY: the stream is live: dropping an adopted handle does not destroy it.
    assert_eq!(unsafe { sys::cuStreamSynchronize(raw) }, CUresult::CUDA_SUCCESS);
    let mut seen = [0; 4];
    device.read(memory.base(), &mut seen).unwrap();
    assert_eq!(u32::from_le_bytes(seen), 5);
    device.withdraw_stream(name);
    assert!(device.adopt_stream(name).is_err());
    // SAFETY: the stream was made above and is destroyed once.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(raw) }, CUresult::CUDA_SUCCESS);
}

pub(crate) fn memory_of_other_code_is_adopted(device: &CudaDevice) {
    let mut base = 0;
    // SAFETY: the output outlives the call.
    assert_eq!(unsafe { sys::cuMemAlloc_v2(&raw mut base, 4096) }, CUresult::CUDA_SUCCESS);
    let at = graphgrove_device::DevicePtr::new(base);
    let segment = device.adopt_segment(at, 4096).unwrap();
    device.write(segment.base(), &[7; 4096]).unwrap();
    drop(segment);
    let mut seen = [0; 4096];
    device.read(at, &mut seen).unwrap();
    assert_eq!(seen, [7; 4096]);
    // SAFETY: the memory was made above and is freed once: dropping the segment did not.
    assert_eq!(unsafe { sys::cuMemFree_v2(base) }, CUresult::CUDA_SUCCESS);
    let error = device.adopt_segment(at, 4096).unwrap_err();
    assert!(matches!(error, DeviceError::Invalid { problem: Problem::NotAllocated { .. }, .. }), "{error}");
}

pub(crate) fn a_context_of_other_code_is_adopted(device: &CudaDevice) {
    device.bind().unwrap();
    let mut current = std::ptr::null_mut();
    // SAFETY: the output outlives the call.
    assert_eq!(unsafe { sys::cuCtxGetCurrent(&raw mut current) }, CUresult::CUDA_SUCCESS);
    // SAFETY: `device` keeps its context alive, and outlives the second one.
    let second = unsafe { CudaDevice::adopt_context(current as u64) }.unwrap();
    assert_ne!(second.id(), device.id());
    let memory = device.allocate(64).unwrap();
    second.write(memory.base(), &[3; 64]).unwrap();
    let foreign = device.create_stream().unwrap();
    let error = second.synchronize_stream(&foreign).unwrap_err();
    assert!(matches!(error, DeviceError::ForeignHandle { .. }), "{error}");
    drop(second);
    let mut seen = [0; 64];
    device.read(memory.base(), &mut seen).unwrap();
    assert_eq!(seen, [3; 64]);
}
