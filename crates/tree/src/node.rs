//! A node: what one recording expects of a call that wants to replay it, and what it leaves behind.

use crate::function::InputSet;
use crate::liveness::DeadMask;
use crate::output::{OldOutput, Output, TrackedSlots};
use crate::reasons::RecordReason;
use crate::{
    Address, Epoch, FunctionId, InputIndex, NodeId, ParamIndex, ParamSetId, ParamVersion, Phase, Signature,
    Slot, SlotIndex,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a recording expects of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The signature that must be equal.
    pub signature: Signature,
    /// How the recording uses the input.
    pub role: Role,
    /// Whether the recording writes to the input.
    pub mutated: bool,
}

/// How a recording uses an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads the output of an ancestor where that output is.
    Managed {
        /// The output.
        slot: Slot,
        /// How far the output's node is from the root.
        depth: u32,
        /// Whether the storage died inside the recording, so that its memory may be reused there: the call
        /// must then hold the last handle.
        dies: bool,
    },
    /// It reads a copy at a recorded address.
    Staged(StagedWhy),
    /// It was recorded for this value.
    Scalar,
}

/// Why an input is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StagedWhy {
    /// It comes from outside the path.
    Foreign,
    /// It was an output of the path that the call ended, which is over by the time the recorded work runs.
    Carried,
    /// It is an output of the path, but another one too often.
    Churn,
}

/// What a recording expects of the parameters.
#[derive(Clone, Debug)]
pub struct ExpectedParams {
    /// The set that was seen last at these addresses.
    pub(crate) set: ParamSetId,
    /// That set's version then.
    pub(crate) version: ParamVersion,
    pub(crate) addresses: Arc<[Address]>,
    /// The parameters that are staged, in ascending order.
    pub(crate) staged: Arc<[ParamIndex]>,
}

impl ExpectedParams {
    /// The recorded addresses. Those of staged parameters are what they were at the recording and are not
    /// compared.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The parameters that are copied to a recorded address at each call because theirs kept changing.
    #[must_use]
    pub fn staged(&self) -> &[ParamIndex] {
        &self.staged
    }

    /// The parameter set that was last seen at the recorded addresses, and its version then: while both are
    /// unchanged, so are the addresses.
    #[must_use]
    pub fn seen(&self) -> (ParamSetId, ParamVersion) {
        (self.set, self.version)
    }
}

/// A recording as plain data, or a warm-up run while its path lasts.
///
/// Its demands are relative: a node demands only what its parent's demands do not already imply, because on
/// one path a dead slot stays dead. So checking a node costs the same at every depth.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) serial: u64,
    pub(crate) function: FunctionId,
    pub(crate) phase: Phase,
    pub(crate) parent: Option<NodeId>,
    pub(crate) depth: u32,
    pub(crate) epoch: Epoch,
    pub(crate) inputs: Box<[Expected]>,
    pub(crate) params: Option<ExpectedParams>,
    /// The parameter set of the call that made the node, which is all that a warm-up run knows of it.
    pub(crate) warm_up_params: Option<ParamSetId>,
    pub(crate) dead_before: Box<[DeadMask]>,
    pub(crate) dead_after: Box<[DeadMask]>,
    pub(crate) outputs: Box<[Output]>,
    pub(crate) tracked: TrackedSlots,
    /// The inputs whose storage an output shares: it outlives the call, whoever gave it up.
    pub(crate) returned: InputSet,
    /// What becomes of an output without a rule of its own; the function's rule when the node was made.
    pub(crate) old_default: OldOutput,
    /// Why it was recorded; none for a warm-up run.
    pub(crate) reason: Option<Box<RecordReason>>,
    /// The key under which the index holds the node.
    pub(crate) identity: u64,
    /// What ran after this node last time, a child or a root.
    pub(crate) successor: Option<NodeId>,
    /// When the node ran last, in runs of the whole tree.
    pub(crate) last_used: u64,
    pub(crate) replays: u64,
    /// The functions that have children below this node.
    pub(crate) child_functions: SmallVec<[FunctionId; 2]>,
}

impl Node {
    /// The number by which [outlines](crate::Tree::outline) name the node. No other node of the tree ever has it.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The function that was recorded.
    #[must_use]
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// What the recorded call was to automatic differentiation.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The node in whose memory state this one was recorded; none for a root.
    #[must_use]
    pub fn parent(&self) -> Option<NodeId> {
        self.parent
    }

    /// The distance from the root, which has depth 0.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The run that wrote the values now in the node's slots.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether this is a warm-up run rather than a recording.
    #[must_use]
    pub fn is_warm_up(&self) -> bool {
        self.reason.is_none()
    }

    /// What the recording expects of each input. For a warm-up run, how that used each; what died there is not
    /// said.
    #[must_use]
    pub fn inputs(&self) -> &[Expected] {
        &self.inputs
    }

    /// What the recording expects of the parameters, if it has any.
    #[must_use]
    pub fn params(&self) -> Option<&ExpectedParams> {
        self.params.as_ref()
    }

    /// The slots that were dead when the recording began, as far as the parent does not already demand it.
    /// Staging buffers may lie in their memory, so not even an input of the call may be one of them.
    #[must_use]
    pub fn dead_before(&self) -> &[DeadMask] {
        &self.dead_before
    }

    /// The slots that died while the recording ran, managed inputs apart ([`Role::Managed`] says `dies` for
    /// those). An input that the call gives up may be one of them.
    #[must_use]
    pub fn dead_after(&self) -> &[DeadMask] {
        &self.dead_after
    }

    /// All slots that a call must find dead, or give up, as far as the parent does not already demand it.
    pub fn expected_dead(&self) -> impl Iterator<Item = Slot> + '_ {
        let masks = self.dead_before.iter().chain(&self.dead_after).flat_map(|mask| mask.slots());
        masks.chain(self.inputs.iter().filter_map(|input| match input.role {
            Role::Managed { slot, dies: true, .. } => Some(slot),
            _ => None,
        }))
    }

    /// The outputs.
    #[must_use]
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Why the node was recorded; none for a warm-up run.
    #[must_use]
    pub fn reason(&self) -> Option<&RecordReason> {
        self.reason.as_deref()
    }

    /// How often the recording was replayed.
    #[must_use]
    pub fn replays(&self) -> u64 {
        self.replays
    }

    /// When the node ran last, counted in runs of the whole tree: the smaller, the longer ago.
    #[must_use]
    pub fn last_used(&self) -> u64 {
        self.last_used
    }

    /// The parameter set with which the node ran last.
    pub(crate) fn param_set(&self) -> Option<ParamSetId> {
        self.params.as_ref().map_or(self.warm_up_params, |params| Some(params.set))
    }

    /// What becomes of output `index` at a new step.
    pub(crate) fn rule_for(&self, index: SlotIndex) -> OldOutput {
        self.outputs.get(index.get() as usize).and_then(|output| output.old).unwrap_or(self.old_default)
    }

    /// The inputs that are copied to a recorded address, and why.
    pub fn staged_inputs(&self) -> impl Iterator<Item = (InputIndex, StagedWhy)> + '_ {
        (0..).map(InputIndex::new).zip(&self.inputs).filter_map(|(index, input)| match input.role {
            Role::Staged(why) => Some((index, why)),
            _ => None,
        })
    }
}
