//! What is known of one node of a graph.

use graphgrove_device::{Args, Call, DevicePtr, KernelHandle as _, LaunchDims, NodeKind};

use crate::copy_node::CopyNode;
use crate::gather::GatherNode;
use crate::kernel::Kernel;

/// What a node does, as far as it is known.
#[derive(Clone)]
pub(crate) enum Recording {
    /// A kernel launch through the contract.
    Kernel { kernel: Kernel, dims: LaunchDims, args: Args },
    /// A gather node.
    Gather(GatherNode),
    /// A copy within the device.
    Copy(CopyNode),
    /// A copy from the host.
    Upload { bytes: usize },
    /// A copy to the host.
    Download,
    /// A fill.
    Fill,
    /// A call to the host.
    Host,
    /// A stream-ordered allocation.
    Allocate { address: DevicePtr, bytes: u64 },
    /// A stream-ordered free.
    Free { address: DevicePtr },
    /// A node that was captured by other code.
    Foreign { kind: NodeKind, name: Option<String> },
}

impl Recording {
    /// The kind of the node.
    pub(crate) fn kind(&self) -> NodeKind {
        match self {
            Self::Kernel { .. } | Self::Gather(_) => NodeKind::Kernel,
            Self::Copy(_) | Self::Upload { .. } | Self::Download => NodeKind::Copy,
            Self::Fill => NodeKind::Fill,
            Self::Host => NodeKind::Host,
            Self::Allocate { .. } => NodeKind::Allocate,
            Self::Free { .. } => NodeKind::Free,
            Self::Foreign { kind, .. } => *kind,
        }
    }

    /// The node in words, for audits.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Kernel { kernel, .. } => kernel.name().to_owned(),
            Self::Gather(_) => Call::Gather.name().to_owned(),
            Self::Copy(_) => Call::Copy.name().to_owned(),
            Self::Upload { .. } => Call::Upload.name().to_owned(),
            Self::Download => Call::Download.name().to_owned(),
            Self::Fill => Call::Fill.name().to_owned(),
            Self::Host => Call::HostCall.name().to_owned(),
            Self::Allocate { .. } => Call::AllocateAsync.name().to_owned(),
            Self::Free { .. } => Call::FreeAsync.name().to_owned(),
            Self::Foreign { name: Some(name), .. } => name.clone(),
            Self::Foreign { kind, name: None } => format!("a node of kind {kind:?} that other code captured"),
        }
    }

    /// Whether an exec with this node can take over one with the other, both being of the same kind: the driver refuses
    /// a copy in another direction.
    pub(crate) fn exchangeable(&self, other: &Self) -> bool {
        let direction = |recording: &Self| match recording {
            Self::Copy(_) => Some(0),
            Self::Upload { .. } => Some(1),
            Self::Download => Some(2),
            _ => None,
        };
        match (direction(self), direction(other)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }
}

/// The kind that the driver's number (`CUgraphNodeType`) stands for. It is taken as a number, since newer drivers have more
/// of them than the bindings.
pub(crate) fn kind_of(number: u32) -> NodeKind {
    const KINDS: [NodeKind; 14] = [
        NodeKind::Kernel,
        NodeKind::Copy,
        NodeKind::Fill,
        NodeKind::Host,
        NodeKind::Child,
        NodeKind::Empty,
        NodeKind::WaitEvent,
        NodeKind::RecordEvent,
        // Signals of and waits for external semaphores.
        NodeKind::Other,
        NodeKind::Other,
        NodeKind::Allocate,
        NodeKind::Free,
        // Batched memory operations.
        NodeKind::Other,
        NodeKind::Conditional,
    ];
    KINDS.get(number as usize).copied().unwrap_or(NodeKind::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_driver_become_kinds_and_unknown_ones_are_other() {
        assert_eq!(kind_of(0), NodeKind::Kernel);
        assert_eq!(kind_of(10), NodeKind::Allocate);
        assert_eq!(kind_of(13), NodeKind::Conditional);
        assert_eq!(kind_of(11), NodeKind::Free);
        assert_eq!(kind_of(8), NodeKind::Other);
        assert_eq!(kind_of(9999), NodeKind::Other);
    }

    #[test]
    fn copies_in_different_directions_cannot_take_each_other_over() {
        assert!(!Recording::Upload { bytes: 1 }.exchangeable(&Recording::Download));
        assert!(!Recording::Download.exchangeable(&Recording::Upload { bytes: 1 }));
        assert!(Recording::Upload { bytes: 1 }.exchangeable(&Recording::Upload { bytes: 2 }));
        assert!(Recording::Fill.exchangeable(&Recording::Fill));
    }
}
