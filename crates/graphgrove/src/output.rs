//! Outputs: handles whose drop frees the memory.

use std::sync::Arc;

use graphgrove_device::DevicePtr;
use graphgrove_tree::{FunctionId, Signature, SlotValue};
use parking_lot::Mutex;

/// Where dropped outputs are noted. A drop only notes itself: it may happen while a capture is open.
pub(crate) type Dropped = Arc<Mutex<Vec<SlotValue>>>;

/// What a call made. Dropping it gives its memory up.
#[derive(Debug)]
pub struct Output {
    pub(crate) function: FunctionId,
    pub(crate) value: SlotValue,
    pub(crate) at: DevicePtr,
    pub(crate) bytes: u64,
    pub(crate) dropped: Dropped,
}

impl Output {
    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn signature(&self) -> Signature {
        Signature::new(self.bytes)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.dropped.lock().push(self.value);
    }
}
