//! Inputs of other kinds, numbers and layouts than recorded.

use graphgrove_device::{HostMemory, Memory, Work};
use graphgrove_replay::{Call, Error, Expected, Input, Method, Mismatch, Recorder, Recording, StagePlan};
use graphgrove_sim::SimDevice;
use graphgrove_storage::{DType, InputIndex, InputPlan, InputSpec, Layout, Step, Storage, Tensor};

use crate::workshop::{BOTH, N, Out, Shop, Task, kept, take};

const FIRST: InputIndex = InputIndex::new(0);

fn refusal(shop: &mut Shop, node: graphgrove_replay::NodeKey, inputs: &[Input<'_, SimDevice>]) -> Mismatch {
    let before = shop.device.counts();
    let Err(Error::Mismatch(mismatch)) = shop.replay(node, inputs) else { unreachable!("it fits") };
    assert_eq!(shop.device.counts(), before, "a call that does not fit reaches no driver");
    mismatch
}

#[test]
fn more_or_fewer_inputs_are_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        for called in [0, 2] {
            let inputs = vec![kept(&x); called];
            assert_eq!(refusal(&mut shop, node, &inputs), Mismatch::InputCount { recorded: 1, called });
        }
    }
}

#[test]
fn another_element_type_shape_or_stride_is_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let node = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let wide = shop.tensor_of(&vec![1.0; 2 * N as usize]);
        let integers = Tensor::new(x.storage().clone(), Layout::contiguous(DType::I32, &[N]).unwrap(), 0);
        let others = [
            x.slice(0, 0..N - 1, 1).unwrap(),
            x.reshape(&[1, N]).unwrap(),
            wide.slice(0, 0..2 * N, 2).unwrap(),
            integers.unwrap(),
        ];
        for other in &others {
            let expected =
                Mismatch::Signature { input: FIRST, recorded: x.signature(), called: other.signature() };
            assert_eq!(refusal(&mut shop, node, &[kept(other)]), expected);
        }
        assert_eq!(shop.run(node, &[kept(&wide.slice(0, N..2 * N, 1).unwrap())]), 1.0);
    }
}

#[test]
fn another_value_is_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let node = shop.record_constant(&[Input::Value(7)]).node;
        assert_eq!(shop.replayer.expected(node), Some(&[Expected::Value(7)][..]));
        let refused = refusal(&mut shop, node, &[Input::Value(8)]);
        assert_eq!(refused, Mismatch::Value { input: FIRST, recorded: 7, called: 8 });
        assert_eq!(shop.run(node, &[Input::Value(7)]), 1.0);
    }
}

#[test]
fn an_input_of_another_kind_is_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (tensor, host) = (shop.tensor(1.0), shop.device.host_buffer(16).unwrap());
        let kinds = [kept(&tensor), Input::Host(&host), Input::Value(3)];
        for (at, recorded) in kinds.into_iter().enumerate() {
            let node = shop.record_constant(&[recorded]).node;
            for (other, given) in kinds.into_iter().enumerate().filter(|(other, _)| *other != at) {
                let refused = refusal(&mut shop, node, &[given]);
                assert_eq!(refused, Mismatch::Kind { input: FIRST }, "{method:?}: {at} called with {other}");
            }
        }
    }
}

#[test]
fn host_memory_of_another_length_is_refused() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let (short, long) = (shop.device.host_buffer(16).unwrap(), shop.device.host_buffer(32).unwrap());
        let node = shop.record_constant(&[Input::Host(&short)]).node;
        let refused = refusal(&mut shop, node, &[Input::Host(&long)]);
        assert_eq!(refused, Mismatch::HostBytes { input: FIRST, recorded: 16, called: 32 });
    }
}

#[test]
fn a_replay_sees_what_lies_in_host_memory_when_its_work_gets_there() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let host = shop.device.host_buffer(4 * N as usize).unwrap();
        let fill = |value: f32| {
            let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), N as usize).flatten().collect();
            host.write(0, &bytes).unwrap();
        };
        fill(1.0);
        let stream = shop.stream.clone();
        let inputs = [Input::Host(&host)];
        let mut first = shop
            .record(Task::new(Call::new(&stream, Step::new(1), &inputs)), |body| {
                let out = body.fresh(N)?;
                body.recorder.upload(&body.stream, out.address()?, &host, 0, 4 * N as usize)?;
                Ok(vec![Out::Returned(out)])
            })
            .unwrap();
        let (node, output) = (first.node, take(&mut first, 0));
        assert_eq!(shop.value(&output), 1.0);
        drop((first, output));
        for value in [2.0, 3.0] {
            fill(value);
            assert_eq!(shop.run(node, &inputs), value);
        }
        shop.verdict();
    }
}

#[test]
fn a_replay_reads_the_host_memory_of_its_own_call() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let [a, b] = [1.0_f32, 2.0].map(|value| {
            let host = shop.device.host_buffer(4 * N as usize).unwrap();
            host.write(0, &value.to_le_bytes().repeat(N as usize)).unwrap();
            host
        });
        let stream = shop.stream.clone();
        let inputs = [Input::Host(&a)];
        let node = shop
            .record(Task::new(Call::new(&stream, Step::new(1), &inputs)), |body| {
                let out = body.fresh(N)?;
                body.recorder.upload(&body.stream, out.address()?, &a, 0, 4 * N as usize)?;
                Ok(vec![Out::Returned(out)])
            })
            .unwrap()
            .node;
        for (host, value, patches) in [(&b, 2.0, 1), (&b, 2.0, 0), (&a, 1.0, 1)] {
            let (mut replayed, made) = shop.count(node, &[Input::Host(host)]);
            let output = take(&mut replayed, 0);
            assert_eq!((shop.value(&output), made.total()), (value, 1 + patches), "{method:?}: {made}");
        }
        shop.verdict();
    }
}

#[test]
fn an_upload_that_is_no_input_can_be_made_to_read_elsewhere_before_each_launch() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let bytes = 4 * N as usize;
        let page = shop.device.host_buffer(3 * bytes).unwrap();
        for (turn, value) in [1.0_f32, 2.0, 3.0].into_iter().enumerate() {
            page.write(turn * bytes, &value.to_le_bytes().repeat(N as usize)).unwrap();
        }
        let stream = shop.stream.clone();
        let mut upload = None;
        let node = shop
            .record(Task::new(Call::new(&stream, Step::new(1), &[])), |body| {
                let (out, to) = (body.fresh(N)?, body.fresh(N)?);
                let node = body.recorder.upload(&body.stream, to.address()?, &page, 0, bytes)?;
                body.recorder.copy(&body.stream, out.address()?, to.address()?, 4 * N)?;
                upload = node.zip(to.address().ok());
                Ok(vec![Out::Returned(out)])
            })
            .unwrap()
            .node;
        let (captured, to) = upload.unwrap();
        let mut outputs = Vec::new();
        for turn in [1, 2] {
            let before = shop.device.counts();
            shop.replayer.read_from(node, captured, to, &page, turn * bytes).unwrap();
            assert_eq!(shop.device.counts().since(&before).total(), 1, "{method:?}");
            outputs.push(shop.run(node, &[]));
        }
        assert_eq!(outputs, [2.0, 3.0], "{method:?}");
        let refused = shop.replayer.read_from(node, captured, to, &page, 3 * bytes);
        assert!(matches!(refused, Err(Error::Device(_))), "{refused:?}");
        assert_eq!(shop.run(node, &[]), 3.0);
        shop.verdict();
    }
}

#[test]
fn a_tensor_without_elements_is_compared_by_its_layout_alone() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let empty = |shape: &[u64]| Tensor::empty(Layout::of::<f32>(shape).unwrap()).unwrap();
        let (recorded, other) = (empty(&[0, 3]), empty(&[0, 4]));
        let node = shop.record_constant(&[kept(&recorded)]).node;
        let full = shop.tensor_of(&[1.0; 3]).reshape(&[1, 3]).unwrap();
        let none = full.slice(0, 1..1, 1).unwrap();
        assert_eq!(none.signature(), recorded.signature());
        assert_eq!(shop.run(node, &[kept(&none)]), 1.0, "whatever storage it has");
        for different in [&other, &full] {
            let refused = refusal(&mut shop, node, &[kept(different)]);
            assert!(matches!(refused, Mismatch::Signature { input: FIRST, .. }), "{refused}");
        }
        shop.verdict();
    }
}

#[test]
fn a_stale_input_is_refused_with_what_became_of_it() {
    for method in BOTH {
        let mut shop = Shop::new(method);
        let x = shop.tensor(1.0);
        let staged = shop.record_sum(None, &[kept(&x)]).unwrap().node;
        let mut other = shop.record_sum(None, &[kept(&x)]).unwrap();
        let output = take(&mut other, 0);
        drop(other);
        shop.replayer.end_path(Step::new(5), None).unwrap();
        let refused = refusal(&mut shop, staged, &[kept(&output)]);
        let stale = output.storage().stale().unwrap();
        assert_eq!(refused, Mismatch::Stale { input: FIRST, stale });
        let empty = Tensor::empty(Layout::of::<f32>(&[0]).unwrap()).unwrap();
        let node = shop.record_constant(&[kept(&empty)]).node;
        let none = output.slice(0, 0..0, 1);
        // A view of a stale tensor may not be had, so one that was taken before is used.
        assert!(none.is_err());
        assert_eq!(shop.run(node, &[kept(&empty)]), 1.0);
    }
}

#[test]
fn a_plan_for_other_inputs_is_refused_before_anything_is_captured() {
    let shop = Shop::new(Method::Fast);
    let x = shop.tensor(1.0);
    let plan = InputPlan::new(&[InputSpec::read(&x)], 16, |_| false).unwrap();
    let stage = || StagePlan::new(&plan, &[Some(&x)], |_| graphgrove_replay::Route::Copied).unwrap();
    let count = Error::InputCount { planned: 1, given: 0 };
    assert_eq!(StagePlan::new(&plan, &[], |_| graphgrove_replay::Route::Copied).unwrap_err(), count);
    let begin = |method, inputs: &[Option<&Tensor>], buffer: Result<Storage, Error>| {
        let allocate = |_| buffer.clone();
        Recorder::begin(&*shop.device, &shop.stream, method, stage(), inputs, allocate).map(|_| ())
    };
    let short = shop.tensor_of(&[0.0]).into_storage();
    let none = Error::OldCheck;
    for method in BOTH {
        assert_eq!(begin(method, &[], Ok(short.clone())), Err(count.clone()));
        assert_eq!(
            begin(method, &[Some(&x)], Err(none.clone())),
            Err(none.clone()),
            "what has no room says so"
        );
        let refused = begin(method, &[Some(&x)], Ok(short.clone()));
        assert_eq!(refused, Err(Error::StagingBuffer { group: 0, needed: 4 * N, given: 4 }));
    }
    let status = graphgrove_device::Capture::capture_status(&*shop.device, &shop.stream).unwrap();
    assert_eq!(status, graphgrove_device::CaptureStatus::None);
}

#[test]
fn a_recording_without_staging_can_come_from_a_graph_of_the_callers_own() {
    use graphgrove_device::{CaptureGuard, CaptureMode, Graphs};
    for method in BOTH {
        let mut shop = Shop::new(method);
        let weight = shop.tensor(1.0);
        let capture = CaptureGuard::begin(&*shop.device, &shop.stream, CaptureMode::ThreadLocal).unwrap();
        shop.device.fill(&shop.stream, weight.address().unwrap(), 0, 4 * N).unwrap();
        let exec = shop.device.instantiate(&capture.end().unwrap()).unwrap();
        let captured = graphgrove_replay::Captured::from_exec(exec, method);
        let node = shop.replayer.add(Recording::new("zero", captured)).unwrap();
        let replayed = shop.replay(node, &[]).unwrap();
        assert!(replayed.outputs.is_empty() && replayed.saved.is_none());
        assert_eq!(shop.value(&weight), 0.0);
        shop.verdict();
    }
}
