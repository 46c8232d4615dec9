//! What a graph is made of, as an audit sees it.

use std::fmt;

use crate::{DeviceError, NodeId};

bitflags::bitflags! {
    /// The kinds of nodes that a graph holds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct NodeKinds: u32 {
        /// A kernel launch, gather nodes included.
        const KERNEL = 1;
        /// A copy, in any direction.
        const COPY = 1 << 1;
        /// A fill.
        const FILL = 1 << 2;
        /// A call to a host function.
        const HOST = 1 << 3;
        /// A graph in a graph.
        const CHILD = 1 << 4;
        /// Nothing; it only joins edges.
        const EMPTY = 1 << 5;
        /// A wait for an event outside of the graph.
        const WAIT_EVENT = 1 << 6;
        /// A recording of an event outside of the graph.
        const RECORD_EVENT = 1 << 7;
        /// An allocation that the graph owns.
        const ALLOCATE = 1 << 8;
        /// A free of such an allocation.
        const FREE = 1 << 9;
        /// A conditional body.
        const CONDITIONAL = 1 << 10;
        /// Any kind that this contract has no word for (external semaphores, batched memory operations, newer ones).
        const OTHER = 1 << 11;
    }
}

impl NodeKinds {
    /// The kinds that make a graph own memory.
    pub const MEMORY: Self = Self::ALLOCATE.union(Self::FREE);
}

/// The kind of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeKind {
    /// A kernel launch, gather nodes included.
    Kernel,
    /// A copy, in any direction.
    Copy,
    /// A fill.
    Fill,
    /// A call to a host function.
    Host,
    /// A graph in a graph.
    Child,
    /// Nothing; it only joins edges.
    Empty,
    /// A wait for an event outside of the graph.
    WaitEvent,
    /// A recording of an event outside of the graph.
    RecordEvent,
    /// An allocation that the graph owns.
    Allocate,
    /// A free of such an allocation.
    Free,
    /// A conditional body.
    Conditional,
    /// A kind that this contract has no word for.
    Other,
}

impl From<NodeKind> for NodeKinds {
    fn from(kind: NodeKind) -> Self {
        match kind {
            NodeKind::Kernel => Self::KERNEL,
            NodeKind::Copy => Self::COPY,
            NodeKind::Fill => Self::FILL,
            NodeKind::Host => Self::HOST,
            NodeKind::Child => Self::CHILD,
            NodeKind::Empty => Self::EMPTY,
            NodeKind::WaitEvent => Self::WAIT_EVENT,
            NodeKind::RecordEvent => Self::RECORD_EVENT,
            NodeKind::Allocate => Self::ALLOCATE,
            NodeKind::Free => Self::FREE,
            NodeKind::Conditional => Self::CONDITIONAL,
            NodeKind::Other => Self::OTHER,
        }
    }
}

/// One memory node that an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationNode {
    /// The node.
    pub node: NodeId,
    /// The kernel or operation that was captured just before it, or `"the begin of the capture"`: where a library
    /// allocates behind its caller's back, this is the nearest thing to a name for the culprit.
    pub after: String,
}

/// What a graph is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphAudit {
    /// How many nodes it has.
    pub nodes: usize,
    /// How many dependencies it has.
    pub edges: usize,
    /// Which kinds of nodes it has.
    pub kinds: NodeKinds,
    /// Its memory nodes, in the order in which the capture met them.
    pub memory_nodes: Vec<AllocationNode>,
}

impl GraphAudit {
    /// Refuses a graph that owns memory.
    ///
    /// Such a graph launches once and then fails while its allocation lives, and its addresses are the driver's, not the
    /// pool's (CUDA Programming Guide, "Graph Memory Nodes").
    ///
    /// # Errors
    /// [`DeviceError::MemoryNodes`], naming the first of them.
    pub fn refuse_memory_nodes(&self) -> crate::Result<()> {
        match self.memory_nodes.first() {
            None => Ok(()),
            Some(first) => Err(DeviceError::MemoryNodes {
                count: self.memory_nodes.len(),
                node: first.node,
                after: first.after.clone(),
            }),
        }
    }
}

impl fmt::Display for GraphAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {} edges (", self.nodes, self.edges)?;
        let mut first = true;
        for (name, _) in self.kinds.iter_names() {
            write!(f, "{}{}", if first { "" } else { ", " }, name.to_lowercase().replace('_', " "))?;
            first = false;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_without_memory_nodes_passes() {
        assert_eq!(GraphAudit::default().refuse_memory_nodes(), Ok(()));
    }

    #[test]
    fn an_audit_names_the_first_memory_node_and_what_came_before_it() {
        let audit = GraphAudit {
            nodes: 3,
            edges: 2,
            kinds: NodeKinds::KERNEL | NodeKinds::ALLOCATE | NodeKinds::FREE,
            memory_nodes: vec![
                AllocationNode { node: NodeId::new(1), after: "gemm".into() },
                AllocationNode { node: NodeId::new(2), after: "gemm".into() },
            ],
        };
        let error = audit.refuse_memory_nodes().unwrap_err();
        assert_eq!(error.to_string(), "the graph allocates: 2 memory nodes, the first is node 1, after gemm");
        assert_eq!(audit.to_string(), "3 nodes, 2 edges (kernel, allocate, free)");
    }

    #[test]
    fn every_kind_of_node_has_a_flag_of_its_own() {
        use NodeKind::*;
        let kinds = [
            Kernel,
            Copy,
            Fill,
            Host,
            Child,
            Empty,
            WaitEvent,
            RecordEvent,
            Allocate,
            Free,
            Conditional,
            Other,
        ];
        let all = kinds.iter().fold(NodeKinds::empty(), |all, &kind| {
            assert!(!all.intersects(kind.into()), "{kind:?} shares a flag");
            all | kind.into()
        });
        assert_eq!(all, NodeKinds::all());
    }
}
