//! Decisions: what a call does, why, and what it does to the path. Taking a decision changes nothing.

use crate::call::CallKind;
use crate::node::{Expected, ExpectedParams};
use crate::output::OldSlot;
use crate::reasons::{Demotion, EagerReason, RecordReason, WarmUpReason};
use crate::{FunctionId, InputIndex, NodeId, ParamSetId, Slot, Step, TokenId};
use std::sync::Arc;

/// What one call does.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until it is carried out"]
pub enum Decision {
    /// Launch this node's exec, then report [`Tree::replayed`](crate::Tree::replayed).
    Replay(Replay),
    /// Record the call: [`Tree::begin_recording`](crate::Tree::begin_recording).
    Record(Box<RecordPlan>),
    /// Run the call plainly inside the pool: [`Tree::begin_warm_up`](crate::Tree::begin_warm_up).
    WarmUp(Box<WarmUpPlan>),
    /// Run the call plainly outside the pool, then report [`Tree::ran_eagerly`](crate::Tree::ran_eagerly).
    /// The path stays as it is.
    Eager(EagerReason),
}

impl Decision {
    /// What carrying the decision out does to the path; none for an eager run, which does nothing to it.
    #[must_use]
    pub fn path_change(&self) -> Option<&PathChange> {
        match self {
            Self::Replay(replay) => Some(replay.path_change()),
            Self::Record(plan) => Some(plan.path_change()),
            Self::WarmUp(plan) => Some(plan.path_change()),
            Self::Eager(_) => None,
        }
    }
}

/// What a call does to the path that it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathChange {
    /// There was no path: the call starts one.
    Starts,
    /// The call goes on from the current node.
    Extends,
    /// Nothing needs the last nodes of the path any more: the call goes on from the last node that is needed.
    DropsUnneededTail,
    /// Nothing on the path is needed any more, not even by this call: the call starts a new one, and none of
    /// its inputs is an output of the old one.
    Over,
    /// A step begins, and this output is to be kept: the call goes on from the path as it is.
    Kept(Slot),
    /// A step begins although something on the path is live: it ends, with these effects.
    NewStep(Box<PathEnd>),
    /// The path holds enough turns of a loop, or enough calls that were held back by a warm-up: it ends although
    /// something on it is live, with these effects, none of which makes anything stale.
    LoopTurns(Box<PathEnd>),
}

impl PathChange {
    /// The effects of ending a path on which something is live.
    #[must_use]
    pub fn path_end(&self) -> Option<&PathEnd> {
        match self {
            Self::NewStep(end) | Self::LoopTurns(end) => Some(end),
            _ => None,
        }
    }
}

/// The effects of ending a path on which something is live. The layers above apply them before the new work
/// runs, and before they report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEnd {
    /// The step that begins.
    pub step: Step,
    /// The function whose call begins it.
    pub ended_by: FunctionId,
    /// Every slot that is still live, and what becomes of it. A slot whose last handle is moved into the call
    /// is not among them: it dies with the call. But where an output of the call is an alias of an input, that
    /// input's storage outlives the call, so it is among them and is copied out whatever its rule and whoever
    /// gave it up; so is every input that a function warms up with for the first time, since what it hands back
    /// is not known yet. An input that the caller keeps is among them; where no step begins
    /// ([`PathChange::LoopTurns`]) it is copied out whatever its rule, so that nothing is lost.
    pub slots: Vec<OldSlot>,
    /// The inputs of the call that are outputs of the ending path. They are staged for this call, and must
    /// have been read before anything is written where the path was.
    pub carried: Vec<InputIndex>,
}

/// The state of the tree for which something was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The tree's version.
    pub(crate) version: u64,
    /// How many requests for a step are answered once the call has run.
    pub(crate) steps_answered: u64,
}

/// Where a call that is no replay runs.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) parent: Option<NodeId>,
    pub(crate) change: PathChange,
    pub(crate) moment: Moment,
    pub(crate) kind: CallKind,
    pub(crate) function: FunctionId,
    pub(crate) param_set: Option<ParamSetId>,
    /// The inputs that are outputs of the path and are staged all the same, and which outputs they are.
    pub(crate) staged: Vec<(InputIndex, Slot)>,
}

/// The decision to replay a node.
#[derive(Clone, Debug)]
pub struct Replay {
    pub(crate) node: NodeId,
    pub(crate) change: PathChange,
    pub(crate) moment: Moment,
    /// The token of a backward.
    pub(crate) token: Option<TokenId>,
}

impl Replay {
    /// The node whose exec is to be launched.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// What the replay does to the path.
    #[must_use]
    pub fn path_change(&self) -> &PathChange {
        &self.change
    }
}

/// The decision to record a call.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    pub(crate) ground: Ground,
    pub(crate) restore: Option<NodeId>,
    pub(crate) inputs: Box<[Expected]>,
    pub(crate) params: Option<ExpectedParams>,
    pub(crate) identity: u64,
    pub(crate) reason: RecordReason,
    /// Inputs that were another one than in the closest recording, which counts towards their demotion.
    pub(crate) changed: Vec<Demotion>,
    pub(crate) demotions: Vec<Demotion>,
}

impl RecordPlan {
    /// The node in whose memory state the call is recorded; none for a root.
    #[must_use]
    pub fn parent(&self) -> Option<NodeId> {
        self.ground.parent
    }

    /// The node whose checkpoint the pool must be restored to first, because what ran since was replayed and
    /// the pool knows nothing of it; none where the pool already mirrors reality. None also for a
    /// root: its memory state is the empty pool.
    #[must_use]
    pub fn restore(&self) -> Option<NodeId> {
        self.restore
    }

    /// How the recording is to use each input. Whether a managed input dies is known only once it has been
    /// recorded, and said by [`Node::inputs`](crate::Node::inputs) then.
    #[must_use]
    pub fn inputs(&self) -> &[Expected] {
        &self.inputs
    }

    /// How the recording is to use the parameters.
    #[must_use]
    pub fn params(&self) -> Option<&ExpectedParams> {
        self.params.as_ref()
    }

    /// Why the call is recorded.
    #[must_use]
    pub fn reason(&self) -> &RecordReason {
        &self.reason
    }

    /// The inputs of the function that are staged from this recording on.
    #[must_use]
    pub fn demotions(&self) -> &[Demotion] {
        &self.demotions
    }

    /// What the recording does to the path.
    #[must_use]
    pub fn path_change(&self) -> &PathChange {
        &self.ground.change
    }
}

/// The decision to warm up.
#[derive(Clone, Debug)]
pub struct WarmUpPlan {
    pub(crate) ground: Ground,
    pub(crate) restore: Option<NodeId>,
    pub(crate) key: Arc<[u64]>,
    pub(crate) inputs: Box<[Expected]>,
    pub(crate) reason: WarmUpReason,
}

impl WarmUpPlan {
    /// The node below which the warm-up runs; none if it starts a path.
    #[must_use]
    pub fn parent(&self) -> Option<NodeId> {
        self.ground.parent
    }

    /// The node whose checkpoint the pool must be restored to first; see [`RecordPlan::restore`].
    #[must_use]
    pub fn restore(&self) -> Option<NodeId> {
        self.restore
    }

    /// How the warm-up uses each input, as a recording in the same place would.
    #[must_use]
    pub fn inputs(&self) -> &[Expected] {
        &self.inputs
    }

    /// Why the call warms up.
    #[must_use]
    pub fn reason(&self) -> &WarmUpReason {
        &self.reason
    }

    /// What the warm-up does to the path.
    #[must_use]
    pub fn path_change(&self) -> &PathChange {
        &self.ground.change
    }
}
