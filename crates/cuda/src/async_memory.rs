//! Stream-ordered allocations that were made through the contract.

use std::collections::HashMap;
use std::sync::Mutex;

use graphgrove_device::DevicePtr;

use crate::shared::lock;

/// Who made an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// A stream: the address is gone once it is freed.
    Stream,
    /// A graph: each launch makes the allocation at the same address again.
    Graph,
}

/// The addresses that may be freed in stream order. The driver would also take an address that belongs to a segment, and
/// free it under the segment's owner.
#[derive(Debug, Default)]
pub(crate) struct AsyncAllocations(Mutex<HashMap<DevicePtr, Maker>>);

impl AsyncAllocations {
    pub(crate) fn made(&self, address: DevicePtr, maker: Maker) {
        lock(&self.0).insert(address, maker);
    }

    pub(crate) fn maker(&self, address: DevicePtr) -> Option<Maker> {
        lock(&self.0).get(&address).copied()
    }

    /// Says that an address was freed.
    pub(crate) fn freed(&self, address: DevicePtr) {
        let mut made = lock(&self.0);
        if made.get(&address) == Some(&Maker::Stream) {
            made.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_frees_once_and_a_graph_as_often_as_it_launches() {
        let made = AsyncAllocations::default();
        let (stream, graph) = (DevicePtr::new(256), DevicePtr::new(512));
        made.made(stream, Maker::Stream);
        made.made(graph, Maker::Graph);
        made.freed(stream);
        made.freed(graph);
        assert_eq!(made.maker(stream), None);
        assert_eq!(made.maker(graph), Some(Maker::Graph));
    }
}
