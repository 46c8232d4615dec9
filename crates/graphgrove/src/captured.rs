//! Running a function inside of the pool, and what its outputs are.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_pool::pool::Session;
use graphgrove_replay::Recorder;
use graphgrove_storage::{
    HandBack, InputIndex, InputPlan, OutputClass, OutputSpec, PlannedOutput, Readers, SlotIndex, StorageId,
    Tensor, plan_outputs,
};
use graphgrove_tree::{Output, OutputKind};

use crate::context::Context;
use crate::draws::{CallDraws, RecordedDraws, Taken};
use crate::effects::{Effects, InputOf};
use crate::grove::{Grove, Request};
use crate::memory::Memory;
use crate::side_stream::Forks;
use crate::{Arg, Error, Layers, Result};

/// An input as the function was given it: enough to know it again among its outputs, and nothing that keeps it alive.
#[derive(Clone)]
pub(crate) struct Seen {
    storage: Option<StorageId>,
    like: Option<(graphgrove_storage::Layout, u64)>,
}

impl Seen {
    pub(crate) fn of(tensor: Option<&Tensor>) -> Result<Self> {
        let Some(tensor) = tensor else { return Ok(Self { storage: None, like: None }) };
        let passed = tensor.as_input()?;
        Ok(Self { storage: passed.storage, like: Some((tensor.layout().clone(), tensor.offset_bytes())) })
    }

    /// The input as a tensor, if one of these lies in its storage.
    fn among(&self, tensors: &[Tensor]) -> Result<Option<Tensor>> {
        let (Some(id), Some((layout, offset))) = (self.storage, &self.like) else { return Ok(None) };
        for tensor in tensors {
            if tensor.storage().id()? == Some(id) {
                return Ok(Some(Tensor::new(tensor.storage().clone(), layout.clone(), *offset)?));
            }
        }
        Ok(None)
    }
}

/// What a function has made, output by output: returned ones first, and then those that it only saved.
pub(crate) struct Made {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) planned: Vec<PlannedOutput>,
    pub(crate) returned: usize,
    /// The saved ones, in the order in which they were saved.
    pub(crate) saved: Arc<[SlotIndex]>,
}

impl Made {
    /// The same, holding the caller's tensors in the place of the buffers in which they are staged. Those are not needed any more:
    /// held up to the end of the capture they would be memory of the pool for as long as the recording exists, given back
    /// behind a launch that may still use it.
    pub(crate) fn without_buffers<D: Device>(
        mut self,
        args: &[Arg<'_, D>],
        request: &Request<'_, D>,
    ) -> Self {
        let planned = (0..).map(SlotIndex::new).zip(&self.planned);
        let staged: Vec<(SlotIndex, OutputClass)> = planned
            .filter(|(_, planned)| matches!(planned.class, OutputClass::StagedInput { .. }))
            .map(|(output, planned)| (output, planned.class))
            .collect();
        for (output, class) in staged {
            let own = Grove::source(&self, args, request, output, class);
            if let (Some(own), Some(tensor)) = (own, self.tensors.get_mut(output.get() as usize)) {
                *tensor = own;
            }
        }
        // A view of nothing holds what it is a view of, which nobody gets with it.
        for (planned, tensor) in self.planned.iter().zip(&mut self.tensors) {
            if planned.class == OutputClass::Empty
                && let Ok(empty) = Tensor::empty(tensor.layout().clone())
            {
                *tensor = empty;
            }
        }
        self
    }

    /// As hand-backs want them.
    pub(crate) fn recorded(&self) -> Vec<Option<Tensor>> {
        self.tensors.iter().cloned().map(Some).collect()
    }

    /// The tensors of outputs in memory that is no input's.
    pub(crate) fn constants(&self) -> Vec<(SlotIndex, Tensor)> {
        let outputs = (0..).map(SlotIndex::new).zip(&self.planned).zip(&self.tensors);
        let captured =
            outputs.filter(|((_, planned), _)| planned.class.meaning().hand_back == HandBack::Captured);
        captured.map(|((output, _), tensor)| (output, tensor.clone())).collect()
    }

    /// The outputs for the tree, which knows the call's `inputs` and takes parameters for memory that is nobody's.
    pub(crate) fn for_tree(&self, plan: &InputPlan, inputs: usize) -> Vec<Output> {
        let kind = |planned: &PlannedOutput| match planned.class {
            OutputClass::Fresh => OutputKind::Fresh,
            OutputClass::StagedInput { input, .. } if input.get() as usize >= inputs => {
                OutputKind::Persistent
            }
            OutputClass::EarlierSlot { input: Some(input), .. } | OutputClass::StagedInput { input, .. } => {
                OutputKind::AliasOfInput(graphgrove_tree::InputIndex::new(input.get()))
            }
            OutputClass::EarlierSlot { input: None, value } => {
                let is_it = |role: graphgrove_storage::InputRole| matches!(role, graphgrove_storage::InputRole::Managed { value: of, .. } if of == value);
                let input = plan.roles().find(|(_, role)| is_it(*role)).map_or(0, |(input, _)| input.get());
                OutputKind::AliasOfInput(graphgrove_tree::InputIndex::new(input))
            }
            OutputClass::Sibling(owner) => {
                OutputKind::AliasOfOutput(graphgrove_tree::SlotIndex::new(owner.get()))
            }
            OutputClass::Empty => OutputKind::Empty,
            OutputClass::NotTensor => OutputKind::NotTensor,
            _ => OutputKind::Persistent,
        };
        let is_saved = |planned: &PlannedOutput| matches!(planned.readers, Readers::Backward | Readers::Both);
        self.planned
            .iter()
            .map(|planned| Output { saved: is_saved(planned), ..Output::of(kind(planned)) })
            .collect()
    }

    /// Whether an output shares memory with anything.
    fn aliases(&self) -> bool {
        let is_own = |class: OutputClass| {
            matches!(class, OutputClass::Fresh | OutputClass::Empty | OutputClass::NotTensor)
        };
        !self.planned.iter().all(|planned| is_own(planned.class))
    }
}

/// What a body runs with.
pub(crate) struct Stage<'a, D: Device> {
    pub(crate) device: &'a D,
    pub(crate) recorder: Recorder<'a, D>,
    pub(crate) memory: Memory<'a, D>,
    pub(crate) values: &'a [Option<u64>],
    pub(crate) hosts: &'a [Option<&'a D::HostBuffer>],
}

/// What a body leaves.
pub(crate) struct Ran<'a, D: Device> {
    pub(crate) recorder: Recorder<'a, D>,
    pub(crate) returned: Vec<Tensor>,
    pub(crate) saves: Vec<Tensor>,
    pub(crate) recorded_draws: Box<[RecordedDraws]>,
    pub(crate) taken: Taken,
}

impl<D: Device> Grove<D> {
    /// Runs the function's body. The recorder is given back for its end.
    pub(crate) fn run_body<'a>(
        request: &Request<'a, D>,
        stage: Stage<'a, D>,
        effects: &'a mut Effects,
    ) -> Result<Ran<'a, D>> {
        let Stage { device, mut recorder, memory, values, hosts } = stage;
        Self::note_inputs(request, recorder.passed(), values.len(), effects)?;
        let inputs = std::mem::take(recorder.passed());
        let stream = recorder.stream().clone();
        let mut context = Context {
            function: &request.data.name,
            forks: Forks::new(request.kit, &stream, &memory),
            stream,
            recorder,
            memory,
            inputs,
            values,
            hosts,
            saved: request.saved,
            params: values.len(),
            saves: Vec::new(),
            kit: request.kit,
            device,
            draws: CallDraws::default(),
            effects,
        };
        let returned = (request.data.body)(&mut context)?;
        if context.forks.unjoined() > 0 {
            let function = request.data.name.to_string();
            return Err(Error::Unjoined { function, streams: context.forks.unjoined() });
        }
        let Context { recorder, mut memory, inputs, saves, draws, .. } = context;
        drop(inputs);
        let recorded_draws = draws.recorded();
        let taken = draws.end();
        memory.settle();
        Ok(Ran { recorder, returned, saves, recorded_draws, taken })
    }

    /// Says which inputs the function may write to. That a call gives an input up is not enough: it may be a copy that the function has,
    /// and what it returned of that would be the caller's own.
    fn note_inputs(
        request: &Request<'_, D>,
        passed: &[Option<Tensor>],
        params: usize,
        effects: &mut Effects,
    ) -> Result<()> {
        let options = &request.data.options;
        for (at, tensor) in passed.iter().enumerate() {
            let Some(tensor) = tensor.as_ref().filter(|tensor| !tensor.layout().is_empty()) else { continue };
            let (what, index, is_declared) = match at.checked_sub(request.saved) {
                None => ("saved tensor", at, false),
                Some(index) if at < params => ("input", index, options.mutates.contains(&index)),
                Some(_) => ("parameter", at - params, options.mutates_params),
            };
            let bytes = tensor.layout().span_bytes();
            effects.note_input(tensor.address()?, bytes, InputOf { what, index }, is_declared);
        }
        effects.has_all_inputs();
        Ok(())
    }

    /// Classes what the function has made.
    pub(crate) fn made(
        &self,
        plan: &InputPlan,
        seen: &[Seen],
        returned: Vec<Tensor>,
        saves: Vec<Tensor>,
        depth: usize,
    ) -> Result<Made> {
        let count = returned.len();
        let mut tensors = returned;
        let mut readers = vec![Readers::Caller; count];
        let mut saved = Vec::with_capacity(saves.len());
        for save in saves {
            let same = tensors.iter().position(|tensor| is_same(tensor, &save));
            let at = match same {
                Some(at) => {
                    if let Some(of) = readers.get_mut(at).filter(|of| **of == Readers::Caller) {
                        *of = Readers::Both;
                    }
                    at
                }
                None => {
                    tensors.push(save);
                    readers.push(Readers::Backward);
                    tensors.len() - 1
                }
            };
            saved.push(SlotIndex::new(at as u32));
        }
        let passed = seen.iter().map(|seen| seen.among(&tensors)).collect::<Result<Vec<_>>>()?;
        let specs: Vec<OutputSpec<'_>> = tensors
            .iter()
            .zip(&readers)
            .map(|(tensor, readers)| OutputSpec { tensor: Some(tensor), readers: *readers })
            .collect();
        let on_path = |value: graphgrove_storage::SlotValue| {
            self.replayer.place_of(value.slab).is_some_and(|place| (place as usize) < depth)
                || self.is_on_path(&value)
        };
        let planned = plan_outputs(plan, &passed, &specs, on_path)?;
        let made = Made { tensors, planned, returned: count, saved: saved.into() };
        Ok(made)
    }

    /// Whether the engine's layers can deal with what a function has made.
    pub(crate) fn allows(&self, made: &Made) -> bool {
        self.options.layers.contains(Layers::STORAGE_CACHE) || !made.aliases()
    }

    /// Refuses memory that a function has left in the pool and that is no output.
    pub(crate) fn refuse_survivors(
        request: &Request<'_, D>,
        session: &Session<D>,
        made: &Made,
    ) -> Result<()> {
        let mut bases: Vec<u64> =
            made.tensors.iter().filter_map(|tensor| Some(tensor.storage().base().ok()?.get())).collect();
        bases.sort_unstable();
        let mut survivors = session.survivors();
        survivors.retain(|holding| bases.binary_search(&holding.at.get()).is_err());
        let Some(first) = survivors.first() else { return Ok(()) };
        Err(Error::Survivors {
            function: request.data.name.to_string(),
            blocks: survivors.len(),
            bytes: survivors.iter().map(|holding| holding.bytes).sum(),
            first: format!("{} of {} bytes at {}", holding_label(first), first.bytes, first.at),
        })
    }

    /// The inputs that are no tensors.
    pub(crate) fn values(args: &[Arg<'_, D>]) -> Vec<Option<u64>> {
        let value = |arg: &Arg<'_, D>| match arg {
            Arg::Value(value) => Some(*value),
            _ => None,
        };
        args.iter().map(value).collect()
    }

    /// What an output in memory of others is made from, for a run that is no replay.
    pub(crate) fn source(
        made: &Made,
        args: &[Arg<'_, D>],
        request: &Request<'_, D>,
        output: SlotIndex,
        class: OutputClass,
    ) -> Option<Tensor> {
        let input = |input: InputIndex| {
            let at = input.get() as usize;
            match args.get(at) {
                Some(arg) => arg.tensor().cloned(),
                None => request.params?.tensors().get(at - args.len()).cloned(),
            }
        };
        match class {
            OutputClass::StagedInput { input: of, .. } => input(of),
            OutputClass::Persistent(graphgrove_storage::PersistentSource::Input(of)) => input(of),
            _ => made.tensors.get(output.get() as usize).cloned(),
        }
    }
}

fn holding_label(holding: &graphgrove_pool::pool::Holding) -> String {
    format!("`{}`", holding.label)
}

/// Whether two tensors are the same elements of the same storage.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    let at = |tensor: &Tensor| {
        tensor.as_input().ok().map(|passed| (passed.storage, passed.address, passed.signature))
    };
    at(a).is_some() && at(a) == at(b)
}
