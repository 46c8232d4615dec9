//! What runs before what: streams, events, the null stream, launches of graphs.

use graphgrove_device::{Graphs, Memory, Progress, Streams, Work};

use crate::rig::{BYTES, Rig};

/// Seeds enough that any order of two streams shows.
const SEEDS: u64 = 64;

#[test]
fn two_streams_run_in_either_order_and_which_depends_on_the_seed() {
    let mut seen = [false; 2];
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 0);
        rig.store(&rig.b, rig.buffer(0), 1);
        seen[rig.value(rig.buffer(0)) as usize] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn one_stream_runs_in_order_whatever_the_seed() {
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.copy(&rig.a, rig.buffer(0), rig.buffer(1));
        rig.store(&rig.a, rig.buffer(0), 2);
        assert_eq!((rig.value(rig.buffer(1)), rig.findings()), (1, vec![]));
    }
}

#[test]
fn an_event_orders_two_streams_whatever_the_seed() {
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.order(&rig.a, &rig.b);
        rig.store(&rig.b, rig.buffer(0), 2);
        assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (2, vec![]));
    }
}

#[test]
fn a_wait_is_for_the_recording_that_there_was_when_it_was_enqueued() {
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        let event = rig.device.create_event().unwrap();
        rig.device.record_event(&event, &rig.a).unwrap();
        rig.device.wait_event(&rig.b, &event).unwrap();
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.device.record_event(&event, &rig.a).unwrap();
        rig.store(&rig.b, rig.buffer(1), 1);
        // Had the wait been for the second recording, finishing `b` would have run the store on `a` in every seed.
        rig.device.synchronize_stream(&rig.b).unwrap();
        assert_eq!(rig.device.query_stream(&rig.b), Ok(Progress::Done));
    }
}

#[test]
fn finishing_one_stream_leaves_another_pending_for_some_seed() {
    let pending = (0..SEEDS).any(|seed| {
        let rig = Rig::seeded(seed);
        (0..20).for_each(|_| rig.store(&rig.a, rig.buffer(0), 1));
        rig.store(&rig.b, rig.buffer(1), 1);
        rig.device.synchronize_stream(&rig.b).unwrap();
        rig.device.query_stream(&rig.a) == Ok(Progress::Pending)
    });
    assert!(pending);
}

#[test]
fn an_event_is_pending_until_its_work_has_run_and_polling_ends() {
    let rig = Rig::new();
    let event = rig.device.create_event().unwrap();
    assert_eq!(rig.device.query_event(&event), Ok(Progress::Done));
    (0..50).for_each(|_| rig.store(&rig.a, rig.buffer(0), 1));
    rig.device.record_event(&event, &rig.a).unwrap();
    assert_eq!(rig.device.query_event(&event), Ok(Progress::Pending));
    let polls = (0..1000).take_while(|_| rig.device.query_event(&event) == Ok(Progress::Pending)).count();
    assert!(polls < 1000);
}

#[test]
fn waiting_for_an_event_lets_the_host_write_what_its_work_read() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.copy(&rig.a, rig.buffer(0), rig.buffer(1));
    let event = rig.device.create_event().unwrap();
    rig.device.record_event(&event, &rig.a).unwrap();
    rig.device.synchronize_event(&event).unwrap();
    rig.device.write(rig.buffer(0), &[0; 4]).unwrap();
    assert_eq!(rig.findings(), []);
}

#[test]
fn the_null_stream_and_blocking_streams_wait_for_each_other() {
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        let (null, blocking) = (rig.device.null_stream(), rig.device.create_blocking_stream().unwrap());
        rig.store(&blocking, rig.buffer(0), 1);
        rig.store(&null, rig.buffer(0), 2);
        rig.store(&blocking, rig.buffer(0), 3);
        assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (3, vec![]));
    }
}

#[test]
fn other_streams_have_nothing_to_do_with_the_null_stream() {
    let racing = (0..SEEDS).any(|seed| {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 1);
        rig.store(&rig.device.null_stream(), rig.buffer(0), 2);
        !rig.findings().is_empty()
    });
    assert!(racing);
}

#[test]
fn a_graph_runs_behind_the_work_before_it_and_before_the_work_behind_it() {
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        let mut exec = rig.exec(|| {
            rig.order(&rig.a, &rig.b);
            rig.add(&rig.b, rig.buffer(1), 1);
            rig.add(&rig.a, rig.buffer(0), 1);
            rig.order(&rig.b, &rig.a);
        });
        rig.store(&rig.a, rig.buffer(0), 10);
        rig.store(&rig.a, rig.buffer(1), 20);
        rig.launch(&mut exec, &rig.a);
        rig.add(&rig.a, rig.buffer(0), 100);
        rig.add(&rig.a, rig.buffer(1), 100);
        assert_eq!((rig.value(rig.buffer(0)), rig.value(rig.buffer(1))), (111, 121));
        assert_eq!(rig.findings(), []);
    }
}

#[test]
fn launches_of_one_exec_never_overlap_even_on_two_streams() {
    for seed in 0..SEEDS {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 0);
        rig.device.synchronize().unwrap();
        let mut exec = rig.exec(|| (0..3).for_each(|_| rig.add(&rig.a, rig.buffer(0), 1)));
        for _ in 0..4 {
            rig.launch(&mut exec, &rig.a);
            rig.launch(&mut exec, &rig.b);
        }
        assert_eq!((rig.value(rig.buffer(0)), rig.findings()), (24, vec![]));
    }
}

#[test]
fn two_execs_on_two_streams_may_overlap() {
    let racing = (0..SEEDS).any(|seed| {
        let rig = Rig::seeded(seed);
        rig.store(&rig.a, rig.buffer(0), 0);
        rig.device.synchronize().unwrap();
        let graph = rig.capture(|| rig.add(&rig.a, rig.buffer(0), 1));
        let mut one = rig.device.instantiate(&graph).unwrap();
        let mut two = rig.device.instantiate(&graph).unwrap();
        rig.launch(&mut one, &rig.a);
        rig.launch(&mut two, &rig.b);
        !rig.findings().is_empty()
    });
    assert!(racing);
}

#[test]
fn a_patch_does_not_disturb_a_launch_that_is_enqueued() {
    let rig = Rig::new();
    let mut node = None;
    let mut exec = rig.exec(|| {
        node = rig.device.copy(&rig.a, rig.buffer(2), rig.buffer(0), BYTES).unwrap();
    });
    rig.store(&rig.a, rig.buffer(0), 1);
    rig.store(&rig.a, rig.buffer(1), 2);
    rig.launch(&mut exec, &rig.a);
    rig.device.patch_copy(&mut exec, node.unwrap(), rig.buffer(3), rig.buffer(1)).unwrap();
    rig.launch(&mut exec, &rig.a);
    assert_eq!((rig.value(rig.buffer(2)), rig.value(rig.buffer(3))), (1, 2));
}

#[test]
fn an_exec_dropped_while_it_waits_still_runs() {
    let rig = Rig::new();
    rig.store(&rig.a, rig.buffer(0), 1);
    let mut exec = rig.exec(|| rig.add(&rig.a, rig.buffer(0), 1));
    rig.launch(&mut exec, &rig.a);
    drop(exec);
    assert_eq!(rig.value(rig.buffer(0)), 2);
}

#[test]
fn a_stream_dropped_with_work_still_runs_it() {
    let rig = Rig::new();
    let stream = rig.device.create_stream().unwrap();
    rig.store(&stream, rig.buffer(0), 5);
    drop(stream);
    assert_eq!(rig.value(rig.buffer(0)), 5);
}
