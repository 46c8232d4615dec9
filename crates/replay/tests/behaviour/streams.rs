//! Replays on any stream, from any thread.

use std::sync::{Arc, Mutex};

use graphgrove_device::{Args, Call as Driver, DeviceError, LaunchDims, StreamHandle, Streams, Work};
use graphgrove_replay::{Call, Error, Method, NodeKey, Replayer};
use graphgrove_sim::{Failure, Fault, Finding, SimDevice, SimStream, kernels};
use graphgrove_storage::{SlotIndex, Step, Tensor};

use crate::workshop::{BOTH, N, Shop, kept, take};

fn replay_on(shop: &mut Shop, node: NodeKey, stream: &SimStream, input: &Tensor) -> Tensor {
    let inputs = [kept(input)];
    let call = Call::new(stream, Step::new(2), &inputs);
    let mut replayed = shop.replayer.replay(node, &call).unwrap();
    take(&mut replayed, 0)
}

#[test]
fn launches_on_alternating_streams_run_one_after_the_other() {
    for method in BOTH {
        for seed in 0..8 {
            let mut shop = Shop::on(SimDevice::builder().seed(seed), method);
            let x = shop.tensor(1.0);
            let mut first = shop.record_sum(None, &[kept(&x)]).unwrap();
            let output = take(&mut first, 0);
            let root = first.node;
            let child = shop.record_sum(Some(root), &[kept(&output)]).unwrap().node;
            drop((first, output));
            let streams: [SimStream; 3] = std::array::from_fn(|_| shop.device.create_stream().unwrap());
            for turn in 0..9 {
                let output = replay_on(&mut shop, root, &streams[turn % 3], &x);
                let sum = replay_on(&mut shop, child, &streams[(turn + turn / 3) % 3], &output);
                drop((output, sum));
            }
            shop.verdict();
        }
    }
}

#[test]
fn another_stream_costs_two_driver_calls_and_one_event_once() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let streams = [shop.stream.clone(), shop.device.create_stream().unwrap()];
        drop(replay_on(&mut shop, node, &streams[1], &x));
        let own = if method == Method::Fast { 1 } else { 2 };
        for turn in 0..4 {
            for (again, others) in [(false, 2), (true, 0)] {
                let before = shop.device.counts();
                drop(replay_on(&mut shop, node, &streams[turn % 2], &x));
                let made = shop.device.counts().since(&before);
                assert_eq!(made.total(), own + others, "again: {again}, {made}");
                let (recorded, waited) = (made.of(Driver::RecordEvent), made.of(Driver::WaitEvent));
                assert_eq!((recorded, waited), (others / 2, others / 2), "{made}");
            }
            assert_eq!(shop.replayer.last_stream().map(StreamHandle::id), Some(streams[turn % 2].id()));
        }
        shop.verdict();
    }
}

/// Reads an output on a stream of the caller's own.
fn read_on(shop: &Shop, stream: &SimStream, output: &Tensor, to: &Tensor) {
    let copy = kernels::copy::<f32>(&shop.device);
    let args = Args::new().read(output.address().unwrap()).write(to.address().unwrap()).scalar(N as u32);
    shop.device.launch(stream, &copy, LaunchDims::for_elements(N as u32), &args).unwrap();
}

/// Makes `later` wait for what `earlier` was given.
fn order(device: &SimDevice, earlier: &SimStream, later: &SimStream) {
    let event = device.create_event().unwrap();
    device.record_event(&event, earlier).unwrap();
    device.wait_event(later, &event).unwrap();
}

#[test]
fn a_use_that_was_declared_is_waited_for_and_one_that_was_not_is_a_race() {
    for method in BOTH {
        for declared in [true, false] {
            let mut shop = Shop::new(method);
            let (x, y, to) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor(0.0));
            let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
            let stream = shop.stream.clone();
            let output = replay_on(&mut shop, node, &stream, &x);
            let side = shop.device.create_stream().unwrap();
            order(&shop.device, &stream, &side);
            read_on(&shop, &side, &output, &to);
            if declared {
                shop.replayer.used_on(&side).unwrap();
            }
            drop(output);
            let before = shop.device.counts();
            drop(replay_on(&mut shop, node, &stream, &y));
            let waited = shop.device.counts().since(&before).of(Driver::WaitEvent);
            assert_eq!(waited, u64::from(declared));
            let found = shop.device.verdict();
            match declared {
                true => {
                    found.unwrap();
                    assert_eq!(shop.value(&to), 1.0);
                }
                false => {
                    let races = |finding: &Finding| matches!(finding, Finding::Race { .. });
                    assert!(found.unwrap_err().findings.iter().any(races));
                }
            }
            let before = shop.device.counts();
            drop(replay_on(&mut shop, node, &stream, &y));
            assert_eq!(shop.device.counts().since(&before).of(Driver::WaitEvent), 0, "waited for once");
        }
    }
}

#[test]
fn events_are_used_again() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
    let (stream, side) = (shop.stream.clone(), shop.device.create_stream().unwrap());
    let before = shop.device.counts();
    for _ in 0..10 {
        drop(replay_on(&mut shop, node, &stream, &x));
        shop.replayer.used_on(&side).unwrap();
        shop.replayer.used_on(&side).unwrap();
        drop(replay_on(&mut shop, node, &side, &x));
        shop.replayer.used_on(&stream).unwrap();
    }
    let made = shop.device.counts().since(&before);
    assert_eq!((made.of(Driver::CreateEvent), made.of(Driver::DestroyEvent)), (3, 0), "{made}");
    shop.verdict();
}

#[test]
fn a_use_on_the_stream_of_the_launches_need_not_be_declared() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    drop(shop.record_sum(None, &[kept(&x)]).unwrap());
    let before = shop.device.counts();
    let stream = shop.stream.clone();
    shop.replayer.used_on(&stream).unwrap();
    assert_eq!(shop.device.counts(), before);
}

#[test]
fn other_work_is_ordered_behind_all_launches_and_before_the_next() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, to) = (shop.tensor(1.0), shop.tensor(0.0));
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let (stream, side) = (shop.stream.clone(), shop.device.create_stream().unwrap());
        let output = replay_on(&mut shop, node, &stream, &x);
        shop.replayer.enter(&side).unwrap();
        read_on(&shop, &side, &output, &to);
        drop(output);
        drop(replay_on(&mut shop, node, &stream, &x));
        assert_eq!(shop.value(&to), 1.0);
        shop.verdict();
    }
}

#[test]
fn an_order_that_the_device_refuses_is_made_by_the_next_launch() {
    for method in BOTH {
        for (call, nth) in [(Driver::CreateEvent, 1), (Driver::RecordEvent, 1), (Driver::WaitEvent, 1)] {
            let mut shop = Shop::new(method);
            let x = shop.tensor(1.0);
            let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
            let side = shop.device.create_stream().unwrap();
            let inputs = [kept(&x)];
            let on_side = Call::new(&side, Step::new(2), &inputs);
            shop.device.inject(Fault::at(call, nth, Failure::Driver(1)));
            let refused = shop.replayer.replay(node, &on_side).unwrap_err();
            assert!(matches!(refused, Error::Device(DeviceError::Driver { .. })), "{refused}");
            assert_eq!(shop.replayer.last_stream().map(StreamHandle::id), Some(shop.stream.id()));
            assert_eq!(shop.replayer.slab(node).unwrap().epoch().get(), 1);
            drop(replay_on(&mut shop, node, &side, &x));
            shop.verdict();
        }
    }
}

#[test]
fn a_use_that_cannot_be_declared_is_not() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
    let (stream, side) = (shop.stream.clone(), shop.device.create_stream().unwrap());
    for call in [Driver::CreateEvent, Driver::RecordEvent] {
        shop.device.inject(Fault::at(call, 1, Failure::Driver(1)));
        assert!(shop.replayer.used_on(&side).is_err());
        shop.device.clear_faults();
    }
    let before = shop.device.counts();
    drop(replay_on(&mut shop, node, &stream, &x));
    assert_eq!(shop.device.counts().since(&before).total(), 1);
}

#[test]
fn a_replayer_is_moved_between_threads_behind_a_lock() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let device = Arc::clone(&shop.device);
        let replayer: Mutex<Replayer<SimDevice>> = Mutex::new(shop.replayer);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let stream = device.create_stream().unwrap();
                    for _ in 0..25 {
                        let inputs = [kept(&x)];
                        let call = Call::new(&stream, Step::new(2), &inputs);
                        let mut replayer = replayer.lock().unwrap();
                        let mut replayed = replayer.replay(node, &call).unwrap();
                        // Handles may be dropped while another thread holds the lock.
                        let output = replayed.outputs.take(SlotIndex::new(0)).unwrap();
                        drop(replayed);
                        drop(output);
                        drop(replayer);
                    }
                });
            }
        });
        assert_eq!(replayer.into_inner().unwrap().replays(node), Some(100));
        device.verdict().unwrap();
    }
}

#[test]
fn a_handle_that_is_dropped_on_another_thread_is_dead_for_the_next_replay() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
    let stream = shop.stream.clone();
    let output = replay_on(&mut shop, node, &stream, &x);
    assert!(shop.replay(node, &[kept(&x)]).is_err());
    std::thread::spawn(move || drop(output)).join().unwrap();
    assert!(shop.replay(node, &[kept(&x)]).is_ok());
}
