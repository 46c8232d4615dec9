//! Properties that hold whatever was called before.

use crate::driver::{Driver, kept, moved, x};
use graphgrove_tree::{
    Call, FunctionId, FunctionSpec, Limits, OldOutput, Options, Output, PathState, SlotValue, TokenId,
};
use proptest::prelude::*;

/// One call of a random history: the function, whether it is a forward, what it does with its inputs and
/// outputs.
#[derive(Clone, Debug)]
struct Past {
    function: usize,
    is_forward: bool,
    gives_up_input: bool,
    keeps_outputs: bool,
    discards_token: bool,
    begins_step: bool,
}

fn past() -> impl Strategy<Value = Vec<Past>> {
    let one = (0..3_usize, any::<[bool; 4]>(), prop::bool::weighted(0.1)).prop_map(
        |(function, bits, begins_step)| Past {
            function,
            is_forward: bits[0],
            gives_up_input: bits[1],
            keeps_outputs: bits[2],
            discards_token: bits[3],
            begins_step,
        },
    );
    prop::collection::vec(one, 0..40)
}

/// A driver with a random history, the functions it used, and what is still held.
fn after(history: &[Past], limits: Limits) -> (Driver, Vec<FunctionId>, Vec<SlotValue>, Vec<TokenId>) {
    let mut e = Driver::new(Options { limits, ..Options::default() });
    let rules = [OldOutput::Error, OldOutput::CopyOut, OldOutput::Keep];
    let functions: Vec<_> = rules
        .into_iter()
        .map(|rule| {
            let spec = FunctionSpec::new(format!("{rule:?}")).at_new_step(rule);
            e.function_of(spec, vec![Output::fresh(), Output::saved()])
        })
        .collect();
    let mut tokens = Vec::new();
    for past in history {
        if past.begins_step {
            e.tree.begin_step();
        }
        let value = held(&e).last().copied();
        let inputs =
            [value.map_or(x(1), |value| if past.gives_up_input { moved(value) } else { kept(value) })];
        let function = functions[past.function];
        let y = if past.is_forward { e.forward(function, &inputs) } else { e.infer(function, &inputs) };
        if !past.keeps_outputs {
            e.release(&y.outputs);
        }
        match y.token {
            Some(token) if past.discards_token => assert!(e.tree.discard_backward(token)),
            token => tokens.extend(token),
        }
    }
    let values = held(&e);
    (e, functions, values, tokens)
}

/// The live values on the path.
fn held(e: &Driver) -> Vec<SlotValue> {
    let nodes = e.tree.path().filter_map(|id| Some((id, e.tree.node(id)?)));
    let slots = nodes.flat_map(|(id, node)| {
        (0..2).map(move |index| SlotValue::new(id, graphgrove_tree::SlotIndex::new(index), node.epoch()))
    });
    slots.filter(|value| e.live.is_live(value.slot)).collect()
}

proptest! {
    /// The fault that pytorch/pytorch#98112 began to mend and #185995 still reports: whatever ran before,
    /// once its outputs and tokens are dead it holds nothing back.
    #[test]
    fn no_dead_forward_ever_blocks_an_unrelated_function(history in past(), tight in any::<bool>()) {
        let small = Limits { loop_length: 2, path_length: 4, ..Limits::default() };
        let limits = if tight { small } else { Limits::default() };
        let (mut e, _, values, tokens) = after(&history, limits);
        let unrelated = e.function("unrelated", 1);
        e.release(&values);
        for token in &tokens {
            prop_assert!(e.tree.discard_backward(*token));
        }
        prop_assert!(e.tree.is_path_over(&e.live));
        let ran: Vec<_> = (0..3).map(|_| {
            let y = e.infer(unrelated, &[x(1)]);
            e.forget(&y);
            y
        }).collect();
        prop_assert!(ran[0].is_warm_up() && ran[1].is_record() && ran[2].is_replay());
        prop_assert!(ran.iter().all(|y| e.tree.node(y.node()).is_none_or(|node| node.parent().is_none())));
    }

    /// A forward that waits for its backward holds its own path and nothing else: what comes after it is
    /// recorded once and replayed ever after, however long the backward takes.
    #[test]
    fn a_live_forward_lets_an_unrelated_function_settle_below_it(history in past(), calls in 3..50_usize) {
        let (mut e, functions, values, tokens) = after(&history, Limits::default());
        e.release(&values);
        for token in &tokens {
            prop_assert!(e.tree.discard_backward(*token));
        }
        let unrelated = e.function("unrelated", 1);
        e.settle(&Call::inference(unrelated, &[x(1)]));
        e.settle(&Call::forward(functions[0], &[x(7)]));
        let waiting = e.forward(functions[0], &[x(7)]);
        prop_assert_eq!(e.tree.path_state(), PathState::Replaying);
        let before = e.recorded;
        for turn in 0..calls {
            let y = e.infer(unrelated, &[x(1)]);
            prop_assert_eq!(y.is_replay(), turn > 0);
            prop_assert_eq!(e.tree.path().len(), 2);
            e.forget(&y);
        }
        prop_assert_eq!(e.recorded, before + 1);
        prop_assert!(e.tree.is_pending(waiting.token()));
        prop_assert!(waiting.outputs.iter().all(|value| e.live.is_live(value.slot)));
    }

    /// Whatever a warm-up left behind, kept or saved for a pending backward, it lasts until the next step:
    /// after that every function is recorded once and replayed.
    #[test]
    fn no_kept_or_pending_value_of_a_warm_up_keeps_functions_from_being_recorded_for_ever(
        history in past(),
        steps in 4..40_usize,
    ) {
        let (mut e, functions, ..) = after(&history, Limits::default());
        e.call(&Call::forward(functions[2], &[x(7)]));
        let unrelated = e.function("unrelated", 1);
        let mut ran = Vec::new();
        for _ in 0..steps {
            e.tree.begin_step();
            let y = e.infer(unrelated, &[x(1)]);
            e.forget(&y);
            ran.push(y);
        }
        let warm_ups = ran.iter().filter(|y| y.is_warm_up()).count();
        let recordings = ran.iter().filter(|y| y.is_record()).count();
        prop_assert!(warm_ups <= 2 && recordings <= 2, "{} and {}", warm_ups, recordings);
        prop_assert!(ran[3..].iter().all(crate::driver::Outcome::is_replay));
    }

    /// Recordings are a pure function of the calls.
    #[test]
    fn the_same_calls_make_the_same_tree(history in past()) {
        let (one, ..) = after(&history, Limits::default());
        let (other, ..) = after(&history, Limits::default());
        prop_assert_eq!(one.tree.outline(), other.tree.outline());
        prop_assert_eq!(one.tree.dot(), other.tree.dot());
    }

    /// The state of a path says how its last call ran, and there is a path exactly if there is a state.
    #[test]
    fn a_path_and_its_state_come_and_go_together(history in past()) {
        let (e, ..) = after(&history, Limits::default());
        prop_assert_eq!(e.tree.path().len() == 0, e.tree.path_state() == PathState::None);
        prop_assert_eq!(e.tree.current(), e.tree.path().next_back());
    }
}
