//! Matrix products by cuBLAS, plainly and in graphs.

use graphgrove_cuda::{Blas, CudaDevice, CudaError, Gemm};
use graphgrove_device::{
    Capture, CaptureGuard, CaptureMode, DeviceError, DevicePtr, Graphs, Memory, NodeKinds, Problem,
    SegmentMemory, Streams,
};

/// The library on a stream, or `None` where there is no library.
fn blas(device: &CudaDevice, stream: &graphgrove_cuda::Stream) -> Option<Blas> {
    match Blas::new(device, stream) {
        Ok(blas) => Some(blas),
        Err(CudaError::NoLibrary { library }) => {
            println!("         not checked: there is no {library} library");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Small whole numbers, so that every sum is exact.
fn matrix(rows: usize, columns: usize, seed: usize) -> Vec<f32> {
    (0..rows * columns).map(|place| ((place * 7 + seed * 13) % 11) as f32 - 5.0).collect()
}

fn write(device: &CudaDevice, at: DevicePtr, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    device.write(at, &bytes).unwrap();
}

fn read(device: &CudaDevice, at: DevicePtr, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    device.read(at, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn product(shape: &Gemm, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let (m, n, k) = (shape.m as usize, shape.n as usize, shape.k as usize);
    let at =
        |row: usize, column: usize| if shape.transpose_a { a[column * m + row] } else { a[row * k + column] };
    let bt =
        |row: usize, column: usize| if shape.transpose_b { b[column * k + row] } else { b[row * n + column] };
    (0..m * n)
        .map(|place| {
            let sum: f32 = (0..k).map(|inner| at(place / n, inner) * bt(inner, place % n)).sum();
            shape.alpha * sum + shape.beta * c[place]
        })
        .collect()
}

pub(crate) fn a_product_is_the_hosts_product_in_every_transposition(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let Some(mut blas) = blas(device, &stream) else { return };
    let memory = device.allocate(1 << 20).unwrap();
    let at = |part: u64| memory.base().checked_add(part << 18).unwrap();
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let shape = Gemm { transpose_a, transpose_b, alpha: 2.0, beta: 0.5, ..Gemm::new(17, 29, 33) };
        let (a, b, c) = (matrix(17, 33, 1), matrix(33, 29, 2), matrix(17, 29, 3));
        for (part, values) in [(0, &a), (1, &b), (2, &c)] {
            write(device, at(part), values);
        }
        blas.gemm(&shape, at(0), at(1), at(2)).unwrap();
        device.synchronize_stream(&stream).unwrap();
        assert_eq!(read(device, at(2), c.len()), product(&shape, &a, &b, &c), "{shape:?}");
    }
}

/// pytorch/pytorch#99196: the library's own workspace would be shared with work outside of the graph.
pub(crate) fn r28_a_captured_product_has_a_workspace_for_as_long_as_its_exec(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let Some(mut blas) = blas(device, &stream) else { return };
    let memory = device.allocate(16 << 20).unwrap();
    let at = |part: u64| memory.base().checked_add(part << 22).unwrap();
    // Few rows and a long sum make the library split the sum, which takes workspace.
    let shape = Gemm::new(8, 8, 1 << 16);
    let (a, b) = (matrix(8, 1 << 16, 1), matrix(1 << 16, 8, 2));
    write(device, at(0), &a);
    write(device, at(1), &b);
    blas.gemm(&shape, at(0), at(1), at(2)).unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    blas.gemm(&shape, at(0), at(1), at(2)).unwrap();
    let graph = capture.end().unwrap();
    let audit = device.audit(&graph).unwrap();
    assert!(audit.kinds.contains(NodeKinds::KERNEL), "{audit}");
    audit.refuse_memory_nodes().unwrap();
    let mut exec = device.instantiate(&graph).unwrap();
    drop((blas, graph));
    // This would take the place of a workspace that was freed too early, and be overwritten.
    let canary = device.allocate(32 << 20).unwrap();
    device.write(canary.base(), &vec![7; 32 << 20]).unwrap();
    write(device, at(2), &[0.0; 64]);
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize_stream(&stream).unwrap();
    let expected = product(&shape, &a, &b, &[0.0; 64]);
    for (seen, expected) in read(device, at(2), 64).into_iter().zip(expected) {
        assert!((seen - expected).abs() <= 1e-3 * expected.abs().max(1.0), "{seen} and not {expected}");
    }
    let mut seen = vec![0; 32 << 20];
    device.read(canary.base(), &mut seen).unwrap();
    assert!(seen.iter().all(|&byte| byte == 7));
}

pub(crate) fn a_product_of_nothing_or_at_null_is_refused(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let Some(mut blas) = blas(device, &stream) else { return };
    let memory = device.allocate(256).unwrap();
    let problem = |error: CudaError| match error {
        CudaError::Device(DeviceError::Invalid { problem, .. }) => problem,
        other => panic!("{other}"),
    };
    let empty = blas.gemm(&Gemm::new(0, 1, 1), memory.base(), memory.base(), memory.base()).unwrap_err();
    assert_eq!(problem(empty), Problem::ZeroBytes);
    let null = blas.gemm(&Gemm::new(1, 1, 1), memory.base(), DevicePtr::NULL, memory.base()).unwrap_err();
    assert_eq!(problem(null), Problem::NullAddress);
}

pub(crate) fn an_allocation_behind_a_product_is_named_by_the_librarys_kernel(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let Some(mut blas) = blas(device, &stream) else { return };
    let memory = device.allocate(1 << 20).unwrap();
    let at = |part: u64| memory.base().checked_add(part << 18).unwrap();
    let mut product = || blas.gemm(&Gemm::new(16, 16, 16), at(0), at(1), at(2)).unwrap();
    product();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    product();
    let address = device.allocate_async(&stream, 256).unwrap();
    device.free_async(&stream, address).unwrap();
    let audit = device.audit(&capture.end().unwrap()).unwrap();
    let after = &audit.memory_nodes.first().unwrap().after;
    // A driver that is older than CUDA 12.3 does not say the names of functions.
    let expected = if device.driver_version().unwrap() >= 12_030 { "gemm" } else { "a node of kind Kernel" };
    assert!(after.contains(expected), "{after}");
}
