//! What a recording expects of each input, as data.

use graphgrove_storage::{InputIndex, Signature, SlotIndex};

/// What a recording expects of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// An output of the path, used where it is. It is told by its slot and run, never by its address.
    Managed {
        /// The place on the path of the node that made it, counted from the root.
        place: u32,
        /// Its slot there.
        slot: SlotIndex,
        /// The bytes from where its storage starts to its first element.
        offset: u64,
        /// Its layout.
        signature: Signature,
        /// Whether its memory is used again inside the recording, so that the call must hold the last handle.
        dies: bool,
    },
    /// A tensor from anywhere, which reaches the recorded work by a copy or by its address.
    Staged {
        /// Its layout.
        signature: Signature,
        /// The way.
        route: Route,
    },
    /// Host memory of this many bytes.
    Host {
        /// The length in bytes.
        bytes: usize,
    },
    /// A tensor without memory.
    Empty {
        /// Its layout.
        signature: Signature,
    },
    /// The value for which the function was recorded.
    Value(u64),
}

/// How an input from anywhere reaches the recorded work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// It is copied to a recorded address, by the graph itself where the path is fast.
    Copied,
    /// Its address is written into the recorded nodes that use it (pytorch/pytorch#137318).
    Patched,
}

/// An input's place among all inputs of a call: those of [`Call::inputs`](crate::Call::inputs) first, then the parameters.
#[must_use]
pub const fn param_input(inputs: usize, param: usize) -> InputIndex {
    InputIndex::new((inputs + param) as u32)
}
