//! Returning to a checkpoint.
//!
//! A restore walks from the present state to the checkpoint's over the differences between them: what was born on the way is taken
//! back, what died is put back at its old place under its old name. Until the new state is known to be sound every block that goes is
//! parked and none is forgotten, so a restore that cannot be done walks back the same way.

use super::Ranges;
use super::history::{Delta, Mark, Tenure, VersionIx};
use super::ids::{BlockId, CheckpointId, RegionId};
use super::slots::{SlotIx, State};
use crate::error::PoolError;

/// Which blocks are live after a restore.
///
/// A block may be named as long as the allocator knows it: while it is live, or while a checkpoint remembers it.
#[derive(Clone, Copy, Debug)]
pub enum Survivors<'a> {
    /// Those of the checkpoint.
    AsRecorded,
    /// Those of the checkpoint without `dead`, and `kept`. Costs what changed and the length of the lists.
    Except {
        /// Blocks that died since. Naming one twice, or one that the checkpoint does not have, changes nothing; a block that is also
        /// in `kept` is dead.
        dead: &'a [BlockId],
        /// Blocks that stay live at their place though the checkpoint may not know them.
        kept: &'a [BlockId],
    },
    /// Exactly these. Costs a pass over the side table.
    Only(&'a [BlockId]),
}

/// How many blocks a restore moved: what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// How often a block was taken away.
    pub taken: u32,
    /// How often a block was put back.
    pub placed: u32,
}

impl Ranges {
    /// Makes the state that of `checkpoint`, except for what `survivors` says.
    ///
    /// Every block that is live in both states keeps its place and its name. Regions keep their lengths: what was added since stays, as
    /// free memory. Returns how many blocks had to move.
    ///
    /// # Errors
    ///
    /// - [`PoolError::NoCheckpoint`] if the checkpoint was discarded.
    /// - [`PoolError::NotLive`] if `survivors` names a block that is neither live nor remembered.
    /// - [`PoolError::Overlap`] if a block that should stay lies where another block must be.
    /// - [`PoolError::RegionTooShort`] if a region must grow before the blocks fit into it.
    pub fn restore(
        &mut self,
        checkpoint: CheckpointId,
        survivors: Survivors<'_>,
    ) -> Result<Restored, PoolError> {
        self.restore_noting(checkpoint, survivors, &mut Vec::new())
    }

    /// As [`restore`](Self::restore), and adds the names of blocks that were live before and are not now. Some of them may have been
    /// taken away and forgotten; those are left out.
    pub(crate) fn restore_noting(
        &mut self,
        checkpoint: CheckpointId,
        survivors: Survivors<'_>,
        gone: &mut Vec<BlockId>,
    ) -> Result<Restored, PoolError> {
        let known = self.history.find(checkpoint).zip(self.history.base());
        let Some((target, from)) = known else { return Err(PoolError::NoCheckpoint { checkpoint }) };
        let plan = self.find_survivors(survivors)?;

        let old = std::mem::take(&mut self.history.working);
        let mut moves = Moves::default();
        self.undo(&old, &mut moves);
        self.travel(from, target, &mut moves);
        let new = self.settle_survivors(&plan);
        let outcome = new.and_then(|new| match self.check_lengths() {
            Ok(()) => Ok(new),
            Err(error) => Err((new, error)),
        });
        match outcome {
            Ok(new) => {
                moves.taken.extend_from_slice(&new.died);
                let placed = moves.placed + new.born.len() as u32;
                self.adopt(old, new, from, target);
                let parked = moves.taken.iter().filter(|&&slot| self.slots[slot].state == State::Parked);
                gone.extend(parked.map(|&slot| self.slots.name(slot)));
                Ok(Restored { taken: moves.taken.len() as u32, placed })
            }
            Err((new, error)) => {
                self.undo(&new, &mut moves);
                self.travel(target, from, &mut moves);
                self.redo(&old, &mut moves);
                self.history.working = old;
                Err(error)
            }
        }
    }

    fn find_survivors(&mut self, survivors: Survivors<'_>) -> Result<Plan, PoolError> {
        let find = |block: &BlockId| self.slots.find(*block).ok_or(PoolError::NotLive { block: *block });
        Ok(match survivors {
            Survivors::AsRecorded => Plan { kept: Vec::new(), dead: Dead::Listed(Vec::new()) },
            Survivors::Except { dead, kept } => Plan {
                kept: kept.iter().map(find).collect::<Result<_, _>>()?,
                dead: Dead::Listed(dead.iter().map(find).collect::<Result<_, _>>()?),
            },
            Survivors::Only(kept) => {
                Plan { kept: kept.iter().map(find).collect::<Result<_, _>>()?, dead: Dead::Unnamed }
            }
        })
    }

    /// Takes away the dead and puts back the kept, and returns how the state then differs from the checkpoint's. On an error the
    /// difference made so far comes with it.
    fn settle_survivors(&mut self, plan: &Plan) -> Result<Delta, (Delta, PoolError)> {
        self.history.tenures.resize(self.slots.len(), Tenure::default());
        let mut delta = Delta::default();
        match &plan.dead {
            Dead::Listed(dead) => {
                for &slot in dead {
                    self.history.tenures[slot.at()].mark = Mark::Named;
                    self.bury(slot, &mut delta);
                }
            }
            Dead::Unnamed => {
                for &slot in &plan.kept {
                    self.history.tenures[slot.at()].mark = Mark::Named;
                }
                let tenures = &self.history.tenures;
                let unnamed = self.slots.iter().filter(|(ix, _)| tenures[ix.at()].mark == Mark::None);
                let unnamed: Vec<_> = unnamed.map(|(ix, _)| ix).collect();
                for slot in unnamed {
                    self.bury(slot, &mut delta);
                }
                self.unmark(&plan.kept);
            }
        }
        let mut refused = None;
        for &slot in &plan.kept {
            let stays =
                self.slots[slot].state == State::Parked && self.history.tenures[slot.at()].mark == Mark::None;
            if stays && !self.put_back(slot) {
                refused = Some(slot);
                break;
            }
            if stays {
                delta.born.push(slot);
            }
        }
        if let Dead::Listed(dead) = &plan.dead {
            self.unmark(dead);
        }
        match refused {
            None => Ok(delta),
            Some(slot) => {
                let block = self.describe(slot);
                let error =
                    PoolError::Overlap { block: block.id, region: block.region, offset: block.offset };
                Err((delta, error))
            }
        }
    }

    fn bury(&mut self, slot: SlotIx, delta: &mut Delta) {
        if self.slots[slot].state == State::Live {
            self.give_back(slot, true);
            delta.died.push(slot);
        }
    }

    fn unmark(&mut self, slots: &[SlotIx]) {
        for slot in slots {
            self.history.tenures[slot.at()].mark = Mark::None;
        }
    }

    fn check_lengths(&self) -> Result<(), PoolError> {
        for &name in &self.growing {
            let region = &self.regions[usize::from(name)];
            let used = self.slots[region.last].end();
            if used > region.len {
                let (len, needed) = (self.granule.to_bytes(region.len), self.granule.to_bytes(used));
                return Err(PoolError::RegionTooShort { region: RegionId(name.into()), len, needed });
            }
        }
        Ok(())
    }

    /// Makes the new state the present one for good.
    fn adopt(&mut self, old: Delta, new: Delta, from: VersionIx, target: VersionIx) {
        self.history.forget_births(&old.born);
        self.history.working = new;
        self.history.number_births();
        self.history.set_base(Some(target));
        for slot in old.born {
            if self.history.is_lost(&self.slots, slot) {
                self.slots.vacate(slot);
            }
        }
        if from != target {
            self.settle(from);
        }
        self.tally.note_peak();
    }

    /// Walks from one version to another by way of their nearest common ancestor.
    fn travel(&mut self, from: VersionIx, to: VersionIx, moves: &mut Moves) {
        let (mut up, mut down) = (from, to);
        let mut way_down = Vec::new();
        // The root is an ancestor of every version, so the two sides meet before either runs out of parents.
        while up != down {
            if self.history.depth(up) >= self.history.depth(down) {
                let delta = self.history.take_delta(up);
                self.undo(&delta, moves);
                self.history.put_delta(up, delta);
                up = self.history.parent(up).unwrap_or(up);
            } else {
                way_down.push(down);
                down = self.history.parent(down).unwrap_or(down);
            }
        }
        while let Some(version) = way_down.pop() {
            let delta = self.history.take_delta(version);
            self.redo(&delta, moves);
            self.history.put_delta(version, delta);
        }
    }

    fn undo(&mut self, delta: &Delta, moves: &mut Moves) {
        self.exchange(&delta.born, &delta.died, moves);
    }

    fn redo(&mut self, delta: &Delta, moves: &mut Moves) {
        self.exchange(&delta.died, &delta.born, moves);
    }

    fn exchange(&mut self, out: &[SlotIx], into: &[SlotIx], moves: &mut Moves) {
        moves.taken.extend_from_slice(out);
        moves.placed += into.len() as u32;
        for &slot in out {
            self.give_back(slot, true);
        }
        for &slot in into {
            let free = self.put_back(slot);
            debug_assert!(free, "the blocks of one state overlap");
        }
    }
}

/// What a walk has moved so far.
#[derive(Default)]
struct Moves {
    /// A block for each time that it was taken away.
    taken: Vec<SlotIx>,
    placed: u32,
}

/// Survivors by slot.
struct Plan {
    kept: Vec<SlotIx>,
    dead: Dead,
}

enum Dead {
    Listed(Vec<SlotIx>),
    /// All that are not kept.
    Unnamed,
}
