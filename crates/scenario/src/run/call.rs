//! Calls of functions.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use graphgrove::{Arg as EngineArg, CallStats, Error, Outputs, ParamSet, Tensor};
use graphgrove_sim::CallCounts;
use graphgrove_storage::Error as StorageError;

use crate::check::Kind;
use crate::program::{Arg, Call, CallKind, Made, Op};
use crate::run::body::{self, Register};
use crate::run::compare::is_same;
use crate::run::failure::Failure;
use crate::run::ground::Ground;
use crate::run::interp::{Binding, Done, Interp, Origin, Pending};
use crate::run::model::{ModelRun, ModelTensor};
use crate::run::world::{LOGGED, Registered, writes};
use crate::{ErrorKind, Function, ModeName, Name, Setting, Setup};

/// One argument, resolved.
enum Resolved<D: Ground> {
    Kept(String, ModelTensor),
    Given(Option<Tensor>, ModelTensor),
    Param(String, ModelTensor),
    Number(u64),
    Host(D::HostBuffer, Vec<f32>),
}

/// What a call came to.
type Called<D> = std::thread::Result<graphgrove::Result<(Outputs, Option<graphgrove::Backward<D>>)>>;

impl<'s, D: Ground> Interp<'_, 's, D> {
    pub(crate) fn call(&mut self, call: &'s Call, tries: bool) -> Done {
        let site = self.site();
        let (Some(registered), Some(function)) =
            (site.functions.get(&call.function.text), self.world.function(&call.function.text))
        else {
            return Err(self.impossible(format!("there is no function `{}`", call.function)));
        };
        let backward = match &call.kind {
            CallKind::Backward(token) => match self.names.remove(&token.text) {
                // Nobody can say what it would find, so it is left out, as if it had failed.
                Some(Binding::Token(pending)) if pending.is_spoiled => {
                    for name in call.outputs.iter().flatten() {
                        self.names.remove(&name.text);
                    }
                    return Ok(());
                }
                Some(Binding::Token(pending)) => Some(pending),
                _ => return Err(self.wrong(format!("`{token}` is no token"))),
            },
            CallKind::Plain | CallKind::Forward(_) => None,
        };
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            args.push(self.resolve(arg)?);
        }
        self.leave_to_body(registered, function);
        let gone: Vec<ModelTensor> = self.unreadable(&args);
        let (saved, of) = backward
            .as_ref()
            .map_or((Vec::new(), None), |pending| (pending.saved.clone(), Some(pending.function.clone())));
        registered.attempts.fetch_add(1, Ordering::Relaxed);
        let before = self.observe();
        let (called, has_fired) = self.make(call, registered, &mut args, backward)?;
        self.observed(call, registered, before);
        registered.state.callers.lock().clear();
        let stop = registered.state.impossible.lock().take();
        if let Some(stop) = stop {
            let line = if stop.line == 0 { self.line } else { stop.line };
            let is_saved =
                |op: &Op| matches!(op, Op::Let(_, Made::Saved(at)) if (*at as usize) < saved.len());
            if stop.why.contains("saved no tensor")
                && function
                    .body
                    .iter()
                    .all(|line| !matches!(line.op, Op::Let(_, Made::Saved(_))) || is_saved(&line.op))
            {
                return Err(self.wrong(format!("a saved tensor has not reached the backward: {}", stop.why)));
            }
            return Err(Failure::Impossible { line, why: stop.why });
        }
        match called {
            Ok(Ok((outputs, token))) => {
                if !gone.is_empty() {
                    return Err(self.wrong(format!("`{}` took an input that cannot be read", call.function)));
                }
                if let Some(fails) = call.fails.as_ref().filter(|_| self.world.setup == Setup::MAIN) {
                    let why = format!("`{}` should have failed: {}", call.function, fails.kind.word());
                    return Err(self.wrong(why));
                }
                self.succeeded(call, registered, function, args, saved, outputs, token)
            }
            Ok(Err(error)) => {
                let given = (&*args, &*gone, has_fired);
                self.failed(call, tries || has_fired, function, given, (of, &saved), &error)
            }
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                let panics = function.body.iter().any(|line| matches!(line.op, Op::Panic(_)));
                if !panics || said != "the function panics" {
                    return Err(self.wrong(format!("`{}` panicked: {said}", call.function)));
                }
                self.tolerated(call, tries, ErrorKind::Panicked, &said)?;
                self.settle_writes(function, &args)
            }
        }
    }

    fn resolve(&mut self, arg: &Arg) -> Result<Resolved<D>, Failure> {
        Ok(match arg {
            Arg::Number(number) => Resolved::Number(self.number(number)?),
            Arg::New(tensor) => {
                let handle = self.new_tensor(tensor)?;
                Resolved::Given(Some(handle.tensor), handle.model)
            }
            Arg::Host(tensor) => {
                let (buffer, values) = self.host(tensor)?;
                Resolved::Host(buffer, values)
            }
            Arg::Give(name) => {
                self.compare_last(&name.text)?;
                match self.names.remove(&name.text) {
                    Some(Binding::Tensor(handle)) => Resolved::Given(Some(handle.tensor), handle.model),
                    _ => return Err(self.wrong(format!("`{name}` holds no tensor"))),
                }
            }
            Arg::Keep(name) => match self.names.get(&name.text) {
                Some(Binding::Tensor(handle)) => Resolved::Kept(name.text.clone(), handle.model.clone()),
                Some(Binding::Param(handle)) => Resolved::Param(name.text.clone(), handle.model.clone()),
                Some(Binding::Number(number)) => Resolved::Number(*number),
                Some(Binding::Host(buffer, values)) => Resolved::Host(buffer.clone(), values.clone()),
                _ => return Err(self.wrong(format!("`{name}` is no argument"))),
            },
        })
    }

    /// Hands over what the body is to drop.
    fn leave_to_body(&mut self, registered: &Registered<D>, function: &Function) {
        for line in &function.body {
            if let Op::DropCallers(name) = &line.op
                && let Some(binding) = self.names.remove(&name.text)
            {
                let boxed: Box<dyn std::any::Any + Send> = match binding {
                    Binding::Tensor(handle) => Box::new(handle.tensor),
                    Binding::Token(pending) => Box::new(pending.token),
                    other => {
                        self.names.insert(name.text.clone(), other);
                        continue;
                    }
                };
                registered.state.callers.lock().insert(name.text.clone(), boxed);
            }
        }
    }

    /// The inputs whose values are gone.
    fn unreadable(&self, args: &[Resolved<D>]) -> Vec<ModelTensor> {
        let gone = |arg: &Resolved<D>| match arg {
            Resolved::Kept(name, model) => match self.names.get(name) {
                Some(Binding::Tensor(handle)) if handle.tensor.address().is_err() => Some(model.clone()),
                _ => None,
            },
            Resolved::Given(Some(tensor), model) if tensor.address().is_err() => Some(model.clone()),
            _ => None,
        };
        args.iter().filter_map(gone).collect()
    }

    fn make(
        &self,
        call: &Call,
        registered: &Registered<D>,
        args: &mut [Resolved<D>],
        backward: Option<Pending<D>>,
    ) -> Result<(Called<D>, bool), Failure> {
        let names: Vec<String> = args
            .iter()
            .filter_map(|arg| match arg {
                Resolved::Param(name, _) => Some(name.clone()),
                _ => None,
            })
            .collect();
        if !names.is_empty() && !self.world.sets.read().contains_key(&names) {
            let tensor =
                |name: &String| self.handle(&Name::new(name.as_str())).map(|handle| handle.tensor.clone());
            let tensors = names.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
            let set = ParamSet::new(tensors).map_err(|error| self.wrong(error))?;
            self.world.sets.write().insert(names.clone(), set);
        }
        let sets = self.world.sets.read();
        let mut engine_args: Vec<EngineArg<'_, D>> = Vec::new();
        for arg in args.iter_mut() {
            match arg {
                Resolved::Kept(name, _) => match self.names.get(name.as_str()) {
                    Some(Binding::Tensor(handle)) => engine_args.push(EngineArg::Kept(&handle.tensor)),
                    _ => return Err(self.wrong(format!("`{name}` is given up in the same call"))),
                },
                Resolved::Given(tensor, _) => engine_args.extend(tensor.take().map(EngineArg::Given)),
                Resolved::Number(number) => engine_args.push(EngineArg::Value(*number)),
                Resolved::Host(buffer, _) => engine_args.push(EngineArg::Host(buffer)),
                Resolved::Param(..) => {}
            }
        }
        let mut calling = registered.function.calling();
        if let Some(set) = sets.get(&names).filter(|_| !names.is_empty()) {
            calling = calling.with(set);
        }
        if let Some(stream) = &call.stream {
            calling = calling.on(self.stream(stream)?);
        }
        let run = AssertUnwindSafe(move || match (backward, &call.kind) {
            (Some(pending), _) => calling.backward(pending.token, engine_args).map(|outputs| (outputs, None)),
            (None, CallKind::Forward(_)) => {
                calling.forward(engine_args).map(|(outputs, token)| (outputs, Some(token)))
            }
            (None, _) => calling.call(engine_args).map(|outputs| (outputs, None)),
        });
        Ok(self.world.with_faults(|| catch_unwind(run)))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one call, which only its end wants together")]
    fn succeeded(
        &mut self,
        call: &Call,
        registered: &Registered<D>,
        function: &Function,
        args: Vec<Resolved<D>>,
        saved: Vec<ModelTensor>,
        mut outputs: Outputs,
        token: Option<graphgrove::Backward<D>>,
    ) -> Done {
        let draws = function.body.iter().any(|line| matches!(line.op, Op::Let(_, Made::Draw(_))));
        if draws && self.is_crowded() {
            return Err(self.impossible("draws of several threads come in no order".to_owned()));
        }
        let number = registered.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let attempts = registered.attempts.load(Ordering::Relaxed);
        let steps = self.site().steps.load(Ordering::Relaxed);
        let (made, saves) = self.model_call(function, &args, &saved)?;
        let origin = Origin::Output {
            site: self.at,
            function: call.function.text.clone(),
            steps,
            call: number,
            attempts,
            line: self.line,
        };
        self.origins.resize(self.model.storages.len(), origin);
        if outputs.len() != made.len() {
            return Err(self.wrong(format!("{} outputs, not {}", outputs.len(), made.len())));
        }
        // What is not taken is let go of before anything else happens.
        let mut taken = Vec::new();
        for (at, name) in call.outputs.iter().enumerate() {
            if let (Some(name), Some(model)) = (name, made.get(at)) {
                let tensor = outputs.take(at).map_err(|error| self.wrong(error))?;
                taken.push((name, crate::run::interp::Handle { tensor, model: model.clone() }));
            }
        }
        drop(outputs);
        if let (CallKind::Forward(name), Some(token)) = (&call.kind, token) {
            let pending =
                Pending { token, saved: saves, function: call.function.text.clone(), is_spoiled: false };
            self.names.insert(name.text.clone(), Binding::Token(pending));
        }
        if !self.world.is_lazy {
            self.settle()?;
            for (name, handle) in &taken {
                self.compare(&name.text, handle)?;
            }
            let written: Vec<String> = writes(function)
                .inputs
                .into_iter()
                .filter_map(|input| match args.get(input) {
                    Some(Resolved::Kept(name, _) | Resolved::Param(name, _)) => Some(name.clone()),
                    _ => None,
                })
                .collect();
            for name in written {
                self.compare_last(&name)?;
            }
        }
        for (name, handle) in taken {
            self.bind(name, Binding::Tensor(handle))?;
        }
        Ok(())
    }

    /// Runs a function on the plain interpreter.
    fn model_call(
        &mut self,
        function: &Function,
        args: &[Resolved<D>],
        saved: &[ModelTensor],
    ) -> Result<(Vec<ModelTensor>, Vec<ModelTensor>), Failure> {
        let constants = crate::run::world::constants(self.world.scenario);
        let mut registers: HashMap<String, Register<ModelTensor>> =
            constants.into_iter().map(|(name, number)| (name, Register::Number(number))).collect();
        let mut hosts = Vec::new();
        let kinds = self.world.inputs.get(&function.name.text);
        for (at, (name, arg)) in function.inputs.iter().zip(args).enumerate() {
            let place =
                kinds.map_or(at, |kinds| kinds.iter().take(at).filter(|kind| **kind != Kind::Param).count());
            let register = match arg {
                Resolved::Kept(_, model) | Resolved::Given(_, model) | Resolved::Param(_, model) => {
                    Register::Tensor(model.clone())
                }
                Resolved::Number(number) => Register::Number(*number),
                Resolved::Host(_, values) => {
                    hosts.resize(place + 1, None);
                    hosts[place] = Some(values.clone());
                    Register::Host(place)
                }
            };
            registers.insert(name.text.clone(), register);
        }
        let generator = self.generators.get(self.at).copied().unwrap_or_default();
        let mut machine =
            ModelRun { model: &mut self.model, saved, hosts: &hosts, saves: Vec::new(), generator };
        let made = body::run(function, &mut machine, registers);
        let saves = std::mem::take(&mut machine.saves);
        let generator = machine.generator;
        if let Some(of) = self.generators.get_mut(self.at) {
            *of = generator;
        }
        let line = self.line;
        let made = made.map_err(|stop| Failure::Impossible {
            line: if stop.line == 0 { line } else { stop.line },
            why: stop.why,
        })?;
        Ok((made, saves))
    }

    fn failed(
        &mut self,
        call: &Call,
        tries: bool,
        function: &Function,
        (args, gone, has_fired): (&[Resolved<D>], &[ModelTensor], bool),
        (of, saved): (Option<String>, &[ModelTensor]),
        error: &Error,
    ) -> Done {
        let kind = kind_of(error);
        let text = error.to_string();
        let has = |wanted: &dyn Fn(&Op) -> bool| function.body.iter().any(|line| wanted(&line.op));
        let fails_itself =
            has(&|op| matches!(op, Op::Fail(_) | Op::Panic(_) | Op::HostWait | Op::Foreign(_)));
        let is_bounded = self
            .world
            .scenario
            .settings
            .iter()
            .any(|setting| matches!(setting, Setting::Budget(_) | Setting::Memory(_)));
        let is_meant = has_fired || self.is_poisoned();
        let has_a_reason = match kind {
            ErrorKind::Stale => {
                gone.iter().try_for_each(|gone| self.is_stale_by_a_rule(gone))?;
                !gone.is_empty() || of.is_some_and(|of| self.is_lost_by_one_pool(&of, saved))
            }
            ErrorKind::Failed => has(&|op| matches!(op, Op::Fail(_))),
            ErrorKind::Survivors => has(&|op| matches!(op, Op::Hide(_))),
            ErrorKind::Skipped => self.world.scenario.settings.contains(&Setting::Strict),
            ErrorKind::ShutDown => self.site().is_shut_down.load(Ordering::Relaxed),
            ErrorKind::InputsGone => fails_itself,
            ErrorKind::NoMemory => is_bounded,
            ErrorKind::Foreign => self.world.sites.len() > 1,
            ErrorKind::UnstableParameter => call.fails.is_some(),
            _ => fails_itself,
        };
        if !has_a_reason && !is_meant {
            return Err(self.wrong(format!("`{}` failed without a reason: {text}", call.function)));
        }
        self.tolerated(call, tries, kind, &text)?;
        if kind == ErrorKind::Stale && !is_meant {
            return Ok(());
        }
        self.settle_writes(function, args)
    }

    /// Whether an error is one that the program speaks of. What the call would have bound holds nothing.
    fn tolerated(&mut self, call: &Call, tries: bool, kind: ErrorKind, text: &str) -> Done {
        let is_it = |fails: &crate::program::Fails| {
            (fails.kind == ErrorKind::Any || fails.kind == kind)
                && fails.text.as_ref().is_none_or(|wanted| text.contains(wanted.as_str()))
        };
        match &call.fails {
            Some(fails) if is_it(fails) => {}
            Some(fails) => {
                let why = format!(
                    "`{}` failed: {} expected, not: {text} ({})",
                    call.function,
                    fails.kind.word(),
                    kind.word()
                );
                return Err(self.wrong(why));
            }
            None if tries || (kind == ErrorKind::Stale && self.may_lack(false)) => {}
            None => return Err(self.wrong(format!("`{}` failed: {text} ({})", call.function, kind.word()))),
        }
        for name in call.outputs.iter().flatten() {
            self.names.remove(&name.text);
        }
        if let CallKind::Forward(token) = &call.kind {
            self.names.remove(&token.text);
        }
        Ok(())
    }

    /// After a call that failed: an effect on memory of the caller's has happened once or not at all, if it is one effect.
    fn settle_writes(&mut self, function: &Function, args: &[Resolved<D>]) -> Done {
        let written = writes(function);
        if written.inputs.is_empty() || self.is_poisoned() {
            return Ok(());
        }
        self.settle()?;
        // Whoever has a handle of what was written to sees it, whatever the call was given.
        let storages: Vec<usize> = written
            .inputs
            .iter()
            .filter_map(|input| match args.get(*input) {
                Some(Resolved::Kept(_, model) | Resolved::Param(_, model) | Resolved::Given(_, model)) => {
                    Some(model.storage)
                }
                _ => None,
            })
            .collect();
        let is_written = |binding: &Binding<D>| match binding {
            Binding::Tensor(handle) | Binding::Param(handle) => storages.contains(&handle.model.storage),
            _ => false,
        };
        let names: Vec<String> = self
            .names
            .iter()
            .filter(|(_, binding)| is_written(binding))
            .map(|(name, _)| name.clone())
            .collect();
        // What only a token holds cannot be looked at.
        for binding in self.names.values_mut() {
            if let Binding::Token(pending) = binding {
                pending.is_spoiled |= pending.saved.iter().any(|saved| storages.contains(&saved.storage));
            }
        }
        if names.iter().all(|name| self.compare_name(name).is_ok()) {
            return Ok(());
        }
        let handles = names
            .iter()
            .map(|name| self.handle(&Name::new(name.as_str())).cloned())
            .collect::<Result<Vec<_>, _>>()?;
        let before: Vec<Vec<f32>> = handles.iter().map(|handle| self.model.values(&handle.model)).collect();
        // What a backward has taken is gone, so nobody can say what it would have made of it.
        let takes = function.body.iter().any(|line| matches!(line.op, Op::Let(_, Made::Saved(_))));
        let is_one = written.lines == 1 && !takes;
        if is_one {
            // A call that fails draws nothing.
            let generators = self.generators.clone();
            self.model_call(function, args, &[])?;
            self.generators = generators;
            self.origins.resize(self.model.storages.len(), Origin::Own);
        }
        for ((name, handle), before) in names.iter().zip(&handles).zip(before) {
            let Ok(values) = self.read(&handle.tensor) else { continue };
            let after = self.model.values(&handle.model);
            let is_either = |(value, (before, after)): (&f32, (&f32, &f32))| {
                is_same(*value, *before) || is_same(*value, *after)
            };
            // What is copied back may have stopped between two elements.
            if is_one && !values.iter().zip(before.iter().zip(&after)).all(is_either) {
                return Err(
                    self.wrong(format!("`{name}` is neither as before nor as after the call that failed"))
                );
            }
            // A plain run that broke off between two effects has left the first; nobody can take it back.
            self.model.set(&handle.model, &values);
        }
        Ok(())
    }

    /// Whether what the forward has saved may have been overwritten: a function with a pool of its own runs over its outputs, those
    /// that a forward of another function has saved among them.
    fn is_lost_by_one_pool(&self, forward: &str, saved: &[ModelTensor]) -> bool {
        let has_own_pool = |function: &str| {
            self.site().functions.get(function).is_some_and(|function| function.mode == ModeName::OnePool)
        };
        let is_lost = |saved: &ModelTensor| {
            self.producer(saved).is_some_and(has_own_pool) && self.is_stale_by_a_rule(saved).is_ok()
        };
        has_own_pool(forward) || saved.iter().any(is_lost)
    }

    fn observe(&self) -> Option<(CallStats, Option<CallCounts>)> {
        if self.is_crowded() || !self.world.is_observed {
            return None;
        }
        Some((self.site().engine.stats().ok()?.calls, self.world.device.driver_calls()))
    }

    fn observed(
        &self,
        call: &Call,
        registered: &Registered<D>,
        before: Option<(CallStats, Option<CallCounts>)>,
    ) {
        let Some((before, counts)) = before else { return };
        let counts = self.world.device.driver_calls().zip(counts);
        let made = counts.map(|(now, before)| now.since(&before).total());
        self.world.driver_calls.store(made.unwrap_or_default(), Ordering::Relaxed);
        let Ok(stats) = self.site().engine.stats() else { return };
        let after = stats.calls;
        let mut of = registered.counts.lock();
        let mut became = Vec::new();
        let mut add = |to: &mut u64, before: u64, after: u64, word: &str| {
            let more = after.saturating_sub(before);
            *to += more;
            if more > 0 {
                became.push(word.to_owned());
            }
        };
        add(&mut of.warm_ups, before.warm_ups, after.warm_ups, "warmed up");
        add(&mut of.recordings, before.recordings, after.recordings, "recorded");
        add(&mut of.failures, before.failures, after.failures, "failed to record");
        add(&mut of.replays, before.replays, after.replays, "replayed");
        add(&mut of.predicted, before.predicted, after.predicted, "as predicted");
        add(&mut of.eager, before.eager, after.eager, "ran plainly");
        add(&mut of.copied_out, before.copied_out, after.copied_out, "after old outputs were copied out");
        drop(of);
        if let Some(log) = &self.world.log {
            let mut log = log.lock();
            if log.len() == LOGGED {
                log.pop_front();
            }
            let became = if became.is_empty() { "failed".to_owned() } else { became.join(", ") };
            let by = made.map_or_else(String::new, |made| format!(", by {made} driver calls"));
            log.push_back(format!("line {}: {} {became}{by}", self.line, call.function));
        }
    }
}

/// The kind of an error.
pub(crate) fn kind_of(error: &Error) -> ErrorKind {
    use graphgrove_pool::PoolError;
    match error {
        Error::Storage(StorageError::Stale(_)) => ErrorKind::Stale,
        Error::Device(graphgrove_device::DeviceError::OutOfMemory { .. })
        | Error::Storage(StorageError::NoMemory { .. })
        | Error::Pool(PoolError::NoRoom { .. } | PoolError::Exhausted(_)) => ErrorKind::NoMemory,
        Error::Device(_) | Error::Storage(StorageError::Device(_)) | Error::Pool(PoolError::Device(_)) => {
            ErrorKind::Device
        }
        Error::Survivors { .. } => ErrorKind::Survivors,
        Error::Skipped { .. } => ErrorKind::Skipped,
        Error::InputsGone { .. } => ErrorKind::InputsGone,
        Error::Replay(graphgrove_replay::Error::UnstableParameter { .. }) => ErrorKind::UnstableParameter,
        Error::ShutDown => ErrorKind::ShutDown,
        Error::ForeignHandle { .. } => ErrorKind::Foreign,
        Error::Failed { .. } => ErrorKind::Failed,
        _ => ErrorKind::Other,
    }
}
