//! Counters, and the mode in which nothing runs.

use graphgrove_device::{
    Args, Call, Capture, GatherRow, Graphs, LaunchDims, Memory, Progress, Streams, Work,
};
use graphgrove_sim::SimDevice;

use crate::rig::{N, Rig};

#[test]
fn every_call_is_counted_by_kind_even_when_it_fails() {
    let rig = Rig::new();
    let before = rig.device.counts();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.device.synchronize_stream(&rig.a).unwrap();
    rig.device.read(rig.buffer(0), &mut [0; 4]).unwrap();
    assert!(rig.device.allocate(0).is_err());
    let made = rig.device.counts().since(&before);
    let calls = [Call::Launch, Call::SynchronizeStream, Call::Read, Call::Allocate];
    assert!(calls.iter().all(|&call| made.of(call) == 1));
    assert_eq!(made.total(), 4);
}

#[test]
fn annotations_are_not_counted() {
    let rig = Rig::new();
    let before = rig.device.counts();
    let annotation = graphgrove_device::Annotation::Released { at: rig.buffer(0), bytes: 4 };
    rig.device.annotate(&rig.a, annotation).unwrap();
    assert_eq!(rig.device.counts().since(&before).total(), 0);
}

#[test]
fn in_null_launch_mode_nothing_runs_and_everything_is_done() {
    let rig = Rig::with(SimDevice::builder().null_launch(true));
    rig.device.write(rig.buffer(0), &[9; 4]).unwrap();
    rig.store(&rig.a, rig.buffer(0), 1);
    let mut node = None;
    let mut exec = rig.exec(|| {
        let row = GatherRow { to: rig.buffer(1), bytes: 4 };
        node = rig.device.gather(&rig.a, &[row], &[rig.buffer(0)]).unwrap();
        rig.add(&rig.a, rig.buffer(1), 1);
    });
    let event = rig.device.create_event().unwrap();
    rig.launch(&mut exec, &rig.a);
    rig.device.patch_gather(&mut exec, node.unwrap(), &[rig.buffer(2)]).unwrap();
    rig.launch(&mut exec, &rig.a);
    rig.device.record_event(&event, &rig.a).unwrap();
    assert_eq!(rig.device.query_event(&event), Ok(Progress::Done));
    assert_eq!(rig.device.query_stream(&rig.a), Ok(Progress::Done));
    assert_eq!(rig.value(rig.buffer(0)), u32::from_ne_bytes([9; 4]));
    assert_eq!(rig.device.counts().of(Call::LaunchExec), 2);
    assert_eq!(rig.device.execution_digest(), 0);
    let graph = rig.capture(|| rig.store(&rig.a, rig.buffer(0), 1));
    assert_eq!(rig.device.audit(&graph).unwrap().nodes, 1);
}

#[test]
fn a_null_launch_still_refuses_handles_of_another_device() {
    let (rig, other) = (Rig::with(SimDevice::builder().null_launch(true)), Rig::new());
    let mut own = rig.exec(|| {});
    let mut foreign = other.exec(|| {});
    assert!(rig.device.launch_exec(&mut foreign, &rig.a).is_err());
    assert!(rig.device.launch_exec(&mut own, &other.a).is_err());
    let args = Args::new().write(rig.buffer(0)).scalar(N).scalar(1_u32);
    assert!(rig.device.launch(&other.a, &rig.fill, LaunchDims::ONE, &args).is_err());
}
