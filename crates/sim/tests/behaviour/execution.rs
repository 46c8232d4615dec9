//! Work really runs, and views of memory do what they say.

use graphgrove_device::{
    Args, Call, Capture, DeviceError, GatherRow, Graphs, HostMemory, LaunchDims, Memory, Problem,
    SegmentMemory, Streams, Work,
};
use graphgrove_sim::{KernelFault, SimDevice, kernels};

use crate::rig::{BYTES, N, Rig};

fn floats(device: &SimDevice, at: graphgrove_device::DevicePtr, n: usize) -> Vec<f32> {
    let mut bytes = vec![0; n * 4];
    device.read(at, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn store(device: &SimDevice, at: graphgrove_device::DevicePtr, values: &[f32]) {
    device.write(at, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()).unwrap();
}

#[test]
fn matrix_products_and_row_sums_are_computed() {
    let device = SimDevice::new();
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4096).unwrap();
    let at = |offset| memory.base().checked_add(offset).unwrap();
    store(&device, at(0), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    store(&device, at(256), &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let args = Args::new().read(at(0)).read(at(256)).write(at(512)).scalar(2_u32).scalar(2_u32).scalar(3_u32);
    device.launch(&stream, &kernels::matmul(&device), LaunchDims::ONE, &args).unwrap();
    let args = Args::new().read(at(512)).write(at(768)).scalar(2_u32).scalar(2_u32);
    device.launch(&stream, &kernels::sum_rows(&device), LaunchDims::ONE, &args).unwrap();
    device.synchronize_stream(&stream).unwrap();
    assert_eq!(floats(&device, at(512), 4), [4.0, 5.0, 10.0, 11.0]);
    assert_eq!(floats(&device, at(768), 2), [9.0, 21.0]);
    device.verdict().unwrap();
}

#[test]
fn elementwise_kernels_map_zip_and_scale() {
    let device = SimDevice::new();
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4096).unwrap();
    let at = |offset| memory.base().checked_add(offset).unwrap();
    store(&device, at(0), &[1.0, -2.0]);
    store(&device, at(256), &[10.0, 20.0]);
    let relu = kernels::map(&device, "relu", |x: f32| x.max(0.0));
    device
        .launch(&stream, &relu, LaunchDims::ONE, &Args::new().read(at(0)).write(at(512)).scalar(2_u32))
        .unwrap();
    let sub = kernels::zip(&device, "sub", |a: f32, b: f32| a - b);
    let args = Args::new().read(at(0)).read(at(256)).write(at(768)).scalar(2_u32);
    device.launch(&stream, &sub, LaunchDims::ONE, &args).unwrap();
    let args = Args::new().read(at(0)).read_write(at(256)).scalar(2_u32).scalar(0.5_f32);
    device.launch(&stream, &kernels::axpy(&device), LaunchDims::ONE, &args).unwrap();
    device.synchronize_stream(&stream).unwrap();
    assert_eq!(floats(&device, at(512), 2), [1.0, 0.0]);
    assert_eq!(floats(&device, at(768), 2), [-9.0, -22.0]);
    assert_eq!(floats(&device, at(256), 2), [10.5, 19.0]);
}

#[test]
fn a_kernel_sees_its_dimensions_and_offsets_into_its_arguments() {
    let rig = Rig::new();
    let tail = rig.device.kernel("tail", |scope| {
        let threads = scope.dims().threads() as u32;
        scope.write_at::<u32>(0, 4, 2)?.copy_from(&[threads, scope.read_at::<u32>(1, 3, 1)?.get(0)]);
        Ok(())
    });
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.store(&rig.a, rig.buffer(1), 9);
    let args = Args::new().write(rig.buffer(0)).read(rig.buffer(1));
    rig.device.launch(&rig.a, &tail, LaunchDims::for_elements(300), &args).unwrap();
    rig.device.synchronize().unwrap();
    let mut bytes = [0; 28];
    rig.device.read(rig.buffer(0), &mut bytes).unwrap();
    let words: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(words, [1, 1, 1, 1, 512, 9, 1]);
    assert_eq!(rig.findings(), []);
}

#[test]
fn copies_fills_uploads_and_downloads_move_bytes() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(64).unwrap();
    host.write(8, &[1, 2, 3, 4]).unwrap();
    rig.device.fill(&rig.a, rig.buffer(0), 7, BYTES).unwrap();
    rig.device.upload(&rig.a, rig.buffer(0), &host, 8, 4).unwrap();
    rig.device.copy(&rig.a, rig.buffer(1), rig.buffer(0), 6).unwrap();
    rig.device.download(&rig.a, &host, 32, rig.buffer(1), 6).unwrap();
    rig.device.synchronize().unwrap();
    let mut seen = [0; 8];
    host.read(31, &mut seen).unwrap();
    assert_eq!(seen, [0, 1, 2, 3, 4, 7, 7, 0]);
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_gather_outside_of_a_capture_copies_every_row() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 5);
    rig.store(&rig.a, rig.buffer(1), 6);
    let rows = [
        GatherRow { to: rig.buffer(2), bytes: BYTES },
        GatherRow { to: rig.buffer(4), bytes: 0 },
        GatherRow { to: rig.buffer(3), bytes: BYTES },
    ];
    let sources = [rig.buffer(0), rig.buffer(1), rig.buffer(1)];
    assert_eq!(rig.device.gather(&rig.a, &rows, &sources), Ok(None));
    assert_eq!((rig.value(rig.buffer(2)), rig.value(rig.buffer(3))), (5, 6));
}

#[test]
fn a_host_function_runs_in_its_turn() {
    let rig = Rig::new();
    let (seen, sender) = {
        let (sender, seen) = std::sync::mpsc::channel();
        (seen, sender)
    };
    let host = rig.device.host_buffer(4).unwrap();
    rig.store(&rig.a, rig.buffer(0), 3);
    rig.device.download(&rig.a, &host, 0, rig.buffer(0), 4).unwrap();
    rig.device.host_call(&rig.a, Box::new(move || sender.send("called").unwrap())).unwrap();
    assert!(seen.try_recv().is_err());
    rig.device.synchronize().unwrap();
    assert_eq!(seen.try_recv(), Ok("called"));
}

#[test]
fn a_host_function_may_read_and_write_host_buffers_at_its_place_in_the_stream() {
    let rig = Rig::new();
    let (from, to) = (rig.device.host_buffer(4).unwrap(), rig.device.host_buffer(4).unwrap());
    let (reads, writes) = (from.clone(), to.clone());
    rig.store(&rig.a, rig.buffer(0), 20);
    rig.device.download(&rig.a, &from, 0, rig.buffer(0), 4).unwrap();
    let body = move || {
        let mut bytes = [0; 4];
        reads.read(0, &mut bytes).unwrap();
        writes.write(0, &(u32::from_le_bytes(bytes) + 1).to_le_bytes()).unwrap();
    };
    rig.device.host_call(&rig.a, Box::new(body)).unwrap();
    rig.device.upload(&rig.a, rig.buffer(1), &to, 0, 4).unwrap();
    assert_eq!((rig.value(rig.buffer(1)), rig.findings()), (21, vec![]));
}

#[test]
fn a_host_function_races_with_copies_on_other_streams() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(4).unwrap();
    let writes = host.clone();
    rig.device.host_call(&rig.a, Box::new(move || writes.write(0, &[1; 4]).unwrap())).unwrap();
    rig.device.upload(&rig.b, rig.buffer(0), &host, 0, 4).unwrap();
    assert!(matches!(rig.findings()[..], [graphgrove_sim::Finding::Race { .. }]));
}

#[test]
fn a_host_function_may_wait_for_a_thread_that_uses_the_device() {
    let rig = Rig::new();
    let device = rig.device.clone();
    let body = move || {
        let device = device.clone();
        let other = move || {
            let stream = device.create_stream().unwrap();
            device.synchronize_stream(&stream).unwrap();
            device.memory_info().unwrap()
        };
        assert!(std::thread::spawn(other).join().unwrap().free > 0);
    };
    rig.device.host_call(&rig.a, Box::new(body)).unwrap();
    rig.store(&rig.a, rig.buffer(0), 3);
    assert_eq!(rig.value(rig.buffer(0)), 3);
}

#[test]
fn a_thread_that_waits_for_a_stream_waits_for_the_host_function_that_another_thread_runs() {
    let rig = Rig::new();
    let (started, has_started) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let body = move || {
        started.send(()).unwrap();
        may_go.recv().unwrap();
    };
    rig.device.host_call(&rig.a, Box::new(body)).unwrap();
    rig.store(&rig.a, rig.buffer(0), 3);
    std::thread::scope(|scope| {
        scope.spawn(|| rig.device.synchronize_stream(&rig.a).unwrap());
        has_started.recv().unwrap();
        let waits = scope.spawn(|| rig.value(rig.buffer(0)));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waits.is_finished());
        go.send(()).unwrap();
        assert_eq!(waits.join().unwrap(), 3);
    });
}

#[test]
fn a_host_function_in_a_graph_runs_before_the_nodes_behind_it() {
    for seed in 0..8 {
        let rig = Rig::seeded(seed);
        let host = rig.device.host_buffer(4).unwrap();
        let writes = host.clone();
        let mut turn = 0_u32;
        let mut exec = rig.exec(|| {
            let body = move || {
                turn += 1;
                writes.write(0, &turn.to_le_bytes()).unwrap();
            };
            rig.device.host_call(&rig.a, Box::new(body)).unwrap();
            rig.device.upload(&rig.a, rig.buffer(0), &host, 0, 4).unwrap();
        });
        for turn in 1..4 {
            rig.launch(&mut exec, &rig.a);
            assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (turn, vec![]));
        }
    }
}

#[test]
fn a_panic_in_a_host_function_is_a_fault() {
    let rig = Rig::new();
    rig.device.host_call(&rig.a, Box::new(|| std::panic::resume_unwind(Box::new("trap")))).unwrap();
    rig.store(&rig.a, rig.buffer(0), 3);
    assert_eq!(
        rig.device.synchronize(),
        Err(DeviceError::Fault { cause: "a host function panicked".into() })
    );
}

#[test]
fn a_kernel_that_asks_the_device_is_a_fault_and_does_not_hang() {
    let rig = Rig::new();
    let (device, host) = (rig.device.clone(), rig.device.host_buffer(4).unwrap());
    let (sender, seen) = std::sync::mpsc::channel();
    let asks = rig.device.kernel("asks", move |_| {
        sender.send(host.write(0, &[1])).map_err(|_| KernelFault::new("nobody listens"))?;
        assert_eq!(device.findings(), []);
        Ok(())
    });
    rig.device.launch(&rig.a, &asks, LaunchDims::ONE, &Args::new()).unwrap();
    assert_eq!(rig.device.synchronize(), Err(DeviceError::Fault { cause: "asks panicked".into() }));
    assert_eq!(seen.recv(), Ok(Err(DeviceError::invalid(Call::Write, Problem::FromDeviceCode))));
}

#[test]
fn a_verdict_does_not_pass_a_poisoned_device() {
    let rig = Rig::new();
    let broken = rig.device.kernel("broken", |_| Err(KernelFault::new("assertion failed")));
    rig.device.launch(&rig.a, &broken, LaunchDims::ONE, &Args::new()).unwrap();
    let found = rig.device.verdict().unwrap_err();
    assert_eq!(found.to_string(), "0 findings\n  the device is poisoned: assertion failed");
}

#[test]
fn work_that_calls_the_device_is_refused_and_not_hung() {
    let rig = Rig::new();
    let device = rig.device.clone();
    let (sender, seen) = std::sync::mpsc::channel();
    rig.device
        .host_call(&rig.a, Box::new(move || sender.send(device.memory_info().unwrap_err()).unwrap()))
        .unwrap();
    rig.device.synchronize().unwrap();
    assert_eq!(seen.recv(), Ok(DeviceError::invalid(Call::MemoryInfo, Problem::FromDeviceCode)));
}

#[test]
fn handles_owned_by_a_host_function_go_when_it_does() {
    let rig = Rig::new();
    let segment = rig.device.allocate(64).unwrap();
    let before = rig.device.live_segments();
    rig.device.host_call(&rig.a, Box::new(move || assert!(segment.bytes() == 64))).unwrap();
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.live_segments(), before - 1);
}

#[test]
fn a_handle_dropped_by_running_work_is_destroyed_after_it() {
    let rig = Rig::new();
    let mut segment = Some(rig.device.allocate(64).unwrap());
    let before = rig.device.live_segments();
    rig.device.host_call(&rig.a, Box::new(move || drop(segment.take()))).unwrap();
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.live_segments(), before - 1);
}

#[test]
fn a_fault_in_a_kernel_poisons_the_device_and_destruction_still_ends() {
    let rig = Rig::new();
    let broken = rig.device.kernel("broken", |_| Err(KernelFault::new("assertion failed")));
    rig.device.launch(&rig.a, &broken, LaunchDims::ONE, &Args::new()).unwrap();
    rig.store(&rig.a, rig.buffer(0), 1);
    let fault = DeviceError::Fault { cause: "assertion failed".into() };
    assert_eq!(rig.device.synchronize(), Err(fault.clone()));
    assert_eq!(rig.device.allocate(64).unwrap_err(), fault);
    assert_eq!(rig.device.create_stream().unwrap_err(), fault);
    let segments = rig.device.live_segments();
    assert_eq!(segments, 1);
    let device = rig.device.clone();
    drop(rig);
    assert_eq!(device.live_segments(), 0);
}

#[test]
fn a_panic_in_a_kernel_is_a_fault_and_does_not_reach_the_waiting_thread() {
    let rig = Rig::new();
    let panics = rig.device.kernel("panics", |_| std::panic::resume_unwind(Box::new("trap")));
    rig.device.launch(&rig.a, &panics, LaunchDims::ONE, &Args::new()).unwrap();
    assert_eq!(rig.device.synchronize(), Err(DeviceError::Fault { cause: "panics panicked".into() }));
}

#[test]
fn an_index_past_a_view_reads_zero_and_is_a_fault() {
    let rig = Rig::new();
    let (sender, seen) = std::sync::mpsc::channel();
    let past = rig.device.kernel("past", move |scope| {
        let view = scope.write::<u32>(0, 2)?;
        sender.send(view.get(2)).map_err(|_| KernelFault::new("nobody listens"))?;
        view.set(2, 5);
        Ok(())
    });
    rig.device.launch(&rig.a, &past, LaunchDims::ONE, &Args::new().write(rig.buffer(0))).unwrap();
    let error = rig.device.synchronize().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the device is poisoned: past: element 2 of a view of 2 elements (argument 0)"
    );
    assert_eq!(seen.recv(), Ok(0));
}

#[test]
fn a_view_that_was_made_to_read_cannot_be_written() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 4);
    let sneaky = rig.device.kernel("sneaky", |scope| {
        scope.read::<u32>(0, 1)?.set(0, 9);
        Ok(())
    });
    rig.device.launch(&rig.a, &sneaky, LaunchDims::ONE, &Args::new().read(rig.buffer(0))).unwrap();
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
}

#[test]
fn replaying_a_thousand_nodes_is_one_call() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 0);
    let mut exec = rig.exec(|| (0..1000).for_each(|_| rig.add(&rig.a, rig.buffer(0), 1)));
    let before = rig.device.counts();
    rig.launch(&mut exec, &rig.a);
    let made = rig.device.counts().since(&before);
    assert_eq!((made.total(), made.of(Call::LaunchExec)), (1, 1));
    assert_eq!(rig.value(rig.buffer(0)), 1000);
}

#[test]
fn a_program_that_never_waits_still_runs() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(4).unwrap();
    let (sender, seen) = std::sync::mpsc::channel();
    rig.device.host_call(&rig.a, Box::new(move || sender.send(()).unwrap())).unwrap();
    for _ in 0..10_000 {
        rig.device.fill(&rig.a, rig.buffer(0), 1, u64::from(N)).unwrap();
    }
    assert_eq!(seen.try_recv(), Ok(()));
    assert_eq!(host.bytes(), 4);
}

#[test]
fn an_audit_of_a_mixed_graph_counts_nodes_and_edges() {
    let rig = Rig::new();
    let graph = rig.capture(|| {
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.order(&rig.a, &rig.b);
        rig.copy(&rig.b, rig.buffer(0), rig.buffer(1));
        rig.device.fill(&rig.a, rig.buffer(2), 0, 4).unwrap();
        rig.order(&rig.b, &rig.a);
        rig.add(&rig.a, rig.buffer(1), 1);
    });
    let audit = rig.device.audit(&graph).unwrap();
    assert_eq!(audit.to_string(), "4 nodes, 4 edges (kernel, fill)");
}

#[test]
fn what_an_exec_costs_comes_off_the_free_memory_and_comes_back() {
    let rig = Rig::with(SimDevice::builder().exec_cost(1000, 10));
    let graph = rig.capture(|| rig.store(&rig.a, rig.buffer(0), 1));
    let free = rig.device.memory_info().unwrap().free;
    let exec = rig.device.instantiate(&graph).unwrap();
    assert_eq!(rig.device.exec_bytes(&exec), Some(1010));
    assert_eq!(rig.device.memory_info().unwrap().free, free - 1010);
    drop(exec);
    assert_eq!(rig.device.memory_info().unwrap().free, free);
}
