//! What is known of the captures that are open.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;
use graphgrove_device::{NodeId, StreamId};

use crate::raw::Raw;
use crate::recording::Recording;
use crate::retire::Kept;
use crate::shared::lock;
use crate::stream::Stream;

/// A node that a call through the contract has captured.
pub(crate) struct Recorded {
    pub(crate) id: NodeId,
    pub(crate) handle: Raw<sys::CUgraphNode_st>,
    pub(crate) recording: Recording,
}

/// What an open capture has met so far.
#[derive(Default)]
pub(crate) struct OpenCapture {
    /// The stream that it was begun on, if that was done through the contract.
    pub(crate) origin: Option<StreamId>,
    /// The streams that are known to be part of it, by their raw handles: once it is invalidated, the driver does not say
    /// any more whose capture a stream is part of.
    members: Vec<usize>,
    pub(crate) recorded: Vec<Recorded>,
    pub(crate) kept: Vec<Kept>,
}

impl OpenCapture {
    /// Says that a stream is part of the capture.
    pub(crate) fn joined(&mut self, stream: sys::CUstream) {
        let stream = stream as usize;
        if !self.members.contains(&stream) {
            self.members.push(stream);
        }
    }
}

/// The captures that are open, by the number that the driver gives them.
#[derive(Default)]
pub(crate) struct CaptureTable {
    open: AtomicUsize,
    captures: Mutex<HashMap<u64, OpenCapture>>,
}

impl CaptureTable {
    /// Whether no capture is open that was begun through the contract: then work need not ask what it became.
    #[inline]
    pub(crate) fn none_open(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// The captures, locked. Work is enqueued under this lock while any is open, so that the node which a capture got
    /// last is the node of the work that was enqueued last.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u64, OpenCapture>> {
        lock(&self.captures)
    }

    /// Says that a capture was begun.
    pub(crate) fn opened(&self, id: u64, origin: &Stream) {
        let mut capture = OpenCapture { origin: Some(origin.key()), ..OpenCapture::default() };
        capture.joined(origin.handle());
        self.lock().insert(id, capture);
        self.open.fetch_add(1, Ordering::Release);
    }

    /// The number of the capture that a stream is known to be part of.
    pub(crate) fn of_member(&self, stream: sys::CUstream) -> Option<u64> {
        let stream = stream as usize;
        self.lock().iter().find(|(_, capture)| capture.members.contains(&stream)).map(|(&id, _)| id)
    }

    /// Whether a capture is open that was begun on the stream.
    pub(crate) fn begun_on(&self, stream: StreamId) -> bool {
        !self.none_open() && self.lock().values().any(|capture| capture.origin == Some(stream))
    }

    /// Takes what is known of a capture that has ended.
    pub(crate) fn closed(&self, id: u64) -> OpenCapture {
        let capture = self.lock().remove(&id).unwrap_or_default();
        if capture.origin.is_some() {
            self.open.fetch_sub(1, Ordering::Release);
        }
        capture
    }
}

/// Puts recorded nodes and the driver's list of all nodes together: the place of a node in the result is its id.
///
/// The driver lists nodes in the order of their creation, so a node's id is its place there, and the nodes that other
/// code captured have the places in between. Where a driver lists them otherwise, the recorded nodes keep the ids that
/// they were given and the others fill the gaps in the driver's order.
pub(crate) fn arrange(
    all: &[Raw<sys::CUgraphNode_st>],
    recorded: Vec<Recorded>,
    foreign: impl Fn(Raw<sys::CUgraphNode_st>) -> Recording,
) -> Vec<(Raw<sys::CUgraphNode_st>, Recording)> {
    let mut places: Vec<Option<(Raw<_>, Recording)>> = all.iter().map(|_| None).collect();
    let mut ours = HashSet::new();
    for Recorded { id, handle, recording } in recorded {
        if let Some(place) = places.get_mut(id.get() as usize) {
            ours.insert(handle.0);
            *place = Some((handle, recording));
        }
    }
    let mut others = all.iter().copied().filter(|handle| !ours.contains(&handle.0));
    places
        .into_iter()
        .filter_map(|place| place.or_else(|| others.next().map(|handle| (handle, foreign(handle)))))
        .collect()
}

#[cfg(test)]
mod tests {
    use graphgrove_device::NodeKind;

    use super::*;

    fn node(number: usize) -> Raw<sys::CUgraphNode_st> {
        Raw(std::ptr::without_provenance_mut(number))
    }

    fn foreign(handle: Raw<sys::CUgraphNode_st>) -> Recording {
        Recording::Foreign { kind: NodeKind::Kernel, name: Some(format!("other {}", handle.0 as usize)) }
    }

    fn labels(all: &[usize], recorded: &[(u32, usize)]) -> Vec<(usize, String)> {
        let all: Vec<_> = all.iter().map(|&number| node(number)).collect();
        let recorded = recorded
            .iter()
            .map(|&(id, number)| Recorded {
                id: NodeId::new(id),
                handle: node(number),
                recording: Recording::Fill,
            })
            .collect();
        arrange(&all, recorded, foreign)
            .into_iter()
            .map(|(handle, recording)| (handle.0 as usize, recording.label()))
            .collect()
    }

    #[test]
    fn nodes_of_other_code_have_the_ids_between_the_recorded_ones() {
        let nodes = labels(&[10, 20, 30], &[(1, 20)]);
        assert_eq!(nodes, [(10, "other 10".into()), (20, "fill".into()), (30, "other 30".into())]);
    }

    #[test]
    fn recorded_nodes_keep_their_ids_if_the_driver_lists_in_another_order() {
        let nodes = labels(&[30, 20, 10], &[(0, 10), (2, 30)]);
        assert_eq!(nodes, [(10, "fill".into()), (20, "other 20".into()), (30, "fill".into())]);
    }
}
