//! Inputs from anywhere that the function writes to: copied in, and back, by the graph itself.

use graphgrove_device::{Call as Driver, Memory, SegmentMemory};
use graphgrove_replay::{
    Call, Error, Input, MOST_RUNS, Method, Mismatch, NodeKey, ParamSet, Recorder, Route, StagePlan,
};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{Conflict, InputIndex, InputPlan, InputSpec, Step, Storage, Tensor};

use crate::workshop::{BOTH, Body, N, Out, Shop, Task, kept, numbers, take};

/// Records a function that adds 1 to its first input and returns the sum of all.
fn record(shop: &mut Shop, inputs: &[Input<'_, SimDevice>]) -> Result<NodeKey, Error> {
    let stream = shop.stream.clone();
    let count = inputs.len();
    let task = Task::new(Call::new(&stream, Step::new(1), inputs)).mutating(&[0]);
    let body = |body: &mut Body<'_>| {
        body.bump(&body.input(0), 1.0)?;
        let inputs: Vec<Tensor> = (0..count).map(|input| body.input(input)).collect();
        Ok(vec![Out::Returned(body.sum(&inputs.iter().collect::<Vec<_>>(), 0.0)?)])
    };
    Ok(shop.record(task, body)?.node)
}

#[test]
fn a_mutated_input_is_written_once_for_each_call() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(0.0), shop.tensor(100.0));
        let node = record(&mut shop, &[kept(&a)]).unwrap();
        assert_eq!(shop.value(&a), 1.0, "the first run counts");
        for times in 1..20 {
            assert_eq!(shop.run(node, &[kept(&a)]), 1.0 + times as f32);
            assert_eq!(shop.run(node, &[kept(&b)]), 100.0 + times as f32);
            assert_eq!((shop.value(&a), shop.value(&b)), (1.0 + times as f32, 100.0 + times as f32));
        }
        shop.verdict();
    }
}

#[test]
fn what_a_rehearsal_writes_to_a_staged_input_is_brought_back_too() {
    let shop = Shop::new(Method::Fast);
    let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
    let spec = |tensor| InputSpec { mutated: true, ..InputSpec::read(tensor) };
    let plan = InputPlan::new(&[spec(&a), InputSpec::read(&b)], 16, |_| false).unwrap();
    let inputs = [Some(&a), Some(&b)];
    let stage = StagePlan::new(&plan, &inputs, |_| Route::Copied).unwrap();
    let segment = shop.device.allocate(4096).unwrap();
    let mut room = segment.base();
    let buffer = |bytes| {
        let at = room;
        room = room.checked_add(bytes).unwrap();
        Ok::<_, Error>(Storage::unowned(at, bytes))
    };
    let mut recorder = Recorder::rehearse(&*shop.device, &shop.stream, stage, &inputs, buffer).unwrap();
    let staged = recorder.passed()[0].clone().unwrap();
    assert_ne!(staged.address(), a.address());
    recorder.fill(&shop.stream, staged.address().unwrap(), 0, 4 * N).unwrap();
    drop(recorder.rehearsed().unwrap());
    assert_eq!((shop.value(&a), shop.value(&b)), (0.0, 2.0));
    shop.verdict();
}

#[test]
fn calls_that_are_enqueued_together_each_write_once() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let a = shop.tensor(0.0);
        let node = record(&mut shop, &[kept(&a)]).unwrap();
        for _ in 0..50 {
            drop(shop.replay(node, &[kept(&a)]).unwrap());
        }
        assert_eq!(shop.value(&a), 51.0);
        shop.verdict();
    }
}

#[test]
fn a_changed_address_costs_one_driver_call_to_copy_in_and_one_for_each_piece_to_copy_back() {
    let mut shop = Shop::new(Method::Fast);
    let rows = |tensor: &Tensor| tensor.reshape(&[3, 64]).unwrap().slice(1, 0..16, 1).unwrap();
    let (a, b) = (shop.tensor_of(&numbers(192)), shop.tensor_of(&numbers(192)));
    let (a, b) = (rows(&a), rows(&b));
    let node = record(&mut shop, &[kept(&a)]).unwrap();
    assert_eq!(shop.replayer.patches(node), Some(4));
    for (input, patches) in [(&a, 0), (&b, 1), (&b, 0), (&a, 1)] {
        let (_, made) = shop.count(node, &[kept(input)]);
        let patched = (made.of(Driver::PatchGather), made.of(Driver::PatchCopy), made.total());
        assert_eq!(patched, (patches, 3 * patches, 1 + 4 * patches), "{made}");
    }
    shop.verdict();
}

#[test]
fn the_gaps_of_a_mutated_input_are_left_alone() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let whole = [shop.tensor_of(&numbers(4 * 64)), shop.tensor_of(&numbers(4 * 64))];
        let views = [0, 1].map(|at: usize| whole[at].reshape(&[4, 64]).unwrap().slice(1, 8..24, 1).unwrap());
        let node = record(&mut shop, &[kept(&views[0])]).unwrap();
        // Between the launches somebody else writes to the gaps, which must not be undone.
        for (at, gap) in [(0, 1000.0), (1, 2000.0), (0, 3000.0)] {
            let before = shop.values(&whole[at]);
            shop.write(&whole[at].slice(0, 24..64, 1).unwrap(), &[gap; 40]);
            drop(shop.replay(node, &[kept(&views[at])]).unwrap());
            let after = shop.values(&whole[at]);
            for (i, (before, after)) in before.iter().zip(&after).enumerate() {
                let expected = match i % 64 {
                    8..24 => before + 1.0,
                    _ if (24..64).contains(&i) => gap,
                    _ => *before,
                };
                assert_eq!(*after, expected, "element {i}, {method:?}");
            }
        }
        shop.verdict();
    }
}

#[test]
fn a_mutated_input_in_too_many_pieces_is_refused_and_one_less_is_not() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let whole = shop.tensor_of(&numbers(2 * (MOST_RUNS + 1)));
        let most = whole.slice(0, 0..2 * MOST_RUNS, 2).unwrap();
        let node = record(&mut shop, &[kept(&most)]).unwrap();
        drop(shop.replay(node, &[kept(&most)]).unwrap());
        let expected: Vec<f32> = (0..2 * (MOST_RUNS + 1))
            .map(|i| (i + 2 * u64::from(i % 2 == 0 && i < 2 * MOST_RUNS)) as f32)
            .collect();
        assert_eq!(shop.values(&whole), expected);
        let too_many = whole.slice(0, 0..2 * (MOST_RUNS + 1), 2).unwrap();
        let refused = record(&mut shop, &[kept(&too_many)]).unwrap_err();
        let input = InputIndex::new(0);
        assert_eq!(refused, Error::TooScattered { input, runs: MOST_RUNS + 1, most: MOST_RUNS });
        shop.route = Route::Patched;
        assert!(record(&mut shop, &[kept(&too_many)]).is_ok(), "in place it does not matter");
        shop.verdict();
    }
}

#[test]
fn a_mutated_input_passed_twice_is_one_memory() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(0.0), shop.tensor(10.0));
        let node = record(&mut shop, &[kept(&a), kept(&a)]).unwrap();
        assert_eq!(shop.value(&a), 1.0);
        assert_eq!(shop.run(node, &[kept(&b), kept(&b)]), 22.0);
        assert_eq!(shop.value(&b), 11.0);
        shop.verdict();
    }
}

#[test]
fn a_mutated_input_next_to_one_that_is_read_is_copied_back_alone() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let views = |tensor: &Tensor| {
            let rows = tensor.reshape(&[4, 32]).unwrap();
            (rows.slice(1, 0..16, 1).unwrap(), rows.slice(1, 16..32, 1).unwrap())
        };
        let (a, b) = (shop.tensor_of(&[0.0; 128]), shop.tensor_of(&[10.0; 128]));
        let ((left, right), (new_left, new_right)) = (views(&a), views(&b));
        // They lie between each other, so they are staged together, but share no element.
        let node = record(&mut shop, &[kept(&left), kept(&right)]).unwrap();
        drop(shop.replay(node, &[kept(&new_left), kept(&new_right)]).unwrap());
        assert_eq!((shop.value(&left), shop.value(&right)), (1.0, 0.0));
        assert_eq!((shop.value(&new_left), shop.value(&new_right)), (11.0, 10.0));
        shop.verdict();
    }
}

#[test]
fn inputs_that_overlap_in_part_and_are_written_to_are_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let whole = shop.tensor_of(&numbers(N + 8));
        let (low, high) = (whole.slice(0, 0..N, 1).unwrap(), whole.slice(0, 8..N + 8, 1).unwrap());
        let refused = record(&mut shop, &[kept(&high), kept(&low)]).unwrap_err();
        let conflict = Conflict::PartialOverlap { a: InputIndex::new(1), b: InputIndex::new(0) };
        assert_eq!(refused, graphgrove_storage::Error::Refused(conflict).into());
        assert_eq!(shop.values(&whole), numbers(N + 8), "nothing has run");
    }
}

#[test]
fn a_mutated_input_may_not_come_to_lie_in_a_parameter() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (a, b, weight) = (shop.tensor(0.0), shop.tensor(1.0), shop.tensor(5.0));
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        let stream = shop.stream.clone();
        let inputs = [kept(&a)];
        let call = Call::new(&stream, Step::new(1), &inputs).with_params(&params);
        let body = |body: &mut Body<'_>| {
            let (x, w) = (body.input(0), body.input(1));
            body.bump(&x, 1.0)?;
            Ok(vec![Out::Returned(body.sum(&[&x, &w], 0.0)?)])
        };
        let node = shop.record(Task::new(call).mutating(&[0]), body).unwrap().node;
        let called = |shop: &mut Shop, x: &Tensor| {
            let inputs = [kept(x)];
            let call = Call::new(&stream, Step::new(2), &inputs).with_params(&params);
            let mut replayed = shop.replayer.replay(node, &call)?;
            let sum = take(&mut replayed, 0);
            Ok::<_, Error>(shop.value(&sum))
        };
        let refused = called(&mut shop, &weight).unwrap_err();
        assert_eq!(refused, Mismatch::Sharing { input: InputIndex::new(0) }.into());
        assert_eq!(called(&mut shop, &b), Ok(7.0));
        assert_eq!((shop.value(&weight), shop.value(&b)), (5.0, 2.0));
        shop.verdict();
    }
}

#[test]
fn inputs_that_lie_where_they_were_recorded_fit_even_between_the_elements_of_a_parameter() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (whole, other) = (shop.tensor_of(&[0.0; 128]), shop.tensor_of(&[10.0; 32]));
        let (even, odd) = (whole.slice(0, 0..64, 2).unwrap(), whole.slice(0, 1..64, 2).unwrap());
        let plain = shop.tensor_of(&[1.0; 32]);
        let params = ParamSet::new(vec![even]).unwrap();
        let stream = shop.stream.clone();
        let inputs = [kept(&odd), kept(&plain)];
        let call = Call::new(&stream, Step::new(1), &inputs).with_params(&params);
        let body = |body: &mut Body<'_>| {
            let (x, y, w) = (body.input(0), body.input(1), body.input(2));
            body.bump(&x, 1.0)?;
            Ok(vec![Out::Returned(body.sum(&[&x, &y, &w], 0.0)?)])
        };
        let node = shop.record(Task::new(call).mutating(&[0]), body).unwrap().node;
        let mut called = |x: &Tensor, y: &Tensor| {
            let inputs = [kept(x), kept(y)];
            let call = Call::new(&stream, Step::new(2), &inputs).with_params(&params);
            let mut replayed = shop.replayer.replay(node, &call)?;
            let sum = take(&mut replayed, 0);
            Ok::<_, Error>(shop.value(&sum))
        };
        assert_eq!(called(&odd, &plain), Ok(3.0), "{method:?}");
        assert_eq!(called(&odd, &other), Ok(13.0), "{method:?}: another input has moved");
        assert_eq!(called(&odd, &plain), Ok(5.0), "{method:?}: and back");
        shop.verdict();
    }
}
