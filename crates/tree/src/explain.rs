//! Reasons in the words of the program: functions by their names, outputs by who made them, shapes as the layers above have
//! named them.
//!
//! A reason by itself is plain data and prints what it holds, numbers of functions and signatures. Only the tree knows whose
//! numbers they are.

use crate::node::Node;
use crate::notice::Notice;
use crate::reasons::{EagerReason, Mismatch, RecordReason, WarmUpReason};
use crate::tree::Tree;
use crate::{FunctionId, InputIndex, NodeId, Phase, Signature, Slot};

use sealed::Sealed;

/// What [`Tree::explain`] can say in the words of the program.
pub trait Explain: Sealed {}

mod sealed {
    use super::{Phase, Tree};

    pub trait Sealed {
        fn in_words(&self, tree: &Tree, phase: Phase) -> String;
    }
}

impl Explain for Mismatch {}
impl Explain for RecordReason {}
impl Explain for WarmUpReason {}
impl Explain for EagerReason {}
impl Explain for Notice {}

impl Tree {
    /// Says what a signature stands for, such as `f32[4, 8]`. The first name stays; the last 4,096 are remembered.
    pub fn name_signature(&mut self, signature: Signature, name: impl FnOnce() -> String) {
        self.names.add(signature, name);
    }

    /// A reason in one line, in the words of the program. `phase` is that of the call that it is about.
    ///
    /// Inputs are counted as the tree sees them, so in a backward the saved tensors come first, and the text says so. What is
    /// not known any more, as the name of a function that was removed, is left out or given as a number.
    #[must_use]
    pub fn explain(&self, reason: &impl Explain, phase: Phase) -> String {
        reason.in_words(self, phase)
    }

    fn name_of(&self, function: FunctionId) -> String {
        let spec = self.function_spec(function);
        spec.map_or_else(|| format!("function {function}"), |spec| format!("`{}`", spec.name()))
    }

    fn output_of(&self, slot: Slot) -> String {
        let of = self.producer(slot.node).unwrap_or_else(|| "an earlier call".to_owned());
        format!("output {} of {of}", slot.index.get())
    }

    /// The name of the function that a node runs, while the node is there.
    fn producer(&self, node: NodeId) -> Option<String> {
        self.nodes.get(node).map(|node: &Node| self.name_of(node.function))
    }

    /// What a signature stands for; of a scalar it is the value.
    fn signature_name(&self, signature: Signature) -> String {
        self.names.get(signature).map_or_else(|| signature.get().to_string(), ToOwned::to_owned)
    }
}

fn input(index: InputIndex, phase: Phase) -> String {
    let first = if phase == Phase::Backward { ", counted behind what is saved," } else { "" };
    format!("input {}{first}", index.get())
}

impl Sealed for Mismatch {
    fn in_words(&self, tree: &Tree, phase: Phase) -> String {
        match self {
            Self::Function { recorded, called } => {
                format!("it records {}, not {}", tree.name_of(*recorded), tree.name_of(*called))
            }
            Self::Signature { input: index, recorded, called } => {
                let [recorded, called] = [*recorded, *called].map(|signature| tree.signature_name(signature));
                let input = input(*index, phase);
                if called == recorded {
                    format!(
                        "{input} is {called} as recorded, and lies in its storage or shares memory with other inputs in another way"
                    )
                } else {
                    format!("{input} is {called}, recorded as {recorded}")
                }
            }
            Self::Use { input: index } => {
                format!("{} is used in another way than recorded", input(*index, phase))
            }
            Self::ManagedInput { input: index, recorded, called } => {
                let [recorded, called] = [*recorded, *called].map(|slot| tree.output_of(slot));
                format!("{} is {called}, recorded as {recorded}", input(*index, phase))
            }
            Self::InputStillHeld { input: index } => {
                format!(
                    "{} is still held by the caller, and the recording reuses its memory",
                    input(*index, phase)
                )
            }
            Self::StillLive { slot } => {
                format!("{} is still live, and the recording reuses its memory", tree.output_of(*slot))
            }
            Self::ParamAddress { param, recorded, called } => {
                format!("parameter {} is at {called}, recorded at {recorded}", param.get())
            }
            Self::Phase { .. }
            | Self::InputCount { .. }
            | Self::ParamCount { .. }
            | Self::ParamSet { .. } => self.to_string(),
        }
    }
}

impl Sealed for RecordReason {
    fn in_words(&self, tree: &Tree, phase: Phase) -> String {
        match self {
            Self::First => self.to_string(),
            Self::NoneFits { mismatch, .. } => {
                format!("no recording in this place fits; the closest: {}", mismatch.in_words(tree, phase))
            }
        }
    }
}

impl Sealed for WarmUpReason {
    fn in_words(&self, tree: &Tree, _: Phase) -> String {
        match self {
            Self::Cold => self.to_string(),
            Self::BelowWarmUp { node } => {
                let of = tree.producer(*node).unwrap_or_else(|| "an earlier call".to_owned());
                format!(
                    "what {of} has left when it warmed up is still in use, and nothing is recorded below a warm-up"
                )
            }
        }
    }
}

impl Sealed for EagerReason {
    fn in_words(&self, tree: &Tree, phase: Phase) -> String {
        match self {
            Self::MutatesForeignInput { input: index } => format!(
                "{} is written to and belongs neither to the parameters nor to the path",
                input(*index, phase)
            ),
            Self::Siblings { function, limit } => {
                let name = tree.name_of(*function);
                format!("no recording of {name} in this place can make room; the limit is {limit}")
            }
            Self::FunctionRecordings { function, limit } => {
                format!("no recording of {} can make room; the limit is {limit}", tree.name_of(*function))
            }
            Self::Rerecorded { calls, mismatch } => {
                let next = crate::reasons::next_try(*calls);
                format!("recorded again too often in this place; {next}: {}", mismatch.in_words(tree, phase))
            }
            Self::Busy
            | Self::Unpoolable
            | Self::KeyNotListed
            | Self::PathLength { .. }
            | Self::Unreplayed { .. }
            | Self::RecordingsFail { .. } => self.to_string(),
        }
    }
}

impl Sealed for Notice {
    fn in_words(&self, tree: &Tree, phase: Phase) -> String {
        let name = tree.name_of(self.function());
        match self {
            Self::ManySignatures { count, .. } => {
                format!("{name} has warmed up with {count} different signatures, and each costs a recording")
            }
            Self::PendingBackwards { pending, .. } => {
                format!("{name} keeps growing its path, because {pending} backwards are pending on it")
            }
            Self::HeldByWarmUp { holder, .. } => {
                let holder = tree.name_of(*holder);
                format!(
                    "{name} warms up at every call, because something that {holder} left behind is still needed"
                )
            }
            Self::RanEagerly { reason, .. } => {
                format!("{name} ran eagerly: {}", reason.in_words(tree, phase))
            }
        }
    }
}
