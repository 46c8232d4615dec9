//! Scenes with what only CUDA has: NVIDIA's libraries, and a driver that takes memory for itself.

use std::sync::{Arc, Mutex};

use graphgrove::{Layout, args};
use graphgrove_cuda::{Blas, CudaDevice, Gemm};
use graphgrove_device::{
    Args, Call, CaptureGuard, CaptureMode, DeviceError, Graphs, LaunchDims, Memory, SegmentMemory, Streams,
    Work,
};
use graphgrove_tests::ground::Ground;
use graphgrove_tests::scene::Scene;

/// Bytes by which the driver's free memory may differ though nothing is left: it takes and gives back whole pages.
const PAGES: u64 = 4 << 20;

/// pytorch/pytorch#99196: recordings with a library's workspace are made and thrown away.
pub(crate) fn r28_a_library_workspace_does_not_grow_the_pool(device: &Arc<CudaDevice>) {
    const SIDE: u32 = 64;
    let scene = Scene::new(device);
    let blas = Mutex::new(Blas::new(device, scene.engine.stream()).unwrap());
    let product = scene.engine.function("product", move |cx| {
        let (a, b) = (cx.take(0)?, cx.take(1)?);
        let out = cx.empty(Layout::of::<f32>(&[SIDE.into(), SIDE.into()])?)?;
        let at = [a.address()?, b.address()?, out.address()?];
        let shape = Gemm::new(SIDE, SIDE, SIDE);
        let multiplied = cx.foreign(|_| blas.lock().unwrap().gemm(&shape, at[0], at[1], at[2]));
        let name = |error: graphgrove_cuda::CudaError| error.to_string();
        multiplied.map_err(|error| DeviceError::Driver { call: Call::Launch, code: 0, name: name(error) })?;
        Ok(vec![out])
    });
    let matrix = |value: f32| {
        let values = vec![value; (SIDE * SIDE) as usize];
        scene.engine.tensor(&[SIDE.into(), SIDE.into()], &values).unwrap()
    };
    let (a, b) = (matrix(2.0), matrix(0.5));
    let mut after_second = None;
    for round in 0..50 {
        for _ in 0..3 {
            let [out] = product.call(args![&a, &b]).unwrap().into_array().unwrap();
            assert_eq!(scene.engine.read::<f32>(&out).unwrap(), [SIDE as f32; (SIDE * SIDE) as usize]);
        }
        let calls = scene.stats().calls;
        assert_eq!((calls.recordings, calls.failures, calls.eager), (1, 0, 0), "{round}: {calls:?}");
        let reserved = scene.stats().pools[0].ranges.peak_reserved;
        scene.engine.reset().unwrap();
        let free = device.memory_info().unwrap().free;
        if round >= 1 {
            let (pool, least) = *after_second.get_or_insert((reserved, free));
            assert_eq!(reserved, pool, "{round}: the pool has grown");
            assert!(free + PAGES >= least, "{round}: {free} bytes are free, and {least} were");
        }
    }
}

/// vllm-project/vllm#5517: what recordings cost the driver is not counted by anybody.
pub(crate) fn r38_the_drivers_own_memory_is_what_execs_report(device: &Arc<CudaDevice>) {
    const EXECS: u64 = 30;
    let kernels = device.kernels();
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4096).unwrap();
    let args = Args::new().read_write(memory.base()).read(memory.base());
    let args = args.scalar(1_u32).scalar(1_u32).scalar(1_u32).scalar(1_u32).scalar(1_u32);
    let record = || {
        let capture = CaptureGuard::begin(&**device, &stream, CaptureMode::ThreadLocal).unwrap();
        for _ in 0..500 {
            device.launch(&stream, &kernels.accumulate, LaunchDims::ONE, &args).unwrap();
        }
        let mut exec = device.instantiate(&capture.end().unwrap()).unwrap();
        // The driver takes what an exec needs by its first launch at the latest.
        device.launch_exec(&mut exec, &stream).unwrap();
        device.synchronize_stream(&stream).unwrap();
        exec
    };
    drop(record());
    let before = device.memory_info().unwrap().free;
    let execs: Vec<_> = (0..EXECS).map(|_| record()).collect();
    let taken = before.saturating_sub(device.memory_info().unwrap().free);
    let reported: u64 = execs.iter().filter_map(|exec| device.exec_bytes(exec)).sum();
    println!("         {EXECS} execs of 500 kernels: {taken} bytes taken, {reported} reported");
    assert!(reported.abs_diff(taken) <= PAGES, "{taken} bytes are gone, and {reported} are reported");
}
