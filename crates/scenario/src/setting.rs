//! What a scenario says about how it is run, and what it needs.

use crate::program::words;
use crate::{Old, Setup};

/// One line that begins with `set`.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Only these set-ups run it.
    Only(Vec<Filter>),
    /// What becomes of outputs at a new step, of functions that do not say.
    Old(Old),
    /// The seed of the device, of random tensors and of choices.
    Seed(u64),
    /// A bound of the engine.
    Limit(Limit, u32),
    /// The most bytes that all pools of recordings and all execs of an engine may hold together.
    Budget(u64),
    /// How much memory the device has, in bytes.
    Memory(u64),
    /// Calls that have to run plainly are errors.
    Strict,
    /// Values are compared at `check` and at the end, and not after each call.
    Lazy,
    /// Recordings search for their memory instead of laying it out.
    NoPlan,
    /// So many engines on one device.
    Engines(u64),
}

/// Which set-ups something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All of them.
    All,
    /// One mode with every prefix of the layers.
    Every(crate::ModeName),
    /// One mode with the lowest layers, so many of them.
    One(crate::ModeName, u32),
}

impl Filter {
    /// Whether a set-up is among them.
    #[must_use]
    pub fn has(self, setup: Setup) -> bool {
        match self {
            Self::All => true,
            Self::Every(mode) => setup.mode == mode,
            Self::One(mode, layers) => setup.mode == mode && setup.layers == layers,
        }
    }
}

words! {
    /// A bound of the engine that a scenario can set.
    Limit, "a limit" {
        /// The longest path.
        PathLength => "path-length",
        /// How often a function may be on a path.
        LoopLength => "loop-length",
        /// Recordings of a function in one place.
        Siblings => "siblings",
        /// Recordings that differ in what was live.
        LivenessVariants => "liveness-variants",
        /// Recordings of a function.
        Recordings => "recordings",
        /// Re-recordings of a function in one place.
        Rerecordings => "rerecordings",
        /// Recordings of a function that were not replayed.
        Unreplayed => "unreplayed",
        /// Changes of an input until it is staged.
        Changes => "changes",
        /// Recordings of a function that may fail.
        Failures => "failures",
        /// Signatures that are remembered as warm.
        Signatures => "signatures",
    }
}

words! {
    /// Something that an engine may be able to do, or the device that it is on.
    Capability, "a capability" {
        /// Random numbers inside of functions.
        Random => "random",
        /// Side streams inside of functions.
        SideStreams => "side-streams",
        /// A mode that measures what pays.
        MeasuredSwitch => "measured-switch",
        /// One budget over all pools and execs, by value.
        Budgets => "budgets",
        /// Giving memory back and keeping the recordings.
        Suspend => "suspend",
        /// Several devices and what goes on between them.
        Collectives => "collectives",
        /// Branches and loops inside of a graph.
        ConditionalNodes => "conditional-nodes",
        /// Execs that several recordings share.
        SharedExecs => "shared-execs",
        /// Memory of the pool lent to others.
        Lending => "lending",
        /// An observer of the engine, and reports.
        Reports => "reports",
        /// Calls of the driver that go wrong when they are told to.
        Faults => "faults",
        /// A device with as little memory as is wanted.
        BoundedMemory => "bounded-memory",
        /// A device that maps memory in pages of a few kilobytes.
        SmallPages => "small-pages",
        /// A driver whose calls are counted.
        DriverCalls => "driver-calls",
        /// A device of which nobody else uses a byte.
        DeviceBytes => "device-bytes",
        /// A clock that stands still but for calls of the driver.
        CountedTime => "counted-time",
    }
}

impl Capability {
    /// Whether it is there on some device.
    #[must_use]
    pub const fn is_built(self) -> bool {
        self.is_simulated()
            || matches!(self, Self::Random | Self::SideStreams | Self::MeasuredSwitch | Self::Budgets)
    }

    /// Whether the simulated device alone has it.
    #[must_use]
    pub const fn is_simulated(self) -> bool {
        matches!(
            self,
            Self::Faults
                | Self::BoundedMemory
                | Self::SmallPages
                | Self::DriverCalls
                | Self::DeviceBytes
                | Self::CountedTime
        )
    }
}
