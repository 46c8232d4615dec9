//! Forwards, and backwards that run, run plainly, or never run.

use graphgrove::{Engine, Function, FunctionOptions, Mode, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, copied};

/// Saves a copy of its input, and returns another.
fn forward(garden: &Garden, name: &'static str) -> Function<SimDevice> {
    garden.engine.function(name, |cx| {
        let from = cx.take(0)?;
        let (saved, out) = (cx.empty(from.layout().clone())?, cx.empty(from.layout().clone())?);
        cx.copy(&saved, &from)?;
        cx.copy(&out, &from)?;
        cx.save(&saved);
        Ok(vec![out])
    })
}

/// A copy of what the forward has saved.
fn backward(garden: &Garden, options: FunctionOptions) -> Function<SimDevice> {
    garden.engine.function_with("backward", options, |cx| {
        let saved = cx.take_saved(0)?;
        let out = cx.empty(saved.layout().clone())?;
        cx.copy(&out, &saved)?;
        Ok(vec![out])
    })
}

#[test]
fn a_backward_that_runs_plainly_consumes_its_token() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (forward, input) = (forward(&garden, "forward"), garden.fresh(3.0));
    let backward = backward(&garden, FunctionOptions::new().mode(Mode::Eager));
    for turn in 0..4 {
        let (outputs, token) = forward.forward(args![&input]).unwrap();
        drop(outputs);
        let [gradient] = backward.backward(token, args![]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&gradient), 3.0, "{turn}");
        assert_eq!(garden.engine.stats().unwrap().pending_backwards, 0);
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays, calls.eager), (1, 2, 4));
    garden.device.verdict().unwrap();
}

#[test]
fn two_forwards_of_which_one_has_a_backward_make_three_recordings() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (one, two, input) = (forward(&garden, "one"), forward(&garden, "two"), garden.fresh(3.0));
    let backward = backward(&garden, FunctionOptions::new());
    for turn in 0..5 {
        let (outputs, lost) = one.forward(args![&input]).unwrap();
        let [first] = outputs.into_array().unwrap();
        let (outputs, token) = two.forward(args![&first]).unwrap();
        drop((outputs, lost));
        let [gradient] = backward.backward(token, args![]).unwrap().into_array().unwrap();
        assert_eq!((garden.value(&first), garden.value(&gradient)), (3.0, 3.0), "{turn}");
        drop((first, gradient));
    }
    let stats = garden.engine.stats().unwrap();
    assert_eq!((stats.calls.recordings, stats.calls.replays, stats.pending_backwards), (3, 9, 0));
    assert_eq!(garden.depths(), [0, 1, 2]);
}

#[test]
fn what_a_forward_saves_is_dead_after_its_backward_and_the_tree_is_one_chain() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (forward, input) = (forward(&garden, "forward"), garden.fresh(3.0));
    let backward = backward(&garden, FunctionOptions::new());
    for _ in 0..4 {
        let (outputs, token) = forward.forward(args![&input]).unwrap();
        let [out] = outputs.into_array().unwrap();
        let [gradient] = backward.backward(token, args![]).unwrap().into_array().unwrap();
        // The forward's output, and the gradient in the place of what was saved or beside it.
        assert_eq!((garden.value(&out), garden.value(&gradient)), (3.0, 3.0));
    }
    assert_eq!(garden.depths(), [0, 1]);
    let outline = garden.engine.outline().unwrap();
    let below = outline.lines().last().unwrap();
    assert!(below.contains("backward") && below.contains("given up"), "{outline}");
}

#[test]
fn a_pending_backward_holds_its_path_and_a_step_that_is_asked_for_begins_all_the_same() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (forward, input) = (forward(&garden, "forward"), garden.fresh(3.0));
    let (other, backward) = (garden.copy("other"), backward(&garden, FunctionOptions::new()));
    for step_between in [false, true] {
        garden.engine.reset().unwrap();
        for turn in 0..5 {
            let (outputs, token) = forward.forward(args![&input]).unwrap();
            drop(outputs);
            if step_between {
                garden.engine.begin_step().unwrap();
            }
            let [between] = other.call(args![&garden.fresh(7.0)]).unwrap().into_array().unwrap();
            let [gradient] = backward.backward(token, args![]).unwrap().into_array().unwrap();
            assert_eq!(
                (garden.value(&between), garden.value(&gradient)),
                (7.0, 3.0),
                "{step_between} {turn}"
            );
        }
        // Without a step the other function's recording lies below the forward's; with one it is a root.
        let depths = garden.depths();
        assert_eq!(
            depths.iter().filter(|depth| **depth == 0).count(),
            1 + usize::from(step_between),
            "{depths:?}"
        );
        assert_eq!(garden.engine.stats().unwrap().calls.eager, 0);
    }
    garden.device.verdict().unwrap();
}

#[test]
fn forwards_whose_backwards_never_come_stop_nothing_once_their_tokens_are_gone() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (forward, input) = (forward(&garden, "forward"), garden.fresh(3.0));
    let mut pending = Vec::new();
    for _ in 0..3 {
        let (_outputs, token) = forward.forward(args![&input]).unwrap();
        pending.push(token);
    }
    // Nothing is recorded below a warm-up whose values a backward still needs.
    let stats = garden.engine.stats().unwrap();
    assert_eq!((stats.calls.recordings, stats.pending_backwards), (0, 3));
    pending.clear();
    for _ in 0..3 {
        let _ = forward.forward(args![&input]).unwrap();
    }
    let stats = garden.engine.stats().unwrap();
    assert_eq!((stats.calls.recordings, stats.calls.replays), (1, 2));
}

#[test]
fn gradients_add_up_in_a_buffer_of_the_callers() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (forward, backward) = (forward(&garden, "forward"), backward(&garden, FunctionOptions::new()));
    let kernel = graphgrove_sim::kernels::axpy(&garden.device);
    let gather = garden.engine.function_with("gather", FunctionOptions::new().mutates([0]), move |cx| {
        let args = graphgrove::Args::new().read(cx.input(1)?.address()?).read_write(cx.input(0)?.address()?);
        let n = crate::garden::N as u32;
        cx.launch(&kernel, graphgrove::LaunchDims::for_elements(n), &args.scalar(n).scalar(1.0_f32))?;
        Ok(vec![])
    });
    let total = garden.fresh(0.0);
    let mut expected = 0.0;
    for turn in 0..8 {
        let input = garden.fresh(turn as f32);
        let (_outputs, token) = forward.forward(args![&input]).unwrap();
        let [gradient] = backward.backward(token, args![]).unwrap().into_array().unwrap();
        let _ = gather.call(args![&total, gradient]).unwrap();
        expected += turn as f32;
        assert_eq!(garden.value(&total), expected, "{turn}");
    }
    garden.device.verdict().unwrap();
    let copy = garden.engine.function("copy", |cx| Ok(vec![copied(cx)?]));
    let [seen] = copy.call(args![&total]).unwrap().into_array().unwrap();
    assert_eq!(garden.value(&seen), expected);
}
