//! Trees in a state in which one call is about to be decided.

use graphgrove_tree::{
    Address, Call, Decision, FunctionId, FunctionSpec, Input, Limits, LiveTable, NodeId, Options, Output,
    ParamSetId, ParamVersion, Params, PathChange, Signature, SlotIndex, SlotValue, Tree,
};
use std::hint::black_box;

/// A tree, and the call that is decided.
pub(crate) struct Case {
    tree: Tree,
    live: LiveTable,
    function: FunctionId,
    addresses: Vec<Address>,
    inputs: Vec<Input>,
}

impl Case {
    fn new() -> Self {
        let limits = Limits {
            siblings: 2000,
            recordings_per_function: 4000,
            rerecordings: 2000,
            unreplayed: 4000,
            ..Limits::default()
        };
        let mut tree = Tree::new(Options { limits, ..Options::default() });
        let function = tree.add_function(FunctionSpec::new("measured"));
        Self { tree, live: LiveTable::new(), function, addresses: Vec::new(), inputs: Vec::new() }
    }

    /// The call that is decided.
    pub(crate) fn call(&self) -> Call<'_> {
        Call::inference(self.function, &self.inputs).with_params(Params {
            set: ParamSetId::new(1),
            version: ParamVersion::new(1),
            addresses: &self.addresses,
        })
    }

    /// Decides a call and says whether it is a replay: what is measured.
    #[inline]
    pub(crate) fn is_replayed(&self, call: &Call<'_>) -> bool {
        matches!(self.tree.decide(black_box(call), black_box(&self.live)), Ok(Decision::Replay(_)))
    }

    /// Runs one call to its end, its four outputs kept.
    fn run(&mut self, function: FunctionId, inputs: &[Input]) -> (NodeId, [SlotValue; 4]) {
        let params =
            Params { set: ParamSetId::new(1), version: ParamVersion::new(1), addresses: &self.addresses };
        let call = Call::inference(function, inputs).with_params(params);
        let decision = self.tree.decide(&call, &self.live).unwrap();
        let ended = decision.path_change().and_then(PathChange::path_end).cloned();
        ended.iter().flat_map(|end| &end.slots).for_each(|old| self.live.clear(old.value.slot));
        let outputs = vec![Output::fresh(); 4];
        let ran = match decision {
            Decision::Replay(replay) => self.tree.replayed(replay, &call).unwrap(),
            Decision::Record(plan) => {
                let recording = self.tree.begin_recording(*plan, &self.live).unwrap();
                self.tree.finish_recording(recording, outputs, &self.live).unwrap()
            }
            Decision::WarmUp(plan) => {
                let warm_up = self.tree.begin_warm_up(*plan).unwrap();
                self.tree.finish_warm_up(warm_up, outputs, true).unwrap()
            }
            Decision::Eager(reason) => panic!("ran eagerly: {reason}"),
        };
        self.live.set_all(ran.node, 4);
        let value = |index| SlotValue::new(ran.node, SlotIndex::new(index), ran.epoch);
        (ran.node, [0, 1, 2, 3].map(value))
    }

    fn drop_all(&mut self) {
        self.live = LiveTable::new();
    }

    /// Two managed inputs and two staged ones.
    fn inputs_after(outputs: Option<[SlotValue; 4]>) -> Vec<Input> {
        let signature = Signature::new(1);
        let managed = |index: usize| match outputs {
            Some(outputs) => Input::managed(signature, outputs[index]),
            None => Input::staged(signature),
        };
        vec![managed(0), managed(1), Input::staged(signature), Input::staged(signature)]
    }

    /// Makes the function warm, and every step from then on begin without a path.
    fn warm(&mut self) {
        let inputs = Self::inputs_after(None);
        self.run(self.function, &inputs);
        self.drop_all();
    }

    /// Runs a chain of so many calls, each taking two outputs of the one before, from a root on.
    fn chain(&mut self, length: usize) -> [SlotValue; 4] {
        let mut outputs = None;
        for _ in 0..length {
            outputs = Some(self.run(self.function, &Self::inputs_after(outputs)).1);
        }
        outputs.unwrap()
    }
}

/// The next call of a chain whose path has so many nodes, all of them with live outputs.
pub(crate) fn at_depth(depth: usize) -> Case {
    let mut case = Case::new();
    case.warm();
    for _ in 0..2 {
        case.chain(depth + 1);
        case.drop_all();
    }
    let outputs = case.chain(depth);
    case.inputs = Case::inputs_after(Some(outputs));
    case
}

/// The next call below a node that has so many children of the same function.
pub(crate) fn with_siblings(siblings: u64) -> Case {
    let mut case = with_siblings_alternating(siblings);
    // The last sibling becomes what followed last time.
    let inputs = case.inputs.clone();
    case.run(case.function, &inputs);
    case.drop_all();
    let outputs = case.chain(1);
    case.inputs[..2].copy_from_slice(&Case::inputs_after(Some(outputs))[..2]);
    case
}

/// The same, when another sibling followed last time: the recording has to be looked up.
pub(crate) fn with_siblings_alternating(siblings: u64) -> Case {
    let mut case = Case::new();
    case.warm();
    let shaped = |shape: u64, outputs| {
        let mut inputs = Case::inputs_after(outputs);
        inputs[3] = Input::staged(Signature::new(shape));
        inputs
    };
    for shape in 1..=siblings {
        case.run(case.function, &shaped(shape, None));
        case.drop_all();
    }
    for shape in (1..=siblings).rev() {
        let outputs = case.chain(1);
        case.run(case.function, &shaped(shape, Some(outputs)));
        case.drop_all();
    }
    let outputs = case.chain(1);
    case.inputs = shaped(siblings, Some(outputs));
    case
}

/// A root, when the path that ends has so many nodes, none of them needed.
pub(crate) fn root_after(depth: usize) -> Case {
    let mut case = Case::new();
    case.warm();
    for _ in 0..3 {
        case.chain(depth);
        case.drop_all();
    }
    case.inputs = Case::inputs_after(None);
    case
}

/// A root among so many functions.
pub(crate) fn among_functions(functions: usize) -> Case {
    let mut case = Case::new();
    let inputs = Case::inputs_after(None);
    let others: Vec<_> = (1..functions)
        .map(|number| case.tree.add_function(FunctionSpec::new(format!("f{number}"))))
        .collect();
    for _ in 0..3 {
        for function in others.iter().copied().chain([case.function]) {
            case.run(function, &inputs);
            case.drop_all();
        }
    }
    others.iter().for_each(|function| {
        case.run(*function, &inputs);
        case.drop_all();
    });
    case.inputs = inputs;
    case
}

/// A root with so many parameters, unchanged.
pub(crate) fn with_params(params: u64) -> Case {
    let mut case = Case::new();
    case.addresses = (0..params).map(Address::new).collect();
    for _ in 0..3 {
        case.chain(1);
        case.drop_all();
    }
    case.inputs = Case::inputs_after(None);
    case
}
