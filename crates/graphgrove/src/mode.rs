//! How the calls of a function run.

/// What the engine does with the calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every call runs plainly.
    Eager,
    /// The function has a pool and buffers of its own: every input that is no parameter is copied, and each call runs over the
    /// outputs of the last one. This is what engines did before trees.
    ///
    /// That goes for outputs that a forward has saved too, its own and those of such a function that it was given: if the function has
    /// run again before the backward, the backward fails with [`Error::Storage`](crate::Error::Storage), which names what is gone.
    OnePool,
    /// Recordings of all functions share one pool, in trees by the order in which they run.
    #[default]
    Trees,
    /// The engine tries out whether trees pay back, and takes them or runs the function plainly.
    ///
    /// It times a few replays and a few plain runs of each function on the host, and adds to a replay what the device needs to copy
    /// its inputs. Where a replay takes no less, or where calls are hardly ever replayed, the function runs plainly, says why, and is
    /// tried out again much later; a function that is recorded is tried out again when it has been recorded several times more. What
    /// runs how then depends on a clock, and not on the calls alone. Without [`Layers::SWITCH`](crate::Layers::SWITCH) it is the same
    /// as `Trees`.
    Auto,
}
