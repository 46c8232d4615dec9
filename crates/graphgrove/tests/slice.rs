//! The slice through the layers: calls warm up, are recorded and replayed, and their values are those of the plain work.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use graphgrove::{CallStats, Engine, Error, Function, Input};
use graphgrove_device::{Args, Call, DevicePtr, LaunchDims, Memory, SegmentMemory, Work};
use graphgrove_pool::PoolConfig;
use graphgrove_sim::{SimDevice, SimSegment, kernels};

const N: u32 = 8;
const BYTES: u64 = N as u64 * 4;

struct Rig {
    device: SimDevice,
    engine: Engine<SimDevice>,
    /// `x -> (x + 1 + 1)`, with a temporary between.
    twice: Function<SimDevice>,
    input: SimSegment,
}

fn rig(seed: u64) -> Rig {
    let device = SimDevice::builder().seed(seed).build();
    let engine = Engine::new(device.clone(), PoolConfig::default()).unwrap();
    let increment = kernels::map(&device, "increment", |x: u32| x + 1);
    let twice = engine.function("twice", move |cx| {
        let (between, to) = (cx.allocate(BYTES)?, cx.allocate(BYTES)?);
        let args = Args::new().read(cx.input(0)).write(between.ptr()).scalar(N);
        cx.launch(&increment, LaunchDims::ONE, &args)?;
        let args = Args::new().read(between.ptr()).write(to.ptr()).scalar(N);
        cx.launch(&increment, LaunchDims::ONE, &args)?;
        Ok(vec![to])
    });
    let input = device.allocate(2 * BYTES).unwrap();
    let words = |value: u32| value.to_le_bytes().repeat(N as usize);
    device.write(input.base(), &words(10)).unwrap();
    device.write(input.base().checked_add(BYTES).unwrap(), &words(20)).unwrap();
    Rig { device, engine, twice, input }
}

impl Rig {
    fn input(&self, which: u64) -> DevicePtr {
        self.input.base().checked_add(which * BYTES).unwrap()
    }

    fn value(&self, output: &graphgrove::Output) -> Result<u32, Error> {
        let mut bytes = [0; 4];
        self.engine.read(output, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

#[test]
fn a_function_warms_up_is_recorded_and_replayed_on_whatever_input_comes() {
    for seed in 0..8 {
        let rig = rig(seed);
        for round in 0..6 {
            let outputs = rig.twice.call(&[], &[Input::Staged(rig.input(round % 2), BYTES)]).unwrap();
            assert_eq!(rig.value(&outputs[0]).unwrap(), [12, 22][round as usize % 2], "round {round}");
        }
        assert_eq!(rig.engine.stats(), CallStats { warm_ups: 1, recordings: 1, replays: 4, eager: 0 });
        rig.device.verdict().unwrap();
    }
}

#[test]
fn a_replay_is_one_launch_and_one_patch() {
    let rig = rig(0);
    let input = [Input::Staged(rig.input(0), BYTES)];
    for _ in 0..3 {
        rig.twice.call(&[], &input).unwrap();
    }
    let before = rig.device.counts();
    rig.twice.call(&[], &input).unwrap();
    let made = rig.device.counts().since(&before);
    assert_eq!((made.of(Call::LaunchExec), made.of(Call::PatchGather), made.total()), (1, 1, 2));
}

#[test]
fn an_output_of_the_step_is_read_where_it_lies() {
    let rig = rig(0);
    for round in 0..8 {
        let first = rig.twice.call(&[], &[Input::Staged(rig.input(0), BYTES)]).unwrap();
        let second = rig.twice.call(&[], &[Input::Output(&first[0])]).unwrap();
        assert_eq!(
            (rig.value(&first[0]).unwrap(), rig.value(&second[0]).unwrap()),
            (12, 14),
            "round {round}"
        );
    }
    assert!(rig.engine.stats().replays > 8, "{:?}\n{}", rig.engine.stats(), rig.engine.outline());
    rig.device.verdict().unwrap();
}

#[test]
fn a_kept_output_keeps_its_value_while_another_call_runs() {
    let rig = rig(0);
    for round in 0..8 {
        let kept = rig.twice.call(&[], &[Input::Staged(rig.input(0), BYTES)]).unwrap();
        let other = rig.twice.call(&[], &[Input::Staged(rig.input(1), BYTES)]).unwrap();
        assert_eq!((rig.value(&kept[0]).unwrap(), rig.value(&other[0]).unwrap()), (12, 22), "round {round}");
    }
    rig.device.verdict().unwrap();
}

#[test]
fn a_loop_that_would_turn_back_on_live_outputs_is_refused_and_goes_on_without_them() {
    let rig = rig(0);
    let mut state = rig.twice.call(&[], &[Input::Staged(rig.input(0), BYTES)]).unwrap();
    let mut value = 12;
    let refused = (0..100).find_map(|_| {
        let next = match rig.twice.call(&[], &[Input::Output(&state[0])]) {
            Ok(next) => next,
            Err(error) => return Some(error),
        };
        value += 2;
        assert_eq!(rig.value(&next[0]).unwrap(), value);
        state = next;
        None
    });
    assert!(matches!(refused, Some(Error::LiveOutputs { .. })), "{refused:?}");
    assert_eq!(rig.value(&state[0]).unwrap(), value);
    drop(state);
    let fresh = rig.twice.call(&[], &[Input::Staged(rig.input(1), BYTES)]).unwrap();
    assert_eq!(rig.value(&fresh[0]).unwrap(), 22);
    rig.device.verdict().unwrap();
}

#[test]
fn a_pool_without_room_says_so_and_the_engine_goes_on() {
    let device = SimDevice::builder().granularity(4096).build();
    let config = PoolConfig { budget: Some(1 << 20), ..PoolConfig::default() };
    let engine = Engine::new(device.clone(), config).unwrap();
    let greedy = engine.function("greedy", |cx| Ok(vec![cx.allocate(2 << 20)?]));
    assert!(matches!(greedy.call(&[], &[]), Err(Error::Pool(_))));
    let modest = engine.function("modest", move |cx| {
        let to = cx.allocate(64)?;
        device.fill(cx.stream(), to.ptr(), 7, 64)?;
        Ok(vec![to])
    });
    for _ in 0..4 {
        let outputs = modest.call(&[], &[]).unwrap();
        let mut bytes = [0; 1];
        engine.read(&outputs[0], &mut bytes).unwrap();
        assert_eq!(bytes, [7]);
    }
    assert_eq!(engine.stats().replays, 2);
}
