//! The engine: one lock around the groves, and the way of a call to the right one.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove_device::{Device, StreamHandle};
use graphgrove_pool::pool::{Pool, PoolConfig};
use graphgrove_replay::{Method, ParamSet};
use graphgrove_storage::Tensor;
use graphgrove_tree::{CallKind, FunctionId, PendingRule, TokenId};
use parking_lot::{Mutex, ReentrantMutex};

use crate::budget::Budget;
use crate::function::{Body, FunctionData};
use crate::grove::{Around, Done, Grove, GroveOptions, Request};
use crate::kit::Kit;
use crate::observer::Watch;
use crate::outputs::Saved;
use crate::reasons::Reasons;
use crate::retired::Retired;
use crate::switch::{Trial, try_out};
use crate::{
    Arg, Backward, CallStats, EngineBuilder, EngineStats, Error, Event, Function, FunctionName,
    FunctionOptions, Layers, Mode, Outputs, Reason, Result,
};

pub(crate) struct State<D: Device> {
    pub(crate) functions: Vec<Registered<D>>,
    /// The first is that of all trees, if there is one yet.
    pub(crate) groves: Vec<Grove<D>>,
    /// The one that ran the last call.
    pub(crate) last: Option<usize>,
    /// The pools of groves that are gone, as far as handles of their outputs are left.
    pub(crate) retired: Vec<Retired<D>>,
    /// How many groves there have been.
    pub(crate) serial: u64,
    pub(crate) is_shut_down: bool,
}

/// Functions are registered without the engine's lock, so that a running function can do it too.
pub(crate) struct Registry<D: Device> {
    /// Those that there have been.
    pub(crate) names: Vec<Arc<str>>,
    /// Those that the engine has not seen yet.
    pub(crate) waiting: Vec<Registered<D>>,
}

pub(crate) struct Registered<D: Device> {
    data: Arc<FunctionData<D>>,
    mode: Mode,
    /// Whether its calls need more than to be passed on: a step each, or a look at how long they take.
    is_special: bool,
    /// For the mode `Auto`.
    trial: Option<Trial>,
    /// The grove of its recordings, and its name there.
    place: Option<(usize, FunctionId)>,
}

pub(crate) struct Shared<D: Device> {
    /// None if nobody observes the engine.
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) device: Arc<D>,
    pub(crate) stream: D::Stream,
    /// Memory outside of every recording: of plain runs, of what is copied out, and of values of the host.
    pub(crate) plain: Pool<D>,
    pub(crate) kit: Kit<D>,
    /// How pools are set up.
    pub(crate) pool: PoolConfig,
    pub(crate) options: EngineBuilder,
    pub(crate) registry: Mutex<Registry<D>>,
    /// Tokens that were dropped. A drop only notes itself: it may happen anywhere, in the middle of a call too.
    pub(crate) discarded: Mutex<Vec<(u64, TokenId)>>,
    /// Whether there may be any, or a recording lacked room.
    pub(crate) has_chores: Arc<AtomicBool>,
    pub(crate) budget: Arc<Budget>,
    /// It is reentrant so that a call inside of a call is an error and not a deadlock.
    pub(crate) state: ReentrantMutex<RefCell<State<D>>>,
}

/// The kind of a call; of a backward, where its forward ran, and how much that has saved.
pub(crate) type Kind = (CallKind, Option<u64>, usize);

/// Warms functions up, records and replays them. Clones are the same engine; it may be used from any thread.
///
/// Two engines know nothing of each other's streams. A tensor that one has made may be passed to the other, on the same device, but
/// nothing orders the work of the two: before the second engine is called, let the first one's work end ([`Engine::read`],
/// [`Streams::synchronize`](graphgrove_device::Streams::synchronize)), or let the second one's stream wait for an event that is recorded
/// on the first one's. The same holds for the way back: before the first engine may use that memory again, the second one's work on it
/// has to be over. On another device the address means nothing, and the call cannot work.
pub struct Engine<D: Device>(pub(crate) Arc<Shared<D>>);

impl<D: Device> Clone for Engine<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> Engine<D> {
    /// An engine with all layers.
    ///
    /// # Errors
    /// As [`EngineBuilder::build`].
    pub fn new(device: Arc<D>) -> Result<Self> {
        Self::builder().build(device)
    }

    /// An engine yet to be made.
    #[must_use]
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Registers a function. The name is what errors, reasons and events call it; two functions may have the same. It may be a `&str`,
    /// a `String`, an `Arc<str>`, or a reference to one:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use graphgrove::{Engine, args};
    /// # use graphgrove_sim::SimDevice;
    /// # let engine = Engine::new(Arc::new(SimDevice::new()))?;
    /// let layer = format!("layer {}", 3);
    /// let _ = engine.function(&layer, |_| Ok(vec![])).call(args![])?;
    /// let _ = engine.function("layer 4", |_| Ok(vec![])).call(args![])?;
    /// let mut warmed_up: Vec<String> = engine.reasons()?.into_iter().map(|reason| reason.function).collect();
    /// warmed_up.sort();
    /// assert_eq!(warmed_up, [layer.as_str(), "layer 4"]);
    /// let _ = (engine.function(layer, |_| Ok(vec![])), engine.function(Arc::<str>::from("layer 5"), |_| Ok(vec![])));
    /// # Ok::<(), graphgrove::Error>(())
    /// ```
    ///
    /// A function lives as long as its engine: dropping the [`Function`] handle forgets neither the closure nor its recordings, and
    /// [`reset`](Self::reset) forgets recordings only. So register functions once. A program that goes on registering them grows
    /// without end.
    pub fn function(
        &self,
        name: impl AsRef<str>,
        body: impl Fn(&mut crate::Context<'_, D>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<D> {
        self.function_with(name, FunctionOptions::new().old_outputs(self.0.options.old_outputs), body)
    }

    /// Registers a function that is not like all others. It lives as long as the engine, as with [`function`](Self::function).
    pub fn function_with(
        &self,
        name: impl AsRef<str>,
        options: FunctionOptions,
        body: impl Fn(&mut crate::Context<'_, D>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<D> {
        let body: Arc<Body<D>> = Arc::new(body);
        let mode = options.mode.unwrap_or(self.0.options.mode);
        let name: Arc<str> = name.as_ref().into();
        let mut registry = self.0.registry.lock();
        let index = registry.names.len();
        let data = Arc::new(FunctionData {
            id: index,
            is_auto: mode == Mode::Auto,
            name: Arc::clone(&name),
            body,
            options,
        });
        let is_tried = mode == Mode::Auto && self.0.options.layers.contains(Layers::SWITCH);
        let trial = is_tried.then(Trial::new);
        let is_special = is_tried || mode == Mode::OnePool;
        registry.waiting.push(Registered { data, mode, is_special, trial, place: None });
        registry.names.push(Arc::clone(&name));
        drop(registry);
        self.0.note(|| Event::Registered { function: FunctionName { id: index, name } });
        Function { engine: Arc::clone(&self.0), index }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<D> {
        &self.0.device
    }

    /// The stream that calls run on if they do not say.
    #[must_use]
    pub fn stream(&self) -> &D::Stream {
        &self.0.stream
    }

    /// Asks for a step: the next call that is recorded or replayed starts at a root.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub fn begin_step(&self) -> Result<()> {
        self.0.with("begin_step", |state| {
            for grove in &mut state.groves {
                grove.begin_step();
            }
            Ok(())
        })
    }

    /// How the calls so far ran, and what the engine holds.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub fn stats(&self) -> Result<EngineStats> {
        self.0.with("stats", |state| {
            let mut calls = CallStats::default();
            for grove in &state.groves {
                grove.add_to(&mut calls);
            }
            Ok(EngineStats {
                calls,
                pools: state.groves.iter().map(Grove::pool_stats).collect(),
                plain: self.0.plain.stats(),
                nodes: state.groves.iter().map(Grove::nodes).sum(),
                pending_backwards: state.groves.iter().map(Grove::pending_backwards).sum(),
                exec_bytes: state.groves.iter().map(|grove| grove.replayer.all_exec_bytes()).sum(),
                budgeted: state.groves.iter().map(Grove::budgeted).sum::<u64>()
                    + state.retired.iter().map(Retired::budgeted).sum::<u64>(),
                observer_panicked: self.0.watch.as_ref().is_some_and(|watch| watch.has_panicked()),
            })
        })
    }

    /// Why calls ran plainly or were recorded again, most frequent first.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub fn reasons(&self) -> Result<Vec<Reason>> {
        self.0.with("reasons", |state| {
            let mut all = Reasons::default();
            for grove in &state.groves {
                all.add_all(grove.reasons());
            }
            Ok(all.sorted())
        })
    }

    /// The recordings as text, one line a node.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub fn outline(&self) -> Result<String> {
        self.0.with("outline", |state| Ok(state.groves.iter().map(Grove::outline).collect()))
    }

    /// The recordings as [Graphviz](https://graphviz.org) graphs, one for each pool: a box for each node, edges to children, dashed
    /// ones to what followed last time, the current path in bold.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub fn dot(&self) -> Result<String> {
        self.0.with("dot", |state| Ok(state.groves.iter().map(Grove::dot).collect()))
    }

    /// Forgets every recording. Outputs that are live stay valid, and their memory with them; functions stay registered, with all that
    /// their closures hold.
    ///
    /// # Errors
    /// [`Error::Nested`], [`Error::Device`] if the device cannot say that all work is over.
    pub fn reset(&self) -> Result<()> {
        self.0.with("reset", |state| {
            self.0.settle_retired(&mut state.retired)?;
            // Handles may die while this waits, after work that it does not wait for.
            let needed: Vec<bool> = state.groves.iter().map(Grove::settle).collect();
            self.0.device.synchronize()?;
            let groves = std::mem::take(&mut state.groves).into_iter().map(Grove::retire);
            let kept = groves.zip(needed).filter_map(|(grove, is_needed)| is_needed.then_some(grove));
            state.retired.extend(kept);
            state.last = None;
            for function in &mut state.functions {
                function.place = None;
            }
            Ok(())
        })?;
        self.0.note(|| Event::Reset);
        Ok(())
    }

    /// Waits for all work and forgets everything. Every later call of a function is refused; outputs that are live stay valid, and can
    /// be [read](Self::read). [`Error::ShutDown`] says what else still works.
    ///
    /// # Errors
    /// [`Error::Nested`]; [`Error::Device`] for a fault that the work met, and the engine is shut down all the same.
    pub fn shutdown(&self) -> Result<()> {
        let done = self.0.with("shutdown", |state| {
            state.groves.iter().for_each(|grove| _ = grove.settle());
            let waited = self.0.device.synchronize();
            state.is_shut_down = true;
            state.groves.clear();
            state.functions.clear();
            self.0.registry.lock().waiting.clear();
            Ok(waited?)
        });
        if !matches!(done, Err(Error::Nested { .. })) {
            self.0.note(|| Event::ShutDown);
        }
        done
    }
}

impl<D: Device> Shared<D> {
    #[inline]
    pub(crate) fn with<T>(&self, what: &str, run: impl FnOnce(&mut State<D>) -> Result<T>) -> Result<T> {
        let state = self.state.lock();
        let Ok(mut state) = state.try_borrow_mut() else {
            return Err(Error::Nested { function: what.to_owned() });
        };
        // What is told of the engine counts tokens that were dropped.
        self.apply_discarded(&mut state);
        run(&mut state)
    }

    /// Says that a backward will never run.
    pub(crate) fn discard(&self, grove: u64, token: TokenId) {
        self.discarded.lock().push((grove, token));
        self.has_chores.store(true, Ordering::Release);
    }

    pub(crate) fn call(
        &self,
        function: usize,
        params: Option<&ParamSet>,
        stream: Option<&D::Stream>,
        args: &mut [Arg<'_, D>],
    ) -> Result<Outputs> {
        Ok(self.run((function, params, stream), (CallKind::Inference, None, 0), args)?.outputs)
    }

    pub(crate) fn forward(
        self: &Arc<Self>,
        function: usize,
        params: Option<&ParamSet>,
        stream: Option<&D::Stream>,
        args: &mut [Arg<'_, D>],
    ) -> Result<(Outputs, Backward<D>)> {
        let done = self.run((function, params, stream), (CallKind::Forward, None, 0), args)?;
        let Done { outputs, saved, token, grove } = done;
        Ok((outputs, Backward { engine: Arc::clone(self), grove, token, saved }))
    }

    pub(crate) fn backward<'a>(
        &self,
        function: usize,
        params: Option<&ParamSet>,
        stream: Option<&D::Stream>,
        mut token: Backward<D>,
        args: impl IntoIterator<Item = Arg<'a, D>>,
    ) -> Result<Outputs>
    where
        D: 'a,
    {
        let saved = std::mem::replace(&mut token.saved, Saved::Nothing);
        let args = args.into_iter();
        let mut all: Vec<Arg<'_, D>> = Vec::with_capacity(saved.len() + args.size_hint().0);
        saved.take_each(|tensor| all.push(Arg::Given(tensor)));
        let count = all.len();
        all.extend(args);
        let kind = token.token.map_or(CallKind::Inference, CallKind::Backward);
        let done = self.run((function, params, stream), (kind, Some(token.grove), count), &mut all)?;
        // The call has consumed it.
        token.token = None;
        Ok(done.outputs)
    }

    #[inline]
    fn run(
        &self,
        what: (usize, Option<&ParamSet>, Option<&D::Stream>),
        kind: Kind,
        args: &mut [Arg<'_, D>],
    ) -> Result<Done> {
        match &self.watch {
            None => self.run_locked(what, kind, args),
            Some(watch) => self.run_watched(watch, what, kind, args),
        }
    }

    #[inline(always)]
    pub(crate) fn run_locked(
        &self,
        (function, params, stream): (usize, Option<&ParamSet>, Option<&D::Stream>),
        (kind, of, saved): Kind,
        args: &mut [Arg<'_, D>],
    ) -> Result<Done> {
        let guard = self.state.lock();
        let Ok(mut state) = guard.try_borrow_mut() else {
            return Err(self.nested(function));
        };
        let state = &mut *state;
        if state.is_shut_down {
            return Err(Error::ShutDown);
        }
        if function >= state.functions.len() {
            state.functions.append(&mut self.registry.lock().waiting);
        }
        self.apply_discarded(state);
        let Some(registered) = state.functions.get_mut(function) else { return Err(Error::ShutDown) };
        let (at, id) = match registered.place {
            Some(place) => place,
            None => self.place(registered, &mut state.groves, &mut state.serial)?,
        };
        if !state.retired.is_empty() {
            self.settle_retired(&mut state.retired)?;
        }
        if state.last != Some(at) {
            Self::order(&mut state.groves, state.last, at)?;
        }
        let stream = match stream {
            None => &self.stream,
            Some(stream) if stream.device() == self.stream.device() => stream,
            // Numbers of streams are those of one device, so it would be taken for another stream.
            Some(_) => return Err(Error::ForeignHandle { what: "stream" }),
        };
        let Some(grove) = state.groves.get_mut(at) else { return Err(Error::ShutDown) };
        let kind = match kind {
            // The forward ran in another pool, which needs nothing any more for it.
            CallKind::Backward(token) if of != Some(grove.serial()) => {
                if let Some(of) = of {
                    self.discard(of, token);
                }
                CallKind::Inference
            }
            kind => kind,
        };
        let request = Request {
            function: id,
            data: &registered.data,
            is_plain: registered.mode == Mode::Eager,
            kind,
            params,
            stream,
            saved,
            kit: &self.kit,
        };
        if registered.is_special {
            state.last = Some(at);
            return call_specially(&mut registered.trial, &mut registered.is_special, grove, &request, args);
        }
        let done = grove.call(&request, args);
        // A call that fails may have enqueued work before it did.
        state.last = Some(at);
        done
    }

    #[cold]
    fn nested(&self, function: usize) -> Error {
        let names = &self.registry.lock().names;
        Error::Nested { function: names.get(function).map_or_else(String::new, ToString::to_string) }
    }

    /// A function as events name it.
    pub(crate) fn name_of(&self, state: &mut State<D>, function: usize) -> FunctionName {
        let known = state.functions.get(function).map(|registered| registered.data.event_name());
        known.unwrap_or_else(|| FunctionName { id: function, name: "".into() })
    }

    /// Orders the next work of one grove behind the last of another: calls see what the calls before them have left, whatever their
    /// streams and pools. A grove sees to that itself among its own calls.
    #[cold]
    fn order(groves: &mut [Grove<D>], last: Option<usize>, next: usize) -> Result<()> {
        let stream = last.and_then(|last| groves.get(last)?.last_stream());
        match (stream, groves.get_mut(next)) {
            (Some(stream), Some(next)) => next.wait_for(&stream),
            _ => Ok(()),
        }
    }

    /// Finds the grove of a function that is called for the first time.
    #[cold]
    fn place(
        &self,
        registered: &mut Registered<D>,
        groves: &mut Vec<Grove<D>>,
        serial: &mut u64,
    ) -> Result<(usize, FunctionId)> {
        let is_own = registered.mode == Mode::OnePool;
        let at = match groves.iter().position(Grove::is_shared) {
            Some(at) if !is_own => at,
            _ => {
                let layers = self.options.layers;
                *serial += 1;
                let options = GroveOptions {
                    is_shared: !is_own,
                    serial: *serial,
                    method: if layers.contains(Layers::FAST_REPLAY) {
                        Method::Fast
                    } else {
                        Method::Reference
                    },
                    layers,
                    limits: self.options.limits,
                    pending: if layers.contains(Layers::UNCONSUMED_BACKWARDS) {
                        PendingRule::Tokens
                    } else {
                        PendingRule::UntilBackwardRuns
                    },
                    strict: self.options.strict,
                    plan_memory: self.options.plan_memory,
                    pool: self.pool,
                };
                let around = Around {
                    watch: self.watch.clone(),
                    clock: self.options.clock.clone(),
                    budget: Arc::clone(&self.budget),
                };
                groves.push(Grove::new(&self.device, &self.stream, &self.plain, options, around)?);
                groves.len() - 1
            }
        };
        let id = match groves.get_mut(at) {
            Some(grove) => grove.add_function(&registered.data),
            None => return Err(Error::ShutDown),
        };
        registered.place = Some((at, id));
        Ok((at, id))
    }

    /// Lets go of retired pools that nobody needs, once work that was given their memory is over: the drop of a handle waits for
    /// nothing, and the memory must not go with it.
    #[cold]
    fn settle_retired(&self, retired: &mut Vec<Retired<D>>) -> Result<()> {
        if retired.iter().all(Retired::is_needed) {
            return Ok(());
        }
        // Handles may die while this waits, after work that it does not wait for.
        let needed: Vec<bool> = retired.iter().map(Retired::settle).collect();
        self.device.synchronize()?;
        let mut needed = needed.into_iter();
        retired.retain(|_| needed.next().unwrap_or(true));
        Ok(())
    }

    #[inline]
    fn apply_discarded(&self, state: &mut State<D>) {
        if self.has_chores.load(Ordering::Relaxed) {
            self.do_chores(state);
        }
    }

    #[cold]
    fn do_chores(&self, state: &mut State<D>) {
        let State { functions, groves, .. } = state;
        let mut discarded = self.discarded.lock();
        self.has_chores.store(false, Ordering::Relaxed);
        for function in self.budget.take_recorded() {
            if let Some(registered) = functions.get_mut(function)
                && let Some(trial) = &mut registered.trial
            {
                registered.is_special |= trial.was_recorded();
            }
        }
        if let Some(mut lacking) = self.budget.take_lacking() {
            for grove in groves.iter_mut() {
                lacking = lacking.saturating_sub(grove.make_room(lacking));
            }
        }
        for (grove, token) in discarded.drain(..) {
            if let Some(grove) = groves.iter_mut().find(|of| of.serial() == grove) {
                grove.discard(token);
            }
        }
    }
}

/// Makes a call of a function in the mode `OnePool`, or of one that is tried out.
#[cold]
#[inline(never)]
fn call_specially<D: Device>(
    trial: &mut Option<Trial>,
    is_special: &mut bool,
    grove: &mut Grove<D>,
    request: &Request<'_, D>,
    args: &mut [Arg<'_, D>],
) -> Result<Done> {
    match trial {
        None => {
            grove.begin_step();
            grove.call(request, args)
        }
        Some(trial) => {
            let done = try_out(trial, grove, request, args);
            *is_special = trial.is_under_way();
            done
        }
    }
}

impl<D: Device> Drop for Shared<D> {
    fn drop(&mut self) {
        // Work may still use the memory that goes with the pools. A device that cannot wait any more is poisoned.
        let _ = self.device.synchronize();
    }
}

impl<D: Device> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("layers", &self.0.options.layers).finish_non_exhaustive()
    }
}
