//! Parameters: inputs whose addresses are declared stable.

use graphgrove_device::Call as Driver;
use graphgrove_replay::{Call, Error, Input, Method, Mismatch, NodeKey, ParamSet, Replayed, param_input};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{Step, Storage, Tensor};

use crate::workshop::{BOTH, Body, N, Out, Shop, Task, kept, take};

/// Records the sum of one input and all parameters.
pub(crate) fn record(shop: &mut Shop, input: &Tensor, params: &ParamSet) -> Result<NodeKey, Error> {
    let stream = shop.stream.clone();
    let inputs = [kept(input)];
    let count = params.tensors().len();
    let call = Call::new(&stream, Step::new(1), &inputs).with_params(params);
    let body = |body: &mut Body<'_>| {
        let all: Vec<Tensor> = (0..=count).map(|input| body.input(input)).collect();
        Ok(vec![Out::Returned(body.sum(&all.iter().collect::<Vec<_>>(), 0.0)?)])
    };
    Ok(shop.record(Task::new(call), body)?.node)
}

pub(crate) fn replay(
    shop: &mut Shop,
    node: NodeKey,
    inputs: &[Input<'_, SimDevice>],
    params: Option<&ParamSet>,
) -> Result<Replayed, Error> {
    let stream = shop.stream.clone();
    let call = Call { params, ..Call::new(&stream, Step::new(2), inputs) };
    shop.replayer.replay(node, &call)
}

pub(crate) fn run(shop: &mut Shop, node: NodeKey, input: &Tensor, params: &ParamSet) -> Result<f32, Error> {
    let mut replayed = replay(shop, node, &[kept(input)], Some(params))?;
    let sum = take(&mut replayed, 0);
    Ok(shop.value(&sum))
}

#[test]
fn parameters_are_used_where_they_are_and_cost_no_driver_call() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let weights: Vec<Tensor> = (0..50).map(|_| shop.tensor(2.0)).collect();
        let params = ParamSet::new(weights.clone()).unwrap();
        let node = record(&mut shop, &x, &params).unwrap();
        shop.write(&weights[7], &vec![3.0; N as usize]);
        let before = shop.device.counts();
        let replayed = replay(&mut shop, node, &[kept(&x)], Some(&params)).unwrap();
        let made = shop.device.counts().since(&before);
        assert_eq!(made.of(Driver::LaunchExec), 1);
        assert_eq!(made.total(), if method == Method::Fast { 1 } else { 2 }, "{made}");
        drop(replayed);
        assert_eq!(run(&mut shop, node, &x, &params), Ok(102.0));
        shop.verdict();
    }
}

#[test]
fn a_parameter_that_is_replaced_at_the_same_address_fits() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, weight) = (shop.tensor(1.0), shop.tensor(2.0));
        let mut params = ParamSet::new(vec![weight.clone()]).unwrap();
        let node = record(&mut shop, &x, &params).unwrap();
        let before = params.version();
        drop(params.replace(0, weight.clone()).unwrap());
        assert_ne!(params.version(), before);
        assert_eq!(run(&mut shop, node, &x, &params), Ok(3.0));
        let again = ParamSet::new(vec![weight]).unwrap();
        assert_eq!(run(&mut shop, node, &x, &again), Ok(3.0), "another set with the same tensors");
        assert_eq!(run(&mut shop, node, &x, &params), Ok(3.0));
        shop.verdict();
    }
}

#[test]
fn a_parameter_that_has_moved_is_refused_by_its_number_and_addresses() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, a, b, c) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor(3.0), shop.tensor(4.0));
        let mut params = ParamSet::new(vec![a.clone(), b.clone()]).unwrap();
        let node = record(&mut shop, &x, &params).unwrap();
        drop(params.replace(1, c.clone()).unwrap());
        let (recorded, called) = (b.address().unwrap(), c.address().unwrap());
        let moved = Error::from(Mismatch::ParamMoved { param: 1, recorded, called });
        for _ in 0..2 {
            let before = shop.device.counts();
            let refused = replay(&mut shop, node, &[kept(&x)], Some(&params)).unwrap_err();
            assert_eq!(refused, moved, "as often as it is tried");
            assert_eq!(shop.device.counts(), before);
        }
        drop(params.replace(1, b).unwrap());
        assert_eq!(run(&mut shop, node, &x, &params), Ok(6.0));
        shop.verdict();
    }
}

#[test]
fn more_fewer_or_no_parameters_are_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, a) = (shop.tensor(1.0), shop.tensor(2.0));
        let params = ParamSet::new(vec![a.clone()]).unwrap();
        let node = record(&mut shop, &x, &params).unwrap();
        let (two, none) = (ParamSet::new(vec![a.clone(), a]).unwrap(), ParamSet::new(Vec::new()).unwrap());
        for (given, called) in [(Some(&two), 2), (Some(&none), 0), (None, 0)] {
            let refused = replay(&mut shop, node, &[kept(&x)], given).unwrap_err();
            assert_eq!(refused, Mismatch::ParamCount { recorded: 1, called }.into());
        }
        let without = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let refused = replay(&mut shop, without, &[kept(&x)], Some(&params)).unwrap_err();
        assert_eq!(refused, Mismatch::ParamCount { recorded: 0, called: 1 }.into());
        assert!(replay(&mut shop, without, &[kept(&x)], Some(&none)).is_ok());
    }
}

#[test]
fn a_parameter_of_another_layout_is_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, a) = (shop.tensor(1.0), shop.tensor(2.0));
        let mut params = ParamSet::new(vec![a.clone()]).unwrap();
        let node = record(&mut shop, &x, &params).unwrap();
        drop(params.replace(0, a.reshape(&[8, 8]).unwrap()).unwrap());
        let refused = replay(&mut shop, node, &[kept(&x)], Some(&params)).unwrap_err();
        assert_eq!(refused, Mismatch::ParamSignature { param: 0 }.into());
    }
}

#[test]
fn a_misaligned_parameter_is_staged_and_may_move() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, aligned) = (shop.tensor(1.0), shop.tensor(2.0));
        let wide = shop.tensor_of(&vec![3.0; 3 * N as usize]);
        let odd = wide.slice(0, 1..N + 1, 1).unwrap();
        let mut params = ParamSet::new(vec![aligned, odd.clone()]).unwrap();
        let node = record(&mut shop, &x, &params).unwrap();
        assert_eq!(run(&mut shop, node, &x, &params), Ok(6.0));
        let new = shop.tensor(10.0);
        drop(params.replace(1, new).unwrap());
        for _ in 0..2 {
            assert_eq!(run(&mut shop, node, &x, &params), Ok(13.0), "{method:?}");
        }
        // Another set is compared by its addresses, not by the number of its last change.
        let mut other = ParamSet::new(params.tensors().to_vec()).unwrap();
        drop(other.replace(1, odd).unwrap());
        assert_eq!(other.version(), params.version());
        for _ in 0..2 {
            assert_eq!(run(&mut shop, node, &x, &other), Ok(6.0), "{method:?}");
            assert_eq!(run(&mut shop, node, &x, &params), Ok(13.0), "{method:?}");
        }
        shop.verdict();
    }
}

#[test]
fn a_staged_parameter_that_has_moved_costs_the_one_patch() {
    let mut shop = Shop::new(Method::Fast);
    let (x, y) = (shop.tensor(1.0), shop.tensor(1.0));
    let wide = shop.tensor_of(&vec![3.0; 3 * N as usize]);
    let odd = |from| wide.slice(0, from..N + from, 1).unwrap();
    let mut params = ParamSet::new(vec![x.clone(), odd(1)]).unwrap();
    let node = record(&mut shop, &x, &params).unwrap();
    let mut made = |input: &Tensor, params: &ParamSet| {
        let before = shop.device.counts();
        drop(replay(&mut shop, node, &[kept(input)], Some(params)).unwrap());
        let made = shop.device.counts().since(&before);
        (made.of(Driver::PatchGather), made.total())
    };
    assert_eq!(made(&x, &params), (0, 1));
    drop(params.replace(1, odd(2)).unwrap());
    assert_eq!(made(&y, &params), (1, 2));
    assert_eq!(made(&y, &params), (0, 1));
    drop(params.replace(1, odd(2)).unwrap());
    assert_eq!(made(&y, &params), (0, 1), "changed, and yet at the same address");
}

#[test]
fn what_is_written_to_a_parameter_in_place_stays_there() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let weight = shop.tensor(0.0);
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        let stream = shop.stream.clone();
        let call = Call::new(&stream, Step::new(1), &[]).with_params(&params);
        let body = |body: &mut Body<'_>| {
            body.bump(&body.input(0), 1.0)?;
            Ok(vec![Out::NotTensor])
        };
        let node = shop.record(Task::new(call).mutating(&[0]), body).unwrap().node;
        for _ in 0..10 {
            drop(replay(&mut shop, node, &[], Some(&params)).unwrap());
        }
        assert_eq!(shop.value(&weight), 11.0);
        shop.verdict();
    }
}

#[test]
fn a_staged_input_may_not_come_to_lie_in_a_parameter_that_is_written_to() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let whole = shop.tensor_of(&vec![2.0; 3 * N as usize]);
        let third = |at: u64| whole.slice(0, at * N..(at + 1) * N, 1).unwrap();
        let (x, y, weight) = (shop.tensor(1.0), third(0), third(1));
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let call = Call::new(&stream, Step::new(1), &inputs).with_params(&params);
        let body = |body: &mut Body<'_>| {
            body.bump(&body.input(1), 1.0)?;
            Ok(vec![Out::Returned(body.sum(&[&body.input(0)], 0.0)?)])
        };
        let node = shop.record(Task::new(call).mutating(&[1]), body).unwrap().node;
        let refused = replay(&mut shop, node, &[kept(&weight)], Some(&params)).unwrap_err();
        assert!(matches!(refused, Error::Mismatch(Mismatch::Sharing { .. })), "{refused}");
        // What only touches it does not lie in it.
        assert_eq!(run(&mut shop, node, &y, &params), Ok(2.0));
        assert_eq!(run(&mut shop, node, &third(2), &params), Ok(2.0));
        assert_eq!(shop.value(&weight), 5.0);
        assert_eq!(param_input(2, 1).get(), 3);
    }
}

#[test]
fn a_parameter_set_keeps_its_memory_alive() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let params = ParamSet::new(vec![shop.tensor(2.0)]).unwrap();
    let node = record(&mut shop, &x, &params).unwrap();
    assert_eq!(run(&mut shop, node, &x, &params), Ok(3.0));
    let segments = shop.device.live_segments();
    drop(params);
    assert_eq!(shop.device.live_segments(), segments - 1, "nothing else held it");
    shop.verdict();
}

#[test]
fn a_parameter_without_memory_is_compared_by_its_layout() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let layout = graphgrove_storage::Layout::of::<f32>(&[0]).unwrap();
        let empty = || Tensor::new(Storage::empty(), layout.clone(), 0).unwrap();
        let mut params = ParamSet::new(vec![empty()]).unwrap();
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let call = Call::new(&stream, Step::new(1), &inputs).with_params(&params);
        let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.sum(&[&body.input(0)], 0.0)?)]);
        let node = shop.record(Task::new(call), body).unwrap().node;
        assert_eq!(run(&mut shop, node, &x, &params), Ok(1.0));
        drop(params.replace(0, empty()).unwrap());
        assert_eq!(run(&mut shop, node, &x, &params), Ok(1.0));
    }
}
