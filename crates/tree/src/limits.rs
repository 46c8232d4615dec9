//! Bounds on growth, and the two switches that fix how the tree behaves.

/// Bounds that keep the tree small whatever the calls are. A bound of zero means "none at all", never "no bound";
/// a decay of zero means that the count never falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest path, in nodes. Beyond it a call runs eagerly until the path can end.
    pub path_length: u32,
    /// How often one function may occur on a path before its next call starts again at a root, provided that
    /// nothing else on the path is needed. It bounds the recordings of a loop that feeds itself, `state =
    /// f(state)`, where every turn would otherwise be one node deeper; the price is one staged copy of the
    /// state per turn of this many. A loop that borrows its state, `state = f(&state)`, pays a second copy for
    /// it: the old state is copied out, because its owner may go on reading it.
    ///
    /// It also bounds how many calls of one warm function, with the same parameters, warm up again because something of a warm-up above them is
    /// needed: after as many the path ends in the same way, and whatever is live on it is copied out. Where a
    /// backward is pending on the path the tree notes that it holds them back instead
    /// ([`Notice::HeldByWarmUp`](crate::Notice::HeldByWarmUp)).
    pub loop_length: u32,
    /// Recordings of one function below one node, or as roots. One more evicts the one that was used least
    /// recently.
    pub siblings: u32,
    /// Recordings that differ in nothing but what was live when they were made: a match tries each of them,
    /// so this also bounds the time that finding one takes.
    pub liveness_variants: u32,
    /// Recordings of one function in the whole tree. One more evicts the one that was used least recently.
    pub recordings_per_function: u32,
    /// How often a function may be recorded again in one place before it runs eagerly. The count decays, so
    /// that a burst of change costs recordings only once.
    pub rerecordings: u32,
    /// The count of re-recordings falls by one in this many calls of the function.
    pub rerecordings_decay: u32,
    /// How many recordings of a function, in all places together, may not have been replayed yet before it runs eagerly. A
    /// first replay takes its recording off the count, which also decays: what does not repeat is soon not recorded any
    /// more, and what repeats is recorded in the end, however much it is.
    pub unreplayed: u32,
    /// The count of recordings that were not replayed falls by one in this many calls of the function.
    pub unreplayed_decay: u32,
    /// How often a parameter or a managed input may change before it is staged instead.
    pub changes_before_staged: u32,
    /// The count of changes falls by one in this many calls of the function.
    pub changes_decay: u32,
    /// How many recordings of a function may fail before it runs eagerly.
    pub failures: u32,
    /// The count of failures falls by one in this many calls of the function.
    pub failures_decay: u32,
    /// For how many different signatures a function is remembered as warmed up. Beyond it the oldest is
    /// forgotten and warms up again.
    pub warm_signatures: u32,
    /// With how many different signatures a function may be called before the tree notes that it sees many.
    pub noted_signatures: u32,
}

impl Default for Limits {
    /// Bounds for programs whose calls repeat: no training or inference loop with a fixed set of shapes meets
    /// them; a stream of ever new shapes costs at most about a hundred recordings at first and one in 32
    /// calls later, and calls that come in ever new places, as where outputs are kept at random, about 250 of each function
    /// at first and one in 32 calls later.
    fn default() -> Self {
        Self {
            path_length: 4096,
            loop_length: 16,
            siblings: 128,
            liveness_variants: 8,
            recordings_per_function: 1024,
            rerecordings: 128,
            rerecordings_decay: 32,
            unreplayed: 256,
            unreplayed_decay: 32,
            changes_before_staged: 4,
            changes_decay: 256,
            failures: 3,
            failures_decay: 64,
            warm_signatures: 4096,
            noted_signatures: 8,
        }
    }
}

/// How pending backwards are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PendingRule {
    /// A backward is pending until it runs or its token is given up, and an explicit step may begin in spite
    /// of it.
    #[default]
    Tokens,
    /// A backward is pending until it runs, and no step can begin before. This is the rule from before
    /// pytorch/pytorch#98112: one forward without a backward holds its path for ever.
    UntilBackwardRuns,
}

/// What is fixed when a tree is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bounds on growth.
    pub limits: Limits,
    /// How pending backwards are counted.
    pub pending: PendingRule,
    /// Whether the layers above copy a staged input back after the function has written to it. Without it
    /// such a call runs eagerly, because its effect would be lost.
    pub copy_back: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), pending: PendingRule::default(), copy_back: true }
    }
}
