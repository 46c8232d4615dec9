//! Why a call runs as it does: typed, and printable in one line.

use crate::{Address, FunctionId, InputIndex, NodeId, ParamIndex, ParamSetId, Phase, Signature, Slot};
use thiserror::Error;

/// What kept a recording from fitting a call. The later a variant stands in this list, the closer the
/// recording came.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// It records another function.
    #[error("it records {recorded}, not {called}")]
    Function {
        /// The function of the recording.
        recorded: FunctionId,
        /// The function of the call.
        called: FunctionId,
    },
    /// It was recorded for another kind of call.
    #[error("it was recorded as {recorded:?}, not as {called:?}")]
    Phase {
        /// The kind of the recording.
        recorded: Phase,
        /// The kind of the call.
        called: Phase,
    },
    /// It has another number of inputs.
    #[error("it was recorded with {recorded} inputs, not with {called}")]
    InputCount {
        /// The recording's number of inputs.
        recorded: usize,
        /// The call's number of inputs.
        called: usize,
    },
    /// An input differs in dtype, shape, strides or scalar value.
    #[error("input {input} has signature {called}, recorded {recorded}")]
    Signature {
        /// The input.
        input: InputIndex,
        /// The recorded signature.
        recorded: Signature,
        /// The call's signature.
        called: Signature,
    },
    /// An input that the recording reads in place comes from elsewhere, or the other way round, or only one
    /// of the two writes to it.
    #[error("input {input} is used in another way than recorded")]
    Use {
        /// The input.
        input: InputIndex,
    },
    /// A managed input is another output than the recorded one.
    #[error("input {input} is output {} of another call, recorded output {}", .called.index, .recorded.index)]
    ManagedInput {
        /// The input.
        input: InputIndex,
        /// The recorded output.
        recorded: Slot,
        /// The output that the call brings.
        called: Slot,
    },
    /// The number of parameters differs.
    #[error("it was recorded with {recorded} parameters, not with {called}")]
    ParamCount {
        /// The recording's number of parameters.
        recorded: usize,
        /// The call's number of parameters.
        called: usize,
    },
    /// Another parameter set, at other addresses.
    #[error("it was recorded for parameter set {recorded}, not for {called}")]
    ParamSet {
        /// The set that was last seen at the recorded addresses.
        recorded: ParamSetId,
        /// The set of the call.
        called: ParamSetId,
    },
    /// A parameter of the same set moved.
    #[error("parameter {param} is at {called}, recorded at {recorded}")]
    ParamAddress {
        /// The first parameter that moved.
        param: ParamIndex,
        /// The recorded address.
        recorded: Address,
        /// The address in the call.
        called: Address,
    },
    /// The recording reuses the memory of an input that the caller keeps.
    #[error("input {input} is still held by the caller, and the recording reuses its memory")]
    InputStillHeld {
        /// The input.
        input: InputIndex,
    },
    /// The recording reuses the memory of an output that is still live.
    #[error("output {} of an earlier call is still live, and the recording reuses its memory", .slot.index)]
    StillLive {
        /// The output.
        slot: Slot,
    },
}

impl Mismatch {
    /// How close the recording came to fitting, from 0.
    pub(crate) fn closeness(&self) -> u8 {
        match self {
            Self::Function { .. } => 0,
            Self::Phase { .. } => 1,
            Self::InputCount { .. } => 2,
            Self::Signature { .. } => 3,
            Self::Use { .. } => 4,
            Self::ManagedInput { .. } => 5,
            Self::ParamCount { .. } => 6,
            Self::ParamSet { .. } => 7,
            Self::ParamAddress { .. } => 8,
            Self::InputStillHeld { .. } => 9,
            Self::StillLive { .. } => 10,
        }
    }
}

/// Why a call is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordReason {
    /// The function has no recording in this place yet.
    #[error("first recording in this place")]
    First,
    /// It has recordings in this place, and none of them fits.
    #[error("no recording in this place fits; the closest: {mismatch}")]
    NoneFits {
        /// The recording that came closest.
        closest: NodeId,
        /// What kept it from fitting.
        mismatch: Mismatch,
    },
}

/// Why a call warms up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WarmUpReason {
    /// The function has not warmed up with these signatures.
    #[error("not warmed up with these signatures")]
    Cold,
    /// The path is a warm-up with live outputs or a pending backward: its addresses are not stable, so nothing
    /// can be recorded below it. That lasts until the outputs have died and the backward has run or was
    /// discarded, or until the next step, whichever comes first. Without either, outputs alone hold back at most
    /// [`Limits::loop_length`](crate::Limits::loop_length) calls and are copied out then; a backward that is
    /// pending for ever holds them back for ever, and a notice says so.
    #[error("an output of a warm-up is still in use, and nothing is recorded below a warm-up")]
    BelowWarmUp {
        /// The last warm-up run that still holds the path.
        node: NodeId,
    },
}

/// Why a call runs eagerly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EagerReason {
    /// A recording or a warm-up is in progress.
    #[error("another recording or warm-up is in progress")]
    Busy,
    /// The layers above cannot run it in the pool, or were told not to.
    #[error("it cannot run in the pool")]
    Unpoolable,
    /// The function writes to an input that is neither a parameter nor an output of the path, and copying it
    /// back is switched off.
    #[error("input {input} is written to and belongs neither to the parameters nor to the path")]
    MutatesForeignInput {
        /// The input.
        input: InputIndex,
    },
    /// The function's list of recordable scalar values does not name the call's.
    #[error("the call's scalar inputs are not among those to be recorded")]
    KeyNotListed,
    /// The path has its largest length, and something on it is still needed.
    #[error("the path has its largest length of {limit} nodes and something on it is still needed")]
    PathLength {
        /// [`Limits::path_length`](crate::Limits::path_length).
        limit: u32,
    },
    /// There is no room for another recording of the function in this place, and none can be evicted.
    #[error("no recording of {function} in this place can make room; the limit is {limit}")]
    Siblings {
        /// The function.
        function: FunctionId,
        /// [`Limits::siblings`](crate::Limits::siblings).
        limit: u32,
    },
    /// There is no room for another recording of the function anywhere, and none can be evicted.
    #[error("no recording of {function} can make room; the limit is {limit}")]
    FunctionRecordings {
        /// The function.
        function: FunctionId,
        /// [`Limits::recordings_per_function`](crate::Limits::recordings_per_function).
        limit: u32,
    },
    /// The function was recorded again too often in this place, lately.
    #[error("recorded again too often in this place; {}: {mismatch}", next_try(*.calls))]
    Rerecorded {
        /// How many more calls of the function it takes until one may be recorded; `u64::MAX` if none ever
        /// may, because the limit is zero or the count does not decay.
        calls: u64,
        /// What kept the closest recording from fitting.
        mismatch: Mismatch,
    },
    /// Too many recordings of the function have not been replayed, lately.
    #[error("too many of its recordings were never replayed; {}", next_try(*.calls))]
    Unreplayed {
        /// How many more calls of the function it takes until one may be recorded, if no recording is replayed for the first time
        /// before; `u64::MAX` if none ever may, because the limit is zero or the count does not decay.
        calls: u64,
    },
    /// Recordings of the function failed too often, lately.
    #[error("its recordings failed too often; {}", next_try(*.calls))]
    RecordingsFail {
        /// How many more calls of the function it takes until one may be recorded; `u64::MAX` if none ever
        /// may, because the limit is zero or the count does not decay.
        calls: u64,
    },
}

pub(crate) fn next_try(calls: u64) -> String {
    if calls == u64::MAX {
        "it is never tried again".to_owned()
    } else {
        format!("the next try is {calls} calls away")
    }
}

/// A demotion: an input that is staged from now on because it was another one too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Demotion {
    /// A parameter whose address kept changing.
    Param(ParamIndex),
    /// A managed input that kept being another output.
    Input(InputIndex),
}
