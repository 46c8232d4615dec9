//! Whether a recording fits a call.

use crate::call::{Call, Params, Source};
use crate::decide::managed_inputs;
use crate::function::{InputSet, first_moved};
use crate::liveness::{DeadMask, Liveness};
use crate::node::{Expected, ExpectedParams, Node, Role};
use crate::path::PathEntry;
use crate::reasons::Mismatch;
use crate::{InputIndex, NodeId, ParamIndex, Slot, SlotIndex, SlotValue};

/// Whether every expectation of `node` holds for `call`: [`mismatch`] finds nothing, in one pass.
///
/// `entries` is the path up to the node's parent at least. Nothing here depends on the length of the path:
/// managed inputs are compared by identity, and the parent's own demands are not checked again.
///
/// `is_staged` says of an input, by its place and value, that it is staged although it is managed; few calls
/// come to ask.
#[inline(always)]
pub(crate) fn fits<L: Liveness + ?Sized>(
    node: &Node,
    call: &Call<'_>,
    is_staged: impl Fn(usize, &SlotValue) -> bool,
    entries: &[PathEntry],
    live: &L,
) -> bool {
    if node.function != call.function
        || node.phase != call.kind.phase()
        || node.inputs.len() != call.inputs.len()
    {
        return false;
    }
    let inputs = node.inputs.iter().zip(call.inputs).enumerate();
    for (index, (expected, given)) in inputs {
        let role_fits = match &given.source {
            Source::Staged => matches!(expected.role, Role::Staged(_)),
            Source::Scalar => matches!(expected.role, Role::Scalar),
            Source::Managed { value, given_up } => match &expected.role {
                Role::Managed { slot, depth, dies } => {
                    let current =
                        entries.get(*depth as usize).is_some_and(|entry| entry.epoch == value.epoch);
                    current && *slot == value.slot && (*given_up >= *dies || gives_up(call, *slot))
                }
                Role::Staged(_) => is_staged(index, value),
                Role::Scalar => false,
            },
        };
        if !role_fits || expected.signature != given.signature || expected.mutated != given.mutated {
            return false;
        }
    }
    params_fit(node.params.as_ref(), call.params.as_ref())
        && demands_hold(node, call, live)
        && (node.returned.is_empty() || returned_that_dies(node, call).is_none())
}

#[inline(always)]
fn params_fit(expected: Option<&ExpectedParams>, given: Option<&Params<'_>>) -> bool {
    match (expected, given) {
        (Some(expected), Some(given)) if expected.set == given.set && expected.version == given.version => {
            true
        }
        (None, None) => true,
        _ => check_params(expected, given).is_ok(),
    }
}

#[inline(always)]
fn demands_hold<L: Liveness + ?Sized>(node: &Node, call: &Call<'_>, live: &L) -> bool {
    let live_bits = |demand: &DeadMask| live.live_word(demand.node, demand.word) & demand.mask;
    node.dead_before.iter().all(|demand| live_bits(demand) == 0)
        && node.dead_after.iter().all(|demand| {
            let bits = live_bits(demand);
            bits == 0 || bits & !given_up_bits(call, demand.node, demand.word) == 0
        })
}

/// The first expectation of `node` that does not hold for `call`, in the order of closeness; none if it
/// [`fits`].
pub(crate) fn mismatch<L: Liveness + ?Sized>(
    node: &Node,
    call: &Call<'_>,
    staged: &InputSet,
    entries: &[PathEntry],
    live: &L,
) -> Option<Mismatch> {
    let found = check(node, call, staged, entries, live).err();
    debug_assert_eq!(
        found.is_none(),
        fits(node, call, |index, _| node.parent.is_none() || staged.contains_at(index), entries, live),
        "{found:?}"
    );
    found
}

fn check<L: Liveness + ?Sized>(
    node: &Node,
    call: &Call<'_>,
    staged: &InputSet,
    entries: &[PathEntry],
    live: &L,
) -> Result<(), Mismatch> {
    if node.function != call.function {
        return Err(Mismatch::Function { recorded: node.function, called: call.function });
    }
    if node.phase != call.kind.phase() {
        return Err(Mismatch::Phase { recorded: node.phase, called: call.kind.phase() });
    }
    if node.inputs.len() != call.inputs.len() {
        return Err(Mismatch::InputCount { recorded: node.inputs.len(), called: call.inputs.len() });
    }
    let pairs = || (0..).map(InputIndex::new).zip(node.inputs.iter().zip(call.inputs));
    for (input, (expected, given)) in pairs() {
        if expected.signature != given.signature {
            return Err(Mismatch::Signature { input, recorded: expected.signature, called: given.signature });
        }
    }
    for (input, (expected, given)) in pairs() {
        let carried = || node.parent.is_none() || staged.contains(input);
        let fits = match (expected.role, given.source) {
            (Role::Managed { slot, depth, .. }, Source::Managed { value, .. }) => {
                let current = entries.get(depth as usize).is_some_and(|entry| entry.epoch == value.epoch);
                if slot != value.slot || !current {
                    return Err(Mismatch::ManagedInput { input, recorded: slot, called: value.slot });
                }
                true
            }
            (Role::Staged(_), Source::Managed { .. }) => carried(),
            (Role::Staged(_), Source::Staged) | (Role::Scalar, Source::Scalar) => true,
            _ => false,
        };
        if !fits || expected.mutated != given.mutated {
            return Err(Mismatch::Use { input });
        }
    }
    if !params_fit(node.params.as_ref(), call.params.as_ref()) {
        check_params(node.params.as_ref(), call.params.as_ref())?;
    }
    for (input, (expected, _)) in pairs() {
        if let Role::Managed { slot, dies: true, .. } = expected.role
            && !gives_up(call, slot)
        {
            return Err(Mismatch::InputStillHeld { input });
        }
    }
    if let Some(input) = returned_that_dies(node, call) {
        return Err(Mismatch::InputStillHeld { input });
    }
    for demand in &node.dead_before {
        still_live(demand, live.live_word(demand.node, demand.word) & demand.mask)?;
    }
    for demand in &node.dead_after {
        let bits = live.live_word(demand.node, demand.word) & demand.mask;
        if bits != 0 {
            still_live(demand, bits & !given_up_bits(call, demand.node, demand.word))?;
        }
    }
    Ok(())
}

/// Compares the parameters by address. One side has some, or there would be nothing to compare.
#[cold]
fn check_params(expected: Option<&ExpectedParams>, given: Option<&Params<'_>>) -> Result<(), Mismatch> {
    let (recorded, called) = match (expected, given) {
        (Some(expected), Some(given)) if expected.addresses.len() == given.addresses.len() => {
            (expected, given)
        }
        _ => {
            return Err(Mismatch::ParamCount {
                recorded: expected.map_or(0, |expected| expected.addresses.len()),
                called: given.map_or(0, |given| given.addresses.len()),
            });
        }
    };
    match first_moved(&recorded.addresses, called, &recorded.staged, 0) {
        None => Ok(()),
        Some(_) if recorded.set != called.set => {
            Err(Mismatch::ParamSet { recorded: recorded.set, called: called.set })
        }
        Some(param) => {
            let at = param.get() as usize;
            Err(Mismatch::ParamAddress {
                param,
                recorded: recorded.addresses[at],
                called: called.addresses[at],
            })
        }
    }
}

fn still_live(demand: &DeadMask, bits: u64) -> Result<(), Mismatch> {
    SlotIndex::lowest(demand.word, bits)
        .map_or(Ok(()), |index| Err(Mismatch::StillLive { slot: Slot { node: demand.node, index } }))
}

/// Whether any input of `call` moves the last handle of this slot into it: two inputs may be one value, and
/// one of them gives it up for both.
#[cold]
fn gives_up(call: &Call<'_>, slot: Slot) -> bool {
    given_up_bits(call, slot.node, slot.index.word()) & slot.index.bit() != 0
}

/// An input whose storage an output of `node` shares, so that it outlives the call even if the call gives it up,
/// and whose memory the recording reuses: as another input it died there when the node was recorded.
#[cold]
fn returned_that_dies(node: &Node, call: &Call<'_>) -> Option<InputIndex> {
    let dies = |slot: Slot| {
        let in_place = node
            .inputs
            .iter()
            .any(|input| matches!(input.role, Role::Managed { slot: read, dies: true, .. } if read == slot));
        in_place || node.dead_after.iter().flat_map(|mask| mask.slots()).any(|dead| dead == slot)
    };
    managed_inputs(call)
        .find(|(index, value)| node.returned.contains(*index) && dies(value.slot))
        .map(|(index, _)| index)
}

/// The slots of one liveness word whose last handle is moved into `call`.
fn given_up_bits(call: &Call<'_>, node: NodeId, word: u32) -> u64 {
    let given_up = call.inputs.iter().filter_map(|input| match input.source {
        Source::Managed { value, given_up: true } => Some(value.slot),
        _ => None,
    });
    given_up
        .filter(|slot| slot.node == node && slot.index.word() == word)
        .fold(0, |bits, slot| bits | slot.index.bit())
}

/// Every parameter that is at another address than recorded and is not staged.
pub(crate) fn moved_params(expected: &ExpectedParams, given: &Params<'_>) -> Vec<ParamIndex> {
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(index) = first_moved(&expected.addresses, given, &expected.staged, from) {
        from = index.get() as usize + 1;
        all.push(index);
    }
    all
}

/// Every managed input that is another output than recorded.
pub(crate) fn changed_inputs(expected: &[Expected], call: &Call<'_>) -> Vec<InputIndex> {
    let pairs = (0..).map(InputIndex::new).zip(expected.iter().zip(call.inputs));
    pairs
        .filter_map(|(index, (expected, given))| match (expected.role, given.source) {
            (Role::Managed { slot, .. }, Source::Managed { value, .. }) if slot != value.slot => Some(index),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, FunctionId, Input, Signature};
    use slotmap::SlotMap;

    #[test]
    fn what_is_given_up_counts_for_its_own_node_and_word_alone() {
        let mut map: SlotMap<NodeId, ()> = SlotMap::with_key();
        let (a, b) = (map.insert(()), map.insert(()));
        let value = |node, index| SlotValue::new(node, SlotIndex::new(index), Epoch::new(1));
        let signature = Signature::new(1);
        let inputs = [
            Input::given_up(signature, value(a, 0)),
            Input::given_up(signature, value(a, 3)),
            Input::given_up(signature, value(a, 65)),
            Input::managed(signature, value(a, 2)),
            Input::given_up(signature, value(b, 4)),
            Input::staged(signature),
        ];
        let call = Call::inference(FunctionId::new(0), &inputs);
        let bits = [(a, 0), (a, 1), (b, 0), (b, 1)].map(|(node, word)| given_up_bits(&call, node, word));
        assert_eq!(bits, [0b1001, 0b10, 0b1_0000, 0]);
    }
}
