//! A pure allocator of offsets: blocks inside regions, without any memory behind them.
//!
//! # How it decides
//!
//! A request gets the smallest hole that holds it, and among equal holes the one at the lowest address (region first, then offset).
//! Only when no hole fits does it get the start of the tail of a growing region, with one exception: before a request of at most 8 MiB
//! breaks a hole of 16 MiB or more, it takes from the tail what is left up to the next multiple of 32 MiB. That is the length of a
//! library's workspace, which dies inside of each recording and is asked for again in the next: once small outputs, which live on, have
//! settled in its hole, the next one goes elsewhere. Sizes are rounded up to a granule of 512 bytes.
//! Small and large requests share their regions: on recorded traces of real programs, keeping them apart gained at most 0.2% of the
//! peak and cost up to 11%.
//!
//! The decision depends on the blocks that are live and on nothing else: not on the order in which the others were freed, and not on how
//! far a region has grown, as long as it grows when [`Ranges::alloc_sparing`] asks for it. So the same operations lead to the same
//! addresses, a restored state behaves exactly like the state it was taken from, and freeing in another order changes nothing.
//!
//! # How it finds
//!
//! A side table has one slot for each block, linked in address order; the hole behind a block belongs to the block's slot. Holes are
//! kept by size class, with a two-level bitmap over the classes, and inside a class in a search tree. So allocating and freeing touch a
//! constant number of slots, and O(log n) where `n` holes share a class. An index by address, which these two do not have to keep,
//! serves [`Ranges::alloc_at`], [`Ranges::block_at`] and restoring.
//!
//! # Checkpoints
//!
//! [`Ranges::checkpoint`] names the present state. Checkpoints form a tree: each remembers only how it differs from the one before
//! it, as the blocks that appeared and the blocks that went. Temporaries that came and went in between leave no trace in it.
//! [`Ranges::restore`] walks from the present state to the wanted one over those differences, so that it costs what changed between
//! the two and not what exists. Every checkpoint stays valid until it is discarded, whatever was restored in between, and a restored
//! block has the name and the place that it had.

mod addresses;
mod audit;
mod books;
mod carve;
mod checkpoint;
mod granule;
mod history;
mod holes;
mod ids;
mod layout;
mod region;
mod request;
mod resize;
mod restore;
mod size_class;
mod slots;
mod stats;

#[cfg(test)]
mod tests;

pub use audit::Fault;
pub use books::RangeBooks;
pub use granule::Granule;
pub use ids::{BlockId, CheckpointId, RegionId};
pub use layout::{Block, Span};
pub use region::RegionKind;
pub use restore::{Restored, Survivors};
pub use stats::RangeStats;

use history::History;
use holes::Holes;
use region::Region;
use slots::Slots;
use stats::Tally;

/// The allocator. See the [module documentation](self).
///
/// ```
/// use graphgrove_pool::ranges::{RegionKind, Ranges, Survivors};
///
/// let mut ranges = Ranges::default();
/// let region = ranges.add_region(RegionKind::Growing, 1 << 20)?;
/// let weights = ranges.alloc(4096, 256)?;
/// let checkpoint = ranges.checkpoint();
///
/// ranges.free(weights.id)?;
/// let other = ranges.alloc(1024, 256)?;
/// assert_eq!(other.offset, weights.offset);
///
/// ranges.restore(checkpoint, Survivors::AsRecorded)?;
/// assert_eq!(ranges.block(weights.id), Some(weights));
/// assert_eq!(ranges.block(other.id), None);
/// # assert_eq!(region, weights.region);
/// # Ok::<(), graphgrove_pool::PoolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ranges {
    granule: Granule,
    slots: Slots,
    holes: Holes,
    regions: Vec<Region>,
    /// The growing regions, by rising name.
    growing: Vec<u16>,
    history: History,
    tally: Tally,
}

impl Ranges {
    /// An allocator without regions that counts in `granule`.
    #[must_use]
    pub fn new(granule: Granule) -> Self {
        Self {
            granule,
            slots: Slots::new(),
            holes: Holes::new(),
            regions: Vec::new(),
            growing: Vec::new(),
            history: History::new(),
            tally: Tally::default(),
        }
    }

    /// The unit of all offsets and sizes.
    #[must_use]
    pub fn granule(&self) -> Granule {
        self.granule
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Self::new(Granule::DEFAULT)
    }
}
