//! Who holds the memory, and why it was not free.

use graphgrove_device::{DevicePtr, StreamId};

use crate::ranges::BlockId;

use super::owner::Owner;

/// One block that is not free, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The block.
    pub id: BlockId,
    /// Its address.
    pub at: DevicePtr,
    /// Its length in bytes, rounded to granules.
    pub bytes: u64,
    /// Bytes that were asked for.
    pub asked: u64,
    /// What it is for.
    pub owner: Owner,
    /// Its name.
    pub label: &'static str,
    /// Whether it is live, or dead and still in use.
    pub state: HoldingState,
}

/// Whether a block that is not free is live, or dead and still in use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldingState {
    /// Somebody has so many claims to it: handles, or names taken out of handles. None for a block that a restore has brought
    /// back.
    Live {
        /// How many claims.
        claims: u32,
    },
    /// It died, and these streams were given work with it that the pool's stream is not ordered behind.
    Awaits {
        /// The streams.
        streams: Vec<StreamId>,
    },
}

/// All blocks of one owner and label together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// What the blocks are for.
    pub owner: Owner,
    /// Their name.
    pub label: &'static str,
    /// How many there are.
    pub blocks: u32,
    /// Their bytes together, rounded to granules.
    pub bytes: u64,
}

/// Sums blocks up by owner and label, most bytes first.
pub(super) fn sum_up(holdings: &[Holding]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = Vec::new();
    for &Holding { owner, label, bytes, .. } in holdings {
        match holders.iter_mut().find(|holder| holder.owner == owner && holder.label == label) {
            Some(holder) => {
                holder.blocks += 1;
                holder.bytes += bytes;
            }
            None => holders.push(Holder { owner, label, blocks: 1, bytes }),
        }
    }
    holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.label.cmp(b.label)).then(a.owner.cmp(&b.owner)));
    holders
}

/// Why a place in the pool is not handed out again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// A block lies there, live or dead and still in use.
    Held(Holding),
    /// It is free, in a run of so many bytes: a request that did not get it was larger, or was served better elsewhere.
    Free {
        /// Bytes of the run.
        run: u64,
    },
    /// It is no memory of this pool.
    Elsewhere,
}

/// Why the memory that the pool had was not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Live blocks: even all free bytes in one run would not have done.
    Live,
    /// Streams: together with what dead blocks still hold for other streams there were enough bytes.
    Streams,
    /// Fragmentation: there were enough free bytes, and no run of them was long enough.
    Fragmentation,
}

/// One time that the pool had to grow, or could not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes that were asked for.
    pub asked: u64,
    /// By whom.
    pub owner: Owner,
    /// The name of the block.
    pub label: &'static str,
    /// Bytes that the pool had from the device.
    pub reserved: u64,
    /// Free bytes.
    pub free: u64,
    /// The longest run of them.
    pub largest_free: u64,
    /// Bytes of dead blocks that other streams were still using.
    pub awaited: u64,
}

impl Shortage {
    /// Why it came to this.
    #[must_use]
    pub fn cause(&self) -> Cause {
        if self.free >= self.asked {
            Cause::Fragmentation
        } else if self.free + self.awaited >= self.asked {
            Cause::Streams
        } else {
            Cause::Live
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_blamed_on_the_nearest_thing_that_would_have_helped() {
        let shortage = |free, awaited| Shortage {
            asked: 100,
            owner: Owner::Output,
            label: "x",
            reserved: 1000,
            free,
            largest_free: 10,
            awaited,
        };
        assert_eq!(shortage(100, 0).cause(), Cause::Fragmentation);
        assert_eq!(shortage(99, 1).cause(), Cause::Streams);
        assert_eq!(shortage(99, 0).cause(), Cause::Live);
    }
}
