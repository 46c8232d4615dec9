//! Stream capture: work becomes a graph instead of running.

use std::marker::PhantomData;

use crate::{CaptureId, GraphAudit, Result, Work};

/// What a capture forbids, and to whom (`CUstreamCaptureMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// No thread may call anything that is unsafe during capture.
    Global,
    /// The thread that began the capture may not; other threads may.
    #[default]
    ThreadLocal,
    /// Anybody may. Only work on the capturing streams is affected.
    Relaxed,
}

/// Whether a stream is part of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// It is not.
    None,
    /// It is.
    Active(CaptureId),
    /// It is, and the capture can only be ended, with an error.
    Invalidated(CaptureId),
}

/// Turning ordered work into a graph.
///
/// Between [`begin_capture`](Capture::begin_capture) and [`end_capture`](Capture::end_capture) the work that is enqueued on
/// the stream, and on streams that join it through events, does not run: it becomes nodes and edges. Most callers use
/// [`CaptureGuard`], which ends the capture on every path.
///
/// # Unsafe during capture
///
/// Some calls might wait for the device or change it behind the capture's back:
/// [`allocate`](crate::Memory::allocate), [`host_buffer`](crate::Memory::host_buffer) and the freeing of both,
/// [`allocate_async`](crate::Memory::allocate_async) and [`free_async`](crate::Memory::free_async) on a stream that does not
/// capture, queries of and waits for a stream or an event outside of the capture,
/// [`instantiate`](crate::Graphs::instantiate) and the end of an exec. (Freeing and ending never reach the driver while a
/// capture is open, see [`Deferred`](crate::Deferred).) Such a call is refused while a [global](CaptureMode::Global) capture is
/// open anywhere, or a [thread-local](CaptureMode::ThreadLocal) one that was begun on the calling thread. A thread that has
/// [swapped](ModeGuard) its own mode to relaxed is never refused; one that has swapped it to thread-local is not refused for
/// the captures of other threads. The refusal comes before a look at the arguments.
///
/// What a capture can never take is refused whatever the modes: waiting for a capturing stream or for the whole device,
/// launching an exec on a capturing stream.
///
/// # Invalidated captures
///
/// An operation that a capture forbids fails with
/// [`CaptureFailure::Unsupported`](crate::CaptureFailure::Unsupported) and *invalidates* the capture: everything on its
/// streams then fails with [`CaptureFailure::Invalidated`](crate::CaptureFailure::Invalidated) until it is ended.
///
/// (CUDA Programming Guide, "Creating a Graph Using Stream Capture"; where it leaves a case open, the rule is what driver 580
/// answers on an H200.)
pub trait Capture: Work {
    /// A captured graph: a template that [`instantiate`](crate::Graphs::instantiate) makes execs from. It keeps alive the
    /// host buffers that its nodes use.
    type Graph: Send + Sync + 'static;

    /// Begins a capture on the stream.
    ///
    /// # Errors
    /// [`CaptureFailure::Unsupported`](crate::CaptureFailure::Unsupported) on the null stream,
    /// [`CaptureFailure::AlreadyCapturing`](crate::CaptureFailure::AlreadyCapturing) on a stream that is part of one. A capture
    /// that was open stays as it was.
    fn begin_capture(&self, stream: &Self::Stream, mode: CaptureMode) -> Result<CaptureId>;

    /// Ends the capture that was begun on the stream and gives its graph.
    ///
    /// # Errors
    /// [`CaptureFailure::NotCapturing`](crate::CaptureFailure::NotCapturing),
    /// [`CaptureFailure::Unmatched`](crate::CaptureFailure::Unmatched) on a forked stream,
    /// [`CaptureFailure::WrongThread`](crate::CaptureFailure::WrongThread) on another thread than it was begun on unless it is
    /// relaxed. `Unmatched` invalidates the capture and leaves it open.
    /// [`CaptureFailure::Invalidated`](crate::CaptureFailure::Invalidated), `WrongThread` and
    /// [`CaptureFailure::Unjoined`](crate::CaptureFailure::Unjoined) end the capture, and the graph is lost.
    fn end_capture(&self, stream: &Self::Stream) -> Result<Self::Graph>;

    /// Ends the capture that was begun on the stream, whatever its state, and throws its graph away.
    ///
    /// # Errors
    /// [`CaptureFailure::NotCapturing`](crate::CaptureFailure::NotCapturing),
    /// [`CaptureFailure::Unmatched`](crate::CaptureFailure::Unmatched),
    /// [`CaptureFailure::WrongThread`](crate::CaptureFailure::WrongThread), as in [`end_capture`](Capture::end_capture).
    fn abort_capture(&self, stream: &Self::Stream) -> Result<()>;

    /// Says whether the stream is part of a capture. Allowed at any time.
    ///
    /// # Errors
    /// On the null stream while a stream that it waits for captures,
    /// [`CaptureFailure::Implicit`](crate::CaptureFailure::Implicit).
    fn capture_status(&self, stream: &Self::Stream) -> Result<CaptureStatus>;

    /// Sets what the calling thread may do while captures are open, and returns what it was
    /// (`cuThreadExchangeStreamCaptureMode`). Prefer [`ModeGuard`].
    ///
    /// # Errors
    /// Only those of every method.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode>;

    /// Says what the graph is made of. The graph is not changed.
    ///
    /// # Errors
    /// Only those of every method.
    fn audit(&self, graph: &Self::Graph) -> Result<GraphAudit>;
}

/// A capture that is ended on every path: by [`end`](CaptureGuard::end), or thrown away by the drop.
///
/// It is not `Send`, since a capture that is not relaxed has to end on the thread that began it.
#[must_use = "dropping the guard throws the capture away"]
pub struct CaptureGuard<'d, D: Capture> {
    device: &'d D,
    stream: D::Stream,
    id: CaptureId,
    open: bool,
    thread_bound: PhantomData<*const ()>,
}

impl<'d, D: Capture> CaptureGuard<'d, D> {
    /// Begins a capture.
    ///
    /// # Errors
    /// Those of [`Capture::begin_capture`]; no capture is open then that was not open before.
    pub fn begin(device: &'d D, stream: &D::Stream, mode: CaptureMode) -> Result<Self> {
        let id = device.begin_capture(stream, mode)?;
        Ok(Self { device, stream: stream.clone(), id, open: true, thread_bound: PhantomData })
    }

    /// The identity of the capture.
    pub fn id(&self) -> CaptureId {
        self.id
    }

    /// Ends the capture and gives its graph.
    ///
    /// # Errors
    /// Those of [`Capture::end_capture`]. The capture is over then, too.
    pub fn end(mut self) -> Result<D::Graph> {
        let graph = self.device.end_capture(&self.stream);
        // Some errors leave the capture open; the drop then throws it away, and has nothing to do otherwise.
        self.open = graph.is_err();
        graph
    }
}

impl<D: Capture> Drop for CaptureGuard<'_, D> {
    fn drop(&mut self) {
        if self.open {
            // A capture that an error of `end` has closed already is reported as not capturing; there is nobody to tell.
            let _ = self.device.abort_capture(&self.stream);
        }
    }
}

/// The calling thread's capture mode, swapped for as long as the guard lives.
///
/// It is how a pool obtains memory inside of a capture: the thread's own calls are let through, other threads are not
/// affected. It is not `Send`, since the mode belongs to the thread.
#[must_use = "dropping the guard swaps the mode back"]
pub struct ModeGuard<'d, D: Capture> {
    device: &'d D,
    before: CaptureMode,
    thread_bound: PhantomData<*const ()>,
}

impl<'d, D: Capture> ModeGuard<'d, D> {
    /// Swaps the calling thread's mode.
    ///
    /// # Errors
    /// Those of [`Capture::exchange_capture_mode`]; the mode is as before then.
    pub fn swap(device: &'d D, mode: CaptureMode) -> Result<Self> {
        let before = device.exchange_capture_mode(mode)?;
        Ok(Self { device, before, thread_bound: PhantomData })
    }
}

impl<D: Capture> Drop for ModeGuard<'_, D> {
    fn drop(&mut self) {
        // The mode was accepted before, and a device that is poisoned since has no captures left to protect.
        let _ = self.device.exchange_capture_mode(self.before);
    }
}
