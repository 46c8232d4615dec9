//! What an output is: decided once, when its node is recorded, and plain data from then on.

use std::sync::Arc;

use graphgrove_device::DevicePtr;

use crate::{InputIndex, Layout, SlotIndex, SlotValue};

/// Where an output's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputClass {
    /// Memory that the call itself obtained from the pool: the output owns a slot.
    Fresh,
    /// The memory of a parameter or constant, which is not the pool's.
    Persistent(PersistentSource),
    /// The memory of a slot of an earlier node on the path.
    EarlierSlot {
        /// The slot, and the run that wrote it when the node was recorded.
        value: SlotValue,
        /// The managed input by which the function reached it; none if it came by another way.
        input: Option<InputIndex>,
    },
    /// The memory of an earlier, fresh output of the same node.
    Sibling(SlotIndex),
    /// The memory of a staged input: the caller's own storage is handed back, not the staging buffer.
    StagedInput {
        /// The input.
        input: InputIndex,
        /// Whether the caller gave the input up, so that the output can take its handle over.
        moved: bool,
    },
    /// A tensor without elements, hence without memory. Two of them never alias.
    Empty,
    /// Not a tensor.
    NotTensor,
}

/// How a function came by memory that is not the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistentSource {
    /// As a parameter among its inputs.
    Input(InputIndex),
    /// From its surroundings: a constant that the closure holds.
    Captured,
}

/// Whose liveness an output counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A slot of its own.
    Own,
    /// A slot that another output owns.
    Shared,
    /// Memory with an owner of its own, which its handles keep alive.
    Elsewhere,
    /// Nothing: there is no memory.
    None,
}

/// What a handle of an output is made from when the node has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandBack {
    /// From the node's own slot, in bulk.
    Slot,
    /// From the slot of an earlier output of the same node, in bulk.
    SiblingSlot,
    /// From a handle of the earlier slot, which must be live.
    EarlierHandle,
    /// From the call's input.
    Input,
    /// From the storage that was captured.
    Captured,
    /// From the recorded layout alone.
    Layout,
    /// It is not a tensor: whoever recorded the node keeps its value.
    NotATensor,
}

/// What a class means for the rest of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Whose liveness it counts for.
    pub liveness: Liveness,
    /// Whether it brings a storage of its own into the cache of the path.
    pub cached: bool,
    /// What its handle is made from.
    pub hand_back: HandBack,
    /// Whether a checkpoint names its block; each block is named once.
    pub checkpointed: bool,
}

impl OutputClass {
    /// What the class means for liveness, caching, hand-back and checkpoint.
    #[must_use]
    pub const fn meaning(&self) -> Meaning {
        let (liveness, hand_back) = match self {
            Self::Fresh => (Liveness::Own, HandBack::Slot),
            Self::Persistent(PersistentSource::Input(_)) | Self::StagedInput { .. } => {
                (Liveness::Elsewhere, HandBack::Input)
            }
            Self::Persistent(PersistentSource::Captured) => (Liveness::Elsewhere, HandBack::Captured),
            Self::EarlierSlot { .. } => (Liveness::Shared, HandBack::EarlierHandle),
            Self::Sibling(_) => (Liveness::Shared, HandBack::SiblingSlot),
            Self::Empty => (Liveness::None, HandBack::Layout),
            Self::NotTensor => (Liveness::None, HandBack::NotATensor),
        };
        let owns = matches!(self, Self::Fresh);
        Meaning { liveness, cached: owns, hand_back, checkpointed: owns }
    }

    /// Whether the handle is made from something that whoever hands back must bring.
    pub(crate) const fn needs_source(&self) -> bool {
        matches!(self.meaning().hand_back, HandBack::EarlierHandle | HandBack::Input | HandBack::Captured)
    }
}

/// Who reads an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The caller: the output is handed back.
    Caller,
    /// The backward alone: no handle of it is handed back, and it lives until its token is gone.
    Backward,
    /// Both.
    Both,
}

impl Readers {
    pub(crate) const fn caller(self) -> bool {
        matches!(self, Self::Caller | Self::Both)
    }

    pub(crate) const fn backward(self) -> bool {
        matches!(self, Self::Backward | Self::Both)
    }
}

/// One output of a node, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedOutput {
    /// Where its memory comes from.
    pub class: OutputClass,
    /// Where its elements lie; none for what is not a tensor.
    pub layout: Option<Arc<Layout>>,
    /// The bytes from where its storage starts to its first element; of an alias of an input, from the input's first
    /// element.
    pub offset: i64,
    /// The block of a fresh output: its address and length in bytes.
    pub block: Option<(DevicePtr, u64)>,
    /// Who reads it.
    pub readers: Readers,
}

impl PlannedOutput {
    /// An output at the start of a block of its own.
    #[must_use]
    pub fn fresh(base: DevicePtr, bytes: u64, layout: Layout) -> Self {
        Self {
            class: OutputClass::Fresh,
            layout: Some(Arc::new(layout)),
            offset: 0,
            block: Some((base, bytes)),
            readers: Readers::Caller,
        }
    }

    /// An output in memory that something else owns, `offset` bytes on.
    #[must_use]
    pub fn alias(class: OutputClass, layout: Layout, offset: i64) -> Self {
        Self { class, layout: Some(Arc::new(layout)), offset, block: None, readers: Readers::Caller }
    }

    /// A tensor without elements.
    #[must_use]
    pub fn empty(layout: Layout) -> Self {
        Self::alias(OutputClass::Empty, layout, 0)
    }

    /// Something that is not a tensor.
    #[must_use]
    pub const fn not_tensor() -> Self {
        Self { class: OutputClass::NotTensor, layout: None, offset: 0, block: None, readers: Readers::Caller }
    }

    /// The same output, read by others.
    #[must_use]
    pub fn read_by(self, readers: Readers) -> Self {
        Self { readers, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, SlabId};

    #[test]
    fn only_a_fresh_output_owns_a_slot_and_so_brings_a_storage_and_a_block() {
        let value = SlotValue { slab: SlabId::next(), slot: SlotIndex::new(0), epoch: Epoch::new(1) };
        let input = InputIndex::new(0);
        let rows = [
            (OutputClass::Fresh, Liveness::Own, HandBack::Slot, false),
            (
                OutputClass::Persistent(PersistentSource::Input(input)),
                Liveness::Elsewhere,
                HandBack::Input,
                true,
            ),
            (
                OutputClass::Persistent(PersistentSource::Captured),
                Liveness::Elsewhere,
                HandBack::Captured,
                true,
            ),
            (
                OutputClass::EarlierSlot { value, input: None },
                Liveness::Shared,
                HandBack::EarlierHandle,
                true,
            ),
            (OutputClass::Sibling(SlotIndex::new(0)), Liveness::Shared, HandBack::SiblingSlot, false),
            (OutputClass::StagedInput { input, moved: true }, Liveness::Elsewhere, HandBack::Input, true),
            (OutputClass::Empty, Liveness::None, HandBack::Layout, false),
            (OutputClass::NotTensor, Liveness::None, HandBack::NotATensor, false),
        ];
        for (class, liveness, hand_back, needs_source) in rows {
            let owns = class == OutputClass::Fresh;
            let expected = Meaning { liveness, cached: owns, hand_back, checkpointed: owns };
            assert_eq!(class.meaning(), expected, "{class:?}");
            assert_eq!(class.needs_source(), needs_source, "{class:?}");
        }
    }

    #[test]
    fn readers_say_who_holds_an_output() {
        assert!(Readers::Caller.caller() && !Readers::Caller.backward());
        assert!(!Readers::Backward.caller() && Readers::Backward.backward());
        assert!(Readers::Both.caller() && Readers::Both.backward());
    }
}
