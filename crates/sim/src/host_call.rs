//! Host functions that work calls.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use graphgrove_device::{DeviceId, StreamId};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::scope::KernelFault;
use crate::shadow::Mark;

/// A host function that a stream calls, shared between the launches of a graph.
pub(crate) type HostCall = Arc<Mutex<Box<dyn FnMut() + Send>>>;

/// A host function whose turn has come.
pub(crate) struct RunningCall {
    pub(crate) call: HostCall,
    pub(crate) stream: StreamId,
    pub(crate) clock: Clock,
    pub(crate) mark: Mark,
}

thread_local! {
    /// The host function that the thread is in: what it does to host buffers happens at its place in the stream.
    static RUNNING: RefCell<Option<(DeviceId, Clock, Mark)>> = const { RefCell::new(None) };
}

/// Whether the calling thread is inside of a host function that a stream called.
pub(crate) fn is_running() -> bool {
    RUNNING.with_borrow(Option::is_some)
}

/// The place in happens-before of the host function that the thread is in, if a stream of that device called it.
pub(crate) fn place(device: DeviceId) -> Option<(Clock, Mark)> {
    RUNNING.with_borrow(|running| {
        running
            .as_ref()
            .filter(|(owner, ..)| *owner == device)
            .map(|(_, clock, mark)| (clock.clone(), mark.clone()))
    })
}

impl RunningCall {
    /// Calls the function, without the device's lock.
    pub(crate) fn run(&self, device: DeviceId) -> Result<(), KernelFault> {
        let before = RUNNING.replace(Some((device, self.clock.clone(), self.mark.clone())));
        // As with a kernel, a panic must not reach the thread that happens to wait for the work.
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.call.lock())()));
        RUNNING.set(before);
        outcome.map_err(|_| KernelFault::new("a host function panicked"))
    }
}
