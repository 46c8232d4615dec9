//! Memory errors: each is found, and what comes close to it is not.

use graphgrove_device::{
    Annotation, Args, Call, DeviceError, DevicePtr, GatherRow, Graphs, HostMemory, LaunchDims, Memory,
    NodeId, Problem, ReservedRange, SegmentMemory, Streams, Work,
};
use graphgrove_sim::{Finding, POISON, SimDevice, SimExec, SimHostBuffer};

use crate::rig::{BYTES, N, Rig};

#[test]
fn reading_what_was_never_written_is_found_and_gives_poison() {
    let rig = Rig::new();
    rig.copy(&rig.a, rig.buffer(0), rig.buffer(1));
    let findings = rig.findings();
    let [Finding::NeverWritten { access, target }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((&*access.name, access.argument, target.address), ("copy", Some(0), rig.buffer(0)));
    assert_eq!(rig.value(rig.buffer(1)), u32::from_ne_bytes([POISON; 4]));
}

#[test]
fn reading_one_byte_more_than_was_written_is_found_and_names_that_byte() {
    let rig = Rig::new();
    rig.device.fill(&rig.a, rig.buffer(0), 1, 8).unwrap();
    rig.device.copy(&rig.a, rig.buffer(1), rig.buffer(0), 8).unwrap();
    assert_eq!(rig.findings(), []);
    rig.device.copy(&rig.a, rig.buffer(1), rig.buffer(0), 9).unwrap();
    let findings = rig.findings();
    let [Finding::NeverWritten { target, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(target.address, rig.buffer(0).checked_add(8).unwrap());
}

#[test]
fn work_that_comes_after_its_segment_was_freed_is_found_and_faults() {
    let rig = Rig::new();
    let segment = rig.device.allocate(256).unwrap();
    let base = segment.base();
    rig.store(&rig.a, base, 1);
    drop(segment);
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
    let findings = rig.findings();
    let [Finding::UseAfterFree { access, target, freed }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((&*access.name, target.allocation), ("fill", Some((base, 256))));
    assert_eq!(&*freed.name, "free segment");
}

#[test]
fn work_that_ran_before_its_segment_was_freed_is_fine() {
    let rig = Rig::new();
    let segment = rig.device.allocate(256).unwrap();
    rig.store(&rig.a, segment.base(), 1);
    rig.device.synchronize().unwrap();
    drop(segment);
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_kernel_that_runs_past_its_allocation_is_found_and_faults() {
    let rig = Rig::new();
    let segment = rig.device.allocate(BYTES).unwrap();
    let at = |offset: u64| segment.base().checked_add(offset).unwrap();
    rig.store(&rig.a, at(0), 1);
    rig.device.synchronize().unwrap();
    rig.store(&rig.a, at(4), 1);
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
    let findings = rig.findings();
    let [Finding::OutOfBounds { target, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(
        target.to_string(),
        format!("{BYTES} bytes at {} in the allocation of {BYTES} bytes at {}", at(4), at(0))
    );
}

#[test]
fn an_address_without_an_allocation_is_found_with_the_checker_off_as_well() {
    for checker in [true, false] {
        let rig = Rig::with(SimDevice::builder().checker(checker));
        rig.store(&rig.a, DevicePtr::new(64), 1);
        assert!(rig.device.synchronize().unwrap_err().is_fatal());
        assert!(matches!(rig.findings()[..], [Finding::OutOfBounds { .. }]));
    }
}

#[test]
fn a_misaligned_view_is_found_and_an_aligned_one_is_not() {
    let rig = Rig::new();
    let wide = rig.device.kernel("wide", |scope| {
        scope.require_alignment(0, 16)?;
        scope.write::<u32>(0, 4)?.copy_from(&[0; 4]);
        Ok(())
    });
    let launch =
        |at: DevicePtr| rig.device.launch(&rig.a, &wide, LaunchDims::ONE, &Args::new().write(at)).unwrap();
    launch(rig.buffer(0).checked_add(16).unwrap());
    rig.device.synchronize().unwrap();
    launch(rig.buffer(0).checked_add(4).unwrap());
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
    let findings = rig.findings();
    let [Finding::Misaligned { alignment: 16, .. }] = &findings[..] else { panic!("{findings:?}") };

    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0).checked_add(2).unwrap(), 1);
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
    assert!(matches!(rig.findings()[..], [Finding::Misaligned { alignment: 4, .. }]));
}

#[test]
fn an_access_that_the_launch_did_not_declare_is_found() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    let args = Args::new().read(rig.buffer(0)).scalar(N).scalar(2_u32);
    rig.device.launch(&rig.a, &rig.fill, LaunchDims::ONE, &args).unwrap();
    let findings = rig.findings();
    let [Finding::Undeclared { write: true, access, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(access.argument, Some(0));
    let args = Args::new().write(rig.buffer(0)).write(rig.buffer(1)).scalar(N);
    rig.device.launch(&rig.a, &rig.copy, LaunchDims::ONE, &args).unwrap();
    assert!(matches!(rig.findings()[..], [Finding::Undeclared { write: false, .. }]));
}

#[test]
fn a_read_through_a_view_made_to_write_is_found() {
    let launched = |read_write: bool| {
        let rig = Rig::new();
        rig.store(&rig.a, rig.buffer(0), 1);
        let kernel = rig.device.kernel("accumulate", move |scope| {
            let view = if read_write { scope.read_write::<u32>(0, 1)? } else { scope.write::<u32>(0, 1)? };
            view.set(0, view.get(0) + 1);
            Ok(())
        });
        rig.device.launch(&rig.a, &kernel, LaunchDims::ONE, &Args::new().read_write(rig.buffer(0))).unwrap();
        assert_eq!(rig.value(rig.buffer(0)), 2);
        rig.findings()
    };
    assert_eq!(launched(true), []);
    assert!(matches!(launched(false)[..], [Finding::Undeclared { write: false, .. }]));
}

#[test]
fn a_copy_onto_itself_is_found_and_one_beside_itself_is_not() {
    let copied = |distance: u64| {
        let rig = Rig::new();
        rig.device.fill(&rig.a, rig.buffer(0), 1, 2 * BYTES).unwrap();
        rig.device.copy(&rig.a, rig.buffer(0).checked_add(distance).unwrap(), rig.buffer(0), 16).unwrap();
        rig.findings()
    };
    assert_eq!(copied(16), []);
    assert!(matches!(copied(15)[..], [Finding::Overlap { .. }]));
}

#[test]
fn a_gather_whose_rows_meet_is_found() {
    let gathered = |to: u64, from: u64| {
        let rig = Rig::new();
        let at = |offset: u64| rig.buffer(0).checked_add(offset).unwrap();
        rig.device.fill(&rig.a, rig.buffer(0), 1, 4 * BYTES).unwrap();
        let rows = [GatherRow { to: at(0), bytes: 16 }, GatherRow { to: at(to), bytes: 16 }];
        rig.device.gather(&rig.a, &rows, &[at(64), at(from)]).unwrap();
        rig.findings()
    };
    assert_eq!(gathered(16, 64), []);
    assert!(!gathered(8, 80).is_empty());
    assert!(!gathered(32, 15).is_empty());
}

#[test]
fn memory_freed_before_its_work_is_known_to_be_over_is_found_for_every_seed() {
    for seed in 0..32 {
        let freed = |wait: bool| {
            let rig = Rig::seeded(seed);
            let segment = rig.device.allocate(256).unwrap();
            rig.store(&rig.a, segment.base(), 1);
            rig.device.query_stream(&rig.b).unwrap();
            if wait {
                rig.device.synchronize_stream(&rig.a).unwrap();
            }
            drop(segment);
            rig.findings()
        };
        assert_eq!(freed(true), []);
        assert!(!freed(false).is_empty(), "seed {seed}");
    }
}

#[test]
fn a_use_after_free_is_found_although_the_memory_was_allocated_again() {
    for seed in 0..16 {
        let rig = Rig::seeded(seed);
        let segment = rig.device.allocate(512).unwrap();
        let old = segment.base();
        rig.store(&rig.a, old, 1);
        drop(segment);
        let again = rig.device.allocate(512).unwrap();
        assert_ne!(again.base(), old);
        assert!(rig.device.synchronize().is_err());
        let findings = rig.findings();
        assert!(matches!(findings[..], [Finding::UseAfterFree { .. }]), "seed {seed}: {findings:?}");
    }
}

#[test]
fn pages_unmapped_before_their_work_is_known_to_be_over_are_found() {
    let unmapped = |wait: bool| {
        let rig = Rig::with(SimDevice::builder().granularity(4096));
        let mut range = rig.device.reserve(4096).unwrap();
        rig.device.map(&mut range, 0, 4096).unwrap();
        rig.store(&rig.a, range.base(), 1);
        (0..64).for_each(|_| drop(rig.device.query_stream(&rig.b)));
        if wait {
            rig.device.synchronize_stream(&rig.a).unwrap();
        }
        rig.device.unmap(&mut range, 0, 4096).unwrap();
        rig.findings()
    };
    assert_eq!(unmapped(true), []);
    assert!(matches!(unmapped(false)[..], [Finding::Race { .. }]));
}

#[test]
fn many_streams_leave_no_weight_behind_and_races_are_still_found() {
    let rig = Rig::new();
    let streams: Vec<_> = (0..300).map(|_| rig.device.create_stream().unwrap()).collect();
    streams.iter().for_each(|stream| rig.store(stream, rig.buffer(1), 1));
    drop(streams);
    rig.device.synchronize().unwrap();
    rig.device.synchronize().unwrap();
    assert!(matches!(rig.findings()[0], Finding::Race { .. }));
    rig.store(&rig.a, rig.buffer(1), 2);
    assert_eq!(rig.findings(), []);
    rig.store(&rig.a, rig.buffer(1), 2);
    rig.store(&rig.b, rig.buffer(1), 2);
    assert!(matches!(rig.findings()[..], [Finding::Race { .. }]));
}

#[test]
fn a_released_block_is_dead_until_it_is_acquired_again() {
    let rig = Rig::new();
    let (at, bytes) = (rig.buffer(0), BYTES);
    let annotate = |annotation| rig.device.annotate(&rig.a, annotation).unwrap();
    annotate(Annotation::Acquired { at, bytes, label: "weights" });
    rig.store(&rig.a, at, 1);
    rig.copy(&rig.a, at, rig.buffer(1));
    assert_eq!(rig.findings(), []);
    annotate(Annotation::Released { at, bytes });
    rig.copy(&rig.a, at, rig.buffer(1));
    let findings = rig.findings();
    let [Finding::UseAfterRelease { target, released, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((target.label, &*released.name), (Some("weights"), "release"));
    assert_eq!(rig.value(rig.buffer(1)), u32::from_ne_bytes([POISON; 4]));
    annotate(Annotation::Acquired { at, bytes, label: "again" });
    rig.copy(&rig.a, at, rig.buffer(1));
    assert!(matches!(rig.findings()[..], [Finding::NeverWritten { .. }]));
}

#[test]
fn a_release_that_nothing_orders_behind_the_last_use_is_a_race() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.device.annotate(&rig.b, Annotation::Released { at: rig.buffer(0), bytes: BYTES }).unwrap();
    assert!(rig.findings().iter().any(|finding| matches!(finding, Finding::Race { .. })));
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.order(&rig.a, &rig.b);
    rig.device.annotate(&rig.b, Annotation::Released { at: rig.buffer(0), bytes: BYTES }).unwrap();
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_release_in_a_graph_happens_at_each_launch() {
    let rig = Rig::new();
    let mut exec = rig.exec(|| {
        let (at, bytes) = (rig.buffer(0), BYTES);
        rig.device.annotate(&rig.a, Annotation::Acquired { at, bytes, label: "temporary" }).unwrap();
        rig.store(&rig.a, at, 1);
        rig.copy(&rig.a, at, rig.buffer(1));
        rig.device.annotate(&rig.a, Annotation::Released { at, bytes }).unwrap();
    });
    rig.launch(&mut exec, &rig.a);
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.findings(), []);
    rig.copy(&rig.a, rig.buffer(0), rig.buffer(2));
    assert!(matches!(rig.findings()[..], [Finding::UseAfterRelease { .. }]));
}

#[test]
fn pages_that_were_unmapped_are_out_of_bounds_and_their_neighbours_are_not() {
    let rig = Rig::with(SimDevice::builder().granularity(4096));
    let mut range = rig.device.reserve(8192).unwrap();
    let (low, high) = (range.base(), range.base().checked_add(4096).unwrap());
    rig.device.map(&mut range, 0, 4096).unwrap();
    rig.device.map(&mut range, 4096, 4096).unwrap();
    rig.store(&rig.a, low, 1);
    rig.store(&rig.a, high.checked_add(4096 - BYTES).unwrap(), 2);
    rig.device.copy(&rig.a, rig.buffer(0), high.checked_add(4096 - 4).unwrap(), 4).unwrap();
    rig.device.synchronize().unwrap();
    rig.device.unmap(&mut range, 4096, 4096).unwrap();
    assert_eq!((rig.value(low), rig.findings()), (1, vec![]));
    rig.store(&rig.a, high, 3);
    assert!(rig.device.synchronize().unwrap_err().is_fatal());
    assert!(matches!(rig.findings()[..], [Finding::OutOfBounds { .. }]));
}

#[test]
fn one_view_may_span_two_mapped_pieces() {
    let rig = Rig::with(SimDevice::builder().granularity(4096));
    let mut range = rig.device.reserve(8192).unwrap();
    rig.device.map(&mut range, 0, 4096).unwrap();
    rig.device.map(&mut range, 4096, 4096).unwrap();
    let middle = range.base().checked_add(4096 - 16).unwrap();
    rig.store(&rig.a, middle, 4);
    assert_eq!((rig.value(middle), rig.findings()), (4, vec![]));
}

#[test]
fn pages_mapped_anew_are_undefined_again() {
    let rig = Rig::with(SimDevice::builder().granularity(4096));
    let mut range = rig.device.reserve(4096).unwrap();
    rig.device.map(&mut range, 0, 4096).unwrap();
    rig.store(&rig.a, range.base(), 1);
    rig.device.synchronize().unwrap();
    rig.device.unmap(&mut range, 0, 4096).unwrap();
    rig.device.map(&mut range, 0, 4096).unwrap();
    rig.copy(&rig.a, range.base(), rig.buffer(0));
    assert!(matches!(rig.findings()[..], [Finding::NeverWritten { .. }]));
}

#[test]
fn a_copy_whose_raw_host_memory_died_first_is_found() {
    let upload = |keep: bool| {
        let rig = Rig::new();
        let host = rig.device.host_buffer(64).unwrap();
        rig.device.upload(&rig.a, rig.buffer(0), &host.unowned(), 0, 64).unwrap();
        let kept = keep.then_some(host);
        let findings = rig.findings();
        drop(kept);
        findings
    };
    assert_eq!(upload(true), []);
    assert!(matches!(upload(false)[..], [Finding::HostMemoryGone { .. }]));
}

#[test]
fn a_graph_keeps_the_host_memory_that_it_reads() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(64).unwrap();
    host.write(0, &[3; 64]).unwrap();
    let mut exec = rig.exec(|| {
        rig.device.upload(&rig.a, rig.buffer(0), &host, 0, 64).unwrap();
    });
    drop(host);
    rig.launch(&mut exec, &rig.a);
    assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (0x0303_0303, vec![]));
    assert_eq!(rig.device.counts().of(Call::FreeHost), 0);
    drop(exec);
    assert_eq!(rig.device.counts().of(Call::FreeHost), 1);
}

/// An exec that uploads 64 bytes to the first buffer, and the node that does.
fn uploading(rig: &Rig, host: &SimHostBuffer) -> (SimExec, NodeId) {
    let mut node = None;
    let exec = rig.exec(|| node = rig.device.upload(&rig.a, rig.buffer(0), host, 0, 64).unwrap());
    (exec, node.unwrap())
}

#[test]
fn host_buffers_that_take_turns_in_an_exec_go_as_soon_as_their_launches_are_done() {
    let rig = Rig::new();
    let host = |byte| {
        let host = rig.device.host_buffer(64).unwrap();
        host.write(0, &[byte; 64]).unwrap();
        host
    };
    let freed = || rig.device.counts().of(Call::FreeHost);
    let (mut exec, node) = uploading(&rig, &host(0));
    for byte in 1..=50 {
        rig.device.patch_upload(&mut exec, node, rig.buffer(0), &host(byte), 0).unwrap();
        rig.launch(&mut exec, &rig.a);
    }
    // The recorded one was launched with by nobody; each of the others waits for its launch.
    assert_eq!(freed(), 1);
    assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (u32::from_ne_bytes([50; 4]), vec![]));
    assert_eq!(freed(), 50);
    for byte in 1..=50 {
        rig.device.patch_upload(&mut exec, node, rig.buffer(0), &host(byte), 0).unwrap();
    }
    assert_eq!(freed(), 100);
    drop(exec);
    assert_eq!(freed(), 101);
}

#[test]
fn a_patch_to_raw_host_memory_that_died_is_found_at_the_replay() {
    let rig = Rig::new();
    let (recorded, raw) = (rig.device.host_buffer(64).unwrap(), rig.device.host_buffer(64).unwrap());
    let (mut exec, node) = uploading(&rig, &recorded);
    assert!(raw.is_same(&raw.unowned()));
    rig.device.patch_upload(&mut exec, node, rig.buffer(0), &raw.unowned(), 0).unwrap();
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.findings(), []);
    drop(raw);
    rig.launch(&mut exec, &rig.a);
    assert!(matches!(rig.findings()[..], [Finding::HostMemoryGone { .. }]));
}

#[test]
fn a_graph_whose_raw_host_memory_died_is_found_at_the_replay() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(64).unwrap();
    let mut exec = rig.exec(|| {
        rig.device.upload(&rig.a, rig.buffer(0), &host.unowned(), 0, 64).unwrap();
    });
    rig.launch(&mut exec, &rig.a);
    assert_eq!(rig.findings(), []);
    drop(host);
    rig.launch(&mut exec, &rig.a);
    assert!(matches!(rig.findings()[..], [Finding::HostMemoryGone { .. }]));
}

#[test]
fn without_the_checker_values_are_right_and_nothing_is_found() {
    let rig = Rig::with(SimDevice::builder().checker(false));
    rig.copy(&rig.a, rig.buffer(5), rig.buffer(6));
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.add(&rig.b, rig.buffer(1), 1);
    assert_eq!(rig.value(rig.buffer(0)), 1);
    assert_eq!(rig.findings(), []);
    assert_eq!(rig.device.annotate(&rig.a, Annotation::Released { at: rig.buffer(0), bytes: 4 }), Ok(()));
    let error = rig.device.copy(&rig.a, rig.buffer(0), DevicePtr::new(8), 4).unwrap_err();
    let problem = Problem::NotAllocated { address: DevicePtr::new(8), bytes: 4 };
    assert_eq!(error, DeviceError::invalid(Call::Copy, problem));
}

#[test]
fn a_verdict_takes_the_findings_and_prints_each() {
    let rig = Rig::new();
    rig.copy(&rig.a, rig.buffer(0), rig.buffer(1));
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.findings().len(), 1);
    let found = rig.device.verdict().unwrap_err();
    assert!(
        found.to_string().starts_with("1 findings\n  never written: copy (argument 0) on stream"),
        "{found}"
    );
    assert_eq!(rig.device.verdict(), Ok(()));
}
