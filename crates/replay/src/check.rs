//! The compiled check: whether a node may be replayed for a call. It changes nothing.

use graphgrove_device::{Device, DevicePtr, HostMemory};
use graphgrove_storage::{InputIndex, LiveWords, Signature, SlotIndex, Tensor};
use slotmap::SlotMap;

use crate::node::{Node, NotStaged, Source};
use crate::path::PathSlabs;
use crate::staging::StagedGroup;
use crate::{AsInput, Call, Expected, Input, Mismatch, NodeKey, ParamSet};

/// Whether the addresses that the exec has are those of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    Same,
    /// They are not, and [`Found`] may say which they are.
    Changed,
}

/// Where the staged inputs of a call lie. It is kept from call to call, so that no check allocates.
#[derive(Default)]
pub(crate) struct Found {
    /// The address of each input, parameters last; null for what is not staged.
    pub(crate) located: Vec<DevicePtr>,
    /// The call that they are those of, by where it lies; zero if that is none.
    call: usize,
    /// From where to where each group lies, and its number.
    regions: Regions,
}

type Regions = Vec<(u64, u64, u32)>;

impl Found {
    /// Makes room for what a check of the node finds.
    pub(crate) fn reserve<D: Device>(&mut self, node: &Node<D>) {
        self.regions.reserve(node.staging.groups.len());
        self.located.reserve(node.staging.written.len());
    }

    fn clear(&mut self, inputs: usize) -> &mut [DevicePtr] {
        self.call = 0;
        self.located.clear();
        self.located.resize(inputs, DevicePtr::NULL);
        &mut self.located
    }

    /// Forgets the call. Another one may come to lie where it did.
    pub(crate) fn forget(&mut self) {
        self.call = 0;
    }

    /// Whether it is this call that was located, by the check that it passed last.
    pub(crate) fn is_of<D: Device, I>(&self, call: &Call<'_, D, I>) -> bool {
        self.call == std::ptr::from_ref(call).addr()
    }

    /// Locates the staged inputs of a call, and its staged parameters, which were found to fit.
    pub(crate) fn locate<D: Device, I: AsInput<D>>(&mut self, node: &Node<D>, call: &Call<'_, D, I>) {
        let located = self.clear(node.staging.written.len());
        for member in node.staging.groups.iter().flat_map(|group| &group.members) {
            let tensor = call.tensor(member.input as usize);
            if let Some(at) = located.get_mut(member.input as usize) {
                *at = tensor.and_then(Tensor::locate).unwrap_or(DevicePtr::NULL);
            }
        }
    }
}

/// Checks `node` in the order of its expectations. `slots` are the slabs of the path up to the node's parent at least.
#[inline(always)]
pub(crate) fn check<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
    found: &mut Found,
) -> Result<Addresses, Mismatch> {
    let mut changed = node.staging.is_uncertain;
    let mut is_located = false;
    match (&node.params, call.params) {
        (Some(planned), Some(given)) if planned.set == given.id() && planned.version == given.version() => {}
        (None, None) => {}
        _ => changed |= check_params(node, call.params)?,
    }
    if node.expected.len() != call.inputs.len() {
        return Err(Mismatch::InputCount { recorded: node.expected.len(), called: call.inputs.len() });
    }
    if !are_as_written(&node.staging.checks, call.inputs) {
        let located = found.clear(node.staging.written.len());
        match staged_fit(&node.staging.checks, call.inputs, located) {
            Some(moved) => changed |= moved,
            None => return Err(refuse_first(node, call, slots)),
        }
        // Of parameters it knows nothing.
        is_located = node.staged_params.is_empty();
    }
    if !node.staging.hosts.is_empty() {
        changed |= node.staging.has_other_hosts(call.inputs);
    }
    for at in &node.not_staged {
        if !is_output(at, call, slots) && !fits(node, call, slots, at.input as usize) {
            return Err(refuse_first(node, call, slots));
        }
    }
    if !node.dead_before.hold(slots) || !node.dead_after.hold(slots) {
        check_dead(node, call, slots)?;
    }
    if !node.sources.is_empty() {
        check_sources(node, call)?;
    }
    if node.slab.any_live()
        && let Some(output) = node.slab.pinned()
    {
        return Err(Mismatch::Pinned { output });
    }
    if !changed {
        return Ok(Addresses::Same);
    }
    if !is_located {
        found.locate(node, call);
    }
    check_changed(node, call, found)?;
    found.call = std::ptr::from_ref(call).addr();
    Ok(Addresses::Changed)
}

/// What a first run asks of its call. Liveness is not asked, and outputs of the path are not looked at: the recording may have
/// given them up.
#[cold]
pub(crate) fn check_first<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
    found: &mut Found,
) -> Result<Addresses, Mismatch> {
    let mut changed = node.staging.is_uncertain | check_params(node, call.params)?;
    if node.expected.len() != call.inputs.len() {
        return Err(Mismatch::InputCount { recorded: node.expected.len(), called: call.inputs.len() });
    }
    let from_elsewhere = |at: &usize| !matches!(node.expected.get(*at), Some(Expected::Managed { .. }));
    let mut asked = (0..node.expected.len()).filter(from_elsewhere);
    if let Some(at) = asked.find(|at| !fits(node, call, slots, *at)) {
        return Err(refuse(node, call, slots, at));
    }
    let located = found.clear(node.staging.written.len());
    changed |= staged_fit(&node.staging.checks, call.inputs, located).unwrap_or(true);
    changed |= node.staging.has_other_hosts(call.inputs);
    if !changed {
        return Ok(Addresses::Same);
    }
    found.locate(node, call);
    check_changed(node, call, found)?;
    found.call = std::ptr::from_ref(call).addr();
    Ok(Addresses::Changed)
}

/// What is checked of one staged input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedCheck {
    pub(crate) input: u32,
    pub(crate) signature: Signature,
    /// The address that the exec has.
    pub(crate) written: DevicePtr,
}

/// Whether all staged inputs lie in memory that stays, where the exec reads them: then they fit, and no address has changed.
#[inline]
fn are_as_written<D: Device, I: AsInput<D>>(checks: &[StagedCheck], inputs: &[I]) -> bool {
    let is_as_written = |check: &StagedCheck, input: &I| {
        input.is_tensor_and(|tensor| tensor.is_fixed_at(check.signature, check.written))
    };
    // As many checks as inputs are one for each, in their order, and need not be looked up.
    if checks.len() == inputs.len() {
        return checks.iter().zip(inputs).all(|(check, input)| is_as_written(check, input));
    }
    checks
        .iter()
        .all(|check| inputs.get(check.input as usize).is_some_and(|input| is_as_written(check, input)))
}

/// Whether all staged inputs fit, and then whether any address is another than the exec has. It says where they are.
///
/// It is a function of its own so that the compiler keeps all that the loop needs in registers.
#[inline(never)]
fn staged_fit<D: Device, I: AsInput<D>>(
    checks: &[StagedCheck],
    inputs: &[I],
    located: &mut [DevicePtr],
) -> Option<bool> {
    let mut changed = false;
    for check in checks {
        let place = check.input as usize;
        let at = inputs.get(place)?.as_input().tensor()?.locate_as(check.signature)?;
        *located.get_mut(place)? = at;
        changed |= at != check.written;
    }
    Some(changed)
}

/// Whether an input is the output of the path that it was when it was recorded, as it was handed back, and nobody else has it if it
/// dies by the call. False says nothing.
#[inline]
fn is_output<D: Device, I: AsInput<D>>(
    at: &NotStaged,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> bool {
    match (at.output, call.input(at.input as usize)) {
        (Some((place, slot)), Some(Input::Tensor { tensor, given_up })) => {
            let Some(slab) = slots.slab(place) else { return false };
            tensor.is_output_of(slab, slot) && (!at.dies || (given_up && slab.is_sole_handle(slot)))
        }
        _ => false,
    }
}

/// Whether an input fits that is not staged.
fn fits<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
    at: usize,
) -> bool {
    match (node.expected.get(at), call.input(at)) {
        (
            Some(Expected::Managed { place, slot, offset, signature, dies }),
            Some(Input::Tensor { tensor, given_up }),
        ) => {
            let Some(slab) = slots.slab(*place) else { return false };
            tensor.is_value_of(slab, *slot)
                && tensor.offset_bytes() == *offset
                && tensor.signature() == *signature
                && (!*dies || (given_up && gives_up(call, slots, *place, *slot)))
        }
        (Some(Expected::Value(recorded)), Some(Input::Value(called))) => *recorded == called,
        (Some(Expected::Host { bytes }), Some(Input::Host(buffer))) => *bytes == buffer.bytes(),
        (Some(Expected::Staged { signature, .. }), Some(Input::Tensor { tensor, .. })) => {
            tensor.signature() == *signature && tensor.locate().is_some()
        }
        (Some(Expected::Empty { signature }), Some(Input::Tensor { tensor, .. })) => {
            tensor.signature() == *signature && tensor.storage().stale().is_none()
        }
        _ => false,
    }
}

/// Names the first input that does not fit.
#[cold]
fn refuse_first<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> Mismatch {
    let at = (0..node.expected.len()).find(|at| !fits(node, call, slots, *at));
    refuse(node, call, slots, at.unwrap_or(node.expected.len()))
}

/// Whether the call holds the last handles of a slot and gives all of them up. One of them it does give up.
fn gives_up<D: Device, I: AsInput<D>>(
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
    place: u32,
    slot: SlotIndex,
) -> bool {
    let Some(slab) = slots.slab(place) else { return false };
    let holders = slab.holders(slot);
    if holders.waiting > 0 || holders.saved {
        return false;
    }
    // Looking through all inputs for each would take a backward of many saved outputs the square of their number.
    if holders.handles == 1 {
        return true;
    }
    let is_given = |input: &&I| match input.as_input() {
        Input::Tensor { tensor, given_up } => given_up && tensor.is_value_of(slab, slot),
        Input::Host(_) | Input::Value(_) => false,
    };
    let given = call.inputs.iter().filter(is_given).count();
    holders.handles as usize == given
}

/// Names the expectation that an input does not meet.
#[cold]
pub(crate) fn refuse<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
    at: usize,
) -> Mismatch {
    let input = InputIndex::new(at as u32);
    let (Some(expected), Some(given)) = (node.expected.get(at), call.input(at)) else {
        return Mismatch::InputCount { recorded: node.expected.len(), called: call.inputs.len() };
    };
    let Input::Tensor { tensor, .. } = given else {
        return match (expected, given) {
            (Expected::Value(recorded), Input::Value(called)) => {
                Mismatch::Value { input, recorded: *recorded, called }
            }
            (Expected::Host { bytes }, Input::Host(buffer)) => {
                Mismatch::HostBytes { input, recorded: *bytes, called: buffer.bytes() }
            }
            _ => Mismatch::Kind { input },
        };
    };
    let (Expected::Staged { signature, .. }
    | Expected::Managed { signature, .. }
    | Expected::Empty { signature }) = expected
    else {
        return Mismatch::Kind { input };
    };
    if let Some(stale) = tensor.storage().stale() {
        return Mismatch::Stale { input, stale };
    }
    if tensor.signature() != *signature {
        return Mismatch::Signature { input, recorded: *signature, called: tensor.signature() };
    }
    match expected {
        Expected::Managed { place, slot, offset, .. } => {
            let is_it = slots.slab(*place).is_some_and(|slab| tensor.is_value_of(slab, *slot))
                && tensor.offset_bytes() == *offset;
            if is_it {
                Mismatch::StillHeld { input }
            } else {
                Mismatch::Managed { input, place: *place, slot: *slot }
            }
        }
        _ => Mismatch::Kind { input },
    }
}

/// Compares parameters whose set or version is not the one seen last, and says whether a staged one is elsewhere.
#[cold]
fn check_params<D: Device>(node: &Node<D>, given: Option<&ParamSet>) -> Result<bool, Mismatch> {
    let recorded = node.params.as_ref().map(|planned| &planned.places[..]).unwrap_or_default();
    let called = given.map(|given| &given.places()[..]).unwrap_or_default();
    if recorded.len() != called.len() {
        return Err(Mismatch::ParamCount { recorded: recorded.len(), called: called.len() });
    }
    let mut changed = false;
    for (param, (recorded, called)) in recorded.iter().zip(called).enumerate() {
        if recorded.signature != called.signature {
            return Err(Mismatch::ParamSignature { param });
        }
        if node.is_param_staged(param) {
            let written = node.staging.written.get(node.expected.len() + param);
            changed |= written != Some(&called.address);
        } else if recorded.address != called.address {
            return Err(Mismatch::ParamMoved { param, recorded: recorded.address, called: called.address });
        }
    }
    Ok(changed)
}

/// Finds what is live and should not be, unless the call gives it up and may.
#[cold]
fn check_dead<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> Result<(), Mismatch> {
    if let Some((place, slot)) = node.dead_before.violations(slots).next() {
        return Err(Mismatch::StillLive { place, slot });
    }
    let mut live = node.dead_after.violations(slots);
    match live.find(|(place, slot)| !gives_up(call, slots, *place, *slot)) {
        Some((place, slot)) => Err(Mismatch::StillLive { place, slot }),
        None => Ok(()),
    }
}

/// Outputs in memory of others have to lie in it, which a hand-back behind the launch would find out too late.
#[cold]
fn check_sources<D: Device, I: AsInput<D>>(node: &Node<D>, call: &Call<'_, D, I>) -> Result<(), Mismatch> {
    for (output, source) in &node.sources {
        let outside = Mismatch::OutputOutside { output: *output };
        let Some(planned) = node.slab.outputs().get(output.get() as usize) else { return Err(outside) };
        let tensor = match source {
            Source::Input(input) => call.tensor(*input as usize),
            Source::Constant(tensor) => Some(tensor),
        };
        let fits = tensor.zip(planned.layout.as_deref()).is_some_and(|(tensor, layout)| {
            let is_slot = planned.class.meaning().hand_back == graphgrove_storage::HandBack::EarlierHandle;
            let from = if is_slot { 0 } else { tensor.offset_bytes() };
            let end =
                from.checked_add_signed(planned.offset).and_then(|at| at.checked_add(layout.span_bytes()));
            tensor.storage().bytes().is_ok_and(|bytes| end.is_some_and(|end| end <= bytes))
        });
        if !fits {
            return Err(outside);
        }
    }
    Ok(())
}

/// Checks new addresses: alignment where kernels have them in their arguments, and that inputs share memory as recorded.
#[cold]
fn check_changed<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    Found { located, regions, .. }: &mut Found,
) -> Result<(), Mismatch> {
    let address = |input: u32| located.get(input as usize).copied().unwrap_or(DevicePtr::NULL);
    if let Some(input) = node.staging.parted_host(call.inputs) {
        return Err(Mismatch::Sharing { input: InputIndex::new(input) });
    }
    let groups = &node.staging.groups;
    let mutates = node.mutates_in_place || groups.iter().any(|group| group.mutated);
    regions.clear();
    for (number, group) in (0..).zip(groups) {
        let Some(leader) = group.members.first() else { continue };
        let (input, start) = (InputIndex::new(leader.input), address(leader.input));
        let is_as_recorded = |shift: u64, input: u32| start.checked_add(shift) == Some(address(input));
        // The first is where the others are counted from.
        if !group.members.iter().skip(1).all(|member| is_as_recorded(member.shift, member.input)) {
            return Err(Mismatch::Sharing { input });
        }
        if let Some((remainder, alignment)) = group.alignment
            && start.get() % alignment != remainder
        {
            return Err(Mismatch::Misaligned { input, address: start, alignment });
        }
        let end = start.get().saturating_add(group.span);
        // What lies where it lay is not asked again: it may lie between the elements of what is used in place.
        if mutates && node.staging.written.get(leader.input as usize) != Some(&start) {
            let before = node.in_place.partition_point(|(at, _)| *at < end);
            let reach = before.checked_sub(1).and_then(|last| node.in_place.get(last));
            if reach.is_some_and(|(_, reach)| *reach > start.get()) {
                return Err(Mismatch::Sharing { input });
            }
        }
        regions.push((start.get(), end, number));
    }
    regions.sort_unstable();
    match regions.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        true => Err(Mismatch::Sharing { input: first_shared(regions, groups) }),
        false => Ok(()),
    }
}

/// The first input of the first group that lies in another one's memory.
fn first_shared(regions: &Regions, groups: &[StagedGroup]) -> InputIndex {
    let meets = |a: &(u64, u64, u32)| regions.iter().any(|b| a.2 != b.2 && a.0 < b.1 && b.0 < a.1);
    let first = regions.iter().filter(|region| meets(region)).map(|(_, _, group)| *group).min();
    let group = first.and_then(|first| groups.get(first as usize));
    InputIndex::new(group.and_then(|group| group.members.first()).map_or(0, |leader| leader.input))
}

/// What is live behind a place of the path: a node that runs in its stead would run over it.
pub(crate) fn tail_live<D: Device>(
    nodes: &SlotMap<NodeKey, Node<D>>,
    path: &[NodeKey],
    depth: u32,
) -> Result<(), Mismatch> {
    let slots = PathSlabs { nodes, path };
    for place in depth..slots.places() {
        if let Some(slot) = slots.slab(place).and_then(|slab| slab.live().next()) {
            return Err(Mismatch::TailLive { place, slot });
        }
    }
    Ok(())
}
