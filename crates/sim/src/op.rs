//! One piece of work, as it waits in a stream or stands in a graph.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::{Annotation, Args, DevicePtr, GatherRow, KernelHandle, LaunchDims, NodeKind};

use crate::graph_memory::GraphMemory;
use crate::host::HostRef;
use crate::host_call::HostCall;
use crate::kernel::SimKernel;

/// One piece of work.
#[derive(Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "kernels are the common case, and a box would cost each launch an allocation"
)]
pub(crate) enum Op {
    Kernel { kernel: SimKernel, dims: LaunchDims, args: Args },
    Copy { to: DevicePtr, from: DevicePtr, bytes: u64 },
    Fill { to: DevicePtr, value: u8, bytes: u64 },
    Upload { to: DevicePtr, from: HostRef, offset: usize, bytes: usize },
    Download { to: HostRef, offset: usize, from: DevicePtr, bytes: usize },
    Gather { rows: Arc<[GatherRow]>, sources: Vec<DevicePtr> },
    HostCall(HostCall),
    Annotate(Annotation),
    Allocate { address: DevicePtr, bytes: u64, _memory: Arc<GraphMemory> },
    Free { address: DevicePtr },
}

impl Op {
    /// The kind of node that the work becomes in a graph; `None` for annotations, which are no nodes to anybody outside.
    pub(crate) fn kind(&self) -> Option<NodeKind> {
        Some(match self {
            Self::Kernel { .. } | Self::Gather { .. } => NodeKind::Kernel,
            Self::Copy { .. } | Self::Upload { .. } | Self::Download { .. } => NodeKind::Copy,
            Self::Fill { .. } => NodeKind::Fill,
            Self::HostCall(_) => NodeKind::Host,
            Self::Allocate { .. } => NodeKind::Allocate,
            Self::Free { .. } => NodeKind::Free,
            Self::Annotate(_) => return None,
        })
    }

    /// What findings and audits call the work.
    pub(crate) fn name(&self) -> Arc<str> {
        match self {
            Self::Kernel { kernel, .. } => Arc::clone(&kernel.name),
            Self::Copy { .. } => "copy".into(),
            Self::Fill { .. } => "fill".into(),
            Self::Upload { .. } => "upload".into(),
            Self::Download { .. } => "download".into(),
            Self::Gather { .. } => "gather".into(),
            Self::HostCall(_) => "host call".into(),
            Self::Annotate(Annotation::Acquired { .. }) => "acquire".into(),
            Self::Annotate(Annotation::Released { .. }) => "release".into(),
            Self::Allocate { .. } => "allocate on stream".into(),
            Self::Free { .. } => "free on stream".into(),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Op({})",
            match self {
                Self::Kernel { kernel, .. } => kernel.name(),
                Self::Annotate(_) => "annotate",
                _ => self.kind().map_or("", |_| "work"),
            }
        )
    }
}
