//! Names of things: every index that crosses the API is a type of its own.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a plain number.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number! {
    /// An output's place among the outputs of its node, counted from zero. A fresh output's storage has the slot of the
    /// same number.
    SlotIndex(u32), "output "
}
number! {
    /// An input's place among the inputs of a call, counted from zero.
    InputIndex(u32), "input "
}
number! {
    /// How often a slab's outputs were handed back, this time included: a slot and an epoch name one value, a slot
    /// alone names a place. The first is 1.
    Epoch(u64), "epoch "
}
number! {
    /// A step of the program, as the caller counts them. Only reports use it.
    Step(u64), "step "
}

impl SlotIndex {
    /// The liveness word that holds this slot's bit.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0 / 64
    }

    /// This slot's bit in its liveness word.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }

    pub(crate) const fn place(self) -> usize {
        self.0 as usize
    }

    /// The slots whose bits of a word are set, lowest first.
    pub(crate) fn in_word(word: u32, bits: u64) -> impl Iterator<Item = Self> {
        let mut rest = bits;
        std::iter::from_fn(move || {
            let slot = (rest != 0).then(|| Self(64 * word + rest.trailing_zeros()))?;
            rest &= rest - 1;
            Some(slot)
        })
    }
}

/// One slab of this process. Ids are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabId(u64);

/// One piece of memory that was obtained at one time. An address that is obtained again gets another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationId(u64);

// These are identities and not part of any protocol between threads, so loom need not see them.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl SlabId {
    pub(crate) fn next() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl AllocationId {
    pub(crate) fn next() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for SlabId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slab {}", self.0)
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allocation {}", self.0)
    }
}

/// The value in a slot: what a managed input is compared by, instead of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotValue {
    /// The slab, hence the node.
    pub slab: SlabId,
    /// The slot.
    pub slot: SlotIndex,
    /// The run of the node that wrote the value.
    pub epoch: Epoch,
}

/// The identity of a storage: which allocation it is, whatever its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageId {
    /// An output of a node, in this run of the node.
    Slot(SlotValue),
    /// Memory with an owner of its own.
    Block(AllocationId),
}

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(value) => write!(f, "{} of {} in {}", value.slot, value.slab, value.epoch),
            Self::Block(id) => id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_bit_of_one_word() {
        let slot = SlotIndex::new(70);
        assert_eq!((slot.word(), slot.bit()), (1, 1 << 6));
        assert_eq!(SlotIndex::in_word(1, 0b1010).collect::<Vec<_>>(), [SlotIndex(65), SlotIndex(67)]);
        assert_eq!(SlotIndex::in_word(0, 1 << 63).next(), Some(SlotIndex(63)));
        assert_eq!(SlotIndex::in_word(3, 0).next(), None);
    }

    #[test]
    fn ids_are_not_used_again() {
        assert_ne!(SlabId::next(), SlabId::next());
        assert_ne!(AllocationId::next(), AllocationId::next());
    }

    #[test]
    fn identities_print_what_they_name() {
        let value = SlotValue { slab: SlabId(4), slot: SlotIndex(2), epoch: Epoch(9) };
        assert_eq!(StorageId::Slot(value).to_string(), "output 2 of slab 4 in epoch 9");
        assert_eq!(StorageId::Block(AllocationId(5)).to_string(), "allocation 5");
        assert_eq!((InputIndex(1).to_string(), Step(3).to_string()), ("input 1".into(), "step 3".into()));
        assert_eq!(Step::new(3).get(), 3);
    }
}
