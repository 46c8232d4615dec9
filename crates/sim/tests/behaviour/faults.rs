//! Failures on demand.

use graphgrove_device::{
    Call, Capture, CaptureFailure, CaptureGuard, CaptureMode, DeviceError, Graphs, HostMemory, Memory,
    ModeGuard, Streams, Work,
};
use graphgrove_sim::{Failure, Fault};

use crate::rig::Rig;

#[test]
fn the_kth_allocation_runs_out_of_memory_and_the_next_does_not() {
    let rig = Rig::new();
    rig.device.inject(Fault::at(Call::Allocate, 2, Failure::OutOfMemory));
    let free = rig.device.memory_info().unwrap().free;
    assert!(rig.device.allocate(64).is_ok());
    assert!(matches!(rig.device.allocate(64), Err(DeviceError::OutOfMemory { .. })));
    assert_eq!(rig.device.memory_info().unwrap().free, free);
    assert!(rig.device.allocate(64).is_ok());
}

#[test]
fn the_kth_launch_fails_and_does_nothing() {
    let rig = Rig::new();
    let mut exec = rig.exec(|| rig.add(&rig.a, rig.buffer(0), 1));
    rig.store(&rig.a, rig.buffer(0), 0);
    rig.device.inject(Fault::at(Call::LaunchExec, 2, Failure::Driver(719)));
    rig.launch(&mut exec, &rig.a);
    let failed = DeviceError::Driver { call: Call::LaunchExec, code: 719, name: "injected".into() };
    assert_eq!(rig.device.launch_exec(&mut exec, &rig.a), Err(failed));
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.value(rig.buffer(0)), 2);
}

#[test]
fn a_patch_can_fail_and_changes_nothing_then() {
    let rig = Rig::new();
    let mut node = None;
    let mut exec = rig.exec(|| node = rig.device.copy(&rig.a, rig.buffer(1), rig.buffer(0), 4).unwrap());
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.device.inject(Fault::at(Call::PatchCopy, 1, Failure::Driver(1)));
    assert!(rig.device.patch_copy(&mut exec, node.unwrap(), rig.buffer(2), rig.buffer(0)).is_err());
    rig.launch(&mut exec, &rig.a);
    assert_eq!((rig.value(rig.buffer(1)), rig.findings()), (1, vec![]));
}

#[test]
fn an_upload_patch_can_fail_and_changes_nothing_then() {
    let rig = Rig::new();
    let (one, two) = (rig.device.host_buffer(4).unwrap(), rig.device.host_buffer(4).unwrap());
    one.write(0, &[1, 0, 0, 0]).unwrap();
    let mut node = None;
    let mut exec = rig.exec(|| node = rig.device.upload(&rig.a, rig.buffer(0), &one, 0, 4).unwrap());
    rig.device.inject(Fault::at(Call::PatchUpload, 1, Failure::Driver(1)));
    let failed = DeviceError::Driver { call: Call::PatchUpload, code: 1, name: "injected".into() };
    let patched = rig.device.patch_upload(&mut exec, node.unwrap(), rig.buffer(1), &two, 0);
    assert_eq!(patched, Err(failed));
    rig.launch(&mut exec, &rig.a);
    assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (1, vec![]));
    assert_eq!(rig.device.counts().of(Call::PatchUpload), 1);
}

#[test]
fn the_capture_is_invalidated_at_the_kth_operation() {
    let rig = Rig::new();
    rig.device.inject(Fault::at_any(3, Failure::InvalidateCaptures));
    let guard = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
    assert!(rig.device.fill(&rig.a, rig.buffer(0), 0, 4).is_ok());
    let error = rig.device.fill(&rig.a, rig.buffer(0), 0, 4).unwrap_err();
    assert_eq!(error.capture_failure(), Some(&CaptureFailure::Invalidated));
    assert_eq!(guard.end().unwrap_err().capture_failure(), Some(&CaptureFailure::Invalidated));
    assert_eq!(rig.device.fill(&rig.a, rig.buffer(0), 0, 4), Ok(None));
}

#[test]
fn a_poisoned_device_refuses_everything_and_throws_waiting_work_away() {
    let rig = Rig::new();
    let event = rig.device.create_event().unwrap();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.device.record_event(&event, &rig.a).unwrap();
    rig.device.inject(Fault::at_any(1, Failure::Poison));
    let fault = Err(DeviceError::Fault { cause: "injected".into() });
    assert_eq!(rig.device.synchronize_event(&event), fault);
    assert_eq!(rig.device.synchronize(), fault);
    assert_eq!(rig.device.fill(&rig.a, rig.buffer(0), 0, 4).map(drop), fault);
    assert_eq!(rig.device.verdict().unwrap_err().fault.as_deref(), Some("injected"));
}

#[test]
fn audits_and_swaps_of_the_capture_mode_can_fail_and_aborts_cannot() {
    let rig = Rig::new();
    let graph = rig.capture(|| {});
    for call in [Call::Audit, Call::ExchangeCaptureMode, Call::AbortCapture] {
        rig.device.inject(Fault::at(call, 1, Failure::Driver(1)));
    }
    assert!(rig.device.audit(&graph).is_err());
    assert!(rig.device.exchange_capture_mode(CaptureMode::Relaxed).is_err());
    drop(CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::Global).unwrap());
    assert!(!rig.is_capturing(&rig.a));
    assert_eq!(rig.device.synchronize(), Ok(()));
}

#[test]
fn a_guard_puts_the_mode_back_on_a_poisoned_device() {
    let rig = Rig::new();
    let graph = rig.capture(|| {});
    let guard = ModeGuard::swap(&rig.device, CaptureMode::Relaxed).unwrap();
    rig.device.inject(Fault::at(Call::Allocate, 1, Failure::Poison));
    assert!(rig.device.allocate(64).is_err());
    assert!(rig.device.audit(&graph).is_err());
    drop(guard);
    let fresh = Rig::new();
    assert_eq!(fresh.device.exchange_capture_mode(CaptureMode::Global), Ok(CaptureMode::Global));
}

#[test]
fn faults_can_be_taken_back() {
    let rig = Rig::new();
    rig.device.inject(Fault::at(Call::Allocate, 1, Failure::OutOfMemory));
    rig.device.clear_faults();
    assert!(rig.device.allocate(64).is_ok());
}
