//! The engine: one lock around the groves, and the way of a call to the right one.

use std::cell::RefCell;
use std::sync::Arc;

use graphgrove_device::{Capabilities, Device};
use graphgrove_pool::pool::{Growth, Pool, PoolConfig, Range};
use graphgrove_replay::{Method, ParamSet};
use graphgrove_storage::Tensor;
use graphgrove_tree::{CallKind, FunctionId, Limits, OldOutput, PendingRule, TokenId};
use parking_lot::{Mutex, ReentrantMutex};

use crate::function::{Body, FunctionData};
use crate::grove::{Done, Grove, GroveOptions, Request};
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
        let state = State { functions: Vec::new(), groves: Vec::new(), serial: 0, is_shut_down: false };
        Ok(Engine(Arc::new(Shared {
            device,
            stream,
            plain,
            pool: config,
            options: self,
            discarded: Mutex::default(),
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

struct State<D: Device> {
    functions: Vec<Registered<D>>,
    /// The first is that of all trees, if there is one yet.
    groves: Vec<Grove<D>>,
    /// How many groves there have been.
    serial: u64,
    is_shut_down: bool,
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
    /// Memory outside of every recording: of plain runs, and of what is copied out.
    plain: Pool<D>,
    /// How pools are set up.
    pool: PoolConfig,
    options: EngineBuilder,
    /// Tokens that were dropped. A drop only notes itself: it may happen anywhere, in the middle of a call too.
    discarded: Mutex<Vec<(u64, TokenId)>>,
    /// It is reentrant so that a call inside of a call is an error and not a deadlock.
    state: ReentrantMutex<RefCell<State<D>>>,
}

/// The kind of a call; of a backward, where its forward ran, and how much that has saved.
type Kind = (CallKind, Option<u64>, usize);

/// Warms functions up, records and replays them. Clones are the same engine; it may be used from any thread.
pub struct Engine<D: Device>(Arc<Shared<D>>);

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
    ///
    /// # Panics
    /// Never but inside of a call of the same engine, where nothing can be registered.
    pub fn function_with(
        &self,
        name: impl Into<Arc<str>>,
        options: FunctionOptions,
        body: impl Fn(&mut crate::Context<'_, D>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<D> {
        let body: Arc<Body<D>> = Arc::new(body);
        let mode = options.mode.unwrap_or(self.0.options.mode);
        let data = Arc::new(FunctionData { name: name.into(), body, options });
        let state = self.0.state.lock();
        let mut state = state.borrow_mut();
        state.functions.push(Registered { data, mode, place: None });
        Function { engine: Arc::clone(&self.0), index: state.functions.len() - 1 }
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
            state.groves.clear();
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
            Ok(waited?)
        })
    }
}

impl<D: Device> Shared<D> {
    #[inline]
    fn with<T>(&self, what: &str, run: impl FnOnce(&mut State<D>) -> Result<T>) -> Result<T> {
        let state = self.state.lock();
        let Ok(mut state) = state.try_borrow_mut() else {
            return Err(Error::Nested { function: what.to_owned() });
        };
        run(&mut state)
    }

    /// Says that a backward will never run.
    pub(crate) fn discard(&self, grove: u64, token: TokenId) {
        self.discarded.lock().push((grove, token));
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
        let Some(registered) = state.functions.get_mut(function) else { return Err(Error::ShutDown) };
        let (grove, id) = match registered.place {
            Some(place) => place,
            None => self.place(registered, &mut state.groves, &mut state.serial)?,
        };
        self.apply_discarded(&mut state.groves);
        let Some(grove) = state.groves.get_mut(grove) else { return Err(Error::ShutDown) };
        let kind = match kind {
            // The forward ran in another pool, which needs nothing any more for it.
            CallKind::Backward(token) if of != Some(grove.serial()) => {
                self.discarded.lock().extend(of.map(|of| (of, token)));
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
        };
        if registered.mode == Mode::OnePool {
            grove.begin_step();
        }
        Ok((grove.call(&request, args)?, grove.serial()))
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

    #[inline]
    fn apply_discarded(&self, groves: &mut [Grove<D>]) {
        let mut discarded = self.discarded.lock();
        if discarded.is_empty() {
            return;
        }
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
