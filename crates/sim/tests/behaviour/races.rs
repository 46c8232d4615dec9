//! Races: accesses that nothing orders are found whatever order the seed gives them.

use graphgrove_device::{CaptureGuard, CaptureMode, Graphs, HostMemory, Memory, Streams, Work};
use graphgrove_sim::Finding;

use crate::rig::{BYTES, Rig};

fn is_race_between(finding: &Finding, one: &str, other: &str) -> bool {
    match finding {
        Finding::Race { first, second, .. } => {
            let names = [&*first.name, &*second.name];
            names == [one, other] || names == [other, one]
        }
        _ => false,
    }
}

#[test]
fn two_writes_on_two_streams_race_for_every_seed() {
    for seed in 0..32 {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.add(&rig.b, rig.buffer(0), 1);
        assert!(rig.findings().iter().any(|finding| is_race_between(finding, "fill", "add")), "seed {seed}");
    }
}

#[test]
fn a_read_and_a_write_on_two_streams_race_and_two_reads_do_not() {
    let reads = |then_write: bool| {
        let rig = Rig::new();
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.order(&rig.a, &rig.b);
        rig.copy(&rig.a, rig.buffer(0), rig.buffer(1));
        rig.copy(&rig.b, rig.buffer(0), rig.buffer(2));
        if then_write {
            rig.store(&rig.a, rig.buffer(0), 2);
        }
        rig.findings()
    };
    assert_eq!(reads(false), []);
    assert!(reads(true).iter().any(|finding| is_race_between(finding, "copy", "fill")));
}

#[test]
fn writes_to_neighbouring_buffers_do_not_race() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.store(&rig.b, rig.buffer(1), 1);
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_finding_names_both_accesses_the_argument_and_the_allocation() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(1), 1);
    rig.device.synchronize().unwrap();
    rig.copy(&rig.a, rig.buffer(1), rig.buffer(0));
    rig.store(&rig.b, rig.buffer(0), 1);
    let findings = rig.findings();
    let [Finding::Race { first, second, target }] = &findings[..] else { panic!("{findings:?}") };
    let (copy, fill) = if &*first.name == "copy" { (first, second) } else { (second, first) };
    assert_eq!((copy.argument, fill.argument), (Some(1), Some(0)));
    assert_eq!(target.address, rig.buffer(0));
    assert_eq!(target.bytes, BYTES);
    assert_eq!(target.allocation, Some((rig.buffer(0), 16 * BYTES)));
}

#[test]
fn branches_of_a_graph_race_unless_an_edge_orders_them() {
    let forked = |join: bool| {
        let rig = Rig::new();
        rig.store(&rig.a, rig.buffer(0), 1);
        let mut exec = rig.exec(|| {
            rig.order(&rig.a, &rig.b);
            rig.add(&rig.b, rig.buffer(0), 1);
            if join {
                rig.order(&rig.b, &rig.a);
            }
            rig.add(&rig.a, rig.buffer(0), 2);
            rig.order(&rig.b, &rig.a);
        });
        rig.launch(&mut exec, &rig.a);
        rig.findings()
    };
    assert_eq!(forked(true), []);
    assert!(forked(false).iter().any(|finding| is_race_between(finding, "add", "add")));
}

#[test]
fn the_host_races_with_work_that_it_has_not_waited_for() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.device.write(rig.buffer(0), &[0; 4]).unwrap();
    assert!(rig.findings().iter().any(|finding| is_race_between(finding, "fill", "write")));

    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.device.synchronize_stream(&rig.a).unwrap();
    rig.device.write(rig.buffer(0), &[0; 4]).unwrap();
    rig.copy(&rig.a, rig.buffer(0), rig.buffer(1));
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_host_buffer_must_not_be_written_while_a_copy_reads_it() {
    let upload = |wait: bool| {
        let rig = Rig::new();
        let host = rig.device.host_buffer(64).unwrap();
        rig.device.upload(&rig.a, rig.buffer(0), &host, 0, 64).unwrap();
        if wait {
            rig.device.synchronize_stream(&rig.a).unwrap();
        }
        host.write(0, &[1; 64]).unwrap();
        rig.findings()
    };
    assert_eq!(upload(true), []);
    let findings = upload(false);
    assert!(findings.iter().any(|finding| is_race_between(finding, "upload", "write")));
    assert!(findings[0].to_string().contains("host memory"));
}

#[test]
fn a_host_buffer_must_not_be_read_before_the_copy_into_it_is_known_to_be_done() {
    let download = |wait: bool| {
        let rig = Rig::new();
        let host = rig.device.host_buffer(64).unwrap();
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.device.download(&rig.a, &host, 0, rig.buffer(0), 64).unwrap();
        if wait {
            rig.device.synchronize_stream(&rig.a).unwrap();
        }
        host.read(0, &mut [0; 64]).unwrap();
        rig.findings()
    };
    assert_eq!(download(true), []);
    assert!(download(false).iter().any(|finding| is_race_between(finding, "download", "read")));
}

#[test]
fn a_graph_that_two_streams_need_is_ordered_by_events() {
    let launched = |ordered: bool| {
        let rig = Rig::new();
        let mut exec = rig.exec(|| rig.store(&rig.a, rig.buffer(0), 1));
        rig.launch(&mut exec, &rig.a);
        if ordered {
            rig.order(&rig.a, &rig.b);
        }
        rig.copy(&rig.b, rig.buffer(0), rig.buffer(1));
        rig.findings()
    };
    assert_eq!(launched(true), []);
    assert!(!launched(false).is_empty());
    let rig = Rig::new();
    assert!(rig.device.exec_bytes(&rig.exec(|| {})).is_some());
}

#[test]
fn host_memory_that_the_device_has_used_long_ago_may_be_written_to_and_a_race_there_is_found_as_ever() {
    let rig = Rig::new();
    let host = rig.device.host_buffer(BYTES as usize).unwrap();
    // Each exec is something that runs in order with itself alone: of so many the checker forgets the past now and then.
    let mut execs = Vec::new();
    for turn in 0..200_u8 {
        let capture = CaptureGuard::begin(&rig.device, &rig.a, CaptureMode::ThreadLocal).unwrap();
        rig.device.upload(&rig.a, rig.buffer(0), &host, 0, BYTES as usize).unwrap();
        let mut exec = rig.device.instantiate(&capture.end().unwrap()).unwrap();
        rig.device.synchronize().unwrap();
        host.write(0, &[turn; 4]).unwrap();
        rig.device.launch_exec(&mut exec, &rig.a).unwrap();
        rig.device.synchronize().unwrap();
        execs.push(exec);
    }
    assert_eq!(rig.findings(), []);
    rig.device.launch_exec(&mut execs[0], &rig.a).unwrap();
    host.write(0, &[0; 4]).unwrap();
    assert!(!rig.findings().is_empty(), "nothing orders the launch and the write");
}
