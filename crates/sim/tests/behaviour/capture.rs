//! The rules of capture, where the contract's own checks do not reach: which captures a refusal costs, and what goes on beside
//! one.

use graphgrove_device::{
    Annotation, Call, Capture, CaptureFailure, CaptureGuard, CaptureMode, CaptureStatus, DeviceError, Graphs,
    Memory, ModeGuard, Problem, Progress, StreamHandle, Streams, Work,
};

use crate::rig::{BYTES, Rig};

fn failure<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> CaptureFailure {
    result.unwrap_err().capture_failure().cloned().unwrap()
}

/// Runs a call on a second thread that has swapped its own capture mode.
fn elsewhere<T: Send>(rig: &Rig, mode: CaptureMode, call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let device = &rig.device;
        let run = move || {
            let _mode = ModeGuard::swap(device, mode).unwrap();
            call()
        };
        scope.spawn(run).join().unwrap()
    })
}

fn is_valid(rig: &Rig) -> bool {
    matches!(rig.device.capture_status(&rig.a).unwrap(), CaptureStatus::Active(_))
}

#[test]
fn who_may_allocate_while_a_capture_is_open() {
    use CaptureMode::{Global, Relaxed, ThreadLocal};
    // (capture's mode, mode of the thread that allocates, on the capture's own thread, on another thread)
    let cases = [
        (Global, Global, false, false),
        (Global, ThreadLocal, false, true),
        (Global, Relaxed, true, true),
        (ThreadLocal, Global, false, true),
        (ThreadLocal, ThreadLocal, false, true),
        (ThreadLocal, Relaxed, true, true),
        (Relaxed, Global, true, true),
        (Relaxed, ThreadLocal, true, true),
        (Relaxed, Relaxed, true, true),
    ];
    for (capture, thread, own, other) in cases {
        let rig = Rig::new();
        let guard = CaptureGuard::begin(&rig.device, &rig.a, capture).unwrap();
        let allowed = elsewhere(&rig, thread, || rig.device.allocate(64).is_ok());
        assert_eq!((allowed, is_valid(&rig)), (other, other), "{capture:?} capture, other thread {thread:?}");
        drop(guard);

        let guard = CaptureGuard::begin(&rig.device, &rig.a, capture).unwrap();
        let mode = ModeGuard::swap(&rig.device, thread).unwrap();
        let allowed = rig.device.allocate(64).is_ok();
        assert_eq!((allowed, is_valid(&rig)), (own, own), "{capture:?} capture, own thread {thread:?}");
        drop((mode, guard));
    }
}

#[test]
fn every_call_that_might_wait_is_refused_under_a_thread_local_capture() {
    type Attempt = (&'static str, fn(&Rig) -> Result<(), DeviceError>);
    let attempts: [Attempt; 7] = [
        ("allocate", |rig| rig.device.allocate(64).map(drop)),
        ("host buffer", |rig| rig.device.host_buffer(64).map(drop)),
        ("allocate async", |rig| rig.device.allocate_async(&rig.b, 64).map(drop)),
        ("query other stream", |rig| rig.device.query_stream(&rig.b).map(drop)),
        ("synchronize other stream", |rig| rig.device.synchronize_stream(&rig.b)),
        ("query null stream", |rig| rig.device.query_stream(&rig.device.null_stream()).map(drop)),
        ("query fresh event", |rig| rig.device.query_event(&rig.device.create_event()?).map(drop)),
    ];
    for (name, attempt) in attempts {
        let rig = Rig::new();
        let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
        assert_eq!(failure(attempt(&rig)), CaptureFailure::Unsupported, "{name}");
        assert!(!is_valid(&rig), "{name}");
        assert_eq!(failure(guard.end()), CaptureFailure::Invalidated, "{name}");
        assert_eq!(attempt(&rig), Ok(()), "{name}, after the capture");
    }
}

#[test]
fn what_cannot_wait_is_allowed_beside_a_global_capture() {
    let rig = Rig::new();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Global).unwrap();
    let event = rig.device.create_event().unwrap();
    rig.store(&rig.b, rig.buffer(0), 1);
    rig.device.record_event(&event, &rig.b).unwrap();
    rig.device.wait_event(&rig.b, &event).unwrap();
    rig.device.create_stream().unwrap();
    rig.device.memory_info().unwrap();
    let mut range = rig.device.reserve(2 << 20).unwrap();
    rig.device.map(&mut range, 0, 2 << 20).unwrap();
    rig.device.unmap(&mut range, 0, 2 << 20).unwrap();
    rig.device.write(rig.buffer(3), &[1; 4]).unwrap();
    rig.device.read(rig.buffer(3), &mut [0; 4]).unwrap();
    drop((range, event));
    assert!(is_valid(&rig));
    assert!(guard.end().is_ok());
}

#[test]
fn one_refused_call_costs_every_capture_that_forbids_it_and_no_other() {
    let rig = Rig::new();
    let relaxed = rig.device.create_stream().unwrap();
    let first = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
    let second = CaptureGuard::begin(&rig.device, &rig.b, CaptureMode::ThreadLocal).unwrap();
    let third = CaptureGuard::begin(&rig.device, &relaxed, CaptureMode::Relaxed).unwrap();
    assert!(rig.device.allocate(64).is_err());
    assert_eq!(failure(first.end()), CaptureFailure::Invalidated);
    assert_eq!(failure(second.end()), CaptureFailure::Invalidated);
    assert!(third.end().is_ok());
}

#[test]
fn waiting_for_the_device_costs_a_relaxed_capture_too() {
    let rig = Rig::new();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Relaxed).unwrap();
    assert_eq!(failure(rig.device.synchronize()), CaptureFailure::Unsupported);
    assert_eq!(failure(guard.end()), CaptureFailure::Invalidated);
}

#[test]
fn waiting_for_a_capturing_stream_is_refused_even_under_a_relaxed_swap() {
    let rig = Rig::new();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Relaxed).unwrap();
    let _mode = ModeGuard::swap(&rig.device, CaptureMode::Relaxed).unwrap();
    assert_eq!(failure(rig.device.query_stream(&rig.a)), CaptureFailure::Unsupported);
    drop(guard);
    assert_eq!(rig.device.query_stream(&rig.a), Ok(Progress::Done));
}

#[test]
fn an_exec_is_launched_and_uploaded_beside_a_capture_but_not_into_it() {
    let rig = Rig::new();
    let mut exec = rig.exec(|| rig.store(&rig.a, rig.buffer(0), 1));
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Global).unwrap();
    rig.device.upload_exec(&mut exec, &rig.b).unwrap();
    rig.device.launch_exec(&mut exec, &rig.b).unwrap();
    assert!(is_valid(&rig));
    assert_eq!(failure(rig.device.launch_exec(&mut exec, &rig.a)), CaptureFailure::Unsupported);
    assert!(!is_valid(&rig));
    drop(guard);
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Relaxed).unwrap();
    assert_eq!(failure(rig.device.upload_exec(&mut exec, &rig.a)), CaptureFailure::Unsupported);
    assert!(!is_valid(&rig));
    drop(guard);
}

#[test]
fn instantiating_is_unsafe_and_updating_is_not() {
    let rig = Rig::new();
    let graph = rig.capture(|| rig.store(&rig.a, rig.buffer(0), 1));
    let mut exec = rig.device.instantiate(&graph).unwrap();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
    assert_eq!(rig.device.update(&mut exec, &graph), Ok(()));
    assert!(is_valid(&rig));
    assert_eq!(failure(rig.device.instantiate(&graph)), CaptureFailure::Unsupported);
    drop(guard);
    assert!(rig.device.instantiate(&graph).is_ok());
}

#[test]
fn the_null_stream_is_refused_while_a_blocking_stream_captures() {
    type Attempt = (&'static str, fn(&Rig) -> Result<(), DeviceError>);
    let attempts: [Attempt; 8] = [
        ("fill", |rig| rig.device.fill(&rig.device.null_stream(), rig.buffer(0), 0, 4).map(drop)),
        ("record", |rig| rig.device.record_event(&rig.device.create_event()?, &rig.device.null_stream())),
        ("wait", |rig| rig.device.wait_event(&rig.device.null_stream(), &rig.device.create_event()?)),
        ("query", |rig| rig.device.query_stream(&rig.device.null_stream()).map(drop)),
        ("write", |rig| rig.device.write(rig.buffer(0), &[0; 4])),
        ("read", |rig| rig.device.read(rig.buffer(0), &mut [0; 4])),
        ("allocate async", |rig| rig.device.allocate_async(&rig.device.null_stream(), 64).map(drop)),
        ("launch exec", |rig| {
            let mode = ModeGuard::swap(&rig.device, CaptureMode::Relaxed)?;
            let mut exec = rig.device.instantiate(&rig.capture(|| {}))?;
            drop(mode);
            rig.device.launch_exec(&mut exec, &rig.device.null_stream())
        }),
    ];
    for (name, attempt) in attempts {
        let rig = Rig::new();
        let blocking = rig.device.create_blocking_stream().unwrap();
        let guard = CaptureGuard::begin(&rig.device, &blocking, CaptureMode::Relaxed).unwrap();
        assert_eq!(failure(attempt(&rig)), CaptureFailure::Implicit, "{name}");
        assert_eq!(failure(guard.end()), CaptureFailure::Invalidated, "{name}");
        let guard = CaptureGuard::begin(&rig.device, &rig.b, CaptureMode::Relaxed).unwrap();
        assert_eq!(attempt(&rig), Ok(()), "{name}, beside a stream that does not block");
        assert!(guard.end().is_ok(), "{name}");
    }
}

#[test]
fn asking_for_the_null_streams_status_leaves_the_capture_as_it_is() {
    let rig = Rig::new();
    let blocking = rig.device.create_blocking_stream().unwrap();
    assert_eq!(rig.device.capture_status(&rig.device.null_stream()), Ok(CaptureStatus::None));
    let guard = CaptureGuard::begin(&rig.device, &blocking, CaptureMode::Relaxed).unwrap();
    assert_eq!(failure(rig.device.capture_status(&rig.device.null_stream())), CaptureFailure::Implicit);
    assert!(guard.end().is_ok());
}

#[test]
fn an_event_of_an_open_capture_cannot_be_asked_and_costs_the_capture() {
    let rig = Rig::new();
    let event = rig.device.create_event().unwrap();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Relaxed).unwrap();
    rig.device.record_event(&event, &rig.a).unwrap();
    assert!(matches!(failure(rig.device.query_event(&event)), CaptureFailure::CapturedEvent { .. }));
    assert!(!is_valid(&rig));
    let over = |result: Result<(), DeviceError>| {
        matches!(result, Err(DeviceError::Invalid { problem: Problem::CaptureOver { .. }, .. }))
    };
    assert!(over(rig.device.synchronize_event(&event)));
    drop(guard);
    assert!(over(rig.device.query_event(&event).map(drop)));
    assert!(over(rig.device.wait_event(&rig.b, &event)));
    rig.device.record_event(&event, &rig.a).unwrap();
    assert_eq!(rig.device.synchronize_event(&event), Ok(()));
}

#[test]
fn waiting_for_an_event_of_a_finished_capture_costs_the_capture_that_waits() {
    let rig = Rig::new();
    let event = rig.device.create_event().unwrap();
    drop(rig.capture(|| rig.device.record_event(&event, &rig.a).unwrap()));
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Relaxed).unwrap();
    assert!(rig.device.wait_event(&rig.a, &event).is_err());
    assert_eq!(failure(guard.end()), CaptureFailure::Invalidated);
}

#[test]
fn the_null_stream_cannot_wait_for_captured_work() {
    let rig = Rig::new();
    let event = rig.device.create_event().unwrap();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Relaxed).unwrap();
    rig.device.record_event(&event, &rig.a).unwrap();
    assert_eq!(failure(rig.device.wait_event(&rig.device.null_stream(), &event)), CaptureFailure::Implicit);
    assert_eq!(failure(guard.end()), CaptureFailure::Invalidated);
}

#[test]
fn a_fork_with_work_has_to_be_joined_and_one_without_need_not() {
    let forked = |work: bool, join: bool, work_after: bool| {
        let rig = Rig::new();
        let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.order(&rig.a, &rig.b);
        if work {
            rig.store(&rig.b, rig.buffer(1), 1);
        }
        if join {
            rig.order(&rig.b, &rig.a);
        }
        if work_after {
            rig.store(&rig.b, rig.buffer(2), 1);
        }
        let result = guard.end().map(drop).map_err(|error| error.capture_failure().cloned());
        assert!(!rig.is_capturing(&rig.a) && !rig.is_capturing(&rig.b));
        result
    };
    assert_eq!(forked(false, false, false), Ok(()));
    assert_eq!(forked(true, true, false), Ok(()));
    assert_eq!(forked(true, false, false), Err(Some(CaptureFailure::Unjoined)));
    assert_eq!(forked(true, true, true), Err(Some(CaptureFailure::Unjoined)));
}

#[test]
fn a_forked_stream_that_is_dropped_is_still_unjoined() {
    let rig = Rig::new();
    let fork = rig.device.create_stream().unwrap();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
    rig.order(&rig.a, &fork);
    rig.store(&fork, rig.buffer(0), 1);
    drop(fork);
    assert_eq!(failure(guard.end()), CaptureFailure::Unjoined);
}

#[test]
fn an_annotation_on_a_fork_is_no_work() {
    let rig = Rig::new();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
    rig.order(&rig.a, &rig.b);
    rig.store(&rig.b, rig.buffer(0), 1);
    rig.order(&rig.b, &rig.a);
    rig.device.annotate(&rig.b, Annotation::Released { at: rig.buffer(0), bytes: BYTES }).unwrap();
    let graph = guard.end().unwrap();
    assert_eq!(rig.device.audit(&graph).unwrap().nodes, 1);
}

#[test]
fn bad_dimensions_cost_the_capture_and_other_bad_arguments_do_not() {
    use graphgrove_device::{Args, DevicePtr, LaunchDims};
    let rig = Rig::new();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
    assert!(rig.device.copy(&rig.a, rig.buffer(0), DevicePtr::NULL, 4).is_err());
    assert!(rig.device.copy(&rig.a, rig.buffer(0), rig.buffer(1), 0).is_err());
    assert!(rig.device.fill(&rig.a, rig.buffer(15), 0, BYTES + 1).is_err());
    assert!(is_valid(&rig));
    let dims = LaunchDims { grid: [0, 1, 1], ..LaunchDims::ONE };
    let error = rig.device.launch(&rig.a, &rig.fill, dims, &Args::new()).unwrap_err();
    assert!(matches!(error, DeviceError::Invalid { problem: Problem::Dimensions { .. }, .. }));
    assert!(!is_valid(&rig));
    drop(guard);
}

#[test]
fn a_capture_is_over_when_its_stream_is_gone() {
    let rig = Rig::new();
    let stream = rig.device.create_stream().unwrap();
    rig.device.begin_capture(&stream, CaptureMode::Global).unwrap();
    drop(stream);
    assert!(rig.device.allocate(64).is_ok());
    assert_eq!(rig.device.counts().of(Call::DestroyStream), 1);
}

#[test]
fn ending_on_the_wrong_thread_loses_a_capture_that_is_not_relaxed() {
    let rig = Rig::new();
    for (mode, survives) in
        [(CaptureMode::Global, false), (CaptureMode::ThreadLocal, false), (CaptureMode::Relaxed, true)]
    {
        rig.device.begin_capture(&rig.a, mode).unwrap();
        let ended = elsewhere(&rig, CaptureMode::Global, || rig.device.end_capture(&rig.a).map(drop));
        assert_eq!(ended.is_ok(), survives, "{mode:?}");
        if !survives {
            assert_eq!(failure(ended), CaptureFailure::WrongThread);
        }
        assert!(!rig.is_capturing(&rig.a), "{mode:?}");
        assert_eq!(rig.device.allocate(64).map(drop), Ok(()));
    }
}

#[test]
fn nothing_that_is_dropped_while_a_capture_is_open_reaches_the_driver() {
    let rig = Rig::new();
    let segment = rig.device.allocate(64).unwrap();
    let host = rig.device.host_buffer(64).unwrap();
    let exec = rig.exec(|| {});
    let graph = rig.capture(|| {});
    let (stream, event) = (rig.device.create_stream().unwrap(), rig.device.create_event().unwrap());
    let range = rig.device.reserve(64).unwrap();
    let live = rig.device.live_segments();
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Global).unwrap();
    let before = rig.device.counts();
    drop((segment, host, exec, graph, stream, event, range));
    assert_eq!(rig.device.counts().since(&before).total(), 0);
    assert_eq!(rig.device.live_segments(), live);
    let captured = guard.end().unwrap();
    let made = rig.device.counts().since(&before);
    let destroyed = [
        Call::Free,
        Call::FreeHost,
        Call::DestroyExec,
        Call::DestroyGraph,
        Call::DestroyStream,
        Call::DestroyEvent,
        Call::Unreserve,
    ];
    for call in destroyed {
        assert_eq!(made.of(call), 1, "{call}");
    }
    assert_eq!(rig.device.live_segments(), live - 1);
    assert_eq!(rig.device.audit(&captured).unwrap().nodes, 0);
}

#[test]
fn memory_nodes_can_have_one_exec_and_are_freed_in_stream_order() {
    let rig = Rig::new();
    let mut address = None;
    let graph = rig.capture(|| {
        rig.store(&rig.a, rig.buffer(0), 3);
        address = Some(rig.device.allocate_async(&rig.a, BYTES).unwrap());
        rig.copy(&rig.a, rig.buffer(0), address.unwrap());
    });
    let address = address.unwrap();
    let error = rig.device.audit(&graph).unwrap().refuse_memory_nodes().unwrap_err();
    assert_eq!(error.to_string(), "the graph allocates: 1 memory nodes, the first is node 1, after fill");
    let mut exec = rig.device.instantiate(&graph).unwrap();
    assert_eq!(
        rig.device.instantiate(&graph).unwrap_err(),
        DeviceError::Unsupported { call: Call::Instantiate }
    );
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.device.launch_exec(&mut exec, &rig.a), Err(DeviceError::LiveAllocation { address }));
    assert_eq!((rig.value(address), rig.findings()), (3, vec![]));
    rig.device.free_async(&rig.a, address).unwrap();
    assert!(rig.device.free_async(&rig.a, address).is_err());
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.value(address), 3);
    assert!(rig.device.update(&mut exec, &graph).is_err());
    drop(exec);
    assert!(rig.device.instantiate(&graph).is_ok());
}

#[test]
fn only_what_the_same_capture_allocated_can_be_freed_in_it_and_once() {
    let rig = Rig::new();
    let outside = rig.device.allocate_async(&rig.a, 64).unwrap();
    let graph = rig.capture(|| {
        let inside = rig.device.allocate_async(&rig.a, 64).unwrap();
        assert!(rig.device.free_async(&rig.a, outside).is_err());
        assert_eq!(rig.device.free_async(&rig.a, inside), Ok(()));
        assert!(rig.device.free_async(&rig.a, inside).is_err());
    });
    let mut exec = rig.device.instantiate(&graph).unwrap();
    rig.launch(&mut exec, &rig.a);
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.findings(), []);
}

#[test]
fn the_addresses_of_a_graphs_memory_come_back_when_nothing_has_them() {
    let rig = Rig::new();
    let allocate = |keep: bool| {
        let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
        let address = rig.device.allocate_async(&rig.a, BYTES).unwrap();
        rig.store(&rig.a, address, 1);
        rig.device.free_async(&rig.a, address).unwrap();
        (address, keep.then(|| rig.device.instantiate(&guard.end().unwrap()).unwrap()))
    };
    let (first, aborted) = allocate(false);
    assert!(aborted.is_none());
    assert!(rig.device.fill(&rig.a, first, 0, 4).is_err());
    let (second, exec) = allocate(true);
    assert_eq!(second, first);
    let (third, _) = allocate(false);
    assert_ne!(third, first);
    drop(exec);
    assert_eq!(allocate(false).0, first);
}

#[test]
fn memory_that_a_graph_left_allocated_outlives_it_and_is_freed_in_stream_order() {
    let rig = Rig::new();
    let free = rig.device.memory_info().unwrap().free;
    let mut address = None;
    let graph = rig.capture(|| {
        address = Some(rig.device.allocate_async(&rig.a, BYTES).unwrap());
        rig.store(&rig.a, address.unwrap(), 3);
    });
    let address = address.unwrap();
    let mut exec = rig.device.instantiate(&graph).unwrap();
    rig.launch(&mut exec, &rig.a);
    rig.device.synchronize().unwrap();
    drop((exec, graph));
    assert_eq!(rig.value(address), 3);
    rig.device.free_async(&rig.a, address).unwrap();
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.memory_info().unwrap().free, free);
    assert!(rig.device.free_async(&rig.a, address).is_err());
}

#[test]
fn an_address_freed_in_stream_order_serves_any_other_memory() {
    let rig = Rig::new();
    let address = rig.device.allocate_async(&rig.a, 128).unwrap();
    rig.device.free_async(&rig.a, address).unwrap();
    rig.device.synchronize().unwrap();
    let segment = rig.device.allocate(128).unwrap();
    assert_eq!(graphgrove_device::SegmentMemory::base(&segment), address);
    assert_eq!(rig.device.write(address, &[1]), Ok(()));
    drop(segment);
    let graph = rig.capture(|| {
        let inside = rig.device.allocate_async(&rig.a, 128).unwrap();
        assert_eq!(inside, address);
        rig.device.fill(&rig.a, inside, 0, 4).unwrap();
    });
    assert_eq!(rig.device.audit(&graph).unwrap().nodes, 2);
}

#[test]
fn memory_freed_in_stream_order_comes_back_before_the_device_runs_out() {
    for null_launch in [false, true] {
        let rig =
            Rig::with(graphgrove_sim::SimDevice::builder().memory_bytes(1 << 16).null_launch(null_launch));
        for _ in 0..200 {
            let address = rig.device.allocate_async(&rig.a, 1024).unwrap();
            rig.device.free_async(&rig.a, address).unwrap();
        }
        rig.device.synchronize().unwrap();
        assert_eq!(rig.device.memory_info().unwrap().free, (1 << 16) - 16 * BYTES);
    }
}

#[test]
fn a_stale_use_of_a_graphs_allocation_is_found() {
    let rig = Rig::new();
    let mut address = None;
    let graph = rig.capture(|| {
        let at = rig.device.allocate_async(&rig.a, BYTES).unwrap();
        rig.store(&rig.a, at, 1);
        rig.device.free_async(&rig.a, at).unwrap();
        address = Some(at);
    });
    let mut exec = rig.device.instantiate(&graph).unwrap();
    rig.launch(&mut exec, &rig.a);
    rig.copy(&rig.a, address.unwrap(), rig.buffer(0));
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
    assert!(rig.a.raw().get() > 0);
}
