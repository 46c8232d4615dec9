//! A replay in the steady state allocates nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use graphgrove_device::{Call as Driver, DevicePtr, Memory, SegmentMemory, Streams};
use graphgrove_replay::{
    Call, Error, Input, Method, NodeKey, ParamSet, Recorder, Recording, Replayer, Route, StagePlan,
};
use graphgrove_sim::{SimDevice, SimSegment, SimStream};
use graphgrove_storage::{
    DeadMask, DeadMasks, InputIndex, InputPlan, InputSpec, Layout, Ledger, OutputClass, PersistentSource,
    PlannedOutput, Readers, SlotIndex, Step, Storage, Tensor,
};

/// How often `work` allocates on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

fn layout() -> Layout {
    Layout::of::<f32>(&[8]).unwrap()
}

/// A device that drops all work, so that what is counted is the replay's own.
struct Rig {
    device: Arc<SimDevice>,
    stream: SimStream,
    replayer: Replayer<SimDevice>,
    ground: DevicePtr,
    _ground: SimSegment,
}

/// What a node of the rig is made of.
#[derive(Default)]
struct Plan<'a> {
    inputs: &'a [Tensor],
    params: Option<&'a ParamSet>,
    /// The inputs that the function writes to.
    mutated: &'a [usize],
    patched: bool,
    given_up: bool,
    parent: Option<NodeKey>,
    outputs: Vec<PlannedOutput>,
    constants: Vec<(SlotIndex, Tensor)>,
}

impl Rig {
    fn new() -> Self {
        let device = Arc::new(SimDevice::builder().null_launch(true).checker(false).build());
        let stream = device.create_stream().unwrap();
        let replayer = Replayer::new(Arc::clone(&device), Ledger::new());
        let ground = device.allocate(1 << 20).unwrap();
        Self { device, stream, replayer, ground: ground.base(), _ground: ground }
    }

    fn tensor(&self, place: u64) -> Tensor {
        let at = self.ground.checked_add(64 * place).unwrap();
        Tensor::new(Storage::unowned(at, 32), layout(), 0).unwrap()
    }

    fn tensors(&self, from: u64, count: u64) -> Vec<Tensor> {
        (from..from + count).map(|place| self.tensor(place)).collect()
    }

    fn fresh(&self, number: u64) -> PlannedOutput {
        let at = self.ground.checked_add((1 << 19) + 512 * number).unwrap();
        PlannedOutput::fresh(at, 512, layout())
    }

    /// How often the simulated device itself allocates when one stream waits for another, which a replay is not to blame for.
    fn of_an_order(&self, streams: &[SimStream; 2]) -> u64 {
        let event = self.device.create_event().unwrap();
        let wait = || {
            self.device.record_event(&event, &streams[0]).unwrap();
            self.device.wait_event(&streams[1], &event).unwrap();
        };
        wait();
        allocations(wait)
    }

    fn record(&mut self, plan: Plan<'_>) -> NodeKey {
        let inputs: Vec<Input<'_, SimDevice>> = plan
            .inputs
            .iter()
            .map(|tensor| if plan.given_up { Input::given_up(tensor) } else { Input::kept(tensor) })
            .collect();
        let call = Call { params: plan.params, ..Call::new(&self.stream, Step::new(1), &inputs) };
        let params = plan.params.map(ParamSet::tensors).unwrap_or_default();
        let spec = |(at, tensor)| {
            let spec = InputSpec::read(tensor);
            if plan.mutated.contains(&at) { spec.mutated() } else { spec }
        };
        let specs: Vec<_> =
            plan.inputs.iter().enumerate().map(spec).chain(params.iter().map(InputSpec::parameter)).collect();
        let all: Vec<_> = plan.inputs.iter().chain(params).map(Some).collect();
        let replayer = &self.replayer;
        let planned = InputPlan::new(&specs, 16, |value| replayer.place_of(value.slab).is_some()).unwrap();
        let route = if plan.patched { Route::Patched } else { Route::Copied };
        let stage = StagePlan::new(&planned, &all, |_| route).unwrap();
        let expected = self.replayer.expect(&planned, &call, &stage).unwrap();
        let mut buffers = 1000..;
        let allocate = |_| Ok::<_, Error>(self.tensor(buffers.next().unwrap()).into_storage());
        let stream = self.stream.clone();
        let device = Arc::clone(&self.device);
        let mut recorder = Recorder::begin(&*device, &stream, Method::Fast, stage, &all, allocate).unwrap();
        let passed = std::mem::take(recorder.passed());
        for tensor in passed.iter().flatten() {
            recorder.copy(&stream, self.ground, tensor.address().unwrap(), 32).unwrap();
        }
        drop(passed);
        let captured = recorder.finish().unwrap();
        let before = self.replayer.dead(usize::MAX);
        let mut after = before.masks().to_vec();
        if plan.given_up {
            let values = plan.inputs.iter().filter_map(|tensor| tensor.storage().slot_value().unwrap());
            after.extend(values.map(|value| DeadMask {
                place: 0,
                word: value.slot.word(),
                mask: value.slot.bit(),
            }));
        }
        // What owns a block of the rig is nobody: its memory stays.
        let recorded: Vec<Option<Tensor>> = plan
            .outputs
            .iter()
            .map(|planned| {
                let tensor = |(at, bytes)| {
                    let storage = Storage::pool_block(at, bytes, Box::new(()));
                    Tensor::new(storage, layout(), 0).unwrap()
                };
                match planned.class {
                    OutputClass::EarlierSlot { .. } => Some(plan.inputs[1].clone()),
                    _ => planned.block.map(tensor),
                }
            })
            .collect();
        let recording = Recording::new("F", captured)
            .below(plan.parent)
            .inputs(expected)
            .params(plan.params)
            .dead(before, DeadMasks::new(after))
            .constants(plan.constants)
            .outputs(plan.outputs);
        let node = self.replayer.add(recording).unwrap();
        drop(self.replayer.launch_recorded(node, &call, &recorded).unwrap());
        node
    }

    /// Replays a node, takes all outputs and drops them.
    fn replay(&mut self, node: NodeKey, call: &Call<'_, SimDevice>, taken: &mut Vec<Tensor>) {
        let mut replayed = self.replayer.replay(node, call).unwrap();
        taken.extend(replayed.outputs.take_all().flatten());
        drop(replayed);
        taken.clear();
    }
}

fn inputs(tensors: &[Tensor]) -> Vec<Input<'_, SimDevice>> {
    tensors.iter().map(Input::kept).collect()
}

/// Replays in turn with each of the calls: twice to come to the steady state, and then without any allocation.
fn steady(rig: &mut Rig, node: NodeKey, calls: &[Call<'_, SimDevice>], outputs: usize) {
    let mut taken = Vec::with_capacity(outputs);
    for _ in 0..2 {
        for call in calls {
            rig.replay(node, call, &mut taken);
        }
    }
    let counted = allocations(|| {
        for _ in 0..25 {
            for call in calls {
                rig.replay(node, call, &mut taken);
            }
        }
    });
    assert_eq!(counted, 0, "allocations in {} replays", 25 * calls.len());
    assert_eq!(rig.replayer.replays(node), Some(27 * calls.len() as u64));
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn a_replay_with_320_outputs_allocates_nothing() {
    let mut rig = Rig::new();
    let node =
        rig.record(Plan { outputs: (0..320).map(|number| rig.fresh(number)).collect(), ..Plan::default() });
    let stream = rig.stream.clone();
    steady(&mut rig, node, &[Call::new(&stream, Step::new(2), &[])], 320);
}

#[test]
fn a_replay_of_staged_inputs_with_new_addresses_allocates_nothing() {
    for count in [1, 8, 128] {
        let mut rig = Rig::new();
        let (old, new) = (rig.tensors(0, count), rig.tensors(count, count));
        let node = rig.record(Plan { inputs: &old, outputs: vec![rig.fresh(0)], ..Plan::default() });
        let stream = rig.stream.clone();
        let (old, new) = (inputs(&old), inputs(&new));
        let calls = [&old, &new, &new].map(|inputs| Call::new(&stream, Step::new(2), inputs));
        steady(&mut rig, node, &calls, 1);
    }
}

#[test]
fn a_replay_of_patched_and_of_written_inputs_with_new_addresses_allocates_nothing() {
    for (patched, mutated) in [(true, &[][..]), (true, &[0][..]), (false, &[0, 3][..])] {
        let mut rig = Rig::new();
        let (old, new) = (rig.tensors(0, 8), rig.tensors(8, 8));
        let node = rig.record(Plan {
            inputs: &old,
            patched,
            mutated,
            outputs: vec![rig.fresh(0)],
            ..Plan::default()
        });
        let stream = rig.stream.clone();
        let (old, new) = (inputs(&old), inputs(&new));
        let calls = [&old, &new].map(|inputs| Call::new(&stream, Step::new(2), inputs));
        steady(&mut rig, node, &calls, 1);
    }
}

#[test]
fn a_replay_with_several_saved_outputs_allocates_nothing() {
    let mut rig = Rig::new();
    let old = rig.tensors(0, 4);
    let alias = |input| {
        let class = OutputClass::StagedInput { input: InputIndex::new(input), moved: false };
        PlannedOutput::alias(class, layout(), 0)
    };
    let outputs = vec![
        rig.fresh(0),
        rig.fresh(1).read_by(Readers::Backward),
        rig.fresh(2).read_by(Readers::Both),
        alias(0).read_by(Readers::Backward),
        alias(1).read_by(Readers::Backward),
        alias(2).read_by(Readers::Both),
        alias(3),
    ];
    let node = rig.record(Plan { inputs: &old, outputs, ..Plan::default() });
    let stream = rig.stream.clone();
    let old = inputs(&old);
    steady(&mut rig, node, &[Call::new(&stream, Step::new(2), &old)], 7);
}

#[test]
fn a_replay_whose_saved_outputs_are_held_over_the_next_one_allocates_nothing() {
    let mut rig = Rig::new();
    let old = rig.tensors(0, 2);
    let alias = |input| {
        let class = OutputClass::StagedInput { input: InputIndex::new(input), moved: false };
        PlannedOutput::alias(class, layout(), 0).read_by(Readers::Backward)
    };
    let outputs = vec![rig.fresh(0), alias(0), alias(1)];
    let node = rig.record(Plan { inputs: &old, outputs, ..Plan::default() });
    let stream = rig.stream.clone();
    let old = inputs(&old);
    let call = Call::new(&stream, Step::new(2), &old);
    let mut held = None;
    let mut run = |times: usize| {
        for _ in 0..times {
            // The token of the last run goes when the new one is there; nothing of it is in a slot.
            held = rig.replayer.replay(node, &call).unwrap().saved;
        }
    };
    run(4);
    assert_eq!(allocations(|| run(50)), 0);
    assert!(held.is_some());
}

#[test]
fn a_replay_with_outputs_in_memory_of_others_allocates_nothing() {
    let mut rig = Rig::new();
    let (weights, constant) = (rig.tensors(0, 3), rig.tensor(9));
    let params = ParamSet::new(weights).unwrap();
    let class = |source| OutputClass::Persistent(source);
    let outputs = vec![
        PlannedOutput::alias(class(PersistentSource::Input(InputIndex::new(1))), layout(), 0),
        PlannedOutput::alias(class(PersistentSource::Captured), layout(), 0),
        rig.fresh(0),
        PlannedOutput::alias(OutputClass::Sibling(SlotIndex::new(2)), Layout::of::<f32>(&[2]).unwrap(), 8),
        PlannedOutput::empty(Layout::of::<f32>(&[0]).unwrap()),
        PlannedOutput::not_tensor(),
    ];
    let constants = vec![(SlotIndex::new(1), constant)];
    let node = rig.record(Plan { params: Some(&params), outputs, constants, ..Plan::default() });
    let stream = rig.stream.clone();
    let call = Call::new(&stream, Step::new(2), &[]).with_params(&params);
    steady(&mut rig, node, &[call], 6);
}

#[test]
fn a_replay_with_parameters_of_a_changed_version_allocates_nothing() {
    let mut rig = Rig::new();
    let weights = rig.tensors(0, 1000);
    let mut params = ParamSet::new(weights.clone()).unwrap();
    let other = ParamSet::new(weights.clone()).unwrap();
    let node = rig.record(Plan { params: Some(&params), outputs: vec![rig.fresh(0)], ..Plan::default() });
    let stream = rig.stream.clone();
    // Each call brings another set or version than the one before, at the same addresses.
    let calls = [&params, &other].map(|params| Call::new(&stream, Step::new(2), &[]).with_params(params));
    steady(&mut rig, node, &calls, 1);
    let mut taken = Vec::with_capacity(1);
    for (param, weight) in weights.iter().enumerate().take(3) {
        drop(params.replace(param, weight.clone()).unwrap());
        let call = Call::new(&stream, Step::new(3), &[]).with_params(&params);
        assert_eq!(allocations(|| rig.replay(node, &call, &mut taken)), 0);
    }
}

#[test]
fn a_replay_of_a_staged_parameter_that_has_moved_allocates_nothing() {
    let mut rig = Rig::new();
    let odd = |rig: &Rig, place: u64| {
        let at = rig.ground.checked_add(64 * place).unwrap();
        Tensor::new(Storage::unowned(at, 64), layout(), 4).unwrap()
    };
    let sets = [odd(&rig, 0), odd(&rig, 1)].map(|weight| ParamSet::new(vec![weight]).unwrap());
    let node = rig.record(Plan { params: Some(&sets[0]), outputs: vec![rig.fresh(0)], ..Plan::default() });
    let stream = rig.stream.clone();
    let calls = sets.each_ref().map(|params| Call::new(&stream, Step::new(2), &[]).with_params(params));
    steady(&mut rig, node, &calls, 1);
}

#[test]
fn replays_with_managed_inputs_on_alternating_streams_allocate_nothing() {
    for given_up in [false, true] {
        let mut rig = Rig::new();
        let x = rig.tensors(0, 1);
        let root = rig.record(Plan {
            inputs: &x,
            outputs: (0..4).map(|number| rig.fresh(number)).collect(),
            ..Plan::default()
        });
        let streams = [rig.stream.clone(), rig.device.create_stream().unwrap()];
        let x = inputs(&x);
        let call = Call::new(&streams[0], Step::new(2), &x);
        let mut first = rig.replayer.replay(root, &call).unwrap();
        let managed: Vec<Tensor> = first.outputs.take_all().flatten().collect();
        drop(first);
        let alias = PlannedOutput::alias(
            OutputClass::EarlierSlot {
                value: managed[1].storage().slot_value().unwrap().unwrap(),
                input: Some(InputIndex::new(1)),
            },
            layout(),
            0,
        );
        // What is returned lives on, so it is not given up.
        let outputs = if given_up { vec![rig.fresh(5)] } else { vec![rig.fresh(5), alias] };
        let child =
            rig.record(Plan { inputs: &managed, given_up, parent: Some(root), outputs, ..Plan::default() });
        drop(managed);
        let mut taken = Vec::with_capacity(4);
        let device = Arc::clone(&rig.device);
        let mut run = |times: usize| {
            for turn in 0..times {
                let call = Call::new(&streams[turn % 2], Step::new(2), &x);
                let mut replayed = rig.replayer.replay(root, &call).unwrap();
                let [a, b, c, d] =
                    [0, 1, 2, 3].map(|output| replayed.outputs.take(SlotIndex::new(output)).unwrap());
                drop(replayed);
                let input = |tensor| if given_up { Input::given_up(tensor) } else { Input::kept(tensor) };
                let managed = [input(&a), input(&b), input(&c), input(&d)];
                let call = Call::new(&streams[(turn + turn / 2) % 2], Step::new(2), &managed);
                rig.replay(child, &call, &mut taken);
            }
        };
        run(8);
        let before = device.counts();
        let counted = allocations(|| run(64));
        let orders = device.counts().since(&before).of(Driver::WaitEvent);
        assert_eq!(orders, 64, "every other launch is on another stream");
        assert_eq!(counted, orders * rig.of_an_order(&streams), "given up: {given_up}");
    }
}

#[test]
fn replays_with_uses_elsewhere_that_are_declared_allocate_nothing() {
    let mut rig = Rig::new();
    let node = rig.record(Plan { outputs: vec![rig.fresh(0)], ..Plan::default() });
    let (stream, side) = (rig.stream.clone(), rig.device.create_stream().unwrap());
    let call = Call::new(&stream, Step::new(2), &[]);
    let mut taken = Vec::with_capacity(1);
    let mut run = |times: usize| {
        for _ in 0..times {
            rig.replay(node, &call, &mut taken);
            rig.replayer.used_on(&side).unwrap();
        }
    };
    run(4);
    // The event is recorded on one stream, and the other waits for it; nothing else allocates.
    let counted = allocations(|| run(50));
    assert_eq!(counted, 50 * rig.of_an_order(&[side, stream]));
}

#[test]
fn a_call_that_does_not_fit_allocates_nothing() {
    let mut rig = Rig::new();
    let x = rig.tensors(0, 4);
    let node = rig.record(Plan { inputs: &x, outputs: vec![rig.fresh(0)], ..Plan::default() });
    let stream = rig.stream.clone();
    let shared = [&x[0], &x[0], &x[2], &x[3]].map(Input::kept);
    let calls = [Call::new(&stream, Step::new(2), &shared), Call::new(&stream, Step::new(2), &shared[..2])];
    let mut run = || {
        for call in &calls {
            assert!(rig.replayer.check(node, call).is_err());
        }
    };
    run();
    assert_eq!(allocations(run), 0);
}
