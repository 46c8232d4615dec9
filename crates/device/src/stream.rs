//! Streams, events, and waiting for them.

use crate::{Capabilities, DeviceId, EventId, RawStream, Result, StreamId};

/// How far enqueued work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Progress {
    /// All of it has finished.
    Done,
    /// Some of it has not finished yet.
    Pending,
}

/// A handle of a stream. Clones name the same stream; the last one to go destroys it, unless it was adopted.
///
/// Destruction does not wait for the stream's work, which still runs. It never reaches the driver while a capture
/// is open on the device: it is put off until the capture has ended. A capture that was begun on the stream and not ended
/// goes with it, since nobody could end it any more.
pub trait StreamHandle: Clone + Send + Sync + 'static {
    /// The identity of the stream.
    fn id(&self) -> StreamId;

    /// The device that the stream belongs to.
    fn device(&self) -> DeviceId;

    /// The driver's own handle, for code that talks to the driver itself.
    fn raw(&self) -> RawStream;

    /// Whether this is the null stream, which cannot be captured.
    fn is_null(&self) -> bool;
}

/// A handle of an event. Clones name the same event; the last one to go destroys it, under the same rule as streams.
pub trait EventHandle: Clone + Send + Sync + 'static {
    /// The identity of the event.
    fn id(&self) -> EventId;

    /// The device that the event belongs to.
    fn device(&self) -> DeviceId;
}

/// Streams and events.
///
/// A stream is a queue: work on one stream runs in the order in which it was enqueued, work on two streams in any
/// order that events allow. Enqueuing returns before the work has run.
///
/// Errors of any method, unless it says more: [`DeviceError::ForeignHandle`](crate::DeviceError::ForeignHandle) for
/// a handle of another device, [`DeviceError::Fault`](crate::DeviceError::Fault) once the device is poisoned.
pub trait Streams: Send + Sync + 'static {
    /// A stream of this device.
    type Stream: StreamHandle;
    /// An event of this device.
    type Event: EventHandle;

    /// The identity of this opened device.
    fn id(&self) -> DeviceId;

    /// What this device can do beyond the core of the contract.
    fn capabilities(&self) -> Capabilities;

    /// The legacy null stream: it and every [blocking](Streams::create_blocking_stream) stream wait for each other's work
    /// enqueued so far. It cannot be captured.
    fn null_stream(&self) -> Self::Stream;

    /// Creates a stream that has nothing to do with the null stream (`CU_STREAM_NON_BLOCKING`): the kind to use.
    ///
    /// Allowed while a capture is open.
    ///
    /// # Errors
    /// Whatever the driver says when it has no more streams; nothing is created then.
    fn create_stream(&self) -> Result<Self::Stream>;

    /// Creates a stream that waits for the null stream and that the null stream waits for (`CU_STREAM_DEFAULT`).
    ///
    /// While it captures, using the null stream is refused with
    /// [`CaptureFailure::Implicit`](crate::CaptureFailure::Implicit).
    ///
    /// # Errors
    /// As [`create_stream`](Streams::create_stream).
    fn create_blocking_stream(&self) -> Result<Self::Stream>;

    /// Takes a stream that somebody else owns into use. Its handles never destroy it.
    ///
    /// The caller keeps the stream alive for as long as any handle of it, or any graph captured on it, is in use. A device that
    /// follows whatever pointer it is given adopts only streams of its own and those that were vouched for by an `unsafe` method
    /// of its own.
    ///
    /// # Errors
    /// [`Problem::UnknownHandle`](crate::Problem::UnknownHandle) where the device can tell that there is no such stream.
    fn adopt_stream(&self, raw: RawStream) -> Result<Self::Stream>;

    /// Waits until everything that was enqueued on any stream of the device has finished.
    ///
    /// # Errors
    /// While any capture is open, of whatever mode, [`CaptureFailure::Unsupported`](crate::CaptureFailure::Unsupported), and that
    /// capture is invalidated. A [`DeviceError::Fault`](crate::DeviceError::Fault) that the work met.
    fn synchronize(&self) -> Result<()>;

    /// Waits until everything that was enqueued on the stream has finished.
    ///
    /// Unsafe during capture, as [`Capture`](crate::Capture) explains.
    ///
    /// # Errors
    /// On a capturing stream, whatever the mode, [`CaptureFailure::Unsupported`](crate::CaptureFailure::Unsupported), and the
    /// capture is invalidated. A [`DeviceError::Fault`](crate::DeviceError::Fault) that the work met.
    fn synchronize_stream(&self, stream: &Self::Stream) -> Result<()>;

    /// Says whether the stream's work has finished, without waiting.
    ///
    /// Unsafe during capture, as [`Capture`](crate::Capture) explains.
    ///
    /// # Errors
    /// On a capturing stream, whatever the mode, [`CaptureFailure::Unsupported`](crate::CaptureFailure::Unsupported), and the
    /// capture is invalidated.
    fn query_stream(&self, stream: &Self::Stream) -> Result<Progress>;

    /// Creates an event without timing. An event that was never recorded counts as finished.
    ///
    /// Allowed while a capture is open.
    ///
    /// # Errors
    /// Whatever the driver says when it has no more events; nothing is created then.
    fn create_event(&self) -> Result<Self::Event>;

    /// Records the event behind all work enqueued on the stream so far. An earlier recording is forgotten.
    ///
    /// On a capturing stream the event becomes part of the capture: other streams can wait for it and join the
    /// capture by that, and it has no state outside.
    ///
    /// # Errors
    /// On a stream whose capture is invalidated, [`CaptureFailure::Invalidated`](crate::CaptureFailure::Invalidated).
    fn record_event(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;

    /// Makes later work on the stream wait for the event's last recording. Waiting for an event that was never
    /// recorded has no effect.
    ///
    /// Waiting for an event that was recorded in a capture makes the stream part of that capture (it is *forked*);
    /// it has to be *joined* again by an event that the capture's first stream waits for, unless no work was enqueued on it.
    ///
    /// # Errors
    /// [`CaptureFailure::Isolation`](crate::CaptureFailure::Isolation) when a captured stream waits for an event recorded outside;
    /// [`CaptureFailure::Merge`](crate::CaptureFailure::Merge) when the event belongs to another capture than the stream, and
    /// both are invalidated; [`Problem::CaptureOver`](crate::Problem::CaptureOver) when the event's capture is over or
    /// invalidated, and the capture of the stream, if it is part of one, is invalidated;
    /// [`CaptureFailure::Implicit`](crate::CaptureFailure::Implicit) when the null stream would wait for captured work.
    fn wait_event(&self, stream: &Self::Stream, event: &Self::Event) -> Result<()>;

    /// Says whether the event's last recording has been reached, without waiting.
    ///
    /// Unsafe during capture, as [`Capture`](crate::Capture) explains: a background thread that polls an event breaks a
    /// [global](crate::CaptureMode::Global) capture (pytorch/pytorch#104487).
    ///
    /// # Errors
    /// [`CaptureFailure::CapturedEvent`](crate::CaptureFailure::CapturedEvent) for an event that was last recorded in an open
    /// capture, which is invalidated, whatever its mode; [`Problem::CaptureOver`](crate::Problem::CaptureOver) once that
    /// capture is over or invalidated.
    fn query_event(&self, event: &Self::Event) -> Result<Progress>;

    /// Waits until the event's last recording has been reached.
    ///
    /// # Errors
    /// As [`query_event`](Streams::query_event), and a [`DeviceError::Fault`](crate::DeviceError::Fault) that the work met.
    fn synchronize_event(&self, event: &Self::Event) -> Result<()>;
}
