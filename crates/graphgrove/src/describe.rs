//! A call as the tree sees it: plain data.

use std::hash::{DefaultHasher, Hash, Hasher};

use graphgrove_device::{Device, HostMemory};
use graphgrove_replay::ParamSet;
use graphgrove_storage::{InputIndex, InputPlan, InputRole, InputSpec, SlotValue, Tensor};
use graphgrove_tree::{
    Address, Epoch, Input, ParamSetId, ParamVersion, Params, PendingRule, Signature, Slot, SlotIndex, Source,
};

use crate::grove::{Grove, Request};
use crate::{Arg, Result};

/// The alignment in bytes that recorded kernels may rely on.
pub(crate) const ALIGNMENT: u64 = 16;

/// A call as plain data.
pub(crate) struct Described {
    pub(crate) inputs: Vec<Input>,
    pub(crate) addresses: Vec<Address>,
    /// What stands in the way of every recording of the call.
    pub(crate) conflict: Option<graphgrove_storage::Conflict>,
    /// All signatures in one word.
    pub(crate) key: u64,
}

/// The parameters for the tree.
pub(crate) fn params<'a>(set: Option<&ParamSet>, addresses: &'a [Address]) -> Option<Params<'a>> {
    set.map(|set| Params {
        set: ParamSetId::new(set.id().get()),
        version: ParamVersion::new(set.version().get()),
        addresses,
    })
}

/// All tensors that a call is given, at their places: its inputs, and then its parameters.
pub(crate) fn tensors<'a, D: Device>(
    args: &'a [Arg<'_, D>],
    params: Option<&'a ParamSet>,
) -> Vec<Option<&'a Tensor>> {
    let params = params.map(ParamSet::tensors).unwrap_or_default();
    args.iter().map(Arg::tensor).chain(params.iter().map(Some)).collect()
}

impl<D: Device> Grove<D> {
    /// Describes a call.
    ///
    /// The signature of an input stands for all that a recording depends on: the layout; of an output of the path, where in
    /// its storage the view begins; of staged inputs that share memory, how they do.
    pub(crate) fn describe(&self, request: &Request<'_, D>, args: &[Arg<'_, D>]) -> Result<Described> {
        let specs: Vec<InputSpec<'_>> = self.specs(request, args);
        // What is on a path that ends with this call is copied before it, and then it is as any tensor from outside.
        let is_carried = self.ends_path();
        let in_place = |value: SlotValue| !is_carried && self.is_on_path(&value);
        let (plan, conflict) = match InputPlan::new(&specs, ALIGNMENT, in_place) {
            Ok(plan) => (Some(plan), None),
            Err(graphgrove_storage::Error::Refused(conflict)) => (None, Some(conflict)),
            Err(error) => return Err(error.into()),
        };
        let mut inputs = Vec::with_capacity(args.len());
        for (at, arg) in args.iter().enumerate() {
            let mutated = specs.get(at).is_some_and(|spec| spec.mutated);
            let input = self.input(at, arg, args, plan.as_ref())?;
            inputs.push(Input { mutated, ..input });
        }
        let addresses =
            request.params.map(|set| set.addresses().map(|address| Address::new(address.get())).collect());
        let mut hasher = DefaultHasher::new();
        for input in &inputs {
            let is_managed = !is_carried && matches!(input.source, Source::Managed { .. });
            (input.signature, is_managed).hash(&mut hasher);
        }
        Ok(Described { inputs, addresses: addresses.unwrap_or_default(), conflict, key: hasher.finish() })
    }

    /// Tells the tree what the signatures of a call's inputs stand for, for its reports.
    pub(crate) fn name_signatures(&mut self, args: &[Arg<'_, D>], described: &Described) {
        for (input, arg) in described.inputs.iter().zip(args) {
            match arg {
                Arg::Value(_) => {} // It is a signature by itself.
                Arg::Host(buffer) => self
                    .tree
                    .name_signature(input.signature, || format!("host memory of {} bytes", buffer.bytes())),
                Arg::Kept(tensor) => {
                    self.tree.name_signature(input.signature, || tensor.layout().to_string());
                }
                Arg::Given(tensor) => {
                    self.tree.name_signature(input.signature, || tensor.layout().to_string());
                }
            }
        }
    }

    /// The inputs and then the parameters, for the input planner.
    pub(crate) fn specs<'a>(&self, request: &Request<'a, D>, args: &'a [Arg<'_, D>]) -> Vec<InputSpec<'a>> {
        let inputs = args.iter().enumerate().map(|(at, arg)| {
            let tensor = arg.tensor();
            let moved = matches!(arg, Arg::Given(_));
            let own = at.checked_sub(request.saved);
            let mutated =
                tensor.is_some() && own.is_some_and(|own| request.data.options.mutates.contains(&own));
            InputSpec { tensor, parameter: false, moved, mutated }
        });
        let params = request.params.map(ParamSet::tensors).unwrap_or_default();
        let mutated = request.data.options.mutates_params;
        inputs
            .chain(params.iter().map(|tensor| InputSpec { mutated, ..InputSpec::parameter(tensor) }))
            .collect()
    }

    /// Whether the next call that runs in the pool ends the path, whatever is live on it.
    fn ends_path(&self) -> bool {
        self.options.pending == PendingRule::Tokens && self.tree.is_step_requested()
    }

    /// Whether a slot's value is one of the current path.
    pub(crate) fn is_on_path(&self, value: &SlotValue) -> bool {
        let Some(node) = self.by_slab.get(&value.slab) else { return false };
        let is_current = self.tree.node(*node).is_some_and(|known| known.epoch().get() == value.epoch.get());
        is_current && self.tree.path().any(|on_path| on_path == *node)
    }

    fn input(
        &self,
        at: usize,
        arg: &Arg<'_, D>,
        args: &[Arg<'_, D>],
        plan: Option<&InputPlan>,
    ) -> Result<Input> {
        let tensor = match arg {
            Arg::Value(value) => return Ok(Input::scalar(*value)),
            Arg::Host(buffer) => return Ok(Input::staged(fold(&[u64::MAX, buffer.bytes() as u64]))),
            Arg::Kept(tensor) => *tensor,
            Arg::Given(tensor) => tensor,
        };
        let layout = tensor.signature().get();
        // A stale input must not be described as anything.
        tensor.address()?;
        let shared = || match plan.and_then(|plan| shared(plan, InputIndex::new(at as u32))) {
            Some((first, shift)) => fold(&[layout, first, shift]),
            None => Signature::new(layout),
        };
        if let Some(value) = tensor.storage().slot_value()?.filter(|value| self.is_on_path(value))
            && !tensor.layout().is_empty()
            && let Some(node) = self.by_slab.get(&value.slab)
        {
            let slot = Slot { node: *node, index: SlotIndex::new(value.slot.get()) };
            let given_up = matches!(arg, Arg::Given(_)) && self.is_given_up(&value, args);
            let value = graphgrove_tree::SlotValue { slot, epoch: Epoch::new(value.epoch.get()) };
            let signature = if self.ends_path() { shared() } else { fold(&[layout, tensor.offset_bytes()]) };
            return Ok(Input { signature, source: Source::Managed { value, given_up }, mutated: false });
        }
        Ok(Input::staged(shared()))
    }

    /// Whether all handles of a slot's value are inputs of the call that it gives up.
    fn is_given_up(&self, value: &SlotValue, args: &[Arg<'_, D>]) -> bool {
        let is_it =
            |tensor: &Tensor| tensor.storage().slot_value().is_ok_and(|of| of.as_ref() == Some(value));
        let given = args.iter().filter(|arg| matches!(arg, Arg::Given(tensor) if is_it(tensor))).count();
        let slab = self.by_slab.get(&value.slab).and_then(|node| self.slab(*node));
        slab.is_some_and(|slab| {
            let holders = slab.holders(value.slot);
            holders.handles as usize == given && holders.waiting == 0 && !holders.saved
        })
    }
}

/// With which input an input shares memory, and how far behind it; none if it shares none.
fn shared(plan: &InputPlan, input: InputIndex) -> Option<(u64, u64)> {
    let Some(InputRole::Staged(staged)) = plan.role(input) else { return None };
    let group = plan.groups().get(staged.group as usize).filter(|group| group.inputs.len() > 1)?;
    Some((u64::from(group.inputs.first()?.get()), staged.offset - group.lead))
}

fn fold(words: &[u64]) -> Signature {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    Signature::new(hasher.finish())
}
