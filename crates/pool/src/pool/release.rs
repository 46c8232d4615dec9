//! How blocks die.
//!
//! Memory dies in two ways: it is given up inside of a recording, whose next request may have it, or a handle is dropped while replays
//! run, when the allocator's state is an old one and owns nothing. Both leave a note (see [`Drops`](super::gone::Drops)) and both end
//! in [`State::release`]: at the next operation on the pool in the first case, at the restore that brings the allocator up to date in
//! the second. So recordings start from the same state whichever way their inputs died.

use graphgrove_device::Device;

use crate::ranges::BlockId;

use super::gone::Gone;
use super::phase::Phase;
use super::state::State;

impl<D: Device> State<D> {
    /// Looks at what dropped handles have left.
    pub(super) fn apply(&mut self, device: &D, drops: Vec<Gone>) {
        for gone in drops {
            match gone {
                Gone::Block { id, epoch } => self.give_up(device, id, Some(epoch)),
                Gone::Checkpoint { id, footprint } => {
                    self.pins.unpin(&footprint);
                    // A handle names its checkpoint once, so the name is known.
                    if self.ranges.discard(id).is_err() {
                        self.counts.refusals += 1;
                    }
                }
            }
        }
    }

    /// Takes one claim to a block away; the last one is its death. A claim of an earlier life counts no more.
    pub(super) fn give_up(&mut self, device: &D, id: BlockId, epoch: Option<u32>) {
        let known = self.ranges.remembers(id);
        let record = self
            .records
            .get_mut(id)
            .filter(|record| known && epoch.is_none_or(|epoch| epoch == record.epoch));
        let Some(record) = record else {
            self.counts.stale_drops += 1;
            return;
        };
        record.claims = record.claims.saturating_sub(1);
        if record.claims > 0 {
            return;
        }
        match &mut self.phase {
            Phase::Replaying(replaying) => {
                replaying.deaths.insert(id);
            }
            Phase::Open | Phase::Session(_) => self.release(device, id),
        }
    }

    /// The death of a block, by whatever way it came. Its bytes are free once every use that was declared lies before what comes
    /// next on the main stream. A block that is not live, or dead already, stays as it is.
    pub(super) fn release(&mut self, device: &D, id: BlockId) {
        let live = self.ranges.block(id).is_some();
        let Some(record) = self.records.get_mut(id) else { return };
        if record.awaited > 0 {
            return;
        }
        record.claims = 0;
        record.epoch = record.epoch.wrapping_add(1);
        if !live {
            return;
        }
        let frontier = &self.frontier;
        let mut awaited = std::mem::take(&mut record.uses);
        awaited.retain(|&stamp| !frontier.is_before_main(stamp));
        record.awaited = awaited.len() as u32;
        self.counts.releases += 1;
        if awaited.is_empty() {
            self.free(device, id);
        } else {
            self.waiting.add(id, record.bytes, &awaited);
            record.uses = awaited;
            self.note_death_in_session(id);
        }
    }

    /// Makes the bytes of a dead block free.
    fn free(&mut self, device: &D, id: BlockId) {
        if let Some(block) = self.ranges.block(id) {
            self.annotate_released(device, &block);
        }
        let (session, request) =
            self.records.get(id).map_or((0, 0), |record| (record.session, record.request));
        if let Some(open) = self.phase.session() {
            if session == open.number {
                open.recorder.free(request);
            } else {
                let now = open.recorder.free_obstacle();
                open.deaths.push((id, now));
            }
        }
        self.note_death_in_session(id);
        // The block is live: that was looked up before it came here.
        let freed = self.ranges.free(id);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// A block from before the session that dies in it stays dead if the session is undone. If it is not, what was recorded may have the
    /// block's address, though the state after the recording does not have the block.
    fn note_death_in_session(&mut self, id: BlockId) {
        let born_in = self.records.get(id).map_or(0, |record| record.session);
        let Some(session) = self.phase.session().filter(|session| session.number != born_in) else { return };
        session.released.push(id);
        if let Some(block) = self.ranges.block(id) {
            session.footprint.add_block(&block);
        }
    }

    /// Frees the dead blocks whose last use the main stream has come to lie behind.
    pub(super) fn free_reached(&mut self, device: &D) {
        if !self.waiting.is_empty() {
            let reached = self.waiting.reached(&self.frontier);
            self.no_longer_awaited(device, reached);
        }
    }

    /// Takes note of uses that need not be waited for any more, one for each time that a block is named.
    pub(super) fn no_longer_awaited(&mut self, device: &D, reached: Vec<BlockId>) {
        for id in reached {
            let Some(record) = self.records.get_mut(id) else { continue };
            record.awaited = record.awaited.saturating_sub(1);
            if record.awaited == 0 {
                record.uses.clear();
                self.waiting.over(id);
                self.free(device, id);
            }
        }
    }

    /// Makes a dead block that streams still use one that nobody waits for.
    pub(super) fn stop_waiting(&mut self, id: BlockId) {
        if let Some(record) = self.records.get_mut(id).filter(|record| record.awaited > 0) {
            record.awaited = 0;
            self.waiting.cancel(id, &record.uses);
        }
    }
}
