//! Running a program: an engine and the plain interpreter, in lockstep.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use graphgrove::{Backward, GeneratorState, ParamSet, Tensor};
use graphgrove_device::{HostMemory, LaunchDims};

use crate::bound::{MOST_STATEMENTS, least_turns, too_many};
use crate::parse::no_number;
use crate::program::{FaultPlan, How, InPlace, MoveTo, Statement, What};
use crate::run::body::Machine;
use crate::run::body::{Elements, Second, part};
use crate::run::device_run::viewed;
use crate::run::failure::Failure;
use crate::run::faults::Waiting;
use crate::run::ground::Ground;
use crate::run::model::{Model, ModelRun, ModelTensor, contents, drawn};
use crate::run::random::Random;
use crate::run::task::Task;
use crate::run::world::{Site, World};
use crate::{Fill, ModeName, Name, NewTensor, Number, Operand, Shape};

/// A tensor of the engine, and what it should be.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) tensor: Tensor,
    pub(crate) model: ModelTensor,
}

/// A backward that may still run.
pub(crate) struct Pending<D: Ground> {
    pub(crate) token: Backward<D>,
    pub(crate) saved: Vec<ModelTensor>,
    pub(crate) function: String,
    /// Whether a call that failed may have written to it.
    pub(crate) is_spoiled: bool,
}

/// What a name of the program holds.
pub(crate) enum Binding<D: Ground> {
    Tensor(Handle),
    Param(Handle),
    Number(u64),
    Note(u64),
    Host(D::HostBuffer, Vec<f32>),
    Stream(D::Stream),
    Token(Pending<D>),
}

/// Who made a storage, and when.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The caller.
    Own,
    /// A call of a function.
    Output {
        /// The engine.
        site: usize,
        /// The function.
        function: String,
        /// How many steps had been asked for before the call.
        steps: u64,
        /// Which call of the function it was.
        call: u64,
        /// How many calls there had been, those that failed among them.
        attempts: u64,
        /// The line of the call.
        line: u32,
    },
}

/// One thread of a program.
pub(crate) struct Interp<'w, 's, D: Ground> {
    pub(crate) world: &'w World<'s, D>,
    pub(crate) names: BTreeMap<String, Binding<D>>,
    pub(crate) model: Model,
    /// Who made each storage of the model.
    pub(crate) origins: Vec<Origin>,
    pub(crate) at: usize,
    pub(crate) random: Random,
    /// Where the generator of each engine should be.
    pub(crate) generators: Vec<GeneratorState>,
    /// The line that runs.
    pub(crate) line: u32,
}

pub(crate) type Done = Result<(), Failure>;

impl<'w, 's, D: Ground> Interp<'w, 's, D> {
    pub(crate) fn new(world: &'w World<'s, D>, seed: u64) -> Self {
        Self {
            world,
            names: BTreeMap::new(),
            model: Model::default(),
            origins: Vec::new(),
            at: 0,
            random: Random::new(seed),
            generators: vec![GeneratorState::default(); world.sites.len()],
            line: 0,
        }
    }

    pub(crate) fn site(&self) -> &'w Site<D> {
        // The program is checked to name only engines that exist when it does.
        &self.world.sites[self.at.min(self.world.sites.len() - 1)]
    }

    pub(crate) fn block(&mut self, block: &'s [Statement]) -> Done {
        block.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &'s Statement) -> Done {
        self.line = statement.place.line;
        self.count(0, 1)?;
        if let Some(missing) = self.missing(&statement.what) {
            if self.may_lack(statement.tries) {
                self.unbind(&statement.what);
                return Ok(());
            }
            return Err(self.wrong(format!("`{missing}` holds nothing: what should have made it failed")));
        }
        self.run(statement)
    }

    /// Whether a statement may find that a value is gone. Where each function has a pool of its own, a call runs over the outputs of the
    /// last one, whatever the program would like.
    pub(crate) fn may_lack(&self, tries: bool) -> bool {
        tries || self.world.setup.mode == ModeName::OnePool
    }

    /// A name that a statement needs and that holds nothing.
    fn missing(&self, what: &'s What) -> Option<&'s str> {
        let needed = crate::run::needs::needed(what);
        needed.into_iter().find(|name| !self.names.contains_key(*name) && *name != "main")
    }

    /// What the statement would have bound holds nothing.
    fn unbind(&mut self, what: &What) {
        for name in crate::run::needs::bound(what) {
            self.names.remove(name);
        }
    }

    fn run(&mut self, statement: &'s Statement) -> Done {
        match &statement.what {
            What::Size(name, number) => {
                let number = self.number(number)?;
                self.bind(name, Binding::Number(number))
            }
            What::Random(name, first, last) => {
                let (first, last) = (self.number(first)?, self.number(last)?);
                if first > last {
                    return Err(self.impossible(no_number(first, last)));
                }
                let number = self.random.between(first, last);
                self.bind(name, Binding::Number(number))
            }
            What::Param(name, tensor) => {
                let handle = self.new_tensor(tensor)?;
                self.bind(name, Binding::Param(handle))
            }
            What::Stream(name) => {
                let stream = self.world.device.create_stream();
                let stream = stream.map_err(|error| self.wrong(error))?;
                self.bind(name, Binding::Stream(stream))
            }
            What::Host(name, tensor) => {
                let (buffer, values) = self.host(tensor)?;
                self.bind(name, Binding::Host(buffer, values))
            }
            What::Let(name, tensor) => {
                let handle = self.new_tensor(tensor)?;
                self.bind(name, Binding::Tensor(handle))
            }
            What::View(name, view) => {
                let part = part(view, &mut |number| self.number(number))?;
                let handle = self.handle(&view.of)?.clone();
                let model = self.model.part(&handle.model, &part).map_err(|why| self.impossible(why))?;
                let tensor = match viewed(&handle.tensor, &part) {
                    Ok(tensor) => tensor.map_err(|why| self.impossible(why))?,
                    Err(error) => {
                        return self.refused(&[handle.model], error, self.may_lack(statement.tries), &[name]);
                    }
                };
                self.bind(name, Binding::Tensor(Handle { tensor, model }))
            }
            What::Clone(name, of) => {
                let handle = self.handle(of)?.clone();
                self.bind(name, Binding::Tensor(handle))
            }
            What::Call(call) => self.call(call, statement.tries),
            What::Discard(token) => {
                self.names.remove(&token.text);
                Ok(())
            }
            What::Drop { names, elsewhere } => {
                names.iter().try_for_each(|name| self.drop_name(name, *elsewhere))
            }
            What::Step => {
                self.site().engine.begin_step().map_err(|error| self.wrong(error))?;
                self.site().steps.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            What::Reset => match self.world.with_faults(|| self.site().engine.reset()) {
                (Err(_), true) => Ok(()),
                (other, _) => other.map_err(|error| self.wrong(error)),
            },
            What::ShutDown => {
                self.site().is_shut_down.store(true, Ordering::Relaxed);
                match self.world.with_faults(|| self.site().engine.shutdown()) {
                    (Err(_), has_fired) if has_fired || self.is_poisoned() => Ok(()),
                    (other, _) => other.map_err(|error| self.wrong(error)),
                }
            }
            What::Move(name, to) => self.move_param(name, to, statement.tries),
            What::Write(name, tensor) => self.write(name, tensor),
            What::Fault(fault) => self.inject(fault),
            What::ClearFaults => {
                self.world.faults.lock().clear();
                Ok(())
            }
            What::Check => self.compare_all(),
            What::UseEngine(number) => {
                let number = self.number(number)?;
                match (number as usize).checked_sub(1).filter(|at| *at < self.world.sites.len()) {
                    Some(at) => {
                        // Engines know nothing of each other, so their work is the caller's to order.
                        self.settle()?;
                        self.at = at;
                        Ok(())
                    }
                    None => Err(self.impossible(format!("there is no engine {number}: see `set engines`"))),
                }
            }
            What::Enqueue(op, stream) => self.enqueue(op, stream),
            What::Order { first, second } => self.order(first, second),
            What::Repeat { times, turn, body } => {
                let times = self.number(times)?;
                self.count(least_turns(times, body), 0)?;
                for number in 0..times {
                    if let Some(turn) = turn {
                        self.bind(turn, Binding::Number(number))?;
                    }
                    self.block(body)?;
                }
                Ok(())
            }
            What::Each { name, over, body } => {
                for number in over {
                    let number = self.number(number)?;
                    self.bind(name, Binding::Number(number))?;
                    self.block(body)?;
                }
                Ok(())
            }
            What::Choose(choices) => {
                let at = self.random.between(0, choices.len().saturating_sub(1) as u64);
                choices.get(at as usize).map_or(Ok(()), |choice| self.block(choice))
            }
            What::Threads { count, number, body } => {
                let count = self.number(count)?;
                self.count(least_turns(count, body), 0)?;
                self.threads(count, number.as_ref(), body)
            }
            What::Expect(expectation) => self.expect(expectation),
            What::Note(name, measure) => {
                let value = self.measure(measure)?;
                self.bind(name, Binding::Note(value))
            }
            What::Seed(seed) => {
                let seed = self.number(seed)?;
                self.site().engine.seed(seed).map_err(|error| self.wrong(error))?;
                if let Some(generator) = self.generators.get_mut(self.at) {
                    *generator = GeneratorState { seed, offset: 0 };
                }
                Ok(())
            }
            What::Draw(name, shape) => {
                let handle = self.draw(shape, name)?;
                self.bind(name, Binding::Tensor(handle))
            }
            What::Suspend | What::Resume => Err(self.impossible("the engine cannot do this yet".to_owned())),
        }
    }

    /// Gives a name something to hold. What it held before is let go of, and read for the last time.
    pub(crate) fn bind(&mut self, name: &Name, binding: Binding<D>) -> Done {
        if matches!(self.names.get(&name.text), Some(Binding::Tensor(_))) {
            self.compare_last(&name.text)?;
        }
        self.names.insert(name.text.clone(), binding);
        Ok(())
    }

    fn drop_name(&mut self, name: &Name, elsewhere: bool) -> Done {
        self.compare_last(&name.text)?;
        let dropped = self.names.remove(&name.text);
        if elsewhere && let Some(Binding::Tensor(handle)) = dropped {
            let dropped = std::thread::spawn(move || drop(handle.tensor)).join();
            dropped.map_err(|_| self.wrong("dropping a handle panicked".to_owned()))?;
        }
        Ok(())
    }

    pub(crate) fn number(&self, number: &Number) -> Result<u64, Failure> {
        let number = number.evaluate(&|name| match self.names.get(name) {
            Some(Binding::Number(number) | Binding::Note(number)) => Some(*number),
            _ => None,
        });
        number.map_err(|why| self.impossible(why))
    }

    /// Counts statements that run now, and refuses them if there would be too many with those that are sure to follow.
    fn count(&self, follow: u64, now: u64) -> Done {
        let before = self.world.statements.fetch_add(now, Ordering::Relaxed);
        let all = before.saturating_add(now).saturating_add(follow);
        if all > MOST_STATEMENTS { Err(self.impossible(too_many())) } else { Ok(()) }
    }

    /// The tensor or parameter of a name.
    pub(crate) fn handle(&self, name: &Name) -> Result<&Handle, Failure> {
        match self.names.get(&name.text) {
            Some(Binding::Tensor(handle) | Binding::Param(handle)) => Ok(handle),
            _ => Err(self.wrong(format!("`{name}` holds no tensor"))),
        }
    }

    /// A shape, and how many elements it has.
    fn shape(&self, shape: &Shape) -> Result<(Vec<u64>, u64), Failure> {
        let shape = shape.iter().map(|number| self.number(number)).collect::<Result<Vec<u64>, _>>()?;
        let count = shape.iter().try_fold(1_u64, |count, size| count.checked_mul(*size));
        match count.filter(|count| *count <= 1 << 24) {
            Some(count) => Ok((shape, count)),
            None => Err(self.impossible(format!("a tensor of shape {shape:?} is too large"))),
        }
    }

    fn contents(&mut self, tensor: &NewTensor) -> Result<(Vec<u64>, Vec<f32>), Failure> {
        let (shape, count) = self.shape(&tensor.shape)?;
        let random = &mut self.random;
        let values = contents(&tensor.fill, count, &mut || random.small());
        values.map(|values| (shape, values)).map_err(|why| self.impossible(why))
    }

    /// A tensor in memory of its own.
    pub(crate) fn new_tensor(&mut self, tensor: &NewTensor) -> Result<Handle, Failure> {
        let (shape, values) = self.contents(tensor)?;
        let made = self.world.yard.tensor(&*self.world.device, &shape, &values, tensor.misaligned);
        let made = made.map_err(|error| self.wrong(error))?;
        let model = self.model.tensor(&shape, values);
        self.origins.resize(self.model.storages.len(), Origin::Own);
        Ok(Handle { tensor: made, model })
    }

    pub(crate) fn host(&mut self, tensor: &NewTensor) -> Result<(D::HostBuffer, Vec<f32>), Failure> {
        let (_, values) = self.contents(tensor)?;
        let buffer = self.world.device.host_buffer(4 * values.len());
        let buffer = buffer.map_err(|error| self.wrong(error))?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        buffer.write(0, &bytes).map_err(|error| self.wrong(error))?;
        Ok((buffer, values))
    }

    /// Draws outside of every function, from where the generator of the engine says that it is.
    fn draw(&mut self, shape: &Shape, name: &Name) -> Result<Handle, Failure> {
        let engine = self.site().engine.generator().clone();
        let mut wanted = self.generators.get(self.at).copied().unwrap_or_default();
        let mut state = engine.state();
        if state != wanted {
            return Err(self.wrong(format!("the generator is at {state:?}, not at {wanted:?}")));
        }
        let (_, count) = self.shape(shape)?;
        let fill = Fill::Values(drawn(&mut wanted, count));
        state.offset = wanted.offset;
        engine.set_state(state);
        if let Some(generator) = self.generators.get_mut(self.at) {
            *generator = wanted;
        }
        self.new_tensor(&NewTensor { shape: shape.clone(), fill, misaligned: false, place: name.place })
    }

    fn move_param(&mut self, name: &Name, to: &MoveTo, tries: bool) -> Done {
        let old = self.handle(name)?.clone();
        let mut new = match to {
            MoveTo::Same => {
                let values = self.model.values(&old.model);
                let fill = Fill::Values(values.clone());
                let shape = old.model.shape.iter().map(|size| Number::Literal(*size)).collect();
                let same = Fill::Same(values.first().copied().unwrap_or_default());
                let fill = if values.len() == 1 || values.is_empty() { same } else { fill };
                // What is enqueued may still write to the old place.
                self.settle()?;
                self.new_tensor(&NewTensor { shape, fill, misaligned: false, place: name.place })?
            }
            MoveTo::New(tensor) => self.new_tensor(tensor)?,
            MoveTo::Tensor(tensor) => self.handle(tensor)?.clone(),
        };
        match ParamSet::new(vec![new.tensor.clone()]) {
            Err(_) if tries => return Ok(()),
            Err(error) => return Err(self.wrong(error)),
            // A set holds nothing in place of a view of nothing, which would be stale with what it is a view of.
            Ok(set) => new.tensor = set.tensors().first().cloned().unwrap_or(new.tensor),
        }
        let mut sets = self.world.sets.write();
        for (names, set) in sets.iter_mut() {
            for (at, _) in names.iter().enumerate().filter(|(_, of)| **of == name.text) {
                if let Err(error) = set.replace(at, new.tensor.clone()) {
                    return Err(self.wrong(error));
                }
            }
        }
        drop(sets);
        if *to == MoveTo::Same {
            // Memory that is not given back yet, so that no later place is this one again.
            self.world.left.lock().push(old.tensor);
        }
        self.names.insert(name.text.clone(), Binding::Param(new));
        Ok(())
    }

    fn write(&mut self, name: &Name, tensor: &NewTensor) -> Done {
        let (_, values) = self.contents(tensor)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        // What is enqueued has been given the old contents.
        self.settle()?;
        if let Some(Binding::Host(buffer, contents)) = self.names.get_mut(&name.text) {
            if contents.len() != values.len() {
                let why = format!("{} values for host memory of {}", values.len(), contents.len());
                return Err(self.impossible(why));
            }
            let written = buffer.write(0, &bytes);
            *contents = values;
            return written.map_err(|error| self.wrong(error));
        }
        let handle = self.handle(name)?.clone();
        if handle.model.count() != values.len() as u64 || !handle.tensor.layout().is_contiguous() {
            let why =
                format!("{} values for a tensor of {}, or one with gaps", values.len(), handle.model.count());
            return Err(self.impossible(why));
        }
        let address = match handle.tensor.address() {
            Ok(address) => address,
            Err(error) => return self.refused(&[handle.model], error.into(), true, &[]),
        };
        self.world.device.write(address, &bytes).map_err(|error| self.wrong(error))?;
        self.model.set(&handle.model, &values);
        Ok(())
    }

    fn inject(&self, plan: &FaultPlan) -> Done {
        let left = self.number(&plan.nth)?.max(1);
        self.world.faults.lock().push(Waiting { kind: plan.kind, call: plan.call, left });
        Ok(())
    }

    pub(crate) fn stream(&self, name: &Name) -> Result<&D::Stream, Failure> {
        match self.names.get(&name.text) {
            Some(Binding::Stream(stream)) => Ok(stream),
            None if name.text == "main" => Ok(self.site().engine.stream()),
            _ => Err(self.wrong(format!("`{name}` is no stream"))),
        }
    }

    /// Work of the caller's own. Whoever reads what it writes has to be ordered behind it.
    fn enqueue(&mut self, op: &InPlace, stream: &Name) -> Done {
        let to = self.handle(&op.to)?.clone();
        let (device_op, model_op) =
            (self.elements(op, |handle| handle.tensor)?, self.elements(op, |handle| handle.model)?);
        let device = &self.world.device;
        let task = Task::in_place(&to.tensor, &device_op).map_err(|error| self.wrong(error))?;
        if let Some((task, args)) = task {
            let dims = LaunchDims::for_elements(task.count() as u32);
            let kernels = D::kernels(&self.world.code, task, args).map_err(|why| self.impossible(why))?;
            for (kernel, args) in kernels {
                let launched = device.launch(self.stream(stream)?, &kernel, dims, &args);
                launched.map_err(|error| self.wrong(error))?;
            }
        }
        let mut machine = ModelRun {
            model: &mut self.model,
            saved: &[],
            hosts: &[],
            saves: Vec::new(),
            generator: GeneratorState::default(),
        };
        machine.in_place(&to.model, &model_op).map_err(|stop| self.impossible(stop.why))
    }

    fn elements<T>(&self, op: &InPlace, of: impl Fn(Handle) -> T) -> Result<Elements<T>, Failure> {
        let second = |operand: &Operand| match operand {
            Operand::Literal(value) => Ok(Second::Number(*value)),
            Operand::Name(name) => match self.names.get(&name.text) {
                Some(Binding::Number(number)) => Ok(Second::Number(*number as f32)),
                _ => Ok(Second::Tensor(of(self.handle(name)?.clone()))),
            },
        };
        Ok(match &op.how {
            How::Unary(op) => Elements::Unary(*op),
            How::Binary(op, b) => Elements::Binary(*op, second(b)?),
            How::Mix(b, k) => Elements::Mix(second(b)?, second(k)?),
            How::Copy(b) => Elements::Copy(second(b)?),
        })
    }

    fn order(&self, first: &Name, second: &Name) -> Done {
        let device = &self.world.device;
        let ordered = device.create_event().and_then(|event| {
            let (first, second) = (self.stream(first), self.stream(second));
            if let (Ok(first), Ok(second)) = (first, second) {
                device.record_event(&event, first)?;
                device.wait_event(second, &event)?;
            }
            Ok(())
        });
        ordered.map_err(|error| self.wrong(error))
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.world.is_crowded.load(Ordering::Relaxed)
    }

    /// Waits for all work, and gives back what nobody holds. While several threads run, another one may capture, and nobody may wait.
    pub(crate) fn settle(&self) -> Done {
        if self.is_crowded() {
            return Ok(());
        }
        match self.world.yard.settle(&self.world.device) {
            Err(_) if self.is_poisoned() => Ok(()),
            other => other.map_err(|error| self.wrong(error)),
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.world.is_poisoned.load(Ordering::Relaxed)
    }

    /// Something is not as it should be.
    pub(crate) fn wrong(&self, why: impl ToString) -> Failure {
        Failure::Wrong { line: self.line, why: why.to_string() }
    }

    /// The program cannot be.
    pub(crate) fn impossible(&self, why: String) -> Failure {
        Failure::Impossible { line: self.line, why }
    }
}
