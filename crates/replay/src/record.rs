//! Recording a function: capture with staging in front, copying back behind, and account of what lies between.

use graphgrove_device::{
    Args, CaptureGuard, CaptureMode, Device, DevicePtr, GatherRow, HostMemory, KernelHandle, LaunchDims,
    NodeId,
};
use graphgrove_storage::{InputIndex, Storage, Tensor};

use crate::journal::{Journal, Watched, in_place};
use crate::stage_plan::{Group, StagePlan, start};
use crate::staging::{CopyBack, Row, StagedGroup, Staging, Table, UploadSite};
use crate::{AsInput, Error, Input, Method, Route};

/// A function that is being recorded, or [rehearsed](Self::rehearse). Dropping it throws the capture away.
///
/// Work that goes by way of it ([`launch`](Self::launch), [`copy`](Self::copy), [`fill`](Self::fill)) is known in every detail, so
/// the addresses of patched inputs are found in it. Other work on the capturing stream is recorded just as well; then
/// nothing can be patched, and [`finish`](Self::finish) says so.
///
/// From a function to a node: plan the inputs and their staging, note what is dead, ask what to expect, record, plan the outputs, add
/// the node, run it. Here `child` adds an output of the path, which is used where it is, to an input from anywhere, twice.
///
/// ```
/// use std::cell::Cell;
/// use std::sync::Arc;
///
/// use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory, Streams};
/// use graphgrove_replay::{Call, Input, Method, NodeKey, Recorder, Recording, Replayed, Replayer, Route, StagePlan};
/// use graphgrove_sim::{SimDevice, SimStream, kernels};
/// use graphgrove_storage::{
///     InputPlan, InputSpec, Layout, Ledger, OutputSpec, Owner, Readers, SlotIndex, SlotValue, Step, Storage, Tensor, plan_outputs,
/// };
///
/// type Failure = Box<dyn std::error::Error>;
///
/// // Records `first + second`, then that plus `second`, below `parent`, and runs it once.
/// fn record(
///     replayer: &mut Replayer<SimDevice>,
///     stream: &SimStream,
///     parent: Option<NodeKey>,
///     first: &Tensor,
///     second: &Tensor,
/// ) -> Result<(Replayed, Vec<(SlotIndex, Owner)>), Failure> {
///     let device = Arc::clone(replayer.device());
///     let add = kernels::zip::<f32>(&device, "add", |a, b| a + b);
///     let inputs = [Input::kept(first), Input::kept(second)];
///     let call = Call::new(stream, Step::new(1), &inputs);
///
///     // What becomes of the inputs: outputs of the path stay where they are, all others are copied.
///     let on_path = |value: SlotValue| replayer.place_of(value.slab).is_some();
///     let plan = InputPlan::new(&[InputSpec::read(first), InputSpec::read(second)], 16, on_path)?;
///     let tensors = [Some(first), Some(second)];
///     let stage = StagePlan::new(&plan, &tensors, |_| Route::Copied)?;
///     let expected = replayer.expect(&plan, &call, &stage)?;
///     let length = parent.map_or(0, |_| replayer.path().len());
///     let before = replayer.dead(length);
///
///     // A pool of the simplest kind. Its memory is there before: a device gives out none while something is captured.
///     let (segment, used) = (Arc::new(device.allocate(1024)?), Cell::new(0));
///     let block = || {
///         let at = segment.base().checked_add(used.replace(used.get() + 256)).ok_or("the segment is too short")?;
///         Ok::<_, Failure>(Storage::pool_block(at, 256, Box::new(Arc::clone(&segment))))
///     };
///
///     // The function itself, with the inputs as they are passed on.
///     let mut recorder = Recorder::begin(&*device, stream, Method::Fast, stage, &tensors, |_| block())?;
///     let passed = std::mem::take(recorder.passed());
///     let [Some(a), Some(b)] = &passed[..] else { return Err("two inputs".into()) };
///     let new = || Ok::<_, Failure>(Tensor::new(block()?, Layout::of::<f32>(&[4])?, 0)?);
///     let (middle, sum) = (new()?, new()?);
///     for (from, to) in [(a, &middle), (&middle, &sum)] {
///         let args = Args::new().read(from.address()?).read(b.address()?).write(to.address()?).scalar(4_u32);
///         recorder.launch(stream, &add, LaunchDims::for_elements(4), &args)?;
///     }
///     let outputs = [&middle, &sum].map(|tensor| OutputSpec { tensor: Some(tensor), readers: Readers::Caller });
///     let outputs = plan_outputs(&plan, &passed, &outputs, on_path)?;
///     let captured = recorder.finish()?;
///
///     // Nothing was given up, so as much is dead behind the function as before it.
///     let recording = Recording::new("add twice", captured)
///         .below(parent)
///         .inputs(expected)
///         .dead(before.clone(), before)
///         .outputs(outputs);
///     let node = replayer.add(recording)?;
///     Ok(replayer.launch_recorded(node, &call, &[Some(middle), Some(sum)])?)
/// }
///
/// let device = Arc::new(SimDevice::new());
/// let stream = device.create_stream()?;
/// let ones = |device: &SimDevice| {
///     let segment = device.allocate(16)?;
///     device.write(segment.base(), &1_f32.to_le_bytes().repeat(4))?;
///     let storage = Storage::outside(segment.base(), 16, Box::new(segment));
///     Ok::<_, Failure>(Tensor::new(storage, Layout::of::<f32>(&[4])?, 0)?)
/// };
/// let (x, y) = (ones(&device)?, ones(&device)?);
/// let mut replayer = Replayer::new(Arc::clone(&device), Ledger::new());
/// let last = SlotIndex::new(1);
/// // What owns the blocks is kept for as long as the nodes: their execs write there.
/// let (mut root, _kept) = record(&mut replayer, &stream, None, &x, &y)?;
/// let three = root.outputs.take(last).ok_or("no output")?;
/// let (first_run, _kept_too) = record(&mut replayer, &stream, Some(root.node), &three, &x)?;
/// let child = first_run.node;
/// drop(first_run);
///
/// // From now on `child` is a launch, wherever its second input comes from.
/// let anywhere = ones(&device)?;
/// let inputs = [Input::kept(&three), Input::kept(&anywhere)];
/// let mut replayed = replayer.replay(child, &Call::new(&stream, Step::new(1), &inputs))?;
/// let five = replayed.outputs.take(last).ok_or("no output")?;
/// device.synchronize()?;
/// let mut bytes = [0; 4];
/// device.read(five.address()?, &mut bytes)?;
/// assert_eq!(f32::from_le_bytes(bytes), 5.0);
/// # Ok::<(), Failure>(())
/// ```
#[must_use = "dropping it throws the capture away"]
pub struct Recorder<'d, D: Device> {
    device: &'d D,
    stream: D::Stream,
    /// None where the function runs at once.
    capture: Option<CaptureGuard<'d, D>>,
    method: Method,
    plan: StagePlan,
    passed: Vec<Option<Tensor>>,
    /// Where each copied group is staged, with what keeps it if it has to be copied back.
    buffers: Vec<(DevicePtr, Option<Storage>)>,
    written: Vec<DevicePtr>,
    tables: Vec<Table>,
    /// The copies back, once they are captured.
    backs: Option<Vec<CopyBack>>,
    journal: Journal,
    hosts: Vec<(u32, D::HostBuffer)>,
    uploads: Vec<UploadSite>,
}

/// In how many pieces of work the address of each staged input stood; what a choice between copying and patching needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(Vec<(InputIndex, Option<usize>)>);

impl Uses {
    /// How many they are; none if the input cannot be patched as far as is known. Inputs that share memory are counted together,
    /// for the first of them.
    #[must_use]
    pub fn nodes(&self, input: InputIndex) -> Option<usize> {
        self.0.iter().find(|(of, _)| *of == input).and_then(|(_, count)| *count)
    }
}

/// A captured function, ready to become a node.
pub struct Captured<D: Device> {
    pub(crate) exec: D::Exec,
    pub(crate) staging: Staging<D>,
    pub(crate) method: Method,
    pub(crate) routes: Vec<Option<Route>>,
    pub(crate) graph_nodes: Option<usize>,
}

impl<D: Device> Captured<D> {
    /// A graph that was captured elsewhere, of a function of which nothing is staged.
    #[must_use]
    pub fn from_exec(exec: D::Exec, method: Method) -> Self {
        Self { exec, staging: Staging::none(0), method, routes: Vec::new(), graph_nodes: None }
    }

    /// The bytes of device memory that the driver holds for it; none where the device cannot tell.
    #[must_use]
    pub fn exec_bytes(&self, device: &D) -> Option<u64> {
        device.exec_bytes(&self.exec)
    }
}

impl<'d, D: Device> Recorder<'d, D> {
    /// Begins the capture and stages the inputs.
    ///
    /// `inputs` are the inputs for which `plan` was made. `allocate` is asked for the [buffers](StagePlan::buffers) of what is copied
    /// once the capture is open, so that a pool sees them as memory of the recording; it has to have the memory by then, since a device
    /// allocates none while something is captured. With [`Method::Reference`] nothing of the
    /// staging becomes part of the graph, and the buffers are asked for before.
    ///
    /// # Errors
    /// [`Error::InputCount`], [`Error::StagingBuffer`], [`Error::Storage`] for a stale input, [`Error::Device`]. No capture is open
    /// then.
    pub fn begin<E: From<Error>>(
        device: &'d D,
        stream: &D::Stream,
        method: Method,
        plan: StagePlan,
        inputs: &[Option<&Tensor>],
        allocate: impl FnMut(u64) -> Result<Storage, E>,
    ) -> Result<Self, E> {
        Self::enter(device, stream, method, plan, inputs, allocate, true)
    }

    /// Runs a function at once, as in a warm-up, with its inputs staged as a recording would stage them.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); copies that were enqueued before are for nothing then.
    pub fn rehearse<E: From<Error>>(
        device: &'d D,
        stream: &D::Stream,
        plan: StagePlan,
        inputs: &[Option<&Tensor>],
        allocate: impl FnMut(u64) -> Result<Storage, E>,
    ) -> Result<Self, E> {
        Self::enter(device, stream, Method::Fast, plan, inputs, allocate, false)
    }

    fn enter<E: From<Error>>(
        device: &'d D,
        stream: &D::Stream,
        method: Method,
        plan: StagePlan,
        inputs: &[Option<&Tensor>],
        mut allocate: impl FnMut(u64) -> Result<Storage, E>,
        captures: bool,
    ) -> Result<Self, E> {
        if plan.inputs != inputs.len() {
            return Err(Error::InputCount { planned: plan.inputs, given: inputs.len() }.into());
        }
        let mut passed: Vec<Option<Tensor>> = inputs.iter().map(|tensor| tensor.cloned()).collect();
        let mut written = vec![DevicePtr::NULL; inputs.len()];
        let mut watched = Vec::new();
        for group in &plan.groups {
            for member in &group.members {
                let at = member.input as usize;
                if let (Some(written), Some(tensor)) =
                    (written.get_mut(at), inputs.get(at).copied().flatten())
                {
                    *written = tensor.address().map_err(Error::from)?;
                }
            }
            if group.route == Route::Patched {
                let start = start(group, inputs)?;
                watched.push(Watched { input: group.leader(), start, bytes: group.span });
                wrap(group, &mut passed)?;
            }
        }
        let in_place = in_place(inputs, |input| plan.route(input).is_some())?;
        // The graph writes to the buffers itself, so it has to hold what a pool tells a checking device of them; with the
        // reference path the replays do, outside of it.
        let placed = match method {
            Method::Fast => None,
            Method::Reference => Some(place(&plan, inputs, &mut allocate, &mut passed)?),
        };
        let capture = captures.then(|| CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal));
        let capture = capture.transpose().map_err(Error::from)?;
        let buffers = match placed {
            Some(placed) => placed,
            None => place(&plan, inputs, allocate, &mut passed)?,
        };
        if !captures {
            let copied = plan.copied().zip(&buffers).map(|(group, (buffer, _))| Watched {
                input: group.leader(),
                start: further(*buffer, group.lead),
                bytes: group.span,
            });
            watched.extend(copied);
        }
        let mut recorder = Self {
            device,
            stream: stream.clone(),
            capture,
            method,
            plan,
            passed,
            buffers,
            written,
            tables: Vec::new(),
            backs: None,
            journal: Journal::new(watched, in_place),
            hosts: Vec::new(),
            uploads: Vec::new(),
        };
        recorder.copy_in()?;
        Ok(recorder)
    }

    /// The inputs as the function has to use them: what is copied is where it is copied to. Taking them out and dropping them
    /// gives their memory up inside the recording.
    pub fn passed(&mut self) -> &mut Vec<Option<Tensor>> {
        &mut self.passed
    }

    /// The stream that captures.
    #[must_use]
    pub fn stream(&self) -> &D::Stream {
        &self.stream
    }

    /// Records a kernel, on this stream or on one that has joined the capture.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn launch(
        &mut self,
        stream: &D::Stream,
        kernel: &D::Kernel,
        dims: LaunchDims,
        args: &Args,
    ) -> Result<Option<NodeId>, Error> {
        let node = self.device.launch(stream, kernel, dims, args)?;
        self.journal.kernel(node, kernel.name(), args);
        Ok(node)
    }

    /// Records a copy within the device.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn copy(
        &mut self,
        stream: &D::Stream,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
    ) -> Result<Option<NodeId>, Error> {
        let node = self.device.copy(stream, to, from, bytes)?;
        self.journal.copy(node, to, from);
        Ok(node)
    }

    /// Records a fill.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn fill(
        &mut self,
        stream: &D::Stream,
        to: DevicePtr,
        value: u8,
        bytes: u64,
    ) -> Result<Option<NodeId>, Error> {
        let node = self.device.fill(stream, to, value, bytes)?;
        self.journal.fill(to);
        Ok(node)
    }

    /// Lets other code enqueue work on the stream by itself, such as a library with calls of its own. Where inputs go in that is not
    /// known, so that none is patched: [`rehearsed`](Self::rehearsed) says so, and [`finish`](Self::finish) refuses a plan that patches.
    pub fn foreign<T>(&mut self, enqueue: impl FnOnce(&D::Stream) -> T) -> T {
        self.journal.foreign();
        enqueue(&self.stream)
    }

    /// Says which of the call's inputs are host memory, so that [`upload`](Self::upload) knows them.
    pub fn host_inputs<I: AsInput<D>>(&mut self, inputs: &[I]) {
        let hosts = (0..).zip(inputs).filter_map(|(input, given)| match given.as_input() {
            Input::Host(buffer) => Some((input, buffer.clone())),
            Input::Tensor { .. } | Input::Value(_) => None,
        });
        self.hosts = hosts.collect();
    }

    /// Records a copy from host memory. Each replay copies what is there when the work runs: of an input, from the memory that its
    /// call brings; of any other, from this memory, which the recording keeps (huggingface/candle#3352).
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn upload(
        &mut self,
        stream: &D::Stream,
        to: DevicePtr,
        from: &D::HostBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<NodeId>, Error> {
        let node = self.device.upload(stream, to, from, offset, bytes)?;
        let input = self.hosts.iter().find(|(_, buffer)| buffer.is_same(from)).map(|(input, _)| *input);
        if let (Some(node), Some(input)) = (node, input) {
            self.uploads.push(UploadSite { node, input, to, offset });
        }
        // The destination cannot be patched, as that of a fill.
        self.journal.fill(to);
        Ok(node)
    }

    /// Captures the copies that bring written inputs back, and lets go of the buffers that were kept for them. What the function
    /// enqueues after that is not brought back.
    ///
    /// [`finish`](Self::finish) does it if it was not done. Whoever has the buffers from a pool does it before, and lets the
    /// pool take note of them while the capture is open: a replay writes to them again. With [`Method::Reference`] it does
    /// nothing, since each replay copies behind the graph.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn bring_back(&mut self) -> Result<(), Error> {
        if self.backs.is_none() && self.method == Method::Fast {
            self.backs = Some(self.copy_back()?);
            for (_, kept) in &mut self.buffers {
                *kept = None;
            }
        }
        Ok(())
    }

    /// Ends the capture behind the copies that bring written inputs back, and makes it ready to launch. Nothing has run yet.
    ///
    /// # Errors
    /// [`Error::Device`] for a capture that failed or a graph that owns memory; [`Error::Unpatchable`] for an input that should
    /// be patched and of which not every use is known. The capture is over then and nothing is left of it.
    pub fn finish(mut self) -> Result<Captured<D>, Error> {
        self.bring_back()?;
        // The reference path brings back by itself behind each launch, and is told what.
        let backs = self.backs.take().map_or_else(|| self.copy_back(), Ok)?;
        let Some(capture) = self.capture.take() else { return Err(Error::NotCapturing) };
        let graph = capture.end()?;
        let audit = self.device.audit(&graph)?;
        audit.refuse_memory_nodes()?;
        let sites = self.journal.sites(audit.nodes)?;
        let exec = self.device.instantiate(&graph)?;
        let mut routes = vec![None; self.plan.inputs];
        for (input, route) in self.plan.routes() {
            if let Some(slot) = routes.get_mut(input.get() as usize) {
                *slot = Some(route);
            }
        }
        let alignment = self.plan.alignment;
        let groups = self.plan.groups.iter().map(|group| staged_group(group, alignment, &self.written));
        let staging = Staging::new(self.written.clone(), groups.collect(), self.tables, backs, sites)
            .with_hosts(self.hosts, self.uploads);
        Ok(Captured { exec, staging, method: self.method, routes, graph_nodes: Some(audit.nodes) })
    }

    /// Ends a [rehearsal](Self::rehearse): written inputs are copied back, and what it has shown of the inputs' uses is returned.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn rehearsed(mut self) -> Result<Uses, Error> {
        self.bring_back()?;
        let is_known = self.journal.obstacle().is_none();
        let counts = self.journal.counts().map(|(input, count)| (input, is_known.then_some(count)));
        Ok(Uses(counts.collect()))
    }

    /// Captures the gather nodes, or lists the copies that each call makes by itself.
    fn copy_in(&mut self) -> Result<(), Error> {
        let mut rows = Vec::new();
        for (group, (buffer, _)) in self.plan.copied().zip(&self.buffers) {
            let from = self.written.get(group.leader() as usize).copied().unwrap_or(DevicePtr::NULL);
            for run in &group.runs {
                let to = GatherRow { to: further(*buffer, group.lead + run.at), bytes: run.bytes };
                rows.push((Row { input: group.leader(), offset: run.at }, to, further(from, run.at)));
            }
        }
        for part in rows.chunks(self.device.gather_rows().max(1)) {
            let to: Box<[GatherRow]> = part.iter().map(|(_, to, _)| *to).collect();
            let sources: Box<[DevicePtr]> = part.iter().map(|(_, _, from)| *from).collect();
            let node = match self.method {
                Method::Fast => {
                    self.journal.other();
                    self.device.gather(&self.stream, &to, &sources)?
                }
                Method::Reference => None,
            };
            self.tables.push(Table { node, rows: part.iter().map(|(row, ..)| *row).collect(), to, sources });
        }
        Ok(())
    }

    fn copy_back(&mut self) -> Result<Vec<CopyBack>, Error> {
        let mut backs = Vec::new();
        for (group, (buffer, _)) in self.plan.copied().zip(&self.buffers) {
            let start = self.written.get(group.leader() as usize).copied().unwrap_or(DevicePtr::NULL);
            for run in &group.back {
                let (from, to) = (further(*buffer, group.lead + run.at), further(start, run.at));
                let node = match self.method {
                    Method::Fast => {
                        self.journal.other();
                        self.device.copy(&self.stream, to, from, run.bytes)?
                    }
                    Method::Reference => None,
                };
                let row = Row { input: group.leader(), offset: run.at };
                backs.push(CopyBack { node, row, from, bytes: run.bytes, to });
            }
        }
        Ok(backs)
    }
}

/// Moves copied inputs to their buffers, as the function is to see them.
fn place<E: From<Error>>(
    plan: &StagePlan,
    inputs: &[Option<&Tensor>],
    mut allocate: impl FnMut(u64) -> Result<Storage, E>,
    passed: &mut [Option<Tensor>],
) -> Result<Vec<(DevicePtr, Option<Storage>)>, E> {
    let mut placed = Vec::new();
    for (number, group) in plan.copied().enumerate() {
        let needed = group.buffer_bytes();
        let buffer = allocate(needed)?;
        let given = buffer.bytes().map_err(Error::from)?;
        if given < needed {
            return Err(Error::StagingBuffer { group: number, needed, given }.into());
        }
        for member in &group.members {
            let at = member.input as usize;
            if let (Some(slot), Some(tensor)) = (passed.get_mut(at), inputs.get(at).copied().flatten()) {
                let moved = Tensor::new(buffer.clone(), tensor.layout().clone(), group.lead + member.shift);
                *slot = Some(moved.map_err(Error::from)?);
            }
        }
        // What is copied back at the end has to be there until then, even if the function drops it.
        placed.push((buffer.base().map_err(Error::from)?, (!group.back.is_empty()).then_some(buffer)));
    }
    Ok(placed)
}

/// Gives patched inputs an identity of their own, so that what the function returns of them is told from what it has of the
/// same memory by other ways: the former moves with the input, and the latter does not.
fn wrap(group: &Group, passed: &mut [Option<Tensor>]) -> Result<(), Error> {
    let mut wrapped: Vec<(Storage, Storage)> = Vec::new();
    for member in &group.members {
        let Some(Some(tensor)) = passed.get_mut(member.input as usize) else { continue };
        let old = tensor.storage().clone();
        let mut known = None;
        for (of, wrapper) in &wrapped {
            if of.is_same(&old)? {
                known = Some(wrapper.clone());
            }
        }
        let wrapper = match known {
            Some(wrapper) => wrapper,
            None => Storage::outside(old.base()?, old.bytes()?, Box::new(old.clone())),
        };
        *tensor = Tensor::new(wrapper.clone(), tensor.layout().clone(), tensor.offset_bytes())?;
        wrapped.push((old, wrapper));
    }
    Ok(())
}

fn staged_group(group: &Group, alignment: u64, written: &[DevicePtr]) -> StagedGroup {
    let start = written.get(group.leader() as usize).map_or(0, |at| at.get());
    StagedGroup {
        members: group.members.clone(),
        span: group.span,
        alignment: (group.route == Route::Patched && alignment > 1).then(|| (start % alignment, alignment)),
        mutated: group.mutated,
    }
}

fn further(from: DevicePtr, bytes: u64) -> DevicePtr {
    from.checked_add(bytes).unwrap_or(DevicePtr::NULL)
}
