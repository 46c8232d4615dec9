//! How the calls of a function run.

/// What the engine does with the calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every call runs plainly.
    Eager,
    /// The function has a pool and buffers of its own: every input that is no parameter is copied, and each call runs over the
    /// outputs of the last one. This is what engines did before trees.
    OnePool,
    /// Recordings of all functions share one pool, in trees by the order in which they run.
    Trees,
    /// The engine picks. It takes trees, and falls back to eager runs where recording fails.
    #[default]
    Auto,
}
