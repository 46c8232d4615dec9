//! Stream-ordered allocations that were made through the contract.

use std::collections::BTreeMap;
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

/// The addresses that may be freed in stream order, with their lengths in bytes. The driver would also take an address that
/// belongs to a segment, and free it under the segment's owner.
#[derive(Debug, Default)]
pub(crate) struct AsyncAllocations(Mutex<BTreeMap<DevicePtr, (u64, Maker)>>);

impl AsyncAllocations {
    pub(crate) fn made(&self, address: DevicePtr, bytes: u64, maker: Maker) {
        lock(&self.0).insert(address, (bytes, maker));
    }

    /// Whether the address was given out and not freed since.
    pub(crate) fn contains(&self, address: DevicePtr) -> bool {
        lock(&self.0).contains_key(&address)
    }

    /// Whether the range lies inside of one allocation. Inside of the capture that makes an allocation this is all that
    /// can be said, since the memory is there at launch only.
    pub(crate) fn covers(&self, at: DevicePtr, bytes: u64) -> bool {
        let made = lock(&self.0);
        let Some((base, (length, _))) = made.range(..=at).next_back() else { return false };
        match at.offset_from(*base).and_then(|offset| offset.checked_add(bytes)) {
            Some(end) => end <= *length,
            None => false,
        }
    }

    /// Says that an address was freed.
    pub(crate) fn freed(&self, address: DevicePtr) {
        let mut made = lock(&self.0);
        if made.get(&address).is_some_and(|(_, maker)| *maker == Maker::Stream) {
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
        made.made(stream, 8, Maker::Stream);
        made.made(graph, 8, Maker::Graph);
        made.freed(stream);
        made.freed(graph);
        assert!(!made.contains(stream));
        assert!(made.contains(graph));
    }

    #[test]
    fn a_range_is_covered_if_it_does_not_leave_its_allocation() {
        let made = AsyncAllocations::default();
        made.made(DevicePtr::new(256), 16, Maker::Graph);
        assert!(made.covers(DevicePtr::new(256), 16));
        assert!(made.covers(DevicePtr::new(271), 1));
        for (at, bytes) in [(255, 1), (256, 17), (272, 1), (260, u64::MAX)] {
            assert!(!made.covers(DevicePtr::new(at), bytes), "{at}, {bytes}");
        }
    }
}
