//! What a replay hands back.

use graphgrove_replay::{Call, Error, Input, Mismatch, NodeKey, ParamSet, Replayed};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{Layout, OutputClass, SlotIndex, Step, Storage, Tensor};

use crate::workshop::{BOTH, Body, N, Out, Shop, Task, kept, take};

fn record(
    shop: &mut Shop,
    inputs: &[Input<'_, SimDevice>],
    body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Out>, Error>,
) -> Replayed {
    let stream = shop.stream.clone();
    shop.record(Task::new(Call::new(&stream, Step::new(1), inputs)), body).unwrap()
}

fn class(shop: &Shop, node: NodeKey, output: usize) -> OutputClass {
    shop.replayer.slab(node).unwrap().outputs()[output].class
}

#[test]
fn an_output_in_a_staged_input_is_the_callers_own_tensor() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let mut first = record(&mut shop, &[kept(&a)], |body| {
            let x = body.input(0);
            Ok(vec![Out::Returned(x.slice(0, 8..16, 1)?), Out::Returned(x)])
        });
        let node = first.node;
        assert!(matches!(class(&shop, node, 0), OutputClass::StagedInput { .. }));
        for (input, replayed) in [(&a, &mut first), (&b, &mut shop.replay(node, &[kept(&b)]).unwrap())] {
            let (view, whole) = (take(replayed, 0), take(replayed, 1));
            assert!(whole.shares_storage(input).unwrap() && view.shares_storage(input).unwrap());
            assert_eq!(view.address().unwrap(), input.address().unwrap().checked_add(32).unwrap());
            assert_eq!((whole.signature(), view.shape()), (input.signature(), &[8][..]));
        }
        assert_eq!((shop.value(&a), shop.value(&b)), (1.0, 2.0));
        shop.verdict();
    }
}

#[test]
fn an_output_that_would_not_lie_in_its_input_is_refused_before_the_launch() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (whole, short) = (shop.tensor(1.0), shop.tensor_of(&[2.0; 8]));
        let [head, other] = [0, 16].map(|from| whole.slice(0, from..from + 8, 1).unwrap());
        // A function may look behind the view that it is given, and return more of its storage.
        let first = record(&mut shop, &[kept(&head)], |body| {
            let x = body.input(0);
            let more = Tensor::new(x.storage().clone(), Layout::of::<f32>(&[40])?, x.offset_bytes())?;
            Ok(vec![Out::Returned(more)])
        });
        let node = first.node;
        drop(first);
        let more = take(&mut shop.replay(node, &[kept(&other)]).unwrap(), 0);
        assert_eq!((more.address(), more.shape()), (other.address(), &[40][..]));
        let before = shop.device.counts();
        for input in [&short, &whole.slice(0, 32..40, 1).unwrap()] {
            let refused = shop.replay(node, &[kept(input)]).unwrap_err();
            assert_eq!(refused, Mismatch::OutputOutside { output: SlotIndex::new(0) }.into());
        }
        assert_eq!(shop.device.counts(), before);
    }
}

#[test]
fn an_output_in_a_parameter_and_one_in_a_constant_are_those_tensors() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (weight, constant) = (shop.tensor(3.0), shop.tensor(4.0));
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        let stream = shop.stream.clone();
        let call = Call::new(&stream, Step::new(1), &[]).with_params(&params);
        let part = constant.slice(0, 4..8, 1).unwrap();
        let returned = part.clone();
        let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.input(0)), Out::Returned(returned)]);
        let mut first = shop.record(Task::new(call), body).unwrap();
        let node = first.node;
        let mut again = shop.replayer.replay(node, &call).unwrap();
        for replayed in [&mut first, &mut again] {
            let (param, captured) = (take(replayed, 0), take(replayed, 1));
            assert!(param.shares_storage(&weight).unwrap() && captured.shares_storage(&constant).unwrap());
            assert_eq!((shop.value(&param), shop.value(&captured)), (3.0, 4.0));
            assert_eq!((captured.address(), captured.shape()), (part.address(), part.shape()));
        }
        shop.verdict();
    }
}

#[test]
fn all_that_is_left_is_taken_at_once_in_order() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let node = record(&mut shop, &[kept(&x)], |body| {
            let x = body.input(0);
            let made = [1.0, 2.0, 3.0].map(|more| body.sum(&[&x], more));
            made.into_iter().map(|out| out.map(Out::Returned)).collect()
        })
        .node;
        let values = |shop: &Shop, list: &[Option<Tensor>]| -> Vec<Option<f32>> {
            list.iter().map(|output| output.as_ref().map(|output| shop.value(output))).collect()
        };
        let all = [Some(2.0), Some(3.0), Some(4.0)];
        let mut replayed = shop.replay(node, &[kept(&x)]).unwrap();
        let each = replayed.outputs.take_all();
        assert_eq!((each.len(), each.size_hint()), (3, (3, Some(3))));
        let list: Vec<_> = each.collect();
        assert_eq!(values(&shop, &list), all, "{method:?}");
        drop((list, replayed));

        let mut replayed = shop.replay(node, &[kept(&x)]).unwrap();
        let mut list = vec![None];
        replayed.outputs.take_into(&mut list);
        assert_eq!(values(&shop, &list), [None, Some(2.0), Some(3.0), Some(4.0)], "{method:?}");
        list.clear();
        replayed.outputs.take_into(&mut list);
        assert_eq!(values(&shop, &list), [None, None, None], "they were taken");
        shop.verdict();
    }
}

#[test]
fn two_outputs_in_one_block_live_and_die_together() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let mut first = record(&mut shop, &[kept(&x)], |body| {
            let sum = body.sum(&[&body.input(0)], 0.0)?;
            Ok(vec![Out::Returned(sum.clone()), Out::Returned(sum.slice(0, 32..64, 2)?)])
        });
        let node = first.node;
        assert_eq!(class(&shop, node, 1), OutputClass::Sibling(SlotIndex::new(0)));
        drop(first.outputs.take_all().flatten().collect::<Vec<_>>());
        drop(first);
        let mut again = shop.replay(node, &[kept(&x)]).unwrap();
        let (owner, sibling) = (take(&mut again, 0), take(&mut again, 1));
        assert!(owner.shares_storage(&sibling).unwrap());
        assert_eq!(sibling.address().unwrap(), owner.address().unwrap().checked_add(128).unwrap());
        drop((owner, again));
        assert!(shop.replayer.slab(node).unwrap().is_live(SlotIndex::new(0)));
        assert_eq!((shop.value(&sibling), sibling.strides()), (1.0, &[2][..]));
        drop(sibling);
        assert!(!shop.replayer.slab(node).unwrap().any_live());
        shop.verdict();
    }
}

#[test]
fn an_output_in_an_earlier_slot_counts_for_that_slot() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let mut root = shop.record_sum(None, &[kept(&x)]).unwrap();
        let (root_node, output) = (root.node, take(&mut root, 0));
        drop(root);
        let stream = shop.stream.clone();
        let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.input(0).slice(0, 0..4, 1)?)]);
        let inputs = [Input::given_up(&output)];
        let task = Task::new(Call::new(&stream, Step::new(1), &inputs)).below(root_node);
        let child = shop.record(task, body).unwrap().node;
        assert!(matches!(class(&shop, child, 0), OutputClass::EarlierSlot { input: Some(_), .. }));
        drop(output);
        let output = take(&mut shop.replay(root_node, &[kept(&x)]).unwrap(), 0);
        let view = take(&mut shop.replay(child, &[Input::given_up(&output)]).unwrap(), 0);
        assert!(view.shares_storage(&output).unwrap());
        drop(output);
        assert!(shop.replayer.slab(root_node).unwrap().any_live());
        assert_eq!((shop.value(&view), view.shape()), (1.0, &[4][..]));
        drop(view);
        assert!(!shop.replayer.slab(root_node).unwrap().any_live());
        shop.verdict();
    }
}

#[test]
fn an_output_in_an_earlier_slot_that_no_input_reaches_has_no_source() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let mut root = shop.record_sum(None, &[kept(&x)]).unwrap();
        let output = take(&mut root, 0);
        let stream = shop.stream.clone();
        let task = Task::new(Call::new(&stream, Step::new(1), &[])).below(root.node);
        let refused = shop.record(task, |_| Ok(vec![Out::Returned(output.clone())])).unwrap_err();
        assert!(
            matches!(refused, Error::NoSource { output, .. } if output == SlotIndex::new(0)),
            "{refused}"
        );
        assert_eq!(shop.replayer.path(), [root.node]);
    }
}

#[test]
fn outputs_without_elements_and_what_is_no_tensor_are_handed_back_as_such() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let empty = Tensor::new(Storage::empty(), Layout::of::<f32>(&[0, 3]).unwrap(), 0).unwrap();
        let mut first = record(&mut shop, &[], |_| Ok(vec![Out::NotTensor, Out::Returned(empty.clone())]));
        let node = first.node;
        let mut again = shop.replay(node, &[]).unwrap();
        for replayed in [&mut first, &mut again] {
            assert_eq!((replayed.outputs.len(), replayed.outputs.is_empty()), (2, false));
            assert!(replayed.outputs.take(SlotIndex::new(0)).is_none());
            let none = take(replayed, 1);
            assert_eq!((none.shape(), none.address().unwrap().is_null()), (&[0, 3][..], true));
            assert!(replayed.outputs.take(SlotIndex::new(1)).is_none(), "it was taken");
            assert!(replayed.outputs.take(SlotIndex::new(2)).is_none(), "there is no such output");
        }
        assert!(!shop.replayer.slab(node).unwrap().any_live());
    }
}

#[test]
fn saved_outputs_stay_with_their_token() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(5.0);
        let first = record(&mut shop, &[kept(&x)], |body| {
            let x = body.input(0);
            let (one, two) = (body.sum(&[&x], 1.0)?, body.sum(&[&x], 2.0)?);
            Ok(vec![Out::Returned(one), Out::Saved(two), Out::Saved(x.clone()), Out::Both(x)])
        });
        let node = first.node;
        drop(first);
        let Replayed { mut outputs, saved, .. } = shop.replay(node, &[kept(&x)]).unwrap();
        let saved = saved.unwrap();
        assert!(outputs.take(SlotIndex::new(1)).is_none(), "no handle of it is handed back");
        assert!(outputs.take(SlotIndex::new(2)).is_none());
        assert!(outputs.take(SlotIndex::new(3)).unwrap().shares_storage(&x).unwrap());
        drop(outputs);
        assert_eq!(saved.outputs().map(SlotIndex::get).collect::<Vec<_>>(), [1, 2, 3]);
        let slab = shop.replayer.slab(node).unwrap();
        assert_eq!(slab.live().collect::<Vec<_>>(), [SlotIndex::new(1)]);
        let [fresh, alias] = [1, 2].map(|output| saved.tensor(SlotIndex::new(output)).unwrap());
        assert_eq!((shop.value(&fresh), shop.value(&alias)), (7.0, 5.0));
        let refused = shop.replay(node, &[kept(&x)]).unwrap_err();
        assert_eq!(refused, Mismatch::TailLive { place: 0, slot: SlotIndex::new(1) }.into());
        drop((fresh, alias, saved));
        assert!(shop.replay(node, &[kept(&x)]).is_ok());
        shop.verdict();
    }
}

#[test]
fn repeated_replays_use_the_same_slots_in_new_epochs() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let mut first = shop.record_sum(None, &[kept(&x)]).unwrap();
        let node = first.node;
        let address = take(&mut first, 0).address().unwrap();
        drop(first);
        for run in 2..6 {
            let mut replayed = shop.replay(node, &[kept(&x)]).unwrap();
            let output = take(&mut replayed, 0);
            assert_eq!(output.address().unwrap(), address);
            assert_eq!(shop.replayer.slab(node).unwrap().epoch().get(), run);
            assert_eq!(output.storage().slot_value().unwrap().unwrap().epoch.get(), run);
        }
        assert_eq!(shop.replayer.replays(node), Some(4));
    }
}

#[test]
fn outputs_in_memory_that_the_caller_wrapped_twice_are_handed_back() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let a = shop.tensor(1.0);
        // As from another framework, which hands the same memory out as two tensors. Both come back from one call.
        let wrapped = |tensor: &Tensor| {
            let (at, bytes) = (tensor.address().unwrap(), 4 * N);
            Tensor::new(Storage::unowned(at, bytes), tensor.layout().clone(), 0).unwrap()
        };
        let (one, two) = (wrapped(&a), wrapped(&a));
        let params = ParamSet::new(vec![one.clone(), two.clone()]).unwrap();
        let stream = shop.stream.clone();
        let call = Call::new(&stream, Step::new(1), &[]).with_params(&params);
        let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.input(0)), Out::Returned(body.input(1))]);
        let node = shop.record(Task::new(call), body).unwrap().node;
        let mut again = shop.replayer.replay(node, &call).unwrap();
        assert!(take(&mut again, 0).shares_storage(&one).unwrap(), "{method:?}");
        assert!(take(&mut again, 1).shares_storage(&two).unwrap(), "{method:?}");
    }
}
