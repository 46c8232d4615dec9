//! Streams and events of the simulated device.

use std::sync::Arc;

use graphgrove_device::{
    Call, Capabilities, CaptureFailure, DeviceError, DeviceId, EventHandle, EventId, Problem, Progress,
    RawStream, Result, StreamHandle, StreamId, Streams,
};

use crate::capture_state::Membership;
use crate::clock::{Clock, Lane};
use crate::device::{Shared, SimDevice};
use crate::state::{EventState, Item, Recording, State, StreamState};

/// The null stream, which every device has.
pub(crate) const NULL: StreamId = StreamId::new(0);

pub(crate) fn null_state(lane: Lane) -> StreamState {
    StreamState {
        queue: Default::default(),
        running: None,
        calling: false,
        ticket: 0,
        clock: Clock::default(),
        lane,
        blocking: false,
        capture: None,
        abandoned: false,
    }
}

/// A stream of the simulated device.
#[derive(Debug, Clone)]
pub struct SimStream(Arc<StreamOwner>);

#[derive(Debug)]
struct StreamOwner {
    device: Arc<Shared>,
    id: StreamId,
    /// Whether the stream ends with this handle: the null stream and adopted streams do not.
    owned: bool,
}

impl StreamHandle for SimStream {
    fn id(&self) -> StreamId {
        self.0.id
    }

    fn device(&self) -> DeviceId {
        self.0.device.id
    }

    fn raw(&self) -> RawStream {
        RawStream::new(self.0.id.get())
    }

    fn is_null(&self) -> bool {
        self.0.id == NULL
    }
}

impl Drop for StreamOwner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let id = self.id;
        self.device.abandon_capture(id);
        self.device.destroy(Call::DestroyStream, move |state| {
            if let Some(stream) = state.streams.get_mut(&id) {
                stream.abandoned = true;
            }
            state.reap(id);
        });
    }
}

/// An event of the simulated device.
#[derive(Debug, Clone)]
pub struct SimEvent(Arc<EventOwner>);

#[derive(Debug)]
struct EventOwner {
    device: Arc<Shared>,
    id: EventId,
}

impl EventHandle for SimEvent {
    fn id(&self) -> EventId {
        self.0.id
    }

    fn device(&self) -> DeviceId {
        self.0.device.id
    }
}

impl Drop for EventOwner {
    fn drop(&mut self) {
        let id = self.id;
        self.device.destroy(Call::DestroyEvent, move |state| {
            state.events.remove(&id);
        });
    }
}

impl Shared {
    /// Throws away a capture that was begun on a stream whose last handle goes: nobody could end it any more, and every
    /// destruction would wait for it for ever.
    fn abandon_capture(&self, stream: StreamId) {
        if crate::device::is_in_kernel() {
            return;
        }
        let mut state = self.lock();
        let Some(id) = state.capture_of(stream) else { return };
        if state.captures.get(&id).is_some_and(|capture| capture.origin == stream) {
            state.discard_capture(id);
            drop(state);
            self.deferred.capture_closed();
        }
    }
}

impl SimDevice {
    fn make_stream(&self, blocking: bool) -> Result<SimStream> {
        let mut state = self.shared.enter(Call::CreateStream)?;
        let id = StreamId::new(state.next_id());
        let lane = state.take_lane();
        state.streams.insert(id, StreamState { blocking, ..null_state(lane) });
        drop(state);
        Ok(SimStream(Arc::new(StreamOwner { device: Arc::clone(&self.shared), id, owned: true })))
    }

    /// Checks that a stream belongs to this device and still exists, which an adopted one may not.
    pub(crate) fn check_stream(&self, state: &State, call: Call, stream: &SimStream) -> Result<StreamId> {
        self.shared.check_owner(call, stream.device())?;
        let id = stream.id();
        let known = state.streams.get(&id).is_some_and(|stream| !stream.abandoned);
        if known { Ok(id) } else { Err(DeviceError::invalid(call, Problem::UnknownHandle)) }
    }

    /// What a query of or a wait for a stream has to pass: nothing of the kind is possible while it captures.
    fn check_waitable(&self, state: &mut State, call: Call, stream: &SimStream) -> Result<StreamId> {
        let id = self.check_stream(state, call, stream)?;
        if id == NULL {
            state.refuse_implicit(call)?;
        }
        state.refuse_capturing(call, id)?;
        state.refuse_unsafe(call)?;
        Ok(id)
    }

    /// What a query of or a wait for an event has to pass. Returns the recording to look at, if there is one.
    fn check_event(&self, state: &mut State, call: Call, event: &SimEvent) -> Result<Option<Arc<Recording>>> {
        self.shared.check_owner(call, event.device())?;
        let id = event.id();
        match state.events.get(&id).cloned().unwrap_or(EventState::Unrecorded) {
            EventState::Captured { capture, .. } if state.is_valid(capture) => {
                state.invalidate(capture);
                Err(DeviceError::capture(call, CaptureFailure::CapturedEvent { event: id }))
            }
            EventState::Captured { .. } => {
                Err(DeviceError::invalid(call, Problem::CaptureOver { event: id }))
            }
            EventState::Unrecorded => state.refuse_unsafe(call).map(|()| None),
            EventState::Recorded(recording) => state.refuse_unsafe(call).map(|()| Some(recording)),
        }
    }
}

fn poisoned(state: &State) -> Result<()> {
    match &state.fault {
        Some(cause) => Err(DeviceError::Fault { cause: cause.clone() }),
        None => Ok(()),
    }
}

impl Streams for SimDevice {
    type Stream = SimStream;
    type Event = SimEvent;

    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::all();
        if self.shared.config.checker { all } else { all - Capabilities::CHECKED_MEMORY }
    }

    fn null_stream(&self) -> SimStream {
        SimStream(Arc::new(StreamOwner { device: Arc::clone(&self.shared), id: NULL, owned: false }))
    }

    fn create_stream(&self) -> Result<SimStream> {
        self.make_stream(false)
    }

    fn create_blocking_stream(&self) -> Result<SimStream> {
        self.make_stream(true)
    }

    fn adopt_stream(&self, raw: RawStream) -> Result<SimStream> {
        let state = self.shared.enter(Call::AdoptStream)?;
        let id = StreamId::new(raw.get());
        if state.streams.get(&id).is_none_or(|stream| stream.abandoned) {
            return Err(DeviceError::invalid(Call::AdoptStream, Problem::UnknownHandle));
        }
        drop(state);
        Ok(SimStream(Arc::new(StreamOwner { device: Arc::clone(&self.shared), id, owned: false })))
    }

    fn synchronize(&self) -> Result<()> {
        let mut state = self.shared.enter(Call::SynchronizeDevice)?;
        if !state.captures.is_empty() {
            state.invalidate_all();
            return Err(DeviceError::capture(Call::SynchronizeDevice, CaptureFailure::Unsupported));
        }
        state.finish_all();
        state.forget_the_past();
        poisoned(&state)
    }

    fn synchronize_stream(&self, stream: &SimStream) -> Result<()> {
        let mut state = self.shared.enter(Call::SynchronizeStream)?;
        let id = self.check_waitable(&mut state, Call::SynchronizeStream, stream)?;
        if id == NULL {
            state.order_null();
        }
        state.finish_stream(id);
        poisoned(&state)
    }

    fn query_stream(&self, stream: &SimStream) -> Result<Progress> {
        let mut state = self.shared.enter(Call::QueryStream)?;
        let id = self.check_waitable(&mut state, Call::QueryStream, stream)?;
        if id == NULL {
            state.order_null();
        }
        state.pass_time();
        poisoned(&state)?;
        if state.streams.get(&id).is_some_and(|stream| !stream.is_idle()) {
            return Ok(Progress::Pending);
        }
        state.finish_stream(id);
        Ok(Progress::Done)
    }

    fn create_event(&self) -> Result<SimEvent> {
        let mut state = self.shared.enter(Call::CreateEvent)?;
        let id = EventId::new(state.next_id());
        state.events.insert(id, EventState::Unrecorded);
        drop(state);
        Ok(SimEvent(Arc::new(EventOwner { device: Arc::clone(&self.shared), id })))
    }

    fn record_event(&self, event: &SimEvent, stream: &SimStream) -> Result<()> {
        let mut state = self.shared.enter(Call::RecordEvent)?;
        self.shared.check_owner(Call::RecordEvent, event.device())?;
        let id = self.check_stream(&state, Call::RecordEvent, stream)?;
        let recorded = match state.capturing(Call::RecordEvent, id)? {
            Some(capture) => {
                let membership = state.streams.get(&id).and_then(|stream| stream.capture.as_ref());
                let behind = membership.map(|membership| membership.frontier.clone()).unwrap_or_default();
                EventState::Captured { capture, behind }
            }
            None => {
                let recording = Arc::new(Recording::default());
                state.enqueue(id, Item::Record(Arc::clone(&recording)));
                EventState::Recorded(recording)
            }
        };
        state.events.insert(event.id(), recorded);
        Ok(())
    }

    fn wait_event(&self, stream: &SimStream, event: &SimEvent) -> Result<()> {
        const CALL: Call = Call::WaitEvent;
        let mut state = self.shared.enter(CALL)?;
        self.shared.check_owner(CALL, event.device())?;
        let id = self.check_stream(&state, CALL, stream)?;
        let own = state.capturing(CALL, id)?;
        match state.events.get(&event.id()).cloned().unwrap_or(EventState::Unrecorded) {
            EventState::Unrecorded => Ok(()),
            EventState::Recorded(recording) => match own {
                None => {
                    state.enqueue(id, Item::Wait(recording));
                    Ok(())
                }
                Some(capture) => {
                    state.invalidate(capture);
                    Err(DeviceError::capture(CALL, CaptureFailure::Isolation { event: event.id() }))
                }
            },
            EventState::Captured { capture, behind } => {
                if !state.is_valid(capture) {
                    own.into_iter().for_each(|own| state.invalidate(own));
                    return Err(DeviceError::invalid(CALL, Problem::CaptureOver { event: event.id() }));
                }
                if id == NULL {
                    state.invalidate(capture);
                    return Err(DeviceError::capture(CALL, CaptureFailure::Implicit));
                }
                if let Some(own) = own.filter(|&own| own != capture) {
                    state.invalidate(own);
                    state.invalidate(capture);
                    return Err(DeviceError::capture(CALL, CaptureFailure::Merge));
                }
                if let Some(stream) = state.streams.get_mut(&id) {
                    let membership =
                        stream.capture.get_or_insert_with(|| Membership { capture, frontier: Vec::new() });
                    let new: Vec<u32> =
                        behind.into_iter().filter(|node| !membership.frontier.contains(node)).collect();
                    membership.frontier.extend(new);
                }
                Ok(())
            }
        }
    }

    fn query_event(&self, event: &SimEvent) -> Result<Progress> {
        let mut state = self.shared.enter(Call::QueryEvent)?;
        let Some(recording) = self.check_event(&mut state, Call::QueryEvent, event)? else {
            return Ok(Progress::Done);
        };
        state.pass_time();
        poisoned(&state)?;
        if recording.reached().is_none() {
            return Ok(Progress::Pending);
        }
        state.finish_recording(&recording);
        Ok(Progress::Done)
    }

    fn synchronize_event(&self, event: &SimEvent) -> Result<()> {
        let mut state = self.shared.enter(Call::SynchronizeEvent)?;
        if let Some(recording) = self.check_event(&mut state, Call::SynchronizeEvent, event)? {
            state.finish_recording(&recording);
        }
        poisoned(&state)
    }
}
