//! The host buffers that patches gave to the upload nodes of an exec.

use graphgrove_device::{HostMemory as _, NodeId};

use crate::host_buffer::HostBuffer;
use crate::retire::Kept;
use crate::stream::Stream;

/// The host buffers that patches gave to the upload nodes of an exec. The recorded ones are kept by the graph.
///
/// A buffer that is replaced is marked as in use on the stream of the exec's last launch, as an upload outside of a graph
/// marks it, and let go: whoever holds it besides decides how long it lives, and its pages outlive the launches anyhow.
/// So nothing piles up here, and a buffer that takes turns with others has one event a stream, which moves. The stream of
/// the last launch is enough, since a launch waits for all launches of the exec before it (CUDA Driver API, cuGraphLaunch).
///
/// Where that stream is capturing, the buffer cannot be marked and stays until the next launch. What replaces it meanwhile
/// has not been launched with and needs no mark, so that one buffer a node stays at most.
#[derive(Default)]
pub(crate) struct PatchedUploads {
    current: Vec<Patched>,
    waiting: Vec<HostBuffer>,
    /// The stream of the last launch that may have read any of them.
    last: Option<Stream>,
}

struct Patched {
    node: NodeId,
    buffer: HostBuffer,
    /// Whether the exec has been launched since it was given the buffer.
    launched: bool,
}

impl PatchedUploads {
    /// Notes that a node reads another buffer from the next launch on.
    pub(crate) fn replace(&mut self, node: NodeId, buffer: &HostBuffer) {
        let patched = || Patched { node, buffer: buffer.clone(), launched: false };
        match self.current.iter_mut().find(|patched| patched.node == node) {
            // Launches may be reading it already, so what is known of it stays.
            Some(old) if old.buffer.is_same(buffer) => {}
            Some(old) => {
                let old = std::mem::replace(old, patched());
                self.let_go(old);
            }
            None => self.current.push(patched()),
        }
    }

    /// Notes that every node reads what a graph holds from the next launch on.
    pub(crate) fn clear(&mut self) {
        for old in std::mem::take(&mut self.current) {
            self.let_go(old);
        }
    }

    fn let_go(&mut self, old: Patched) {
        let marked = || self.last.as_ref().is_some_and(|stream| old.buffer.try_mark_use(stream));
        if !old.launched || marked() {
            old.buffer.drop_later();
        } else {
            self.waiting.push(old.buffer);
        }
    }

    /// Notes that a launch on the stream has been enqueued.
    #[inline]
    pub(crate) fn launched(&mut self, stream: &Stream) {
        if !self.current.is_empty() || !self.waiting.is_empty() {
            self.mark_launched(stream);
        }
    }

    fn mark_launched(&mut self, stream: &Stream) {
        for patched in &mut self.current {
            patched.launched = true;
        }
        if self.last.as_ref().is_none_or(|last| last.key() != stream.key()) {
            self.last = Some(stream.clone());
        }
        for buffer in self.waiting.extract_if(.., |buffer| buffer.try_mark_use(stream)) {
            buffer.drop_later();
        }
    }

    /// The pages of all buffers that are held here.
    pub(crate) fn pages(&self) -> Vec<Kept> {
        let buffers = self.current.iter().map(|patched| &patched.buffer).chain(&self.waiting);
        buffers.filter_map(HostBuffer::pages).map(|pages| pages.clone() as Kept).collect()
    }
}
