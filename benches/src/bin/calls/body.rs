//! What a function does, taken out of its recordings.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::trace::{Call, Event, Input, Output, Recording};

/// What a function does at each call. Blocks and arguments are numbered in order; parameters are no arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Body {
    pub(crate) work: Vec<Work>,
    pub(crate) outputs: Vec<Returned>,
    /// The parameters that it writes to.
    pub(crate) mutated: Vec<usize>,
}

/// One thing that a body does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Allocate {
        block: usize,
        bytes: u64,
    },
    Free {
        block: usize,
    },
    /// Reads an argument for the last time and drops it.
    LetGo {
        argument: usize,
    },
}

/// What a body returns as one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    Block(usize),
    Argument(usize),
    Parameter(usize),
    Sibling(usize),
    Nothing,
}

impl Body {
    /// The bytes of a block.
    pub(crate) fn bytes(&self, block: usize) -> u64 {
        let of = |work: &Work| match work {
            Work::Allocate { block: at, bytes } if *at == block => Some(*bytes),
            _ => None,
        };
        self.work.iter().find_map(of).unwrap_or(0)
    }

    /// Puts together what all recordings of one function show, each with the call that made it.
    ///
    /// A trace says when the copy of a staged input dies, and not when an output of the path does that the call gives up. Such
    /// arguments are let go of one by one over the length of the body, in their order, unless a recording with the same
    /// argument staged has shown when that one is.
    pub(crate) fn of(function: usize, recordings: &[(&Recording, &Call)]) -> Result<Self> {
        let mut shown: Option<Shown> = None;
        for (recording, call) in recordings {
            let next = Shown::of(recording, call).map_err(|why| Error::Function { function, why })?;
            match &mut shown {
                None => shown = Some(next),
                Some(shown) if shown.work == next.work && shown.outputs == next.outputs => {
                    shown.let_go.extend(next.let_go);
                }
                Some(_) => {
                    let why = "its recordings do different things".to_owned();
                    return Err(Error::Function { function, why });
                }
            }
        }
        let shown =
            shown.ok_or_else(|| Error::Function { function, why: "it was never recorded".to_owned() })?;
        Ok(shown.body())
    }
}

/// What one recording shows.
struct Shown {
    /// Allocations and frees of blocks.
    work: Vec<Work>,
    outputs: Vec<Returned>,
    mutated: Vec<usize>,
    arguments: usize,
    /// An (argument -> place) pair means that it is let go of before the work at that place.
    let_go: BTreeMap<usize, usize>,
}

/// What a number in a recording's body stands for.
#[derive(Clone, Copy)]
enum Named {
    Argument(usize),
    Block(usize),
}

impl Shown {
    fn of(recording: &Recording, call: &Call) -> std::result::Result<Self, String> {
        let (arguments, parameters) = places(&call.inputs);
        let mut names: HashMap<u64, Named> = HashMap::new();
        let mut events = recording.body.iter();
        for (argument, input) in &arguments {
            let Input::Staged { bytes } = input else { continue };
            match events.next() {
                Some(Event::Allocate { id, bytes: copied }) if copied == bytes => {
                    names.insert(*id, Named::Argument(*argument));
                }
                other => return Err(format!("no copy of argument {argument} but {other:?}")),
            }
        }
        let (mut work, mut let_go, mut blocks) = (Vec::new(), BTreeMap::new(), 0);
        for event in events {
            match *event {
                Event::Allocate { id, bytes } => {
                    names.insert(id, Named::Block(blocks));
                    work.push(Work::Allocate { block: blocks, bytes });
                    blocks += 1;
                }
                Event::Free { id } => match names.get(&id) {
                    Some(Named::Block(block)) => work.push(Work::Free { block: *block }),
                    Some(Named::Argument(argument)) => {
                        let_go.insert(*argument, work.len());
                    }
                    None => return Err(format!("it frees {id}, which it has not allocated")),
                },
            }
        }
        let mut statics = 0..;
        let returned = |output: &Output| match *output {
            Output::Fresh { id, .. } => match names.get(&id) {
                Some(Named::Block(block)) => Ok(Returned::Block(*block)),
                Some(Named::Argument(argument)) => Ok(Returned::Argument(*argument)),
                None => Err(format!("it returns {id}, which it has not allocated")),
            },
            Output::Prior { depth, output } => {
                let is_it = |input: &Input| matches!(input, Input::Path { depth: at, output: of, .. } if (*at, *of) == (depth, output));
                let argument = arguments.iter().find(|(_, input)| is_it(input));
                argument
                    .map(|(argument, _)| Returned::Argument(*argument))
                    .ok_or_else(|| format!("it returns output {output} of depth {depth}, which is no input"))
            }
            Output::Sibling { output } => Ok(Returned::Sibling(output)),
            Output::Static => match (statics.next(), parameters.len()) {
                (Some(at), count) if count > 0 => Ok(Returned::Parameter(at % count)),
                _ => Err("it returns a parameter and has none".to_owned()),
            },
            Output::Nothing => Ok(Returned::Nothing),
        };
        let outputs = recording.outputs.iter().map(returned).collect::<Result<_, _>>()?;
        let written = |at: &usize| {
            let parameter = parameters.iter().position(|parameter| parameter == at);
            parameter.ok_or_else(|| format!("it writes to input {at}, which is no parameter"))
        };
        let mutated = call.mutated.iter().map(written).collect::<Result<_, _>>()?;
        Ok(Self { work, outputs, mutated, arguments: arguments.len(), let_go })
    }

    fn body(self) -> Body {
        let Self { work, outputs, mutated, arguments, mut let_go } = self;
        let is_free = |argument: &usize| {
            !let_go.contains_key(argument) && !outputs.contains(&Returned::Argument(*argument))
        };
        let untold: Vec<usize> = (0..arguments).filter(is_free).collect();
        let count = untold.len();
        for (place, argument) in untold.into_iter().enumerate() {
            let_go.insert(argument, (place + 1) * work.len() / count);
        }
        let mut all = Vec::with_capacity(work.len() + let_go.len());
        let mut dying: Vec<(usize, usize)> =
            let_go.into_iter().map(|(argument, at)| (at, argument)).collect();
        dying.sort_unstable();
        let mut dying = dying.into_iter().peekable();
        for (place, one) in work.into_iter().enumerate() {
            while let Some((_, argument)) = dying.next_if(|(at, _)| *at <= place) {
                all.push(Work::LetGo { argument });
            }
            all.push(one);
        }
        all.extend(dying.map(|(_, argument)| Work::LetGo { argument }));
        Body { work: all, outputs, mutated }
    }
}

/// The inputs that are arguments, numbered, and the places of those that are parameters.
fn places(inputs: &[Input]) -> (Vec<(usize, Input)>, Vec<usize>) {
    let is_parameter = |input: &Input| matches!(input, Input::Parameter { .. });
    let arguments = inputs.iter().filter(|input| !is_parameter(input)).copied().enumerate().collect();
    let parameters = (0..inputs.len()).filter(|at| is_parameter(&inputs[*at])).collect();
    (arguments, parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Mode, Ran};

    fn call(inputs: Vec<Input>, mutated: Vec<usize>) -> Call {
        let (mode, ran) = (Mode::Inference, Ran::Record);
        Call { function: 0, mode, step: 0, inputs, live: Vec::new(), mutated, ran, node: Some(0) }
    }

    fn recording(outputs: Vec<Output>, body: &[(i64, u64)]) -> Recording {
        let event = |&(id, bytes): &(i64, u64)| match bytes {
            0 => Event::Free { id: id as u64 },
            bytes => Event::Allocate { id: id as u64, bytes },
        };
        Recording { node: 0, function: 0, outputs, body: body.iter().map(event).collect() }
    }

    #[test]
    fn copies_of_staged_inputs_are_no_blocks_and_die_where_the_recording_says() {
        let call = call(vec![Input::Parameter { id: 0, bytes: 8 }, Input::Staged { bytes: 64 }], vec![0]);
        let recording =
            recording(vec![Output::Fresh { bytes: 16, id: 2 }], &[(0, 64), (1, 32), (0, 0), (2, 16), (1, 0)]);
        let body = Body::of(0, &[(&recording, &call)]).unwrap();
        assert_eq!(
            body.work,
            [
                Work::Allocate { block: 0, bytes: 32 },
                Work::LetGo { argument: 0 },
                Work::Allocate { block: 1, bytes: 16 },
                Work::Free { block: 0 },
            ]
        );
        assert_eq!((&body.outputs[..], &body.mutated[..]), (&[Returned::Block(1)][..], &[0][..]));
        assert_eq!(body.bytes(1), 16);
    }

    #[test]
    fn given_up_outputs_of_the_path_die_one_by_one_unless_another_recording_knows_better() {
        let path = |depth| Input::Path { depth, output: 0, bytes: 64 };
        let managed = call(vec![path(0), path(1), path(2)], Vec::new());
        let work = [(1, 8), (2, 8), (1, 0), (3, 8)];
        let first = recording(Vec::new(), &work);
        let body = Body::of(0, &[(&first, &managed)]).unwrap();
        let places = |body: &Body| -> Vec<usize> {
            let at = |argument| body.work.iter().position(|work| *work == Work::LetGo { argument }).unwrap();
            (0..3).map(at).collect()
        };
        assert_eq!(places(&body), [1, 3, 6]);

        let staged = call(vec![Input::Staged { bytes: 64 }, path(1), path(2)], Vec::new());
        let second = recording(Vec::new(), &[(0, 64), (1, 8), (2, 8), (1, 0), (0, 0), (3, 8)]);
        let body = Body::of(0, &[(&first, &managed), (&second, &staged)]).unwrap();
        assert_eq!(places(&body), [4, 2, 6]);
    }

    #[test]
    fn an_alias_of_the_path_is_the_argument_that_it_came_as() {
        let call = call(vec![Input::Path { depth: 1, output: 4, bytes: 8 }], Vec::new());
        let alias = recording(vec![Output::Prior { depth: 1, output: 4 }], &[]);
        let body = Body::of(0, &[(&alias, &call)]).unwrap();
        assert_eq!((body.work, body.outputs), (Vec::new(), vec![Returned::Argument(0)]));
        let stray = recording(vec![Output::Prior { depth: 0, output: 4 }], &[]);
        assert!(matches!(Body::of(3, &[(&stray, &call)]), Err(Error::Function { function: 3, .. })));
    }

    #[test]
    fn recordings_that_do_different_things_are_refused() {
        let call = call(Vec::new(), Vec::new());
        let (one, other) =
            (recording(Vec::new(), &[(0, 8), (0, 0)]), recording(Vec::new(), &[(0, 16), (0, 0)]));
        assert!(Body::of(0, &[(&one, &call), (&one, &call)]).is_ok());
        assert!(matches!(Body::of(0, &[(&one, &call), (&other, &call)]), Err(Error::Function { .. })));
        assert!(matches!(Body::of(0, &[]), Err(Error::Function { .. })));
    }
}
