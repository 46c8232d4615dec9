//! What becomes of outputs that are still live when a new step begins.

use std::sync::Arc;

use graphgrove_device::{DevicePtr, Work};

use crate::block::{Block, Origin, Owner};
use crate::sheet::Fate;
use crate::{Cause, Epoch, Error, Slab, SlabId, SlotIndex};

/// What becomes of an output that is still live when a new step begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OldOutput {
    /// Its handles become stale: every way to its value is an error from then on.
    #[default]
    Error,
    /// Its storage is copied out of the pool, once, and all its handles and views read the copy.
    CopyOut,
    /// It is still needed: nothing happens to it, and the caller must leave its memory alone.
    Keep,
}

/// What ending a step did to the outputs of one slab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The slots whose handles are stale now.
    pub stale: Vec<SlotIndex>,
    /// The slots whose storages were copied out.
    pub copied: Vec<SlotIndex>,
    /// The slots that are live as before.
    pub kept: Vec<SlotIndex>,
    /// The bytes that were copied.
    pub bytes: u64,
}

/// What is going to become of the outputs of one slab. Dropping it changes nothing: the copies were for nothing then.
#[must_use = "nothing has ended yet"]
pub struct Ending {
    slab: SlabId,
    epoch: Epoch,
    ended: Ended,
    fates: Vec<(SlotIndex, Fate)>,
}

impl Ending {
    /// The slots that will stay as they are.
    #[must_use]
    pub fn kept(&self) -> &[SlotIndex] {
        &self.ended.kept
    }
}

impl Slab {
    /// Deals with every live slot at once: [`prepare_end`](Self::prepare_end), and then [`end`](Self::end).
    ///
    /// # Errors
    /// As [`prepare_end`](Self::prepare_end).
    pub fn end_step<D: Work>(
        &mut self,
        device: &D,
        stream: &D::Stream,
        cause: &Cause,
        rule: impl FnMut(SlotIndex) -> OldOutput,
        allocate: impl FnMut(u64) -> Result<(DevicePtr, Owner), Error>,
    ) -> Result<Ended, Error> {
        let ending = self.prepare_end(device, stream, cause, rule, allocate)?;
        Ok(self.end(ending))
    }

    /// Does all that can fail of dealing with every live slot as `rule` says, so that several slabs end together or not at all; `cause` is what handles that become stale will name.
    ///
    /// A [pinned](crate::Pinned) slot is kept, whatever its rule: whoever has its address can be neither told nor sent to a
    /// copy.
    ///
    /// Copies are enqueued on `stream`, which must be ordered behind what wrote the outputs and before what overwrites them.
    /// A storage's whole block is copied, however little of it is still viewed: a handle does not know what views others have.
    /// `allocate` obtains memory for a copy of that many bytes, and the owner that gives it back; it is asked once for each
    /// storage. The copy may still be under way when the owner is dropped, so whoever gets the memory next must be ordered
    /// behind `stream`. Nothing may write to the outputs
    /// between this and the [end](Self::end).
    ///
    /// # Errors
    /// Whatever `allocate` says, before anything is copied, and [`Error::Device`] for a copy that was refused. Memory that was obtained is given back, and copies that were enqueued before are for nothing.
    pub fn prepare_end<D: Work>(
        &self,
        device: &D,
        stream: &D::Stream,
        cause: &Cause,
        mut rule: impl FnMut(SlotIndex) -> OldOutput,
        mut allocate: impl FnMut(u64) -> Result<(DevicePtr, Owner), Error>,
    ) -> Result<Ending, Error> {
        let cause = Arc::new(cause.clone());
        let (mut ended, mut fates, mut copies) = (Ended::default(), Vec::new(), Vec::new());
        for slot in self.live() {
            match rule(slot) {
                _ if self.is_pinned(slot) => ended.kept.push(slot),
                OldOutput::Keep => ended.kept.push(slot),
                OldOutput::Error => {
                    ended.stale.push(slot);
                    fates.push((slot, Fate::Gone(Arc::clone(&cause))));
                }
                OldOutput::CopyOut => {
                    let Some((from, bytes)) = self.block(slot) else { continue };
                    let (to, owner) = allocate(bytes)?;
                    copies.push((to, from, bytes));
                    ended.copied.push(slot);
                    ended.bytes += bytes;
                    let copy = Block::new(to, bytes, Origin::Outside, Some(owner));
                    fates.push((slot, Fate::Moved(copy)));
                }
            }
        }
        for (to, from, bytes) in copies {
            device.copy(stream, to, from, bytes)?;
        }
        Ok(Ending { slab: self.id(), epoch: self.epoch(), ended, fates })
    }

    /// Ends what was prepared. What was copied or has become stale is [dead](Slab::died) from here on. What was pinned meanwhile is kept,
    /// and a copy of it is for nothing.
    ///
    /// An ending of another slab, or of an earlier run, changes nothing.
    pub fn end(&mut self, ending: Ending) -> Ended {
        let Ending { slab, epoch, mut ended, fates } = ending;
        if (slab, epoch) != (self.id(), self.epoch()) {
            return Ended::default();
        }
        let pinned = self.settle(fates, false);
        ended.stale.retain(|slot| !pinned.contains(slot));
        ended.copied.retain(|slot| !pinned.contains(slot));
        ended.kept.extend(pinned);
        ended
    }
}
