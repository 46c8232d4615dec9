//! What the caller says about streams.

use graphgrove_device::{Device, DevicePtr, StreamHandle};

use crate::error::PoolError;
use crate::ranges::BlockId;

use super::Pool;
use super::block::Block;
use super::frontier::Mark;
use super::state::State;

impl<D: Device> Pool<D> {
    /// Declares that work with a block was enqueued on a stream other than the one it was handed out on, before the next event is recorded
    /// on that stream: what waits for a later event waits for the work as well.
    ///
    /// # Errors
    /// [`PoolError::Unordered`] if the stream does not lie behind the block's birth: what used these bytes before may still be running.
    /// [`PoolError::NotLive`], [`PoolError::ForeignHandle`]. Nothing is declared then.
    pub fn used_on(&self, block: &Block<D>, stream: &D::Stream) -> Result<(), PoolError> {
        if !block.is_of(&self.0) {
            return Err(PoolError::ForeignHandle);
        }
        self.enter().declare_use(block, stream)
    }

    /// As [`used_on`](Pool::used_on), for the live block that an address lies in, by whatever handle it is held. Returns whether there is one:
    /// memory that is not the pool's is not its business.
    ///
    /// # Errors
    /// [`PoolError::Unordered`], as [`used_on`](Pool::used_on). Nothing is declared then.
    pub fn used_at(&self, at: DevicePtr, stream: &D::Stream) -> Result<bool, PoolError> {
        let mut guard = self.enter();
        let state = &mut *guard;
        let place = state.backing.locate(&state.ranges, at);
        let block = place.and_then(|(region, offset)| state.ranges.block_at(region, offset));
        let block = block.filter(|block| state.records.get(block.id).is_some_and(|of| of.awaited == 0));
        match block {
            Some(block) => state.note_use(block.id, stream).map(|()| true),
            None => Ok(false),
        }
    }

    /// Says that whatever comes on the second stream runs behind what the first was given so far.
    pub fn ordered(&self, first: &D::Stream, second: &D::Stream) {
        let mut state = self.enter();
        let mark = state.frontier.mark(first.id());
        state.order_behind(&self.0.device, second, &mark);
    }

    /// Says that an event was recorded on a stream; the mark stands for that recording.
    #[must_use]
    pub fn marked(&self, stream: &D::Stream) -> Mark {
        self.enter().frontier.mark(stream.id())
    }

    /// Says that a stream was made to wait for the event that the mark stands for. A mark from outside of a recording orders nothing
    /// inside, and the other way round.
    pub fn ordered_behind(&self, mark: &Mark, stream: &D::Stream) {
        self.enter().order_behind(&self.0.device, stream, mark);
    }

    /// Makes the second stream wait for what the first was given so far, and takes note of it.
    ///
    /// # Errors
    /// [`PoolError::Device`]; nothing is noted then.
    pub fn order(&self, first: &D::Stream, second: &D::Stream) -> Result<(), PoolError> {
        let device = self.device();
        let event = device.create_event()?;
        device.record_event(&event, first)?;
        device.wait_event(second, &event)?;
        self.ordered(first, second);
        Ok(())
    }
}

impl<D: Device> State<D> {
    fn declare_use(&mut self, block: &Block<D>, stream: &D::Stream) -> Result<(), PoolError> {
        let id = block.id();
        if !self.is_current(block) {
            return Err(PoolError::NotLive { block: id });
        }
        self.note_use(id, stream)
    }

    fn note_use(&mut self, id: BlockId, stream: &D::Stream) -> Result<(), PoolError> {
        if self.frontier.is_main(stream.id()) {
            return Ok(());
        }
        let Some(record) = self.records.get_mut(id) else { return Err(PoolError::NotLive { block: id }) };
        if !self.frontier.is_before_stream(record.birth, stream.id()) {
            return Err(PoolError::Unordered { block: id, stream: stream.id() });
        }
        let stamp = self.frontier.on(stream.id());
        match record.uses.iter_mut().find(|known| known.lane == stamp.lane) {
            Some(known) => *known = stamp,
            None => record.uses.push(stamp),
        }
        // The host can wait for all work but that of a recording.
        if !self.is_recording() {
            self.know(stream);
        }
        Ok(())
    }

    fn order_behind(&mut self, device: &D, stream: &D::Stream, mark: &Mark) {
        self.frontier.wait(stream.id(), mark);
        if self.frontier.is_main(stream.id()) {
            self.free_reached(device);
            self.forget_joined();
        }
    }

    /// A stream that has been joined need not be waited for by itself, so its owner may let it go.
    pub(super) fn forget_joined(&mut self) {
        let (frontier, home, main) = (&self.frontier, self.home.id(), self.main.id());
        self.known.retain(|&id, _| id == home || id == main || frontier.has_open_use(id));
    }
}
