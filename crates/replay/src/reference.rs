//! The reference path: every question asked anew at each call, one thing at a time.
//!
//! It knows nothing of what the compiled check leaves out because something else implies it. What it decides is right by
//! being simple, and the compiled check has to decide the same.

use graphgrove_device::{Device, DevicePtr, HostMemory};
use graphgrove_storage::{
    DeadMask, HandBack, InputIndex, Outputs, Slab, SlotIndex, StorageCache, StorageId, Tensor,
};

use crate::check::Addresses;
use crate::node::{Node, Source};
use crate::path::PathSlabs;
use crate::staging::StagedGroup;
use crate::{AsInput, Call, Error, Expected, Input, Mismatch, ParamSet};

/// Whether a node may be replayed for a call.
pub(crate) fn check<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> Result<Addresses, Mismatch> {
    check_params(node, call)?;
    if node.expected.len() != call.inputs.len() {
        return Err(Mismatch::InputCount { recorded: node.expected.len(), called: call.inputs.len() });
    }
    for (at, (expected, given)) in node.expected.iter().zip(call.inputs).enumerate() {
        check_input(InputIndex::new(at as u32), expected, given.as_input(), call, slots)?;
    }
    check_dead(node, call, slots)?;
    check_sources(node, call)?;
    if let Some(output) = node.slab.live().find(|slot| node.slab.is_pinned(*slot)) {
        return Err(Mismatch::Pinned { output });
    }
    check_sharing(node, call, slots)?;
    Ok(Addresses::Changed)
}

fn check_params<D: Device, I: AsInput<D>>(node: &Node<D>, call: &Call<'_, D, I>) -> Result<(), Mismatch> {
    let recorded = node.params.as_ref().map(|planned| &planned.places[..]).unwrap_or_default();
    let called = call.params.map(ParamSet::tensors).unwrap_or_default();
    if recorded.len() != called.len() {
        return Err(Mismatch::ParamCount { recorded: recorded.len(), called: called.len() });
    }
    for (param, (recorded, tensor)) in recorded.iter().zip(called).enumerate() {
        if tensor.signature() != recorded.signature {
            return Err(Mismatch::ParamSignature { param });
        }
        let called = address(Some(tensor));
        if called != recorded.address && !node.is_param_staged(param) {
            return Err(Mismatch::ParamMoved { param, recorded: recorded.address, called });
        }
    }
    Ok(())
}

fn check_input<D: Device, I: AsInput<D>>(
    input: InputIndex,
    expected: &Expected,
    given: Input<'_, D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> Result<(), Mismatch> {
    match (*expected, given) {
        (Expected::Value(recorded), Input::Value(called)) if recorded != called => {
            Err(Mismatch::Value { input, recorded, called })
        }
        (Expected::Host { bytes }, Input::Host(buffer)) if bytes != buffer.bytes() => {
            Err(Mismatch::HostBytes { input, recorded: bytes, called: buffer.bytes() })
        }
        (Expected::Value(_), Input::Value(_)) | (Expected::Host { .. }, Input::Host(_)) => Ok(()),
        (
            Expected::Staged { signature, .. }
            | Expected::Empty { signature }
            | Expected::Managed { signature, .. },
            Input::Tensor { tensor, .. },
        ) => {
            if let Some(stale) = tensor.storage().stale() {
                return Err(Mismatch::Stale { input, stale });
            }
            if tensor.signature() != signature {
                return Err(Mismatch::Signature { input, recorded: signature, called: tensor.signature() });
            }
            let Expected::Managed { place, slot, offset, dies, .. } = *expected else { return Ok(()) };
            let slab = slots.slab(place);
            if !slab.is_some_and(|slab| is_in_slot(tensor, slab, slot)) || tensor.offset_bytes() != offset {
                return Err(Mismatch::Managed { input, place, slot });
            }
            let is_given = matches!(given, Input::Tensor { given_up: true, .. });
            if dies && !(is_given && gives_up(call, slots, place, slot)) {
                return Err(Mismatch::StillHeld { input });
            }
            Ok(())
        }
        _ => Err(Mismatch::Kind { input }),
    }
}

/// Polls every slot that the node and all its ancestors rely on.
fn check_dead<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> Result<(), Mismatch> {
    let holds = |masks: &[DeadMask], place: u32, slot: SlotIndex| {
        masks
            .iter()
            .any(|mask| (mask.place, mask.word) == (place, slot.word()) && mask.mask & slot.bit() != 0)
    };
    let dies = |place: u32, slot: SlotIndex| {
        node.expected.iter().any(|expected| {
            matches!(expected, Expected::Managed { place: at, slot: of, dies: true, .. } if (*at, *of) == (place, slot))
        })
    };
    for may_be_given_up in [false, true] {
        for mask in node.implied.masks() {
            for slot in (64 * mask.word..64 * mask.word + 64).map(SlotIndex::new) {
                let place = mask.place;
                let asked = mask.mask & slot.bit() != 0
                    && !dies(place, slot)
                    && holds(node.dead_after.masks(), place, slot) == may_be_given_up;
                if asked
                    && slots.slab(place).is_some_and(|slab| slab.is_live(slot))
                    && !(may_be_given_up && gives_up(call, slots, place, slot))
                {
                    return Err(Mismatch::StillLive { place, slot });
                }
            }
        }
    }
    Ok(())
}

fn check_sources<D: Device, I: AsInput<D>>(node: &Node<D>, call: &Call<'_, D, I>) -> Result<(), Mismatch> {
    for (output, source) in &node.sources {
        let tensor = match source {
            Source::Input(input) => call.tensor(*input as usize).cloned(),
            Source::Constant(tensor) => Some(tensor.clone()),
        };
        let planned = node.slab.outputs().get(output.get() as usize);
        let made = tensor.zip(planned).and_then(|(tensor, planned)| {
            let is_slot = planned.class.meaning().hand_back == HandBack::EarlierHandle;
            let from = if is_slot { 0 } else { tensor.offset_bytes() };
            let offset = from.checked_add_signed(planned.offset)?;
            Tensor::new(tensor.into_storage(), planned.layout.as_deref()?.clone(), offset).ok()
        });
        if made.is_none() {
            return Err(Mismatch::OutputOutside { output: *output });
        }
    }
    Ok(())
}

/// Compares every staged input with every other and with everything that is used in place.
fn check_sharing<D: Device, I: AsInput<D>>(
    node: &Node<D>,
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
) -> Result<(), Mismatch> {
    if let Some(input) = node.staging.parted_host(call.inputs) {
        return Err(Mismatch::Sharing { input: InputIndex::new(input) });
    }
    let groups = &node.staging.groups;
    let start_of = |input: u32| address(call.tensor(input as usize)).get();
    let region = |group: &StagedGroup| {
        let start = group.members.first().map_or(0, |leader| start_of(leader.input));
        (start, start.saturating_add(group.span))
    };
    let meet = |(a, a_end): (u64, u64), (b, b_end): (u64, u64)| a < b_end && b < a_end;
    let mutates = node.mutates_in_place || groups.iter().any(|group| group.mutated);
    for group in groups {
        let Some(leader) = group.members.first() else { continue };
        let (input, (start, end)) = (InputIndex::new(leader.input), region(group));
        for member in &group.members {
            if start_of(member.input) != start.saturating_add(member.shift) {
                return Err(Mismatch::Sharing { input });
            }
        }
        if let Some((remainder, alignment)) = group.alignment
            && start % alignment != remainder
        {
            return Err(Mismatch::Misaligned { input, address: DevicePtr::new(start), alignment });
        }
        // The plan of the recording looked at single elements, and let those pass that lie between others.
        let has_moved = node.staging.written.get(leader.input as usize).is_none_or(|at| at.get() != start);
        if mutates && has_moved && in_place(node, slots).any(|other| meet((start, end), other)) {
            return Err(Mismatch::Sharing { input });
        }
    }
    for (at, a) in groups.iter().enumerate() {
        let shares = |b: &StagedGroup| meet(region(a), region(b));
        if groups.iter().enumerate().any(|(other, b)| other != at && shares(b)) {
            let input = a.members.first().map_or(0, |leader| leader.input);
            return Err(Mismatch::Sharing { input: InputIndex::new(input) });
        }
    }
    Ok(())
}

/// The memory of inputs that are used where they are.
fn in_place<D: Device>(node: &Node<D>, slots: &PathSlabs<'_, D>) -> impl Iterator<Item = (u64, u64)> {
    let places = node.params.as_ref().map(|planned| &planned.places[..]).unwrap_or_default();
    let params = places
        .iter()
        .enumerate()
        .filter(|(param, place)| !node.is_param_staged(*param) && !place.address.is_null());
    let params = params.map(|(_, place)| (place.address, place.span));
    let managed = node.expected.iter().filter_map(|expected| match expected {
        Expected::Managed { place, slot, .. } => slots.slab(*place)?.block(*slot),
        _ => None,
    });
    params.chain(managed).map(|(start, bytes)| (start.get(), start.get().saturating_add(bytes)))
}

/// Takes every output, one at a time, and looks its storage up among those of the path, if it brings one of its own.
///
/// # Errors
/// [`Error::Storage`] if an output's block is that of another live storage.
pub(crate) fn take(mut outputs: Outputs, cache: &mut StorageCache) -> Result<Vec<Option<Tensor>>, Error> {
    let mut taken = Vec::new();
    for output in (0..outputs.len() as u32).map(SlotIndex::new) {
        let is_cached = outputs.class(output).is_some_and(|class| class.meaning().cached);
        let tensor = outputs.take(output);
        if let Some(tensor) = tensor.as_ref().filter(|_| is_cached) {
            cache.add(tensor.storage())?;
        }
        taken.push(tensor);
    }
    Ok(taken)
}

/// Whether the tensor is a view of what the slab's last run left in the slot.
fn is_in_slot(tensor: &Tensor, slab: &Slab, slot: SlotIndex) -> bool {
    match tensor.storage().id() {
        Ok(Some(StorageId::Slot(value))) => {
            value.slab == slab.id() && value.slot == slot && value.epoch == slab.epoch()
        }
        _ => false,
    }
}

/// Whether all handles of a slot are inputs of the call that it gives up.
fn gives_up<D: Device, I: AsInput<D>>(
    call: &Call<'_, D, I>,
    slots: &PathSlabs<'_, D>,
    place: u32,
    slot: SlotIndex,
) -> bool {
    let Some(slab) = slots.slab(place) else { return false };
    let mut given = 0;
    for input in call.inputs {
        if let Input::Tensor { tensor, given_up: true } = input.as_input()
            && is_in_slot(tensor, slab, slot)
        {
            given += 1;
        }
    }
    let holders = slab.holders(slot);
    !holders.saved && holders.waiting == 0 && holders.handles == given
}

fn address(tensor: Option<&Tensor>) -> DevicePtr {
    tensor.and_then(|tensor| tensor.address().ok()).unwrap_or(DevicePtr::NULL)
}
