//! What a program runs on: a device, and engines with the program's functions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use graphgrove::{
    CallStats, Context, Engine, Function as EngineFunction, FunctionOptions, Limits, OldOutput, ParamSet,
    Result as EngineResult, Tensor,
};
use parking_lot::{Mutex, RwLock};

use crate::check::{Inputs, Kind};
use crate::program::{Made, Op};
use crate::run::body::{self, Register};
use crate::run::device_run::{DeviceRun, FunctionState, count_run};
use crate::run::faults::Waiting;
use crate::run::ground::Ground;
use crate::run::memory::Graveyard;
use crate::{Function, Limit, ModeName, Old, Scenario, Setting, Setup, What};

/// One engine, with the program's functions.
pub(crate) struct Site<D: Ground> {
    pub(crate) engine: Engine<D>,
    pub(crate) functions: HashMap<String, Registered<D>>,
    /// How many steps were asked for.
    pub(crate) steps: AtomicU64,
    pub(crate) is_shut_down: AtomicBool,
}

/// A function of an engine.
pub(crate) struct Registered<D: Ground> {
    pub(crate) function: EngineFunction<D>,
    pub(crate) state: Arc<FunctionState<D>>,
    pub(crate) mode: ModeName,
    pub(crate) old: Old,
    /// How its calls ran.
    pub(crate) counts: Mutex<CallStats>,
    /// How many went well.
    pub(crate) calls: AtomicU64,
    /// How many there were. One that fails may have begun a step before it did.
    pub(crate) attempts: AtomicU64,
}

/// What a function writes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    /// Inputs, by their places among all inputs.
    pub(crate) inputs: Vec<usize>,
    /// How many of its lines write in place.
    pub(crate) lines: usize,
}

/// A device with engines on it.
pub(crate) struct World<'s, D: Ground> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) inputs: Inputs,
    pub(crate) setup: Setup,
    pub(crate) device: Arc<D>,
    /// What its kernels are taken from.
    pub(crate) code: Arc<D::Code>,
    pub(crate) sites: Vec<Site<D>>,
    pub(crate) yard: Graveyard<D>,
    /// The sets of parameters by the names that are in them.
    pub(crate) sets: RwLock<HashMap<Vec<String>, ParamSet>>,
    /// Where parameters were that have moved.
    pub(crate) left: Mutex<Vec<Tensor>>,
    pub(crate) is_lazy: bool,
    /// Whether the engine is asked for its statistics around each call.
    pub(crate) is_observed: bool,
    /// The failures that are still to come.
    pub(crate) faults: Mutex<Vec<Waiting>>,
    /// Whether the device is broken on purpose.
    pub(crate) is_poisoned: AtomicBool,
    /// Whether several threads run, so that what a single call did is not known.
    pub(crate) is_crowded: AtomicBool,
    /// Calls of the driver that the last call made.
    pub(crate) driver_calls: AtomicU64,
    /// What the last calls became, if somebody wants to know.
    pub(crate) log: Option<Mutex<VecDeque<String>>>,
    pub(crate) compared: AtomicU64,
    /// How many statements have run, on all threads.
    pub(crate) statements: AtomicU64,
}

/// A device, and what its kernels are taken from.
pub(crate) type Opened<D> = (Arc<D>, Arc<<D as Ground>::Code>);

/// How many of the last calls are remembered.
pub(crate) const LOGGED: usize = 12;

impl<'s, D: Ground> World<'s, D> {
    /// The engines that a scenario wants in a set-up.
    pub(crate) fn new(
        scenario: &'s Scenario,
        setup: Setup,
        (device, code): Opened<D>,
        explains: bool,
    ) -> Result<Self, graphgrove::Error> {
        let inputs = crate::check::inputs(scenario);
        let engines = scenario.setting(|setting| match setting {
            Setting::Engines(count) => Some(*count),
            _ => None,
        });
        let site = |_| Self::site(scenario, &inputs, setup, &device, &code);
        let sites = (0..engines.unwrap_or(1).max(1)).map(site).collect::<Result<_, _>>()?;
        Ok(Self {
            scenario,
            inputs,
            setup,
            device,
            code,
            sites,
            yard: Graveyard::default(),
            sets: RwLock::default(),
            left: Mutex::default(),
            is_lazy: scenario.settings.contains(&Setting::Lazy),
            is_observed: is_observed(scenario),
            faults: Mutex::default(),
            is_poisoned: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            driver_calls: AtomicU64::new(0),
            log: explains.then(Mutex::default),
            compared: AtomicU64::new(0),
            statements: AtomicU64::new(0),
        })
    }

    fn site(
        scenario: &Scenario,
        inputs: &Inputs,
        setup: Setup,
        device: &Arc<D>,
        code: &Arc<D::Code>,
    ) -> Result<Site<D>, graphgrove::Error> {
        let builder = Engine::<D>::builder().mode(setup.mode()).layers(setup.layers());
        let mut builder = D::set_up(device, builder);
        let mut limits = Limits::default();
        for setting in &scenario.settings {
            match setting {
                Setting::Limit(limit, bound) => set_limit(&mut limits, *limit, *bound),
                Setting::Budget(bytes) => builder = builder.budget(*bytes),
                Setting::Strict => builder = builder.strict(),
                Setting::NoPlan => builder = builder.plan_memory(false),
                _ => {}
            }
        }
        let engine = builder.limits(limits).build(Arc::clone(device))?;
        let constants = Arc::new(constants(scenario));
        let old = scenario.setting(|setting| match setting {
            Setting::Old(old) => Some(*old),
            _ => None,
        });
        let register = |function: &Function| {
            let kinds = inputs.get(&function.name.text).cloned().unwrap_or_default();
            let old = function.old.or(old).unwrap_or_default();
            let registered = register(&engine, (device, code), function, kinds, setup, old, &constants);
            (function.name.text.clone(), registered)
        };
        let functions = scenario.functions.iter().map(register).collect();
        Ok(Site { engine, functions, steps: AtomicU64::new(0), is_shut_down: AtomicBool::new(false) })
    }

    pub(crate) fn function(&self, name: &str) -> Option<&'s Function> {
        self.scenario.functions.iter().find(|function| function.name.text == name)
    }
}

/// Whether somebody wants to know what calls became. To ask the engine makes it apply what was dropped, so a lazy scenario that demands
/// nothing of the kind leaves it alone between its calls, as a program would.
fn is_observed(scenario: &Scenario) -> bool {
    let mut demands = !scenario.settings.contains(&Setting::Lazy);
    crate::check::walk(&scenario.statements, &mut |statement| {
        demands |= matches!(statement.what, What::Expect(_) | What::Note(..));
    });
    demands
}

fn set_limit(limits: &mut Limits, limit: Limit, bound: u32) {
    let field = match limit {
        Limit::PathLength => &mut limits.path_length,
        Limit::LoopLength => &mut limits.loop_length,
        Limit::Siblings => &mut limits.siblings,
        Limit::LivenessVariants => &mut limits.liveness_variants,
        Limit::Recordings => &mut limits.recordings_per_function,
        Limit::Rerecordings => &mut limits.rerecordings,
        Limit::Unreplayed => &mut limits.unreplayed,
        Limit::Changes => &mut limits.changes_before_staged,
        Limit::Failures => &mut limits.failures,
        Limit::Signatures => &mut limits.warm_signatures,
    };
    *field = bound;
}

/// Numbers that functions may use: those that the program says outside of every block.
pub(crate) fn constants(scenario: &Scenario) -> HashMap<String, u64> {
    let mut numbers: HashMap<String, u64> = HashMap::new();
    for statement in &scenario.statements {
        if let What::Size(name, number) = &statement.what {
            // One that divides by zero has no value, and ends the program before a call could use it.
            let value = number.evaluate(&|name| numbers.get(name).copied());
            numbers.insert(name.text.clone(), value.unwrap_or_default());
        }
    }
    numbers
}

fn register<D: Ground>(
    engine: &Engine<D>,
    (device, code): (&Arc<D>, &Arc<D::Code>),
    function: &Function,
    kinds: Vec<Kind>,
    setup: Setup,
    old: Old,
    constants: &Arc<HashMap<String, u64>>,
) -> Registered<D> {
    let mode = function.mode.filter(|_| setup.mode != ModeName::Eager).unwrap_or(setup.mode);
    let rule = match old {
        Old::Error => OldOutput::Error,
        Old::Copy => OldOutput::CopyOut,
        Old::Keep => OldOutput::Keep,
    };
    // Parameters do not count among the inputs of the engine.
    let place = |input: usize| kinds.iter().take(input).filter(|kind| **kind != Kind::Param).count();
    let is_param = |input: usize| kinds.get(input) == Some(&Kind::Param);
    let written = writes(function).inputs;
    let mutated: Vec<usize> =
        written.iter().filter(|input| !is_param(**input)).map(|input| place(*input)).collect();
    let mut options = FunctionOptions::new().old_outputs(rule).mutates(mutated);
    if mode != setup.mode {
        options = options.mode(mode.of_engine());
    }
    if written.iter().any(|input| is_param(*input)) {
        options = options.mutates_params();
    }
    let state = Arc::new(FunctionState::default());
    if function.body.iter().any(|line| line.op == Op::Poll) {
        let event = device.create_event().and_then(|event| {
            device.record_event(&event, engine.stream())?;
            Ok(event)
        });
        // A device that has no event to give has nothing to ask about.
        *state.event.lock() = event.ok();
    }
    let (body, beside) = (function.clone(), Arc::clone(&state));
    let (on, code) = (Arc::clone(device), Arc::clone(code));
    let constants = Arc::clone(constants);
    let function = engine.function_with(function.name.text.clone(), options, move |context| {
        run_body(context, (&*on, &*code), &body, &kinds, &beside, &constants)
    });
    Registered {
        function,
        state,
        mode,
        old,
        counts: Mutex::default(),
        calls: AtomicU64::new(0),
        attempts: AtomicU64::new(0),
    }
}

fn run_body<D: Ground>(
    context: &mut Context<'_, D>,
    (device, code): (&D, &D::Code),
    body: &Function,
    kinds: &[Kind],
    state: &FunctionState<D>,
    constants: &HashMap<String, u64>,
) -> EngineResult<Vec<Tensor>> {
    let mut registers: HashMap<String, Register<Tensor>> =
        constants.iter().map(|(name, number)| (name.clone(), Register::Number(*number))).collect();
    let (mut input, mut param) = (0, 0);
    for (name, kind) in body.inputs.iter().zip(kinds) {
        let register = match kind {
            Kind::Param => Register::Tensor(context.param(param)?.clone()),
            Kind::Number => Register::Number(context.value(input)?),
            Kind::Host => Register::Host(input),
            _ => Register::Tensor(context.take(input)?),
        };
        if *kind == Kind::Param {
            param += 1;
        } else {
            input += 1;
        }
        registers.insert(name.text.clone(), register);
    }
    let saved = (0..).map_while(|at| context.take_saved(at).ok()).map(Some).collect();
    let run = count_run(state);
    let mut machine =
        DeviceRun { context, device, code, state, run, saved, sides: HashMap::new(), side: None };
    body::run(body, &mut machine, registers)
}

/// Which inputs a function writes to. A view is the input that it is a view of.
pub(crate) fn writes(function: &Function) -> Writes {
    let mut roots: HashMap<&str, Option<usize>> =
        function.inputs.iter().enumerate().map(|(at, input)| (input.text.as_str(), Some(at))).collect();
    let mut writes = Writes::default();
    for line in &function.body {
        match &line.op {
            Op::Let(name, Made::View(view)) => {
                let root = roots.get(view.of.text.as_str()).copied().flatten();
                roots.insert(&name.text, root);
            }
            Op::Let(name, _) => {
                roots.insert(&name.text, None);
            }
            Op::InPlace(op) => {
                if let Some(Some(root)) = roots.get(op.to.text.as_str()) {
                    writes.inputs.push(*root);
                    writes.lines += 1;
                }
            }
            _ => {}
        }
    }
    writes.inputs.sort_unstable();
    writes.inputs.dedup();
    writes
}
