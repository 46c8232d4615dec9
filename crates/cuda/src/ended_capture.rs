//! The end of a capture, on every path.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};
use graphgrove_device::Result;

use crate::capture_table::OpenCapture;
use crate::graph::GraphInner;
use crate::raw::Raw;
use crate::shared::Shared;

/// What an end of a capture gave. Unless it becomes a graph, the drop throws it away.
pub(crate) struct Ended {
    shared: Arc<Shared>,
    graph: Raw<sys::CUgraph_st>,
    capture: OpenCapture,
}

impl Ended {
    /// Ends the capture on a live stream. Whatever the driver answers, the destructions that an ended capture has put off
    /// are done when this returns, if it was the last that was open.
    pub(crate) fn end(shared: &Arc<Shared>, stream: sys::CUstream) -> (CUresult, Self) {
        let none = |status| status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let before = shared.symbols.capture_info(stream).ok().filter(|info| !none(info.status));
        let id = before.map(|info| shared.captures.of_member(stream).unwrap_or(info.id));
        let mut graph = std::ptr::null_mut();
        // SAFETY: the caller keeps the stream alive, and the output outlives the call.
        let code = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
        // Some errors end the capture and some do not, so the stream is asked.
        let over = shared.symbols.capture_info(stream).is_ok_and(|info| none(info.status));
        let capture = id.filter(|_| over).map(|id| shared.captures.closed(id)).unwrap_or_default();
        if capture.origin.is_some() {
            shared.deferred.capture_closed();
        }
        (code, Self { shared: Arc::clone(shared), graph: Raw(graph), capture })
    }

    /// The graph that the capture gave.
    pub(crate) fn into_graph(mut self) -> Result<GraphInner> {
        let graph = std::mem::replace(&mut self.graph, Raw(std::ptr::null_mut()));
        GraphInner::new(&self.shared, graph.0, std::mem::take(&mut self.capture))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if !self.graph.0.is_null() {
            // SAFETY: the capture gave the graph to this value alone. It may be destroyed at any time.
            let _ = unsafe { sys::cuGraphDestroy(self.graph.0) };
        }
        let kept = std::mem::take(&mut self.capture.kept);
        if !kept.is_empty() {
            // No launch can use it, since there is no graph; but freeing it is forbidden while other captures are open.
            self.shared.destroy(move |_| drop(kept));
        }
    }
}
