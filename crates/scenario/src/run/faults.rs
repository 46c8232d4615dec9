//! Failures that a program has planned. They meet the engine alone: what the runner does by itself between calls is not hit by them, and does not
//! count.

use std::sync::atomic::Ordering;

use graphgrove_device::Call as DriverCall;
use graphgrove_sim::{CallCounts, Failure, Fault};

use crate::program::FaultKind;
use crate::run::ground::Ground;
use crate::run::world::World;

/// A failure that is still to come.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) kind: FaultKind,
    pub(crate) call: Option<DriverCall>,
    /// With how many more calls of the driver it comes.
    pub(crate) left: u64,
}

impl Waiting {
    fn fault(&self) -> Fault {
        let failure = match self.kind {
            FaultKind::NoMemory => Failure::OutOfMemory,
            FaultKind::Refuse => Failure::Driver(999),
            FaultKind::Invalidate => Failure::InvalidateCaptures,
            FaultKind::Poison => Failure::Poison,
        };
        match self.call {
            Some(call) => Fault::at(call, self.left, failure),
            None => Fault::at_any(self.left, failure),
        }
    }

    /// How many of the calls that were made count for it. Ends of things cannot fail, and do not.
    fn counted(&self, made: &CallCounts) -> u64 {
        use DriverCall::{
            AbortCapture, DestroyEvent, DestroyExec, DestroyGraph, DestroyStream, Free, FreeHost, Unreserve,
        };
        let ends =
            [AbortCapture, DestroyEvent, DestroyExec, DestroyGraph, DestroyStream, Free, FreeHost, Unreserve];
        match self.call {
            Some(call) => made.of(call),
            None => made.total() - ends.into_iter().map(|end| made.of(end)).sum::<u64>(),
        }
    }
}

impl<D: Ground> World<'_, D> {
    /// Lets the engine do something, which the failures that are planned may meet. Says whether one of them has come.
    pub(crate) fn with_faults<T>(&self, run: impl FnOnce() -> T) -> (T, bool) {
        let waiting = self.faults.lock().clone();
        // Several threads would not know whose call it was.
        if waiting.is_empty() || self.is_crowded.load(Ordering::Relaxed) {
            return (run(), false);
        }
        let Some(before) = self.device.driver_calls() else { return (run(), false) };
        waiting.iter().for_each(|fault| self.device.plan_fault(fault.fault()));
        let result = run();
        self.device.forget_faults();
        let Some(after) = self.device.driver_calls() else { return (result, false) };
        let made = after.since(&before);
        let mut has_fired = false;
        self.faults.lock().retain_mut(|fault| {
            let counted = fault.counted(&made);
            if counted < fault.left {
                fault.left -= counted;
                return true;
            }
            has_fired = true;
            if fault.kind == FaultKind::Poison {
                self.is_poisoned.store(true, Ordering::Relaxed);
            }
            false
        });
        (result, has_fired)
    }
}
