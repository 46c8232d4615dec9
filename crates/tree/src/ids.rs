//! Names of things: every index that crosses the API is a type of its own.

use std::fmt;

slotmap::new_key_type! {
    /// A recording, or one warm-up run while its path lasts. A removed node's id never names another node.
    pub struct NodeId;

    /// A pending backward: a forward call that has run and whose backward may still run.
    pub struct TokenId;
}

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
    /// A function registered with a tree, counted from zero.
    FunctionId(u32), "f"
}
number! {
    /// An output's place among the outputs of its node, counted from zero.
    SlotIndex(u32), "o"
}
number! {
    /// An input's place among the inputs of a call, parameters not counted.
    InputIndex(u32), "i"
}
number! {
    /// A parameter's place in its parameter set.
    ParamIndex(u32), "p"
}
number! {
    /// How often a node has run: a slot and an epoch name one value, a slot alone names a place.
    Epoch(u64), "e"
}
number! {
    /// What lies between two starts at a root. The first call that runs in the pool begins step one; step zero
    /// is what was before.
    Step(u64), "s"
}
number! {
    /// What must be equal for a recording to fit an input: dtype, shape and strides of a tensor, or the value
    /// of a scalar, folded into one word by the caller, for instance by hashing all of them with
    /// [`DefaultHasher`](std::hash::DefaultHasher). Two inputs that differ must not share a signature.
    Signature(u64), "sig"
}
number! {
    /// A parameter set: the weights and caches that one object brings to its calls.
    ParamSetId(u64), "set"
}
number! {
    /// Raised by the owner of a parameter set whenever an address in it changes.
    ParamVersion(u64), "v"
}

/// A device address, in bytes. The tree compares addresses and never reads through them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// Wraps a plain address.
    #[must_use]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The plain address.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
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

    /// The slot whose bit is the lowest one set in `bits` of word `word`; none if no bit is set.
    #[must_use]
    pub const fn lowest(word: u32, bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(word * 64 + bits.trailing_zeros())) }
    }
}

/// An output storage's place: (node, index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The node that writes the slot.
    pub node: NodeId,
    /// The slot's place among the node's outputs.
    pub index: SlotIndex,
}

/// One value in a slot: the slot, and the run of its node that wrote the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotValue {
    /// The place.
    pub slot: Slot,
    /// The run that wrote the value.
    pub epoch: Epoch,
}

impl SlotValue {
    /// The value that run `epoch` of `node` left in its output `index`.
    #[must_use]
    pub const fn new(node: NodeId, index: SlotIndex, epoch: Epoch) -> Self {
        Self { slot: Slot { node, index }, epoch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_finds_its_bit_and_a_bit_its_slot() {
        let slot = SlotIndex::new(130);
        assert_eq!((slot.word(), slot.bit()), (2, 1 << 2));
        assert_eq!(SlotIndex::lowest(2, slot.bit() | 1 << 9), Some(slot));
        assert_eq!(SlotIndex::lowest(2, 0), None);
    }

    #[test]
    fn names_print_with_their_kind() {
        assert_eq!(FunctionId::new(3).to_string(), "f3");
        assert_eq!(SlotIndex::new(1).to_string(), "o1");
        assert_eq!(Step::new(7).to_string(), "s7");
        assert_eq!(Address::new(0x1f00).to_string(), "0x1f00");
    }
}
