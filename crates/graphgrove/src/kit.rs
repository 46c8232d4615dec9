//! What an engine lends to its running functions beside memory: a generator, notes for draws, side streams.

use std::sync::Arc;

use graphgrove_device::Device;
use parking_lot::Mutex;

use crate::generator::{Generator, Identity};
use crate::notes::Notes;
use crate::side_stream::SideStreams;

/// What an engine lends to its running functions beside memory.
pub(crate) struct Kit<D: Device> {
    pub(crate) engine: Arc<Identity>,
    pub(crate) generator: Generator,
    pub(crate) notes: Mutex<Notes<D>>,
    pub(crate) side_streams: Mutex<SideStreams<D>>,
}

impl<D: Device> Default for Kit<D> {
    fn default() -> Self {
        let engine = Arc::default();
        Self {
            generator: Generator::new(&engine, 0),
            engine,
            notes: Mutex::new(Notes::new()),
            side_streams: Mutex::default(),
        }
    }
}
