//! Whether a program can be: names that hold something, of the right kind, and functions that exist.

use std::collections::HashMap;

use crate::error::{ParseError, Result};
use crate::program::{Arg, Call, CallKind, How, InPlace, Line, Made, MoveTo, Op, Room, Statement, What};
use crate::{
    Counter, Demand, Expectation, Function, Measure, Name, NewTensor, Number, Operand, Scenario, Setting,
    Values,
};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tensor.
    Tensor,
    /// A parameter.
    Param,
    /// A number.
    Number,
    /// Memory of the host.
    Host,
    /// A stream.
    Stream,
    /// The token of a backward.
    Token,
    /// A number of the set-up, which can only be compared.
    Note,
}

impl Kind {
    const fn shown(self) -> &'static str {
        match self {
            Self::Tensor => "a tensor",
            Self::Param => "a parameter",
            Self::Number => "a number",
            Self::Host => "host memory",
            Self::Stream => "a stream",
            Self::Token => "a token",
            Self::Note => "a note",
        }
    }
}

/// What each function is called with, found from its calls.
pub(crate) type Inputs = HashMap<String, Vec<Kind>>;

struct Checker<'s> {
    scenario: &'s Scenario,
    names: HashMap<String, Kind>,
    /// The first call of a function says what its inputs are.
    inputs: Inputs,
}

/// Checks a program.
pub(crate) fn check(scenario: &Scenario) -> Result<()> {
    checked(scenario).map(drop)
}

/// What the inputs of each function are; of one that is not called, tensors.
pub(crate) fn inputs(scenario: &Scenario) -> Inputs {
    checked(scenario).unwrap_or_default()
}

fn checked(scenario: &Scenario) -> Result<Inputs> {
    let mut checker = Checker { scenario, names: HashMap::new(), inputs: HashMap::new() };
    for (at, function) in scenario.functions.iter().enumerate() {
        let name = &function.name;
        if scenario.functions.iter().take(at).any(|before| before.name.text == name.text) {
            return Err(ParseError::impossible(name.place, format!("a second function `{name}`")));
        }
    }
    checker.block(&scenario.statements)?;
    crate::bound::check(&scenario.statements)?;
    for function in &scenario.functions {
        let uncalled = || function.inputs.iter().map(|input| uncalled(function, input)).collect();
        let kinds = checker.inputs.entry(function.name.text.clone()).or_insert_with(uncalled).clone();
        checker.function(function, &kinds)?;
    }
    Ok(checker.inputs)
}

impl Checker<'_> {
    fn block(&mut self, block: &[Statement]) -> Result<()> {
        block.iter().try_for_each(|statement| self.statement(statement))
    }

    fn is(&self, name: &Name, wanted: &[Kind]) -> Result<Kind> {
        match self.names.get(&name.text) {
            Some(kind) if wanted.contains(kind) => Ok(*kind),
            Some(kind) => {
                let wanted: Vec<_> = wanted.iter().map(|kind| kind.shown()).collect();
                let why = format!("`{name}` is {}, expected {}", kind.shown(), wanted.join(" or "));
                Err(ParseError::impossible(name.place, why))
            }
            None => Err(ParseError::impossible(name.place, format!("`{name}` holds nothing here"))),
        }
    }

    /// Refuses a name that holds nothing where a counter may stand as well, which is mostly a counter that is not spelt right.
    fn is_demanded(&self, name: &Name) -> Result<()> {
        if self.names.contains_key(&name.text) {
            return Ok(());
        }
        let why = format!("`{name}` holds nothing here, and is no counter: {}", Counter::all_words());
        Err(ParseError::impossible(name.place, why))
    }

    fn bind(&mut self, name: &Name, kind: Kind) -> Result<()> {
        let fixed = [Kind::Param, Kind::Stream, Kind::Host, Kind::Number, Kind::Note];
        match self.names.get(&name.text) {
            Some(before) if *before != kind && (fixed.contains(before) || fixed.contains(&kind)) => {
                let why = format!("`{name}` is {} already", before.shown());
                Err(ParseError::impossible(name.place, why))
            }
            Some(Kind::Param | Kind::Stream) => {
                Err(ParseError::impossible(name.place, format!("`{name}` is there already")))
            }
            _ => {
                self.names.insert(name.text.clone(), kind);
                Ok(())
            }
        }
    }

    fn number(&self, number: &Number) -> Result<()> {
        match number {
            Number::Literal(_) => Ok(()),
            Number::Name(name) => self.is(name, &[Kind::Number]).map(drop),
            Number::Of(left, _, right) => self.number(left).and_then(|()| self.number(right)),
        }
    }

    fn new_tensor(&self, tensor: &NewTensor) -> Result<()> {
        tensor.shape.iter().try_for_each(|number| self.number(number))
    }

    fn view(&self, view: &crate::View) -> Result<()> {
        let numbers = view.at.iter().chain(&view.step).chain(view.shape.iter().flatten());
        numbers.chain(view.strides.iter().flatten()).try_for_each(|number| self.number(number))
    }

    fn statement(&mut self, statement: &Statement) -> Result<()> {
        match &statement.what {
            What::Size(name, number) => self.number(number).and_then(|()| self.bind(name, Kind::Number)),
            What::Random(name, from, to) => {
                self.number(from)?;
                self.number(to)?;
                self.bind(name, Kind::Number)
            }
            What::Param(name, tensor) => self.new_tensor(tensor).and_then(|()| self.bind(name, Kind::Param)),
            What::Stream(name) => self.bind(name, Kind::Stream),
            What::Host(name, tensor) => self.new_tensor(tensor).and_then(|()| self.bind(name, Kind::Host)),
            What::Let(name, tensor) => self.new_tensor(tensor).and_then(|()| self.bind(name, Kind::Tensor)),
            What::View(name, view) => {
                self.is(&view.of, &[Kind::Tensor, Kind::Param])?;
                self.view(view)?;
                self.bind(name, Kind::Tensor)
            }
            What::Clone(name, of) => {
                self.is(of, &[Kind::Tensor, Kind::Param])?;
                self.bind(name, Kind::Tensor)
            }
            What::Draw(name, shape) => {
                shape.iter().try_for_each(|number| self.number(number))?;
                self.bind(name, Kind::Tensor)
            }
            What::Call(call) => self.call(call),
            What::Discard(name) => self.take(name, Kind::Token),
            What::Drop { names, .. } => names.iter().try_for_each(|name| self.take(name, Kind::Tensor)),
            What::Step
            | What::Reset
            | What::ShutDown
            | What::Check
            | What::ClearFaults
            | What::Suspend
            | What::Resume => Ok(()),
            What::Move(name, to) => {
                self.is(name, &[Kind::Param])?;
                match to {
                    MoveTo::Same => Ok(()),
                    MoveTo::New(tensor) => self.new_tensor(tensor),
                    MoveTo::Tensor(tensor) => self.is(tensor, &[Kind::Tensor]).map(drop),
                }
            }
            What::Write(name, tensor) => {
                self.is(name, &[Kind::Tensor, Kind::Param, Kind::Host])?;
                self.new_tensor(tensor)
            }
            What::Fault(fault) => self.number(&fault.nth),
            What::UseEngine(number) | What::Seed(number) => self.number(number),
            What::Enqueue(op, stream) => {
                self.is(stream, &[Kind::Stream])?;
                self.in_place(op, &[Kind::Tensor, Kind::Param])
            }
            What::Order { first, second } => {
                for name in [first, second].into_iter().filter(|name| name.text != "main") {
                    self.is(name, &[Kind::Stream])?;
                }
                Ok(())
            }
            What::Repeat { times, turn, body } => {
                self.number(times)?;
                turn.iter().try_for_each(|turn| self.bind(turn, Kind::Number))?;
                self.block(body)
            }
            What::Each { name, over, body } => {
                over.iter().try_for_each(|number| self.number(number))?;
                self.bind(name, Kind::Number)?;
                self.block(body)
            }
            What::Choose(choices) => {
                // What one choice takes away may be left by another.
                let before = self.names.clone();
                let mut after = before.clone();
                for choice in choices {
                    self.names = before.clone();
                    self.block(choice)?;
                    after.extend(std::mem::take(&mut self.names));
                }
                self.names = after;
                Ok(())
            }
            What::Threads { count, number, body } => {
                self.number(count)?;
                let before = self.names.clone();
                number.iter().try_for_each(|number| self.bind(number, Kind::Number))?;
                self.block(body)?;
                self.names = before;
                Ok(())
            }
            What::Expect(expectation) => self.expectation(expectation),
            What::Note(name, measure) => self.measure(measure).and_then(|()| self.bind(name, Kind::Note)),
        }
    }

    /// A name that holds nothing from here on.
    fn take(&mut self, name: &Name, kind: Kind) -> Result<()> {
        self.is(name, &[kind])?;
        self.names.remove(&name.text);
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Result<()> {
        let name = &call.function;
        let Some(function) = self.scenario.functions.iter().find(|function| function.name.text == name.text)
        else {
            return Err(ParseError::impossible(name.place, format!("there is no function `{name}`")));
        };
        let (given, wanted) = (call.args.len(), function.inputs.len());
        if given != wanted {
            let why = format!("`{name}` has {wanted} inputs, and {given} are given");
            return Err(ParseError::impossible(name.place, why));
        }
        if call.outputs.len() > function.outputs.len() {
            let (named, made) = (call.outputs.len(), function.outputs.len());
            let why = format!("`{name}` has {made} outputs, and {named} are named");
            return Err(ParseError::impossible(name.place, why));
        }
        if let Some(stream) = &call.stream {
            self.is(stream, &[Kind::Stream])?;
        }
        let mut kinds = Vec::with_capacity(given);
        for arg in &call.args {
            kinds.push(self.arg(arg, name)?);
        }
        // Gone whatever becomes of the call, and before it, so that nothing is given up and kept.
        for arg in &call.args {
            if let Arg::Give(given) = arg {
                self.take(given, Kind::Tensor)?;
            }
        }
        for arg in &call.args {
            if let Arg::Keep(kept) = arg
                && !self.names.contains_key(&kept.text)
            {
                let why = format!("`{kept}` is given up in the same call");
                return Err(ParseError::impossible(kept.place, why));
            }
        }
        match self.inputs.get(&name.text) {
            None => {
                self.inputs.insert(name.text.clone(), kinds);
            }
            Some(before) => {
                let different = before.iter().zip(&kinds).zip(&function.inputs).find(|((a, b), _)| a != b);
                if let Some(((before, now), input)) = different {
                    let (now, before) = (now.shown(), before.shown());
                    let why = format!("`{input}` of `{name}` is {now} here and {before} in an earlier call");
                    return Err(ParseError::impossible(name.place, why));
                }
            }
        }
        if let CallKind::Backward(token) = &call.kind {
            self.take(token, Kind::Token)?;
        }
        for output in call.outputs.iter().flatten() {
            self.bind(output, Kind::Tensor)?;
        }
        match &call.kind {
            CallKind::Forward(token) => self.bind(token, Kind::Token),
            CallKind::Plain | CallKind::Backward(_) => Ok(()),
        }
    }

    fn arg(&self, arg: &Arg, function: &Name) -> Result<Kind> {
        match arg {
            Arg::Keep(name) => {
                let kinds = [Kind::Tensor, Kind::Param, Kind::Number, Kind::Host];
                self.is(name, &kinds)
            }
            Arg::Give(name) => {
                self.is(name, &[Kind::Tensor])?;
                Ok(Kind::Tensor)
            }
            Arg::New(tensor) => self.new_tensor(tensor).map(|()| Kind::Tensor),
            Arg::Host(tensor) => self.new_tensor(tensor).map(|()| Kind::Host),
            Arg::Number(number) => {
                let _ = function;
                self.number(number).map(|()| Kind::Number)
            }
        }
    }

    fn in_place(&self, op: &InPlace, kinds: &[Kind]) -> Result<()> {
        self.is(&op.to, kinds)?;
        let operands: &[&Operand] = match &op.how {
            How::Unary(_) => &[],
            How::Binary(_, b) | How::Copy(b) => &[b],
            How::Mix(b, k) => &[b, k],
        };
        for operand in operands {
            if let Operand::Name(name) = operand {
                let mut wanted = kinds.to_vec();
                wanted.push(Kind::Number);
                self.is(name, &wanted)?;
            }
        }
        Ok(())
    }

    fn expectation(&self, expectation: &Expectation) -> Result<()> {
        let tensors = [Kind::Tensor, Kind::Param];
        match &expectation.demand {
            Demand::Values { left, right, .. } => {
                // Two numbers are written as two tensors are.
                let numbers = [Kind::Note, Kind::Number];
                self.is_demanded(left)?;
                let is_number = self.names.get(&left.text).is_some_and(|kind| numbers.contains(kind));
                match right {
                    Values::Of(right) if is_number => self.is(right, &numbers).map(drop),
                    Values::Of(right) => {
                        self.is(left, &tensors).and_then(|_| self.is(right, &tensors)).map(drop)
                    }
                    Values::New(tensor) => {
                        self.is(left, &tensors)?;
                        self.new_tensor(tensor)
                    }
                }
            }
            Demand::Compare(left, _, right) => {
                self.measure(left)?;
                self.measure(right)
            }
            Demand::Stale(name) | Demand::Readable(name) => self.is(name, &tensors).map(drop),
            Demand::Shares(a, b) | Demand::Apart(a, b) => {
                self.is(a, &tensors)?;
                self.is(b, &tensors).map(drop)
            }
            Demand::Reason(function, _) | Demand::NoReason(function, _) => self.names_function(function),
        }
    }

    fn names_function(&self, name: &Name) -> Result<()> {
        if self.scenario.functions.iter().any(|function| function.name.text == name.text) {
            return Ok(());
        }
        Err(ParseError::impossible(name.place, format!("there is no function `{name}`")))
    }

    fn measure(&self, measure: &Measure) -> Result<()> {
        match measure {
            Measure::Counter(_, None) => Ok(()),
            Measure::Counter(counter, Some(function)) => {
                if !counter.is_of_functions() {
                    let why = format!("`{}` is not counted by function", counter.word());
                    return Err(ParseError::impossible(function.place, why));
                }
                self.names_function(function)
            }
            Measure::Address(name) => self.is(name, &[Kind::Tensor, Kind::Param]).map(drop),
            Measure::Number(number) => self.noted(number),
        }
    }

    /// A number that may have notes in it.
    fn noted(&self, number: &Number) -> Result<()> {
        match number {
            Number::Literal(_) => Ok(()),
            Number::Name(name) => {
                self.is_demanded(name)?;
                self.is(name, &[Kind::Number, Kind::Note]).map(drop)
            }
            Number::Of(left, _, right) => self.noted(left).and_then(|()| self.noted(right)),
        }
    }

    /// The body of a function sees its own names, and the numbers of the program that never change.
    fn function(&self, function: &Function, kinds: &[Kind]) -> Result<()> {
        let mut names: HashMap<String, Kind> = constants(self.scenario);
        for (input, kind) in function.inputs.iter().zip(kinds) {
            if names.insert(input.text.clone(), *kind).is_some_and(|before| before != Kind::Number) {
                return Err(ParseError::impossible(input.place, format!("a second input `{input}`")));
            }
        }
        let mut inner = Checker { scenario: self.scenario, names, inputs: HashMap::new() };
        function.body.iter().try_for_each(|line| inner.line(line))?;
        keeps_saved(function)?;
        for output in &function.outputs {
            inner.is(output, &[Kind::Tensor, Kind::Param])?;
        }
        Ok(())
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let tensors = [Kind::Tensor, Kind::Param];
        if let Some(side) = &line.side {
            self.is(side, &[Kind::Stream])?;
        }
        match &line.op {
            Op::Let(name, made) => {
                self.made(made)?;
                if self.names.get(&name.text).is_some_and(|kind| !tensors.contains(kind)) {
                    let kind = self.names.get(&name.text).map_or("", |kind| kind.shown());
                    return Err(ParseError::impossible(name.place, format!("`{name}` is {kind} already")));
                }
                self.names.insert(name.text.clone(), Kind::Tensor);
                Ok(())
            }
            Op::InPlace(op) => self.in_place(op, &tensors),
            Op::Drop(name) => {
                self.is(name, &[Kind::Tensor, Kind::Param])?;
                self.names.remove(&name.text);
                Ok(())
            }
            Op::Save(name) | Op::Hide(name) => self.is(name, &tensors).map(drop),
            Op::Fork(name) => self.bind(name, Kind::Stream),
            Op::Join(name) => {
                self.is(name, &[Kind::Stream])?;
                self.names.remove(&name.text);
                Ok(())
            }
            Op::Foreign(bytes) | Op::Scratch(bytes, _) => self.number(bytes),
            Op::HostWait | Op::Fail(_) | Op::Panic(_) | Op::DropCallers(_) | Op::Poll => Ok(()),
        }
    }

    fn made(&self, made: &Made) -> Result<()> {
        let tensors = [Kind::Tensor, Kind::Param];
        let operand = |operand: &Operand| match operand {
            Operand::Literal(_) => Ok(()),
            Operand::Name(name) => self.is(name, &[Kind::Tensor, Kind::Param, Kind::Number]).map(drop),
        };
        match made {
            Made::Unary(_, a) | Made::Sum(a) | Made::Copy(a) | Made::Empty(Room::Like(a)) => {
                self.is(a, &tensors).map(drop)
            }
            Made::Binary(_, a, b) => self.is(a, &tensors).and_then(|_| operand(b)),
            Made::Mix(a, b, k) => {
                self.is(a, &tensors)?;
                operand(b)?;
                operand(k)
            }
            Made::MatMul(a, b) => self.is(a, &tensors).and_then(|_| self.is(b, &tensors)).map(drop),
            Made::New(tensor) => self.new_tensor(tensor),
            Made::Empty(Room::Of(shape)) | Made::Draw(shape) => {
                shape.iter().try_for_each(|number| self.number(number))
            }
            Made::View(view) => self.is(&view.of, &tensors).and_then(|_| self.view(view)),
            Made::Saved(_) => Ok(()),
            Made::Upload(name, shape) => {
                shape.iter().try_for_each(|number| self.number(number))?;
                self.is(name, &[Kind::Host]).map(drop)
            }
        }
    }
}

/// What an input is of a function that nobody calls.
fn uncalled(function: &Function, input: &Name) -> Kind {
    let is_upload =
        |line: &Line| matches!(&line.op, Op::Let(_, Made::Upload(of, _)) if of.text == input.text);
    if function.body.iter().any(is_upload) { Kind::Host } else { Kind::Tensor }
}

/// What a forward has saved may be anybody's by then, so a backward may not write to it.
fn keeps_saved(function: &Function) -> Result<()> {
    let mut saved: Vec<&str> = Vec::new();
    for line in &function.body {
        match &line.op {
            Op::Let(name, made) => {
                let is_saved = match made {
                    Made::Saved(_) => true,
                    Made::View(view) => saved.contains(&view.of.text.as_str()),
                    _ => false,
                };
                saved.retain(|other| *other != name.text);
                if is_saved {
                    saved.push(&name.text);
                }
            }
            Op::InPlace(op) if saved.contains(&op.to.text.as_str()) => {
                return Err(ParseError::impossible(
                    op.to.place,
                    "what a forward has saved cannot be written to",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Numbers of the program that a function may use: those that are said once, outside of every block, and not by chance.
fn constants(scenario: &Scenario) -> HashMap<String, Kind> {
    let named = |statement: &Statement| match &statement.what {
        What::Size(name, _) => Some(name.text.clone()),
        _ => None,
    };
    let names: Vec<String> = scenario.statements.iter().filter_map(named).collect();
    let once = |name: &&String| names.iter().filter(|other| other == name).count() == 1;
    names.iter().filter(once).map(|name| (name.clone(), Kind::Number)).collect()
}

impl Scenario {
    /// One setting, the last one that is said.
    pub(crate) fn setting<T>(&self, of: impl Fn(&Setting) -> Option<T>) -> Option<T> {
        self.settings.iter().rev().find_map(of)
    }
}

/// Visits every statement, those in blocks too.
pub(crate) fn walk<'s>(block: &'s [Statement], visit: &mut impl FnMut(&'s Statement)) {
    for statement in block {
        visit(statement);
        match &statement.what {
            What::Repeat { body, .. } | What::Each { body, .. } | What::Threads { body, .. } => {
                walk(body, visit);
            }
            What::Choose(choices) => choices.iter().for_each(|choice| walk(choice, visit)),
            _ => {}
        }
    }
}
