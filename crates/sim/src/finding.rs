//! What the checker found.

use std::fmt;
use std::sync::Arc;

use graphgrove_device::{DevicePtr, NodeId, StreamId};

/// Who made an access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The kernel, or the operation in words.
    pub name: Arc<str>,
    /// The argument whose memory was accessed, counted from 0, for a kernel.
    pub argument: Option<u32>,
    /// The stream that it ran on; `None` for the host.
    pub stream: Option<StreamId>,
    /// The node, if it ran as part of a graph.
    pub node: Option<NodeId>,
}

impl Site {
    pub(crate) fn host(name: &str) -> Self {
        Self { name: name.into(), argument: None, stream: None, node: None }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(argument) = self.argument {
            write!(f, " (argument {argument})")?;
        }
        match (self.stream, self.node) {
            (Some(stream), Some(node)) => write!(f, " as {node} on {stream}"),
            (Some(stream), None) => write!(f, " on {stream}"),
            (None, _) => write!(f, " by the host"),
        }
    }
}

/// The allocation that an access aimed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The first address accessed.
    pub address: DevicePtr,
    /// The length of the access in bytes.
    pub bytes: u64,
    /// Start and length in bytes of the allocation that the address is in, or was in before it was freed.
    pub allocation: Option<(DevicePtr, u64)>,
    /// What the memory was handed out for, as far as an annotation said so.
    pub label: Option<&'static str>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.bytes, self.address)?;
        if let Some((base, bytes)) = self.allocation {
            write!(f, " in the allocation of {bytes} bytes at {base}")?;
        }
        if let Some(label) = self.label {
            write!(f, " ({label})")?;
        }
        Ok(())
    }
}

/// A broken rule of memory, with who broke it and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Memory was accessed whose allocation had been freed.
    UseAfterFree {
        /// The access.
        access: Site,
        /// What it aimed at.
        target: Target,
        /// Who freed it.
        freed: Site,
    },
    /// A copy whose source and destination overlap, or a gather whose destination overlaps another row: the result depends
    /// on how the bytes happen to be moved.
    Overlap {
        /// The copy or gather.
        access: Site,
        /// The destination.
        target: Target,
    },
    /// Memory was accessed that its owner had given back ([`Annotation::Released`](graphgrove_device::Annotation::Released)).
    UseAfterRelease {
        /// The access.
        access: Site,
        /// What it aimed at.
        target: Target,
        /// Who gave it back.
        released: Site,
    },
    /// Memory was read that nothing had been written to.
    NeverWritten {
        /// The read.
        access: Site,
        /// What it aimed at; the address is the first undefined byte.
        target: Target,
    },
    /// An access ran past the end of an allocation, or into addresses that have no memory.
    OutOfBounds {
        /// The access.
        access: Site,
        /// What it aimed at.
        target: Target,
    },
    /// An address was not a multiple of what the access needs.
    Misaligned {
        /// The access.
        access: Site,
        /// What it aimed at.
        target: Target,
        /// The alignment in bytes that the access needs.
        alignment: u64,
    },
    /// Two accesses to the same memory, at least one of them a write, that nothing orders.
    Race {
        /// The access that ran first in this execution.
        first: Site,
        /// The access that ran second.
        second: Site,
        /// What both aimed at; the address is the first byte in common.
        target: Target,
    },
    /// A kernel read behind a pointer that its launch declared to be written only, or wrote behind one to be read only.
    Undeclared {
        /// The access.
        access: Site,
        /// What it aimed at.
        target: Target,
        /// Whether the access was a write.
        write: bool,
    },
    /// A copy used host memory that was gone when it ran.
    HostMemoryGone {
        /// The copy.
        access: Site,
    },
}

impl Finding {
    /// A race on host memory, which has no device address.
    pub(crate) fn host_race(first: &Site, second: &Site, bytes: usize) -> Self {
        let target = Target {
            address: DevicePtr::NULL,
            bytes: bytes as u64,
            allocation: None,
            label: Some("host memory"),
        };
        Self::Race { first: first.clone(), second: second.clone(), target }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UseAfterFree { access, target, freed } => {
                write!(f, "use after free: {access} accessed {target}, freed by {freed}")
            }
            Self::Overlap { access, target } => {
                write!(f, "overlap: {access} wrote {target}, which it also reads or writes elsewhere")
            }
            Self::UseAfterRelease { access, target, released } => {
                write!(f, "use after release: {access} accessed {target}, given back by {released}")
            }
            Self::NeverWritten { access, target } => {
                write!(f, "never written: {access} read {target}")
            }
            Self::OutOfBounds { access, target } => write!(f, "out of bounds: {access} accessed {target}"),
            Self::Misaligned { access, target, alignment } => {
                write!(f, "misaligned: {access} accessed {target}, which needs an alignment of {alignment}")
            }
            Self::Race { first, second, target } => {
                write!(f, "race: nothing orders {first} and {second}, which share {target}")
            }
            Self::Undeclared { access, target, write } => {
                let (did, declared) = if *write { ("wrote", "read") } else { ("read", "write") };
                write!(f, "undeclared: {access} {did} {target}, declared {declared} only")
            }
            Self::HostMemoryGone { access } => write!(f, "host memory gone: {access} came after its buffer"),
        }
    }
}

/// Everything that the checker found, as an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The findings, in the order in which they were made.
    pub findings: Vec<Finding>,
    /// Findings beyond the number that is kept.
    pub more: usize,
    /// What poisoned the device, if anything did. Work that was enqueued behind it never ran.
    pub fault: Option<String>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} findings", self.findings.len() + self.more)?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        match &self.fault {
            Some(cause) => write!(f, "\n  the device is poisoned: {cause}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Findings {}
