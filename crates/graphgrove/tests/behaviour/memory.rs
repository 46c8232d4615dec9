//! How much memory warm-ups and recordings take.

use graphgrove::{Engine, Function, Layout, OldOutput, Tensor, args};
use graphgrove_device::Call;
use graphgrove_sim::{Failure, Fault, SimDevice};

use crate::garden::Garden;

const PAGE: u64 = 2 << 20;

fn bytes(count: u64) -> Layout {
    Layout::of::<u8>(&[count]).unwrap()
}

/// A function that lets go of its input, uses a temporary, and returns a block, of so many bytes each.
fn function(garden: &Garden, name: &'static str, temporary: u64, output: u64) -> Function<SimDevice> {
    garden.engine.function(name, move |cx| {
        drop(cx.take(0)?);
        let before = cx.empty(bytes(output))?;
        let workspace = cx.empty(bytes(temporary))?;
        cx.fill(&workspace, 1)?;
        cx.fill(&before, 2)?;
        drop(workspace);
        Ok(vec![before])
    })
}

fn pool(garden: &Garden) -> graphgrove_pool::pool::PoolStats {
    garden.engine.stats().unwrap().pools[0]
}

#[test]
fn a_warm_up_has_the_memory_of_the_inputs_that_its_call_gives_up() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (first, second) =
        (function(&garden, "first", 512, 4 * PAGE), function(&garden, "second", 512, 4 * PAGE));
    let start = garden.tensor(1.0);
    let [output] = first.call(args![&start]).unwrap().into_array().unwrap();
    let [_last] = second.call(args![output]).unwrap().into_array().unwrap();
    assert_eq!(garden.engine.stats().unwrap().calls.warm_ups, 2);
    assert!(pool(&garden).ranges.peak_live < 5 * PAGE, "{:?}", pool(&garden));
    garden.device.verdict().unwrap();
}

#[test]
fn an_input_that_its_caller_keeps_keeps_its_memory_in_a_warm_up() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (first, second) =
        (function(&garden, "first", 512, 4 * PAGE), function(&garden, "second", 512, 4 * PAGE));
    let start = garden.tensor(1.0);
    let [output] = first.call(args![&start]).unwrap().into_array().unwrap();
    let [_last] = second.call(args![&output]).unwrap().into_array().unwrap();
    assert!(pool(&garden).ranges.peak_live >= 8 * PAGE);
    garden.device.verdict().unwrap();
}

#[test]
fn recordings_that_follow_each_other_share_the_place_of_their_temporaries() {
    for plan in [true, false] {
        let garden = Garden::new(Engine::<SimDevice>::builder().plan_memory(plan));
        let functions = ["a", "b", "c"].map(|name| function(&garden, name, 16 * PAGE, 4096));
        let start = garden.tensor(1.0);
        for _ in 0..4 {
            garden.engine.begin_step().unwrap();
            let mut kept = vec![start.clone()];
            for function in &functions {
                let output = function.call(args![&kept[kept.len() - 1]]).unwrap().into_array::<1>().unwrap();
                kept.extend(output);
            }
        }
        let calls = garden.engine.stats().unwrap().calls;
        assert_eq!((calls.recordings, calls.replays), (3, 6));
        let stats = pool(&garden);
        assert!(stats.ranges.reserved <= 17 * PAGE, "plan {plan}: {stats:?}");
        assert_eq!((stats.counts.planned > 0, stats.counts.departures), (plan, 0));
        garden.device.verdict().unwrap();
    }
}

#[test]
fn memory_that_only_warm_ups_needed_goes_back_once_their_calls_are_recorded() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (first, second) =
        (function(&garden, "first", 512, 4 * PAGE), function(&garden, "second", 8 * PAGE, 512));
    let start = garden.tensor(1.0);
    for turn in 0..3 {
        garden.engine.begin_step().unwrap();
        let [output] = first.call(args![&start]).unwrap().into_array().unwrap();
        // Only in the first step is the second function called with the first one's output in memory.
        if turn == 0 {
            let _outputs = second.call(args![&output]).unwrap();
        }
    }
    let ranges = pool(&garden).ranges;
    assert!(ranges.peak_reserved >= 12 * PAGE && ranges.reserved <= 5 * PAGE, "{ranges:?}");
    garden.device.verdict().unwrap();
}

#[test]
fn a_pool_that_is_a_range_grows_by_the_pages_that_it_needs() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let function = function(&garden, "f", 512, PAGE + 512);
    let start = garden.tensor(1.0);
    let _outputs = function.call(args![&start]).unwrap();
    assert_eq!(pool(&garden).ranges.reserved, 2 * PAGE);
}

#[test]
fn what_a_recording_that_was_not_launched_leaves_is_given_back_before_its_memory_is_used_again() {
    let garden = Garden::new(Engine::<SimDevice>::builder().old_outputs(OldOutput::Keep));
    let of = |name: &'static str, value: u8| {
        garden.engine.function(name, move |cx| {
            let out = cx.empty(Layout::of::<u8>(&[16])?)?;
            cx.fill(&out, value)?;
            Ok(vec![out])
        })
    };
    let (root, fails, good) = (of("root", 1), of("fails", 2), of("good", 3));
    for function in [&root, &fails, &good] {
        drop(function.call(args![]).unwrap());
    }
    garden.engine.begin_step().unwrap();
    let _held = root.call(args![]).unwrap();
    let read = |output: &Tensor| garden.engine.read::<u8>(output).unwrap();
    for turn in 0..3 {
        garden.device.inject(Fault::at(Call::LaunchExec, 1, Failure::Driver(999)));
        assert!(fails.call(args![]).is_err());
        garden.device.clear_faults();
        // It is recorded at first and replayed then, where the recording that failed had its output.
        let [out] = good.call(args![]).unwrap().into_array().unwrap();
        assert_eq!(read(&out), [3; 16], "{turn}");
    }
    assert_eq!(garden.engine.stats().unwrap().calls.replays, 2);
    garden.device.verdict().unwrap();
}
