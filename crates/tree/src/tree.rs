//! The tree: its state, and what can be asked of it.

use crate::error::Error;
use crate::function::{Function, FunctionSpec, Functions};
use crate::held::HeldBack;
use crate::index::Index;
use crate::limits::Options;
use crate::liveness::Liveness;
use crate::names::Names;
use crate::node::Node;
use crate::notice::{Notice, Notices};
use crate::params::ParamSets;
use crate::path::{Path, PathState};
use crate::ticket::Gate;
use crate::tokens::Tokens;
use crate::{FunctionId, NodeId, Step, TokenId};
use slotmap::SlotMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Trees start their versions far apart, so that a decision of one tree is out of date for every other.
static NEXT_TREE: AtomicU64 = AtomicU64::new(0);

/// Functions, their recordings arranged by the order in which they ran, and the path that is running now.
///
/// A tree holds data alone: no memory, no device, no handle of a user. Each call goes through it in two
/// parts: [`decide`](Self::decide) says what the call does and changes nothing; one of the transitions
/// reports that it was done. A transition that returns an error, and a call that fails before its transition,
/// leave the tree as it was; an error of `finish_recording` or `finish_warm_up` abandons what was in progress, as
/// dropping it does.
///
/// | transition | precondition | effect |
/// |---|---|---|
/// | [`begin_step`](Self::begin_step) | none | the next call that runs in the pool begins a step |
/// | [`replayed`](Self::replayed) | the path is as it was when the replay was decided | the node is current |
/// | [`follow`](Self::follow) | the node's parent is on the path and the node's expectations hold | the node is current |
/// | [`begin_recording`](Self::begin_recording) | as `replayed`, and nothing is in progress | a [`Recording`](crate::Recording), nothing else |
/// | [`finish_recording`](Self::finish_recording) | as `replayed` | a new node is current; evicted nodes are gone |
/// | [`recording_failed`](Self::recording_failed) | none | one failure is counted |
/// | [`begin_warm_up`](Self::begin_warm_up) | as `begin_recording` | a [`WarmUp`](crate::WarmUp), nothing else |
/// | [`finish_warm_up`](Self::finish_warm_up) | as `replayed` | a warm-up run is current; the signatures are warm |
/// | [`ran_eagerly`](Self::ran_eagerly) | the function exists, a backward's token is pending | the call is counted; its token is made or consumed |
/// | [`discard_backward`](Self::discard_backward) | none | the token is no longer pending |
/// | [`evict`](Self::evict), [`remove_function`](Self::remove_function) | nothing that would go is in use | the nodes and all below them are gone |
/// | [`reset`](Self::reset) | none | only the functions are left |
#[derive(Debug)]
pub struct Tree {
    pub(crate) options: Options,
    pub(crate) functions: Functions,
    pub(crate) nodes: SlotMap<NodeId, Node>,
    pub(crate) index: Index,
    pub(crate) params: ParamSets,
    pub(crate) path: Path,
    pub(crate) tokens: Tokens,
    pub(crate) gate: Gate,
    pub(crate) notices: Notices,
    pub(crate) names: Names,
    /// Raised whenever the path moves, so that a decision can tell that it is out of date.
    pub(crate) version: u64,
    pub(crate) step: Step,
    pub(crate) steps_requested: u64,
    pub(crate) steps_answered: u64,
    /// The node that ran last, on the path or not.
    pub(crate) last: Option<NodeId>,
    /// What ran after that node the last time; it is tried first.
    pub(crate) predicted: Option<NodeId>,
    /// The calls of warm functions that have warmed up on this path because something above them was a warm-up.
    pub(crate) held_back: HeldBack,
    pub(crate) runs: u64,
    pub(crate) serials: u64,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Tree {
    /// A tree without functions.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            functions: Functions::default(),
            nodes: SlotMap::with_key(),
            index: Index::default(),
            params: ParamSets::default(),
            path: Path::default(),
            tokens: Tokens::default(),
            gate: Gate::default(),
            notices: Notices::default(),
            names: Names::default(),
            version: NEXT_TREE.fetch_add(1, Ordering::Relaxed) << 40,
            step: Step::default(),
            steps_requested: 0,
            steps_answered: 0,
            last: None,
            predicted: None,
            held_back: HeldBack::default(),
            runs: 0,
            serials: 0,
        }
    }

    /// Registers a function.
    pub fn add_function(&mut self, spec: FunctionSpec) -> FunctionId {
        self.functions.add(spec)
    }

    /// What was said when the function was registered; none once it is removed.
    #[must_use]
    pub fn function_spec(&self, function: FunctionId) -> Option<&FunctionSpec> {
        Some(&self.functions.get(function)?.spec)
    }

    /// The options the tree was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A node; none once it is gone.
    #[must_use]
    #[inline]
    pub fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// Every node, warm-up runs of the current path included, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter()
    }

    /// How many recordings the tree holds.
    #[must_use]
    pub fn recordings(&self) -> usize {
        self.nodes.values().filter(|node| !node.is_warm_up()).count()
    }

    /// The recordings of `function` below `parent`, or as roots, in the order in which they were made.
    #[must_use]
    pub fn children(&self, parent: Option<NodeId>, function: FunctionId) -> &[NodeId] {
        self.index.branch(parent, function).map_or(&[], |branch| &branch.nodes)
    }

    /// The nodes of the current path, from the root to the current node.
    pub fn path(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + '_ {
        self.path.entries().iter().map(|entry| entry.node)
    }

    /// How the last call on the path ran.
    #[must_use]
    pub fn path_state(&self) -> PathState {
        self.path.state()
    }

    /// The last node of the path.
    #[must_use]
    pub fn current(&self) -> Option<NodeId> {
        self.path.entries().last().map(|entry| entry.node)
    }

    /// Whether nothing on the path is needed: no output is live and no backward is pending. A tree without a
    /// path is in that state too. The next call may extend such a path all the same: a child of the current
    /// node that fits is replayed, unless a step is asked for; everything else starts at a root.
    #[must_use]
    pub fn is_path_over<L: Liveness + ?Sized>(&self, live: &L) -> bool {
        self.path.is_unneeded_from(0, &self.nodes, live)
    }

    /// The node that ran after the last one, the last time; it is tried first.
    #[must_use]
    #[inline]
    pub fn predicted(&self) -> Option<NodeId> {
        self.predicted
    }

    /// The current step.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// Whether [`begin_step`](Self::begin_step) was called and no call has begun the step yet.
    #[must_use]
    #[inline]
    pub fn is_step_requested(&self) -> bool {
        self.steps_requested > self.steps_answered
    }

    /// Whether the token's backward may still run.
    #[must_use]
    pub fn is_pending(&self, token: TokenId) -> bool {
        self.tokens.is_pending(token)
    }

    /// How many backwards are pending, on the path or not.
    #[must_use]
    pub fn pending_backwards(&self) -> usize {
        self.tokens.len()
    }

    /// How many backwards are pending on the current path: those that hold it.
    #[must_use]
    pub fn pending_on_path(&self) -> usize {
        self.path.pending()
    }

    /// The notices since the last time, oldest first.
    #[must_use]
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    #[inline]
    pub(crate) fn registered(&self, function: FunctionId) -> Result<&Function, Error> {
        self.functions.get(function).ok_or(Error::UnknownFunction { function })
    }

    /// The state of a function that is known to be registered; a function removed meanwhile is simply not
    /// there.
    #[inline]
    pub(crate) fn function_mut(&mut self, function: FunctionId) -> Option<&mut Function> {
        self.functions.get_mut(function)
    }
}
