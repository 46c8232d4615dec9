//! Managed inputs: outputs of the path, which are at their recorded addresses already.

use graphgrove_device::Call as Driver;
use graphgrove_replay::{Error, Expected, Input, Method, Mismatch, NodeKey};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{InputIndex, SlotIndex, Step, Tensor};

use crate::workshop::{BOTH, Body, N, Out, Shop, Task, kept, take};

const FIRST: InputIndex = InputIndex::new(0);
const SLOT: SlotIndex = SlotIndex::new(0);

/// A root with two outputs, one more than its input and two more, and a child that sums what it is given.
struct Pair {
    shop: Shop,
    x: Tensor,
    root: NodeKey,
}

fn root(method: Method) -> Pair {
    let mut shop = Shop::new(method);
    let x = shop.tensor(1.0);
    let stream = shop.stream.clone();
    let inputs = [kept(&x)];
    let task = Task::new(graphgrove_replay::Call::new(&stream, Step::new(1), &inputs));
    let body = |body: &mut Body<'_>| {
        let x = body.input(0);
        Ok(vec![Out::Returned(body.sum(&[&x], 1.0)?), Out::Returned(body.sum(&[&x], 2.0)?)])
    };
    let root = shop.record(task, body).unwrap().node;
    Pair { shop, x, root }
}

impl Pair {
    /// Runs the root again.
    fn outputs(&mut self) -> [Tensor; 2] {
        let mut replayed = self.shop.replay(self.root, &[kept(&self.x)]).unwrap();
        [take(&mut replayed, 0), take(&mut replayed, 1)]
    }

    fn child(&mut self, inputs: &[Input<'_, SimDevice>]) -> NodeKey {
        self.shop.record_sum(Some(self.root), inputs).unwrap().node
    }

    /// Why a child does not fit; nothing reached the driver.
    fn refusal(&mut self, child: NodeKey, inputs: &[Input<'_, SimDevice>]) -> Mismatch {
        let before = self.shop.device.counts();
        let Err(Error::Mismatch(mismatch)) = self.shop.replay(child, inputs) else {
            unreachable!("the call fits")
        };
        assert_eq!(self.shop.device.counts(), before);
        mismatch
    }
}

#[test]
fn an_output_of_the_path_is_read_where_it_is() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        let child = pair.child(&[kept(&a), kept(&b)]);
        drop((a, b));
        for value in [5.0, 7.0] {
            pair.x = pair.shop.tensor(value);
            let [a, b] = pair.outputs();
            let (mut replayed, made) = pair.shop.count(child, &[kept(&a), kept(&b)]);
            assert_eq!((made.total(), made.of(Driver::LaunchExec)), (1, 1), "{method:?}: {made}");
            let sum = take(&mut replayed, 0);
            assert_eq!(pair.shop.value(&sum), 2.0 * value + 3.0);
        }
        pair.shop.verdict();
    }
}

#[test]
fn another_output_of_the_same_node_is_refused() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, _b] = pair.outputs();
        let child = pair.child(&[kept(&a)]);
        drop((a, _b));
        let [_a, b] = pair.outputs();
        let refused = pair.refusal(child, &[kept(&b)]);
        assert_eq!(refused, Mismatch::Managed { input: FIRST, place: 0, slot: SLOT });
    }
}

#[test]
fn another_view_of_the_output_is_refused() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, _b] = pair.outputs();
        let view = |tensor: &Tensor, from: u64| tensor.slice(0, from..from + N / 2, 1).unwrap();
        let low = view(&a, 0);
        let child = pair.child(&[kept(&low)]);
        assert!(matches!(pair.shop.replayer.expected(child), Some([Expected::Managed { offset: 0, .. }])));
        drop((a, _b, low));
        let [a, _b] = pair.outputs();
        let refused = pair.refusal(child, &[kept(&view(&a, N / 2))]);
        assert_eq!(refused, Mismatch::Managed { input: FIRST, place: 0, slot: SLOT });
        let refused = pair.refusal(child, &[kept(&a)]);
        assert!(matches!(refused, Mismatch::Signature { input: FIRST, .. }), "{refused}");
        let low = view(&a, 0);
        assert_eq!(pair.shop.run(child, &[kept(&low)]), 2.0);
        pair.shop.verdict();
    }
}

#[test]
fn a_tensor_from_elsewhere_is_refused() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, _b] = pair.outputs();
        let child = pair.child(&[kept(&a)]);
        let x = pair.x.clone();
        let refused = pair.refusal(child, &[kept(&x)]);
        assert_eq!(refused, Mismatch::Managed { input: FIRST, place: 0, slot: SLOT });
        let refused = pair.refusal(child, &[Input::Value(1)]);
        assert_eq!(refused, Mismatch::Kind { input: FIRST });
    }
}

#[test]
fn a_value_of_an_earlier_run_is_refused_although_its_address_is_right() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, _b] = pair.outputs();
        let child = pair.child(&[kept(&a)]);
        pair.shop.replayer.end_path(Step::new(2), None).unwrap();
        let [_a, _b] = pair.outputs();
        let refused = pair.refusal(child, &[kept(&a)]);
        let stale = a.storage().stale().unwrap();
        assert_eq!(refused, Mismatch::Stale { input: FIRST, stale });
    }
}

#[test]
fn an_input_that_dies_in_the_recording_has_to_be_given_up() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        drop(b);
        let child = pair.child(&[Input::given_up(&a)]);
        drop(a);
        assert!(matches!(pair.shop.replayer.expected(child), Some([Expected::Managed { dies: true, .. }])));
        let [a, b] = pair.outputs();
        drop(b);
        assert_eq!(pair.refusal(child, &[kept(&a)]), Mismatch::StillHeld { input: FIRST });
        assert_eq!(pair.shop.run(child, &[Input::given_up(&a)]), 2.0);
        pair.shop.verdict();
    }
}

#[test]
fn an_input_that_is_given_up_while_somebody_else_holds_it_is_refused() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        drop(b);
        let child = pair.child(&[Input::given_up(&a)]);
        drop(a);
        let [a, b] = pair.outputs();
        drop(b);
        let clone = a.clone();
        assert_eq!(pair.refusal(child, &[Input::given_up(&a)]), Mismatch::StillHeld { input: FIRST });
        drop(clone);
        let view = a.slice(0, 0..1, 1).unwrap();
        assert_eq!(pair.refusal(child, &[Input::given_up(&a)]), Mismatch::StillHeld { input: FIRST });
        drop(view);
        let storage = a.storage().clone();
        assert_eq!(pair.refusal(child, &[Input::given_up(&a)]), Mismatch::StillHeld { input: FIRST });
        drop(storage);
        assert!(pair.shop.replay(child, &[Input::given_up(&a)]).is_ok());
        pair.shop.verdict();
    }
}

#[test]
fn an_input_beside_one_that_dies_in_the_recording_may_be_kept() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        let child = pair.child(&[Input::given_up(&a), kept(&b)]);
        drop((a, b));
        let dies = pair.shop.replayer.expected(child).unwrap().iter().map(|input| match input {
            Expected::Managed { dies, .. } => *dies,
            _ => unreachable!("both are outputs of the root"),
        });
        assert_eq!(dies.collect::<Vec<_>>(), [true, false]);
        let [a, b] = pair.outputs();
        assert_eq!(pair.refusal(child, &[kept(&a), kept(&b)]), Mismatch::StillHeld { input: FIRST });
        assert_eq!(pair.shop.run(child, &[Input::given_up(&a), kept(&b)]), 5.0);
        pair.shop.verdict();
    }
}

#[test]
fn an_input_that_is_given_up_is_held_by_a_sibling_that_waits_to_be_taken() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let task = Task::new(graphgrove_replay::Call::new(&stream, Step::new(1), &inputs));
        let body = |body: &mut Body<'_>| {
            let sum = body.sum(&[&body.input(0)], 1.0)?;
            Ok(vec![Out::Returned(sum.clone()), Out::Returned(sum)])
        };
        let root = shop.record(task, body).unwrap().node;
        let run = |shop: &mut Shop| shop.replay(root, &[kept(&x)]).unwrap();
        let output = take(&mut run(&mut shop), 0);
        let child = shop.record_sum(Some(root), &[Input::given_up(&output)]).unwrap().node;
        drop(output);
        let mut replayed = run(&mut shop);
        let output = take(&mut replayed, 0);
        let refused = shop.replay(child, &[Input::given_up(&output)]).unwrap_err();
        assert_eq!(refused, Mismatch::StillHeld { input: FIRST }.into(), "{method:?}");
        drop(replayed);
        assert_eq!(shop.run(child, &[Input::given_up(&output)]), 2.0);
        shop.verdict();
    }
}

#[test]
fn an_output_that_waits_to_be_taken_is_held() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        drop((a, b));
        let [a, b] = pair.outputs();
        let child = pair.child(&[Input::given_up(&a)]);
        drop((a, b));
        let mut replayed = pair.shop.replay(pair.root, &[kept(&pair.x)]).unwrap();
        let b = take(&mut replayed, 1);
        assert_eq!(
            pair.refusal(child, &[Input::given_up(&b)]),
            Mismatch::Managed { input: FIRST, place: 0, slot: SLOT }
        );
        let a = take(&mut replayed, 0);
        drop(b);
        assert_eq!(pair.shop.run(child, &[Input::given_up(&a)]), 2.0);
        drop(replayed);
    }
}

#[test]
fn two_inputs_may_give_up_one_value_together_and_one_alone_may_not() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        drop(b);
        let twin = a.clone();
        let child = pair.child(&[Input::given_up(&a), Input::given_up(&twin)]);
        drop((a, twin));
        let [a, b] = pair.outputs();
        drop(b);
        let twin = a.clone();
        let half = pair.refusal(child, &[Input::given_up(&a), kept(&twin)]);
        assert_eq!(half, Mismatch::StillHeld { input: FIRST });
        let half = pair.refusal(child, &[kept(&a), Input::given_up(&twin)]);
        assert_eq!(half, Mismatch::StillHeld { input: FIRST });
        let third = a.clone();
        let refused = pair.refusal(child, &[Input::given_up(&a), Input::given_up(&twin)]);
        assert_eq!(refused, Mismatch::StillHeld { input: FIRST });
        drop(third);
        assert_eq!(pair.shop.run(child, &[Input::given_up(&a), Input::given_up(&twin)]), 4.0);
        pair.shop.verdict();
    }
}

#[test]
fn an_input_may_be_given_up_where_the_recording_does_not_need_it() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        let child = pair.child(&[kept(&a)]);
        drop((a, b));
        let [a, b] = pair.outputs();
        let clone = a.clone();
        assert_eq!(pair.shop.run(child, &[Input::given_up(&a)]), 2.0);
        drop((a, b, clone));
    }
}

#[test]
fn a_staged_view_may_give_its_output_up_too_and_others_may_not_hold_it() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        drop(b);
        // It is not aligned, so it is staged although it lies on the path.
        let odd = a.slice(0, 1..N, 1).unwrap();
        drop(a);
        let child = pair.child(&[Input::given_up(&odd)]);
        assert!(matches!(pair.shop.replayer.expected(child), Some([Expected::Staged { .. }])));
        drop(odd);
        let elsewhere = pair.shop.tensor(5.0).slice(0, 0..N - 1, 1).unwrap();
        let [a, b] = pair.outputs();
        drop(b);
        let odd = a.slice(0, 1..N, 1).unwrap();
        let still_live = Mismatch::StillLive { place: 0, slot: SLOT };
        assert_eq!(pair.refusal(child, &[Input::given_up(&odd)]), still_live, "there is another handle");
        assert_eq!(pair.refusal(child, &[kept(&odd)]), still_live);
        assert_eq!(pair.refusal(child, &[kept(&elsewhere)]), still_live);
        drop(a);
        assert_eq!(pair.shop.run(child, &[Input::given_up(&odd)]), 2.0);
        drop(odd);
        drop(pair.outputs());
        assert_eq!(pair.shop.run(child, &[kept(&elsewhere)]), 5.0);
        pair.shop.verdict();
    }
}

#[test]
fn a_value_that_a_backward_needs_is_not_given_up() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let call = graphgrove_replay::Call::new(&stream, Step::new(1), &inputs);
        let body = |body: &mut Body<'_>| Ok(vec![Out::Both(body.sum(&[&body.input(0)], 0.0)?)]);
        let mut first = shop.record(Task::new(call), body).unwrap();
        let (root, output) = (first.node, take(&mut first, 0));
        drop(first);
        let child = shop.record_sum(Some(root), &[Input::given_up(&output)]).unwrap().node;
        drop(output);
        let mut again = shop.replay(root, &inputs).unwrap();
        let output = take(&mut again, 0);
        let refused = shop.replay(child, &[Input::given_up(&output)]).unwrap_err();
        assert_eq!(refused, Mismatch::StillHeld { input: FIRST }.into());
        drop(again);
        assert_eq!(shop.run(child, &[Input::given_up(&output)]), 1.0);
    }
}

#[test]
fn a_managed_input_that_is_written_to_is_written_where_it_is() {
    for method in BOTH {
        let mut pair = root(method);
        let [a, b] = pair.outputs();
        let stream = pair.shop.stream.clone();
        let inputs = [kept(&a)];
        let call = graphgrove_replay::Call::new(&stream, Step::new(1), &inputs);
        let body = |body: &mut Body<'_>| {
            body.bump(&body.input(0), 10.0)?;
            Ok(vec![Out::NotTensor])
        };
        let child = pair.shop.record(Task::new(call).below(pair.root).mutating(&[0]), body).unwrap().node;
        assert_eq!(pair.shop.value(&a), 12.0);
        drop((a, b));
        let [a, _b] = pair.outputs();
        drop(pair.shop.replay(child, &[kept(&a)]).unwrap());
        assert_eq!(pair.shop.value(&a), 12.0);
        pair.shop.verdict();
    }
}
