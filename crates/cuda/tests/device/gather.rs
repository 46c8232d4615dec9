//! The gather kernel, against the same copies made on the host.

use graphgrove_cuda::CudaDevice;
use graphgrove_device::{
    CaptureGuard, CaptureMode, DevicePtr, GatherRow, Graphs, Memory, SegmentMemory, Streams, Work,
};

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// Rows by the offset of their target, the offset of their source, and their length; targets do not overlap.
struct Layout {
    rows: Vec<(u64, u64, u64)>,
    target_bytes: usize,
    source_bytes: usize,
}

/// Captures a gather, launches it, patches it to sources that are shifted by `shift`, launches again, and compares.
fn check(device: &CudaDevice, layout: &Layout, shift: u64) {
    let Layout { rows, target_bytes, source_bytes } = layout;
    let mut numbers = Numbers(7);
    let from = numbers.bytes(*source_bytes + shift as usize);
    let before = vec![0xa5; *target_bytes];
    let (target, source) =
        (device.allocate(before.len() as u64).unwrap(), device.allocate(from.len() as u64).unwrap());
    device.write(source.base(), &from).unwrap();
    let to: Vec<_> = rows
        .iter()
        .map(|&(to, _, bytes)| GatherRow { to: target.base().checked_add(to).unwrap(), bytes })
        .collect();
    let sources = |shift: u64| -> Vec<DevicePtr> {
        rows.iter().map(|&(_, from, _)| source.base().checked_add(from + shift).unwrap()).collect()
    };
    let stream = device.create_stream().unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let node = device.gather(&stream, &to, &sources(0)).unwrap().unwrap();
    let mut exec = device.instantiate(&capture.end().unwrap()).unwrap();
    // Back at the first sources, a node that has forgotten the second ones would keep them.
    for shift in [0, shift, 0] {
        device.write(target.base(), &before).unwrap();
        device.patch_gather(&mut exec, node, &sources(shift)).unwrap();
        device.launch_exec(&mut exec, &stream).unwrap();
        device.synchronize_stream(&stream).unwrap();
        let mut expected = before.clone();
        for &(to, at, bytes) in rows {
            let (to, at, bytes) = (to as usize, (at + shift) as usize, bytes as usize);
            expected[to..to + bytes].copy_from_slice(&from[at..at + bytes]);
        }
        let mut seen = vec![0; before.len()];
        device.read(target.base(), &mut seen).unwrap();
        if let Some(place) = seen.iter().zip(&expected).position(|(seen, expected)| seen != expected) {
            panic!("byte {place} is {} and not {} (shift {shift})", seen[place], expected[place]);
        }
    }
}

/// Rows one after the other, each `gap` bytes behind the one before.
fn packed(lengths: impl IntoIterator<Item = u64>, numbers: &mut Numbers) -> Layout {
    let mut rows = Vec::new();
    let (mut to, mut from) = (0, 0);
    for bytes in lengths {
        to += numbers.below(33);
        from += numbers.below(33);
        rows.push((to, from, bytes));
        to += bytes;
        from += bytes;
    }
    Layout { rows, target_bytes: to as usize + 64, source_bytes: from as usize + 64 }
}

pub(crate) fn rows_of_any_length_and_alignment_are_gathered(device: &CudaDevice) {
    let mut numbers = Numbers(1);
    for round in 0..12 {
        let lengths: Vec<_> = (0..100).map(|row| if row < 40 { row } else { numbers.below(9000) }).collect();
        check(device, &packed(lengths, &mut numbers), 1 + round);
    }
}

pub(crate) fn long_rows_are_gathered_by_many_blocks(device: &CudaDevice) {
    let mut numbers = Numbers(2);
    for shift in [16, 8, 4, 3] {
        check(device, &packed([5 << 20, 1, (7 << 20) + 13, 4096], &mut numbers), shift);
    }
}

pub(crate) fn every_number_of_rows_is_gathered_and_patched(device: &CudaDevice) {
    let mut numbers = Numbers(3);
    for count in [1, 2, 7, 8, 9, 31, 32, 33, 64, 127, 128] {
        assert!(count <= device.gather_rows());
        check(device, &packed((0..count as u64).map(|row| 1 + row * 37), &mut numbers), 5);
    }
}
