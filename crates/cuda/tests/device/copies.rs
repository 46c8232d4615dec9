//! Copies within the device, as nodes.

use graphgrove_cuda::CudaDevice;
use graphgrove_device::{
    Capture, CaptureGuard, CaptureMode, DeviceError, DevicePtr, Graphs, Memory, NodeKinds, Problem,
    ReservedRange, SegmentMemory, Streams, Work,
};

/// Memory that was reserved and mapped, and memory that was allocated.
pub(crate) fn a_copy_recorded_in_one_kind_of_memory_is_patched_to_the_other(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let page = device.granularity();
    let mut range = device.reserve(page).unwrap();
    device.map(&mut range, 0, page).unwrap();
    let plain = device.allocate(page).unwrap();
    let kinds = [range.base(), plain.base()];
    for (target, other) in [(0, 1), (1, 0)] {
        for source in kinds {
            let from = source.checked_add(4096).unwrap();
            device.write(from, &[9; 20]).unwrap();
            let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
            let node = device.copy(&stream, kinds[target], from, 20).unwrap().unwrap();
            let graph = capture.end().unwrap();
            assert_eq!(device.audit(&graph).unwrap().kinds, NodeKinds::COPY);
            let mut exec = device.instantiate(&graph).unwrap();
            device.write(kinds[other], &[0; 21]).unwrap();
            device.patch_copy(&mut exec, node, kinds[other], from).unwrap();
            device.launch_exec(&mut exec, &stream).unwrap();
            device.synchronize_stream(&stream).unwrap();
            let mut seen = [0; 21];
            device.read(kinds[other], &mut seen).unwrap();
            assert_eq!((&seen[..20], seen[20]), (&[9_u8; 20][..], 0));
        }
    }
    device.unmap(&mut range, 0, page).unwrap();
}

pub(crate) fn a_recorded_copy_of_any_length_and_alignment_is_exact(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    const MOST: u64 = (9 << 20) + 64;
    let memory = device.allocate(2 * MOST).unwrap();
    let at = |offset: u64| DevicePtr::new(memory.base().get() + offset);
    let bytes: Vec<u8> = (0..MOST).map(|place| (place % 251) as u8 + 1).collect();
    device.write(at(0), &bytes).unwrap();
    for length in [1_u64, 3, 16, 255, 4096, 4099, 1 << 20, (9 << 20) - 5] {
        for (to, from) in [(0, 0), (1, 0), (0, 3), (4, 8), (8, 16), (5, 21)] {
            device.fill(&stream, at(MOST), 0, MOST).unwrap();
            let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
            device.copy(&stream, at(MOST + to), at(from), length).unwrap();
            let mut exec = device.instantiate(&capture.end().unwrap()).unwrap();
            device.launch_exec(&mut exec, &stream).unwrap();
            device.synchronize_stream(&stream).unwrap();
            let mut seen = vec![0; (length + to + 1) as usize];
            device.read(at(MOST), &mut seen).unwrap();
            let expected = &bytes[from as usize..(from + length) as usize];
            assert!(seen[..to as usize].iter().all(|byte| *byte == 0), "{length} to {to} from {from}");
            assert!(&seen[to as usize..(to + length) as usize] == expected, "{length} to {to} from {from}");
            assert_eq!(seen[(to + length) as usize], 0, "{length} to {to} from {from}");
        }
    }
}

pub(crate) fn a_copy_is_not_patched_to_where_no_memory_is(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4096).unwrap();
    let far = DevicePtr::new(memory.base().get() + 2048);
    let gone = device.allocate(4 << 20).unwrap().base();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let node = device.copy(&stream, memory.base(), far, 64).unwrap().unwrap();
    let mut exec = device.instantiate(&capture.end().unwrap()).unwrap();
    for (to, from) in [(gone, far), (memory.base(), gone)] {
        let error = device.patch_copy(&mut exec, node, to, from).unwrap_err();
        let expected = Problem::NotAllocated { address: gone, bytes: 64 };
        assert!(matches!(&error, DeviceError::Invalid { problem, .. } if *problem == expected), "{error}");
    }
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize_stream(&stream).unwrap();
}
