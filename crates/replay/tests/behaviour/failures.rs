//! What a driver call that fails leaves behind: everything as it was.

use graphgrove_device::{Call as Driver, Capture, CaptureStatus, DeviceError, Streams};
use graphgrove_replay::{Call, Error, Method, NodeKey, Replayed};
use graphgrove_sim::{Failure, Fault, SimStream};
use graphgrove_storage::{Epoch, SlotIndex, Step, Tensor};

use crate::workshop::{BOTH, Body, Out, Shop, Task, kept, take};

/// What a failed call must not change.
#[derive(Debug, PartialEq)]
struct State {
    path: Vec<NodeKey>,
    predicted: Option<NodeKey>,
    nodes: Vec<(Epoch, Vec<SlotIndex>, u64)>,
}

fn state(shop: &Shop, nodes: &[NodeKey]) -> State {
    let replayer = &shop.replayer;
    let of = |node: &NodeKey| {
        let slab = replayer.slab(*node).unwrap();
        (slab.epoch(), slab.live().collect(), replayer.replays(*node).unwrap())
    };
    State {
        path: replayer.path().to_vec(),
        predicted: replayer.predicted(),
        nodes: nodes.iter().map(of).collect(),
    }
}

/// One set of inputs for the node below: one that is written to, one that is copied, one that is patched.
struct Set {
    mutated: Tensor,
    copied: Tensor,
    patched: Tensor,
}

impl Set {
    fn new(shop: &Shop, value: f32) -> Self {
        let [mutated, copied, patched] = [1.0, 2.0, 3.0].map(|factor| shop.tensor(factor * value));
        Self { mutated, copied, patched }
    }
}

struct Rig {
    shop: Shop,
    root: NodeKey,
    child: NodeKey,
    /// An output of the root, which stays live.
    held: Tensor,
    streams: [SimStream; 2],
}

fn rig(method: Method) -> (Rig, [Set; 2]) {
    let mut shop = Shop::patching(method);
    shop.copied = &[0, 1];
    let sets = [Set::new(&shop, 1.0), Set::new(&shop, 10.0)];
    let mut first = shop.record_sum(None, &[kept(&sets[0].copied)]).unwrap();
    let (root, held) = (first.node, take(&mut first, 0));
    let stream = shop.stream.clone();
    let inputs = [kept(&sets[0].mutated), kept(&sets[0].copied), kept(&sets[0].patched)];
    let task = Task::new(Call::new(&stream, Step::new(1), &inputs)).below(root).mutating(&[0]);
    let body = |body: &mut Body<'_>| {
        let [mutated, copied, patched] = [0, 1, 2].map(|input| body.input(input));
        body.bump(&mutated, 0.5)?;
        Ok(vec![Out::Returned(body.sum(&[&mutated, &copied, &patched, &patched], 0.0)?)])
    };
    let child = shop.record(task, body).unwrap().node;
    let streams = [stream, shop.device.create_stream().unwrap()];
    (Rig { shop, root, child, held, streams }, sets)
}

impl Rig {
    fn replay(&mut self, set: &Set, stream: usize) -> Result<Replayed, Error> {
        let inputs = [kept(&set.mutated), kept(&set.copied), kept(&set.patched)];
        let call = Call::new(&self.streams[stream], Step::new(2), &inputs);
        self.shop.replayer.replay(self.child, &call)
    }

    fn check_value(&mut self, set: &Set, stream: usize) {
        let before = self.shop.value(&set.mutated);
        let (copied, patched) = (self.shop.value(&set.copied), self.shop.value(&set.patched));
        let mut replayed = self.replay(set, stream).unwrap();
        let output = take(&mut replayed, 0);
        assert_eq!(self.shop.value(&output), before + 0.5 + copied + 2.0 * patched);
        assert_eq!(self.shop.value(&set.mutated), before + 0.5, "written once");
    }
}

#[test]
fn whichever_driver_call_of_a_replay_fails_nothing_has_changed_and_the_next_call_is_right() {
    for method in BOTH {
        let (mut rig, sets) = rig(method);
        let nodes = [rig.root, rig.child];
        let mut failed = 0;
        for nth in 1..100 {
            // All addresses and the stream differ from those of the last launch.
            let (set, stream) = (&sets[nth % 2], nth % 2);
            rig.check_value(&sets[1 - nth % 2], 1 - nth % 2);
            let before = state(&rig.shop, &nodes);
            let mutated = rig.shop.value(&set.mutated);
            let launches = rig.shop.device.counts();
            rig.shop.device.inject(Fault::at_any(nth as u64, Failure::Driver(700)));
            let outcome = rig.replay(set, stream);
            rig.shop.device.clear_faults();
            let Err(error) = outcome else { break };
            failed += 1;
            assert!(matches!(error, Error::Device(DeviceError::Driver { code: 700, .. })), "{error}");
            assert_eq!(state(&rig.shop, &nodes), before, "{method:?}: call {nth} failed");
            let made = rig.shop.device.counts().since(&launches);
            if method == Method::Fast || made.of(Driver::LaunchExec) == 0 {
                assert_eq!(rig.shop.value(&set.mutated), mutated, "nothing has run");
            }
            assert_eq!(rig.shop.value(&rig.held), 2.0);
            // With the inputs of the failed call, or with those of the one before.
            rig.check_value(&sets[(nth + nth / 2) % 2], stream);
        }
        // Fast: a gather, a copy back, two kernels, two for the order, the launch.
        let expected = if method == Method::Fast { 7 } else { 8 };
        assert_eq!(failed, expected, "{method:?}");
        rig.shop.verdict();
    }
}

#[test]
fn patches_that_were_half_done_are_done_again_for_inputs_that_did_not_change() {
    for method in BOTH {
        for nth in 1..=2 {
            let (mut rig, sets) = rig(method);
            rig.check_value(&sets[0], 0);
            rig.shop.device.inject(Fault::at(Driver::PatchKernel, nth, Failure::Driver(1)));
            assert!(rig.replay(&sets[1], 0).is_err());
            // The exec has some of the other set's addresses by now, although this call's are those written last.
            rig.check_value(&sets[0], 0);
            let before = rig.shop.device.counts();
            rig.check_value(&sets[0], 0);
            let made = rig.shop.device.counts().since(&before);
            assert_eq!(made.of(Driver::PatchKernel) + made.of(Driver::PatchGather), 0, "{made}");
            rig.shop.verdict();
        }
    }
}

#[test]
fn patches_that_fail_time_and_again_are_done_in_the_end() {
    let (mut rig, sets) = rig(Method::Fast);
    for turn in 0..6 {
        rig.shop.device.inject(Fault::at_any(1 + turn % 4, Failure::Driver(1)));
        assert!(rig.replay(&sets[turn as usize % 2], 0).is_err());
        rig.shop.device.clear_faults();
    }
    rig.check_value(&sets[1], 0);
    rig.check_value(&sets[0], 0);
    rig.shop.verdict();
}

#[test]
fn whichever_driver_call_of_a_recording_fails_no_capture_is_open_and_the_next_recording_works() {
    for method in BOTH {
        for failure in [Failure::Driver(700), Failure::InvalidateCaptures] {
            let mut failed = 0;
            for nth in 1..20 {
                let mut shop = Shop::new(method);
                let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
                let stream = shop.stream.clone();
                let inputs = [kept(&a), kept(&b)];
                let task = || Task::new(Call::new(&stream, Step::new(1), &inputs)).mutating(&[0]);
                let body = |body: &mut Body<'_>| {
                    let (a, b) = (body.input(0), body.input(1));
                    body.bump(&a, 1.0)?;
                    Ok(vec![Out::Returned(body.sum(&[&a, &b], 0.0)?)])
                };
                shop.device.inject(Fault::at_any(nth, failure.clone()));
                let outcome = shop.add(task(), body);
                shop.device.clear_faults();
                if outcome.is_ok() {
                    // There are not so many calls, or no capture was open to be invalidated.
                    continue;
                }
                failed += 1;
                let status = shop.device.capture_status(&stream).unwrap();
                assert_eq!(status, CaptureStatus::None, "{method:?}: call {nth}");
                assert_eq!((shop.value(&a), shop.replayer.path()), (1.0, &[][..]));
                let mut first = shop.record(task(), body).unwrap();
                let sum = take(&mut first, 0);
                assert_eq!((shop.value(&sum), shop.value(&a)), (4.0, 2.0));
                shop.verdict();
            }
            assert!(failed >= 5, "{method:?} {failure:?}: {failed} failures");
        }
    }
}

#[test]
fn a_first_run_that_fails_can_be_run_again() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(3.0);
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let call = Call::new(&stream, Step::new(1), &inputs);
        let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.sum(&[&body.input(0)], 0.0)?)]);
        let (node, recorded) = shop.add(Task::new(call), body).unwrap();
        assert_eq!((shop.replayer.path(), shop.replayer.replays(node)), (&[][..], Some(0)));
        shop.device.inject(Fault::at(Driver::LaunchExec, 1, Failure::Driver(2)));
        assert!(shop.replayer.launch_recorded(node, &call, &recorded).is_err());
        assert_eq!(shop.replayer.slab(node).unwrap().epoch().get(), 0);
        let (mut first, owners) = shop.replayer.launch_recorded(node, &call, &recorded).unwrap();
        assert_eq!(owners.len(), 1);
        let output = take(&mut first, 0);
        assert_eq!(shop.value(&output), 3.0);
        drop((output, first, recorded));
        assert!(!shop.replayer.slab(node).unwrap().any_live());
        shop.verdict();
    }
}

#[test]
fn a_device_that_is_poisoned_says_so_at_every_later_call_and_everything_can_be_dropped() {
    for method in BOTH {
        let (mut rig, sets) = rig(method);
        let nodes = [rig.root, rig.child];
        let before = state(&rig.shop, &nodes);
        rig.shop.device.inject(Fault::at(Driver::LaunchExec, 1, Failure::Poison));
        for _ in 0..3 {
            let Err(Error::Device(error)) = rig.replay(&sets[1], 1) else { unreachable!("it is poisoned") };
            assert!(error.is_fatal(), "{error}");
            assert_eq!(state(&rig.shop, &nodes), before);
        }
        rig.shop.replayer.end_path(Step::new(3), None).unwrap();
        assert!(rig.held.address().is_err());
        for node in nodes {
            drop(rig.shop.replayer.remove(node).unwrap());
        }
    }
}
