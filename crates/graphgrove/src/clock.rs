//! The time of the host, which nothing reads on the way of a replay.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Tells the time of the host.
///
/// The engine asks it around recordings if somebody observes it, and around calls that the mode [`Auto`](crate::Mode::Auto) tries out. It
/// never asks on the way of a replay that is not tried out. A test brings a clock of its own, so that nothing depends on how
/// fast a machine is.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some moment, which is always the same and in the past.
    fn now(&self) -> u64;
}

impl<F: Fn() -> u64 + Send + Sync> Clock for F {
    fn now(&self) -> u64 {
        self()
    }
}

/// The clock of an engine.
#[derive(Clone)]
pub(crate) struct EngineClock(Arc<dyn Clock>);

impl EngineClock {
    pub(crate) fn new(clock: impl Clock + 'static) -> Self {
        Self(Arc::new(clock))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.now()
    }

    pub(crate) fn since(&self, start: u64) -> u64 {
        self.now().saturating_sub(start)
    }
}

impl Default for EngineClock {
    /// The host's own, from now on.
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for EngineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineClock")
    }
}
