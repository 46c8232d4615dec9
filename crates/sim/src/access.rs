//! How running work reaches memory: every access passes the checker here.

use std::ptr::NonNull;
use std::sync::Arc;

use graphgrove_device::{DevicePtr, NodeId, StreamId};

use crate::clock::{Clock, Lane};
use crate::finding::{Finding, Site, Target};
use crate::scope::KernelFault;
use crate::shadow::{Clash, Content, Mark};
use crate::space::{Allocation, Miss, Space};

/// The byte that undefined memory reads as: not a number for every floating-point type, and the largest unsigned number.
pub const POISON: u8 = 0xFF;

/// The findings so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) findings: Vec<Finding>,
    pub(crate) more: usize,
}

impl Log {
    /// Past this many, findings are only counted: a broken loop would fill the host's memory else.
    const KEPT: usize = 1000;

    pub(crate) fn add(&mut self, finding: Finding) {
        if self.findings.len() < Self::KEPT {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Whether an access reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One running operation, as the checker sees it.
#[derive(Debug)]
pub(crate) struct Accessor<'a> {
    pub(crate) space: &'a mut Space,
    pub(crate) log: &'a mut Log,
    pub(crate) clock: &'a Clock,
    pub(crate) lane: Lane,
    pub(crate) count: u32,
    pub(crate) name: Arc<str>,
    pub(crate) stream: Option<StreamId>,
    pub(crate) node: Option<NodeId>,
}

impl Accessor<'_> {
    pub(crate) fn site(&self, argument: Option<u32>) -> Site {
        Site { name: Arc::clone(&self.name), argument, stream: self.stream, node: self.node }
    }

    /// Checks an access and returns where its first byte lies on the host, valid for `bytes` for as long as the space is
    /// not changed.
    pub(crate) fn reach(
        &mut self,
        argument: Option<u32>,
        address: DevicePtr,
        bytes: u64,
        direction: Direction,
    ) -> Result<NonNull<u8>, KernelFault> {
        let site = self.site(argument);
        let mark = Mark { lane: self.lane, count: self.count, site: Arc::new(site) };
        let (allocation, offset) = match self.space.find(address, bytes) {
            Ok(found) => found,
            Err(miss) => return Err(missed(self.log, &mark.site, address, bytes, miss)),
        };
        let start =
            allocation.backing.start().ok_or_else(|| KernelFault::new("the host has no memory left"))?;
        // SAFETY: `find` has checked that `offset` is inside of the allocation, which is as long as its backing.
        let at = unsafe { start.add(offset as usize) };
        let (from, to) = (offset, offset + bytes);
        let (clashes, undefined) = match (&mut allocation.shadow, direction) {
            (None, _) => return Ok(at),
            (Some(shadow), Direction::Read) => shadow.read(from, to, self.clock, &mark),
            (Some(shadow), Direction::Write) => {
                (shadow.write(from, to, self.clock, &mark), Default::default())
            }
        };
        for (from, to) in undefined {
            // SAFETY: the shadow's cells lie inside of the allocation, which is as long as its backing.
            unsafe { start.add(from as usize).write_bytes(POISON, (to - from) as usize) };
        }
        let mut fault = None;
        for clash in clashes {
            let end = address.get() + bytes;
            if let Clash::Released { at, .. } = clash
                && direction == Direction::Read
            {
                poison(allocation, at.max(from), to);
            }
            let finding = describe(allocation, &mark.site, clash, end);
            if let Finding::OutOfBounds { .. } = finding {
                fault = Some(KernelFault::new(finding.to_string()));
            }
            self.log.add(finding);
        }
        fault.map_or(Ok(at), Err)
    }

    /// Notes that a range was handed out (`Some(label)`) or given back (`None`).
    pub(crate) fn set_content(&mut self, address: DevicePtr, bytes: u64, label: Option<&'static str>) {
        let mark = Mark { lane: self.lane, count: self.count, site: Arc::new(self.site(None)) };
        let (allocation, offset) = match self.space.find(address, bytes) {
            Ok(found) => found,
            Err(miss) => {
                missed(self.log, &mark.site, address, bytes, miss);
                return;
            }
        };
        let content = match label {
            Some(_) => Content::Undefined,
            None => Content::Released(Arc::clone(&mark.site)),
        };
        let Some(shadow) = &mut allocation.shadow else { return };
        let clashes = shadow.set(offset, offset + bytes, content, self.clock, &mark);
        for clash in clashes {
            let finding = describe(allocation, &mark.site, clash, address.get() + bytes);
            self.log.add(finding);
        }
        if label.is_some() {
            allocation.set_label(offset, bytes, label);
        }
    }
}

/// Fills what is still released in `from..to` with poison, so that a stale read has a visible value.
fn poison(allocation: &mut Allocation, from: u64, to: u64) {
    if let Some(bytes) = allocation.backing.slice_mut(from as usize, to as usize) {
        bytes.fill(POISON);
    }
}

fn missed(log: &mut Log, site: &Site, address: DevicePtr, bytes: u64, miss: Miss) -> KernelFault {
    let allocation = match miss {
        Miss::Freed { base, bytes, .. } | Miss::Beyond { base, bytes } => Some((DevicePtr::new(base), bytes)),
        Miss::Nowhere => None,
    };
    let target = Target { address, bytes, allocation, label: None };
    let access = site.clone();
    let finding = match miss {
        Miss::Freed { by, .. } => Finding::UseAfterFree { access, target, freed: (*by).clone() },
        Miss::Beyond { .. } | Miss::Nowhere => Finding::OutOfBounds { access, target },
    };
    let fault = KernelFault::new(finding.to_string());
    log.add(finding);
    fault
}

impl Allocation {
    /// The finding for memory that goes away while an access to it is not known to be over.
    pub(crate) fn in_use(&self, from: u64, to: u64, clock: &Clock, by: &Arc<Site>) -> Option<Finding> {
        let (at, with) = self.shadow.as_ref()?.in_use(from, to, clock)?;
        let clash = Clash::Race { at: at.max(from), with, other_writes: true };
        Some(describe(self, by, clash, self.base + to))
    }
}

fn describe(allocation: &Allocation, site: &Arc<Site>, clash: Clash, end: u64) -> Finding {
    let target = |at: u64| Target {
        address: DevicePtr::new(allocation.base + at),
        bytes: end - (allocation.base + at),
        allocation: Some(allocation.target()),
        label: allocation.label(at),
    };
    let access = (**site).clone();
    match clash {
        Clash::Unmapped { at } => Finding::OutOfBounds { access, target: target(at) },
        Clash::NeverWritten { at } => Finding::NeverWritten { access, target: target(at) },
        Clash::Released { at, by } => {
            Finding::UseAfterRelease { access, target: target(at), released: (*by).clone() }
        }
        Clash::Race { at, with, .. } => {
            Finding::Race { first: (*with).clone(), second: access, target: target(at) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_past_the_limit_are_counted_and_not_kept() {
        let mut log = Log::default();
        for _ in 0..Log::KEPT + 2 {
            log.add(Finding::HostMemoryGone { access: Site::host("test") });
        }
        assert_eq!((log.findings.len(), log.more), (Log::KEPT, 2));
    }
}
