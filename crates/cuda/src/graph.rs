//! Captured graphs.

use std::ffi::CStr;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{
    AllocationNode, Call, DevicePtr, GraphAudit, NodeId, NodeKind, NodeKinds, Problem, Result,
};

use crate::async_memory::Maker;
use crate::capture_table::{Arranged, Node, OpenCapture};
use crate::fields::{read_field, zeroed};
use crate::raw::Raw;
use crate::recording::{Recording, kind_of};
use crate::retire::{Kept, Retired};
use crate::shared::{Shared, lock};
use crate::status::Subject;

/// A captured graph: a template that execs are made from.
///
/// The ids of the nodes that were captured through the contract count from 0 in the order of the capture. Nodes that other
/// code has captured on the same streams (a library that is handed the raw stream) come behind all of these, in the order
/// in which the driver lists them, so that the ids which calls have returned stay right.
pub struct Graph(pub(crate) Arc<GraphInner>);

pub(crate) struct GraphInner {
    pub(crate) shared: Arc<Shared>,
    /// The driver wants one thread at a time at a graph, even to read it (CUDA Driver API, "Graph object thread safety").
    handle: Mutex<Raw<sys::CUgraph_st>>,
    nodes: Vec<Node>,
    /// The places in `nodes` in the order of creation.
    order: Vec<usize>,
    edges: OnceLock<Vec<(NodeId, NodeId)>>,
    pub(crate) kept: Arc<Vec<Kept>>,
}

impl GraphInner {
    /// Takes a graph that a capture gave, with what the capture met.
    pub(crate) fn new(shared: &Arc<Shared>, handle: sys::CUgraph, mut capture: OpenCapture) -> Result<Self> {
        // The graph is owned from here on, so that an error below destroys it.
        let mut graph = Self {
            shared: Arc::clone(shared),
            handle: Mutex::new(Raw(handle)),
            nodes: Vec::new(),
            order: Vec::new(),
            edges: OnceLock::new(),
            kept: Arc::new(std::mem::take(&mut capture.kept)),
        };
        let fail = |code| shared.error(Call::EndCapture, code, Subject::Nothing);
        let all = node_handles(handle).map_err(fail)?;
        Arranged { nodes: graph.nodes, order: graph.order } =
            capture.arrange(&all, |node| describe(shared, node));
        for node in &graph.nodes {
            if let Recording::Allocate { address, bytes } = node.recording {
                shared.async_allocations.made(address, bytes, Maker::Graph);
            }
        }
        Ok(graph)
    }

    /// Runs `use_graph` while no other thread uses the graph.
    pub(crate) fn with_handle<T>(&self, use_graph: impl FnOnce(sys::CUgraph) -> T) -> T {
        use_graph(lock(&self.handle).0)
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by its id.
    pub(crate) fn node(&self, call: Call, id: NodeId) -> Result<&Node> {
        self.nodes
            .get(id.get() as usize)
            .ok_or(graphgrove_device::DeviceError::invalid(call, Problem::NoSuchNode { node: id }))
    }

    /// The id of a node by its handle.
    pub(crate) fn id_of(&self, handle: sys::CUgraphNode) -> Option<NodeId> {
        let place = self.nodes.iter().position(|node| node.handle.0 == handle)?;
        u32::try_from(place).ok().map(NodeId::new)
    }

    /// The dependencies between the nodes, in a fixed order.
    pub(crate) fn edges(&self, call: Call) -> Result<&[(NodeId, NodeId)]> {
        if let Some(edges) = self.edges.get() {
            return Ok(edges);
        }
        let ids: std::collections::HashMap<_, _> =
            self.nodes.iter().zip(0..).map(|(node, place)| (node.handle.0, NodeId::new(place))).collect();
        let mut edges: Vec<_> = self
            .with_handle(|graph| self.shared.symbols.edges(graph))
            .map_err(|code| self.shared.error(call, code, Subject::Nothing))?
            .into_iter()
            .filter_map(|(from, to)| Some((*ids.get(&from)?, *ids.get(&to)?)))
            .collect();
        edges.sort_unstable();
        Ok(self.edges.get_or_init(|| edges))
    }

    /// The allocation that a launch leaves behind, if the graph makes one that it does not free.
    pub(crate) fn unfreed(&self) -> Option<DevicePtr> {
        let freed = |at| {
            self.nodes
                .iter()
                .any(|node| matches!(node.recording, Recording::Free { address } if address == at))
        };
        self.nodes.iter().find_map(|node| match node.recording {
            Recording::Allocate { address, .. } if !freed(address) => Some(address),
            _ => None,
        })
    }

    /// What the graph is made of.
    pub(crate) fn audit(&self) -> Result<GraphAudit> {
        let mut audit = GraphAudit {
            nodes: self.nodes.len(),
            edges: self.edges(Call::Audit)?.len(),
            ..GraphAudit::default()
        };
        let mut before: Option<&Recording> = None;
        for (id, node) in
            self.order.iter().filter_map(|&id| Some((u32::try_from(id).ok()?, self.nodes.get(id)?)))
        {
            let kind = NodeKinds::from(node.recording.kind());
            audit.kinds |= kind;
            if NodeKinds::MEMORY.contains(kind) {
                let after = before.map_or_else(|| "the begin of the capture".to_owned(), Recording::label);
                audit.memory_nodes.push(AllocationNode { node: NodeId::new(id), after });
            }
            before = Some(&node.recording);
        }
        Ok(audit)
    }
}

impl Drop for GraphInner {
    fn drop(&mut self) {
        let handle = *lock(&self.handle);
        let kept = std::mem::take(&mut self.kept);
        self.shared.destroy(move |shared| {
            // SAFETY: the graph was given to this value and is destroyed once. Execs do not need it to be launched.
            let _ = unsafe { sys::cuGraphDestroy({ handle }.0) };
            if !kept.is_empty() {
                // An exec that still needs these has retired or holds them, too.
                lock(&shared.retired).push(Retired::new(kept, Vec::new()));
                crate::retire::sweep(&shared.retired, false);
            }
        });
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.0.nodes.len()).finish_non_exhaustive()
    }
}

fn node_handles(graph: sys::CUgraph) -> Result<Vec<Raw<sys::CUgraphNode_st>>, CUresult> {
    let mut count = 0;
    // SAFETY: the graph is live, and without an array the driver only counts.
    let code = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) };
    if code != CUresult::CUDA_SUCCESS {
        return Err(code);
    }
    let mut nodes: Vec<sys::CUgraphNode> = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: the graph is live, and the array has `count` places.
        let code = unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) };
        if code != CUresult::CUDA_SUCCESS {
            return Err(code);
        }
    }
    Ok(nodes.into_iter().take(count).map(Raw).collect())
}

/// What the driver says of a node that other code has captured.
fn describe(shared: &Shared, node: Raw<sys::CUgraphNode_st>) -> Recording {
    let mut number = u32::MAX;
    // SAFETY: the node is of a live graph, and the output is as large as the driver's enum.
    let code = unsafe { sys::cuGraphNodeGetType(node.0, (&raw mut number).cast()) };
    if code != CUresult::CUDA_SUCCESS {
        return Recording::Foreign { kind: NodeKind::Other, name: None };
    }
    match kind_of(number) {
        NodeKind::Allocate => allocation(node),
        NodeKind::Free => {
            let mut address = 0;
            // SAFETY: the node frees memory, and the output outlives the call.
            let _ = unsafe { sys::cuGraphMemFreeNodeGetParams(node.0, &raw mut address) };
            Recording::Free { address: DevicePtr::new(address) }
        }
        NodeKind::Kernel => {
            let name = kernel_parameters(node).ok().and_then(|it| function_name(shared, function_of(&it)));
            Recording::Foreign { kind: NodeKind::Kernel, name }
        }
        kind => Recording::Foreign { kind, name: None },
    }
}

fn allocation(node: Raw<sys::CUgraphNode_st>) -> Recording {
    let mut parameters = zeroed::<sys::CUDA_MEM_ALLOC_NODE_PARAMS>();
    // SAFETY: the node allocates memory, and the output outlives the call.
    let code = unsafe { sys::cuGraphMemAllocNodeGetParams(node.0, parameters.as_mut_ptr()) };
    if code != CUresult::CUDA_SUCCESS {
        return Recording::Foreign { kind: NodeKind::Allocate, name: None };
    }
    let address = read_field!(parameters, sys::CUDA_MEM_ALLOC_NODE_PARAMS, dptr as u64);
    let bytes = read_field!(parameters, sys::CUDA_MEM_ALLOC_NODE_PARAMS, bytesize as usize);
    Recording::Allocate { address: DevicePtr::new(address), bytes: bytes as u64 }
}

/// The parameters of a kernel node of a live graph.
pub(crate) fn kernel_parameters(
    node: Raw<sys::CUgraphNode_st>,
) -> Result<sys::CUDA_KERNEL_NODE_PARAMS, CUresult> {
    let mut parameters = zeroed::<sys::CUDA_KERNEL_NODE_PARAMS>();
    // SAFETY: the node launches a kernel, and the output outlives the call.
    let code = unsafe { sys::cuGraphKernelNodeGetParams_v2(node.0, parameters.as_mut_ptr()) };
    if code != CUresult::CUDA_SUCCESS {
        return Err(code);
    }
    // SAFETY: it consists of numbers and pointers, for which zeros are valid, and the driver has filled it in.
    Ok(unsafe { parameters.assume_init() })
}

/// The function that a kernel node runs, or null: the node of a kernel from a library names that instead
/// (CUDA Driver API, "Library Management").
pub(crate) fn function_of(parameters: &sys::CUDA_KERNEL_NODE_PARAMS) -> sys::CUfunction {
    if !parameters.func.is_null() || parameters.kern.is_null() {
        return parameters.func;
    }
    let mut function = std::ptr::null_mut();
    // SAFETY: the kernel is that of a live node, and the output outlives the call, which writes nothing if it fails.
    let _ = unsafe { sys::cuKernelGetFunction(&raw mut function, parameters.kern) };
    function
}

fn function_name(shared: &Shared, function: sys::CUfunction) -> Option<String> {
    let ask = shared.symbols.function_name?;
    if function.is_null() {
        return None;
    }
    let mut text = std::ptr::null();
    // SAFETY: the function is that of a live kernel node, and the output outlives the call.
    let code = unsafe { ask(&raw mut text, function) };
    if code != CUresult::CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: the driver gave a string that ends in a null byte and lives as long as the function's module.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
