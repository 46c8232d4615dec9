//! Expectations of what is dead, 64 slots at a time.

use crate::{Slab, SlotIndex};

/// The live bits of a path's slots, by the place of a slab on the path.
pub trait LiveWords {
    /// How many slabs the path has.
    fn places(&self) -> u32;

    /// How many liveness words the slab at a place has.
    fn words(&self, place: u32) -> u32;

    /// The live bits of 64 slots; what is not there is dead.
    fn live_word(&self, place: u32, word: u32) -> u64;

    /// The slots, as bits, that own blocks at all: only their deaths can be expected.
    fn own_word(&self, place: u32, word: u32) -> u64;
}

macro_rules! live_words {
    ($type:ty) => {
        impl LiveWords for [$type] {
            fn places(&self) -> u32 {
                self.len() as u32
            }

            fn words(&self, place: u32) -> u32 {
                self.get(place as usize).map_or(0, |slab| slab.words())
            }

            #[inline]
            fn live_word(&self, place: u32, word: u32) -> u64 {
                self.get(place as usize).map_or(0, |slab| slab.live_word(word))
            }

            fn own_word(&self, place: u32, word: u32) -> u64 {
                self.get(place as usize).map_or(0, |slab| slab.own_word(word))
            }
        }
    };
}

live_words!(Slab);
live_words!(&Slab);

/// A demand: none of these slots may be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadMask {
    /// The slab's place on the path.
    pub place: u32,
    /// The liveness word.
    pub word: u32,
    /// The slots, as bits of the word.
    pub mask: u64,
}

/// What must be dead on a path before a node may run on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadMasks(Box<[DeadMask]>);

impl DeadMasks {
    /// The demands, those of one word in one piece, in the order of the path.
    #[must_use]
    pub fn new(mut masks: Vec<DeadMask>) -> Self {
        masks.sort_unstable_by_key(|mask| (mask.place, mask.word));
        masks.dedup_by(|next, kept| {
            let same = (next.place, next.word) == (kept.place, kept.word);
            if same {
                kept.mask |= next.mask;
            }
            same
        });
        masks.retain(|mask| mask.mask != 0);
        Self(masks.into())
    }

    /// Everything that is dead on the path now: what a recording that is about to be made will rely on.
    #[must_use]
    pub fn of<P: LiveWords + ?Sized>(path: &P) -> Self {
        let words =
            (0..path.places()).flat_map(|place| (0..path.words(place)).map(move |word| (place, word)));
        Self::new(
            words
                .map(|(place, word)| DeadMask {
                    place,
                    word,
                    mask: path.own_word(place, word) & !path.live_word(place, word),
                })
                .collect(),
        )
    }

    /// The demands that `parent` does not make already: what a child adds. What died once stays dead along a path, so a
    /// child need not check again what its parent checked.
    #[must_use]
    pub fn beyond(&self, parent: &Self) -> Self {
        let covered = |mask: &DeadMask| {
            let at =
                parent.0.binary_search_by_key(&(mask.place, mask.word), |known| (known.place, known.word));
            at.ok().and_then(|at| parent.0.get(at)).map_or(0, |known| known.mask)
        };
        let left = self.0.iter().map(|mask| DeadMask { mask: mask.mask & !covered(mask), ..*mask });
        Self(left.filter(|mask| mask.mask != 0).collect())
    }

    /// Whether all of it is dead.
    #[inline]
    #[must_use]
    pub fn hold<P: LiveWords + ?Sized>(&self, path: &P) -> bool {
        // Without a way out in between: a demand that does not hold is rare, and the loop is short.
        self.0.iter().fold(0, |live, mask| live | path.live_word(mask.place, mask.word) & mask.mask) == 0
    }

    /// What is live and should not be: place and slot.
    pub fn violations<P: LiveWords + ?Sized>(&self, path: &P) -> impl Iterator<Item = (u32, SlotIndex)> {
        self.0.iter().flat_map(|mask| {
            let live = path.live_word(mask.place, mask.word) & mask.mask;
            SlotIndex::in_word(mask.word, live).map(|slot| (mask.place, slot))
        })
    }

    /// The demands.
    #[must_use]
    pub fn masks(&self) -> &[DeadMask] {
        &self.0
    }

    /// Whether nothing is demanded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A storage that a checkpoint has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveStorage {
    /// The place of its slab on the path.
    pub place: u32,
    /// Its slot.
    pub slot: SlotIndex,
    /// Where its block starts.
    pub base: graphgrove_device::DevicePtr,
    /// The length of its block in bytes.
    pub bytes: u64,
}

/// The live storages of a path, each block once: what a checkpoint keeps.
pub fn live_storages<'a>(path: impl IntoIterator<Item = &'a Slab>) -> impl Iterator<Item = LiveStorage> {
    (0..).zip(path).flat_map(|(place, slab)| {
        slab.live().filter_map(move |slot| {
            let (base, bytes) = slab.block(slot)?;
            Some(LiveStorage { place, slot, base, bytes })
        })
    })
}
