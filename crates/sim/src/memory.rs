//! Memory of the simulated device.

use std::sync::Arc;

use graphgrove_device::{
    Call, DeviceError, DeviceId, DevicePtr, Memory, MemoryInfo, NodeId, Problem, ReservedRange, Result,
    SegmentMemory, StreamId,
};

use crate::access::Accessor;
use crate::clock::Lane;
use crate::device::{Shared, SimDevice, is_in_kernel};
use crate::finding::Site;
use crate::graph_memory::GraphMemory;
use crate::host::SimHostBuffer;
use crate::op::Op;
use crate::run::Locked;
use crate::scope::KernelFault;
use crate::shadow::Content;
use crate::space::Kind;
use crate::state::{Item, State};
use crate::stream::{NULL, SimStream};

/// A segment of the simulated device.
#[derive(Debug)]
pub struct SimSegment {
    device: Arc<Shared>,
    base: DevicePtr,
    bytes: u64,
    owned: bool,
}

impl SegmentMemory for SimSegment {
    fn device(&self) -> DeviceId {
        self.device.id
    }

    fn base(&self) -> DevicePtr {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SimSegment {
    fn drop(&mut self) {
        if self.owned {
            let (base, bytes) = (self.base.get(), self.bytes);
            self.device.destroy(Call::Free, move |state| {
                state.remove_allocation(base, Call::Free.name());
                state.space.discharge(bytes);
            });
        }
    }
}

/// A reserved range of the simulated device.
#[derive(Debug)]
pub struct SimReservation {
    device: Arc<Shared>,
    base: DevicePtr,
    bytes: u64,
    mapped: u64,
}

impl ReservedRange for SimReservation {
    fn device(&self) -> DeviceId {
        self.device.id
    }

    fn base(&self) -> DevicePtr {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn mapped_bytes(&self) -> u64 {
        self.mapped
    }
}

impl Drop for SimReservation {
    fn drop(&mut self) {
        let (base, mapped) = (self.base.get(), self.mapped);
        self.device.destroy(Call::Unreserve, move |state| {
            state.remove_allocation(base, Call::Unreserve.name());
            state.space.discharge(mapped);
        });
    }
}

impl State {
    /// Takes memory from the device, or says how much there is.
    pub(crate) fn charge(&mut self, call: Call, bytes: u64) -> Result<()> {
        if self.space.charge(bytes) {
            return Ok(());
        }
        Err(DeviceError::OutOfMemory { call, bytes, free: self.space.free(), total: self.space.total() })
    }

    fn allocate(&mut self, call: Call, bytes: u64, kind: Kind) -> Result<DevicePtr> {
        if bytes == 0 {
            return Err(DeviceError::invalid(call, Problem::ZeroBytes));
        }
        self.charge(call, bytes)?;
        match self.place(bytes, kind, 1) {
            Some(base) => Ok(base),
            None => {
                self.space.discharge(bytes);
                let (free, total) = (self.space.free(), self.space.total());
                Err(DeviceError::OutOfMemory { call, bytes, free, total })
            }
        }
    }

    /// Gives addresses out, which are new whatever was there before.
    fn place(&mut self, bytes: u64, kind: Kind, alignment: u64) -> Option<DevicePtr> {
        let oldest = self.oldest_ticket();
        let base = self.space.place(bytes, kind, alignment, oldest).map(DevicePtr::new)?;
        self.ordered.remove(&base);
        Some(base)
    }

    /// Takes the addresses of a graph's memory back, unless a launch has left it allocated: then it is memory like any other that
    /// is freed in stream order.
    fn release_graph_addresses(&mut self, base: u64) {
        let address = DevicePtr::new(base);
        if self.ordered.get(&address) == Some(&true) {
            if let Some(allocation) = self.space.get_mut(base) {
                allocation.kind = Kind::StreamOrdered;
                let bytes = allocation.bytes;
                self.space.charge_anyway(bytes);
            }
            return;
        }
        self.ordered.remove(&address);
        let site = Arc::new(Site::host(Call::DestroyGraph.name()));
        self.space.remove(base, site, self.next_ticket);
    }

    /// Checks that a range is live device memory, as of everything that the host has enqueued. `stream` is where work is to use it:
    /// work in a capture may use what the capture allocates.
    pub(crate) fn check_range(
        &mut self,
        call: Call,
        stream: Option<StreamId>,
        address: DevicePtr,
        bytes: u64,
    ) -> Result<()> {
        if bytes == 0 {
            return Err(DeviceError::invalid(call, Problem::ZeroBytes));
        }
        if address.is_null() {
            return Err(DeviceError::invalid(call, Problem::NullAddress));
        }
        let found = self
            .space
            .find(address, bytes)
            .ok()
            .filter(|(allocation, offset)| allocation.is_backed(*offset, bytes));
        let found = found.map(|(allocation, _)| (DevicePtr::new(allocation.base), allocation.kind));
        let in_capture = stream.is_some_and(|stream| self.capture_of(stream).is_some());
        let live = found.is_some_and(|(base, kind)| match kind {
            Kind::Segment | Kind::Reservation => true,
            Kind::StreamOrdered => self.ordered.get(&base) == Some(&true),
            Kind::Graph => in_capture || self.ordered.get(&base) == Some(&true),
        });
        let problem = Problem::NotAllocated { address, bytes };
        if live { Ok(()) } else { Err(DeviceError::invalid(call, problem)) }
    }

    /// Checks that an address can be freed in stream order now.
    fn check_freeable(&self, stream: StreamId, address: DevicePtr) -> Result<()> {
        let membership = self.streams.get(&stream).and_then(|stream| stream.capture.as_ref());
        let freeable = match membership.and_then(|membership| self.captures.get(&membership.capture)) {
            None => self.ordered.get(&address) == Some(&true),
            Some(capture) => capture.nodes.iter().fold(false, |alive, node| match *node.op {
                Op::Allocate { address: at, .. } if at == address => true,
                Op::Free { address: at } if at == address => false,
                _ => alive,
            }),
        };
        let problem = Problem::NotAllocated { address, bytes: 0 };
        if freeable { Ok(()) } else { Err(DeviceError::invalid(Call::FreeAsync, problem)) }
    }
}

impl Locked<'_> {
    /// Runs a blocking access of the host: behind the null stream, at once.
    fn host_transfer(
        &mut self,
        call: Call,
        body: impl FnOnce(&mut Accessor<'_>) -> Result<(), KernelFault>,
    ) -> Result<()> {
        self.refuse_implicit(call)?;
        self.order_null();
        self.finish_stream(NULL);
        if let Some(cause) = &self.fault {
            return Err(DeviceError::Fault { cause: cause.clone() });
        }
        let (clock, mark) = self.host_access(call.name());
        let state = &mut **self;
        let mut accessor = Accessor {
            space: &mut state.space,
            log: &mut state.log,
            clock: &clock,
            lane: Lane::HOST,
            count: mark.count,
            name: Arc::clone(&mark.site.name),
            stream: None,
            node: None,
        };
        body(&mut accessor).map_err(|fault| DeviceError::Fault { cause: fault.cause().to_owned() })
    }
}

impl Shared {
    /// Takes the addresses of a graph's memory back when no capture is open. Nobody called for it, so it is not counted.
    pub(crate) fn release_addresses(self: &Arc<Self>, base: u64) {
        let shared = Arc::clone(self);
        let release = move || shared.lock().release_graph_addresses(base);
        if is_in_kernel() {
            self.late.lock().push(Box::new(release));
        } else {
            self.deferred.run(release);
        }
    }
}

impl SimDevice {
    fn check_piece(&self, range: &SimReservation, call: Call, offset: u64, bytes: u64) -> Result<()> {
        self.shared.check_owner(call, range.device.id)?;
        let granularity = self.shared.config.granularity;
        if bytes == 0 {
            return Err(DeviceError::invalid(call, Problem::ZeroBytes));
        }
        if let Some(value) = [offset, bytes].into_iter().find(|value| value % granularity != 0) {
            return Err(DeviceError::invalid(call, Problem::Granularity { value, granularity }));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > range.bytes) {
            return Err(DeviceError::invalid(
                call,
                Problem::OutOfRange { offset, bytes, length: range.bytes },
            ));
        }
        Ok(())
    }
}

impl Memory for SimDevice {
    type Segment = SimSegment;
    type Reservation = SimReservation;
    type HostBuffer = SimHostBuffer;

    fn allocate(&self, bytes: u64) -> Result<SimSegment> {
        let mut state = self.shared.enter(Call::Allocate)?;
        state.refuse_unsafe(Call::Allocate)?;
        let base = state.allocate(Call::Allocate, bytes, Kind::Segment)?;
        drop(state);
        Ok(SimSegment { device: Arc::clone(&self.shared), base, bytes, owned: true })
    }

    fn adopt_segment(&self, base: DevicePtr, bytes: u64) -> Result<SimSegment> {
        let mut state = self.shared.enter(Call::AdoptSegment)?;
        state.check_range(Call::AdoptSegment, None, base, bytes)?;
        drop(state);
        Ok(SimSegment { device: Arc::clone(&self.shared), base, bytes, owned: false })
    }

    fn granularity(&self) -> u64 {
        self.shared.config.granularity
    }

    fn reserve(&self, bytes: u64) -> Result<SimReservation> {
        const CALL: Call = Call::Reserve;
        let mut state = self.shared.enter(CALL)?;
        if bytes == 0 {
            return Err(DeviceError::invalid(CALL, Problem::ZeroBytes));
        }
        let (free, total) = (state.space.free(), state.space.total());
        let exhausted = DeviceError::OutOfMemory { call: CALL, bytes, free, total };
        let bytes =
            bytes.checked_next_multiple_of(self.shared.config.granularity).ok_or(exhausted.clone())?;
        let base = state.place(bytes, Kind::Reservation, self.shared.config.granularity).ok_or(exhausted)?;
        drop(state);
        Ok(SimReservation { device: Arc::clone(&self.shared), base, bytes, mapped: 0 })
    }

    fn map(&self, range: &mut SimReservation, offset: u64, bytes: u64) -> Result<()> {
        let mut state = self.shared.enter(Call::Map)?;
        self.check_piece(range, Call::Map, offset, bytes)?;
        let Some(allocation) = state.space.get_mut(range.base.get()) else {
            return Err(DeviceError::invalid(Call::Map, Problem::UnknownHandle));
        };
        let overlaps = allocation
            .mapped
            .range(..offset + bytes)
            .next_back()
            .is_some_and(|(at, length)| at + length > offset);
        if overlaps {
            return Err(DeviceError::invalid(Call::Map, Problem::AlreadyMapped { offset, bytes }));
        }
        state.charge(Call::Map, bytes)?;
        if let Some(allocation) = state.space.get_mut(range.base.get()) {
            allocation.mapped.insert(offset, bytes);
            if let Some(shadow) = &mut allocation.shadow {
                shadow.reset(offset, offset + bytes, Content::Undefined);
            }
        }
        range.mapped += bytes;
        Ok(())
    }

    fn unmap(&self, range: &mut SimReservation, offset: u64, bytes: u64) -> Result<()> {
        let mut state = self.shared.enter(Call::Unmap)?;
        self.check_piece(range, Call::Unmap, offset, bytes)?;
        let host_clock = state.host_clock.clone();
        let Some(allocation) = state.space.get_mut(range.base.get()) else {
            return Err(DeviceError::invalid(Call::Unmap, Problem::UnknownHandle));
        };
        let end = offset + bytes;
        let pieces: Vec<u64> = allocation.mapped.range(offset..end).map(|(&at, _)| at).collect();
        let covered: u64 = pieces.iter().filter_map(|at| allocation.mapped.get(at)).sum();
        if covered != bytes || !allocation.is_backed(offset, bytes) {
            return Err(DeviceError::invalid(Call::Unmap, Problem::NotMapped { offset, bytes }));
        }
        for piece in pieces {
            allocation.mapped.remove(&piece);
        }
        let site = Arc::new(Site::host(Call::Unmap.name()));
        let finding = allocation.in_use(offset, end, &host_clock, &site);
        if let Some(shadow) = &mut allocation.shadow {
            shadow.reset(offset, end, Content::Unmapped);
        }
        finding.into_iter().for_each(|finding| state.log.add(finding));
        state.space.discharge(bytes);
        range.mapped -= bytes;
        Ok(())
    }

    fn allocate_async(&self, stream: &SimStream, bytes: u64) -> Result<DevicePtr> {
        const CALL: Call = Call::AllocateAsync;
        let mut state = self.shared.enter(CALL)?;
        let id = self.check_stream(&state, CALL, stream)?;
        if state.capturing(CALL, id)?.is_none() {
            state.refuse_unsafe(CALL)?;
            if bytes > state.space.free() {
                // What has been freed in stream order comes back before the device runs out.
                state.finish_all();
            }
            let address = state.allocate(CALL, bytes, Kind::StreamOrdered)?;
            state.ordered.insert(address, true);
            return Ok(address);
        }
        if bytes == 0 {
            return Err(DeviceError::invalid(CALL, Problem::ZeroBytes));
        }
        let (free, total) = (state.space.free(), state.space.total());
        let exhausted = DeviceError::OutOfMemory { call: CALL, bytes, free, total };
        // The driver reserves addresses when the node is made and backs them when the graph is made ready.
        let address = state.place(bytes, Kind::Graph, 1).ok_or(exhausted)?;
        let _memory = Arc::new(GraphMemory { device: Arc::downgrade(&self.shared), base: address.get() });
        state.add_node(id, Op::Allocate { address, bytes, _memory });
        Ok(address)
    }

    fn free_async(&self, stream: &SimStream, address: DevicePtr) -> Result<()> {
        const CALL: Call = Call::FreeAsync;
        let mut state = self.shared.enter(CALL)?;
        let id = self.check_stream(&state, CALL, stream)?;
        if state.capturing(CALL, id)?.is_some() {
            state.check_freeable(id, address)?;
            let _: Option<NodeId> = state.add_node(id, Op::Free { address });
            return Ok(());
        }
        state.refuse_unsafe(CALL)?;
        state.check_freeable(id, address)?;
        state.ordered.insert(address, false);
        state.enqueue(id, Item::Op(Op::Free { address }));
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let state = self.shared.enter(Call::MemoryInfo)?;
        Ok(MemoryInfo { free: state.space.free(), total: state.space.total() })
    }

    fn host_buffer(&self, bytes: usize) -> Result<SimHostBuffer> {
        let mut state = self.shared.enter(Call::AllocateHost)?;
        state.refuse_unsafe(Call::AllocateHost)?;
        if bytes == 0 {
            return Err(DeviceError::invalid(Call::AllocateHost, Problem::ZeroBytes));
        }
        let (free, total) = (0, bytes as u64);
        drop(state);
        let exhausted =
            DeviceError::OutOfMemory { call: Call::AllocateHost, bytes: bytes as u64, free, total };
        SimHostBuffer::new(&self.shared, bytes).ok_or(exhausted)
    }

    fn write(&self, to: DevicePtr, data: &[u8]) -> Result<()> {
        let mut state = self.shared.enter(Call::Write)?;
        state.check_range(Call::Write, None, to, data.len() as u64)?;
        state.host_transfer(Call::Write, |accessor| accessor.store(to, data))
    }

    fn read(&self, from: DevicePtr, data: &mut [u8]) -> Result<()> {
        let mut state = self.shared.enter(Call::Read)?;
        state.check_range(Call::Read, None, from, data.len() as u64)?;
        state.host_transfer(Call::Read, |accessor| accessor.load(from, data))
    }
}
