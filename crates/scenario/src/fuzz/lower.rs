//! From a draft to a scenario.

use crate::fuzz::draft::{Draft, DraftCall, DraftFunction, DraftOp, Step};
use crate::program::{
    Arg, Call, CallKind, FaultPlan, How, InPlace, Line, Made, MoveTo, Op, Room, Statement, What,
};
use crate::{Fill, Function, Name, NewTensor, Number, Operand, Place, Scenario, Setting, View, When};

/// How many parameters there are.
const PARAMS: u8 = 3;

/// How many names tensors have: names are given again, which lets go of what they held.
const NAMES: u32 = 7;

impl Draft {
    /// The scenario of a draft.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let mut lower = Lower { functions: Vec::new(), tensors: Vec::new(), tokens: Vec::new(), made: 0 };
        for (at, function) in self.functions.iter().enumerate() {
            lower.function(at, function);
        }
        let mut settings = vec![Setting::Seed(u64::from(self.seed))];
        if self.is_lazy {
            settings.push(Setting::Lazy);
        }
        if self.has_no_plan {
            settings.push(Setting::NoPlan);
        }
        if self.has_two_engines {
            settings.push(Setting::Engines(2));
        }
        settings.extend(self.limits.iter().map(|(limit, bound)| Setting::Limit(*limit, u32::from(*bound))));
        let mut statements: Vec<Statement> =
            (0..PARAMS).map(|at| plain(What::Param(param(at), random(5, false)))).collect();
        statements.push(plain(What::Stream(Name::new("s"))));
        // Something is there before the first round.
        statements.push(lower.own(5, false));
        let mut body = Vec::new();
        for step in &self.steps {
            lower.step(self, step, &mut body);
        }
        let times = Number::Literal(u64::from(self.rounds));
        body.push(plain(What::Check));
        statements.push(plain(What::Repeat { times, turn: None, body }));
        Scenario { settings, functions: lower.functions, statements, ..Scenario::default() }
    }
}

fn plain(what: What) -> Statement {
    Statement { place: Place::default(), tries: false, what }
}

fn tried(what: What) -> Statement {
    Statement { tries: true, ..plain(what) }
}

fn param(at: u8) -> Name {
    Name::new(format!("w{}", at % PARAMS))
}

fn random(length: u8, misaligned: bool) -> NewTensor {
    let shape = vec![Number::Literal(u64::from(length))];
    NewTensor { shape, fill: Fill::Random, misaligned, place: Place::default() }
}

/// A view of a tensor of one dimension.
fn view(of: &str, at: u8, step: u8) -> View {
    let step = (step > 0).then(|| Number::Literal(u64::from(step) + 1));
    let at = (at > 0).then(|| Number::Literal(u64::from(at)));
    View { of: Name::new(of), at, step, shape: None, strides: None }
}

/// The place of a thing that is counted from the newest one.
fn newest(count: usize, wanted: u8) -> Option<usize> {
    let back = (wanted as usize).checked_rem(count)?;
    Some(count - 1 - back)
}

/// A tensor inside of a function.
#[derive(Clone)]
struct Register {
    name: String,
    /// Whether it is what a forward has saved, which may not be written to.
    is_saved: bool,
}

struct Lower {
    functions: Vec<Function>,
    /// The names that may hold a tensor, in the order in which they were given.
    tensors: Vec<String>,
    /// The names of tokens, with their functions.
    tokens: Vec<(String, usize)>,
    made: u32,
}

impl Lower {
    fn function(&mut self, at: usize, draft: &DraftFunction) {
        let mut inputs: Vec<String> = (0..draft.inputs).map(|input| format!("x{input}")).collect();
        inputs.extend((0..draft.params).map(|param| format!("p{param}")));
        let registers: Vec<Register> =
            inputs.iter().map(|name| Register { name: name.clone(), is_saved: false }).collect();
        if draft.has_value {
            inputs.push("k".to_owned());
        }
        if draft.has_host {
            inputs.push("h".to_owned());
        }
        let mut body = Body { registers, lines: Vec::new(), has_value: draft.has_value };
        if draft.has_host {
            body.let_(Made::Upload(Name::new("h"), vec![Number::Literal(4)]), false);
        }
        body.ops(&draft.ops);
        let outputs = body.outputs(&draft.outputs);
        for save in &draft.saves {
            if let Some(register) = body.register(*save) {
                body.line(Op::Save(Name::new(register.name)));
            }
        }
        let names = |names: Vec<String>| names.into_iter().map(Name::new).collect();
        self.functions.push(Function {
            name: Name::new(format!("f{at}")),
            inputs: names(inputs),
            outputs: names(outputs),
            old: Some(draft.old),
            mode: draft.mode,
            body: body.lines,
        });
        let registers = vec![Register { name: "x0".to_owned(), is_saved: false }];
        let mut back = Body { registers, lines: Vec::new(), has_value: false };
        for saved in 0..draft.saves.len() {
            back.let_(Made::Saved(saved as u64), true);
        }
        back.ops(&draft.back.0);
        let outputs = back.outputs(&draft.back.1);
        self.functions.push(Function {
            name: Name::new(format!("b{at}")),
            inputs: vec![Name::new("x0")],
            outputs: names(outputs),
            old: Some(draft.old),
            mode: draft.mode,
            body: back.lines,
        });
    }

    fn name(&mut self) -> String {
        self.made += 1;
        format!("t{}", self.made % NAMES)
    }

    fn hold(&mut self, name: &str) {
        self.tensors.retain(|other| other != name);
        self.tensors.push(name.to_owned());
    }

    fn own(&mut self, length: u8, misaligned: bool) -> Statement {
        let name = self.name();
        self.hold(&name);
        tried(What::Let(Name::new(name), random(length, misaligned)))
    }

    fn step(&mut self, draft: &Draft, step: &Step, to: &mut Vec<Statement>) {
        let tensor = |lower: &Self, wanted: u8| {
            newest(lower.tensors.len(), wanted).map(|at| lower.tensors[at].clone())
        };
        match step {
            Step::Own(length, misaligned) => to.push(self.own(*length, *misaligned)),
            Step::Call(call) => to.push(self.call(draft, call)),
            Step::Faulty(kind, nth, call) => {
                let nth = Number::Literal(u64::from(*nth));
                to.push(plain(What::Fault(FaultPlan { kind: *kind, call: None, nth })));
                to.push(self.call(draft, call));
                to.push(plain(What::ClearFaults));
            }
            Step::Backward(token, call) => {
                if let Some(at) = newest(self.tokens.len(), *token) {
                    let (token, function) = self.tokens.remove(at);
                    let args = self.args(&call.args, 1);
                    let kind = CallKind::Backward(Name::new(token));
                    to.push(self.made_call(
                        draft,
                        call,
                        format!("b{function}"),
                        kind,
                        args,
                        function * 2 + 1,
                    ));
                }
            }
            Step::Discard(token) => {
                if let Some(at) = newest(self.tokens.len(), *token) {
                    to.push(plain(What::Discard(Name::new(self.tokens.remove(at).0))));
                }
            }
            Step::Clone(of) => {
                if let Some(of) = tensor(self, *of) {
                    let name = self.name();
                    self.hold(&name);
                    to.push(tried(What::Clone(Name::new(name), Name::new(of))));
                }
            }
            Step::View(of, at, step) => {
                if let Some(of) = tensor(self, *of) {
                    let name = self.name();
                    self.hold(&name);
                    to.push(tried(What::View(Name::new(name), view(&of, *at, *step))));
                }
            }
            Step::Drop(wanted, elsewhere) => {
                if let Some(name) = tensor(self, *wanted) {
                    self.tensors.retain(|other| *other != name);
                    to.push(plain(What::Drop { names: vec![Name::new(name)], elsewhere: *elsewhere }));
                }
            }
            Step::Begin => to.push(plain(What::Step)),
            Step::Reset => to.push(plain(What::Reset)),
            Step::Seed(seed) => to.push(plain(What::Seed(Number::Literal(u64::from(*seed))))),
            Step::Move(at) => to.push(tried(What::Move(param(*at), MoveTo::Same))),
            Step::Reload(at) => to.push(tried(What::Move(param(*at), MoveTo::New(random(5, false))))),
            Step::Become(at, by) => {
                if let Some(by) = tensor(self, *by) {
                    to.push(tried(What::Move(param(*at), MoveTo::Tensor(Name::new(by)))));
                }
            }
            Step::Check => to.push(plain(What::Check)),
            Step::UseEngine(engine) => {
                let engine = if draft.has_two_engines { engine % 2 } else { 0 };
                to.push(plain(What::UseEngine(Number::Literal(u64::from(engine) + 1))));
            }
            Step::Choose(one, other) => {
                let (tensors, tokens) = (self.tensors.clone(), self.tokens.clone());
                let mut choices = Vec::new();
                let (mut all_tensors, mut all_tokens) = (Vec::new(), Vec::new());
                for choice in [one, other] {
                    self.tensors.clone_from(&tensors);
                    self.tokens.clone_from(&tokens);
                    let mut block = Vec::new();
                    choice.iter().for_each(|step| self.step(draft, step, &mut block));
                    if block.is_empty() {
                        block.push(plain(What::Check));
                    }
                    choices.push(block);
                    all_tensors.append(&mut self.tensors);
                    all_tokens.append(&mut self.tokens);
                }
                // What may hold something may be used: it is tried.
                all_tensors.sort();
                all_tensors.dedup();
                all_tokens.sort();
                all_tokens.dedup();
                (self.tensors, self.tokens) = (all_tensors, all_tokens);
                to.push(plain(What::Choose(choices)));
            }
        }
    }

    fn args(&mut self, wanted: &[(u8, bool)], count: usize) -> Vec<Arg> {
        let mut args: Vec<Arg> = Vec::new();
        let mut given: Vec<String> = Vec::new();
        for at in 0..count {
            let (tensor, gives) = wanted.get(at).or(wanted.last()).copied().unwrap_or((0, false));
            let free: Vec<&String> = self.tensors.iter().filter(|name| !given.contains(name)).collect();
            let Some(name) = newest(free.len(), tensor).map(|at| free[at].clone()) else {
                args.push(Arg::New(random(5, false)));
                continue;
            };
            let is_kept = args.iter().any(|arg| matches!(arg, Arg::Keep(kept) if kept.text == name));
            if gives && !is_kept {
                given.push(name.clone());
                args.push(Arg::Give(Name::new(name)));
            } else {
                args.push(Arg::Keep(Name::new(name)));
            }
        }
        self.tensors.retain(|name| !given.contains(name));
        args
    }

    fn call(&mut self, draft: &Draft, call: &DraftCall) -> Statement {
        let at = call.function as usize % draft.functions.len();
        let function = &draft.functions[at];
        let mut args = self.args(&call.args, function.inputs as usize);
        args.extend((0..function.params).map(|place| Arg::Keep(param(call.first_param + place))));
        if function.has_value {
            args.push(Arg::Number(Number::Literal(u64::from(call.value))));
        }
        if function.has_host {
            args.push(Arg::Host(random(4, false)));
        }
        let kind = if call.is_forward {
            self.made += 1;
            // A name stands for forwards of one function in every round, so that its backward always fits.
            let token = format!("k{at}_{}", self.made % 2);
            self.tokens.retain(|(other, _)| *other != token);
            self.tokens.push((token.clone(), at));
            CallKind::Forward(Name::new(token))
        } else {
            CallKind::Plain
        };
        self.made_call(draft, call, format!("f{at}"), kind, args, at * 2)
    }

    fn made_call(
        &mut self,
        _: &Draft,
        call: &DraftCall,
        function: String,
        kind: CallKind,
        args: Vec<Arg>,
        place: usize,
    ) -> Statement {
        let count = self.functions.get(place).map_or(0, |function| function.outputs.len());
        let mut outputs = Vec::new();
        for output in 0..count {
            let is_taken = call.taken >> (output % 8) & 1 == 1;
            outputs.push(is_taken.then(|| {
                let name = self.name();
                self.hold(&name);
                Name::new(name)
            }));
        }
        let stream = call.is_elsewhere.then(|| Name::new("s"));
        tried(What::Call(Call { outputs, kind, function: Name::new(function), args, stream, fails: None }))
    }
}

/// The body of a function while it is written.
struct Body {
    registers: Vec<Register>,
    lines: Vec<Line>,
    has_value: bool,
}

impl Body {
    fn line(&mut self, op: Op) {
        self.lines.push(Line { place: Place::default(), side: None, op });
    }

    fn register(&self, wanted: u8) -> Option<Register> {
        newest(self.registers.len(), wanted).map(|at| self.registers[at].clone())
    }

    fn let_(&mut self, made: Made, is_saved: bool) {
        let name = format!("r{}", self.lines.len());
        self.line(Op::Let(Name::new(name.clone()), made));
        self.registers.push(Register { name, is_saved });
    }

    fn ops(&mut self, ops: &[DraftOp]) {
        ops.iter().for_each(|op| self.op(op));
    }

    fn op(&mut self, op: &DraftOp) {
        let name = |register: &Register| Name::new(register.name.clone());
        let operand = |register: &Register| Operand::Name(name(register));
        match *op {
            DraftOp::Mix(a, b, k) => {
                if let (Some(a), Some(b)) = (self.register(a), self.register(b)) {
                    self.let_(Made::Mix(name(&a), operand(&b), Operand::Literal(f32::from(k))), false);
                }
            }
            DraftOp::MixValue(a, b) => {
                if let (Some(a), Some(b)) = (self.register(a), self.register(b)) {
                    let k =
                        if self.has_value { Operand::Name(Name::new("k")) } else { Operand::Literal(7.0) };
                    self.let_(Made::Mix(name(&a), operand(&b), k), false);
                }
            }
            DraftOp::InPlace(to, b, k) => {
                if let (Some(to), Some(b)) = (self.register(to).filter(|to| !to.is_saved), self.register(b)) {
                    let how = How::Mix(operand(&b), Operand::Literal(f32::from(k)));
                    self.line(Op::InPlace(InPlace { how, to: name(&to) }));
                }
            }
            DraftOp::CopyInto(to, b) => {
                if let (Some(to), Some(b)) = (self.register(to).filter(|to| !to.is_saved), self.register(b)) {
                    self.line(Op::InPlace(InPlace { how: How::Copy(operand(&b)), to: name(&to) }));
                }
            }
            DraftOp::View(of, at, step) => {
                if let Some(of) = self.register(of) {
                    self.let_(Made::View(view(&of.name, at, step)), of.is_saved);
                }
            }
            DraftOp::Copy(of) => {
                if let Some(of) = self.register(of) {
                    self.let_(Made::Copy(name(&of)), false);
                }
            }
            DraftOp::Drop(of) => {
                if let Some(at) = newest(self.registers.len(), of) {
                    let register = self.registers.remove(at);
                    self.line(Op::Drop(Name::new(register.name)));
                }
            }
            DraftOp::Empty => self.let_(Made::Empty(Room::Of(vec![Number::Literal(0)])), false),
            DraftOp::Draw(count) => self.let_(Made::Draw(vec![Number::Literal(u64::from(count))]), false),
            DraftOp::Side(a, b) => {
                if let (Some(a), Some(b)) = (self.register(a), self.register(b)) {
                    let side = Name::new("side");
                    self.line(Op::Fork(side.clone()));
                    self.let_(Made::Mix(name(&a), operand(&b), Operand::Literal(9.0)), false);
                    if let Some(line) = self.lines.last_mut() {
                        line.side = Some(side.clone());
                    }
                    self.line(Op::Join(side));
                }
            }
            DraftOp::Scratch(size, run) => {
                let bytes = Number::Literal(u64::from(size) << 10);
                self.line(Op::Scratch(
                    bytes,
                    if run == 0 { When::Always } else { When::Run(u64::from(run)) },
                ));
            }
            DraftOp::Fail(run) => self.line(Op::Fail(When::Run(u64::from(run)))),
            DraftOp::Panic(run) => self.line(Op::Panic(When::Run(u64::from(run)))),
            DraftOp::HostWait => self.line(Op::HostWait),
        }
    }

    /// Something is always returned.
    fn outputs(&mut self, wanted: &[u8]) -> Vec<String> {
        if self.registers.is_empty() {
            self.let_(Made::Empty(Room::Of(vec![Number::Literal(0)])), false);
        }
        wanted.iter().filter_map(|wanted| self.register(*wanted)).map(|register| register.name).collect()
    }
}
