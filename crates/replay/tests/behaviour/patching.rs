//! Patched inputs: their addresses are written into the recorded work that uses them.

use std::sync::Arc;

use graphgrove_device::{Args, Call as Driver, LaunchDims, Streams, Work};
use graphgrove_replay::{
    Call, Costs, Error, Expected, Input, Method, Mismatch, NodeKey, ParamSet, Recorder, Replayed, Route,
    StagePlan, Unpatchable, Uses,
};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{InputIndex, InputPlan, InputSpec, Step, Tensor};

use crate::workshop::{BOTH, Body, N, Out, Shop, Task, kept, numbers, take};

const FIRST: InputIndex = InputIndex::new(0);

fn record(
    shop: &mut Shop,
    inputs: &[Input<'_, SimDevice>],
    body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Out>, Error>,
) -> Result<Replayed, Error> {
    let stream = shop.stream.clone();
    shop.record(Task::new(Call::new(&stream, Step::new(1), inputs)), body)
}

fn refusal(
    shop: &mut Shop,
    inputs: &[Input<'_, SimDevice>],
    body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Out>, Error>,
) -> (InputIndex, Unpatchable) {
    let segments = shop.replayer.path().to_vec();
    let refused = record(shop, inputs, body).unwrap_err();
    assert_eq!(shop.replayer.path(), segments);
    let status = graphgrove_device::Capture::capture_status(&*shop.device, &shop.stream).unwrap();
    assert_eq!(status, graphgrove_device::CaptureStatus::None);
    let Error::Unpatchable { input, why } = refused else { unreachable!("{refused}") };
    (input, why)
}

#[test]
fn a_patched_input_is_read_where_it_is() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        assert!(matches!(
            shop.replayer.expected(node),
            Some([Expected::Staged { route: Route::Patched, .. }])
        ));
        assert_eq!((shop.replayer.patches(node), shop.replayer.patched_nodes(node, FIRST)), (Some(1), 1));
        for (input, value, patches) in [(&a, 1.0, 0), (&b, 2.0, 1), (&b, 2.0, 0), (&a, 1.0, 1)] {
            let (mut replayed, made) = shop.count(node, &[kept(input)]);
            let sum = take(&mut replayed, 0);
            assert_eq!(shop.value(&sum), value);
            assert_eq!((made.of(Driver::PatchKernel), made.total()), (patches, 1 + patches), "{made}");
        }
        shop.verdict();
    }
}

#[test]
fn each_node_that_has_the_address_is_patched_once_however_often_it_has_it() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let mut first = record(&mut shop, &[kept(&a)], |body| {
            let x = body.input(0);
            let (twice, out) = (body.fresh(N)?, body.fresh(N)?);
            body.add(&x, &x, &twice)?;
            body.add(&twice, &x, &out)?;
            let sum = body.sum(&[&out, &x], 0.0)?;
            Ok(vec![Out::Returned(sum)])
        })
        .unwrap();
        let (node, sum) = (first.node, take(&mut first, 0));
        assert_eq!(shop.value(&sum), 4.0);
        drop((first, sum));
        assert_eq!(shop.replayer.patched_nodes(node, FIRST), 3);
        let (mut replayed, made) = shop.count(node, &[kept(&b)]);
        let sum = take(&mut replayed, 0);
        assert_eq!((shop.value(&sum), made.of(Driver::PatchKernel), made.total()), (8.0, 3, 4), "{made}");
        shop.verdict();
    }
}

#[test]
fn addresses_inside_of_an_input_move_with_it() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, b) = (shop.tensor_of(&numbers(128)), shop.tensor_of(&numbers(256)[128..]));
        let mut first = record(&mut shop, &[kept(&a)], |body| {
            let x = body.input(0);
            let (low, high) = (x.slice(0, 0..64, 1)?, x.slice(0, 64..128, 1)?);
            let odd = x.slice(0, 1..128, 2)?;
            Ok(vec![Out::Returned(body.sum(&[&low, &high, &odd], 0.0)?)])
        })
        .unwrap();
        let (node, sum) = (first.node, take(&mut first, 0));
        let expected = |from: usize| -> Vec<f32> {
            (0..64).map(|i| (from + i + from + 64 + i + from + 1 + 2 * i) as f32).collect()
        };
        assert_eq!(shop.values(&sum), expected(0));
        drop((first, sum));
        for (input, from) in [(&b, 128), (&a, 0)] {
            let mut replayed = shop.replay(node, &[kept(input)]).unwrap();
            let sum = take(&mut replayed, 0);
            assert_eq!(shop.values(&sum), expected(from), "{method:?}");
        }
        shop.verdict();
    }
}

#[test]
fn a_copy_is_patched_at_both_ends() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let (to_a, to_b) = (shop.tensor(0.0), shop.tensor(0.0));
        let stream = shop.stream.clone();
        let inputs = [kept(&a), kept(&to_a)];
        let task = Task::new(Call::new(&stream, Step::new(1), &inputs)).mutating(&[1]);
        let node = shop
            .record(task, |body| {
                let (from, to) = (body.input(0), body.input(1));
                body.recorder.copy(&body.stream, to.address()?, from.address()?, 4 * N)?;
                Ok(vec![Out::Returned(body.sum(&[&to], 0.0)?)])
            })
            .unwrap()
            .node;
        assert_eq!(shop.replayer.patched_nodes(node, FIRST), 1);
        let (_, made) = shop.count(node, &[kept(&b), kept(&to_b)]);
        assert_eq!((made.of(Driver::PatchCopy), made.of(Driver::PatchKernel), made.total()), (1, 1, 3));
        assert_eq!((shop.value(&to_a), shop.value(&to_b)), (1.0, 2.0));
        drop(shop.replay(node, &[kept(&b), kept(&to_a)]).unwrap());
        assert_eq!(shop.value(&to_a), 2.0);
        shop.verdict();
    }
}

#[test]
fn a_patched_input_that_is_written_to_is_written_where_it_is() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(10.0));
        let stream = shop.stream.clone();
        let inputs = [kept(&a)];
        let task = Task::new(Call::new(&stream, Step::new(1), &inputs)).mutating(&[0]);
        let bump = |body: &mut Body<'_>| {
            let x = body.input(0);
            body.bump(&x, 1.0)?;
            Ok(vec![Out::Returned(body.sum(&[&x], 0.0)?)])
        };
        let node = shop.record(task, bump).unwrap().node;
        assert_eq!(shop.value(&a), 2.0);
        for times in 1..4 {
            assert_eq!(shop.run(node, &[kept(&b)]), 10.0 + times as f32);
            assert_eq!((shop.value(&a), shop.value(&b)), (2.0, 10.0 + times as f32));
        }
        shop.verdict();
    }
}

#[test]
fn a_new_address_has_to_be_aligned_as_the_recorded_one_was() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, wide) = (shop.tensor(1.0), shop.tensor_of(&vec![2.0; 2 * N as usize]));
        let node = shop.record_sum(None, &[kept(&a)]).unwrap().node;
        let odd = wide.slice(0, 1..N + 1, 1).unwrap();
        let refused = shop.replay(node, &[kept(&odd)]).unwrap_err();
        let address = odd.address().unwrap();
        assert_eq!(refused, Mismatch::Misaligned { input: FIRST, address, alignment: 16 }.into());
        assert_eq!(shop.run(node, &[kept(&wide.slice(0, 4..N + 4, 1).unwrap())]), 2.0);
        // One that was recorded four bytes off has to stay so: kernels may have been chosen for it.
        let node = shop.record_sum(None, &[kept(&odd)]).unwrap().node;
        let refused = shop.replay(node, &[kept(&a)]).unwrap_err();
        assert!(matches!(refused, Error::Mismatch(Mismatch::Misaligned { .. })), "{refused}");
        assert_eq!(shop.run(node, &[kept(&wide.slice(0, 5..N + 5, 1).unwrap())]), 2.0);
        shop.verdict();
    }
}

#[test]
fn a_struct_by_value_forbids_patching() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let a = shop.tensor(1.0);
        let blind = shop.device.kernel("takes a struct", |_| Ok(()));
        let refused = refusal(&mut shop, &[kept(&a)], |body| {
            let args = Args::new().blob(&[0; 16]);
            body.recorder.launch(&body.stream, &blind, LaunchDims::ONE, &args)?;
            Ok(Vec::new())
        });
        let why = Unpatchable::HiddenPointers { kernel: "takes a struct".to_owned() };
        assert_eq!(refused, (FIRST, why));
    }
}

#[test]
fn work_that_the_recorder_does_not_know_forbids_patching() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, other) = (shop.tensor(1.0), shop.tensor(0.0));
        let device = Arc::clone(&shop.device);
        let refused = refusal(&mut shop, &[kept(&a)], |body| {
            let out = body.sum(&[&body.input(0)], 0.0)?;
            device.fill(&body.stream, other.address()?, 0, 16)?;
            Ok(vec![Out::Returned(out)])
        });
        assert_eq!(refused, (FIRST, Unpatchable::UnknownWork { unknown: 1, nodes: 3 }));
    }
}

#[test]
fn a_fill_of_the_input_forbids_patching() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(1.0));
        let refused = refusal(&mut shop, &[kept(&a), kept(&b)], |body| {
            let at = body.input(1).address()?.checked_add(8).unwrap();
            body.recorder.fill(&body.stream, at, 0, 4)?;
            Ok(Vec::new())
        });
        assert_eq!(refused, (InputIndex::new(1), Unpatchable::Filled));
    }
}

#[test]
fn an_input_in_the_memory_of_a_parameter_is_not_patched() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (weight, other) = (shop.tensor(1.0), shop.tensor(5.0));
        let params = ParamSet::new(vec![weight.clone()]).unwrap();
        let stream = shop.stream.clone();
        // The caller passes the weight itself as its ordinary input, too.
        let inputs = [kept(&weight)];
        let call = Call::new(&stream, Step::new(1), &inputs).with_params(&params);
        let body = |body: &mut Body<'_>| {
            let (x, w) = (body.input(0), body.input(1));
            Ok(vec![Out::Returned(body.sum(&[&x, &w], 0.0)?)])
        };
        let refused = shop.record(Task::new(call), body).map(|replayed| replayed.node);
        let why = Unpatchable::Shared { other: InputIndex::new(1) };
        assert_eq!(refused.unwrap_err(), Error::Unpatchable { input: FIRST, why });
        // Copied, it is recorded, and the weight stays what it is.
        shop.route = Route::Copied;
        let node = shop.record(Task::new(call), body).unwrap().node;
        let inputs = [kept(&other)];
        let call = Call::new(&stream, Step::new(2), &inputs).with_params(&params);
        let mut replayed = shop.replayer.replay(node, &call).unwrap();
        let sum = take(&mut replayed, 0);
        assert_eq!(shop.value(&sum), 6.0, "{method:?}");
        shop.verdict();
    }
}

#[test]
fn a_constant_that_is_also_the_patched_input_is_returned_as_what_it_is() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let (constant, other) = (shop.tensor(1.0), shop.tensor(2.0));
        let held = constant.clone();
        let mut first = record(&mut shop, &[kept(&constant), kept(&constant)], |body| {
            Ok(vec![Out::Returned(held), Out::Returned(body.input(0)), Out::Returned(body.input(1))])
        })
        .unwrap();
        let node = first.node;
        drop(first.outputs.take_all().collect::<Vec<_>>());
        let mut again = shop.replay(node, &[kept(&other), kept(&other)]).unwrap();
        let [held, one, two] = [0, 1, 2].map(|output| take(&mut again, output));
        assert!(held.shares_storage(&constant).unwrap(), "{method:?}");
        assert!(one.shares_storage(&other).unwrap() && two.shares_storage(&other).unwrap());
    }
}

#[test]
fn work_that_does_not_touch_the_input_is_not_patched() {
    let mut shop = Shop::patching(Method::Fast);
    let (a, b, constant) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor(4.0));
    let node = record(&mut shop, &[kept(&a)], |body| {
        let three = body.sum(&[&constant, &constant], 0.0)?;
        Ok(vec![Out::Returned(body.sum(&[&three, &body.input(0)], 0.0)?)])
    })
    .unwrap()
    .node;
    assert_eq!(shop.replayer.patches(node), Some(1));
    let (mut replayed, made) = shop.count(node, &[kept(&b)]);
    let sum = take(&mut replayed, 0);
    assert_eq!((shop.value(&sum), made.total()), (10.0, 2), "{made}");
    shop.verdict();
}

/// What a warm-up with so many kernels shows of an input's uses, and of a copy and a fill behind them.
fn rehearsed(shop: &Shop, input: &Tensor, kernels: usize, filled: bool) -> Uses {
    let plan = InputPlan::new(&[InputSpec::read(input)], 16, |_| false).unwrap();
    let stage = StagePlan::new(&plan, &[Some(input)], |_| Route::Copied).unwrap();
    let place = shop.tensor_of(&vec![0.0; input.layout().elements() as usize]);
    let buffer = |_| Ok::<_, Error>(place.storage().clone());
    let mut recorder =
        Recorder::rehearse(&*shop.device, &shop.stream, stage, &[Some(input)], buffer).unwrap();
    let staged = recorder.passed()[0].clone().unwrap();
    let nothing = shop.device.kernel("nothing", |_| Ok(()));
    for _ in 0..kernels {
        let args = Args::new().read(staged.address().unwrap());
        recorder.launch(&shop.stream, &nothing, LaunchDims::ONE, &args).unwrap();
    }
    if filled {
        recorder.fill(&shop.stream, staged.address().unwrap(), 0, 4).unwrap();
    }
    let uses = recorder.rehearsed().unwrap();
    shop.device.synchronize().unwrap();
    uses
}

#[test]
fn the_way_of_an_input_is_chosen_by_its_bytes_and_its_uses_and_can_be_forced() {
    let shop = Shop::new(Method::Fast);
    let (small, large) = (shop.tensor(1.0), shop.tensor_of(&vec![0.0; 1 << 18]));
    let costs = Costs { patch_ns: 300.0, copy_ns: 50.0, bytes_per_ns: 1000.0 };
    let route = |tensor: &Tensor, kernels: usize| -> Option<Route> {
        let uses = rehearsed(&shop, tensor, kernels, false);
        assert_eq!(uses.nodes(FIRST), Some(kernels));
        let plan = InputPlan::new(&[InputSpec::read(tensor)], 16, |_| false).unwrap();
        let stage = StagePlan::new(&plan, &[Some(tensor)], |staged| {
            assert_eq!((staged.inputs, staged.mutated), (&[FIRST][..], false));
            costs.choose(staged.bytes, uses.nodes(FIRST))
        });
        stage.unwrap().route(FIRST)
    };
    assert_eq!((route(&small, 1), route(&large, 1)), (Some(Route::Copied), Some(Route::Patched)));
    assert_eq!((route(&large, 3), route(&large, 4)), (Some(Route::Patched), Some(Route::Copied)));
    let uses = rehearsed(&shop, &large, 1, true);
    assert_eq!((uses.nodes(FIRST), uses.nodes(InputIndex::new(3))), (None, None), "a fill forbids it");
}

#[test]
fn some_inputs_are_patched_and_others_copied() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let tensors: Vec<Tensor> = (1..5).map(|value| shop.tensor(value as f32)).collect();
        let [a, b, c, d] = &tensors[..] else { unreachable!("there are four") };
        let node: NodeKey = shop.record_sum(None, &[kept(a), kept(b)]).unwrap().node;
        shop.route = Route::Copied;
        let copied = shop.record_sum(None, &[kept(a), kept(b)]).unwrap().node;
        for node in [node, copied] {
            assert_eq!(shop.run(node, &[kept(c), kept(b)]), 5.0);
            assert_eq!(shop.run(node, &[kept(c), kept(d)]), 7.0);
            // Each input is where the other one was, which is no reason to mix them up.
            assert_eq!(shop.run(node, &[kept(d), kept(c)]), 7.0);
        }
        shop.verdict();
    }
}
