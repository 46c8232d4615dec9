//! An engine and the model in lockstep.

use std::sync::Arc;

use graphgrove::{
    Arg as EngineArg, Backward, Engine, Error, Function, FunctionOptions, Layers, Limits, Mode, OldOutput,
};
use graphgrove::{ParamSet, Tensor};
use graphgrove_device::Device;
use graphgrove_pool::pool::{Growth, PoolConfig, Range};
use graphgrove_sim::SimDevice;
use graphgrove_storage::Error as StorageError;

use crate::body;
use crate::graveyard::Graveyard;
use crate::ground::Ground;
use crate::kernels::{Running, viewed};
use crate::model::{Model, ModelTensor};
use crate::program::{Arg, Call, FunctionSpec, PARAMS, Program, SETS, Step};
use crate::setup::Setup;

/// Who made a storage, and when.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The caller.
    Own,
    /// A call of a function.
    Output {
        /// The function.
        function: usize,
        /// How many steps had been asked for before the call.
        steps: u64,
        /// Which call of the function it was.
        call: u64,
    },
}

struct Handle {
    tensor: Tensor,
    model: ModelTensor,
}

struct Pending<D: Device> {
    token: Backward<D>,
    saved: Vec<ModelTensor>,
    function: usize,
}

struct Registered<D: Device> {
    spec: FunctionSpec,
    function: Function<D>,
    mode: Mode,
    calls: u64,
}

struct Params {
    set: ParamSet,
    model: Vec<ModelTensor>,
}

/// An engine that runs a program, and the model beside it.
pub struct Rig<D: Ground> {
    /// The device.
    pub device: Arc<D>,
    /// The engine.
    pub engine: Engine<D>,
    yard: Graveyard<D>,
    stream: D::Stream,
    model: Model,
    origins: Vec<Origin>,
    functions: Vec<Registered<D>>,
    params: Vec<Params>,
    handles: Vec<Handle>,
    pending: Vec<Pending<D>>,
    steps: u64,
    /// Whether a step waits for pending backwards.
    steps_wait: bool,
    /// How many tensors of its own the caller has made: each has other values.
    made: u32,
    /// How many values were compared.
    pub compared: u64,
}

/// Runs a program on one engine on a simulated device of its own, and checks everything that there is to check.
///
/// # Panics
/// If anything is not as it should be.
pub fn check(program: &Program, setup: Setup) {
    let device = SimDevice::builder().seed(program.seed).memory_bytes(64 << 20).granularity(4096).build();
    check_on(&Arc::new(device), program, setup);
}

/// Runs a program on one engine on a device, and checks everything that there is to check. How many values were compared.
///
/// # Panics
/// If anything is not as it should be.
pub fn check_on<D: Ground>(device: &Arc<D>, program: &Program, setup: Setup) -> u64 {
    let mut rig = Rig::new(device, program, setup);
    for round in 0..program.rounds {
        rig.round(program, round);
    }
    let Rig { engine, yard, handles, pending, params, functions, compared, .. } = rig;
    // Who is dropped first must not matter.
    if program.seed.is_multiple_of(2) {
        drop((functions, engine, pending));
        yard.settle(device);
        drop((handles, params));
    } else {
        drop((params, handles));
        drop((pending, functions, engine));
    }
    yard.settle(device);
    assert!(device.has_everything_back(), "memory is left");
    device.check();
    compared
}

/// What a program makes of an engine: its recordings as text, and where the values that are left lie, counted from the first.
///
/// # Panics
/// As [`check`].
#[must_use]
pub fn trace(program: &Program, setup: Setup) -> (String, Vec<Option<u64>>) {
    let device = SimDevice::builder().seed(program.seed).memory_bytes(64 << 20).granularity(4096).build();
    let device = Arc::new(device);
    let mut rig = Rig::new(&device, program, setup);
    let mut places = Vec::new();
    for round in 0..program.rounds {
        rig.round(program, round);
        places.extend(rig.handles.iter().map(|handle| handle.tensor.address().ok()));
    }
    let first = places.iter().flatten().map(|at| at.get()).min().unwrap_or(0);
    // The names of parameter sets, which reasons mention too, are counted over all engines of a process.
    let outline = rig.engine.outline().unwrap();
    let bare = |line: &str| {
        let line = line.split_once(": ").map_or(line, |(line, _)| line);
        let (before, after) = line.split_once("of set").unwrap_or((line, ""));
        format!("{before}{}\n", after.trim_start_matches(|digit: char| digit.is_ascii_digit()))
    };
    let text = outline.lines().map(bare).collect();
    (text, places.iter().map(|at| at.map(|at| at.get() - first)).collect())
}

impl<D: Ground> Rig<D> {
    /// An engine with the functions of a program.
    #[must_use]
    pub fn new(device: &Arc<D>, program: &Program, setup: Setup) -> Self {
        let growth = Growth { small_limit: 2048, small: 4096, large: 16384, unit: 4096 };
        let range = if setup.plan_memory { Range::Auto } else { Range::Never };
        let mut builder = Engine::<D>::builder()
            .mode(setup.mode)
            .layers(setup.layers)
            .plan_memory(setup.plan_memory)
            .pool(PoolConfig { growth, range, ..PoolConfig::default() });
        if program.tight {
            builder = builder.limits(Limits {
                path_length: 4,
                loop_length: 2,
                siblings: 2,
                liveness_variants: 1,
                recordings_per_function: 3,
                rerecordings: 2,
                changes_before_staged: 1,
                warm_signatures: 2,
                ..Limits::default()
            });
        }
        let engine = builder.build(Arc::clone(device)).unwrap();
        let kernels = device.kernels();
        let register = |(index, spec): (usize, &FunctionSpec)| {
            let mode = spec.mode.filter(|_| setup.mode != Mode::Eager).unwrap_or(setup.mode);
            let (mutates, mutates_params) = spec.mutates();
            let mut options = FunctionOptions::new().mode(mode).old_outputs(spec.old).mutates(mutates);
            if mutates_params {
                options = options.mutates_params();
            }
            let (body, kernels) = (spec.clone(), kernels.clone());
            let function = engine.function_with(format!("f{index}"), options, move |context| {
                let (inputs, params) = (body.inputs as usize, body.params as usize);
                let mut registers = (0..inputs).map(|at| context.take(at)).collect::<Result<Vec<_>, _>>()?;
                for at in 0..params {
                    registers.push(context.param(at)?.clone());
                }
                let saved: Vec<Tensor> = (0..).map_while(|at| context.take_saved(at).ok()).collect();
                let value = context.value(inputs)? as u32;
                let mut running = Running { context, kernels: &kernels };
                let (outputs, saves) = body::run(&body, &mut running, registers, &saved, value)?;
                saves.iter().for_each(|save| context.save(save));
                Ok(outputs)
            });
            Registered { spec: spec.clone(), function, mode, calls: 0 }
        };
        let functions = program.functions.iter().enumerate().map(register).collect();
        let stream = device.create_stream().unwrap();
        let mut rig = Self {
            device: Arc::clone(device),
            engine,
            yard: Graveyard::default(),
            stream,
            model: Model::default(),
            origins: Vec::new(),
            functions,
            params: Vec::new(),
            handles: Vec::new(),
            pending: Vec::new(),
            steps: 0,
            steps_wait: !setup.layers.contains(Layers::UNCONSUMED_BACKWARDS),
            made: 0,
            compared: 0,
        };
        for _ in 0..SETS {
            let (tensors, model) = (0..PARAMS).map(|_| rig.own(5)).map(|own| (own.tensor, own.model)).unzip();
            rig.params.push(Params { set: ParamSet::new(tensors).unwrap(), model });
        }
        rig
    }

    /// Runs one round of a program, and compares all values at its end.
    pub fn round(&mut self, program: &Program, round: u8) {
        for (at, step) in program.steps.iter().enumerate() {
            let is_skipped = |skip: &&(u8, u8)| skip.0 == round && skip.1 as usize == at;
            if !program.skips.iter().any(|skip| is_skipped(&skip)) {
                self.step(step);
            }
        }
        self.compare();
        let leaving = self.handles.len().saturating_sub(program.left as usize);
        self.handles.drain(..leaving);
        let leaving = self.pending.len().saturating_sub(program.pending as usize);
        self.pending.drain(..leaving);
        self.device.check();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Own(len) => {
                let own = self.own(*len as usize);
                self.handles.push(own);
            }
            Step::Call(call) => self.call(call, None),
            Step::Backward(token, call) => {
                if let Some(at) = newest(self.pending.len(), *token) {
                    let pending = self.pending.remove(at);
                    self.call(call, Some(pending));
                }
            }
            Step::Discard(token) => {
                if let Some(at) = newest(self.pending.len(), *token) {
                    self.pending.remove(at);
                }
            }
            Step::Clone(handle) => {
                if let Some(at) = newest(self.handles.len(), *handle) {
                    let Handle { tensor, model } = &self.handles[at];
                    self.handles.push(Handle { tensor: tensor.clone(), model: *model });
                }
            }
            Step::View(handle, view) => {
                let Some(at) = newest(self.handles.len(), *handle) else { return };
                let Handle { tensor, model } = &self.handles[at];
                match viewed(tensor, *view) {
                    Ok(tensor) => {
                        let Ok(model) = body::Machine::view(&mut self.model, &model.clone(), *view);
                        self.handles.push(Handle { tensor, model });
                    }
                    Err(StorageError::Stale(_)) => self.is_stale_by_a_rule(&model.clone()),
                    Err(error) => panic!("a view: {error}"),
                }
            }
            Step::Drop(handle) => {
                if let Some(at) = newest(self.handles.len(), *handle) {
                    self.handles.remove(at);
                }
            }
            Step::DropElsewhere(handle) => {
                if let Some(at) = newest(self.handles.len(), *handle) {
                    let handle = self.handles.remove(at);
                    std::thread::spawn(move || drop(handle.tensor)).join().unwrap();
                }
            }
            Step::BeginStep => {
                self.engine.begin_step().unwrap();
                self.steps += 1;
            }
            Step::Reset => self.engine.reset().unwrap(),
            Step::Replace { set, param, by } => self.replace(*set, *param, *by),
            Step::Check => self.compare(),
        }
    }

    fn own(&mut self, len: usize) -> Handle {
        self.made += 1;
        let values: Vec<u32> = (0..len as u32).map(|at| self.made * 1000 + at).collect();
        let tensor = self.yard.tensor(&self.device, &values);
        let model = self.model.tensor(values);
        self.origins.push(Origin::Own);
        Handle { tensor, model }
    }

    fn replace(&mut self, set: u8, param: u8, by: Option<u8>) {
        let (set, param) = (set as usize % SETS, param as usize % PARAMS);
        if let Some(at) = by.and_then(|by| newest(self.handles.len(), by)) {
            let Handle { tensor, model } = &self.handles[at];
            // An output of a recording is refused as a parameter.
            if self.params[set].set.replace(param, tensor.clone()).is_ok() {
                self.params[set].model[param] = *model;
                return;
            }
        }
        let own = self.own(5);
        self.params[set].set.replace(param, own.tensor).unwrap();
        self.params[set].model[param] = own.model;
    }

    fn call(&mut self, call: &Call, backward: Option<Pending<D>>) {
        let at = call.function as usize % self.functions.len();
        let spec = self.functions[at].spec.clone();
        let mut tensors: Vec<(Tensor, bool)> = Vec::new();
        let mut registers = Vec::new();
        for place in 0..spec.inputs as usize {
            if self.handles.is_empty() {
                let own = self.own(5);
                self.handles.push(own);
            }
            let (wanted, given) = match call.args[place.min(call.args.len() - 1)] {
                Arg::Kept(handle) => (handle, false),
                Arg::Given(handle) => (handle, true),
            };
            let handle = newest(self.handles.len(), wanted).unwrap();
            registers.push(self.handles[handle].model);
            tensors.push(if given {
                (self.handles.remove(handle).tensor, true)
            } else {
                (self.handles[handle].tensor.clone(), false)
            });
        }
        let params = &self.params[call.set as usize % SETS];
        registers.extend(params.model.iter().take(spec.params as usize));
        let gone: Vec<ModelTensor> = tensors
            .iter()
            .zip(&registers)
            .filter(|((tensor, _), _)| tensor.address().is_err())
            .map(|(_, model)| *model)
            .collect();
        let (kept, given): (Vec<_>, Vec<_>) = tensors
            .into_iter()
            .map(|(tensor, is_given)| if is_given { (None, Some(tensor)) } else { (Some(tensor), None) })
            .unzip();
        let mut args: Vec<EngineArg<'_, D>> = kept
            .iter()
            .zip(given)
            .filter_map(|(kept, given)| match kept {
                Some(kept) => Some(EngineArg::Kept(kept)),
                None => given.map(EngineArg::Given),
            })
            .collect();
        args.push(EngineArg::Value(u64::from(call.value)));
        let function = self.functions[at].function.clone();
        let mut calling = function.calling();
        if spec.params > 0 {
            calling = calling.with(&params.set);
        }
        if call.elsewhere {
            calling = calling.on(&self.stream);
        }
        let saved = backward.as_ref().map(|backward| (backward.saved.clone(), backward.function));
        let called = match backward {
            Some(backward) => calling.backward(backward.token, args).map(|outputs| (outputs, None)),
            None if call.forward => calling.forward(args).map(|(outputs, token)| (outputs, Some(token))),
            None => calling.call(args).map(|outputs| (outputs, None)),
        };
        drop(kept);
        let (mut outputs, token) = match called {
            Ok(done) => {
                assert!(gone.is_empty(), "a call took an input that cannot be read");
                done
            }
            Err(Error::Storage(StorageError::Stale(stale))) => {
                gone.iter().for_each(|gone| self.is_stale_by_a_rule(gone));
                let saved_by_pools = saved.iter().any(|(saved, function)| {
                    self.functions[*function].mode == Mode::OnePool
                        || saved.iter().any(|saved| self.is_of_one_pool(saved))
                });
                assert!(!gone.is_empty() || saved_by_pools, "a call of readable inputs: {stale}");
                return;
            }
            Err(error) => panic!("a call of f{at}: {error}"),
        };
        self.functions[at].calls += 1;
        let saved = saved.map(|(saved, _)| saved).unwrap_or_default();
        let (made, saves) = self.model.run(&spec, registers, &saved, u32::from(call.value));
        let (steps, number) = (self.steps, self.functions[at].calls);
        self.origins.resize(self.model.storages.len(), Origin::Output { function: at, steps, call: number });
        assert_eq!(outputs.len(), made.len());
        for (index, model) in made.into_iter().enumerate() {
            if call.taken >> (index % 8) & 1 == 1 {
                let tensor = outputs.take(index).unwrap();
                self.handles.push(Handle { tensor, model });
            }
        }
        if let Some(token) = token {
            self.pending.push(Pending { token, saved: saves, function: at });
        }
    }

    fn is_of_one_pool(&self, tensor: &ModelTensor) -> bool {
        matches!(self.origins[tensor.storage], Origin::Output { function, .. } if self.functions[function].mode == Mode::OnePool)
    }

    /// A value is gone: the program has asked for that.
    fn is_stale_by_a_rule(&self, tensor: &ModelTensor) {
        let Origin::Output { function, steps, call } = self.origins[tensor.storage] else {
            panic!("memory of the caller's own is stale");
        };
        let Registered { spec, mode, calls, .. } = &self.functions[function];
        assert_eq!(spec.old, OldOutput::Error, "an output of f{function} that is to be kept is stale");
        match mode {
            Mode::Eager => panic!("an output of a plain run is stale"),
            Mode::OnePool => assert!(*calls > call, "f{function} has not run again, and its output is stale"),
            // Where any pending backward holds a step up, it begins whenever the last of them has run.
            _ if self.steps_wait => assert!(self.steps > 0, "no step was asked for ever"),
            _ => assert!(self.steps > steps, "no step was asked for, and an output of f{function} is stale"),
        }
    }

    /// Reads every value that can be read.
    fn compare(&mut self) {
        self.yard.settle(&self.device);
        self.compare_blocks();
        for Handle { tensor, model } in &self.handles {
            match self.read(tensor) {
                Ok(values) => {
                    self.compared += 1;
                    assert_eq!(values, self.model.values(model), "{:?}", self.origins[model.storage]);
                }
                Err(StorageError::Stale(_)) => self.is_stale_by_a_rule(model),
                Err(error) => panic!("a read: {error}"),
            }
        }
        for Params { set, model } in &self.params {
            for (tensor, model) in set.tensors().iter().zip(model) {
                assert_eq!(self.read(tensor).unwrap(), self.model.values(model), "a parameter");
            }
        }
    }

    /// Two handles lie in one block exactly if the model has one vector for them, and no two blocks overlap.
    fn compare_blocks(&self) {
        let mut blocks: Vec<(u64, u64, usize)> = Vec::new();
        let params = self.params.iter().flat_map(|params| params.set.tensors().iter().zip(&params.model));
        let handles = self.handles.iter().map(|handle| (&handle.tensor, &handle.model));
        for (tensor, model) in handles.chain(params).filter(|(_, model)| model.len > 0) {
            let storage = tensor.storage();
            if let (Ok(base), Ok(bytes)) = (storage.base(), storage.bytes()) {
                blocks.push((base.get(), base.get() + bytes, model.storage));
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        for pair in blocks.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two live storages in one block: {pair:?}");
        }
    }

    fn read(&self, tensor: &Tensor) -> Result<Vec<u32>, StorageError> {
        let stride = tensor.strides().first().map_or(1, |stride| *stride);
        let start = tensor.address()?;
        let element = |at: u64| {
            let mut bytes = [0; 4];
            self.device.read(start.checked_add(4 * at * stride).unwrap(), &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        Ok((0..tensor.layout().elements()).map(element).collect())
    }
}

/// The place of a thing that is counted from the newest one.
fn newest(count: usize, wanted: u8) -> Option<usize> {
    let back = (wanted as usize).checked_rem(count)?;
    Some(count - 1 - back)
}
