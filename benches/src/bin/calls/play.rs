//! Playing a trace through an engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use graphgrove::{
    Arg, Backward, CallStats, Engine, EngineStats, Function, Layout, Mode, Outputs, ParamSet, Reason,
    Storage, Tensor,
};
use graphgrove_device::{Args, DevicePtr, LaunchDims, Memory, SegmentMemory, Streams, Work as _};
use graphgrove_sim::{SimDevice, SimSegment};

use crate::error::{Error, Result};
use crate::function::{SUM_BYTES, register, words};
use crate::kernels::{self, Kernels, mix};
use crate::program::{Program, Source, Value};
use crate::trace;
use crate::trace::Ran;

const DIMS: LaunchDims = LaunchDims::for_elements(1);

/// How a trace is played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) mode: Mode,
    /// Whether recordings lay their memory out by what the warm-up has asked for.
    pub(crate) plan: bool,
    /// Whether every access of memory is checked.
    pub(crate) check: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) ran: Vec<Ran>,
    /// A word for each output of each call, taken right before the output was dropped or given up.
    pub(crate) values: Vec<u64>,
    pub(crate) stats: EngineStats,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) outline: String,
    /// What the checker found.
    pub(crate) findings: Vec<String>,
}

/// Plays a trace from its first call to its last.
pub(crate) fn play(program: &Program, setup: Setup) -> Result<Played> {
    let mut player = Player::new(program, setup)?;
    for call in 0..program.calls.len() {
        player.call(call)?;
    }
    player.end()
}

struct Player<'p> {
    program: &'p Program,
    device: Arc<SimDevice>,
    engine: Engine<SimDevice>,
    kernels: Kernels,
    functions: Vec<Function<SimDevice>>,
    parameters: Vec<Tensor>,
    /// A (numbers -> set) pair means that the parameters with these numbers were passed together.
    sets: HashMap<Vec<usize>, ParamSet>,
    /// One word, which the caller's own values follow from.
    sum: SimSegment,
    /// One word for each output.
    digests: SimSegment,
    /// Where the words of a call's outputs begin.
    places: Vec<u64>,
    values: BTreeMap<Value, Tensor>,
    tokens: HashMap<usize, Backward<SimDevice>>,
    /// Memory of the caller's own, which work that was not waited for may still read.
    own: Vec<Arc<SimSegment>>,
    ran: Vec<Ran>,
    before: CallStats,
}

impl<'p> Player<'p> {
    fn new(program: &'p Program, setup: Setup) -> Result<Self> {
        let device = Arc::new(SimDevice::builder().seed(1).checker(setup.check).build());
        let engine = Engine::<SimDevice>::builder()
            .mode(setup.mode)
            .plan_memory(setup.plan)
            .build(Arc::clone(&device))?;
        let kernels = Kernels::new(&device);
        let functions = (0..program.bodies.len()).map(|number| {
            let body = Arc::new(program.bodies.get(number).cloned().unwrap_or_default());
            register(&engine, number, &body, program.scalars(number), &kernels)
        });
        let functions = functions.collect();
        let mut places = Vec::new();
        let mut end = 0;
        for call in 0..program.calls.len() {
            places.push(end);
            end += 8 * program.body(call).map_or(0, |body| body.outputs.len()) as u64;
        }
        let (sum, digests) = (device.allocate(SUM_BYTES)?, device.allocate(end.max(8))?);
        let mut player = Self {
            program,
            engine,
            kernels,
            functions,
            parameters: Vec::new(),
            sets: HashMap::new(),
            sum,
            digests,
            places,
            values: BTreeMap::new(),
            tokens: HashMap::new(),
            own: Vec::new(),
            ran: Vec::new(),
            before: CallStats::default(),
            device,
        };
        // An output without a word has none to take.
        player.device.fill(player.engine.stream(), player.digests.base(), 0, end.max(8))?;
        let args = kernels::start(player.sum.base(), 0);
        player.launch(|kernels| &kernels.start, &args)?;
        for bytes in &program.parameters {
            let parameter = player.tensor(*bytes)?;
            player.parameters.push(parameter);
        }
        Ok(player)
    }

    fn launch(
        &self,
        kernel: impl Fn(&Kernels) -> &graphgrove_sim::SimKernel,
        args: &Args,
    ) -> Result<(), graphgrove_device::DeviceError> {
        self.device.launch(self.engine.stream(), kernel(&self.kernels), DIMS, args).map(|_| ())
    }

    /// A tensor of the caller's own, of undefined contents.
    fn tensor(&mut self, bytes: u64) -> Result<Tensor> {
        let segment = Arc::new(self.device.allocate(bytes)?);
        self.own.push(Arc::clone(&segment));
        let storage = Storage::outside(segment.base(), bytes, Box::new(segment));
        let layout = Layout::of::<u8>(&[bytes]).map_err(graphgrove::Error::from)?;
        Ok(Tensor::new(storage, layout, 0).map_err(graphgrove::Error::from)?)
    }

    /// Writes what follows from a tag to a tensor, in stream order.
    fn write(&self, tensor: &Tensor, tag: u64) -> Result<()> {
        if let Some((to, words)) = words(tensor)? {
            self.launch(|kernels| &kernels.make, &kernels::make(self.sum.base(), to, words, tag))?;
        }
        Ok(())
    }

    /// Takes the word of an output, in stream order.
    fn digest(&self, value: Value, tensor: &Tensor) -> Result<()> {
        let place = self.places.get(value.call).map(|place| place + 8 * value.output as u64);
        let to = place.and_then(|place| self.digests.base().checked_add(place)).unwrap_or(DevicePtr::NULL);
        if let Some((from, words)) = words(tensor)? {
            self.launch(|kernels| &kernels.digest, &Args::new().read(from).scalar(words).write(to))?;
        }
        Ok(())
    }

    fn drop_value(&mut self, value: Value) -> Result<()> {
        if let Some(tensor) = self.values.remove(&value) {
            self.digest(value, &tensor)?;
        }
        Ok(())
    }

    fn call(&mut self, call: usize) -> Result<()> {
        let Some(planned) = self.program.calls.get(call) else { return Ok(()) };
        for value in &planned.dropped {
            self.drop_value(*value)?;
        }
        if planned.begins_step {
            self.begin_step(call)?;
        }
        let set = match self.sets.remove(&planned.parameters) {
            Some(set) => set,
            None => {
                let all = planned.parameters.iter().filter_map(|at| self.parameters.get(*at).cloned());
                ParamSet::new(all.collect()).map_err(graphgrove::Error::from)?
            }
        };
        let outputs = self.run(call, &set);
        self.sets.insert(planned.parameters.clone(), set);
        let outputs = outputs?.into_vec().map_err(|source| Error::Engine { call, source })?;
        self.values.extend((0..).map(|output| Value { call, output }).zip(outputs));
        self.note(call)
    }

    /// Begins a step, as an optimiser would: the parameters have new values.
    fn begin_step(&mut self, call: usize) -> Result<()> {
        self.tokens.clear();
        for (at, parameter) in self.parameters.iter().enumerate() {
            self.write(parameter, mix(call as u64, at as u64))?;
        }
        Ok(self.engine.begin_step()?)
    }

    fn run(&mut self, call: usize, set: &ParamSet) -> Result<Outputs> {
        let program = self.program;
        let Some(planned) = program.calls.get(call) else {
            return Err(Error::Call { call, why: "there is no such call".to_owned() });
        };
        // What is given up is taken out first, so that what is kept can be borrowed.
        let mut given: HashMap<usize, Tensor> = HashMap::new();
        for (at, source) in planned.arguments.iter().enumerate() {
            match *source {
                Source::Own { bytes } => {
                    let tensor = self.tensor(bytes)?;
                    self.write(&tensor, mix(!(call as u64), at as u64))?;
                    given.insert(at, tensor);
                }
                Source::Output { value, given: true } => {
                    if let Some(tensor) = self.values.get(&value).cloned() {
                        given.insert(at, tensor);
                    }
                }
                _ => {}
            }
        }
        for source in &planned.arguments {
            if let Source::Output { value, given: true } = source {
                self.drop_value(*value)?;
            }
        }
        let mut args: Vec<Arg<'_, SimDevice>> = Vec::new();
        for (at, source) in planned.arguments.iter().enumerate() {
            args.push(match (source, given.remove(&at)) {
                (Source::Scalar(value), _) => Arg::Value(*value),
                (_, Some(tensor)) => Arg::Given(tensor),
                (Source::Output { value, .. }, None) => {
                    let missing = || Error::Call { call, why: format!("{value:?} is gone") };
                    Arg::Kept(self.values.get(value).ok_or_else(missing)?)
                }
                (Source::Own { .. }, None) => continue,
            });
        }
        let Some(function) = self.functions.get(planned.function) else {
            return Err(Error::Call { call, why: "there is no such function".to_owned() });
        };
        let calling = function.with(set);
        let failed = |source| Error::Engine { call, source };
        match (planned.mode, planned.forward.and_then(|forward| self.tokens.remove(&forward))) {
            (trace::Mode::Forward, _) => {
                let (outputs, token) = calling.forward(args).map_err(failed)?;
                self.tokens.insert(call, token);
                Ok(outputs)
            }
            (trace::Mode::Backward, Some(token)) => calling.backward(token, args).map_err(failed),
            (trace::Mode::Backward | trace::Mode::Inference, _) => calling.call(args).map_err(failed),
        }
    }

    /// Notes what the call became.
    fn note(&mut self, call: usize) -> Result<()> {
        let now = self.engine.stats()?.calls;
        let before = std::mem::replace(&mut self.before, now);
        let became = [
            (now.warm_ups - before.warm_ups, Ran::WarmUp),
            (now.recordings - before.recordings, Ran::Record),
            (now.replays - before.replays, Ran::Replay),
            (now.eager - before.eager, Ran::Eager),
        ];
        match became.into_iter().filter(|(calls, _)| *calls > 0).collect::<Vec<_>>()[..] {
            [(1, ran)] => self.ran.push(ran),
            ref other => return Err(Error::Call { call, why: format!("it became {other:?}") }),
        }
        Ok(())
    }

    fn end(mut self) -> Result<Played> {
        let left: Vec<Value> = self.values.keys().copied().collect();
        for value in left {
            self.drop_value(value)?;
        }
        self.tokens.clear();
        self.device.synchronize()?;
        let mut bytes = vec![0; 8 * self.program.outputs()];
        self.device.read(self.digests.base(), &mut bytes)?;
        let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let findings: Vec<String> = self.device.findings().iter().map(ToString::to_string).collect();
        Ok(Played {
            ran: self.ran,
            values: words.collect(),
            stats: self.engine.stats()?,
            reasons: self.engine.reasons()?,
            outline: self.engine.outline()?,
            findings,
        })
    }
}
