//! A miniature engine over the storage layer, and a model that knows by other means what must come out.
//!
//! The engine records functions in a tree, replays what fits, and lets blocks be used again when their slots are dead, as
//! the layers above do. The model keeps, for each handle that exists, where its value came from and what it is. After each
//! operation [`Mini::check`] compares the two.

use graphgrove_device::{Annotation, DevicePtr, Memory, Streams, Work};
use graphgrove_storage::{
    DType, DeadMasks, Error, InputIndex, InputPlan, InputRole, InputSpec, Layout, Ledger, OldOutput,
    OutputClass, OutputSpec, Outputs, Owner, Readers, SavedOutputs, Slab, SlotValue, Storage, StorageCache,
    Tensor, live_storages, plan_outputs,
};
use std::sync::Arc;

mod compare;

use crate::rig::{BLOCK, Census, Rig, began, slot, step};

/// How one output of a function comes about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    Fresh,
    Saved,
    SavedToo,
    /// The second half of an earlier output, counted back from this one.
    Sibling(usize),
    /// The second half of the input.
    OfInput,
    OfWeight,
    Empty,
    NotTensor,
}

/// Where a handle's value came from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    /// A slot of a node in one run.
    Slot {
        node: usize,
        slot: u32,
        epoch: u64,
    },
    /// Memory that has nothing to do with the engine.
    Outside,
    Empty,
}

/// What must come out of reading a handle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Here,
    Moved,
    Stale,
}

#[derive(Clone)]
struct Known {
    origin: Origin,
    fate: Fate,
    /// The value that was written to the whole storage, and how far into it this handle begins.
    value: u8,
    offset: u64,
    bytes: u64,
}

struct Node {
    parent: Option<usize>,
    function: usize,
    slab: Slab,
    inputs: InputPlan,
    moved: bool,
    staging: Option<DevicePtr>,
    masks: DeadMasks,
}

pub(crate) struct Mini {
    rig: Rig,
    ledger: Arc<Ledger>,
    pool: Vec<DevicePtr>,
    census: Census,
    functions: Vec<Vec<Out>>,
    nodes: Vec<Node>,
    path: Vec<usize>,
    weight: (Tensor, Known),
    now: u64,
    values: u8,
    pub(crate) replays: usize,
    tensors: Vec<(Tensor, Known)>,
    waiting: Vec<(Outputs, Vec<(u32, Known)>)>,
    tokens: Vec<(SavedOutputs, Vec<(u32, Known)>)>,
}

const LENGTH: u64 = 64;

/// What a storage holds: each byte is different from its neighbours, so that a wrong offset shows.
fn pattern(value: u8, offset: u64, bytes: u64) -> Vec<u8> {
    (offset..offset + bytes).map(|at| value.wrapping_mul(31).wrapping_add(at as u8)).collect()
}

fn bytes_of(count: u64) -> Layout {
    Layout::contiguous(DType::U8, &[count]).unwrap()
}

impl Mini {
    pub(crate) fn new(functions: Vec<Vec<Out>>) -> Self {
        let mut rig = Rig::new();
        let pool: Vec<_> = (0..64).map(|_| rig.block()).collect();
        let at = rig.block();
        let weight = Tensor::new(Storage::unowned(at, BLOCK), bytes_of(LENGTH), 0).unwrap();
        let known = Known { origin: Origin::Outside, fate: Fate::Here, value: 201, offset: 0, bytes: LENGTH };
        rig.device.synchronize().unwrap();
        rig.device.write(at, &pattern(201, 0, BLOCK)).unwrap();
        Self {
            ledger: Ledger::keeping(rig.keeper()),
            rig,
            pool,
            census: Census::default(),
            functions,
            nodes: Vec::new(),
            path: Vec::new(),
            weight: (weight, known),
            now: 1,
            values: 0,
            replays: 0,
            tensors: Vec::new(),
            waiting: Vec::new(),
            tokens: Vec::new(),
        }
    }

    fn slabs(&self) -> Vec<&Slab> {
        self.path.iter().map(|&node| &self.nodes[node].slab).collect()
    }

    fn on_path(&self, value: SlotValue) -> bool {
        self.path.iter().any(|&node| self.nodes[node].slab.id() == value.slab)
    }

    fn write(&self, at: DevicePtr, value: u8) {
        self.rig.device.synchronize().unwrap();
        self.rig.device.write(at, &pattern(value, 0, BLOCK)).unwrap();
    }

    /// A tensor of the caller's own.
    pub(crate) fn add_outside(&mut self) {
        let at = self.rig.block();
        self.values += 1;
        self.write(at, self.values);
        let tensor =
            Tensor::new(Storage::outside(at, BLOCK, self.census.owner()), bytes_of(LENGTH), 0).unwrap();
        let known =
            Known { origin: Origin::Outside, fate: Fate::Here, value: self.values, offset: 0, bytes: LENGTH };
        self.tensors.push((tensor, known));
    }

    pub(crate) fn drop_tensor(&mut self, pick: usize) {
        if !self.tensors.is_empty() {
            self.tensors.swap_remove(pick % self.tensors.len());
        }
    }

    pub(crate) fn clone_tensor(&mut self, pick: usize) {
        if !self.tensors.is_empty() {
            self.tensors.push(self.tensors[pick % self.tensors.len()].clone());
        }
    }

    pub(crate) fn view(&mut self, pick: usize, start: u64) {
        if self.tensors.is_empty() {
            return;
        }
        let (tensor, known) = &self.tensors[pick % self.tensors.len()];
        let start = start.min(known.bytes);
        let made = tensor.slice(0, start..known.bytes, 1);
        if known.fate == Fate::Stale {
            assert!(matches!(made, Err(Error::Stale(_))));
            return;
        }
        let known = Known { offset: known.offset + start, bytes: known.bytes - start, ..known.clone() };
        self.tensors.push((made.unwrap(), known));
    }

    /// Two threads clone and drop the first and the second half of the handles at once; some do not come back.
    pub(crate) fn on_threads(&mut self, keep: usize) {
        let all = std::mem::take(&mut self.tensors);
        let shared = all.clone();
        let (even, odd): (Vec<_>, Vec<_>) = (0..).zip(all).partition(|(at, _)| at % 2 == 0);
        let work = |part: Vec<(usize, (Tensor, Known))>| {
            let mut kept = Vec::new();
            for (at, entry) in part {
                let again = entry.clone();
                drop(entry);
                if at % 3 != keep % 3 {
                    kept.push(again);
                }
            }
            kept
        };
        let (even, odd) = std::thread::scope(|scope| {
            let (a, b) = (scope.spawn(move || work(even)), scope.spawn(move || work(odd)));
            drop(shared);
            (a.join().unwrap(), b.join().unwrap())
        });
        self.tensors = even;
        self.tensors.extend(odd);
    }

    pub(crate) fn take_waiting(&mut self, pick: usize) {
        if self.waiting.is_empty() {
            return;
        }
        let at = pick % self.waiting.len();
        let (outputs, left) = &mut self.waiting[at];
        match left.pop() {
            Some((number, known)) => self.tensors.push((outputs.take(slot(number)).unwrap(), known)),
            None => drop(self.waiting.swap_remove(at)),
        }
    }

    pub(crate) fn drop_waiting(&mut self, pick: usize) {
        if !self.waiting.is_empty() {
            drop(self.waiting.swap_remove(pick % self.waiting.len()));
        }
    }

    pub(crate) fn use_token(&mut self, pick: usize, look: bool) {
        if self.tokens.is_empty() {
            return;
        }
        let at = pick % self.tokens.len();
        if !look {
            drop(self.tokens.swap_remove(at));
            return;
        }
        let (token, saved) = &self.tokens[at];
        let (number, known) = &saved[pick % saved.len()];
        self.tensors.push((token.tensor(slot(*number)).unwrap(), known.clone()));
    }

    /// A new step: each live output is dealt with by a rule that depends on its number.
    pub(crate) fn begin_step(&mut self, rules: [OldOutput; 3]) {
        self.now += 1;
        for &node in &self.path {
            let Self { nodes, rig, census, .. } = self;
            let (device, stream) = (rig.device.clone(), rig.stream.clone());
            let rule = |of: graphgrove_storage::SlotIndex| rules[of.get() as usize % 3];
            let allocate = |_| Ok((rig.block(), census.owner()));
            nodes[node].slab.end_step(&device, &stream, &began(self.now), rule, allocate).unwrap();
            nodes[node].slab.sweep();
        }
        let path = self.path.clone();
        for known in self.all_known() {
            if let Origin::Slot { node, slot, .. } = known.origin
                && path.contains(&node)
                && known.fate == Fate::Here
            {
                known.fate = match rules[slot as usize % 3] {
                    OldOutput::Error => Fate::Stale,
                    OldOutput::CopyOut => Fate::Moved,
                    OldOutput::Keep => Fate::Here,
                };
            }
        }
        if self.slabs().iter().all(|slab| !slab.any_live()) {
            self.give_back();
            self.path.clear();
        }
    }

    fn all_known(&mut self) -> impl Iterator<Item = &mut Known> {
        let waiting = self.waiting.iter_mut().flat_map(|(_, left)| left.iter_mut().map(|(_, known)| known));
        let saved = self.tokens.iter_mut().flat_map(|(_, saved)| saved.iter_mut().map(|(_, known)| known));
        self.tensors.iter_mut().map(|(_, known)| known).chain(waiting).chain(saved)
    }

    /// Tells the memory checker of every slot that has died: whoever reads its block from here on is found out.
    fn give_back(&mut self) {
        for &node in &self.path {
            let slab = &mut self.nodes[node].slab;
            for dead in slab.died().collect::<Vec<_>>() {
                let (base, bytes) = slab.block(dead).unwrap();
                self.rig.device.annotate(&self.rig.stream, Annotation::Released { at: base, bytes }).unwrap();
            }
        }
    }

    /// Calls a function on one of the tensors: replays a recording that fits, or records.
    pub(crate) fn call(&mut self, function: usize, pick: usize, moved: bool, leak: bool) {
        if self.tensors.is_empty() {
            self.add_outside();
        }
        let (function, at) = (function % self.functions.len(), pick % self.tensors.len());
        let (input, known) = self.tensors[at].clone();
        let specs =
            |input| [InputSpec { moved, ..InputSpec::read(input) }, InputSpec::parameter(&self.weight.0)];
        let plan = InputPlan::new(&specs(&input), 16, |value| self.on_path(value));
        if known.fate == Fate::Stale {
            assert!(matches!(plan, Err(Error::Stale(_))));
            return;
        }
        let plan = plan.unwrap();
        let parent = self.path.last().copied();
        let fits = |node: &Node| {
            (node.parent, node.function, node.moved) == (parent, function, moved)
                && node.inputs.misfit(&specs(&input), |value| self.on_path(value)) == Ok(None)
        };
        let fitting: Vec<_> = (0..self.nodes.len()).filter(|&node| fits(&self.nodes[node])).collect();
        let staging = matches!(plan.role(InputIndex::new(0)), Some(InputRole::Staged(_)));
        let staging = staging.then(|| self.free_blocks()[0]);
        if moved {
            self.tensors.swap_remove(at);
        }
        // A function that does not return its input lets go of it before it obtains memory of its own.
        let returns = self.functions[function].iter().any(|out| matches!(out, Out::OfInput));
        let input = (returns || !moved).then_some(input);
        self.give_back();
        let runs = |&&node: &&usize| {
            let node = &self.nodes[node];
            node.masks.hold(&self.slabs()[..]) && !node.slab.any_live()
        };
        let found = fitting.iter().find(runs).copied();
        let (node, recorded) = match found {
            Some(node) => {
                self.replays += 1;
                (node, None)
            }
            None => {
                let masks = DeadMasks::of(&self.slabs()[..]);
                let tensors = self.function(function, &plan, staging, input.as_ref(), &known);
                let slab = self.record(&plan, staging, input.as_ref(), function, &tensors);
                self.nodes.push(Node { parent, function, slab, inputs: plan, moved, staging, masks });
                (self.nodes.len() - 1, Some(tensors))
            }
        };
        self.run(node, recorded, input.as_ref(), &known, leak);
        if self.path.len() > 6 {
            self.begin_step([OldOutput::Error, OldOutput::CopyOut, OldOutput::CopyOut]);
        }
    }

    /// The blocks in which no slot of the path is live.
    fn free_blocks(&self) -> Vec<DevicePtr> {
        let live: Vec<_> = live_storages(self.path.iter().map(|&node| &self.nodes[node].slab))
            .map(|live| live.base)
            .collect();
        self.pool.iter().copied().filter(|block| !live.contains(block)).collect()
    }

    /// What the function was given: the input where the recording has it.
    fn passed(
        &self,
        plan: &InputPlan,
        staging: Option<DevicePtr>,
        input: Option<&Tensor>,
        length: u64,
    ) -> Tensor {
        match (plan.role(InputIndex::new(0)), staging, input) {
            (Some(InputRole::Staged(staged)), Some(at), _) => {
                let storage = Storage::pool_block(at, BLOCK, Box::new(()));
                Tensor::new(storage, bytes_of(length), staged.offset).unwrap()
            }
            (_, _, Some(input)) => input.clone(),
            _ => Tensor::empty(bytes_of(0)).unwrap(),
        }
    }

    /// Runs a function as it is recorded: its output tensors, in blocks that it obtained.
    fn function(
        &self,
        function: usize,
        plan: &InputPlan,
        staging: Option<DevicePtr>,
        input: Option<&Tensor>,
        known: &Known,
    ) -> Vec<Option<Tensor>> {
        let mut free = self.free_blocks().into_iter().filter(|block| Some(*block) != staging);
        let passed = self.passed(plan, staging, input, known.bytes);
        let mut made: Vec<Option<Tensor>> = Vec::new();
        let half = |tensor: &Tensor| {
            let length = tensor.shape()[0];
            tensor.slice(0, length / 2..length, 1).unwrap()
        };
        for out in &self.functions[function] {
            let mut fresh = || {
                let storage = Storage::pool_block(free.next().unwrap(), BLOCK, Box::new(()));
                Some(Tensor::new(storage, bytes_of(LENGTH), 0).unwrap())
            };
            let tensor = match *out {
                Out::Fresh | Out::Saved | Out::SavedToo => fresh(),
                Out::Sibling(back) => match made.iter().rev().nth(back).cloned().flatten() {
                    Some(tensor) => Some(half(&tensor)),
                    None => fresh(),
                },
                Out::OfInput => Some(half(&passed)),
                Out::OfWeight => Some(half(&self.weight.0)),
                Out::Empty => Some(Tensor::empty(bytes_of(0)).unwrap()),
                Out::NotTensor => None,
            };
            made.push(tensor);
        }
        if staging.is_some() {
            made.push(Some(passed)); // It rides along so that the plan sees the same storage; it is no output.
        }
        made
    }

    fn record(
        &self,
        plan: &InputPlan,
        staging: Option<DevicePtr>,
        input: Option<&Tensor>,
        function: usize,
        tensors: &[Option<Tensor>],
    ) -> Slab {
        let outs = &self.functions[function];
        let passed = if staging.is_some() { tensors.last().cloned().flatten() } else { input.cloned() };
        let specs: Vec<_> = outs
            .iter()
            .zip(tensors)
            .map(|(out, tensor)| OutputSpec { tensor: tensor.as_ref(), readers: readers(*out) })
            .collect();
        let passed = [passed, Some(self.weight.0.clone())];
        let planned = plan_outputs(plan, &passed, &specs, |value| self.on_path(value)).unwrap();
        Slab::new(&self.ledger, "F", 0, planned).unwrap()
    }

    /// Runs a node: writes what its recording writes, and hands back.
    fn run(
        &mut self,
        node: usize,
        recorded: Option<Vec<Option<Tensor>>>,
        input: Option<&Tensor>,
        known: &Known,
        leak: bool,
    ) {
        if let Some(at) = self.nodes[node].staging {
            self.rig.acquire(at);
            self.write(at, known.value);
            self.rig.release(at);
        }
        let epoch = self.nodes[node].slab.epoch().get() + 1;
        let blocks: Vec<_> = self.nodes[node].slab.outputs().iter().map(|output| output.block).collect();
        let mut outcomes: Vec<Option<Known>> = Vec::new();
        let half = |known: &Known| Known {
            offset: known.offset + known.bytes / 2,
            bytes: known.bytes - known.bytes / 2,
            ..known.clone()
        };
        for (number, out) in (0..).zip(&self.functions[self.nodes[node].function]) {
            let fresh = |value| {
                let origin = Origin::Slot { node, slot: number, epoch };
                Some(Known { origin, fate: Fate::Here, value, offset: 0, bytes: LENGTH })
            };
            let earlier = |back| outcomes.iter().rev().nth(back).cloned().flatten();
            let outcome = match *out {
                Out::Sibling(back) if earlier(back).is_some() => earlier(back).map(|known| half(&known)),
                Out::OfInput => Some(half(known)),
                Out::OfWeight => Some(half(&self.weight.1)),
                Out::Empty => {
                    Some(Known { origin: Origin::Empty, fate: Fate::Here, value: 0, offset: 0, bytes: 0 })
                }
                Out::NotTensor => None,
                Out::Fresh | Out::Saved | Out::SavedToo | Out::Sibling(_) => {
                    self.values = self.values.wrapping_add(1);
                    let (at, _) = blocks[number as usize].unwrap();
                    self.rig.acquire(at);
                    self.write(at, self.values);
                    fresh(self.values)
                }
            };
            let outcome = outcome.map(|known| {
                let gone = known.bytes == 0;
                Known { origin: if gone { Origin::Empty } else { known.origin }, ..known }
            });
            outcomes.push(outcome);
        }
        let weight = self.weight.0.clone();
        let source = |_, class| match class {
            OutputClass::Persistent(_) => Some(weight.clone()),
            _ => input.cloned(),
        };
        let outs = &self.functions[self.nodes[node].function];
        let slab = &mut self.nodes[node].slab;
        let back = match &recorded {
            None => slab.hand_back(step(self.now), source).unwrap(),
            Some(tensors) => {
                let outputs = &tensors[..outs.len()];
                let (back, owners): (_, Vec<(_, Owner)>) =
                    slab.hand_back_recorded(step(self.now), outputs, source).unwrap();
                drop(owners); // The pool of this engine is a list of blocks, which none of them owns.
                back
            }
        };
        let all = || (0..).zip(&outcomes).zip(outs);
        let of = |wanted: fn(Readers) -> bool| {
            all()
                .filter(|(_, out)| wanted(readers(**out)))
                .filter_map(|((number, known), _)| Some((number, known.clone()?)))
                .collect::<Vec<_>>()
        };
        if leak && let Some(tensors) = recorded {
            // The function left a clone of its last fresh output elsewhere.
            let fresh = all().filter(|(_, out)| matches!(out, Out::Fresh)).last();
            if let Some(((number, known), _)) = fresh {
                let tensor = tensors[number as usize].clone().unwrap();
                self.tensors.push((tensor, known.clone().unwrap()));
            }
        }
        let waiting = of(|readers| matches!(readers, Readers::Caller | Readers::Both));
        let saved = of(|readers| matches!(readers, Readers::Backward | Readers::Both));
        assert_eq!(back.saved.is_some(), !saved.is_empty());
        self.waiting.push((back.outputs, waiting));
        self.tokens.extend(back.saved.map(|token| (token, saved)));
        self.path.push(node);
    }

    /// Drops everything: nothing may be left, and no block may have been read after its death.
    pub(crate) fn finish(mut self) {
        self.tensors.clear();
        self.waiting.clear();
        self.tokens.clear();
        assert!(self.ledger.all_dead());
        for node in &mut self.nodes {
            node.slab.sweep();
        }
        assert_eq!(self.census.alive(), 0);
        self.rig.verdict();
    }
}

const fn readers(out: Out) -> Readers {
    match out {
        Out::Saved => Readers::Backward,
        Out::SavedToo => Readers::Both,
        _ => Readers::Caller,
    }
}
