//! The engine: one lock around the groves, and the way of a call to the right one.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove_device::{Capabilities, Device};
use graphgrove_pool::pool::{Growth, Pool, PoolConfig, Range};
use graphgrove_replay::{Method, ParamSet};
use graphgrove_storage::Tensor;
use graphgrove_tree::{CallKind, FunctionId, Limits, OldOutput, PendingRule, TokenId};
use parking_lot::{Mutex, ReentrantMutex};

use crate::function::{Body, FunctionData};
use crate::grove::{Done, Grove, GroveOptions, Request, Retired};
use crate::kit::Kit;
use crate::outputs::Saved;
use crate::reasons::Reasons;
use crate::{
    Arg, Backward, CallStats, EngineStats, Error, Function, FunctionOptions, Layers, Mode, Outputs, Reason,
    Result,
};

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    layers: Layers,
    mode: Mode,
    limits: Limits,
    pool: Option<PoolConfig>,
    budget: Option<u64>,
    old_outputs: OldOutput,
    strict: bool,
    plan_memory: bool,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self {
            layers: Layers::all(),
            mode: Mode::Auto,
            limits: Limits::default(),
            pool: None,
            budget: None,
            old_outputs: OldOutput::Error,
            strict: false,
            plan_memory: true,
        }
    }
}

impl EngineBuilder {
    /// The layers, all by default.
    #[must_use]
    pub fn layers(self, layers: Layers) -> Self {
        Self { layers, ..self }
    }

    /// How functions without a mode of their own run.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Bounds on recordings.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// How the pools obtain memory. Where the device can back a range of addresses page by page, they do so by default, and grow
    /// by no more than a request needs; elsewhere as [`PoolConfig`] says.
    #[must_use]
    pub fn pool(self, pool: PoolConfig) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// The most bytes that each pool may hold.
    #[must_use]
    pub fn budget(self, bytes: u64) -> Self {
        Self { budget: Some(bytes), ..self }
    }

    /// What becomes of outputs at a new step, of functions that do not say.
    #[must_use]
    pub fn old_outputs(self, rule: OldOutput) -> Self {
        Self { old_outputs: rule, ..self }
    }

    /// Makes every call that has to run plainly, although its function is to be recorded, an error.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Whether recordings lay their memory out by what the warm-up has asked for. They do by default.
    #[must_use]
    pub fn plan_memory(self, plan: bool) -> Self {
        Self { plan_memory: plan, ..self }
    }

    /// Makes the engine.
    ///
    /// # Errors
    /// [`Error::Layers`] for layers without one below them; [`Error::Device`] and [`Error::Pool`] if what the configuration asks for
    /// at the start cannot be had.
    pub fn build<D: Device>(self, device: Arc<D>) -> Result<Engine<D>> {
        if !self.layers.is_prefix() {
            return Err(Error::Layers { layers: self.layers });
        }
        let stream = device.create_stream()?;
        let config = self.pool_config(&*device);
        let plain = Pool::new(Arc::clone(&device), &stream, config)?;
        let state = State {
            functions: Vec::new(),
            groves: Vec::new(),
            last: None,
            retired: Vec::new(),
            serial: 0,
            is_shut_down: false,
        };
        Ok(Engine(Arc::new(Shared {
            device,
            stream,
            plain,
            kit: Kit::default(),
            pool: config,
            options: self,
            registry: Mutex::new(Registry { count: 0, waiting: Vec::new() }),
            discarded: Mutex::default(),
            has_discarded: AtomicBool::new(false),
            state: ReentrantMutex::new(RefCell::new(state)),
        })))
    }
}

impl EngineBuilder {
    /// How pools are set up on a device.
    fn pool_config<D: Device>(&self, device: &D) -> PoolConfig {
        let config = self.pool.unwrap_or_else(|| {
            let config = PoolConfig::default();
            let is_range =
                config.range != Range::Never && device.capabilities().contains(Capabilities::RESERVE_MAP);
            // The pieces of a range lie side by side, so that obtaining them one by one splits nothing.
            let page = device.granularity().max(PAGE);
            let paged = Growth { small_limit: page, small: page, large: page, unit: page };
            PoolConfig { growth: if is_range { paged } else { config.growth }, ..config }
        });
        PoolConfig { budget: self.budget.or(config.budget), ..config }
    }
}

/// The least that a range grows by, in bytes: what CUDA maps at once.
const PAGE: u64 = 2 << 20;

pub(crate) struct State<D: Device> {
    functions: Vec<Registered<D>>,
    /// The first is that of all trees, if there is one yet.
    groves: Vec<Grove<D>>,
    /// The one that ran the last call.
    last: Option<usize>,
    /// The pools of groves that are gone, as far as handles of their outputs are left.
    retired: Vec<Retired<D>>,
    /// How many groves there have been.
    serial: u64,
    is_shut_down: bool,
}

/// Functions are registered without the engine's lock, so that a running function can do it too.
struct Registry<D: Device> {
    /// How many there have been.
    count: usize,
    /// Those that the engine has not seen yet.
    waiting: Vec<Registered<D>>,
}

struct Registered<D: Device> {
    data: Arc<FunctionData<D>>,
    mode: Mode,
    /// The grove of its recordings, and its name there.
    place: Option<(usize, FunctionId)>,
}

pub(crate) struct Shared<D: Device> {
    pub(crate) device: Arc<D>,
    stream: D::Stream,
    /// Memory outside of every recording: of plain runs, of what is copied out, and of values of the host.
    pub(crate) plain: Pool<D>,
    pub(crate) kit: Kit<D>,
    /// How pools are set up.
    pool: PoolConfig,
    options: EngineBuilder,
    registry: Mutex<Registry<D>>,
    /// Tokens that were dropped. A drop only notes itself: it may happen anywhere, in the middle of a call too.
    discarded: Mutex<Vec<(u64, TokenId)>>,
    /// Whether there may be any.
    has_discarded: AtomicBool,
    /// It is reentrant so that a call inside of a call is an error and not a deadlock.
    state: ReentrantMutex<RefCell<State<D>>>,
}

/// The kind of a call; of a backward, where its forward ran, and how much that has saved.
type Kind = (CallKind, Option<u64>, usize);

/// Warms functions up, records and replays them. Clones are the same engine; it may be used from any thread.
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

    /// Registers a function.
    pub fn function(
        &self,
        name: impl Into<Arc<str>>,
        body: impl Fn(&mut crate::Context<'_, D>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<D> {
        self.function_with(name, FunctionOptions::new().old_outputs(self.0.options.old_outputs), body)
    }

    /// Registers a function that is not like all others.
    pub fn function_with(
        &self,
        name: impl Into<Arc<str>>,
        options: FunctionOptions,
        body: impl Fn(&mut crate::Context<'_, D>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<D> {
        let body: Arc<Body<D>> = Arc::new(body);
        let mode = options.mode.unwrap_or(self.0.options.mode);
        let data = Arc::new(FunctionData { name: name.into(), body, options });
        let mut registry = self.0.registry.lock();
        registry.waiting.push(Registered { data, mode, place: None });
        let index = registry.count;
        registry.count += 1;
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

    /// Forgets every recording. Outputs that are live stay valid, and their memory with them; functions stay registered.
    ///
    /// # Errors
    /// [`Error::Nested`], [`Error::Device`] if the device cannot say that all work is over.
    pub fn reset(&self) -> Result<()> {
        self.0.with("reset", |state| {
            self.0.device.synchronize()?;
            state.retired.retain(Retired::is_needed);
            let groves = std::mem::take(&mut state.groves);
            state.retired.extend(groves.into_iter().map(Grove::retire).filter(Retired::is_needed));
            state.last = None;
            for function in &mut state.functions {
                function.place = None;
            }
            Ok(())
        })
    }

    /// Waits for all work and forgets everything. Every later call is refused; outputs that are live stay valid.
    ///
    /// # Errors
    /// [`Error::Nested`]; [`Error::Device`] for a fault that the work met, and the engine is shut down all the same.
    pub fn shutdown(&self) -> Result<()> {
        self.0.with("shutdown", |state| {
            let waited = self.0.device.synchronize();
            state.is_shut_down = true;
            state.groves.clear();
            state.functions.clear();
            self.0.registry.lock().waiting.clear();
            Ok(waited?)
        })
    }
}

impl<D: Device> Shared<D> {
    #[inline]
    pub(crate) fn with<T>(&self, what: &str, run: impl FnOnce(&mut State<D>) -> Result<T>) -> Result<T> {
        let state = self.state.lock();
        let Ok(mut state) = state.try_borrow_mut() else {
            return Err(Error::Nested { function: what.to_owned() });
        };
        run(&mut state)
    }

    /// Says that a backward will never run.
    pub(crate) fn discard(&self, grove: u64, token: TokenId) {
        self.discarded.lock().push((grove, token));
        self.has_discarded.store(true, Ordering::Release);
    }

    pub(crate) fn call(
        &self,
        function: usize,
        params: Option<&ParamSet>,
        stream: Option<&D::Stream>,
        args: &mut [Arg<'_, D>],
    ) -> Result<Outputs> {
        Ok(self.run((function, params, stream), (CallKind::Inference, None, 0), args)?.0.outputs)
    }

    pub(crate) fn forward(
        self: &Arc<Self>,
        function: usize,
        params: Option<&ParamSet>,
        stream: Option<&D::Stream>,
        args: &mut [Arg<'_, D>],
    ) -> Result<(Outputs, Backward<D>)> {
        let (done, grove) = self.run((function, params, stream), (CallKind::Forward, None, 0), args)?;
        let Done { outputs, saved, token } = done;
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
        let tensors = saved.tensors();
        // From here on the tensors alone hold what was saved, so that the backward can give it up.
        drop(saved);
        let count = tensors.len();
        let mut all: Vec<Arg<'_, D>> = tensors.into_iter().map(Arg::Given).chain(args).collect();
        let kind = token.token.map_or(CallKind::Inference, CallKind::Backward);
        let (done, _) = self.run((function, params, stream), (kind, Some(token.grove), count), &mut all)?;
        // The call has consumed it.
        token.token = None;
        Ok(done.outputs)
    }

    #[inline]
    fn run(
        &self,
        (function, params, stream): (usize, Option<&ParamSet>, Option<&D::Stream>),
        (kind, of, saved): Kind,
        args: &mut [Arg<'_, D>],
    ) -> Result<(Done, u64)> {
        let guard = self.state.lock();
        let Ok(mut state) = guard.try_borrow_mut() else {
            return Err(Error::Nested { function: format!("function {function}") });
        };
        let state = &mut *state;
        if state.is_shut_down {
            return Err(Error::ShutDown);
        }
        if function >= state.functions.len() {
            state.functions.append(&mut self.registry.lock().waiting);
        }
        let Some(registered) = state.functions.get_mut(function) else { return Err(Error::ShutDown) };
        let (at, id) = match registered.place {
            Some(place) => place,
            None => self.place(registered, &mut state.groves, &mut state.serial)?,
        };
        self.apply_discarded(&mut state.groves);
        if !state.retired.is_empty() {
            self.settle_retired(&mut state.retired)?;
        }
        if state.last != Some(at) {
            Self::order(&mut state.groves, state.last, at)?;
        }
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
            stream: stream.unwrap_or(&self.stream),
            saved,
            kit: &self.kit,
        };
        if registered.mode == Mode::OnePool {
            grove.begin_step();
        }
        let done = grove.call(&request, args);
        // A call that fails may have enqueued work before it did.
        state.last = Some(at);
        Ok((done?, grove.serial()))
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
                groves.push(Grove::new(&self.device, &self.stream, &self.plain, options)?);
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
        let needed: Vec<bool> = retired.iter().map(Retired::is_needed).collect();
        self.device.synchronize()?;
        let mut needed = needed.into_iter();
        retired.retain(|_| needed.next().unwrap_or(true));
        Ok(())
    }

    #[inline]
    fn apply_discarded(&self, groves: &mut [Grove<D>]) {
        if self.has_discarded.load(Ordering::Relaxed) {
            self.apply_each_discarded(groves);
        }
    }

    #[cold]
    fn apply_each_discarded(&self, groves: &mut [Grove<D>]) {
        let mut discarded = self.discarded.lock();
        self.has_discarded.store(false, Ordering::Relaxed);
        for (grove, token) in discarded.drain(..) {
            if let Some(grove) = groves.iter_mut().find(|of| of.serial() == grove) {
                grove.discard(token);
            }
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
