//! Reports from users of other engines, as tests of this crate's part. Each is named by its number and cites its thread.

use graphgrove_device::{Args, Call as Driver, HostMemory, LaunchDims, Memory, Work};
use graphgrove_replay::{Call, Error, Expected, Input, Method, Mismatch, NodeKey, ParamSet, Route};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{InputIndex, Layout, Step, Storage, Tensor};

use crate::parameters;
use crate::workshop::{BOTH, Body, N, Out, Shop, Task, kept, take};

/// pytorch/pytorch#154839: an input that is returned was released during the replay.
#[test]
fn r12_an_input_that_is_returned_is_valid_after_every_replay() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(0.0);
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let body = |body: &mut Body<'_>| {
            let x = body.input(0);
            let more = body.sum(&[&x], 1.0)?;
            Ok(vec![Out::Returned(x), Out::Returned(more)])
        };
        let node = shop.record(Task::new(Call::new(&stream, Step::new(1), &inputs)), body).unwrap().node;
        let segments = shop.device.live_segments();
        for run in 0..100 {
            let value = run as f32;
            let x = shop.tensor(value);
            let mut replayed = shop.replay(node, &[kept(&x)]).unwrap();
            // The caller's last other handle goes before the output is looked at.
            drop(x);
            let (alias, more) = (take(&mut replayed, 0), take(&mut replayed, 1));
            assert_eq!((shop.value(&alias), shop.value(&more)), (value, value + 1.0));
            drop((alias, more, replayed));
            assert_eq!(shop.device.live_segments(), segments, "nothing is left of run {run}");
        }
        assert!(!shop.replayer.slab(node).unwrap().any_live());
        shop.verdict();
    }
}

/// pytorch/pytorch#103126: a saved activation that was not aligned was taken for static, and copied at each run.
#[test]
fn r14_a_misaligned_view_of_an_output_is_staged_and_the_output_itself_is_not() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let stream = shop.stream.clone();
        let inputs = [kept(&x)];
        let body = |body: &mut Body<'_>| Ok(vec![Out::Returned(body.sum(&[&body.input(0)], 1.0)?)]);
        let mut first = shop.record(Task::new(Call::new(&stream, Step::new(1), &inputs)), body).unwrap();
        let (root, p) = (first.node, take(&mut first, 0));
        drop(first);
        let s = p.slice(0, 1..N, 1).unwrap();
        let inputs = [kept(&p), kept(&s)];
        let body = |body: &mut Body<'_>| {
            let (p, s) = (body.input(0), body.input(1));
            Ok(vec![Out::Returned(body.sum(&[&s, &p.slice(0, 0..N - 1, 1)?], 0.0)?)])
        };
        let task = Task::new(Call::new(&stream, Step::new(1), &inputs)).below(root);
        let child = shop.record(task, body).unwrap().node;
        let expected = shop.replayer.expected(child).unwrap();
        assert!(
            matches!(expected, [Expected::Managed { .. }, Expected::Staged { route: Route::Copied, .. }]),
            "{expected:?}"
        );
        drop((p, s));
        for value in [4.0, 6.0] {
            let x = shop.tensor(value);
            let p = take(&mut shop.replay(root, &[kept(&x)]).unwrap(), 0);
            let s = p.slice(0, 1..N, 1).unwrap();
            assert_eq!(shop.run(child, &[kept(&p), kept(&s)]), 2.0 * (value + 1.0));
        }
        shop.verdict();
    }
}

/// pytorch/pytorch#193054: a parameter was swapped for a misaligned buffer.
#[test]
fn r15_a_parameter_swapped_for_a_misaligned_buffer_is_never_launched_with() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let wide = shop.tensor_of(&vec![2.0; N as usize + 4]);
        let weight = wide.slice(0, 0..N, 1).unwrap();
        let vector = shop.device.kernel("vector", |scope| {
            scope.require_alignment(0, 16)?;
            let value = scope.read::<f32>(0, 1)?.get(0);
            scope.write::<f32>(1, N as usize)?.copy_from(&[value; N as usize]);
            Ok(())
        });
        let mut params = ParamSet::new(vec![weight]).unwrap();
        let stream = shop.stream.clone();
        let body = |body: &mut Body<'_>| {
            let out = body.fresh(N)?;
            let args = Args::new().read(body.input(0).address()?).write(out.address()?);
            body.recorder.launch(&body.stream, &vector, LaunchDims::ONE, &args)?;
            Ok(vec![Out::Returned(out)])
        };
        let call = Call::new(&stream, Step::new(1), &[]).with_params(&params);
        let node = shop.record(Task::new(call), body).unwrap().node;
        drop(params.replace(0, wide.slice(0, 1..N + 1, 1).unwrap()).unwrap());
        let before = shop.device.counts();
        let refused = parameters::replay(&mut shop, node, &[], Some(&params)).unwrap_err();
        assert!(matches!(refused, Error::Mismatch(Mismatch::ParamMoved { param: 0, .. })), "{refused}");
        assert_eq!(shop.device.counts(), before);
        // Recorded anew, it is staged to where it is aligned.
        let call = Call::new(&stream, Step::new(1), &[]).with_params(&params);
        let mut first = shop.record(Task::new(call), body).unwrap();
        let output = take(&mut first, 0);
        assert_eq!(shop.value(&output), 2.0);
        shop.verdict();
    }
}

/// Replays the first node that fits, or records another one.
fn call_with(shop: &mut Shop, nodes: &mut Vec<NodeKey>, x: &Tensor, params: &ParamSet) -> f32 {
    for node in nodes.iter() {
        match parameters::run(shop, *node, x, params) {
            Ok(value) => return value,
            Err(Error::Mismatch(_)) => {}
            Err(error) => unreachable!("{error}"),
        }
    }
    nodes.push(parameters::record(shop, x, params).unwrap());
    parameters::run(shop, nodes[nodes.len() - 1], x, params).unwrap()
}

/// pytorch/pytorch#120474: a library moves the weights of a recurrent network to and fro.
#[test]
fn r16_a_parameter_that_moves_to_and_fro_needs_one_recording_for_each_address() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (x, here, there) = (shop.tensor(1.0), shop.tensor(2.0), shop.tensor(5.0));
        let mut params = ParamSet::new(vec![here.clone()]).unwrap();
        let mut nodes = Vec::new();
        for turn in 0..20 {
            let (weight, value) = if turn % 2 == 0 { (&here, 3.0) } else { (&there, 6.0) };
            drop(params.replace(0, weight.clone()).unwrap());
            assert_eq!(call_with(&mut shop, &mut nodes, &x, &params), value);
        }
        assert_eq!(nodes.len(), 2);
        shop.verdict();
    }
}

/// pytorch/pytorch#129349: one of many static inputs changes its address at every step.
#[test]
fn r17_one_weight_that_always_moves_is_copied_alone() {
    let mut shop = Shop::new(Method::Fast);
    let weights: Vec<Tensor> = (0..7).map(|_| shop.tensor(1.0)).collect();
    let params = ParamSet::new(weights).unwrap();
    // Whoever has seen it move often enough passes it as an ordinary input.
    let mover = shop.tensor(10.0);
    let node = parameters::record(&mut shop, &mover, &params).unwrap();
    for turn in 0..20 {
        let mover = shop.tensor(turn as f32);
        let before = shop.device.counts();
        let mut replayed = parameters::replay(&mut shop, node, &[kept(&mover)], Some(&params)).unwrap();
        let made = shop.device.counts().since(&before);
        assert!((made.of(Driver::PatchGather), made.total()) == (1, 2) || made.total() == 1, "{made}");
        let sum = take(&mut replayed, 0);
        assert_eq!(shop.value(&sum), 7.0 + turn as f32);
    }
    assert_eq!(shop.replayer.patches(node), Some(1));
    shop.verdict();
}

/// pytorch/pytorch#122251, pytorch/pytorch#179330: the cost of checking many static addresses, and one function that serves
/// several instances of a module.
#[test]
fn r18_a_change_of_one_in_a_thousand_parameters_is_seen_before_anything_is_launched() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let weight = |shop: &Shop, value: f32| shop.tensor_of(&[value]).expand(&[N]).unwrap();
        let mut sets: Vec<ParamSet> = (0..2)
            .map(|set| {
                let weights = (0..1000).map(|_| weight(&shop, set as f32)).collect();
                ParamSet::new(weights).unwrap()
            })
            .collect();
        let mut nodes = Vec::new();
        for _ in 0..3 {
            assert_eq!(call_with(&mut shop, &mut nodes, &x, &sets[0]), 1.0);
            assert_eq!(call_with(&mut shop, &mut nodes, &x, &sets[1]), 1001.0);
        }
        assert_eq!(nodes.len(), 2, "one recording for each instance");
        let moved = weight(&shop, 5.0);
        drop(sets[1].replace(777, moved).unwrap());
        let before = shop.device.counts();
        for (node, param) in [(nodes[0], 0), (nodes[1], 777)] {
            let refused = parameters::replay(&mut shop, node, &[kept(&x)], Some(&sets[1])).unwrap_err();
            assert!(
                matches!(refused, Error::Mismatch(Mismatch::ParamMoved { param: moved, .. }) if moved == param),
                "{refused}"
            );
        }
        assert_eq!(shop.device.counts(), before);
        assert_eq!(call_with(&mut shop, &mut nodes, &x, &sets[1]), 1005.0);
        shop.verdict();
    }
}

/// openxla/xla#6668: identity is the allocation, not the address, and a new allocation at an old address is not a reason to
/// record anew.
#[test]
fn r58_a_new_tensor_at_the_address_of_a_freed_one_is_read_and_needs_no_patch() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let ground = shop.tensor(1.0);
        let at = ground.address().unwrap();
        let wrapped = || {
            let storage = Storage::unowned(at, 4 * N);
            Tensor::new(storage, Layout::of::<f32>(&[N]).unwrap(), 0).unwrap()
        };
        let old = wrapped();
        let node = shop.record_sum(None, &[kept(&old)]).unwrap().node;
        drop(old);
        let new = wrapped();
        shop.write(&new, &vec![9.0; N as usize]);
        let (mut replayed, made) = shop.count(node, &[kept(&new)]);
        let sum = take(&mut replayed, 0);
        assert_eq!(shop.value(&sum), 9.0);
        assert_eq!(made.of(Driver::PatchGather), 0, "{made}");
        shop.verdict();
    }
}

/// pytorch/pytorch#137318: a large input at a new address in each call, whose address is patched instead of its bytes copied.
#[test]
fn r59_a_large_input_is_not_copied_where_its_address_is_patched() {
    for method in BOTH {
        let mut shop = Shop::patching(method);
        let large = |shop: &Shop, value: f32| shop.tensor_of(&vec![value; 1 << 16]);
        let (a, b) = (large(&shop, 1.0), large(&shop, 2.0));
        let stream = shop.stream.clone();
        let inputs = [kept(&a)];
        let body = |body: &mut Body<'_>| {
            let x = body.input(0);
            let (head, tail) = (x.slice(0, 0..N, 1)?, x.slice(0, (1 << 16) - N..1 << 16, 1)?);
            Ok(vec![Out::Returned(body.sum(&[&head, &tail], 0.0)?)])
        };
        let node = shop.record(Task::new(Call::new(&stream, Step::new(1), &inputs)), body).unwrap().node;
        assert!(shop.used() < 1 << 16, "the output alone, and no staging buffer");
        assert_eq!(shop.replayer.patched_nodes(node, InputIndex::new(0)), 2);
        for (input, value) in [(&b, 4.0), (&a, 2.0), (&b, 4.0)] {
            let (mut replayed, made) = shop.count(node, &[kept(input)]);
            assert_eq!((made.of(Driver::PatchKernel), made.total()), (2, 3), "{made}");
            let sum = take(&mut replayed, 0);
            assert_eq!(shop.value(&sum), value);
        }
        shop.verdict();
    }
}

/// huggingface/candle#3352: small host arrays that are uploaded inside of a capture and freed behind it.
#[test]
fn r61_host_memory_that_a_recording_uploads_is_the_graphs() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let block = shop.device.host_buffer(16).unwrap();
        block.write(0, &7.0_f32.to_le_bytes().repeat(4)).unwrap();
        let stream = shop.stream.clone();
        let device = std::sync::Arc::clone(&shop.device);
        let body = |body: &mut Body<'_>| {
            let out = body.fresh(4)?;
            device.upload(&body.stream, out.address()?, &block, 0, 16)?;
            Ok(vec![Out::Returned(out)])
        };
        let node = shop.record(Task::new(Call::new(&stream, Step::new(1), &[])), body).unwrap().node;
        // A second capture in a row, and then memory outside of any.
        let other = shop.record_constant(&[]).node;
        drop(block);
        let others: Vec<_> = (0..8).map(|_| shop.device.host_buffer(16).unwrap()).collect();
        for other in &others {
            other.write(0, &[0xff; 16]).unwrap();
        }
        assert!(shop.device.allocate(4096).is_ok());
        assert_eq!((shop.run(node, &[]), shop.run(other, &[]), shop.run(node, &[])), (7.0, 1.0, 7.0));
        shop.verdict();
    }
}

/// lablup/mlxcel#831: weights that were freed and loaded again at other addresses.
#[test]
fn r62_a_weight_that_was_freed_is_never_launched_with() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let mut params = ParamSet::new(vec![shop.tensor(2.0)]).unwrap();
        let node = parameters::record(&mut shop, &x, &params).unwrap();
        assert_eq!(parameters::run(&mut shop, node, &x, &params), Ok(3.0));
        // The old weight's memory goes with its last handle, before the reloaded one is there.
        let reloaded = shop.tensor(5.0);
        let segments = shop.device.live_segments();
        drop(params.replace(0, reloaded).unwrap());
        assert_eq!(shop.device.live_segments(), segments - 1);
        let before = shop.device.counts();
        let refused = parameters::replay(&mut shop, node, &[kept(&x)], Some(&params)).unwrap_err();
        assert!(matches!(refused, Error::Mismatch(Mismatch::ParamMoved { param: 0, .. })), "{refused}");
        assert_eq!(shop.device.counts(), before);
        let node = parameters::record(&mut shop, &x, &params).unwrap();
        assert_eq!(parameters::run(&mut shop, node, &x, &params), Ok(6.0));
        shop.verdict();
    }
}

/// vllm-project/vllm#48941: an output whose memory is written over is no stable address.
#[test]
fn r62_an_output_of_the_path_is_no_parameter() {
    let mut shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let inputs: [Input<'_, SimDevice>; 1] = [kept(&x)];
    let output = take(&mut shop.record_sum(None, &inputs).unwrap(), 0);
    let refused = ParamSet::new(vec![x.clone(), output.clone()]).unwrap_err();
    assert!(matches!(refused, Error::UnstableParameter { param: 1, .. }), "{refused}");
    shop.replayer.end_path(Step::new(2), None).unwrap();
    let refused = ParamSet::new(vec![output]).unwrap_err();
    assert!(matches!(refused, Error::StaleParameter { param: 0, .. }), "{refused}");
}
