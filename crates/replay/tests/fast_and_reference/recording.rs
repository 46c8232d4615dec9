//! Recording a function in a world, with its memory from the world's pool.

use std::sync::Arc;

use graphgrove_device::{Args, LaunchDims};
use graphgrove_pool::pool::{Block, Owner as For, Request, Session};
use graphgrove_replay::{
    Call, Error, Input, Method, NodeKey, Recorder, Recording, Replayed, Route, StagePlan, Staged,
};
use graphgrove_sim::{SimDevice, SimKernel, SimStream};
use graphgrove_storage::{
    InputIndex, InputPlan, InputRole, InputSpec, Layout, OutputClass, OutputSpec, Owner, PersistentSource,
    PlannedOutput, Readers, SlotIndex, SlotValue, Storage, StorageId, Tensor, plan_outputs,
};

use crate::function::{Do, Resolved, Return};
use crate::world::{Arg, Asked, NodeMemory, Way, World, cut};

/// What inputs in place have to be aligned to, in bytes.
const ALIGNMENT: u64 = 16;

#[derive(Clone)]
pub(crate) struct Kernels {
    sum: SimKernel,
    bump: SimKernel,
}

impl Kernels {
    pub(crate) fn new(device: &SimDevice) -> Self {
        let sum = device.kernel("sum", |scope| {
            let number = |at| scope.scalar::<u32>(at).map(|number| number as usize);
            let (n, a, b, more) = (number(3)?, number(4)?, number(5)?, scope.scalar::<i32>(6)?);
            let to = scope.write::<i32>(2, n)?;
            for i in 0..n {
                let a = scope.read_at::<i32>(0, i * a, 1)?.get(0);
                let b = scope.read_at::<i32>(1, i * b, 1)?.get(0);
                to.set(i, a.wrapping_add(b).wrapping_add(more));
            }
            Ok(())
        });
        let bump = device.kernel("bump", |scope| {
            let (n, stride) = (scope.scalar::<u32>(1)? as usize, scope.scalar::<u32>(2)? as usize);
            let by = scope.scalar::<i32>(3)?;
            for i in 0..n {
                let old = scope.read_at::<i32>(0, i * stride, 1)?.get(0);
                scope.write_at::<i32>(0, i * stride, 1)?.set(0, old.wrapping_add(by));
            }
            Ok(())
        });
        Self { sum, bump }
    }
}

/// A function while it is captured.
struct Body<'a> {
    recorder: Recorder<'a, SimDevice>,
    session: &'a Session<SimDevice>,
    stream: SimStream,
    kernels: Kernels,
    regs: Vec<Option<Tensor>>,
}

/// Memory that the pool has no room for is not what these programs are about.
fn block(session: &Session<SimDevice>, bytes: u64, purpose: For) -> Storage {
    let block = session.allocate(Request::bytes(bytes).owner(purpose)).unwrap();
    Storage::pool_block(block.ptr(), bytes, Box::new(block))
}

impl Body<'_> {
    fn fresh(&self, elements: u64) -> Result<Tensor, Error> {
        let storage = block(self.session, 4 * elements, For::Output);
        Ok(Tensor::new(storage, Layout::of::<i32>(&[elements])?, 0)?)
    }

    fn sum(&mut self, a: &Tensor, b: &Tensor, more: i32) -> Result<Tensor, Error> {
        let count = a.layout().elements().min(b.layout().elements());
        let out = self.fresh(count)?;
        let args = Args::new()
            .read(a.address()?)
            .read(b.address()?)
            .write(out.address()?)
            .scalar(count as u32)
            .scalar(a.strides()[0] as u32)
            .scalar(b.strides()[0] as u32)
            .scalar(more);
        self.recorder.launch(&self.stream, &self.kernels.sum, LaunchDims::ONE, &args)?;
        Ok(out)
    }

    fn run(&mut self, function: &Resolved, values: i32) -> Result<(), Error> {
        for step in &function.steps {
            match *step {
                Do::Sum { a, b, more } => {
                    let (a, b) = (self.reg(a), self.reg(b));
                    let sum = self.sum(&a, &b, more.wrapping_add(values))?;
                    self.regs.push(Some(sum));
                }
                Do::Bump { to, by } => {
                    let to = self.reg(to);
                    let args = Args::new()
                        .read_write(to.address()?)
                        .scalar(to.layout().elements() as u32)
                        .scalar(to.strides()[0] as u32)
                        .scalar(by);
                    self.recorder.launch(&self.stream, &self.kernels.bump, LaunchDims::ONE, &args)?;
                }
                Do::View { of, cut: by } => {
                    let view = cut(&self.reg(of), by)?;
                    self.regs.push(Some(view));
                }
                Do::Drop { reg } => self.regs[reg] = None,
                Do::Copy { of } => {
                    let from = self.reg(of);
                    let to = self.fresh(from.layout().elements())?;
                    let bytes = to.layout().span_bytes();
                    if from.is_contiguous() {
                        self.recorder.copy(&self.stream, to.address()?, from.address()?, bytes)?;
                        self.regs.push(Some(to));
                    } else {
                        // Twice the elements less once themselves: a copy by the kernel that there is.
                        self.recorder.fill(&self.stream, to.address()?, 0, bytes)?;
                        let same = self.sum(&from, &to, 0)?;
                        self.regs.push(Some(same));
                    }
                }
            }
        }
        Ok(())
    }

    fn reg(&self, reg: usize) -> Tensor {
        self.regs[reg].clone().unwrap()
    }
}

/// An output of the function: what it returned, and who reads it.
type Out = (Option<Tensor>, Readers);

impl World {
    pub(crate) fn record(
        &mut self,
        asked: &Asked<'_>,
        parent: Option<NodeKey>,
        args: &mut [Arg<'_>],
    ) -> Result<(NodeKey, Replayed), Error> {
        self.replayer.cut_path(asked.place);
        self.restore().unwrap();
        let device = Arc::clone(&self.device);
        let Self { replayer, params, .. } = &*self;
        let params: &[Tensor] = if asked.function.has_params { params.tensors() } else { &[] };
        let all: Vec<Option<&Tensor>> = args.iter().map(Arg::tensor).chain(params.iter().map(Some)).collect();
        let on_path = |value: SlotValue| replayer.place_of(value.slab).is_some();
        let plan = InputPlan::new(&specs(args, &all, &asked.resolved.mutated), ALIGNMENT, on_path)?;
        let stage = StagePlan::new(&plan, &all, |staged| route(asked, &all, staged))?;
        let before = replayer.dead(usize::MAX);
        let expected = {
            let inputs: Vec<Input<'_, SimDevice>> = args.iter().map(Arg::input).collect();
            let given = asked.function.has_params.then_some(&self.params);
            let call = Call { params: given, ..Call::new(&self.home, asked.step, &inputs) };
            replayer.expect(&plan, &call, &stage)?
        };
        let method = match self.way {
            Way::Replays(method) => method,
            Way::RecordsAlways => Method::Fast,
        };

        let session = self.pool.recording(&self.home, None).unwrap();
        let allocate = |bytes| Ok::<_, Error>(block(&session, bytes, For::Staging));
        let mut recorder = Recorder::begin(&*device, &self.home, method, stage, &all, allocate)?;
        let mut passed = std::mem::take(recorder.passed());
        let ids: Vec<Option<StorageId>> = passed
            .iter()
            .map(|tensor| tensor.as_ref().and_then(|tensor| tensor.storage().id().unwrap()))
            .collect();
        let layouts: Vec<Option<Layout>> =
            all.iter().map(|tensor| tensor.map(|tensor| tensor.layout().clone())).collect();
        let offsets: Vec<u64> =
            passed.iter().map(|tensor| tensor.as_ref().map_or(0, Tensor::offset_bytes)).collect();
        drop(all);
        // What the function is given up lies with the function alone from here on.
        for (input, arg) in (0..).map(InputIndex::new).zip(args.iter_mut()) {
            let is_managed = matches!(plan.role(input), Some(InputRole::Managed { .. }));
            if is_managed && let Arg::GivenUp(tensor) = arg {
                *tensor = stand_in(tensor.layout());
            }
        }
        let values = args.iter().map(|arg| if let Arg::Value(value) = arg { *value as i32 } else { 0 }).sum();
        let regs = passed.iter_mut().filter(|tensor| tensor.is_some()).map(Option::take).collect();
        let (stream, kernels) = (self.home.clone(), self.kernels.clone());
        let (mut recorder, outs) = {
            let mut body = Body { recorder, session: &session, stream, kernels, regs };
            body.run(asked.resolved, values)?;
            let outs: Vec<Out> = asked.resolved.rets.iter().map(|ret| self.returned(&body, ret)).collect();
            let Body { recorder, .. } = body;
            (recorder, outs)
        };
        // The planner is told what each input was, if an output still has its memory.
        for (at, id) in ids.iter().enumerate().filter(|(_, id)| id.is_some()) {
            let has_it = |out: &&Tensor| out.storage().id().unwrap() == *id;
            let out = outs.iter().filter_map(|(tensor, _)| tensor.as_ref()).find(has_it);
            passed[at] = out
                .zip(layouts[at].clone())
                .map(|(out, layout)| Tensor::new(out.storage().clone(), layout, offsets[at]).unwrap());
        }
        let outputs = plan_outputs(&plan, &passed, &outs.iter().map(spec).collect::<Vec<_>>(), on_path)?;
        drop(passed);
        let constants = constants(&outputs, &outs);
        // What the function returned of its inputs would keep the staging buffers beyond the recording.
        let recorded: Vec<Option<Tensor>> = outs
            .into_iter()
            .zip(&outputs)
            .map(|((tensor, _), planned)| {
                tensor.filter(|_| !matches!(planned.class, OutputClass::StagedInput { .. }))
            })
            .collect();
        recorder.bring_back()?;
        session.settle();
        let captured = recorder.finish()?;
        let finished = session.finish_keeping(Vec::new()).unwrap();

        let inputs: Vec<Input<'_, SimDevice>> = args.iter().map(Arg::input).collect();
        let stream = self.stream(asked.aside).clone();
        let given = asked.function.has_params.then_some(&self.params);
        let call = Call { params: given, ..Call::new(&stream, asked.step, &inputs) };
        let in_place =
            |at: &usize| !matches!(plan.role(InputIndex::new(*at as u32)), Some(InputRole::Staged(_)));
        let recording = Recording::new(format!("f{}", asked.number), captured)
            .below(parent)
            .inputs(expected)
            .params(given)
            .dead(before, self.replayer.dead(usize::MAX))
            .mutates_in_place(asked.resolved.mutated.iter().any(in_place))
            .constants(constants)
            .outputs(outputs);
        let node = self.replayer.add(recording)?;
        let (replayed, owners) = self.replayer.launch_recorded(node, &call, &recorded)?;
        let blocks = owners.into_iter().map(|(slot, owner)| (slot, name(owner))).collect();
        self.memory.insert(node, NodeMemory { checkpoint: finished.checkpoint, blocks });
        Ok((node, replayed))
    }

    fn returned(&self, body: &Body<'_>, ret: &Return) -> Out {
        match *ret {
            Return::Reg(reg, readers) => (body.regs[reg].clone(), readers),
            Return::Empty => {
                (Some(Tensor::empty(Layout::of::<i32>(&[0]).unwrap()).unwrap()), Readers::Caller)
            }
            Return::NotTensor => (None, Readers::Caller),
            Return::Constant => (Some(self.constant.clone()), Readers::Caller),
        }
    }
}

fn specs<'a>(args: &[Arg<'_>], all: &[Option<&'a Tensor>], mutated: &[usize]) -> Vec<InputSpec<'a>> {
    let spec = |(at, tensor): (usize, &Option<&'a Tensor>)| InputSpec {
        tensor: *tensor,
        parameter: at >= args.len(),
        moved: matches!(args.get(at), Some(Arg::GivenUp(_))),
        mutated: mutated.contains(&at),
    };
    all.iter().enumerate().map(spec).collect()
}

/// The function's way, save for inputs in the memory of others, whose uses cannot be told apart.
fn route(asked: &Asked<'_>, all: &[Option<&Tensor>], staged: Staged<'_>) -> Route {
    let others = (0..).map(InputIndex::new).zip(all).filter(|(input, _)| !staged.inputs.contains(input));
    let others: Vec<&Tensor> = others.filter_map(|(_, tensor)| *tensor).collect();
    let is_shared = |input: &InputIndex| {
        let tensor = all[input.get() as usize].unwrap();
        others.iter().any(|other| other.shares_storage(tensor).unwrap())
    };
    if staged.inputs.iter().any(is_shared) { Route::Copied } else { asked.function.route }
}

/// What a call names in place of a tensor that is gone.
fn stand_in(layout: &Layout) -> Tensor {
    let storage = Storage::unowned(graphgrove_device::DevicePtr::new(ALIGNMENT), layout.span_bytes());
    Tensor::new(storage, layout.clone(), 0).unwrap()
}

fn spec(out: &Out) -> OutputSpec<'_> {
    OutputSpec { tensor: out.0.as_ref(), readers: out.1 }
}

fn constants(outputs: &[PlannedOutput], outs: &[Out]) -> Vec<(SlotIndex, Tensor)> {
    let captured = OutputClass::Persistent(PersistentSource::Captured);
    let outs = (0..).map(SlotIndex::new).zip(outputs.iter().zip(outs));
    outs.filter(|(_, (planned, _))| planned.class == captured)
        .filter_map(|(slot, (_, out))| Some((slot, out.0.clone()?)))
        .collect()
}

/// The name of the block behind an output, which is given back by that name.
fn name(owner: Owner) -> graphgrove_pool::ranges::BlockId {
    owner.downcast::<Block<SimDevice>>().unwrap().into_id()
}
