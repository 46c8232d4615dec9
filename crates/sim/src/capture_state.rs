//! The rules of stream capture.
//!
//! They are what an NVIDIA H200 with driver 580 (CUDA 13.0) answers; the driver's documentation leaves several open.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::ThreadId;

use graphgrove_device::{
    Call, CaptureFailure, CaptureId, CaptureMode, DeviceError, NodeId, Result, StreamId,
};

use crate::op::Op;
use crate::program::{Node, Places};
use crate::state::{Garbage, State};
use crate::stream::NULL;

thread_local! {
    static THREAD_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// Swaps what the calling thread may do while captures are open.
pub(crate) fn exchange_thread_mode(mode: CaptureMode) -> CaptureMode {
    THREAD_MODE.replace(mode)
}

/// What a stream is to the capture that it is part of.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) capture: CaptureId,
    /// The nodes that the stream's next work runs behind.
    pub(crate) frontier: Vec<u32>,
}

/// An open capture.
#[derive(Debug)]
pub(crate) struct CaptureState {
    pub(crate) origin: StreamId,
    pub(crate) mode: CaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) nodes: Vec<Node>,
    pub(crate) next_node: u32,
    pub(crate) valid: bool,
}

impl CaptureState {
    /// Whether the calling thread, which has swapped its mode to `swapped`, is forbidden what is unsafe during capture.
    fn forbids(&self, thread: ThreadId, swapped: CaptureMode) -> bool {
        let own = self.thread == thread && self.mode != CaptureMode::Relaxed;
        match swapped {
            CaptureMode::Relaxed => false,
            CaptureMode::ThreadLocal => own,
            CaptureMode::Global => own || self.mode == CaptureMode::Global,
        }
    }

    /// Whether every node runs before the last work of the stream that began the capture. Annotations need not.
    pub(crate) fn is_joined(&self, frontier: &[u32]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut open = frontier.to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut reached[node as usize], true) {
                open.extend(&self.nodes[node as usize].after);
            }
        }
        self.nodes.iter().zip(&reached).all(|(node, reached)| *reached || node.id.is_none())
    }
}

impl State {
    /// Refuses a call that is unsafe during capture, if an open capture forbids it to the calling thread. All captures that
    /// do are invalidated.
    pub(crate) fn refuse_unsafe(&mut self, call: Call) -> Result<()> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let (thread, swapped) = (std::thread::current().id(), THREAD_MODE.get());
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|capture| capture.forbids(thread, swapped)) {
            capture.valid = false;
            refused = true;
        }
        if refused { Err(DeviceError::capture(call, CaptureFailure::Unsupported)) } else { Ok(()) }
    }

    /// Refuses any use of the null stream while a stream that it would wait for captures. Those captures are invalidated.
    pub(crate) fn refuse_implicit(&mut self, call: Call) -> Result<()> {
        let waits_for: Vec<CaptureId> = self
            .streams
            .values()
            .filter(|stream| stream.blocking)
            .filter_map(|stream| stream.capture.as_ref().map(|membership| membership.capture))
            .collect();
        for &capture in &waits_for {
            self.invalidate(capture);
        }
        if waits_for.is_empty() { Ok(()) } else { Err(DeviceError::capture(call, CaptureFailure::Implicit)) }
    }

    /// Refuses what no capture can take: the stream's capture is invalidated, if it is part of one.
    pub(crate) fn refuse_capturing(&mut self, call: Call, stream: StreamId) -> Result<()> {
        let Some(capture) = self.capture_of(stream) else { return Ok(()) };
        self.invalidate(capture);
        Err(DeviceError::capture(call, CaptureFailure::Unsupported))
    }

    pub(crate) fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.streams.get(&stream)?.capture.as_ref().map(|membership| membership.capture)
    }

    pub(crate) fn invalidate(&mut self, capture: CaptureId) {
        if let Some(state) = self.captures.get_mut(&capture) {
            state.valid = false;
        }
    }

    pub(crate) fn invalidate_all(&mut self) {
        for capture in self.captures.values_mut() {
            capture.valid = false;
        }
    }

    /// Whether the capture is open and not invalidated.
    pub(crate) fn is_valid(&self, capture: CaptureId) -> bool {
        self.captures.get(&capture).is_some_and(|state| state.valid)
    }

    /// The capture that work on the stream goes into, or `None` if the work is to run.
    pub(crate) fn capturing(&mut self, call: Call, stream: StreamId) -> Result<Option<CaptureId>> {
        if stream == NULL {
            self.refuse_implicit(call)?;
            return Ok(None);
        }
        match self.capture_of(stream) {
            None => Ok(None),
            Some(capture) if self.is_valid(capture) => Ok(Some(capture)),
            Some(_) => Err(DeviceError::capture(call, CaptureFailure::Invalidated)),
        }
    }

    /// Adds work that was enqueued on a captured stream to its capture.
    pub(crate) fn add_node(&mut self, stream: StreamId, op: Op) -> Option<NodeId> {
        let membership = self.streams.get_mut(&stream)?.capture.as_mut()?;
        let capture = self.captures.get_mut(&membership.capture)?;
        let id = op.kind().map(|_| {
            capture.next_node += 1;
            NodeId::new(capture.next_node - 1)
        });
        let place = capture.nodes.len() as u32;
        let after = Places::from_slice(&membership.frontier);
        capture.nodes.push(Node { op: Arc::new(op), after, id });
        membership.frontier = vec![place];
        id
    }

    /// Closes a capture: all of its streams are ordinary ones again. Returns what it held.
    pub(crate) fn close_capture(&mut self, id: CaptureId) -> Option<(CaptureState, Vec<u32>)> {
        let capture = self.captures.remove(&id)?;
        let mut frontier = Vec::new();
        let members: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.capture.as_ref().is_some_and(|membership| membership.capture == id))
            .map(|(&stream, _)| stream)
            .collect();
        for stream in members {
            let membership = self.streams.get_mut(&stream).and_then(|state| state.capture.take());
            if stream == capture.origin {
                frontier = membership.map(|membership| membership.frontier).unwrap_or_default();
            }
            self.reap(stream);
        }
        Some((capture, frontier))
    }

    /// Closes a capture and throws away what it held.
    pub(crate) fn discard_capture(&mut self, id: CaptureId) {
        if let Some((capture, _)) = self.close_capture(id) {
            self.garbage.push(Garbage::Capture { _capture: capture });
        }
    }
}
