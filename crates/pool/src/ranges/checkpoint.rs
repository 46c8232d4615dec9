//! Taking checkpoints and giving them up.
//!
//! A version that nobody holds stays only while it is a fork. When it is not one any more, the two differences that meet in it are
//! merged into one, so that an endless chain of checkpoints, taken at one end and discarded at the other, keeps a bounded history.

use super::Ranges;
use super::history::{Delta, Mark, VersionIx};
use super::ids::{BlockId, CheckpointId};
use super::slots::{SlotIx, State};
use crate::error::PoolError;

impl Ranges {
    /// Names the present state, so that [`Self::restore`] can return to it at any later time.
    ///
    /// Costs what changed since the last checkpoint or restore; the first checkpoint of an allocator costs one pass over its blocks.
    /// Where nothing changed, the same name is given again, and must be discarded as often as it was given.
    #[must_use = "a checkpoint that is not discarded keeps its blocks' names for ever"]
    pub fn checkpoint(&mut self) -> CheckpointId {
        let history = &mut self.history;
        let version = match history.base() {
            Some(base) if history.working.is_empty() => base,
            Some(_) => history.freeze(),
            None => {
                history.start(&self.slots);
                history.freeze()
            }
        };
        history.hold(version)
    }

    /// Gives up a checkpoint. The present state and all other checkpoints stay as they are.
    ///
    /// Costs at most the differences that have to be merged into one, and frees the memory that the checkpoint took.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoCheckpoint`] if it was discarded before.
    pub fn discard(&mut self, checkpoint: CheckpointId) -> Result<(), PoolError> {
        let Some(version) = self.history.find(checkpoint) else {
            return Err(PoolError::NoCheckpoint { checkpoint });
        };
        self.history.version(version).holders -= 1;
        self.settle(version);
        Ok(())
    }

    /// How many versions exist: one for each state that a checkpoint names, and one for each fork between them.
    #[must_use]
    pub fn versions(&self) -> usize {
        self.history.count()
    }

    /// Whether a restore could bring this block back, or it is live.
    #[must_use]
    pub fn remembers(&self, block: BlockId) -> bool {
        self.slots.find(block).is_some()
    }

    /// Removes `ix`, and then its ancestors, as far as nobody holds them and they are no forks.
    pub(super) fn settle(&mut self, ix: VersionIx) {
        let mut next = Some(ix);
        while let Some(ix) = next {
            let is_base = self.history.base() == Some(ix);
            let version = self.history.version(ix);
            if version.holders > 0 {
                return;
            }
            let (children, parent) = (version.children, version.parent);
            match (children, is_base, parent) {
                (0, false, _) => self.drop_leaf(ix),
                (0, true, None) => return self.drop_all(ix),
                (0, true, Some(parent)) => self.merge_into_working(ix, parent),
                (1, false, None) => return self.make_child_root(ix),
                (1, false, Some(_)) => return self.merge_into_child(ix),
                _ => return,
            }
            next = parent;
        }
    }

    fn forget_if_lost(&mut self, slot: SlotIx) {
        if self.history.is_lost(&self.slots, slot) {
            self.slots.vacate(slot);
        }
    }

    fn unpin(&mut self, slot: SlotIx) {
        self.history.tenures[slot.at()].pins -= 1;
        self.forget_if_lost(slot);
    }

    fn drop_leaf(&mut self, ix: VersionIx) {
        if let Some(version) = self.history.remove(ix) {
            for slot in version.delta.born {
                self.unpin(slot);
            }
        }
    }

    /// The last version goes: nothing can be restored any more.
    fn drop_all(&mut self, ix: VersionIx) {
        self.history.remove(ix);
        self.history.set_base(None);
        let working = std::mem::take(&mut self.history.working);
        self.history.tenures.clear();
        for slot in working.died {
            // A block that died and was kept through a restore is in both lists and live.
            if self.slots[slot].state == State::Parked {
                self.slots.vacate(slot);
            }
        }
    }

    /// The only child of the root becomes the root.
    fn make_child_root(&mut self, root: VersionIx) {
        let child = self.history.only_child(root);
        let delta = self.history.take_delta(child);
        for &slot in &delta.died {
            self.history.tenures[slot.at()].rooted = false;
        }
        for &slot in &delta.born {
            let tenure = &mut self.history.tenures[slot.at()];
            tenure.pins -= 1;
            tenure.rooted = true;
        }
        for slot in delta.died {
            self.forget_if_lost(slot);
        }
        self.history.remove_root(root, child);
    }

    /// Merges a version into the only one below it.
    fn merge_into_child(&mut self, ix: VersionIx) {
        let child = self.history.only_child(ix);
        let lower = self.history.take_delta(child);
        let upper = self.history.take_delta(ix);
        let merged = self.compose(upper, lower);
        self.history.put_delta(child, merged);
        self.history.bypass(ix, child);
    }

    /// Merges the base into the working difference.
    fn merge_into_working(&mut self, ix: VersionIx, parent: VersionIx) {
        let lower = std::mem::take(&mut self.history.working);
        let upper = self.history.take_delta(ix);
        self.history.forget_births(&lower.born);
        // What moves from a version to the working difference is not pinned by the version any more. It is live, so this loses nothing.
        let own = lower.born.len();
        let merged = self.compose(upper, lower);
        let moved = merged.born.len() - own;
        for slot in &merged.born[..moved] {
            self.history.tenures[slot.at()].pins -= 1;
        }
        self.history.working = merged;
        self.history.number_births();
        self.history.remove(ix);
        self.history.set_base(Some(parent));
    }

    /// One difference for two that follow each other. A block that is born in the upper and dies in the lower one is in neither list
    /// afterwards, and loses the pin of the upper one.
    fn compose(&mut self, upper: Delta, lower: Delta) -> Delta {
        for slot in &lower.died {
            self.history.tenures[slot.at()].mark = Mark::Named;
        }
        let (gone, mut born): (Vec<_>, Vec<_>) =
            upper.born.into_iter().partition(|slot| self.history.tenures[slot.at()].mark == Mark::Named);
        for slot in &gone {
            self.history.tenures[slot.at()].mark = Mark::Met;
        }
        let mut died = upper.died;
        for slot in lower.died {
            let tenure = &mut self.history.tenures[slot.at()];
            if tenure.mark == Mark::Named {
                died.push(slot);
            }
            tenure.mark = Mark::None;
        }
        for slot in gone {
            self.unpin(slot);
        }
        born.extend(lower.born);
        Delta { born, died }
    }
}
