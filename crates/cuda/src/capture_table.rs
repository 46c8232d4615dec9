//! What is known of the captures that are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;
use graphgrove_device::{NodeId, StreamId};

use crate::raw::Raw;
use crate::recording::Recording;
use crate::retire::{Kept, keep_for_good};
use crate::shared::lock;
use crate::stream::Stream;

/// A node, and what is known of it.
pub(crate) struct Node {
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
    /// The nodes that calls through the contract have captured, by their ids.
    nodes: Vec<Node>,
    pub(crate) kept: Vec<Kept>,
}

impl OpenCapture {
    /// Notes a node that a call through the contract has captured, and gives its id.
    pub(crate) fn met(&mut self, node: Node) -> Option<NodeId> {
        let id = u32::try_from(self.nodes.len()).ok().map(NodeId::new);
        self.nodes.push(node);
        id
    }
}

/// The captures that are open, by the number that the driver gives them.
///
/// There are few, so they are searched one by one.
#[derive(Default)]
pub(crate) struct Captures(Vec<(u64, OpenCapture)>);

impl Captures {
    /// Says that a stream is part of a capture, and gives what is known of that. A capture that was begun by other code is
    /// met here first.
    pub(crate) fn joined(&mut self, id: u64, stream: sys::CUstream) -> &mut OpenCapture {
        let stream = stream as usize;
        let known =
            self.0.iter().position(|(known, capture)| *known == id && capture.members.contains(&stream));
        let place = known.unwrap_or_else(|| self.join(id, stream));
        &mut self.0[place].1
    }

    /// Makes a stream part of a capture that it was no part of, and gives the capture's place.
    fn join(&mut self, id: u64, stream: usize) -> usize {
        self.left(id, stream);
        match self.0.iter_mut().position(|(known, _)| *known == id) {
            Some(place) => {
                self.0[place].1.members.push(stream);
                place
            }
            None => {
                self.0.push((id, OpenCapture { members: vec![stream], ..OpenCapture::default() }));
                self.0.len() - 1
            }
        }
    }

    /// Says that a stream is no part of any other capture than this one. One of other code that is left by its last stream
    /// is over; it was ended elsewhere, and its graph may use what it kept for as long as it likes.
    fn left(&mut self, id: u64, stream: usize) {
        for (_, other) in self.0.iter_mut().filter(|(other, _)| *other != id) {
            other.members.retain(|&member| member != stream);
        }
        let over = |capture: &OpenCapture| capture.origin.is_none() && capture.members.is_empty();
        for (_, capture) in self.0.extract_if(.., |(other, capture)| *other != id && over(capture)) {
            keep_for_good(capture.kept);
        }
    }

    fn take(&mut self, id: u64) -> Option<OpenCapture> {
        let place = self.0.iter().position(|(known, _)| *known == id)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// The captures that are open, for all threads.
#[derive(Default)]
pub(crate) struct CaptureTable {
    open: AtomicUsize,
    captures: Mutex<Captures>,
}

impl CaptureTable {
    /// Whether no capture is open that was begun through the contract: then work need not ask what it became.
    #[inline]
    pub(crate) fn none_open(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// The captures, locked. Work is enqueued under this lock while any is open, so that the node which a capture got
    /// last is the node of the work that was enqueued last.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Captures> {
        lock(&self.captures)
    }

    /// Says that a capture was begun.
    pub(crate) fn opened(&self, id: u64, origin: &Stream) {
        self.lock().joined(id, origin.handle()).origin = Some(origin.key());
        self.open.fetch_add(1, Ordering::Release);
    }

    /// The number of the capture that a stream is known to be part of.
    pub(crate) fn of_member(&self, stream: sys::CUstream) -> Option<u64> {
        let stream = stream as usize;
        self.lock().0.iter().find(|(_, capture)| capture.members.contains(&stream)).map(|(id, _)| *id)
    }

    /// Whether a capture is open that was begun on the stream.
    pub(crate) fn begun_on(&self, stream: StreamId) -> bool {
        !self.none_open() && self.lock().0.iter().any(|(_, capture)| capture.origin == Some(stream))
    }

    /// Takes what is known of a capture that has ended.
    pub(crate) fn closed(&self, id: u64) -> OpenCapture {
        let capture = self.lock().take(id).unwrap_or_default();
        if capture.origin.is_some() {
            self.open.fetch_sub(1, Ordering::Release);
        }
        capture
    }
}

/// The nodes of a graph that a capture has ended with.
pub(crate) struct Arranged {
    /// All nodes by their ids: those that calls through the contract have captured, in the order in which they were, and
    /// behind them those that other code has captured, in the order in which the driver lists them.
    pub(crate) nodes: Vec<Node>,
    /// The places in `nodes` in the driver's order, which is that of creation.
    pub(crate) order: Vec<usize>,
}

impl OpenCapture {
    /// Puts the recorded nodes and the driver's list of all nodes together. `describe` says what is known of a node that
    /// other code has captured.
    pub(crate) fn arrange(
        self,
        all: &[Raw<sys::CUgraphNode_st>],
        describe: impl Fn(Raw<sys::CUgraphNode_st>) -> Recording,
    ) -> Arranged {
        let mut nodes = self.nodes;
        if nodes.iter().map(|node| node.handle).eq(all.iter().copied()) {
            let order = (0..nodes.len()).collect();
            return Arranged { nodes, order };
        }
        let mut places: HashMap<_, _> =
            nodes.iter().enumerate().map(|(place, node)| (node.handle.0, place)).collect();
        let order = all
            .iter()
            .map(|&handle| {
                *places.entry(handle.0).or_insert_with(|| {
                    nodes.push(Node { handle, recording: describe(handle) });
                    nodes.len() - 1
                })
            })
            .collect();
        Arranged { nodes, order }
    }
}

#[cfg(test)]
mod tests {
    use graphgrove_device::NodeKind;

    use super::*;

    fn node(number: usize) -> Raw<sys::CUgraphNode_st> {
        Raw(std::ptr::without_provenance_mut(number))
    }

    /// Labels by id, and ids in the order of creation.
    fn arranged(all: &[usize], recorded: &[usize]) -> (Vec<String>, Vec<usize>) {
        let mut capture = OpenCapture::default();
        for (place, &number) in recorded.iter().enumerate() {
            let id = capture.met(Node { handle: node(number), recording: Recording::Fill });
            assert_eq!(id, Some(NodeId::new(place as u32)));
        }
        let all: Vec<_> = all.iter().map(|&number| node(number)).collect();
        let Arranged { nodes, order } = capture.arrange(&all, |handle| Recording::Foreign {
            kind: NodeKind::Kernel,
            name: Some(format!("other {}", handle.0 as usize)),
        });
        (nodes.iter().map(|node| node.recording.label()).collect(), order)
    }

    #[test]
    fn recorded_nodes_have_the_ids_that_they_were_given() {
        assert_eq!(arranged(&[10, 20], &[10, 20]), (vec!["fill".into(), "fill".into()], vec![0, 1]));
        assert_eq!(arranged(&[20, 10], &[10, 20]), (vec!["fill".into(), "fill".into()], vec![1, 0]));
    }

    #[test]
    fn nodes_of_other_code_come_behind_the_recorded_ones_and_keep_their_place_in_the_order() {
        let (labels, order) = arranged(&[10, 20, 30], &[20]);
        assert_eq!(labels, ["fill", "other 10", "other 30"]);
        assert_eq!(order, [1, 0, 2]);
    }

    fn stream(number: usize) -> sys::CUstream {
        std::ptr::without_provenance_mut(number)
    }

    #[test]
    fn a_capture_is_found_by_its_number_and_its_streams_and_gone_when_it_has_ended() {
        let table = CaptureTable::default();
        table.lock().joined(4, stream(8)).met(Node { handle: node(1), recording: Recording::Fill });
        table.lock().joined(4, stream(16));
        assert_eq!(table.of_member(stream(16)), Some(4));
        assert_eq!(table.lock().joined(4, stream(8)).nodes.len(), 1);
        assert_eq!(table.closed(4).nodes.len(), 1);
        assert_eq!(table.closed(4).nodes.len(), 0);
        assert_eq!(table.of_member(stream(8)), None);
        assert!(table.none_open());
    }

    #[test]
    fn a_capture_of_other_code_is_forgotten_when_its_last_stream_is_part_of_another() {
        let table = CaptureTable::default();
        table.lock().joined(4, stream(8));
        table.lock().joined(4, stream(16));
        table.lock().joined(5, stream(8));
        assert_eq!((table.of_member(stream(8)), table.of_member(stream(16))), (Some(5), Some(4)));
        table.lock().joined(5, stream(16));
        assert_eq!(table.lock().0.len(), 1);
    }
}
