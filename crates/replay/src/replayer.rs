//! The nodes that share a pool, the path that runs through them, and the way of a replay.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::{Device, HostMemory};
use graphgrove_storage::{
    Cause, DeadMasks, Event, HandedBack, InputIndex, InputPlan, InputRole, Ledger, OutputClass, Outputs,
    Owner, SavedOutputs, Slab, SlabId, SlotIndex, Step, StorageCache, Tensor,
};
use slotmap::SlotMap;

use crate::check::{self, Addresses, Found};
use crate::node::{Node, Recording, Source};
use crate::order::Order;
use crate::path::PathSlabs;
use crate::{AsInput, Call, CallOutputs, Error, Expected, Input, Mismatch, Route, StagePlan, reference};

slotmap::new_key_type! {
    /// One recording. The key of a removed node never names another one.
    pub struct NodeKey;
}

/// How a recording is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// By what was compiled when it was recorded: one check, one launch, outputs in bulk; inputs are staged by the graph itself.
    #[default]
    Fast,
    /// By asking everything anew at each call: each expectation by itself, one copy for each staged input, liveness slot by slot,
    /// outputs one at a time by way of a cache of storages. It is what the fast one is compared with.
    Reference,
}

/// Nodes that share a pool, and the path of those that have run since the last root.
///
/// It is `Send`: whoever calls from several threads puts it behind one lock.
pub struct Replayer<D: Device> {
    pub(crate) device: Arc<D>,
    ledger: Arc<Ledger>,
    pub(crate) nodes: SlotMap<NodeKey, Node<D>>,
    pub(crate) path: Vec<NodeKey>,
    order: Order<D>,
    /// What is expected to run next.
    predicted: Option<NodeKey>,
    last: Option<NodeKey>,
    /// Moves with everything that a check may have relied on.
    moment: u64,
    /// Where the staged inputs of the call lie that was checked last.
    found: Found,
    /// The storages of the path, which the reference path looks up at each call.
    cache: StorageCache,
}

/// A call that was found to fit a node. It is good until anything else is done, and for that one call.
///
/// It borrows the call, so nobody can exchange an input or a parameter between the check and the launch.
#[must_use = "nothing was launched yet"]
pub struct Checked<'c, D: Device, I = Input<'c, D>> {
    node: NodeKey,
    addresses: Addresses,
    moment: u64,
    call: &'c Call<'c, D, I>,
}

impl<D: Device, I> Checked<'_, D, I> {
    /// The node that fits.
    #[must_use]
    pub const fn node(&self) -> NodeKey {
        self.node
    }
}

impl<D: Device, I: AsInput<D>> fmt::Debug for Checked<'_, D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checked({:?}, {:?})", self.node, self.call)
    }
}

/// What a replay leaves.
#[derive(Debug)]
#[must_use = "dropping it lets go of every output"]
pub struct Replayed {
    /// The node that has run.
    pub node: NodeKey,
    /// The outputs, for the caller.
    pub outputs: CallOutputs,
    /// What the backward reads, for its token; none if it reads nothing.
    pub saved: Option<SavedOutputs>,
}

impl<D: Device> Replayer<D> {
    /// No nodes yet. What has to live as long as any handle of an output is the `ledger`'s.
    #[must_use]
    pub fn new(device: Arc<D>, ledger: Arc<Ledger>) -> Self {
        Self {
            device,
            ledger,
            nodes: SlotMap::with_key(),
            path: Vec::new(),
            order: Order::new(),
            predicted: None,
            last: None,
            moment: 0,
            found: Found::default(),
            cache: StorageCache::new(),
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// What a recording of `call`, whose inputs were planned by `plan` and `stage`, expects of each input. `plan` was made for the
    /// inputs of the call and then its parameters.
    ///
    /// # Errors
    /// [`Error::InputCount`]; [`Mismatch::Managed`] for an input that is an output of no node on the path;
    /// [`Mismatch::Kind`] for an input that the plan takes for a parameter.
    pub fn expect<I: AsInput<D>>(
        &self,
        plan: &InputPlan,
        call: &Call<'_, D, I>,
        stage: &StagePlan,
    ) -> Result<Vec<Expected>, Error> {
        let params = call.params.map_or(0, |params| params.tensors().len());
        let (planned, given) = (plan.roles().count(), call.inputs.len() + params);
        if planned != given {
            return Err(Error::InputCount { planned, given });
        }
        let slots = self.slots();
        let expect = |((input, role), given): ((InputIndex, InputRole), &I)| {
            let given = given.as_input();
            let Input::Tensor { tensor, .. } = given else {
                return Ok(match given {
                    Input::Host(buffer) => Expected::Host { bytes: buffer.bytes() },
                    Input::Value(value) => Expected::Value(value),
                    Input::Tensor { .. } => return Err(Mismatch::Kind { input }.into()),
                });
            };
            let signature = tensor.signature();
            Ok(match role {
                InputRole::Managed { value, offset } => {
                    let unknown = Mismatch::Managed { input, place: u32::MAX, slot: value.slot };
                    let place = slots.place_of(value.slab).ok_or(unknown)?;
                    Expected::Managed { place, slot: value.slot, offset, signature, dies: false }
                }
                InputRole::Staged(_) => {
                    Expected::Staged { signature, route: stage.route(input).unwrap_or(Route::Copied) }
                }
                InputRole::Empty => Expected::Empty { signature },
                _ => return Err(Mismatch::Kind { input }.into()),
            })
        };
        plan.roles().zip(call.inputs).map(expect).collect()
    }

    /// Makes a recording a node. It does not run by that: [`launch_recorded`](Self::launch_recorded) is its first run.
    ///
    /// # Errors
    /// [`Mismatch::UnknownNode`] and [`Mismatch::Parent`] if its parent is not on the path; [`Error::InputCount`],
    /// [`Error::OtherStaging`] and [`Mismatch::Managed`] for expectations that are not those of the captured work or of a node at
    /// that place; [`Error::NoSource`], [`Error::Storage`] for outputs that do not fit. Nothing has changed then.
    pub fn add(&mut self, recording: Recording<D>) -> Result<NodeKey, Error> {
        let parent = match recording.parent {
            None => None,
            Some(key) => {
                let parent = self.nodes.get(key).ok_or(Mismatch::UnknownNode { node: key })?;
                if self.path.get(parent.depth as usize) != Some(&key) {
                    return Err(Mismatch::Parent { parent: key, place: parent.depth }.into());
                }
                Some(parent)
            }
        };
        let node = Node::new(recording, parent, &self.ledger, &self.slots())?;
        self.found.reserve(&node);
        Ok(self.nodes.insert(node))
    }

    /// Forgets a node, with its exec. Handles of its outputs stay valid.
    ///
    /// # Errors
    /// [`Error::UnknownNode`]; [`Error::OnPath`] for a node that is part of the current path.
    pub fn remove(&mut self, node: NodeKey) -> Result<Slab, Error> {
        if self.path.contains(&node) {
            return Err(Error::OnPath { node });
        }
        self.moment += 1;
        self.nodes.remove(node).map(|node| node.slab).ok_or(Error::UnknownNode { node })
    }

    /// The node that ran next the last time that the current node had run.
    #[must_use]
    #[inline]
    pub const fn predicted(&self) -> Option<NodeKey> {
        self.predicted
    }

    /// Whether `node` may be replayed for `call`, where the path may go on like that.
    ///
    /// It is the whole of what a replay asks, but for [`check_tail`](Self::check_tail): whoever knows by other means that
    /// nothing behind the node's parent is needed can leave that out.
    ///
    /// # Errors
    /// The first expectation that does not hold.
    #[inline]
    pub fn check<'c, I: AsInput<D>>(
        &mut self,
        node: NodeKey,
        call: &'c Call<'c, D, I>,
    ) -> Result<Checked<'c, D, I>, Mismatch> {
        let slots = PathSlabs { nodes: &self.nodes, path: &self.path };
        let Some(known) = self.nodes.get(node) else { return Err(Mismatch::UnknownNode { node }) };
        if let Some(parent) = known.parent {
            let place = known.depth - 1;
            if self.path.get(place as usize) != Some(&parent) {
                return Err(Mismatch::Parent { parent, place });
            }
        }
        let addresses = match known.method {
            Method::Fast => check::check(known, call, &slots, &mut self.found)?,
            Method::Reference => {
                // It finds nothing beforehand.
                self.found.forget();
                reference::check(known, call, &slots)?
            }
        };
        Ok(Checked { node, addresses, moment: self.moment, call })
    }

    /// Whether nothing is live behind the parent of `node`: all that is there, `node` may run over.
    ///
    /// # Errors
    /// [`Mismatch::TailLive`], [`Mismatch::UnknownNode`]
    #[inline]
    pub fn check_tail(&self, node: NodeKey) -> Result<(), Mismatch> {
        let depth = self.nodes.get(node).ok_or(Mismatch::UnknownNode { node })?.depth;
        if self.path.len() <= depth as usize || self.ledger.all_dead() {
            return Ok(());
        }
        check::tail_live(&self.nodes, &self.path, depth)
    }

    /// Checks and replays.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the call does not fit, and as [`launch`](Self::launch).
    pub fn replay<I: AsInput<D>>(&mut self, node: NodeKey, call: &Call<'_, D, I>) -> Result<Replayed, Error> {
        self.check_tail(node)?;
        let Checked { addresses, .. } = self.check(node, call)?;
        self.run(node, addresses, call)
    }

    /// Replays a call that was checked: `call` is the one that [`check`](Self::check) was given, in the same place.
    ///
    /// One driver call, one more for each gather node and each other node with an address that has changed, two more if the
    /// stream is not that of the last launch, and one for each use elsewhere that was [declared](Self::used_on).
    ///
    /// # Errors
    /// [`Error::OldCheck`]; [`Mismatch::Pinned`] for an output that was pinned since the check; [`Error::Device`] for a launch that
    /// was refused. Liveness, epochs and path are as before.
    #[inline]
    pub fn launch<I: AsInput<D>>(
        &mut self,
        checked: Checked<'_, D, I>,
        call: &Call<'_, D, I>,
    ) -> Result<Replayed, Error> {
        let Checked { node, addresses, moment, call: of } = checked;
        if moment != self.moment || !std::ptr::eq(of, call) {
            return Err(Error::OldCheck);
        }
        // Whoever holds an output can pin it without the replayer.
        let slab = self.slab(node).filter(|slab| slab.any_live());
        if let Some(output) = slab.and_then(Slab::pinned) {
            return Err(Mismatch::Pinned { output }.into());
        }
        self.run(node, addresses, call)
    }

    /// Replays a node that was found to fit.
    #[inline]
    fn run<I: AsInput<D>>(
        &mut self,
        key: NodeKey,
        addresses: Addresses,
        call: &Call<'_, D, I>,
    ) -> Result<Replayed, Error> {
        self.enqueue(key, addresses, call)?;
        let Some(node) = self.nodes.get_mut(key) else { return Err(Error::UnknownNode { node: key }) };
        let Node { slab, sources, .. } = node;
        let back = slab.hand_back(call.step, |slot, _| source(sources, call, slot));
        let method = node.method;
        self.advance(key, call);
        let HandedBack { outputs, saved } = back?;
        let outputs = match method {
            Method::Fast => CallOutputs::Bulk(outputs),
            Method::Reference => self.one_by_one(outputs, call)?,
        };
        Ok(Replayed { node: key, outputs, saved })
    }

    /// Outputs as the reference path hands them back.
    #[cold]
    fn one_by_one<I: AsInput<D>>(
        &mut self,
        outputs: Outputs,
        call: &Call<'_, D, I>,
    ) -> Result<CallOutputs, Error> {
        self.cache.sweep();
        for input in call.inputs {
            // The caller lets go of it when the call is over, and an output may lie there already.
            if let Input::Tensor { tensor, given_up: true } = input.as_input() {
                self.cache.give_up(tensor.storage());
            }
        }
        Ok(CallOutputs::Each(reference::take(outputs, &mut self.cache)?))
    }

    /// Runs a node for the first time, with the call for which it was recorded.
    ///
    /// Inputs that do not come from the path are checked as by [`check`](Self::check). What is live is not: what the function gave
    /// up is dead by now, and its memory is in use.
    ///
    /// `recorded` is what the function returned, output by output. What owned the blocks of its fresh outputs is returned with
    /// their slots: the caller keeps it for as long as the memory belongs to the node.
    ///
    /// # Errors
    /// [`Error::HasRun`] for a node that has run, [`Error::Storage`] if `recorded` is not what was planned, and as
    /// [`replay`](Self::replay). A first run that was refused can be asked for again.
    pub fn launch_recorded<I: AsInput<D>>(
        &mut self,
        node: NodeKey,
        call: &Call<'_, D, I>,
        recorded: &[Option<Tensor>],
    ) -> Result<(Replayed, Vec<(SlotIndex, Owner)>), Error> {
        let slots = PathSlabs { nodes: &self.nodes, path: &self.path };
        let known = self.nodes.get(node).ok_or(Error::UnknownNode { node })?;
        if known.replays > 0 {
            return Err(Error::HasRun { node });
        }
        let place = known.depth.saturating_sub(1);
        if let Some(parent) = known.parent.filter(|parent| self.path.get(place as usize) != Some(parent)) {
            return Err(Mismatch::Parent { parent, place }.into());
        }
        known.slab.check_recorded(recorded)?;
        let addresses = check::check_first(known, call, &slots, &mut self.found)?;
        let key = node;
        self.enqueue(key, addresses, call)?;
        let Some(node) = self.nodes.get_mut(key) else { return Err(Error::UnknownNode { node: key }) };
        let Node { slab, sources, .. } = node;
        // An alias of an earlier slot is what the function returned: the call may have given its own handle up.
        let back = slab.hand_back_recorded(call.step, recorded, |slot, class| match class {
            OutputClass::EarlierSlot { .. } => recorded.get(slot.get() as usize).cloned().flatten(),
            _ => source(sources, call, slot),
        });
        self.advance(key, call);
        let (HandedBack { outputs, saved }, owners) = back?;
        Ok((Replayed { node: key, outputs: CallOutputs::Bulk(outputs), saved }, owners))
    }

    /// Declares that work on `stream`, as enqueued so far, uses outputs of the nodes: the next launch waits for it. Uses on the
    /// stream of the launches need not be declared.
    ///
    /// # Errors
    /// [`Error::Device`]; nothing is declared then.
    pub fn used_on(&mut self, stream: &D::Stream) -> Result<(), Error> {
        Ok(self.order.used_on(&*self.device, stream)?)
    }

    /// Orders what is enqueued next on `stream` behind all launches, as for work that uses the pool in other ways.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn enter(&mut self, stream: &D::Stream) -> Result<(), Error> {
        Ok(self.order.enter(&*self.device, stream)?)
    }

    /// The stream of the last launch.
    #[must_use]
    pub fn last_stream(&self) -> Option<&D::Stream> {
        self.order.last()
    }

    /// Ends the path: every handle of what ran on it is stale from here on.
    ///
    /// # Errors
    /// [`Error::Storage`] for an output that is pinned; nothing has changed then. Only if another thread pins it at this very
    /// moment are outputs of nodes before its own on the path stale.
    pub fn end_path(&mut self, step: Step, by: Option<Arc<str>>) -> Result<(), Error> {
        let nodes = self.path.iter().filter_map(|key| self.nodes.get(*key));
        if let Some(slot) = nodes.map(|node| &node.slab).find_map(Slab::pinned) {
            return Err(graphgrove_storage::Error::Pinned { slot }.into());
        }
        self.moment += 1;
        let cause = Cause { event: Event::StepBegan, step, by };
        for key in &self.path {
            if let Some(node) = self.nodes.get_mut(*key) {
                node.slab.invalidate(&cause)?;
            }
        }
        self.cut_path(0);
        Ok(())
    }

    /// Takes off the path what lies behind the first `length` nodes. The caller knows that nothing there is needed.
    pub fn cut_path(&mut self, length: usize) {
        self.moment += 1;
        self.path.truncate(length);
    }

    /// The nodes that have run since the last root.
    #[must_use]
    pub fn path(&self) -> &[NodeKey] {
        &self.path
    }

    /// The outputs of a node.
    #[must_use]
    pub fn slab(&self, node: NodeKey) -> Option<&Slab> {
        Some(&self.nodes.get(node)?.slab)
    }

    /// The outputs of a node, to deal with what is still live.
    pub fn slab_mut(&mut self, node: NodeKey) -> Option<&mut Slab> {
        self.moment += 1;
        Some(&mut self.nodes.get_mut(node)?.slab)
    }

    /// The place on the path of the node with these outputs.
    #[must_use]
    pub fn place_of(&self, slab: SlabId) -> Option<u32> {
        self.slots().place_of(slab)
    }

    /// All that is dead on the first `length` nodes of the path.
    #[must_use]
    pub fn dead(&self, length: usize) -> DeadMasks {
        let path = self.path.get(..length).unwrap_or(&self.path);
        DeadMasks::of(&PathSlabs { nodes: &self.nodes, path })
    }

    /// How often a node was replayed, its first run not counted.
    #[must_use]
    pub fn replays(&self, node: NodeKey) -> Option<u64> {
        Some(self.nodes.get(node)?.replays.saturating_sub(1))
    }

    /// How many nodes a node's graph has; none also for a graph that was captured elsewhere.
    #[must_use]
    pub fn graph_nodes(&self, node: NodeKey) -> Option<usize> {
        self.nodes.get(node)?.graph_nodes
    }

    /// The bytes of device memory that the driver holds for a node; none also where the device cannot tell.
    #[must_use]
    pub fn exec_bytes(&self, node: NodeKey) -> Option<u64> {
        self.device.exec_bytes(&self.nodes.get(node)?.exec)
    }

    /// The bytes of device memory that the driver holds for all nodes together, as far as the device can tell.
    #[must_use]
    pub fn all_exec_bytes(&self) -> u64 {
        self.nodes.values().filter_map(|node| self.device.exec_bytes(&node.exec)).sum()
    }

    /// What a node expects of its inputs.
    #[must_use]
    pub fn expected(&self, node: NodeKey) -> Option<&[Expected]> {
        Some(&self.nodes.get(node)?.expected)
    }

    /// How many driver calls it costs a node that the addresses of all its staged inputs change.
    #[must_use]
    pub fn patches(&self, node: NodeKey) -> Option<usize> {
        Some(self.nodes.get(node)?.staging.patches())
    }

    /// In how many recorded nodes the address of an input stands, parameters last; none for an input that is not patched.
    #[must_use]
    pub fn patched_nodes(&self, node: NodeKey, input: InputIndex) -> usize {
        self.nodes.get(node).map_or(0, |node| node.staging.sites_of(input.get()))
    }

    fn slots(&self) -> PathSlabs<'_, D> {
        PathSlabs { nodes: &self.nodes, path: &self.path }
    }

    /// Everything up to the launch.
    #[inline]
    fn enqueue<I: AsInput<D>>(
        &mut self,
        key: NodeKey,
        addresses: Addresses,
        call: &Call<'_, D, I>,
    ) -> Result<(), Error> {
        let Some(node) = self.nodes.get_mut(key) else { return Err(Error::UnknownNode { node: key }) };
        let device = &*self.device;
        if addresses == Addresses::Changed {
            // Another call may have been checked since.
            if !self.found.is_of(call) {
                self.found.locate(node, call);
            }
            node.staging.patch(device, &mut node.exec, call, &self.found.located)?;
        }
        self.order.enter(device, call.stream)?;
        match node.method {
            Method::Fast => device.launch_exec(&mut node.exec, call.stream)?,
            Method::Reference => {
                node.staging.copy_in(device, call)?;
                device.launch_exec(&mut node.exec, call.stream)?;
                node.staging.copy_back(device, call)?;
            }
        }
        Ok(())
    }

    /// Makes a node that was launched the current one.
    #[inline]
    fn advance<I: AsInput<D>>(&mut self, key: NodeKey, call: &Call<'_, D, I>) {
        self.moment += 1;
        let Some(node) = self.nodes.get_mut(key) else { return };
        node.replays += 1;
        if let (Some(planned), Some(given)) = (&mut node.params, call.params) {
            (planned.set, planned.version) = (given.id(), given.version());
        }
        let (depth, successor) = (node.depth as usize, node.successor);
        self.path.truncate(depth);
        self.path.push(key);
        if self.predicted != Some(key)
            && let Some(last) = self.last.and_then(|last| self.nodes.get_mut(last))
        {
            last.successor = Some(key);
        }
        self.predicted = if self.last == Some(key) { Some(key) } else { successor };
        self.last = Some(key);
    }
}

/// What an output in memory of others is made from.
#[cold]
pub(crate) fn source<D: Device, I: AsInput<D>>(
    sources: &[(SlotIndex, Source)],
    call: &Call<'_, D, I>,
    output: SlotIndex,
) -> Option<Tensor> {
    let (_, source) = sources.iter().find(|(of, _)| *of == output)?;
    match source {
        Source::Input(input) => call.tensor(*input as usize).cloned(),
        Source::Constant(tensor) => Some(tensor.clone()),
    }
}

impl<D: Device> fmt::Debug for Replayer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.path.iter().filter_map(|key| Some(&*self.nodes.get(*key)?.producer)).collect();
        write!(f, "Replayer({} nodes, path {names:?})", self.nodes.len())
    }
}
