//! The usual way to record: session, capture, audit, in one call.

use std::sync::Arc;

use graphgrove_device::{CaptureGuard, CaptureMode, Device};

use crate::error::PoolError;
use crate::plan::Plan;

use super::Pool;
use super::block::Block;
use super::session::{Finished, Session};

/// A recording: its graph, and what it leaves in the pool.
#[derive(Debug)]
#[must_use = "dropping the outputs gives their memory back"]
pub struct Recorded<D: Device> {
    /// The captured graph.
    pub graph: D::Graph,
    /// The outputs, the pool's state, and what was asked for.
    pub memory: Finished<D>,
}

impl<D: Device> Pool<D> {
    /// Captures what `body` enqueues on `stream`, with its memory from the pool. Blocks that the body returns are the recording's outputs;
    /// the others are temporaries and have to be dropped by then.
    ///
    /// Whatever goes wrong, an error of the body, a panic in it, a capture that was invalidated, memory nodes in the graph, a survivor:
    /// the capture is over and the pool is as before.
    ///
    /// # Errors
    /// That of the body, those of [`Session::finish`] and [`Pool::recording`], [`PoolError::Device`].
    pub fn record<E: From<PoolError>>(
        &self,
        stream: &D::Stream,
        plan: Option<&Arc<Plan>>,
        body: impl FnOnce(&Session<D>) -> Result<Vec<Block<D>>, E>,
    ) -> Result<Recorded<D>, E> {
        let device = self.device();
        let session = self.recording(stream, plan)?;
        let capture =
            CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal).map_err(PoolError::from)?;
        let outputs = body(&session)?;
        session.settle();
        let graph = capture.end().map_err(PoolError::from)?;
        let audit = device.audit(&graph).map_err(PoolError::from)?;
        audit.refuse_memory_nodes().map_err(PoolError::from)?;
        let memory = session.finish(outputs)?;
        Ok(Recorded { graph, memory })
    }
}
