//! The ways in which the program is run.

use clap::ValueEnum;
use graphgrove::{EngineBuilder, Layers, Mode, OldOutput, PoolConfig};

/// A mode of the engine, with or without its fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Setup {
    /// Every call runs plainly.
    Eager,
    /// One pool and static buffers for each function.
    OnePool,
    /// Trees of recordings in one shared pool.
    Trees,
    /// Trees without the layer `FAST_REPLAY`: every question is asked anew at each call.
    TreesReference,
}

impl Setup {
    pub(crate) const ALL: [Self; 4] = [Self::Eager, Self::OnePool, Self::Trees, Self::TreesReference];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::OnePool => "one-pool",
            Self::Trees => "trees",
            Self::TreesReference => "trees-reference",
        }
    }

    pub(crate) fn builder(self, pool: Option<PoolConfig>) -> EngineBuilder {
        // With one pool for each function the next call of the same function would end an output that is still needed.
        let builder = EngineBuilder::default().old_outputs(OldOutput::CopyOut);
        let builder = match pool {
            Some(pool) => builder.pool(pool),
            None => builder,
        };
        match self {
            Self::Eager => builder.mode(Mode::Eager),
            Self::OnePool => builder.mode(Mode::OnePool),
            Self::Trees => builder.mode(Mode::Trees),
            Self::TreesReference => builder.mode(Mode::Trees).layers(Layers::prefix(3)),
        }
    }
}
