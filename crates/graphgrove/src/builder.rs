//! What an engine is made of.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use graphgrove_device::{Capabilities, Device};
use graphgrove_pool::pool::{Growth, Pool, PoolConfig, Range};
use graphgrove_tree::{Limits, OldOutput};
use parking_lot::{Mutex, ReentrantMutex};

use crate::budget::Budget;
use crate::clock::EngineClock;
use crate::engine::{Registry, Shared, State};
use crate::kit::Kit;
use crate::observer::{Listener, Watch};
use crate::{Clock, Engine, Error, Layers, Mode, Observer, Result};

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    pub(crate) layers: Layers,
    pub(crate) mode: Mode,
    pub(crate) limits: Limits,
    pub(crate) pool: Option<PoolConfig>,
    pub(crate) budget: Option<u64>,
    pub(crate) old_outputs: OldOutput,
    pub(crate) strict: bool,
    pub(crate) plan_memory: bool,
    pub(crate) observer: Listener,
    pub(crate) clock: EngineClock,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self {
            layers: Layers::all(),
            mode: Mode::Trees,
            limits: Limits::default(),
            pool: None,
            budget: None,
            old_outputs: OldOutput::Error,
            strict: false,
            plan_memory: true,
            observer: Listener::default(),
            clock: EngineClock::default(),
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

    /// The most bytes that recordings may take: all their pools and, as far as the device can tell, their execs together.
    ///
    /// Where a recording would take more, those that were not used for the longest time go first, unless they were used lately; if that
    /// is not enough, the call runs plainly, and says so. Plain runs, copies of old outputs and values from the host are outside of
    /// the budget: they take what they would take without an engine.
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

    /// Who is told what the engine does. Nobody is by default, and then no event is made.
    #[must_use]
    pub fn observer(self, observer: impl Observer + 'static) -> Self {
        Self { observer: Listener(Some(Arc::new(observer))), ..self }
    }

    /// The clock that the engine reads, in place of the host's own.
    #[must_use]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: EngineClock::new(clock), ..self }
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
        let (budget, has_chores) = (self.budget, Arc::new(AtomicBool::new(false)));
        let watch = self.observer.0.clone().map(|observer| Arc::new(Watch::new(observer)));
        Ok(Engine(Arc::new(Shared {
            watch,
            device,
            stream,
            plain,
            kit: Kit::default(),
            pool: config,
            options: self,
            registry: Mutex::new(Registry { names: Vec::new(), waiting: Vec::new() }),
            discarded: Mutex::default(),
            budget: Arc::new(Budget::new(budget, Arc::clone(&has_chores))),
            has_chores,
            state: ReentrantMutex::new(RefCell::new(state)),
        })))
    }
}

impl EngineBuilder {
    /// How pools are set up on a device.
    fn pool_config<D: Device>(&self, device: &D) -> PoolConfig {
        self.pool.unwrap_or_else(|| {
            let config = PoolConfig::default();
            let is_range =
                config.range != Range::Never && device.capabilities().contains(Capabilities::RESERVE_MAP);
            // The pieces of a range lie side by side, so that obtaining them one by one splits nothing.
            let page = device.granularity().max(PAGE);
            let paged = Growth { small_limit: page, small: page, large: page, unit: page };
            PoolConfig { growth: if is_range { paged } else { config.growth }, ..config }
        })
    }
}

/// The least that a range grows by, in bytes: what CUDA maps at once.
const PAGE: u64 = 2 << 20;
