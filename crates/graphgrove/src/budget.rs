//! The bytes that recordings may take, over all pools and execs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use graphgrove_device::Device;
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::Limit;
use graphgrove_replay::Captured;
use graphgrove_tree::NodeId;
use parking_lot::Mutex;

use crate::grove::{Grove, Request, lives};
use crate::{Error, Result};

/// A recording that ran since so many recordings lacked room is not given up for another one: where more is needed all the time than
/// there is room for, the new ones run plainly, and nothing is recorded over and over.
const SPARED: usize = 4;

/// When recordings lacked room lately, by what had run last then.
#[derive(Default)]
pub(crate) struct Denials(VecDeque<u64>);

impl Denials {
    fn add(&mut self, now: u64) {
        if self.0.len() == SPARED {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Whether a recording has run since the first of the last few.
    fn spare(&self, last_used: u64) -> bool {
        self.0.len() < SPARED || self.0.front().is_some_and(|first| last_used > *first)
    }
}

/// What all groves of an engine may hold together.
pub(crate) struct Budget {
    limit: Option<u64>,
    /// A (grove -> bytes of its pool and its execs) table. The pools of groves that are gone stay in it while handles keep them.
    used: Mutex<BTreeMap<u64, u64>>,
    /// How many bytes a grove lacked; the others make room before the next call.
    lacking: AtomicU64,
    /// Functions that were recorded, for the mode `Auto`.
    recorded: Mutex<Vec<usize>>,
    /// Raised for the engine to look, along with its other chores.
    chores: Arc<AtomicBool>,
}

impl Budget {
    pub(crate) fn new(limit: Option<u64>, chores: Arc<AtomicBool>) -> Self {
        Self { limit, used: Mutex::default(), lacking: AtomicU64::new(0), recorded: Mutex::default(), chores }
    }

    /// How many bytes a grove may hold, beside what all others do.
    fn share_of(&self, grove: u64) -> Option<u64> {
        let used = self.used.lock();
        let others: u64 = used.iter().filter(|(other, _)| **other != grove).map(|(_, bytes)| bytes).sum();
        Some(self.limit?.saturating_sub(others))
    }

    pub(crate) fn note(&self, grove: u64, bytes: u64) {
        self.used.lock().insert(grove, bytes);
    }

    pub(crate) fn forget(&self, grove: u64) {
        self.used.lock().remove(&grove);
    }

    /// Takes note of a recording of a function whose mode is `Auto`.
    pub(crate) fn note_recorded(&self, function: usize) {
        self.recorded.lock().push(function);
        self.chores.store(true, Ordering::Release);
    }

    pub(crate) fn take_recorded(&self) -> Vec<usize> {
        std::mem::take(&mut *self.recorded.lock())
    }

    /// Says how many bytes were lacking since the last time.
    pub(crate) fn take_lacking(&self) -> Option<u64> {
        Some(self.lacking.swap(0, Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

impl<D: Device> Grove<D> {
    /// The bytes of its pool and its execs.
    pub(crate) fn budgeted(&self) -> u64 {
        self.pool.stats().ranges.reserved + self.replayer.all_exec_bytes()
    }

    /// Tells the pool how far it may grow in what comes next.
    pub(crate) fn limit_pool(&self) {
        if let Some(share) = self.budget.share_of(self.serial()) {
            let left = share.saturating_sub(self.replayer.all_exec_bytes());
            let own = self.options.pool.budget.unwrap_or(u64::MAX);
            self.pool.set_budget(Some(left.min(own)));
        }
    }

    /// Takes note of what the grove holds.
    pub(crate) fn note_use(&self) {
        if self.budget.limit.is_some() {
            self.budget.note(self.serial(), self.budgeted());
        }
    }

    /// Refuses an exec for which there is no room.
    pub(crate) fn admit(&self, request: &Request<'_, D>, captured: &Captured<D>) -> Result<()> {
        let Some(share) = self.budget.share_of(self.serial()) else { return Ok(()) };
        let bytes = captured.exec_bytes(&self.device).unwrap_or(0);
        if self.budgeted().saturating_add(bytes) <= share {
            return Ok(());
        }
        let (function, budget) = (request.data.name.to_string(), self.budget.limit.unwrap_or(share));
        Err(Error::OverBudget { function, bytes, budget })
    }

    /// Gives recordings up for one that lacked room, those first that were not used for the longest time. Whether there is more room
    /// now than before. What lacks still is asked of the other groves before the next call.
    pub(crate) fn make_room_for(&mut self, error: &Error) -> bool {
        let Some(lacking) = lacking(error) else { return false };
        let freed = self.make_room(lacking);
        if freed < lacking {
            self.budget.lacking.fetch_max(lacking - freed, Ordering::Relaxed);
            self.budget.chores.store(true, Ordering::Release);
        }
        freed > 0
    }

    /// Lets go of the memory of warm-ups that nothing is left of: nothing comes below them any more.
    fn let_go_of_warm_ups(&mut self) {
        if !self.ledger.all_dead() || self.tree.pending_backwards() > 0 || self.restore(None).is_err() {
            return;
        }
        for held in self.nodes.values_mut().filter(|held| held.key.is_none()) {
            // The pool with nothing in it, which needs no memory to stay.
            let Ok(nothing) = self.pool.checkpoint() else { return };
            held.checkpoint = nothing;
            held.blocks.clear();
        }
    }

    /// Gives up recordings until so many bytes went back, or none is left that may go. Says how many bytes went back.
    pub(crate) fn make_room(&mut self, lacking: u64) -> u64 {
        let before = self.budgeted();
        let freed = |grove: &Self| before.saturating_sub(grove.budgeted());
        // What only warm-ups needed goes before any recording. A device that cannot give back says so at the next call too.
        self.let_go_of_warm_ups();
        let _ = self.pool.trim();
        let recordings = self.tree.nodes().filter(|(_, node)| !node.is_warm_up());
        let mut oldest: Vec<(u64, NodeId)> = recordings.map(|(id, node)| (node.last_used(), id)).collect();
        oldest.sort_unstable();
        self.denials.add(oldest.last().map_or(0, |(last, _)| *last));
        for (last_used, node) in oldest {
            if freed(self) >= lacking || self.denials.spare(last_used) {
                break;
            }
            // A recording that is on the path or above a live output stays, and so does one that went with its parent.
            if let Ok(gone) = self.tree.evict(node, &lives!(self)) {
                self.forget_all(&gone);
                let _ = self.pool.trim();
            }
        }
        self.note_use();
        freed(self)
    }
}

/// How many bytes a recording lacked because of the budget; none if it failed for something else.
fn lacking(error: &Error) -> Option<u64> {
    match error {
        Error::OverBudget { bytes, .. } => Some(*bytes),
        Error::Pool(error) if is_over_budget(error) => match error {
            PoolError::Exhausted(exhaustion) => Some(exhaustion.asked),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a pool refused because of its budget, and not because of the device.
pub(crate) fn is_over_budget(error: &PoolError) -> bool {
    matches!(error, PoolError::Exhausted(exhaustion) if matches!(exhaustion.limit, Limit::Budget { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_since_the_first_of_the_last_denials_is_spared() {
        let mut denials = Denials::default();
        for now in [10, 10, 20] {
            denials.add(now);
            assert!(denials.spare(0));
        }
        denials.add(20);
        assert_eq!([9, 10, 11, 20].map(|last| denials.spare(last)), [false, false, true, true]);
        denials.add(30);
        denials.add(30);
        assert_eq!([20, 21].map(|last| denials.spare(last)), [false, true]);
    }

    #[test]
    fn a_share_is_what_the_others_leave() {
        let chores = Arc::default();
        let budget = Budget::new(Some(100), Arc::clone(&chores));
        budget.note(1, 30);
        budget.note(2, 50);
        assert_eq!([1, 2, 3].map(|grove| budget.share_of(grove)), [Some(50), Some(70), Some(20)]);
        budget.note(3, 90);
        assert_eq!(budget.share_of(1), Some(0));
        budget.forget(3);
        assert_eq!(budget.share_of(1), Some(50));
        assert_eq!(Budget::new(None, chores).share_of(1), None);
    }
}
