//! Things that enqueued work may still use after their last owner has gone.

use std::any::Any;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{self, CUresult};

use crate::event::OwnedEvent;
use crate::shared::lock;
use crate::status;

/// A thing that enqueued work or a graph uses: [host pages](crate::host_buffer::HostPages), [device
/// pages](crate::segment::DevicePages) that belong to a graph, or a [host function](crate::host_call::HostCall).
///
/// None of these holds the device: the device holds them, until nothing uses them any more.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

/// Things to drop once their events have been reached.
pub(crate) struct Retired {
    /// Only held.
    _kept: Arc<Vec<Kept>>,
    events: Vec<OwnedEvent>,
}

impl Retired {
    /// Things that may be dropped once all of the events have been reached.
    pub(crate) fn new(kept: Arc<Vec<Kept>>, events: Vec<OwnedEvent>) -> Self {
        Self { _kept: kept, events }
    }
}

/// Keeps something for good, where nothing can say when enqueued work has done with it.
pub(crate) fn keep_for_good<T>(kept: T) {
    Box::leak(Box::new(kept));
}

/// Drops what is not in use any more; waits for everything if told to.
///
/// The device's context is bound, and the calling thread's capture mode relaxed, so that the queries and frees below
/// leave captures of others alone.
pub(crate) fn sweep(retired: &Mutex<Vec<Retired>>, wait: bool) {
    let (finished, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut *lock(retired))
        .into_iter()
        .partition(|entry| entry.events.iter().all(|event| reached(event, wait)));
    lock(retired).extend(pending);
    // A host function's drop may reach the device again, so nothing is locked here.
    drop(finished);
}

/// Whether the event's last recording has been reached. An event that cannot be asked counts as never reached, so that
/// what it guards is leaked and not freed under a copy.
fn reached(event: &OwnedEvent, wait: bool) -> bool {
    let code = if wait {
        // SAFETY: the event is live for as long as its owner.
        unsafe { sys::cuEventSynchronize(event.raw()) }
    } else {
        // SAFETY: the event is live for as long as its owner.
        unsafe { sys::cuEventQuery(event.raw()) }
    };
    code == CUresult::CUDA_SUCCESS || status::is_fault(code)
}
