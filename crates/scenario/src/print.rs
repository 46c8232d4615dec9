//! From a scenario to text, which reads back as the same scenario.

use std::fmt::{self, Display, Formatter};

use crate::parse::call_word;
use crate::program::{
    Arg, Arithmetic, Call, CallKind, How, InPlace, Line, Made, MoveTo, Op, Room, Statement, What,
};
use crate::{
    Demand, Expectation, Fill, Filter, Function, Measure, Name, NewTensor, Number, Operand, Scenario,
    Setting, Values, View, When,
};

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(number) => write!(f, "{number}"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Of(left, how, right) => {
                let sign = match how {
                    Arithmetic::Add => '+',
                    Arithmetic::Subtract => '-',
                    Arithmetic::Multiply => '*',
                    Arithmetic::Divide => '/',
                };
                write!(f, "({left} {sign} {right})")
            }
        }
    }
}

/// A list with commas.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Display for NewTensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shape = List(&self.shape);
        match &self.fill {
            Fill::Random => write!(f, "rand [{shape}]")?,
            Fill::Counting => write!(f, "count [{shape}]")?,
            Fill::Same(value) => write!(f, "[{shape}] {value}")?,
            Fill::Values(values) => {
                write!(f, "[{shape}]")?;
                values.iter().try_for_each(|value| write!(f, " {value}"))?;
            }
        }
        if self.misaligned { f.write_str(" misaligned") } else { Ok(()) }
    }
}

impl Display for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "view {}", self.of)?;
        if let Some(at) = &self.at {
            write!(f, " at {at}")?;
        }
        if let Some(step) = &self.step {
            write!(f, " step {step}")?;
        }
        if let Some(shape) = &self.shape {
            write!(f, " shape [{}]", List(shape))?;
        }
        if let Some(strides) = &self.strides {
            write!(f, " strides [{}]", List(strides))?;
        }
        Ok(())
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Literal(value) => write!(f, "{value}"),
        }
    }
}

impl Display for InPlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let to = &self.to;
        match &self.how {
            How::Unary(op) => write!(f, "{}! {to}", op.word()),
            How::Binary(op, b) => write!(f, "{}! {to} {b}", op.word()),
            How::Mix(b, k) => write!(f, "mix! {to} {b} {k}"),
            How::Copy(b) => write!(f, "copy! {to} {b}"),
        }
    }
}

impl Display for Made {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unary(op, a) => write!(f, "{} {a}", op.word()),
            Self::Binary(op, a, b) => write!(f, "{} {a} {b}", op.word()),
            Self::Mix(a, b, k) => write!(f, "mix {a} {b} {k}"),
            Self::MatMul(a, b) => write!(f, "matmul {a} {b}"),
            Self::Sum(a) => write!(f, "sum {a}"),
            Self::Copy(a) => write!(f, "copy {a}"),
            Self::New(tensor) => write!(f, "{tensor}"),
            Self::Empty(Room::Of(shape)) => write!(f, "empty [{}]", List(shape)),
            Self::Empty(Room::Like(name)) => write!(f, "empty like {name}"),
            Self::View(view) => write!(f, "{view}"),
            Self::Saved(index) => write!(f, "saved {index}"),
            Self::Upload(name, shape) => write!(f, "upload {name} [{}]", List(shape)),
            Self::Draw(shape) => write!(f, "draw [{}]", List(shape)),
        }
    }
}

impl Display for When {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => Ok(()),
            Self::Run(run) => write!(f, " on run {run}"),
        }
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(side) = &self.side {
            write!(f, "on {side}: ")?;
        }
        match &self.op {
            Op::Let(name, made) => write!(f, "{name} = {made}"),
            Op::InPlace(op) => write!(f, "{op}"),
            Op::Drop(name) => write!(f, "drop {name}"),
            Op::Save(name) => write!(f, "save {name}"),
            Op::Fork(name) => write!(f, "fork {name}"),
            Op::Join(name) => write!(f, "join {name}"),
            Op::HostWait => f.write_str("host-wait"),
            Op::Fail(when) => write!(f, "fail{when}"),
            Op::Panic(when) => write!(f, "panic{when}"),
            Op::Hide(name) => write!(f, "hide {name}"),
            Op::Foreign(bytes) => write!(f, "foreign {bytes}"),
            Op::DropCallers(name) => write!(f, "drop-callers {name}"),
            Op::Scratch(bytes, when) => write!(f, "scratch {bytes}{when}"),
            Op::Poll => f.write_str("poll"),
        }
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "fn {}({})", self.name, List(&self.inputs))?;
        if !self.outputs.is_empty() {
            write!(f, " -> {}", List(&self.outputs))?;
        }
        if let Some(old) = self.old {
            write!(f, " with old {}", old.word())?;
        }
        if let Some(mode) = self.mode {
            write!(f, " with mode {}", mode.word())?;
        }
        self.body.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(name) => write!(f, "{name}"),
            Self::Give(name) => write!(f, "give {name}"),
            Self::New(tensor) => write!(f, "{tensor}"),
            Self::Host(tensor) => write!(f, "host {tensor}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, output) in self.outputs.iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            f.write_str(output.as_ref().map_or("_", |name| &name.text))?;
        }
        if !self.outputs.is_empty() {
            f.write_str(" = ")?;
        }
        match &self.kind {
            CallKind::Plain => f.write_str("call ")?,
            CallKind::Forward(_) => f.write_str("forward ")?,
            CallKind::Backward(token) => write!(f, "backward {token} ")?,
        }
        write!(f, "{}({})", self.function, List(&self.args))?;
        if let CallKind::Forward(token) = &self.kind {
            write!(f, " as {token}")?;
        }
        if let Some(stream) = &self.stream {
            write!(f, " on {stream}")?;
        }
        if let Some(fails) = &self.fails {
            write!(f, " fails {}", fails.kind.word())?;
            if let Some(text) = &fails.text {
                write!(f, " \"{text}\"")?;
            }
        }
        Ok(())
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Every(mode) => f.write_str(mode.word()),
            Self::One(mode, layers) => write!(f, "{}/{layers}", mode.word()),
        }
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(filters) => write!(f, "set only {}", List(filters)),
            Self::Old(old) => write!(f, "set old {}", old.word()),
            Self::Seed(seed) => write!(f, "set seed {seed}"),
            Self::Limit(limit, bound) => write!(f, "set limit {} {bound}", limit.word()),
            Self::Budget(bytes) => write!(f, "set budget {bytes}"),
            Self::Memory(bytes) => write!(f, "set memory {bytes}"),
            Self::Strict => f.write_str("set strict"),
            Self::Lazy => f.write_str("set lazy"),
            Self::NoPlan => f.write_str("set no-plan"),
            Self::Engines(count) => write!(f, "set engines {count}"),
        }
    }
}

impl Display for Measure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter(counter, None) => f.write_str(counter.word()),
            Self::Counter(counter, Some(of)) => write!(f, "{} of {of}", counter.word()),
            Self::Address(name) => write!(f, "address {name}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Display for Expectation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("expect ")?;
        if let Some(of) = &self.of {
            write!(f, "in {of} ")?;
        }
        match &self.demand {
            Demand::Values { left, right, within } => {
                match right {
                    Values::Of(name) => write!(f, "{left} == {name}")?,
                    Values::New(tensor) => write!(f, "{left} == {tensor}")?,
                }
                if *within > 0.0 { write!(f, " within {within}") } else { Ok(()) }
            }
            Demand::Compare(left, how, right) => write!(f, "{left} {} {right}", how.word()),
            Demand::Stale(name) => write!(f, "stale {name}"),
            Demand::Readable(name) => write!(f, "readable {name}"),
            Demand::Shares(a, b) => write!(f, "shares {a} {b}"),
            Demand::Apart(a, b) => write!(f, "apart {a} {b}"),
            Demand::Reason(function, text) => write!(f, "reason {function} \"{text}\""),
            Demand::NoReason(function, text) => write!(f, "no-reason {function} \"{text}\""),
        }
    }
}

impl What {
    /// The first line of a statement, without a block below it.
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(name, number) => write!(f, "size {name} = {number}"),
            Self::Random(name, from, to) => write!(f, "size {name} = random {from} to {to}"),
            Self::Param(name, tensor) => write!(f, "param {name} = {tensor}"),
            Self::Stream(name) => write!(f, "stream {name}"),
            Self::Host(name, tensor) => write!(f, "host {name} = {tensor}"),
            Self::Let(name, tensor) => write!(f, "{name} = {tensor}"),
            Self::View(name, view) => write!(f, "{name} = {view}"),
            Self::Clone(name, of) => write!(f, "{name} = clone {of}"),
            Self::Call(call) => write!(f, "{call}"),
            Self::Discard(token) => write!(f, "discard {token}"),
            Self::Drop { names, elsewhere } => {
                write!(f, "drop {}{}", List(names), if *elsewhere { " elsewhere" } else { "" })
            }
            Self::Step => f.write_str("step"),
            Self::Reset => f.write_str("reset"),
            Self::ShutDown => f.write_str("shut-down"),
            Self::Move(name, MoveTo::Same) => write!(f, "move {name}"),
            Self::Move(name, MoveTo::New(tensor)) => write!(f, "move {name} = {tensor}"),
            Self::Move(name, MoveTo::Tensor(to)) => write!(f, "move {name} to {to}"),
            Self::Write(name, tensor) => write!(f, "write {name} = {tensor}"),
            Self::Fault(fault) => {
                let call = fault.call.map_or_else(|| "any".to_owned(), call_word);
                write!(f, "fault {} at {call} {}", fault.kind.word(), fault.nth)
            }
            Self::ClearFaults => f.write_str("clear-faults"),
            Self::Check => f.write_str("check"),
            Self::UseEngine(number) => write!(f, "use-engine {number}"),
            Self::Enqueue(op, stream) => write!(f, "enqueue {op} on {stream}"),
            Self::Order { first, second } => write!(f, "order {first} before {second}"),
            Self::Repeat { times, turn: None, .. } => write!(f, "repeat {times}"),
            Self::Repeat { times, turn: Some(turn), .. } => write!(f, "repeat {times} as {turn}"),
            Self::Each { name, over, .. } => write!(f, "each {name} in {}", List(over)),
            Self::Choose(_) => f.write_str("choose"),
            Self::Threads { count, number: None, .. } => write!(f, "threads {count}"),
            Self::Threads { count, number: Some(number), .. } => write!(f, "threads {count} as {number}"),
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::Draw(name, shape) => write!(f, "{name} = draw [{}]", List(shape)),
            Self::Suspend => f.write_str("suspend"),
            Self::Resume => f.write_str("resume"),
            Self::Expect(expectation) => write!(f, "{expectation}"),
            Self::Note(name, measure) => write!(f, "note {name} = {measure}"),
        }
    }
}

impl Statement {
    fn write(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        write!(f, "{:indent$}{}", "", if self.tries { "try " } else { "" })?;
        self.what.head(f)?;
        f.write_str("\n")?;
        match &self.what {
            What::Repeat { body, .. } | What::Each { body, .. } | What::Threads { body, .. } => {
                body.iter().try_for_each(|statement| statement.write(f, indent + 2))
            }
            What::Choose(choices) => choices.iter().try_for_each(|choice| {
                writeln!(f, "{:indent$}  either", "")?;
                choice.iter().try_for_each(|statement| statement.write(f, indent + 4))
            }),
            _ => Ok(()),
        }
    }
}

impl Display for Statement {
    /// The first line alone.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.what.head(f)
    }
}

impl Display for Scenario {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.requires.iter().try_for_each(|capability| writeln!(f, "requires {}", capability.word()))?;
        if let Some(why) = &self.skip {
            writeln!(f, "skip \"{why}\"")?;
        }
        self.settings.iter().try_for_each(|setting| writeln!(f, "{setting}"))?;
        self.functions.iter().try_for_each(|function| writeln!(f, "{function}"))?;
        self.statements.iter().try_for_each(|statement| statement.write(f, 0))
    }
}
