//! What can go wrong, as data.

use std::sync::Arc;

use graphgrove_device::DeviceError;
use graphgrove_storage::{InputIndex, SlotIndex};

use crate::{Mismatch, NodeKey};

/// Why something was refused. Nothing has changed then, unless a variant says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording does not fit the call.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    /// The device refused. What was patched into an exec before is written again by its next launch.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A storage refused.
    #[error("{0}")]
    Storage(#[from] graphgrove_storage::Error),
    /// Something ran, or the path was changed, since the call was checked, or it is another call that was checked.
    #[error("the path has moved since the call was checked, or another call was checked")]
    OldCheck,
    /// The first run of a node that has run already.
    #[error("node {node:?} has run before")]
    HasRun {
        /// The node.
        node: NodeKey,
    },
    /// The expectations of a recording say of an input that it is staged and the captured work does not stage it, or the other
    /// way round. It would be read where it was at the recording, whatever the call brings.
    #[error("{input} is staged by the captured work or by the recording's expectations, and not by both")]
    OtherStaging {
        /// The input.
        input: InputIndex,
    },
    /// There is no such node.
    #[error("node {node:?} is not known")]
    UnknownNode {
        /// The node.
        node: NodeKey,
    },
    /// The node is part of the current path.
    #[error("node {node:?} is on the path")]
    OnPath {
        /// The node.
        node: NodeKey,
    },
    /// There is no such parameter in the set.
    #[error("parameter {param} of a set of {count}")]
    NoSuchParameter {
        /// The place asked for.
        param: usize,
        /// How many there are.
        count: usize,
    },
    /// A parameter's value is gone.
    #[error("parameter {param}: {error}")]
    StaleParameter {
        /// Its place.
        param: usize,
        /// What became of it.
        error: graphgrove_storage::Error,
    },
    /// An output of a recorded function cannot be a parameter, since its memory is written over.
    #[error("parameter {param} is {output} of {producer}, whose memory is written over; pass it as an input")]
    UnstableParameter {
        /// Its place.
        param: usize,
        /// Which output it is.
        output: SlotIndex,
        /// The function that has made it.
        producer: Arc<str>,
    },
    /// The plan was made for another number of inputs than the call has.
    #[error("{given} inputs given for {planned} planned")]
    InputCount {
        /// How many were planned.
        planned: usize,
        /// How many were given.
        given: usize,
    },
    /// An input is written to and lies in so many pieces that copying it back piece by piece does not pay.
    #[error("{input} is written to and lies in {runs} pieces; at most {most} are copied back")]
    TooScattered {
        /// The input.
        input: InputIndex,
        /// Its pieces.
        runs: u64,
        /// The most pieces that are copied back.
        most: u64,
    },
    /// A rehearsal was to be finished as a recording.
    #[error("nothing was captured")]
    NotCapturing,
    /// A buffer for staging is too short.
    #[error("buffer {group} has {given} bytes of the {needed} that staging needs")]
    StagingBuffer {
        /// The group, counted among those that are copied.
        group: usize,
        /// The bytes needed.
        needed: u64,
        /// The bytes given.
        given: u64,
    },
    /// The input's address cannot be patched, because not all of its uses are known. Recording again with the input copied
    /// works.
    #[error("{input} cannot be patched: {why}")]
    Unpatchable {
        /// The input.
        input: InputIndex,
        /// Why not.
        why: Unpatchable,
    },
    /// Expectations, inputs and outputs of a recording do not fit each other.
    #[error("{output} of the recording has no source: {why}")]
    NoSource {
        /// The output.
        output: SlotIndex,
        /// What is missing.
        why: &'static str,
    },
}

/// Why not all uses of an input are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unpatchable {
    /// A kernel takes a struct by value, which may hold addresses.
    #[error("{kernel} takes a struct by value, in which addresses may hide")]
    HiddenPointers {
        /// The kernel.
        kernel: String,
    },
    /// Other code has enqueued work by itself, and nobody knows on which addresses.
    #[error("other code has enqueued work on addresses that are not known")]
    ForeignWork,
    /// The graph has work that did not come by way of the recorder.
    #[error("{unknown} of {nodes} nodes were not enqueued by way of the recorder")]
    UnknownWork {
        /// The nodes that the recorder does not know.
        unknown: usize,
        /// All nodes.
        nodes: usize,
    },
    /// A fill or a copy from the host writes to it, whose destination cannot be replaced.
    #[error("it is filled, and where a fill goes cannot be replaced")]
    Filled,
    /// One kernel argument lies in the memory of two inputs.
    #[error("its memory is also that of {other}")]
    Shared {
        /// The other input.
        other: InputIndex,
    },
}
