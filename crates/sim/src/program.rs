//! A captured graph: what stands in it, in which order it may run, and which parts of it run beside each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use graphgrove_device::{AllocationNode, DevicePtr, GraphAudit, NodeId, NodeKind, UpdateRefusal};
use smallvec::SmallVec;

use crate::op::Op;

/// Places of nodes in a program.
pub(crate) type Places = SmallVec<[u32; 2]>;

/// A node as the capture met it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) op: Arc<Op>,
    pub(crate) after: Places,
    /// Its identity outside; annotations have none.
    pub(crate) id: Option<NodeId>,
}

/// A graph that can be launched. Nodes stand behind everything that they wait for.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) nodes: Vec<Node>,
    /// `before[i]` are the nodes that wait for node `i`.
    pub(crate) before: Vec<Places>,
    /// The chain that each node belongs to: nodes of one chain wait for each other, nodes of two may run at the same time.
    pub(crate) chains: Vec<u32>,
    pub(crate) chain_count: u32,
    /// `places[id]` is where the node with that identity stands.
    places: Vec<u32>,
    /// Allocations that a launch leaves behind.
    pub(crate) kept_allocations: Vec<DevicePtr>,
}

impl Program {
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        let mut before = vec![Places::new(); nodes.len()];
        let mut chains = Vec::with_capacity(nodes.len());
        let mut chain_count = 0;
        let mut continued = vec![false; nodes.len()];
        let mut places = Vec::new();
        let mut kept_allocations = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            for &earlier in &node.after {
                before[earlier as usize].push(place as u32);
            }
            let link = node.after.iter().copied().find(|&earlier| !continued[earlier as usize]);
            chains.push(match link {
                Some(earlier) => {
                    continued[earlier as usize] = true;
                    chains[earlier as usize]
                }
                None => {
                    chain_count += 1;
                    chain_count - 1
                }
            });
            if node.id.is_some() {
                places.push(place as u32);
            }
            match *node.op {
                Op::Allocate { address, .. } => kept_allocations.push(address),
                Op::Free { address } => kept_allocations.retain(|&kept| kept != address),
                _ => {}
            }
        }
        Self { nodes, before, chains, chain_count, places, kept_allocations }
    }

    /// Where the node with that identity stands.
    pub(crate) fn place(&self, id: NodeId) -> Option<usize> {
        self.places.get(id.get() as usize).map(|&place| place as usize)
    }

    /// Every address that a memory node of the graph allocates.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = DevicePtr> {
        self.nodes.iter().filter_map(|node| match *node.op {
            Op::Allocate { address, .. } => Some(address),
            _ => None,
        })
    }

    /// The nodes that have an identity, each with the identities that it waits for: annotations are looked through.
    fn public_edges(&self) -> Vec<(usize, BTreeSet<u32>)> {
        let mut waits: Vec<BTreeSet<u32>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let mut set = BTreeSet::new();
            for &earlier in &node.after {
                match self.nodes[earlier as usize].id {
                    Some(id) => {
                        set.insert(id.get());
                    }
                    None => set.extend(waits[earlier as usize].iter().copied()),
                }
            }
            waits.push(set);
        }
        self.places.iter().map(|&place| (place as usize, waits[place as usize].clone())).collect()
    }

    pub(crate) fn audit(&self) -> GraphAudit {
        let public = self.public_edges();
        let mut audit = GraphAudit {
            nodes: public.len(),
            edges: public.iter().map(|(_, waits)| waits.len()).sum(),
            ..GraphAudit::default()
        };
        let mut previous: Arc<str> = "the begin of the capture".into();
        for &(place, _) in &public {
            let node = &self.nodes[place];
            let (Some(id), Some(kind)) = (node.id, node.op.kind()) else { continue };
            audit.kinds |= kind.into();
            if matches!(kind, NodeKind::Allocate | NodeKind::Free) {
                audit.memory_nodes.push(AllocationNode { node: id, after: previous.to_string() });
            } else {
                previous = node.op.name();
            }
        }
        audit
    }

    /// Says why an exec of this program cannot take the other one over, if it cannot.
    ///
    /// Another kernel, another grid, other sizes and values are all taken over; a graph that owns memory never is.
    pub(crate) fn refuses(&self, other: &Self) -> Option<UpdateRefusal> {
        if self.allocations().next().is_some() || other.allocations().next().is_some() {
            return Some(UpdateRefusal::Topology);
        }
        let (mine, theirs) = (self.public_edges(), other.public_edges());
        if mine.len() != theirs.len() || mine.iter().zip(&theirs).any(|(a, b)| a.1 != b.1) {
            return Some(UpdateRefusal::Topology);
        }
        for ((a, _), (b, _)) in mine.iter().zip(&theirs) {
            let (a, b) = (&self.nodes[*a], &other.nodes[*b]);
            let node = a.id.unwrap_or(NodeId::new(0));
            if a.op.kind() != b.op.kind() {
                return Some(UpdateRefusal::Kind { node });
            }
            if std::mem::discriminant(&*a.op) != std::mem::discriminant(&*b.op)
                && a.op.kind() == Some(NodeKind::Copy)
            {
                return Some(UpdateRefusal::Parameters { node });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use graphgrove_device::NodeKinds;

    use super::*;
    use crate::graph_memory::GraphMemory;

    fn fill(id: u32, after: &[u32]) -> Node {
        let op = Op::Fill { to: DevicePtr::new(1), value: 0, bytes: 1 };
        Node { op: Arc::new(op), after: Places::from_slice(after), id: Some(NodeId::new(id)) }
    }

    fn note(after: &[u32]) -> Node {
        let note = graphgrove_device::Annotation::Released { at: DevicePtr::new(1), bytes: 1 };
        Node { op: Arc::new(Op::Annotate(note)), after: Places::from_slice(after), id: None }
    }

    #[test]
    fn a_straight_line_is_one_chain_and_a_fork_is_two() {
        let line = Program::new(vec![fill(0, &[]), fill(1, &[0]), fill(2, &[1])]);
        assert_eq!(line.chain_count, 1);
        let fork = Program::new(vec![fill(0, &[]), fill(1, &[0]), fill(2, &[0]), fill(3, &[1, 2])]);
        assert_eq!(fork.chain_count, 2);
        assert_ne!(fork.chains[1], fork.chains[2]);
    }

    #[test]
    fn annotations_are_no_nodes_to_an_audit_but_keep_the_order() {
        let program = Program::new(vec![fill(0, &[]), note(&[0]), fill(1, &[1])]);
        let audit = program.audit();
        assert_eq!((audit.nodes, audit.edges, audit.kinds), (2, 1, NodeKinds::FILL));
        assert_eq!(program.place(NodeId::new(1)), Some(2));
        assert_eq!(program.place(NodeId::new(2)), None);
        let plain = Program::new(vec![fill(0, &[]), fill(1, &[0])]);
        assert_eq!(plain.refuses(&program), None);
    }

    #[test]
    fn an_update_is_refused_for_another_shape_or_another_kind() {
        let line = Program::new(vec![fill(0, &[]), fill(1, &[0])]);
        let apart = Program::new(vec![fill(0, &[]), fill(1, &[])]);
        assert_eq!(line.refuses(&apart), Some(UpdateRefusal::Topology));
        let mut copy = fill(1, &[0]);
        copy.op = Arc::new(Op::Copy { to: DevicePtr::new(1), from: DevicePtr::new(2), bytes: 1 });
        let other = Program::new(vec![fill(0, &[]), copy]);
        assert_eq!(line.refuses(&other), Some(UpdateRefusal::Kind { node: NodeId::new(1) }));
    }

    #[test]
    fn an_allocation_without_its_free_is_kept() {
        let at = DevicePtr::new(64);
        let node = |op, id, after: &[u32]| Node {
            op: Arc::new(op),
            after: Places::from_slice(after),
            id: Some(NodeId::new(id)),
        };
        let memory = Arc::new(GraphMemory { device: std::sync::Weak::new(), base: at.get() });
        let allocate = node(Op::Allocate { address: at, bytes: 8, _memory: memory }, 1, &[0]);
        let kept = Program::new(vec![fill(0, &[]), allocate.clone()]);
        assert_eq!(kept.kept_allocations, [at]);
        assert_eq!(kept.audit().memory_nodes[0].after, "fill");
        let freed = Program::new(vec![fill(0, &[]), allocate, node(Op::Free { address: at }, 2, &[1])]);
        assert!(freed.kept_allocations.is_empty());
        assert_eq!(freed.allocations().collect::<Vec<_>>(), [at]);
        assert_eq!(freed.refuses(&freed), Some(UpdateRefusal::Topology));
    }
}
