//! The simulated address space: what is allocated where, and what used to be.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use graphgrove_device::DevicePtr;

use crate::backing::Backing;
use crate::finding::Site;
use crate::shadow::{Content, Shadow};

/// What an allocation is, and so how it may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A segment: freed by its handle.
    Segment,
    /// Reserved addresses with pieces mapped: released by its handle.
    Reservation,
    /// Allocated in stream order: freed in stream order.
    StreamOrdered,
    /// Owned by a graph's memory node. Its addresses stay reserved; whether it has memory is the shadow's business.
    Graph,
}

/// One contiguous range of addresses.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) backing: Backing,
    pub(crate) shadow: Option<Shadow>,
    /// An (offset -> length) pair means that one mapping backs that piece of a reservation.
    pub(crate) mapped: BTreeMap<u64, u64>,
    /// An (offset -> length and label) pair means that this piece was handed out under the label.
    labels: BTreeMap<u64, (u64, &'static str)>,
}

impl Allocation {
    pub(crate) fn target(&self) -> (DevicePtr, u64) {
        (DevicePtr::new(self.base), self.bytes)
    }

    pub(crate) fn set_label(&mut self, offset: u64, bytes: u64, label: Option<&'static str>) {
        let end = offset + bytes;
        let over: Vec<u64> =
            self.labels.range(..end).filter(|(at, (len, _))| *at + len > offset).map(|(&at, _)| at).collect();
        for at in over {
            self.labels.remove(&at);
        }
        if let Some(label) = label {
            self.labels.insert(offset, (bytes, label));
        }
    }

    pub(crate) fn label(&self, offset: u64) -> Option<&'static str> {
        let (&at, &(bytes, label)) = self.labels.range(..=offset).next_back()?;
        (offset < at + bytes).then_some(label)
    }

    /// Whether `offset..offset+bytes` has memory behind it.
    pub(crate) fn is_backed(&self, offset: u64, bytes: u64) -> bool {
        if self.kind != Kind::Reservation {
            return true;
        }
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            match self.mapped.range(..=at).next_back() {
                Some((&start, &length)) if at < start + length => at = start + length,
                _ => return false,
            }
        }
        true
    }
}

/// Why a range is not inside one live allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Miss {
    /// It starts in an allocation that was freed.
    Freed { base: u64, bytes: u64, by: Arc<Site> },
    /// It starts in a live allocation and runs past its end.
    Beyond { base: u64, bytes: u64 },
    /// Nothing is or was there.
    Nowhere,
}

/// Where an allocation was that has been freed.
#[derive(Debug)]
struct Grave {
    bytes: u64,
    by: Arc<Site>,
    /// The ticket of the last work that had been enqueued when it was freed.
    ticket: u64,
}

/// All allocations of a device.
#[derive(Debug)]
pub(crate) struct Space {
    live: BTreeMap<u64, Allocation>,
    /// A (base -> grave) pair means that an allocation there was freed and nothing has been put over it since.
    graves: BTreeMap<u64, Grave>,
    used: u64,
    total: u64,
    checked: bool,
}

impl Space {
    /// Where the first allocation goes; low enough numbers to read, too high to be taken for a size.
    const BASE: u64 = 0x10_0000_0000;
    /// All allocations start on a multiple of this many bytes, as they do on CUDA.
    pub(crate) const ALIGNMENT: u64 = 512;
    /// Addresses left out between two allocations, so that an access past the end of one does not land in another.
    const GUARD: u64 = 4096;

    pub(crate) fn new(total: u64, checked: bool) -> Self {
        Self { live: BTreeMap::new(), graves: BTreeMap::new(), used: 0, total, checked }
    }

    pub(crate) fn free(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Takes `bytes` of the device's memory into use, without an address. Returns whether there was enough.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// As [`charge`](Space::charge) for memory that is in use already, whether it fits or not.
    pub(crate) fn charge_anyway(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Puts an allocation at the lowest address that has room and is a multiple of `alignment`. The memory has to be charged by
    /// the caller.
    ///
    /// `oldest` is the ticket of the oldest work that has not run. The place of an allocation that such work may still use is left
    /// alone, so that its use after free is not taken for a use of what came after.
    pub(crate) fn place(
        &mut self,
        bytes: u64,
        kind: Kind,
        alignment: u64,
        oldest: Option<u64>,
    ) -> Option<u64> {
        let room = bytes.checked_next_multiple_of(Self::ALIGNMENT)?.checked_add(Self::GUARD)?;
        let alignment = alignment.max(Self::ALIGNMENT);
        let feared =
            self.graves.iter().filter(|(_, grave)| oldest.is_some_and(|oldest| oldest <= grave.ticket));
        let live = self.live.iter().map(|(&start, allocation)| (start, allocation.bytes));
        let mut taken: Vec<(u64, u64)> =
            live.chain(feared.map(|(&start, grave)| (start, grave.bytes))).collect();
        taken.sort_unstable();
        let mut base = Self::BASE.checked_next_multiple_of(alignment)?;
        for (start, length) in taken {
            if start >= base && start - base >= room {
                break;
            }
            let end = (start + length).next_multiple_of(Self::ALIGNMENT) + Self::GUARD;
            base = base.max(end.checked_next_multiple_of(alignment)?);
        }
        base.checked_add(room)?;
        let content = match kind {
            Kind::Reservation | Kind::Graph => Content::Unmapped,
            Kind::Segment | Kind::StreamOrdered => Content::Undefined,
        };
        self.graves.retain(|&start, grave| start + grave.bytes <= base || start >= base + bytes);
        self.live.insert(
            base,
            Allocation {
                base,
                bytes,
                kind,
                backing: Backing::new(usize::try_from(bytes).ok()?),
                shadow: self.checked.then(|| Shadow::new(bytes, content)),
                mapped: BTreeMap::new(),
                labels: BTreeMap::new(),
            },
        );
        Some(base)
    }

    /// Takes an allocation away, which leaves a grave. `ticket` is that of the last work enqueued so far.
    pub(crate) fn remove(&mut self, base: u64, by: Arc<Site>, ticket: u64) -> Option<Allocation> {
        let allocation = self.live.remove(&base)?;
        self.graves.insert(base, Grave { bytes: allocation.bytes, by, ticket });
        Some(allocation)
    }

    /// Forgets who accessed what, once everything is known to be over.
    pub(crate) fn forget_accesses(&mut self) {
        for shadow in self.live.values_mut().filter_map(|allocation| allocation.shadow.as_mut()) {
            shadow.forget_accesses();
        }
    }

    pub(crate) fn get_mut(&mut self, base: u64) -> Option<&mut Allocation> {
        self.live.get_mut(&base)
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.live.values().filter(|allocation| allocation.kind == kind).count()
    }

    /// The live allocation that holds all of `address..address+bytes`, and the offset of the range in it.
    pub(crate) fn find(&mut self, address: DevicePtr, bytes: u64) -> Result<(&mut Allocation, u64), Miss> {
        let address = address.get();
        let before = (Bound::Unbounded, Bound::Included(address));
        let Some((_, allocation)) =
            self.live.range_mut::<u64, _>(before).next_back().filter(|(base, a)| address - *base < a.bytes)
        else {
            let before = self.graves.range(..=address).next_back();
            let grave = before.filter(|(base, grave)| address - *base < grave.bytes);
            return Err(grave.map_or(Miss::Nowhere, |(&base, grave)| Miss::Freed {
                base,
                bytes: grave.bytes,
                by: Arc::clone(&grave.by),
            }));
        };
        let offset = address - allocation.base;
        if allocation.bytes - offset < bytes {
            return Err(Miss::Beyond { base: allocation.base, bytes: allocation.bytes });
        }
        Ok((allocation, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        Space::new(1 << 20, true)
    }

    fn place(space: &mut Space, bytes: u64, kind: Kind) -> u64 {
        space.place(bytes, kind, 1, None).unwrap()
    }

    fn site() -> Arc<Site> {
        Arc::new(Site::host("test"))
    }

    #[test]
    fn an_address_comes_back_after_a_free() {
        let mut space = space();
        let first = place(&mut space, 1000, Kind::Segment);
        let second = place(&mut space, 1000, Kind::Segment);
        assert!(second - first >= 1000 + Space::GUARD);
        space.remove(first, site(), 7);
        assert_eq!(place(&mut space, 900, Kind::Segment), first);
    }

    #[test]
    fn an_address_that_waiting_work_may_use_does_not_come_back() {
        let mut space = space();
        let base = place(&mut space, 1000, Kind::Segment);
        space.remove(base, site(), 7);
        assert_ne!(space.place(1000, Kind::Segment, 1, Some(7)), Some(base));
        assert_eq!(space.place(1000, Kind::Segment, 1, Some(8)), Some(base));
    }

    #[test]
    fn an_allocation_is_aligned_as_asked() {
        let mut space = space();
        place(&mut space, 100, Kind::Segment);
        let base = space.place(100, Kind::Reservation, 1 << 21, None).unwrap();
        assert_eq!(base % (1 << 21), 0);
        assert!(place(&mut space, 100, Kind::Segment) < base);
    }

    #[test]
    fn a_range_is_found_only_if_one_allocation_holds_all_of_it() {
        let mut space = space();
        let base = place(&mut space, 1000, Kind::Segment);
        assert_eq!(space.find(DevicePtr::new(base + 8), 992).unwrap().1, 8);
        let miss = space.find(DevicePtr::new(base + 8), 993).unwrap_err();
        assert_eq!(miss, Miss::Beyond { base, bytes: 1000 });
        assert_eq!(space.find(DevicePtr::new(base + 1000), 1).unwrap_err(), Miss::Nowhere);
        space.remove(base, site(), 7);
        let freed = Miss::Freed { base, bytes: 1000, by: site() };
        assert_eq!(space.find(DevicePtr::new(base + 999), 1).unwrap_err(), freed);
    }

    #[test]
    fn memory_is_charged_up_to_the_total() {
        let mut space = Space::new(100, false);
        assert!(space.charge(60) && !space.charge(41) && space.charge(40));
        space.discharge(10);
        assert_eq!(space.free(), 10);
    }

    #[test]
    fn a_reservation_is_backed_where_pieces_are_mapped() {
        let mut space = space();
        let base = place(&mut space, 4096, Kind::Reservation);
        let allocation = space.get_mut(base).unwrap();
        allocation.mapped.insert(0, 1024);
        allocation.mapped.insert(1024, 1024);
        assert!(allocation.is_backed(512, 1536));
        assert!(!allocation.is_backed(512, 1537));
        assert!(!allocation.is_backed(3000, 1));
    }

    #[test]
    fn a_label_covers_its_piece_until_another_takes_over() {
        let mut space = space();
        let base = place(&mut space, 4096, Kind::Segment);
        let allocation = space.get_mut(base).unwrap();
        allocation.set_label(0, 512, Some("a"));
        allocation.set_label(512, 512, Some("b"));
        assert_eq!(
            (allocation.label(511), allocation.label(512), allocation.label(1024)),
            (Some("a"), Some("b"), None)
        );
        allocation.set_label(256, 512, None);
        assert_eq!((allocation.label(0), allocation.label(800)), (None, None));
    }
}
