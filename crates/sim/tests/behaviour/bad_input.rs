//! Impossible arguments: a typed error, and nothing changed.

use graphgrove_device::{
    Args, Call, Capture, CaptureMode, DeviceError, DevicePtr, GatherRow, Graphs, HostMemory, LaunchDims,
    Memory, NodeId, Problem, RawStream, ReservedRange, SegmentMemory, StreamHandle, Streams, UpdateRefusal,
    Work,
};
use graphgrove_sim::SimDevice;

use crate::rig::{BYTES, N, Rig};

fn problem<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> Problem {
    match result.unwrap_err() {
        DeviceError::Invalid { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handles_of_another_device_are_refused_by_name() {
    let (rig, other) = (Rig::new(), Rig::new());
    let foreign =
        |call| DeviceError::ForeignHandle { call, owner: other.device.id(), device: rig.device.id() };
    let event = other.device.create_event().unwrap();
    let host = other.device.host_buffer(8).unwrap();
    let graph = other.capture(|| {});
    let mut exec = other.device.instantiate(&graph).unwrap();
    let own = rig.exec(|| {});
    let device = &rig.device;
    assert_eq!(device.synchronize_stream(&other.a), Err(foreign(Call::SynchronizeStream)));
    assert_eq!(device.record_event(&event, &rig.a), Err(foreign(Call::RecordEvent)));
    assert_eq!(device.wait_event(&rig.a, &event), Err(foreign(Call::WaitEvent)));
    assert_eq!(device.query_event(&event), Err(foreign(Call::QueryEvent)));
    assert_eq!(device.fill(&other.a, rig.buffer(0), 0, 4), Err(foreign(Call::Fill)));
    assert_eq!(device.upload(&rig.a, rig.buffer(0), &host, 0, 8), Err(foreign(Call::Upload)));
    assert_eq!(device.download(&rig.a, &host, 0, rig.buffer(0), 8), Err(foreign(Call::Download)));
    assert_eq!(device.launch(&rig.a, &other.fill, LaunchDims::ONE, &Args::new()), Err(foreign(Call::Launch)));
    assert_eq!(device.begin_capture(&other.a, CaptureMode::Relaxed), Err(foreign(Call::BeginCapture)));
    assert_eq!(device.end_capture(&other.a).unwrap_err(), foreign(Call::EndCapture));
    assert_eq!(device.audit(&graph), Err(foreign(Call::Audit)));
    assert_eq!(device.instantiate(&graph).unwrap_err(), foreign(Call::Instantiate));
    assert_eq!(device.launch_exec(&mut exec, &rig.a), Err(foreign(Call::LaunchExec)));
    assert_eq!(device.patch_gather(&mut exec, NodeId::new(0), &[]), Err(foreign(Call::PatchGather)));
    assert_eq!(device.allocate_async(&other.a, 8), Err(foreign(Call::AllocateAsync)));
    let mut range = other.device.reserve(64).unwrap();
    assert_eq!(device.map(&mut range, 0, 64), Err(foreign(Call::Map)));
    drop(own);
}

#[test]
fn zero_bytes_null_and_memory_that_is_not_there_are_refused() {
    let rig = Rig::new();
    let device = &rig.device;
    assert_eq!(problem(device.allocate(0)), Problem::ZeroBytes);
    assert_eq!(problem(device.reserve(0)), Problem::ZeroBytes);
    assert_eq!(problem(device.host_buffer(0)), Problem::ZeroBytes);
    assert_eq!(problem(device.allocate_async(&rig.a, 0)), Problem::ZeroBytes);
    assert_eq!(problem(device.write(rig.buffer(0), &[])), Problem::ZeroBytes);
    assert_eq!(problem(device.read(DevicePtr::NULL, &mut [0])), Problem::NullAddress);
    assert_eq!(problem(device.fill(&rig.a, DevicePtr::NULL, 0, 1)), Problem::NullAddress);
    let past = Problem::NotAllocated { address: rig.buffer(15), bytes: BYTES + 1 };
    assert_eq!(problem(device.fill(&rig.a, rig.buffer(15), 0, BYTES + 1)), past);
    let freed = device.allocate(64).unwrap().base();
    assert_eq!(
        problem(device.copy(&rig.a, rig.buffer(0), freed, 8)),
        Problem::NotAllocated { address: freed, bytes: 8 }
    );
    assert_eq!(problem(device.adopt_segment(freed, 64)), Problem::NotAllocated { address: freed, bytes: 64 });
    assert_eq!(
        problem(device.free_async(&rig.a, rig.buffer(0))),
        Problem::NotAllocated { address: rig.buffer(0), bytes: 0 }
    );
    device.verdict().unwrap();
}

#[test]
fn more_memory_than_there_is_says_how_much_there_is() {
    let device = SimDevice::builder().memory_bytes(1000).build();
    let held = device.allocate(600).unwrap();
    let error = device.allocate(401).unwrap_err();
    assert_eq!(error, DeviceError::OutOfMemory { call: Call::Allocate, bytes: 401, free: 400, total: 1000 });
    assert!(device.allocate(400).is_ok());
    drop(held);
    assert_eq!(device.memory_info().unwrap().free, 1000);
    assert!(matches!(device.allocate(u64::MAX).unwrap_err(), DeviceError::OutOfMemory { .. }));
    assert!(matches!(device.reserve(u64::MAX).unwrap_err(), DeviceError::OutOfMemory { .. }));
}

#[test]
fn ranges_past_a_host_buffer_are_refused() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(16).unwrap();
    let out = Problem::OutOfRange { offset: 12, bytes: 5, length: 16 };
    assert_eq!(problem(host.write(12, &[0; 5])), out);
    assert_eq!(problem(host.read(12, &mut [0; 5])), out);
    assert_eq!(problem(rig.device.upload(&rig.a, rig.buffer(0), &host, 12, 5)), out);
    assert_eq!(problem(rig.device.download(&rig.a, &host, 12, rig.buffer(0), 5)), out);
    assert_eq!(host.write(16, &[]), Ok(()));
    assert!(matches!(problem(host.read(usize::MAX, &mut [0; 2])), Problem::OutOfRange { .. }));
    assert_eq!(host.write(11, &[0; 5]), Ok(()));
}

#[test]
fn pages_are_mapped_and_unmapped_as_whole_pieces() {
    let device = SimDevice::builder().granularity(4096).build();
    let mut range = device.reserve(3 * 4096 - 1).unwrap();
    assert_eq!(range.bytes(), 3 * 4096);
    let granularity = |value| Problem::Granularity { value, granularity: 4096 };
    assert_eq!(problem(device.map(&mut range, 1, 4096)), granularity(1));
    assert_eq!(problem(device.map(&mut range, 0, 4097)), granularity(4097));
    assert_eq!(problem(device.map(&mut range, 0, 0)), Problem::ZeroBytes);
    let outside = Problem::OutOfRange { offset: 2 * 4096, bytes: 2 * 4096, length: 3 * 4096 };
    assert_eq!(problem(device.map(&mut range, 2 * 4096, 2 * 4096)), outside);
    device.map(&mut range, 0, 2 * 4096).unwrap();
    let mapped = Problem::AlreadyMapped { offset: 4096, bytes: 2 * 4096 };
    assert_eq!(problem(device.map(&mut range, 4096, 2 * 4096)), mapped);
    let half = Problem::NotMapped { offset: 0, bytes: 4096 };
    assert_eq!(problem(device.unmap(&mut range, 0, 4096)), half);
    assert_eq!(
        problem(device.unmap(&mut range, 4096, 4096)),
        Problem::NotMapped { offset: 4096, bytes: 4096 }
    );
    assert_eq!(range.mapped_bytes(), 2 * 4096);
    device.map(&mut range, 2 * 4096, 4096).unwrap();
    device.unmap(&mut range, 0, 3 * 4096).unwrap();
    assert_eq!((range.mapped_bytes(), device.memory_info().unwrap().free), (0, 8 << 30));
    assert_eq!(problem(device.unmap(&mut range, 0, 4096)), half);
    device.map(&mut range, 4096, 4096).unwrap();
    drop(range);
    assert_eq!(device.memory_info().unwrap().free, 8 << 30);
}

#[test]
fn a_reserved_range_begins_on_a_multiple_of_the_granularity() {
    let device = SimDevice::new();
    let _small = device.allocate(100).unwrap();
    assert!(device.reserve(1).unwrap().base().is_aligned_to(device.granularity()));
}

#[test]
fn settings_out_of_all_bounds_are_brought_within_them() {
    let device = SimDevice::builder().granularity(u64::MAX).exec_cost(u64::MAX, u64::MAX).build();
    assert_eq!(device.granularity(), 1 << 40);
    let stream = device.create_stream().unwrap();
    device.begin_capture(&stream, CaptureMode::Relaxed).unwrap();
    let graph = device.end_capture(&stream).unwrap();
    assert!(matches!(device.instantiate(&graph).unwrap_err(), DeviceError::OutOfMemory { .. }));
    assert!(matches!(device.host_buffer(usize::MAX).unwrap_err(), DeviceError::OutOfMemory { .. }));
    assert_eq!(SimDevice::builder().granularity(1000).build().granularity(), 1024);
}

#[test]
fn mapping_more_than_there_is_maps_nothing() {
    let device = SimDevice::builder().granularity(4096).memory_bytes(4096).build();
    let mut range = device.reserve(8192).unwrap();
    assert!(matches!(device.map(&mut range, 0, 8192).unwrap_err(), DeviceError::OutOfMemory { .. }));
    assert_eq!(range.mapped_bytes(), 0);
    assert_eq!(device.map(&mut range, 4096, 4096), Ok(()));
}

#[test]
fn launches_out_of_any_limit_are_refused() {
    let rig = Rig::new();
    let args = Args::new().write(rig.buffer(0)).scalar(N).scalar(0_u32);
    let refused = |grid, block| {
        let dims = LaunchDims { grid, block, shared_bytes: 0 };
        problem(rig.device.launch(&rig.a, &rig.fill, dims, &args)) == Problem::Dimensions { grid, block }
    };
    assert!(refused([0, 1, 1], [1, 1, 1]) && refused([1, 1, 1], [1, 0, 1]));
    assert!(refused([1, 65536, 1], [1, 1, 1]) && refused([1, 1, 1], [1, 1, 65]));
    assert!(refused([1, 1, 1], [1025, 1, 1]) && refused([1, 1, 1], [32, 33, 1]));
    let most = LaunchDims { grid: [0x7FFF_FFFF, 65535, 65535], block: [1024, 1, 1], shared_bytes: 0 };
    assert_eq!(rig.device.launch(&rig.a, &rig.fill, most, &args), Ok(None));
    let few = problem(rig.device.launch(&rig.a, &rig.fill, LaunchDims::ONE, &Args::new()));
    assert_eq!(few, Problem::ArgumentCount { expected: 3, given: 0 });
}

#[test]
fn a_gather_needs_as_many_sources_as_rows_and_not_too_many() {
    let rig = Rig::new();
    let row = GatherRow { to: rig.buffer(0), bytes: 4 };
    let gather = |rows: usize, sources: usize| {
        rig.device.gather(&rig.a, &vec![row; rows], &vec![rig.buffer(1); sources])
    };
    assert_eq!(problem(gather(1, 2)), Problem::RowCount { rows: 1, sources: 2 });
    assert_eq!(problem(gather(0, 0)), Problem::RowCount { rows: 0, sources: 0 });
    let most = rig.device.gather_rows();
    assert_eq!(problem(gather(most + 1, most + 1)), Problem::RowCount { rows: most + 1, sources: most + 1 });
    let rows = [GatherRow { to: rig.buffer(0), bytes: 0 }];
    assert_eq!(rig.device.gather(&rig.a, &rows, &[DevicePtr::NULL]), Ok(None));
    let rows = [GatherRow { to: DevicePtr::NULL, bytes: 4 }];
    assert_eq!(problem(rig.device.gather(&rig.a, &rows, &[rig.buffer(1)])), Problem::NullAddress);
}

#[test]
fn a_stream_whose_owner_is_gone_is_unknown() {
    let rig = Rig::new();
    let owner = rig.device.create_stream().unwrap();
    let adopted = rig.device.adopt_stream(owner.raw()).unwrap();
    assert_eq!(adopted.id(), owner.id());
    rig.store(&adopted, rig.buffer(0), 1);
    drop(owner);
    assert_eq!(problem(rig.device.fill(&adopted, rig.buffer(0), 0, 4)), Problem::UnknownHandle);
    assert_eq!(problem(rig.device.adopt_stream(RawStream::new(u64::MAX))), Problem::UnknownHandle);
    assert_eq!(problem(rig.device.adopt_stream(adopted.raw())), Problem::UnknownHandle);
    assert_eq!(rig.value(rig.buffer(0)), 1);
}

#[test]
fn dropping_an_adopted_handle_leaves_what_it_named() {
    let rig = Rig::new();
    let stream = rig.device.create_stream().unwrap();
    drop(rig.device.adopt_stream(stream.raw()).unwrap());
    rig.store(&stream, rig.buffer(0), 1);
    let before = rig.device.live_segments();
    drop(rig.device.adopt_segment(rig.buffer(0), BYTES).unwrap());
    assert_eq!((rig.value(rig.buffer(0)), rig.device.live_segments()), (1, before));
}

#[test]
fn a_patch_of_the_wrong_node_changes_nothing() {
    let rig = Rig::new();
    let args = Args::new().write(rig.buffer(0)).scalar(N).scalar(7_u32);
    let mut exec = rig.exec(|| {
        rig.device.launch(&rig.a, &rig.fill, LaunchDims::ONE, &args).unwrap();
        rig.device.copy(&rig.a, rig.buffer(1), rig.buffer(0), BYTES).unwrap();
        let row = GatherRow { to: rig.buffer(2), bytes: BYTES };
        rig.device.gather(&rig.a, &[row], &[rig.buffer(1)]).unwrap();
    });
    let (kernel, copy, gather, none) = (NodeId::new(0), NodeId::new(1), NodeId::new(2), NodeId::new(3));
    let device = &rig.device;
    for node in [copy, gather, none] {
        assert_eq!(problem(device.patch_kernel(&mut exec, node, &args)), Problem::NoSuchNode { node });
    }
    for node in [kernel, gather, none] {
        assert_eq!(
            problem(device.patch_copy(&mut exec, node, rig.buffer(3), rig.buffer(4))),
            Problem::NoSuchNode { node }
        );
    }
    for node in [kernel, copy, none] {
        assert_eq!(
            problem(device.patch_gather(&mut exec, node, &[rig.buffer(3)])),
            Problem::NoSuchNode { node }
        );
    }
    assert_eq!(problem(device.patch_kernel(&mut exec, kernel, &Args::new())), Problem::ArgumentLayout);
    assert_eq!(
        problem(device.patch_copy(&mut exec, copy, DevicePtr::NULL, rig.buffer(4))),
        Problem::NullAddress
    );
    assert_eq!(
        problem(device.patch_copy(&mut exec, copy, rig.buffer(4), DevicePtr::NULL)),
        Problem::NullAddress
    );
    assert_eq!(
        problem(device.patch_gather(&mut exec, gather, &[])),
        Problem::RowCount { rows: 1, sources: 0 }
    );
    assert_eq!(problem(device.patch_gather(&mut exec, gather, &[DevicePtr::NULL])), Problem::NullAddress);
    rig.launch(&mut exec, &rig.a);
    assert_eq!((rig.value(rig.buffer(2)), rig.findings()), (7, vec![]));
}

#[test]
fn an_update_that_is_refused_leaves_the_exec_as_it_was() {
    let rig = Rig::new();
    let mut exec = rig.exec(|| rig.store(&rig.a, rig.buffer(0), 5));
    let two = rig.capture(|| {
        rig.store(&rig.a, rig.buffer(0), 6);
        rig.store(&rig.a, rig.buffer(1), 6);
    });
    let fill = rig.capture(|| {
        rig.device.fill(&rig.a, rig.buffer(0), 0, 4).unwrap();
    });
    let refused = |refusal| Err(DeviceError::UpdateRefused { refusal });
    assert_eq!(rig.device.update(&mut exec, &two), refused(UpdateRefusal::Topology));
    assert_eq!(rig.device.update(&mut exec, &fill), refused(UpdateRefusal::Kind { node: NodeId::new(0) }));
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.value(rig.buffer(0)), 5);
    let other_kernel = rig.capture(|| rig.add(&rig.a, rig.buffer(0), 3));
    assert_eq!(rig.device.update(&mut exec, &other_kernel), Ok(()));
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.value(rig.buffer(0)), 8);
}

#[test]
fn an_update_cannot_turn_a_copy_round() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(64).unwrap();
    let mut exec = rig.exec(|| {
        rig.device.copy(&rig.a, rig.buffer(0), rig.buffer(1), 64).unwrap();
    });
    let upload = rig.capture(|| {
        rig.device.upload(&rig.a, rig.buffer(0), &host, 0, 64).unwrap();
    });
    let refusal = UpdateRefusal::Parameters { node: NodeId::new(0) };
    assert_eq!(rig.device.update(&mut exec, &upload), Err(DeviceError::UpdateRefused { refusal }));
}
