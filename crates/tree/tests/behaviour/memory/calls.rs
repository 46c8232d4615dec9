//! One call, carried out as the layers above do it.

use super::device::{Param, Place, Work, fold, mutated, output};
use super::world::{Home, Id, World};
use graphgrove_tree::{
    Address, Call, CallKind, Decision, EagerReason, Expected, ExpectedParams, Fate, Input, InputIndex,
    NodeId, Output, OutputKind, ParamSetId, ParamVersion, Params, PathChange, Ran, Role, Signature,
    SlotIndex, SlotValue, Source, TokenId,
};

/// An input with what it refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) source: From,
    pub(super) signature: u64,
    pub(super) mutated: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// A storage, and how many of its handles go into the call by way of this input.
    Storage(Id, usize),
    Foreign(u64),
    Scalar,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Well,
    Fails,
    Eagerly,
    /// A replay is reported as one that was checked elsewhere.
    Followed,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) function: usize,
    pub(super) kind: CallKind,
    pub(super) inputs: Vec<Given>,
    pub(super) params: Option<(u64, u64, Vec<u64>)>,
    pub(super) end: End,
    /// A handle that is dropped while the call runs.
    pub(super) dies: Option<Id>,
}

impl World {
    fn seed(request: &Request) -> u64 {
        fold([request.function as u64, request.kind.phase() as u64])
    }

    /// How many handles of a storage the call takes with it.
    fn taken(&self, request: &Request, id: Id) -> usize {
        let moved: usize = request
            .inputs
            .iter()
            .map(|given| match given.source {
                From::Storage(other, count) if other == id => count,
                _ => 0,
            })
            .sum();
        let CallKind::Backward(token) = request.kind else { return moved };
        moved + self.tokens.get(&token).map_or(0, |saved| saved.iter().filter(|saved| **saved == id).count())
    }

    fn describe(&self, request: &Request, given: &Given) -> Input {
        let source = match given.source {
            From::Scalar => Source::Scalar,
            From::Foreign(_) => Source::Staged,
            From::Storage(id, _) => match self.storages[id].home {
                Home::Pool { value, .. } => {
                    let given_up = self.taken(request, id) == self.storages[id].holders;
                    Source::Managed { value, given_up }
                }
                _ => Source::Staged,
            },
        };
        Input { signature: Signature::new(given.signature), source, mutated: given.mutated }
    }

    fn word(&self, given: &Given, of: impl Fn(&Self, Id) -> u64) -> u64 {
        match given.source {
            From::Storage(id, _) => of(self, id),
            From::Foreign(word) => word,
            From::Scalar => given.signature,
        }
    }

    /// The outputs that a function declares for this call.
    fn outputs(&self, request: &Request) -> Vec<Output> {
        let aliases = request.inputs.first().is_some_and(|given| !matches!(given.source, From::Scalar));
        let declared = self.functions[request.function].1.iter();
        declared
            .map(|output| match output.kind {
                OutputKind::AliasOfInput(_) if !aliases => Output { kind: OutputKind::Empty, ..*output },
                _ => *output,
            })
            .collect()
    }

    pub(super) fn call(&mut self, request: &Request) {
        let inputs: Vec<_> = request.inputs.iter().map(|given| self.describe(request, given)).collect();
        let addresses: Vec<_> =
            request.params.iter().flat_map(|params| &params.2).map(|at| Address::new(*at)).collect();
        let params = request.params.as_ref().map(|(set, version, _)| Params {
            set: ParamSetId::new(*set),
            version: ParamVersion::new(*version),
            addresses: &addresses,
        });
        let call = Call {
            function: self.functions[request.function].0,
            kind: request.kind,
            params,
            inputs: &inputs,
        };
        let decision = self.tree.decide(&call, &self.live).unwrap();
        let given: Vec<_> = request.inputs.iter().map(|given| self.word(given, Self::content)).collect();
        let wanted: Vec<_> = request
            .inputs
            .iter()
            .map(|given| self.word(given, |world, id| world.storages[id].expected))
            .collect();
        assert_eq!(given, wanted);
        let given_params: Vec<u64> = addresses.iter().map(|at| at.get()).collect();
        let mut all = wanted.clone();
        all.extend(&given_params);
        let change = decision.path_change().cloned();
        let outputs = self.outputs(request);
        let (ran, cells, places) = match decision {
            _ if request.end == End::Eagerly => {
                return self.eagerly(request, &call, &EagerReason::Busy, &outputs, &all);
            }
            Decision::Eager(reason) => return self.eagerly(request, &call, &reason, &outputs, &all),
            Decision::Replay(_) if request.end == End::Fails => return,
            Decision::Replay(replay) => {
                self.replays += 1;
                self.end_path(change.as_ref());
                let node = replay.node();
                let work = self.work[&node].clone();
                let outputs = self.tree.node(node).unwrap().outputs().to_vec();
                self.hold_aliases(request, &outputs);
                let staged = given.iter().map(|word| Some(*word)).collect::<Vec<_>>();
                self.let_go(request);
                let read = work.launch(&mut self.memory, &staged, &given_params);
                self.write_back(request, &work, &read);
                let follow = request.end == End::Followed
                    && matches!(
                        change,
                        Some(PathChange::Extends | PathChange::DropsUnneededTail | PathChange::Over)
                    );
                let ran =
                    if follow { self.tree.follow(node, &call) } else { self.tree.replayed(replay, &call) };
                (ran.unwrap(), work.outputs, outputs)
            }
            Decision::Record(plan) => {
                let expected = (plan.inputs().to_vec(), plan.params().cloned());
                let restore = (plan.parent(), plan.restore());
                let recording = self.tree.begin_recording(*plan, &self.live).unwrap();
                if request.end == End::Fails {
                    return self.tree.recording_failed(recording);
                }
                self.end_path(change.as_ref());
                let work = self.run(request, restore, &expected.0, expected.1.as_ref(), &outputs, &given);
                let ran = self.tree.finish_recording(recording, outputs.clone(), &self.live).unwrap();
                self.work.insert(ran.node, work.clone());
                (ran, work.outputs, outputs)
            }
            Decision::WarmUp(plan) => {
                let restore = (plan.parent(), plan.restore());
                let expected = plan.inputs().to_vec();
                let warm_up = self.tree.begin_warm_up(*plan).unwrap();
                if request.end == End::Fails {
                    return drop(warm_up);
                }
                self.end_path(change.as_ref());
                let work = self.run(request, restore, &expected, None, &outputs, &given);
                (self.tree.finish_warm_up(warm_up, outputs.clone(), true).unwrap(), work.outputs, outputs)
            }
        };
        self.hand_out(request, &ran, &cells, &places, &all);
        for node in ran.evicted.iter().chain(&ran.ended_warm_ups) {
            self.work.remove(node);
        }
        if let CallKind::Backward(token) = request.kind {
            assert!(!self.tokens.contains_key(&token));
        }
        self.note_writes(request);
    }

    /// Ends the path as the tree says.
    fn end_path(&mut self, change: Option<&PathChange>) {
        for old in change.and_then(PathChange::path_end).into_iter().flat_map(|end| &end.slots) {
            let id = self.owner(old.value);
            let home = match old.fate {
                Fate::Invalidate => Home::Stale,
                Fate::CopyOut | Fate::CopyOutForBackward(_) => Home::Outside(self.content(id)),
            };
            self.live.clear(old.value.slot);
            if let Home::Pool { cell, .. } = self.storages[id].home {
                self.memory.used.remove(&cell);
            }
            self.storages[id].home = home;
        }
    }

    /// The outputs that share an input's storage hold it before the call lets go of it.
    fn hold_aliases(&mut self, request: &Request, outputs: &[Output]) {
        for output in outputs {
            if let (OutputKind::AliasOfInput(index), Some(id)) = (output.kind, self.aliased(request, *output))
            {
                assert_ne!(
                    self.storages[id].home,
                    Home::Stale,
                    "an output is an alias of stale input {index}"
                );
                self.hold(id);
            }
        }
    }

    fn aliased(&self, request: &Request, output: Output) -> Option<Id> {
        let OutputKind::AliasOfInput(index) = output.kind else { return None };
        match request.inputs[index.get() as usize].source {
            From::Storage(id, _) => Some(id),
            From::Foreign(_) | From::Scalar => None,
        }
    }

    fn let_go(&mut self, request: &Request) {
        for given in &request.inputs {
            if let From::Storage(id, count) = given.source {
                for _ in 0..count {
                    let at = self.handles.iter().position(|handle| *handle == id).unwrap();
                    self.handles.remove(at);
                    self.release(id);
                }
            }
        }
        if let CallKind::Backward(token) = request.kind {
            self.end_token(token);
        }
    }

    /// Runs the function plainly or under capture, which freezes what it does.
    fn run(
        &mut self,
        request: &Request,
        (parent, restore): (Option<NodeId>, Option<NodeId>),
        inputs: &[Expected],
        params: Option<&ExpectedParams>,
        outputs: &[Output],
        given: &[u64],
    ) -> Work {
        let given_params = request.params.as_ref().map_or(&[][..], |params| &params.2);
        let in_use = self.cells_in_use();
        let staged: Vec<_> = given.iter().map(|word| Some(*word)).collect();
        self.hold_aliases(request, outputs);
        if parent.is_none() {
            // What is carried has been read, and dies with its path.
            self.let_go(request);
            self.memory.used.clear();
        } else if restore.is_some() {
            self.memory.used = in_use;
        } else {
            assert_eq!(self.memory.used, in_use, "the pool does not mirror the path");
        }
        let mut work = Work { seed: Self::seed(request), ..Work::default() };
        for ((expected, described), word) in inputs.iter().zip(&request.inputs).zip(given) {
            work.mutated.push(expected.mutated);
            work.inputs.push(match (expected.role, described.source) {
                (Role::Managed { .. }, From::Storage(id, _)) => match self.storages[id].home {
                    Home::Pool { cell, .. } => Place::At(cell),
                    other => panic!("a managed input is {other:?}"),
                },
                (Role::Scalar, _) => Place::Frozen(*word),
                _ => Place::Staging(self.memory.obtain()),
            });
        }
        for (index, address) in (0..).zip(given_params) {
            let is_staged =
                params.is_some_and(|params| params.staged().iter().any(|param| param.get() == index));
            work.params.push(if is_staged { Param::Staged } else { Param::At(*address) });
        }
        work.before = vec![self.memory.obtain()];
        if parent.is_some() {
            self.let_go(request);
        }
        if let Some(id) = request.dies {
            let at = self.handles.iter().position(|handle| *handle == id);
            if let Some(at) = at {
                self.handles.remove(at);
                self.release(id);
            }
        }
        work.after = vec![self.memory.obtain()];
        work.outputs = outputs
            .iter()
            .map(|output| (output.kind == OutputKind::Fresh).then(|| self.memory.obtain()))
            .collect();
        for place in &work.inputs {
            if let Place::Staging(cell) = place {
                self.memory.used.remove(cell);
            }
        }
        work.before.iter().chain(&work.after).for_each(|cell| {
            self.memory.used.remove(cell);
        });
        let read = work.launch(&mut self.memory, &staged, given_params);
        self.write_back(request, &work, &read);
        work
    }

    /// Copies staged inputs that were written to back to where they came from.
    fn write_back(&mut self, request: &Request, work: &Work, read: &[u64]) {
        for ((given, place), word) in request.inputs.iter().zip(&work.inputs).zip(read) {
            if let (From::Storage(id, _), Place::Staging(_), true) = (given.source, place, given.mutated)
                && self.storages[id].holders > 0
            {
                match self.storages[id].home {
                    Home::Pool { cell, .. } => self.memory.write(cell, *word),
                    Home::Outside(_) => self.storages[id].home = Home::Outside(*word),
                    Home::Stale => {}
                }
            }
        }
    }

    /// What storages hold that the call wrote to.
    fn note_writes(&mut self, request: &Request) {
        for given in &request.inputs {
            if let (From::Storage(id, _), true) = (given.source, given.mutated) {
                self.storages[id].expected = mutated(self.storages[id].expected);
            }
        }
    }

    fn hand_out(
        &mut self,
        request: &Request,
        ran: &Ran,
        cells: &[Option<usize>],
        outputs: &[Output],
        all: &[u64],
    ) {
        let values = outputs
            .iter()
            .enumerate()
            .map(|(index, declared)| {
                let word = output(Self::seed(request), index, all);
                match (cells[index], self.aliased(request, *declared), declared.kind) {
                    (Some(cell), ..) => {
                        let slot = SlotIndex::new(u32::try_from(index).unwrap());
                        let home = Home::Pool { value: SlotValue::new(ran.node, slot, ran.epoch), cell };
                        let id = self.add(home, word);
                        self.hold(id);
                        Some(id)
                    }
                    (_, Some(id), _) => Some(id),
                    _ => None,
                }
            })
            .collect();
        self.give_handles(ran.token, outputs, values);
    }

    /// The caller gets handles of all outputs, which are counted already, and the token those of the saved ones.
    fn give_handles(&mut self, token: Option<TokenId>, outputs: &[Output], mut values: Vec<Option<Id>>) {
        for index in 0..outputs.len() {
            if let OutputKind::AliasOfOutput(other) = outputs[index].kind {
                values[index] = values[other.get() as usize];
                values[index].iter().for_each(|id| self.storages[*id].holders += 1);
            }
        }
        for (output, id) in outputs.iter().zip(values) {
            let Some(id) = id else { continue };
            self.handles.push(id);
            if let (Some(token), true) = (token, output.saved) {
                self.hold(id);
                self.tokens.entry(token).or_default().push(id);
            }
        }
        if let Some(token) = token {
            self.tokens.entry(token).or_default();
        }
    }

    fn eagerly(
        &mut self,
        request: &Request,
        call: &Call<'_>,
        reason: &EagerReason,
        outputs: &[Output],
        all: &[u64],
    ) {
        self.hold_aliases(request, outputs);
        for given in &request.inputs {
            if let (From::Storage(id, _), true) = (given.source, given.mutated) {
                let word = mutated(self.content(id));
                match self.storages[id].home {
                    Home::Pool { cell, .. } => self.memory.write(cell, word),
                    _ => self.storages[id].home = Home::Outside(word),
                }
            }
        }
        self.let_go(request);
        let token = self.tree.ran_eagerly(call, reason).unwrap();
        let values = outputs
            .iter()
            .enumerate()
            .map(|(index, declared)| match (self.aliased(request, *declared), declared.kind) {
                (Some(id), _) => Some(id),
                (None, OutputKind::Fresh) => {
                    let word = output(Self::seed(request), index, all);
                    let id = self.add(Home::Outside(word), word);
                    self.hold(id);
                    Some(id)
                }
                _ => None,
            })
            .collect();
        self.give_handles(token, outputs, values);
        self.note_writes(request);
    }
}

/// The first input.
pub(super) const FIRST: InputIndex = InputIndex::new(0);
