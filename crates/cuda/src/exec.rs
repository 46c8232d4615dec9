//! Execs: graphs made ready to launch.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{Call, DeviceError, NodeId, NodeKinds, Result, UpdateRefusal};
use smallvec::SmallVec;

use crate::event::OwnedEvent;
use crate::fields::{read_field, zeroed};
use crate::gather::GatherNode;
use crate::graph::{Graph, GraphInner};
use crate::patched_uploads::PatchedUploads;
use crate::raw::Raw;
use crate::recording::Recording;
use crate::retire::{Kept, Retired, keep_for_good};
use crate::shared::{Shared, lock};
use crate::status::Subject;
use crate::stream::Stream;

/// A graph made ready to launch.
///
/// It counts as a handle of every stream that it was launched on.
pub struct Exec {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Raw<sys::CUgraphExec_st>,
    /// The graph that it was made from: the driver names an exec's nodes by the nodes of that graph, so it has to live.
    pub(crate) origin: Arc<GraphInner>,
    /// The graph that it runs now: another one after an update, with the same nodes.
    pub(crate) current: Arc<GraphInner>,
    /// The gather nodes with the sources that they have now.
    pub(crate) gathers: SmallVec<[(NodeId, GatherNode); 1]>,
    /// The host buffers that upload nodes were given by patches.
    pub(crate) uploads: PatchedUploads,
    /// What launches from before an update may still use, where no event can say for how long.
    before: Vec<Arc<Vec<Kept>>>,
    /// The stream of the last launch, and the other ones that it was launched on.
    last: Option<Stream>,
    others: Vec<Stream>,
}

impl Exec {
    pub(crate) fn instantiate(shared: &Arc<Shared>, graph: &Graph) -> Result<Self> {
        let call = Call::Instantiate;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the graph is live and used by this thread alone, and the output outlives the call.
        let code = graph
            .0
            .with_handle(|graph| unsafe { sys::cuGraphInstantiateWithFlags(&raw mut handle, graph, 0) });
        shared.check(call, code, Subject::Bytes(0))?;
        Ok(Self {
            shared: Arc::clone(shared),
            handle: Raw(handle),
            origin: Arc::clone(&graph.0),
            current: Arc::clone(&graph.0),
            gathers: gathers(&graph.0),
            uploads: PatchedUploads::default(),
            before: Vec::new(),
            last: None,
            others: Vec::new(),
        })
    }

    /// Remembers the stream of a launch: what the exec uses lives until the streams have passed its launches.
    #[inline]
    pub(crate) fn note_stream(&mut self, stream: &Stream) {
        if self.last.as_ref().is_none_or(|last| last.key() != stream.key()) {
            self.change_stream(stream);
        }
    }

    #[cold]
    fn change_stream(&mut self, stream: &Stream) {
        if let Some(last) = self.last.replace(stream.clone())
            && self.others.iter().all(|other| other.key() != last.key())
        {
            self.others.push(last);
        }
    }

    /// Makes the exec run what another graph holds.
    ///
    /// Everything that is known to make the driver refuse is looked for first. Where it refuses all the same, no driver
    /// that was tried has changed the exec before it did (580, with the differing node first, last and in between).
    pub(crate) fn update(&mut self, graph: &Graph) -> Result<()> {
        let call = Call::Update;
        let (old, new) = (&*self.current, &*graph.0);
        let refuse = |refusal| Err(DeviceError::UpdateRefused { refusal });
        if old.nodes().len() != new.nodes().len() || old.edges(call)? != new.edges(call)? {
            return refuse(UpdateRefusal::Topology);
        }
        for ((old, new), place) in old.nodes().iter().zip(new.nodes()).zip(0..) {
            let node = NodeId::new(place);
            let kind = old.recording.kind();
            if kind != new.recording.kind() {
                return refuse(UpdateRefusal::Kind { node });
            }
            // Drivers differ in whether an exec that owns memory can be updated: 580 takes over the graph that it was made of.
            if NodeKinds::MEMORY.contains(kind.into()) {
                return refuse(UpdateRefusal::Parameters { node });
            }
            if !old.recording.exchangeable(&new.recording) {
                return refuse(UpdateRefusal::Parameters { node });
            }
        }
        let mut info = zeroed::<sys::CUgraphExecUpdateResultInfo>();
        // SAFETY: exec and graph are live and used by this thread alone, and the output outlives the call.
        let code = new.with_handle(|graph| unsafe {
            sys::cuGraphExecUpdate_v2(self.handle.0, graph, info.as_mut_ptr())
        });
        if code == CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            return refuse(refusal(new, info));
        }
        self.shared.check(call, code, Subject::Nothing)?;
        let old = std::mem::replace(&mut self.current, Arc::clone(&graph.0));
        self.gathers = gathers(&graph.0);
        self.uploads.clear();
        if !old.kept.is_empty() {
            let kept = Arc::clone(&old.kept);
            match events_behind(&self.shared, self.last.iter().chain(&self.others)) {
                Some(events) => lock(&self.shared.retired).push(Retired::new(kept, events)),
                None => self.before.push(kept),
            }
            self.shared.sweep();
        }
        Ok(())
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let handle = self.handle;
        let mut kept = std::mem::take(&mut self.before);
        kept.push(Arc::clone(&self.origin.kept));
        kept.push(Arc::clone(&self.current.kept));
        kept.push(Arc::new(self.uploads.pages()));
        kept.retain(|set| !set.is_empty());
        let streams: Vec<_> = self.last.take().into_iter().chain(self.others.drain(..)).collect();
        self.shared.destroy(move |shared| {
            // SAFETY: the exec was made for this value and is destroyed once. Its launches still run (CUDA Driver API,
            // cuGraphExecDestroy).
            let _ = unsafe { sys::cuGraphExecDestroy({ handle }.0) };
            if kept.is_empty() {
                return;
            }
            match events_behind(shared, &streams) {
                Some(events) => {
                    let kept = Arc::new(kept.iter().flat_map(|set| set.iter().cloned()).collect());
                    lock(&shared.retired).push(Retired::new(kept, events));
                    crate::retire::sweep(&shared.retired, false);
                }
                // Nothing can say when the launches are over, so what they use stays for good.
                None => keep_for_good(kept),
            }
        });
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec").field("nodes", &self.current.nodes().len()).finish_non_exhaustive()
    }
}

/// Events behind everything that was enqueued on the streams so far, or `None` if one cannot be had.
fn events_behind<'s>(
    shared: &Shared,
    streams: impl IntoIterator<Item = &'s Stream>,
) -> Option<Vec<OwnedEvent>> {
    streams.into_iter().map(|stream| OwnedEvent::behind(shared, stream.handle())).collect()
}

fn gathers(graph: &GraphInner) -> SmallVec<[(NodeId, GatherNode); 1]> {
    graph
        .nodes()
        .iter()
        .zip(0..)
        .filter_map(|(node, place)| match &node.recording {
            Recording::Gather(gather) => Some((NodeId::new(place), gather.clone())),
            _ => None,
        })
        .collect()
}

/// Why the driver did not take the graph over.
fn refusal(graph: &GraphInner, mut info: MaybeUninit<sys::CUgraphExecUpdateResultInfo>) -> UpdateRefusal {
    use sys::CUgraphExecUpdateResult::*;
    let code = read_field!(info, sys::CUgraphExecUpdateResultInfo, result as u32);
    let node = read_field!(info, sys::CUgraphExecUpdateResultInfo, errorNode as sys::CUgraphNode);
    let is = |result: sys::CUgraphExecUpdateResult| code == result as u32;
    let other = UpdateRefusal::Other { code: code.cast_signed() };
    let Some(node) = graph.id_of(node) else {
        let topology = is(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        return if topology { UpdateRefusal::Topology } else { other };
    };
    if is(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED) {
        UpdateRefusal::Topology
    } else if is(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED) {
        UpdateRefusal::Kind { node }
    } else if is(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED)
        || is(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED)
    {
        UpdateRefusal::Parameters { node }
    } else {
        other
    }
}
