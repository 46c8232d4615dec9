//! Staged inputs: from anywhere, copied to a recorded address by the graph itself.

use graphgrove_device::{Call as Driver, Work};
use graphgrove_replay::{Input, Method, Mismatch, Route, StagePlan};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{InputIndex, InputPlan, InputSpec, Tensor};

use crate::workshop::{BOTH, N, Shop, kept, numbers, take};

#[test]
fn a_replay_with_the_addresses_of_the_last_one_is_one_driver_call() {
    let mut shop = Shop::new(Method::Fast);
    let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
    let node = shop.record_sum(None, &[kept(&a), kept(&b)]).unwrap().node;
    for _ in 0..3 {
        let (_, made) = shop.count(node, &[kept(&a), kept(&b)]);
        assert_eq!((made.total(), made.of(Driver::LaunchExec)), (1, 1), "{made}");
    }
    shop.verdict();
}

#[test]
fn changed_addresses_cost_one_more_driver_call_however_many_changed() {
    let mut shop = Shop::new(Method::Fast);
    let old: Vec<Tensor> = (0..8).map(|value| shop.tensor(value as f32)).collect();
    let new: Vec<Tensor> = (0..8).map(|value| shop.tensor(10.0 + value as f32)).collect();
    let inputs: Vec<Input<'_, SimDevice>> = old.iter().map(kept).collect();
    let node = shop.record_sum(None, &inputs).unwrap().node;
    assert_eq!(shop.replayer.patches(node), Some(1));
    for changed in [1, 3, 8] {
        let mixed = new.iter().take(changed).chain(old.iter().skip(changed));
        let inputs: Vec<Input<'_, SimDevice>> = mixed.map(kept).collect();
        let (mut replayed, made) = shop.count(node, &inputs);
        assert_eq!((made.total(), made.of(Driver::PatchGather)), (2, 1), "{changed} changed: {made}");
        let sum = take(&mut replayed, 0);
        assert_eq!(shop.value(&sum), 28.0 + 10.0 * changed as f32);
        drop((replayed, sum));
        let (_, made) = shop.count(node, &inputs);
        assert_eq!(made.total(), 1, "{changed} the same again: {made}");
    }
    shop.verdict();
}

#[test]
fn an_address_that_comes_back_is_written_back() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        for (input, value) in [(&b, 2.0), (&a, 1.0), (&a, 1.0), (&b, 2.0)] {
            assert_eq!(shop.run(node, &[kept(input)]), value);
        }
        shop.verdict();
    }
}

#[test]
fn the_reference_path_copies_each_piece_by_itself() {
    let mut shop = Shop::new(Method::Reference);
    let (a, b, rows) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor_of(&numbers(4 * 64)));
    let pieces = rows.reshape(&[4, 64]).unwrap().slice(1, 0..16, 1).unwrap();
    let inputs = [kept(&a), kept(&b), kept(&pieces)];
    let node = shop.record_sum(None, &inputs).unwrap().node;
    let (_, made) = shop.count(node, &inputs);
    assert_eq!((made.of(Driver::Copy), made.of(Driver::LaunchExec), made.total()), (6, 1, 7), "{made}");
    assert_eq!(shop.replayer.patches(node), Some(0));
    shop.verdict();
}

#[test]
fn a_launch_that_is_enqueued_keeps_the_addresses_that_it_had() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        // Both are enqueued before the device has done anything.
        let first = shop.replay(node, &[kept(&a)]).unwrap();
        drop(first);
        let mut second = shop.replay(node, &[kept(&b)]).unwrap();
        let sum = take(&mut second, 0);
        assert_eq!(shop.value(&sum), 2.0);
        shop.verdict();
    }
}

#[test]
fn a_strided_input_is_copied_in_the_pieces_that_it_has() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let view = |tensor: &Tensor| tensor.reshape(&[4, 64]).unwrap().slice(1, 8..24, 1).unwrap();
        let (a, b) = (shop.tensor_of(&numbers(256)), shop.tensor_of(&numbers(256)));
        let (a, b) = (view(&a), view(&b));
        let mut first = shop.record_sum(None, &[kept(&a)]).unwrap();
        let expected = shop.values(&a);
        let sum = take(&mut first, 0);
        assert_eq!(shop.values(&sum), expected);
        let node = first.node;
        drop((first, sum));
        let (mut again, made) = shop.count(node, &[kept(&b)]);
        let sum = take(&mut again, 0);
        assert_eq!(shop.values(&sum), expected);
        let calls = if method == Method::Fast { 2 } else { 5 };
        assert_eq!(made.total(), calls, "{method:?}: {made}");
        shop.verdict();
    }
}

#[test]
fn gaps_of_a_strided_input_need_not_be_written_memory() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let whole = |shop: &Shop| {
            let tensor = shop.tensor_of(&numbers(256));
            let rows = tensor.reshape(&[4, 64]).unwrap();
            // The gaps are given back, as those of a block that is shared with others.
            for row in 0..4 {
                let gap = rows.select(0, row).unwrap().slice(0, 16..64, 1).unwrap().address().unwrap();
                let released = graphgrove_device::Annotation::Released { at: gap, bytes: 4 * 48 };
                shop.device.annotate(&shop.stream, released).unwrap();
            }
            rows.slice(1, 0..16, 1).unwrap()
        };
        let (a, b) = (whole(&shop), whole(&shop));
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        let mut again = shop.replay(node, &[kept(&b)]).unwrap();
        let sum = take(&mut again, 0);
        assert_eq!(shop.values(&sum), shop.values(&b));
        shop.verdict();
    }
}

#[test]
fn an_input_in_very_many_pieces_is_copied_from_its_first_byte_to_its_last() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let view = |tensor: &Tensor| tensor.slice(0, 1..128, 2).unwrap();
        let (a, b) = (shop.tensor_of(&numbers(128)), shop.tensor_of(&numbers(256)[128..]));
        let (a, b) = (view(&a), view(&b));
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        let (mut again, made) = shop.count(node, &[kept(&b)]);
        let sum = take(&mut again, 0);
        assert_eq!(shop.values(&sum), shop.values(&b));
        assert_eq!(made.total(), 2, "{method:?}: {made}");
        shop.verdict();
    }
}

#[test]
fn an_expanded_input_is_copied_once_for_all_its_elements() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor_of(&[7.0]), shop.tensor_of(&[8.0]));
        let (a, b) = (a.expand(&[N]).unwrap(), b.expand(&[N]).unwrap());
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        let (mut again, made) = shop.count(node, &[kept(&b)]);
        let sum = take(&mut again, 0);
        assert_eq!((shop.value(&sum), sum.shape()), (8.0, &[N][..]));
        assert_eq!(made.total(), 2, "{method:?}: {made}");
        shop.verdict();
    }
}

#[test]
fn one_tensor_passed_twice_is_copied_once_and_has_to_be_passed_twice_again() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let node = shop.record_sum(None, &[kept(&a), kept(&a)]).unwrap().node;
        let (mut twice, made) = shop.count(node, &[kept(&b), kept(&b)]);
        let sum = take(&mut twice, 0);
        assert_eq!((shop.value(&sum), made.total()), (4.0, 2), "{method:?}: {made}");
        drop((twice, sum));
        let refused = shop.replay(node, &[kept(&a), kept(&b)]).unwrap_err();
        assert_eq!(refused, Mismatch::Sharing { input: InputIndex::new(0) }.into());
        shop.verdict();
    }
}

#[test]
fn inputs_that_overlap_are_staged_with_their_overlap() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor_of(&numbers(96)), shop.tensor_of(&numbers(192)[96..]));
        let views =
            |tensor: &Tensor| (tensor.slice(0, 32..96, 1).unwrap(), tensor.slice(0, 0..64, 1).unwrap());
        let ((upper, lower), (new_upper, new_lower)) = (views(&a), views(&b));
        let node = shop.record_sum(None, &[kept(&upper), kept(&lower)]).unwrap().node;
        let (mut again, made) = shop.count(node, &[kept(&new_upper), kept(&new_lower)]);
        let sum = take(&mut again, 0);
        let expected: Vec<f32> = (0..64).map(|i| (96 + 32 + i + 96 + i) as f32).collect();
        assert_eq!((shop.values(&sum), made.total()), (expected, 2), "{method:?}: {made}");
        drop((again, sum));
        let apart = b.slice(0, 31..95, 1).unwrap();
        let refused = shop.replay(node, &[kept(&apart), kept(&new_lower)]).unwrap_err();
        assert_eq!(refused, Mismatch::Sharing { input: InputIndex::new(1) }.into(), "{method:?}");
        shop.verdict();
    }
}

#[test]
fn inputs_recorded_apart_may_not_come_to_share_memory() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let tensors: Vec<Tensor> = (0..4).map(|value| shop.tensor(value as f32)).collect();
        let inputs: Vec<Input<'_, SimDevice>> = tensors.iter().map(kept).collect();
        let node = shop.record_sum(None, &inputs).unwrap().node;
        let refused = shop.replay(node, &[inputs[0], inputs[3], inputs[2], inputs[3]]).unwrap_err();
        assert_eq!(refused, Mismatch::Sharing { input: InputIndex::new(1) }.into(), "{method:?}");
        let whole = shop.tensor_of(&vec![1.0; 4 * N as usize]);
        let from = |at: u64| whole.slice(0, at..at + N, 1).unwrap();
        let (touches, meets, met, apart) = (from(0), from(N), from(N + 16), shop.tensor(4.0));
        let refused = shop.replay(node, &[kept(&touches), kept(&meets), kept(&met), kept(&apart)]);
        assert_eq!(
            refused.unwrap_err(),
            Mismatch::Sharing { input: InputIndex::new(1) }.into(),
            "{method:?}"
        );
        // Neighbours that only touch are apart.
        let whole = shop.tensor_of(&vec![1.0; 4 * N as usize]);
        let parts: Vec<Tensor> = (0..4).map(|at| whole.slice(0, at * N..(at + 1) * N, 1).unwrap()).collect();
        assert_eq!(shop.run(node, &parts.iter().rev().map(kept).collect::<Vec<_>>()), 4.0);
        shop.verdict();
    }
}

#[test]
fn both_paths_name_the_same_input_of_those_that_share() {
    let named = BOTH.map(|method| {
        let mut shop = Shop::new(method);
        let (whole, other, more) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor(3.0));
        let tail = whole.slice(0, 16..64, 1).unwrap();
        // The second group's first input has the lower number, the first group's first byte is that of the last input.
        let inputs = [kept(&tail), kept(&other), kept(&more), kept(&whole)];
        let node = shop.record_constant(&inputs).node;
        let shared = [kept(&tail), kept(&whole), kept(&more), kept(&whole)];
        shop.replay(node, &shared).unwrap_err()
    });
    assert_eq!(named[0], named[1]);
    assert_eq!(named[0], Mismatch::Sharing { input: InputIndex::new(3) }.into());
}

#[test]
fn inputs_beyond_one_gather_node_take_another_one() {
    let mut shop = Shop::new(Method::Fast);
    let rows = shop.device.gather_rows();
    let tensors: Vec<Tensor> = (0..=rows).map(|_| shop.tensor(1.0)).collect();
    let inputs: Vec<Input<'_, SimDevice>> = tensors.iter().map(kept).collect();
    let node = shop.record_sum(None, &inputs).unwrap().node;
    assert_eq!(shop.replayer.patches(node), Some(2));
    for changed in [vec![0], vec![rows], vec![0, rows]] {
        let values: Vec<Tensor> = changed.iter().map(|_| shop.tensor(3.0)).collect();
        let mut other = inputs.clone();
        for (at, value) in changed.iter().zip(&values) {
            other[*at] = kept(value);
        }
        for (inputs, value) in [(&other, rows + 1 + 2 * changed.len()), (&inputs, rows + 1)] {
            let (mut replayed, made) = shop.count(node, inputs);
            let sum = take(&mut replayed, 0);
            assert_eq!(shop.value(&sum), value as f32);
            let patched = (made.of(Driver::PatchGather), made.total());
            assert_eq!(patched, (changed.len() as u64, 1 + changed.len() as u64), "{changed:?}: {made}");
        }
    }
    shop.verdict();
}

#[test]
fn as_many_inputs_as_one_gather_node_takes_need_one() {
    let mut shop = Shop::new(Method::Fast);
    let rows = shop.device.gather_rows();
    let tensors: Vec<Tensor> = (0..rows).map(|_| shop.tensor(1.0)).collect();
    let inputs: Vec<Input<'_, SimDevice>> = tensors.iter().map(kept).collect();
    let node = shop.record_sum(None, &inputs).unwrap().node;
    assert_eq!(shop.replayer.patches(node), Some(1));
    assert_eq!(shop.run(node, &inputs), rows as f32);
    shop.verdict();
}

#[test]
fn a_call_without_staged_inputs_stages_nothing() {
    let mut shop = Shop::new(Method::Fast);
    let node = shop.record_constant(&[]).node;
    assert_eq!(shop.replayer.patches(node), Some(0));
    let (mut replayed, made) = shop.count(node, &[]);
    let output = take(&mut replayed, 0);
    assert_eq!((shop.value(&output), made.total()), (1.0, 1));
    shop.verdict();
}

#[test]
fn a_plan_says_how_long_the_buffers_are_that_copied_inputs_need() {
    let shop = Shop::new(Method::Fast);
    let (a, b) = (shop.tensor_of(&numbers(64)), shop.tensor_of(&numbers(3)));
    let apart = shop.tensor_of(&numbers(8)).slice(0, 1..8, 3).unwrap();
    let inputs = [Some(&a), Some(&b), Some(&apart)];
    let specs = inputs.map(|tensor| InputSpec::read(tensor.unwrap()));
    let plan = InputPlan::new(&specs, 16, |_| false).unwrap();
    let of = |route: &dyn Fn(u32) -> Route| {
        let stage = StagePlan::new(&plan, &inputs, |staged| route(staged.inputs[0].get())).unwrap();
        stage.buffers().collect::<Vec<_>>()
    };
    let all = of(&|_| Route::Copied);
    assert!(all.len() == 3 && all[0] == 256 && (12..=16).contains(&all[1]) && all[2] >= 4 * 7, "{all:?}");
    assert_eq!(of(&|input| if input == 1 { Route::Patched } else { Route::Copied }), [all[0], all[2]]);
    assert!(of(&|_| Route::Patched).is_empty());
}
