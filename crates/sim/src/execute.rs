//! What each piece of work does when its turn comes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use graphgrove_device::{Annotation, DevicePtr, GatherRow, NodeId, StreamId};

use crate::access::{Accessor, Direction};
use crate::clock::{Clock, Lane};
use crate::finding::{Finding, Site, Target};
use crate::host::HostRef;
use crate::host_call::RunningCall;
use crate::op::Op;
use crate::scope::{KernelFault, KernelScope};
use crate::shadow::{Clash, Content, Mark};
use crate::space::Kind;
use crate::state::State;

impl State {
    /// Runs one piece of work. A fault poisons the device. A host function is not called but returned.
    pub(crate) fn execute(
        &mut self,
        op: &Op,
        clock: &Clock,
        lane: Lane,
        count: u32,
        stream: StreamId,
        node: Option<NodeId>,
    ) -> Option<RunningCall> {
        let mut accessor = Accessor {
            space: &mut self.space,
            log: &mut self.log,
            clock,
            lane,
            count,
            name: op.name(),
            stream: Some(stream),
            node,
        };
        let outcome = match op {
            Op::Kernel { kernel, dims, args } => {
                let scope = KernelScope::new(*dims, args, accessor);
                // A panic is the closest thing to a device-side trap that a closure has; it must not reach the thread that
                // happens to wait for the work.
                let outcome =
                    crate::device::in_kernel(|| catch_unwind(AssertUnwindSafe(|| (kernel.body)(&scope))));
                match outcome {
                    Ok(Ok(())) => scope.misuse().map_or(Ok(()), Err),
                    Ok(Err(fault)) => Err(fault),
                    Err(_) => Err(KernelFault::new(format!("{} panicked", kernel.name))),
                }
            }
            Op::HostCall(call) => {
                let (clock, mark) = (clock.clone(), accessor.mark());
                return Some(RunningCall { call: Arc::clone(call), stream, clock, mark });
            }
            Op::Copy { to, from, bytes } => {
                accessor.check_apart(*to, *bytes, [(*from, *bytes)].into_iter());
                accessor.copy(*to, *from, *bytes)
            }
            Op::Fill { to, value, bytes } => accessor.fill(*to, *value, *bytes),
            Op::Upload { to, from, offset, bytes } => accessor.upload(*to, from, *offset, *bytes),
            Op::Download { to, offset, from, bytes } => accessor.download(to, *offset, *from, *bytes),
            Op::Gather { rows, sources } => accessor.gather(rows, sources),
            Op::Annotate(Annotation::Acquired { at, bytes, label }) => {
                accessor.set_content(*at, *bytes, Some(label));
                Ok(())
            }
            Op::Annotate(Annotation::Released { at, bytes }) => {
                accessor.set_content(*at, *bytes, None);
                Ok(())
            }
            Op::Allocate { address, bytes, .. } => {
                self.make_graph_memory(*address, *bytes);
                Ok(())
            }
            Op::Free { address } => {
                self.free_in_order(*address);
                Ok(())
            }
        };
        if let Err(fault) = outcome {
            self.poison(fault.cause().to_owned());
        }
        None
    }

    /// Puts memory behind the addresses of a graph's allocation node.
    fn make_graph_memory(&mut self, address: DevicePtr, bytes: u64) {
        if let Some(allocation) = self.space.get_mut(address.get())
            && let Some(shadow) = &mut allocation.shadow
        {
            shadow.reset(0, bytes, Content::Undefined);
        }
    }

    /// Frees what was allocated in stream order, by a graph or outside of one.
    pub(crate) fn free_in_order(&mut self, address: DevicePtr) {
        let base = address.get();
        match self.space.get_mut(base).map(|allocation| (allocation.kind, allocation.bytes)) {
            Some((Kind::StreamOrdered, bytes)) => {
                self.space.remove(base, Arc::new(Site::host("free on stream")), self.next_ticket);
                self.space.discharge(bytes);
                self.ordered.remove(&address);
            }
            Some((Kind::Graph, bytes)) => {
                if let Some(shadow) =
                    self.space.get_mut(base).and_then(|allocation| allocation.shadow.as_mut())
                {
                    shadow.reset(0, bytes, Content::Unmapped);
                }
            }
            Some(_) | None => {}
        }
    }
}

impl Accessor<'_> {
    pub(crate) fn copy(&mut self, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<(), KernelFault> {
        let source = self.reach(None, from, bytes, Direction::Read)?;
        let target = self.reach(None, to, bytes, Direction::Write)?;
        // SAFETY: `reach` has checked that both ranges lie in live allocations; overlapping ranges are allowed by `copy`.
        unsafe { source.copy_to(target, bytes as usize) };
        Ok(())
    }

    pub(crate) fn fill(&mut self, to: DevicePtr, value: u8, bytes: u64) -> Result<(), KernelFault> {
        let target = self.reach(None, to, bytes, Direction::Write)?;
        // SAFETY: `reach` has checked that the range lies in a live allocation.
        unsafe { target.write_bytes(value, bytes as usize) };
        Ok(())
    }

    pub(crate) fn upload(
        &mut self,
        to: DevicePtr,
        from: &HostRef,
        offset: usize,
        bytes: usize,
    ) -> Result<(), KernelFault> {
        self.check_alive(from);
        let mut data = vec![0; bytes];
        let mark = self.mark();
        let clashes = from.load(offset, &mut data, self.clock, &mark);
        self.host_races(clashes, &mark, bytes);
        self.store(to, &data)
    }

    pub(crate) fn download(
        &mut self,
        to: &HostRef,
        offset: usize,
        from: DevicePtr,
        bytes: usize,
    ) -> Result<(), KernelFault> {
        self.check_alive(to);
        let mut data = vec![0; bytes];
        self.load(from, &mut data)?;
        let mark = self.mark();
        let clashes = to.store(offset, &data, self.clock, &mark);
        self.host_races(clashes, &mark, bytes);
        Ok(())
    }

    /// Writes host bytes to the device.
    pub(crate) fn store(&mut self, to: DevicePtr, data: &[u8]) -> Result<(), KernelFault> {
        let target = self.reach(None, to, data.len() as u64, Direction::Write)?;
        // SAFETY: `reach` has checked that the range lies in a live allocation, which host bytes never overlap.
        unsafe { target.as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    /// Reads device bytes to the host.
    pub(crate) fn load(&mut self, from: DevicePtr, data: &mut [u8]) -> Result<(), KernelFault> {
        let source = self.reach(None, from, data.len() as u64, Direction::Read)?;
        // SAFETY: as in `store`.
        unsafe { source.as_ptr().copy_to_nonoverlapping(data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// Copies each row, after a look at whether one destroys what another needs.
    fn gather(&mut self, rows: &[GatherRow], sources: &[DevicePtr]) -> Result<(), KernelFault> {
        let pairs = || rows.iter().zip(sources).filter(|(row, _)| row.bytes > 0);
        for (place, (row, _)) in pairs().enumerate() {
            let others = pairs()
                .enumerate()
                .filter(|(other, _)| *other != place)
                .map(|(_, (other, _))| (other.to, other.bytes));
            let reads = pairs().map(|(other, &from)| (from, other.bytes));
            self.check_apart(row.to, row.bytes, others.chain(reads));
        }
        pairs().try_for_each(|(row, &from)| self.copy(row.to, from, row.bytes))
    }

    /// Reports a destination that overlaps another range of the same work.
    fn check_apart(&mut self, to: DevicePtr, bytes: u64, mut others: impl Iterator<Item = (DevicePtr, u64)>) {
        let overlaps =
            |(at, length): (DevicePtr, u64)| to.get() < at.get() + length && at.get() < to.get() + bytes;
        if others.any(overlaps) {
            let target = Target { address: to, bytes, allocation: None, label: None };
            self.log.add(Finding::Overlap { access: self.site(None), target });
        }
    }

    fn mark(&self) -> Mark {
        Mark { lane: self.lane, count: self.count, site: Arc::new(self.site(None)) }
    }

    fn check_alive(&mut self, buffer: &HostRef) {
        if !buffer.is_alive() {
            let access = self.site(None);
            self.log.add(Finding::HostMemoryGone { access });
        }
    }

    fn host_races(&mut self, clashes: Vec<Clash>, mark: &Mark, bytes: usize) {
        for clash in clashes {
            if let Clash::Race { with, .. } = clash {
                self.log.add(Finding::host_race(&with, &mark.site, bytes));
            }
        }
    }
}
