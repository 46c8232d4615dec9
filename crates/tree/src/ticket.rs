//! Tickets: a recording or a warm-up in progress. Nothing is changed by beginning one, so dropping it undoes
//! it.

use crate::decision::{RecordPlan, WarmUpPlan};
use crate::liveness::DeadMask;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The one place for work in progress in a tree.
#[derive(Debug, Default)]
pub(crate) struct Gate(Arc<AtomicBool>);

impl Gate {
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Takes the place, unless it is taken.
    pub(crate) fn enter(&self) -> Option<Pass> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Pass(Arc::clone(&self.0)))
    }
}

/// The right to work in a tree; dropping it gives the place free, on whatever thread that happens.
#[derive(Debug)]
pub(crate) struct Pass(Arc<AtomicBool>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A recording in progress.
///
/// Hand it to [`Tree::finish_recording`](crate::Tree::finish_recording) when the capture has ended well, or
/// to [`Tree::recording_failed`](crate::Tree::recording_failed) when it has not. Dropping it abandons the
/// recording and leaves no trace of it.
#[derive(Debug)]
#[must_use = "dropping it abandons the recording"]
pub struct Recording {
    pub(crate) plan: RecordPlan,
    /// Slots that were dead when the recording began and are not demanded to be by an ancestor.
    pub(crate) dead_before: Vec<DeadMask>,
    /// Slots that were live then: those that die until it ends are dead afterwards.
    pub(crate) live_before: Vec<DeadMask>,
    pub(crate) pass: Pass,
}

impl Recording {
    /// What is being recorded.
    #[must_use]
    pub fn plan(&self) -> &RecordPlan {
        &self.plan
    }
}

/// A warm-up in progress.
///
/// Hand it to [`Tree::finish_warm_up`](crate::Tree::finish_warm_up) when the function has returned. Dropping
/// it abandons the warm-up and leaves no trace of it.
#[derive(Debug)]
#[must_use = "dropping it abandons the warm-up"]
pub struct WarmUp {
    pub(crate) plan: WarmUpPlan,
    pub(crate) pass: Pass,
}

impl WarmUp {
    /// What is warming up.
    #[must_use]
    pub fn plan(&self) -> &WarmUpPlan {
        &self.plan
    }
}
