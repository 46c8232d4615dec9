//! The addresses of memory that graphs own.

use std::sync::Weak;

use crate::device::Shared;

/// The addresses of one allocation node. They go back when the last graph, exec or launch that has the node is gone.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) device: Weak<Shared>,
    pub(crate) base: u64,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.release_addresses(self.base);
        }
    }
}
