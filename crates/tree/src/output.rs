//! What a call leaves behind: its outputs, and what becomes of them at a new step.

use crate::function::InputSet;
use crate::{InputIndex, SlotIndex, SlotValue};
use smallvec::SmallVec;

/// What becomes of an output that is still live when a new step ends its path.
///
/// The rules are ordered: of all outputs that share one storage, aliases included, the greatest rule holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OldOutput {
    /// Its handles become stale: reading it is an error from then on.
    #[default]
    Error,
    /// Its storage is copied out of the pool, once, and its handles go on reading the copy.
    CopyOut,
    /// It is still needed: its path goes on, and what runs next is recorded so that it leaves the output
    /// alone. Once the path has grown to a limit the output is copied out instead, so that the path can end.
    ///
    /// So it is at once where a warm-up is the last thing on the path that is needed, be the output its own or
    /// that of a recording before it: nothing is recorded below a warm-up, whose addresses are not stable, so
    /// keeping it would hold back recording for as long as the output lives.
    Keep,
}

/// One output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where the output's memory comes from.
    pub kind: OutputKind,
    /// What becomes of the output at a new step; none means as the function says.
    pub old: Option<OldOutput>,
    /// Whether the output is saved for the backward: at a new step its storage is copied out while the token of
    /// this call is pending, even where it would otherwise become stale. A forward that saves its own input
    /// says so of an output that is an alias of the input.
    pub saved: bool,
}

/// Where an output's memory comes from. Only a fresh output has a slot whose liveness counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Memory that the call itself obtained.
    Fresh,
    /// The memory of this input: a managed input's slot stays live through the output.
    AliasOfInput(InputIndex),
    /// The memory of an earlier, fresh output of the same call.
    AliasOfOutput(SlotIndex),
    /// The memory of a parameter or a constant, which is not the pool's.
    Persistent,
    /// A tensor without elements, hence without memory.
    Empty,
    /// Not a tensor.
    NotTensor,
}

impl Output {
    /// An output in memory of its own.
    #[must_use]
    pub const fn fresh() -> Self {
        Self::of(OutputKind::Fresh)
    }

    /// An output in memory of its own that the backward will read.
    #[must_use]
    pub const fn saved() -> Self {
        Self { saved: true, ..Self::fresh() }
    }

    /// An output of this kind.
    #[must_use]
    pub const fn of(kind: OutputKind) -> Self {
        Self { kind, old: None, saved: false }
    }

    /// The same output with its own rule for a new step.
    #[must_use]
    pub const fn at_new_step(self, old: OldOutput) -> Self {
        Self { old: Some(old), ..self }
    }
}

/// The inputs whose storage one of these outputs shares.
pub(crate) fn returned_inputs(outputs: &[Output]) -> InputSet {
    let mut returned = InputSet::default();
    for output in outputs {
        if let OutputKind::AliasOfInput(input) = output.kind {
            returned.insert(input);
        }
    }
    returned
}

/// The slots of a node whose liveness counts, as bits of its liveness words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackedSlots(SmallVec<[u64; 2]>);

impl TrackedSlots {
    pub(crate) fn of(outputs: &[Output]) -> Self {
        let mut words = SmallVec::new();
        for (index, output) in (0..).map(SlotIndex::new).zip(outputs) {
            let word = index.word() as usize;
            if output.kind == OutputKind::Fresh {
                if words.len() <= word {
                    words.resize(word + 1, 0);
                }
                words[word] |= index.bit();
            }
        }
        Self(words)
    }

    /// The (word, bits) pairs.
    pub(crate) fn words(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(self.0.iter().copied())
    }

    pub(crate) fn contains(&self, index: SlotIndex) -> bool {
        self.0.get(index.word() as usize).is_some_and(|bits| bits & index.bit() != 0)
    }
}

/// A live slot that a new step touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldSlot {
    /// The value in the slot.
    pub value: SlotValue,
    /// The function that made it.
    pub producer: crate::FunctionId,
    /// The step in which it was made.
    pub made_in: crate::Step,
    /// What the layer above must do with it.
    pub fate: Fate,
}

/// What the layer above must do with a live slot of a path that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Make every handle of it stale.
    Invalidate,
    /// Copy its storage out of the pool and point its handles at the copy.
    CopyOut,
    /// As [`Fate::CopyOut`]; a pending backward needs the value, whatever the outputs' own rule says.
    CopyOutForBackward(crate::TokenId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fresh_outputs_are_tracked() {
        let mut outputs = vec![
            Output::fresh(),
            Output::of(OutputKind::AliasOfInput(InputIndex::new(0))),
            Output::of(OutputKind::AliasOfOutput(SlotIndex::new(0))),
            Output::of(OutputKind::Persistent),
            Output::of(OutputKind::Empty),
            Output::of(OutputKind::NotTensor),
            Output::saved(),
        ];
        outputs.resize(64, Output::of(OutputKind::Empty));
        outputs.push(Output::fresh().at_new_step(OldOutput::Keep));
        let tracked = TrackedSlots::of(&outputs);
        assert_eq!(tracked.words().collect::<Vec<_>>(), [(0, 0b100_0001), (1, 1)]);
        assert!(tracked.contains(SlotIndex::new(64)) && tracked.contains(SlotIndex::new(0)));
        assert!(!tracked.contains(SlotIndex::new(1)) && !tracked.contains(SlotIndex::new(200)));
    }
}
