//! What a trace asks for, call by call: which values go in, and when each dies.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::body::{Body, Returned};
use crate::error::{Error, Result};
use crate::trace::{self, Input, Mode, Ran, Trace};

/// One output of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value {
    pub(crate) call: usize,
    pub(crate) output: usize,
}

/// A trace, ready to be played.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) reserved: Option<u64>,
    pub(crate) bodies: Vec<Body>,
    /// The bytes of each parameter.
    pub(crate) parameters: Vec<u64>,
    pub(crate) calls: Vec<Planned>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) function: usize,
    pub(crate) mode: Mode,
    pub(crate) begins_step: bool,
    pub(crate) arguments: Vec<Source>,
    pub(crate) parameters: Vec<usize>,
    /// Of a backward the call of its forward.
    pub(crate) forward: Option<usize>,
    /// What is dropped before the call.
    pub(crate) dropped: Vec<Value>,
    /// What it became where the trace was taken.
    pub(crate) ran: Ran,
}

/// Where an argument comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Memory of the caller's own.
    Own {
        bytes: u64,
    },
    /// An output, given up or kept.
    Output {
        value: Value,
        given: bool,
    },
    Scalar(u64),
}

/// What an output's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Memory that this call has allocated for this output.
    Output(Value, u64),
    /// The caller's, a parameter's, or none.
    Elsewhere,
}

/// The calls of one step, by their places in the trace.
type Step = std::ops::Range<usize>;

impl Program {
    pub(crate) fn new(trace: &Trace) -> Result<Self> {
        let bodies = bodies(trace)?;
        let steps = steps(&trace.calls);
        let numbers = parameters(trace);
        let mut sizes: Vec<(usize, u64)> = numbers.values().copied().collect();
        sizes.sort_unstable();
        let mut program = Self {
            name: trace.name.clone(),
            reserved: trace.reserved,
            bodies,
            parameters: sizes.into_iter().map(|(_, bytes)| bytes).collect(),
            calls: Vec::new(),
        };
        let mut seen = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let like = like(&steps, at, &trace.calls);
            for (place, call) in step.clone().enumerate() {
                let of = trace.calls.get(call).zip(trace.calls.get(like.start + place));
                let Some((own, like)) = of else { continue };
                let planned = program.plan(own, like, step.start, place, &numbers);
                program.calls.push(planned.map_err(|why| Error::Call { call, why })?);
            }
            last_seen(&trace.calls, step, &like, &mut seen);
        }
        program.match_backwards(&steps);
        program.drop_values(seen);
        Ok(program)
    }

    /// Plans a call of the step that starts at `start`, with the inputs of the call `like` it.
    fn plan(
        &self,
        own: &trace::Call,
        like: &trace::Call,
        start: usize,
        place: usize,
        numbers: &BTreeMap<u64, (usize, u64)>,
    ) -> std::result::Result<Planned, String> {
        let mut arguments = Vec::new();
        let mut parameters = Vec::new();
        for input in &like.inputs {
            match *input {
                Input::Parameter { id, bytes } => match numbers.get(&id) {
                    Some((number, _)) => parameters.push(*number),
                    None => arguments.push(Source::Own { bytes }),
                },
                Input::Staged { bytes } => arguments.push(Source::Own { bytes }),
                Input::Path { depth, output, .. } => {
                    if depth >= place {
                        return Err(format!("it reads an output of depth {depth} at depth {place}"));
                    }
                    let value = Value { call: start + depth, output };
                    arguments.push(Source::Output { value, given: false });
                }
                Input::Value(value) => arguments.push(Source::Scalar(value)),
                Input::Nothing => arguments.push(Source::Scalar(0)),
            }
        }
        Ok(Planned {
            function: own.function,
            mode: own.mode,
            begins_step: place == 0,
            arguments,
            parameters,
            forward: None,
            dropped: Vec::new(),
            ran: own.ran,
        })
    }

    /// Finds the forward of each backward: the one of its step whose backward has not run and of which it reads most.
    fn match_backwards(&mut self, steps: &[Step]) {
        for step in steps {
            let mut open: Vec<usize> = Vec::new();
            for at in step.clone() {
                let Some(call) = self.calls.get_mut(at) else { continue };
                match call.mode {
                    Mode::Forward => open.push(at),
                    Mode::Inference => {}
                    Mode::Backward => {
                        let reads = |forward: &usize| {
                            let is_its = |source: &&Source| matches!(source, Source::Output { value, .. } if value.call == *forward);
                            call.arguments.iter().filter(is_its).count()
                        };
                        call.forward = open.iter().copied().max_by_key(|forward| reads(forward));
                        open.retain(|forward| Some(*forward) != call.forward);
                    }
                }
            }
        }
    }

    /// Says where each output is dropped. `seen` has the last call that found it alive or read it.
    ///
    /// One that this call reads is given up to it. One that merely shares memory with what this call is given has to be gone
    /// before, as it was when the call gave its inputs up in the trace; any other is dropped behind that call.
    fn drop_values(&mut self, seen: BTreeMap<Value, usize>) {
        let mut ends: Vec<Vec<Value>> = vec![Vec::new(); self.calls.len()];
        for call in 0..self.calls.len() {
            for output in 0..self.body(call).map_or(0, |body| body.outputs.len()) {
                let value = Value { call, output };
                let last = seen.get(&value).copied().unwrap_or(call);
                if let Some(end) = ends.get_mut(last) {
                    end.push(value);
                }
            }
        }
        for (last, ended) in ends.into_iter().enumerate() {
            let Some(call) = self.calls.get(last) else { continue };
            let read: HashSet<Value> = call
                .arguments
                .iter()
                .filter_map(|source| match source {
                    Source::Output { value, .. } => Some(*value),
                    _ => None,
                })
                .collect();
            let given: HashSet<Value> = ended.iter().filter(|value| read.contains(value)).copied().collect();
            let owners: Vec<Owner> = given.iter().map(|value| self.owner(*value)).collect();
            let (before, after): (Vec<Value>, Vec<Value>) =
                ended.into_iter().filter(|value| !given.contains(value)).partition(|value| {
                    value.call < last
                        && self.owner(*value) != Owner::Elsewhere
                        && owners.contains(&self.owner(*value))
                });
            if let Some(call) = self.calls.get_mut(last) {
                call.dropped.extend(before);
                for source in &mut call.arguments {
                    if let Source::Output { value, given: is_given } = source {
                        *is_given = given.contains(value);
                    }
                }
            }
            if let Some(next) = self.calls.get_mut(last + 1) {
                next.dropped.extend(after);
            }
        }
    }

    pub(crate) fn body(&self, call: usize) -> Option<&Body> {
        self.bodies.get(self.calls.get(call)?.function)
    }

    /// The arguments of a function that are no tensors.
    pub(crate) fn scalars(&self, function: usize) -> Vec<usize> {
        let call = self.calls.iter().find(|call| call.function == function);
        let arguments = call.map(|call| &call.arguments[..]).unwrap_or_default();
        let is_scalar = |at: &usize| matches!(arguments.get(*at), Some(Source::Scalar(_)));
        (0..arguments.len()).filter(is_scalar).collect()
    }

    /// Whose memory an output is.
    pub(crate) fn owner(&self, value: Value) -> Owner {
        let Some((call, body)) = self.calls.get(value.call).zip(self.body(value.call)) else {
            return Owner::Elsewhere;
        };
        match body.outputs.get(value.output) {
            Some(Returned::Block(block)) => Owner::Output(value, body.bytes(*block)),
            Some(Returned::Sibling(output)) if *output < value.output => {
                self.owner(Value { output: *output, ..value })
            }
            Some(Returned::Argument(argument)) => match call.arguments.get(*argument) {
                Some(Source::Output { value: of, .. }) if of.call < value.call => self.owner(*of),
                _ => Owner::Elsewhere,
            },
            _ => Owner::Elsewhere,
        }
    }

    /// The bytes of an output, an alias or not.
    pub(crate) fn bytes(&self, value: Value) -> u64 {
        let Some((call, body)) = self.calls.get(value.call).zip(self.body(value.call)) else { return 0 };
        match body.outputs.get(value.output) {
            Some(Returned::Block(block)) => body.bytes(*block),
            Some(Returned::Sibling(output)) if *output < value.output => {
                self.bytes(Value { output: *output, ..value })
            }
            Some(Returned::Argument(argument)) => match call.arguments.get(*argument) {
                Some(Source::Output { value: of, .. }) if of.call < value.call => self.bytes(*of),
                Some(Source::Own { bytes }) => *bytes,
                _ => 0,
            },
            Some(Returned::Parameter(at)) => {
                call.parameters.get(*at).and_then(|number| self.parameters.get(*number)).copied().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// How many outputs all calls have together.
    pub(crate) fn outputs(&self) -> usize {
        (0..self.calls.len()).filter_map(|call| self.body(call)).map(|body| body.outputs.len()).sum()
    }
}

fn bodies(trace: &Trace) -> Result<Vec<Body>> {
    let mut made = HashMap::new();
    for call in trace.calls.iter().filter(|call| call.ran == Ran::Record) {
        made.extend(call.node.map(|node| (node, call)));
    }
    let functions = trace.calls.iter().map(|call| call.function + 1).max().unwrap_or(0);
    let of = |function: usize| {
        let recordings = trace.recordings.iter().filter(|recording| recording.function == function);
        let all: Vec<_> = recordings.filter_map(|at| Some((at, *made.get(&at.node)?))).collect();
        Body::of(function, &all)
    };
    (0..functions).map(of).collect()
}

/// The calls of each step.
fn steps(calls: &[trace::Call]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        match steps.last_mut() {
            Some(step) if calls.get(step.start).is_some_and(|first| first.step == call.step) => {
                step.end = at + 1;
            }
            _ => steps.push(at..at + 1),
        }
    }
    steps
}

/// The step from which inputs and lifetimes are taken. A warm-up does not show which of its inputs are outputs of the path, so
/// it is another step that begins with the same calls and has no warm-up among them, if there is one.
fn like(steps: &[Step], at: usize, calls: &[trace::Call]) -> Step {
    let own = steps.get(at).cloned().unwrap_or_default();
    let of = |step: &Step| calls.get(step.start..(step.start + own.len()).min(step.end)).unwrap_or_default();
    let is_shown = |step: &Step| of(step).iter().all(|call| call.ran != Ran::WarmUp);
    if is_shown(&own) {
        return own;
    }
    let is_same = |step: &&Step| {
        step.len() >= own.len()
            && is_shown(step)
            && of(step).iter().zip(of(&own)).all(|(a, b)| (a.function, a.mode) == (b.function, b.mode))
    };
    steps.iter().find(is_same).cloned().unwrap_or(own)
}

/// Numbers the parameters, (id -> number and bytes): those that a call other than a warm-up has. In warm-ups values pass for
/// parameters that are none.
fn parameters(trace: &Trace) -> BTreeMap<u64, (usize, u64)> {
    let mut numbers = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| call.ran != Ran::WarmUp) {
        for input in &call.inputs {
            if let Input::Parameter { id, bytes } = *input {
                let next = numbers.len();
                numbers.entry(id).or_insert((next, bytes));
            }
        }
    }
    numbers
}

/// Notes for each output of a step which call of the step was the last to find it alive or to read it.
///
/// Reads count because the trace shows values as dead that only a backward to come still holds.
fn last_seen(calls: &[trace::Call], step: &Step, like: &Step, seen: &mut BTreeMap<Value, usize>) {
    for place in 1..step.len() {
        let Some(call) = calls.get(like.start + place) else { continue };
        let alive = call.live.iter().enumerate().flat_map(|(depth, bits)| {
            bits.iter().enumerate().filter(|(_, live)| **live).map(move |(output, _)| (depth, output))
        });
        let read = call.inputs.iter().filter_map(|input| match input {
            Input::Path { depth, output, .. } => Some((*depth, *output)),
            _ => None,
        });
        for (depth, output) in alive.chain(read).filter(|(depth, _)| *depth < place) {
            seen.insert(Value { call: step.start + depth, output }, step.start + place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn program() -> Program {
        Program::new(&Trace::parse(synthetic::TRACE).unwrap()).unwrap()
    }

    #[test]
    fn a_warm_up_reads_what_the_same_call_of_a_later_step_reads() {
        let program = program();
        let (first, later) = (&program.calls[1], &program.calls[4]);
        assert_eq!((first.ran, later.ran), (Ran::WarmUp, Ran::Record));
        let depth = |call: &Planned, start: usize| -> Vec<Option<(usize, usize)>> {
            let of = |source: &Source| match source {
                Source::Output { value, .. } => Some((value.call - start, value.output)),
                _ => None,
            };
            call.arguments.iter().map(of).collect()
        };
        assert_eq!(depth(first, 0), depth(later, 3));
        assert_eq!(first.parameters, later.parameters);
        assert!(depth(first, 0).iter().flatten().count() > 0);
    }

    #[test]
    fn a_backward_belongs_to_a_forward_of_its_step_and_each_forward_has_one_at_most() {
        let program = program();
        let mut forwards = HashSet::new();
        for (at, call) in program.calls.iter().enumerate().filter(|(_, call)| call.mode == Mode::Backward) {
            let forward = call.forward.unwrap();
            assert!(forward < at && program.calls[forward].mode == Mode::Forward && forwards.insert(forward));
            assert!(program.calls[forward + 1..=at].iter().all(|call| !call.begins_step));
        }
        assert!(!forwards.is_empty());
    }

    #[test]
    fn every_output_of_an_ended_step_was_given_up_or_dropped_just_once_and_not_before_its_last_reader() {
        let program = program();
        let mut gone: HashMap<Value, usize> = HashMap::new();
        for (at, call) in program.calls.iter().enumerate() {
            for value in &call.dropped {
                assert_eq!(gone.insert(*value, at), None, "{value:?}");
            }
            let mut given = HashSet::new();
            for source in &call.arguments {
                if let Source::Output { value, given: is_given } = source {
                    assert!(!gone.contains_key(value), "call {at} reads {value:?}");
                    given.extend(is_given.then_some(*value));
                }
            }
            gone.extend(given.into_iter().map(|value| (value, at)));
        }
        let last = program.calls.iter().rposition(|call| call.begins_step).unwrap();
        for call in 0..last {
            for output in 0..program.body(call).unwrap().outputs.len() {
                assert!(gone.contains_key(&Value { call, output }), "{call} {output}");
            }
        }
    }

    #[test]
    fn an_alias_has_the_owner_of_what_it_is_an_alias_of() {
        let program = program();
        let (mut aliases, mut own) = (0, 0);
        for call in 0..program.calls.len() {
            let body = program.body(call).unwrap();
            for (output, returned) in body.outputs.iter().enumerate() {
                match (returned, program.owner(Value { call, output })) {
                    (Returned::Block(_), Owner::Output(value, _)) => {
                        assert_eq!(value, Value { call, output });
                        own += 1;
                    }
                    (Returned::Sibling(of), owner) => {
                        assert_eq!(owner, program.owner(Value { call, output: *of }));
                        aliases += 1;
                    }
                    (Returned::Parameter(_) | Returned::Nothing, owner) => {
                        assert_eq!(owner, Owner::Elsewhere);
                    }
                    (Returned::Argument(_), Owner::Output(value, _)) => assert!(value.call < call),
                    (Returned::Argument(_), Owner::Elsewhere) => {}
                    (Returned::Block(_), Owner::Elsewhere) => unreachable!("{call} {output}"),
                }
            }
        }
        assert!(aliases > 0 && own > 0);
    }
}
