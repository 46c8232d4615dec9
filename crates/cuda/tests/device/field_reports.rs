//! Scenes from reports of real programs, on the real device. The number in each name is the report's in this project's list.

use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove_cuda::{CudaDevice, Kernel, Stream};
use graphgrove_device::{
    Args, Capture, CaptureFailure, CaptureGuard, CaptureMode, CaptureStatus, DevicePtr, Graphs, HostMemory,
    LaunchDims, Memory, NodeKinds, Progress, SegmentMemory, Streams, Work,
};

use crate::support::kernel;

const WORDS: u32 = 256;

fn add_to(device: &CudaDevice, stream: &Stream, add: &Kernel, at: DevicePtr) {
    let args = Args::new().read_write(at).scalar(WORDS).scalar(1_u32);
    device.launch(stream, add, LaunchDims::for_elements(WORDS), &args).unwrap();
}

fn words(device: &CudaDevice, at: DevicePtr) -> Vec<u32> {
    let mut bytes = [0; WORDS as usize * 4];
    device.read(at, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// pytorch/pytorch#123177: one thread records while others allocate and free; then others replay.
pub(crate) fn r46_one_thread_records_while_others_allocate_and_others_replay(device: &CudaDevice) {
    let add = kernel(device, "add").unwrap();
    let memory = device.allocate(u64::from(WORDS) * 4).unwrap();
    device.write(memory.base(), &[0; WORDS as usize * 4]).unwrap();
    let recorded = AtomicBool::new(false);
    let mut execs = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !recorded.load(Ordering::Relaxed) {
                    let segment = device.allocate(4096).unwrap();
                    device.write(segment.base(), &[1; 4096]).unwrap();
                }
            });
        }
        for _ in 0..20 {
            let stream = device.create_stream().unwrap();
            let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
            for _ in 0..20 {
                add_to(device, &stream, &add, memory.base());
            }
            let graph = capture.end().unwrap();
            assert_eq!(device.audit(&graph).unwrap().nodes, 20);
            execs.push((device.instantiate(&graph).unwrap(), stream));
        }
        recorded.store(true, Ordering::Relaxed);
    });
    let threads: Vec<_> = execs
        .into_iter()
        .map(|(mut exec, stream)| {
            let device = device.clone();
            std::thread::spawn(move || {
                device.launch_exec(&mut exec, &stream).unwrap();
                device.synchronize_stream(&stream).unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // Unordered streams add to the same words without atomics, so only the replays that ran alone are certain.
    assert!(words(device, memory.base()).iter().all(|&word| (20..=400).contains(&word)));
}

/// pytorch/pytorch#104487: a watchdog polls an event while another thread records.
pub(crate) fn r47_a_watchdog_polls_while_another_thread_records(device: &CudaDevice) {
    let add = kernel(device, "add").unwrap();
    let memory = device.allocate(u64::from(WORDS) * 4).unwrap();
    let (stream, outside) = (device.create_stream().unwrap(), device.create_stream().unwrap());
    add_to(device, &outside, &add, memory.base());
    let event = device.create_event().unwrap();
    device.record_event(&event, &outside).unwrap();
    let (done, polled) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let progress = device.query_event(&event).unwrap();
                assert!(matches!(progress, Progress::Done | Progress::Pending));
                polled.store(true, Ordering::Relaxed);
            }
        });
        let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
        while !polled.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        add_to(device, &stream, &add, memory.base());
        let graph = capture.end();
        done.store(true, Ordering::Relaxed);
        assert_eq!(device.audit(&graph.unwrap()).unwrap().nodes, 1);
    });
}

/// pytorch/pytorch#161037, NVIDIA/TransformerEngine#2092: everything that can be dropped is dropped during a recording.
pub(crate) fn r48_drops_during_a_recording_neither_break_it_nor_are_recorded(device: &CudaDevice) {
    let add = kernel(device, "add").unwrap();
    let memory = device.allocate(u64::from(WORDS) * 4).unwrap();
    let (stream, other) = (device.create_stream().unwrap(), device.create_stream().unwrap());
    let outputs: Vec<_> = (0..10).map(|_| device.allocate(32 << 20).unwrap()).collect();
    let capture = CaptureGuard::begin(device, &other, CaptureMode::ThreadLocal).unwrap();
    add_to(device, &other, &add, memory.base());
    let graph = capture.end().unwrap();
    let exec = device.instantiate(&graph).unwrap();
    let (event, host) = (device.create_event().unwrap(), device.host_buffer(64).unwrap());
    let free = device.memory_info().unwrap().free;

    let capture = CaptureGuard::begin(device, &stream, CaptureMode::Global).unwrap();
    add_to(device, &stream, &add, memory.base());
    drop((outputs, graph, exec, event, host, other));
    std::thread::scope(|scope| {
        scope.spawn(|| drop(device.create_event().unwrap()));
    });
    add_to(device, &stream, &add, memory.base());
    let graph = capture.end().unwrap();
    let audit = device.audit(&graph).unwrap();
    assert_eq!((audit.nodes, audit.kinds), (2, NodeKinds::KERNEL));
    assert!(device.memory_info().unwrap().free >= free + (320 << 20), "what was dropped has returned");
}

/// NVIDIA/cuopt#1253, NVIDIA/warp#1959: an operation in the middle of a recording fails.
pub(crate) fn r49_a_failed_recording_leaves_the_stream_ready_for_the_next(device: &CudaDevice) {
    let add = kernel(device, "add").unwrap();
    let memory = device.allocate(u64::from(WORDS) * 4).unwrap();
    device.write(memory.base(), &[0; WORDS as usize * 4]).unwrap();
    let stream = device.create_stream().unwrap();
    let record = |fails: bool| {
        let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal)?;
        add_to(device, &stream, &add, memory.base());
        if fails {
            device.synchronize()?;
        }
        add_to(device, &stream, &add, memory.base());
        capture.end()
    };
    for _ in 0..3 {
        let error = record(true).unwrap_err();
        assert_eq!(error.capture_failure(), Some(&CaptureFailure::Unsupported));
        assert_eq!(device.capture_status(&stream).unwrap(), CaptureStatus::None);
        add_to(device, &stream, &add, memory.base());
        device.synchronize().unwrap();
    }
    let mut exec = device.instantiate(&record(false).unwrap()).unwrap();
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize().unwrap();
    assert_eq!(words(device, memory.base()), [5; WORDS as usize]);
}

/// pytorch/torchtitan#3534: an input comes from another stream; its event has to be waited for before the recording.
pub(crate) fn r56_an_input_of_another_stream_is_waited_for_outside_of_the_recording(device: &CudaDevice) {
    let add = kernel(device, "add").unwrap();
    let memory = device.allocate(u64::from(WORDS) * 4).unwrap();
    device.write(memory.base(), &[0; WORDS as usize * 4]).unwrap();
    let (stream, producer) = (device.create_stream().unwrap(), device.create_stream().unwrap());
    add_to(device, &producer, &add, memory.base());
    let event = device.create_event().unwrap();
    device.record_event(&event, &producer).unwrap();

    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let inside = device.wait_event(&stream, &event).unwrap_err();
    assert!(matches!(inside.capture_failure(), Some(CaptureFailure::Isolation { .. })), "{inside}");
    drop(capture);

    device.wait_event(&stream, &event).unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    add_to(device, &stream, &add, memory.base());
    let mut exec = device.instantiate(&capture.end().unwrap()).unwrap();
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize().unwrap();
    assert_eq!(words(device, memory.base()), [2; WORDS as usize]);
}

/// chelsea0x3b/cudarc#536, tracel-ai/cubecl#1469: a graph that frees what it allocates costs the same at every launch.
pub(crate) fn r60_a_graph_that_allocates_is_refused_by_the_audit_and_leaks_nothing(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    let address = device.allocate_async(&stream, 64 << 20).unwrap();
    device.fill(&stream, address, 1, 64 << 20).unwrap();
    device.free_async(&stream, address).unwrap();
    let graph = capture.end().unwrap();
    assert!(device.audit(&graph).unwrap().refuse_memory_nodes().is_err());
    let mut exec = device.instantiate(&graph).unwrap();
    let mut launch = || {
        device.launch_exec(&mut exec, &stream).unwrap();
        device.synchronize_stream(&stream).unwrap();
    };
    launch();
    let free = device.memory_info().unwrap().free;
    (0..1000).for_each(|_| launch());
    assert_eq!(device.memory_info().unwrap().free, free);
}

/// huggingface/candle#3352: a small host buffer that was uploaded in a recording is gone before the replay.
pub(crate) fn r61_a_small_upload_is_replayed_after_its_host_memory_was_dropped(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(16).unwrap();
    let shape = device.host_buffer(16).unwrap();
    shape.write(0, &[5; 16]).unwrap();
    let capture = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap();
    device.upload(&stream, memory.base(), &shape, 0, 16).unwrap();
    let first = capture.end().unwrap();
    drop(shape);
    let others: Vec<_> = (0..64).map(|_| device.host_buffer(16).unwrap()).collect();
    for other in &others {
        other.write(0, &[9; 16]).unwrap();
    }
    let second = CaptureGuard::begin(device, &stream, CaptureMode::ThreadLocal).unwrap().end().unwrap();
    device.allocate(4096).unwrap();
    let mut exec = device.instantiate(&first).unwrap();
    drop((first, second));
    device.launch_exec(&mut exec, &stream).unwrap();
    device.synchronize().unwrap();
    let mut seen = [0; 16];
    device.read(memory.base(), &mut seen).unwrap();
    assert_eq!(seen, [5; 16]);
}
