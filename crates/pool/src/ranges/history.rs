//! The tree of checkpoints, as the difference of each from the one before it.
//!
//! A *version* is a state that a checkpoint names. It stores what separates it from its parent: the blocks that were born and the
//! blocks that died. The present state is the *base* version and a working difference on top of it. A block that is born and dies
//! between two checkpoints is in neither list, so a difference is never larger than what really changed.
//!
//! A slot must not be used for another block while some version could bring its block back. `pins` counts the versions in whose born
//! list a block is; `rooted` says that it is live in the root, whose born list is never walked and therefore not kept.

use super::ids::CheckpointId;
use super::slots::{Slot, SlotIx, Slots, State};

/// The position of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VersionIx(u32);

/// What separates two states: `died` were live before, `born` are live after.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    pub(super) born: Vec<SlotIx>,
    pub(super) died: Vec<SlotIx>,
}

impl Delta {
    pub(super) fn is_empty(&self) -> bool {
        self.born.is_empty() && self.died.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) parent: Option<VersionIx>,
    /// Larger than the parent's, with gaps where versions between were merged away.
    depth: u64,
    /// How many versions have this one as parent.
    pub(super) children: u32,
    /// The wrapping sum of the children's positions: when there is one child, its position.
    child_sum: u32,
    /// How often a caller holds this version as a checkpoint. A version that nobody holds is kept only as a fork between others.
    pub(super) holders: u32,
    pub(super) serial: u32,
    pub(super) delta: Delta,
}

/// What the history knows about the block in a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tenure {
    /// One more than the block's position in the working born list; zero if it is not in it.
    born_at: u32,
    pub(super) pins: u32,
    pub(super) rooted: bool,
    pub(super) mark: Mark,
}

/// A note on a block for the length of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    None,
    /// Named in the list at hand.
    Named,
    /// Named, and found in the other list as well.
    Met,
}

#[derive(Clone, Debug)]
pub(super) struct History {
    versions: Vec<Option<Version>>,
    vacant: Vec<u32>,
    next_serial: u32,
    /// The version that `working` starts from. `None` while no checkpoint exists: then nothing is noted at all.
    base: Option<VersionIx>,
    pub(super) working: Delta,
    pub(super) tenures: Vec<Tenure>,
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            versions: Vec::new(),
            vacant: Vec::new(),
            next_serial: 0,
            base: None,
            working: Delta::default(),
            tenures: Vec::new(),
        }
    }

    /// Notes that the block in `slot` was born.
    #[inline]
    pub(super) fn note_birth(&mut self, slot: SlotIx) {
        if self.base.is_some() {
            self.add_birth(slot);
        }
    }

    /// Notes that the block in `slot` died, and says whether a version remembers it, so that its slot must be parked.
    #[inline]
    pub(super) fn note_death(&mut self, slot: SlotIx) -> bool {
        self.base.is_some() && self.add_death(slot)
    }

    fn add_birth(&mut self, slot: SlotIx) {
        if slot.at() >= self.tenures.len() {
            self.tenures.resize(slot.at() + 1, Tenure::default());
        }
        self.working.born.push(slot);
        self.tenures[slot.at()].born_at = self.working.born.len() as u32;
    }

    fn add_death(&mut self, slot: SlotIx) -> bool {
        let born_at = self.tenures[slot.at()].born_at;
        if born_at == 0 {
            self.working.died.push(slot);
            return true;
        }
        self.working.born.swap_remove(born_at as usize - 1);
        if let Some(&moved) = self.working.born.get(born_at as usize - 1) {
            self.tenures[moved.at()].born_at = born_at;
        }
        let tenure = &mut self.tenures[slot.at()];
        tenure.born_at = 0;
        tenure.pins > 0 || tenure.rooted
    }

    /// Notes where each block of the working born list is in it.
    pub(super) fn number_births(&mut self) {
        for (at, slot) in self.working.born.iter().enumerate() {
            self.tenures[slot.at()].born_at = at as u32 + 1;
        }
    }

    pub(super) fn forget_births(&mut self, born: &[SlotIx]) {
        for slot in born {
            self.tenures[slot.at()].born_at = 0;
        }
    }

    /// Whether nothing could ever bring the parked block in `slot` back.
    pub(super) fn is_lost(&self, slots: &Slots, slot: SlotIx) -> bool {
        let tenure = &self.tenures[slot.at()];
        slots[slot].state == State::Parked && tenure.pins == 0 && !tenure.rooted && tenure.born_at == 0
    }

    pub(super) fn base(&self) -> Option<VersionIx> {
        self.base
    }

    pub(super) fn set_base(&mut self, base: Option<VersionIx>) {
        self.base = base;
    }

    /// How many places for versions there are, and how many births and deaths are noted in all.
    pub(super) fn entries(&self) -> (usize, usize) {
        let deltas = self.versions.iter().flatten().map(|version| &version.delta).chain([&self.working]);
        (self.versions.len(), deltas.map(|delta| delta.born.len() + delta.died.len()).sum())
    }

    /// How many versions exist.
    pub(super) fn count(&self) -> usize {
        self.versions.len() - self.vacant.len()
    }

    pub(super) fn find(&self, checkpoint: CheckpointId) -> Option<VersionIx> {
        let version = self.versions.get(checkpoint.version as usize)?.as_ref()?;
        let known = version.holders > 0 && version.serial == checkpoint.serial;
        known.then_some(VersionIx(checkpoint.version))
    }

    /// A version that is known to exist: positions come from `base`, `find` and the links of other versions, and a version is only
    /// removed when none of them names it.
    pub(super) fn version(&mut self, ix: VersionIx) -> &mut Version {
        match &mut self.versions[ix.0 as usize] {
            Some(version) => version,
            None => unreachable!("version {} was removed while something named it", ix.0),
        }
    }

    /// Counts one more holder of a version, and names it.
    pub(super) fn hold(&mut self, ix: VersionIx) -> CheckpointId {
        let version = self.version(ix);
        version.holders += 1;
        CheckpointId { version: ix.0, serial: version.serial }
    }

    pub(super) fn parent(&mut self, ix: VersionIx) -> Option<VersionIx> {
        self.version(ix).parent
    }

    pub(super) fn depth(&mut self, ix: VersionIx) -> u64 {
        self.version(ix).depth
    }

    /// Lends out the difference of a version from its parent, to be put back by [`Self::put_delta`].
    pub(super) fn take_delta(&mut self, ix: VersionIx) -> Delta {
        std::mem::take(&mut self.version(ix).delta)
    }

    pub(super) fn put_delta(&mut self, ix: VersionIx, delta: Delta) {
        self.version(ix).delta = delta;
    }

    /// Forgets everything but the blocks that are live, all of them as part of a root to come.
    pub(super) fn start(&mut self, slots: &Slots) {
        self.tenures.clear();
        let rooted = |slot: &Slot| slot.state == State::Live;
        self.tenures
            .extend(slots.iter().map(|(_, slot)| Tenure { rooted: rooted(slot), ..Tenure::default() }));
    }

    /// Makes the working difference a version of its own below the base, and the new base.
    pub(super) fn freeze(&mut self) -> VersionIx {
        let parent = self.base;
        let delta = std::mem::take(&mut self.working);
        for slot in &delta.born {
            let tenure = &mut self.tenures[slot.at()];
            tenure.born_at = 0;
            tenure.pins += 1;
        }
        let depth = parent.map_or(0, |parent| self.depth(parent) + 1);
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let version = Version { parent, depth, children: 0, child_sum: 0, holders: 0, serial, delta };
        let ix = if let Some(at) = self.vacant.pop() {
            self.versions[at as usize] = Some(version);
            VersionIx(at)
        } else {
            self.versions.push(Some(version));
            VersionIx(self.versions.len() as u32 - 1)
        };
        if let Some(parent) = parent {
            let parent = self.version(parent);
            parent.children += 1;
            parent.child_sum = parent.child_sum.wrapping_add(ix.0);
        }
        self.base = Some(ix);
        ix
    }

    /// Removes a version that has no children, and returns it.
    pub(super) fn remove(&mut self, ix: VersionIx) -> Option<Version> {
        let version = self.versions[ix.0 as usize].take()?;
        self.vacant.push(ix.0);
        if let Some(parent) = version.parent {
            let parent = self.version(parent);
            parent.children -= 1;
            parent.child_sum = parent.child_sum.wrapping_sub(ix.0);
        }
        Some(version)
    }

    /// Hangs `child`, the only child of `ix`, below the parent of `ix`, and removes `ix`.
    pub(super) fn bypass(&mut self, ix: VersionIx, child: VersionIx) {
        let parent = self.version(ix).parent;
        self.version(child).parent = parent;
        if let Some(parent) = parent {
            let parent = self.version(parent);
            parent.children += 1;
            parent.child_sum = parent.child_sum.wrapping_add(child.0);
        }
        self.remove(ix);
    }

    /// The child of a version that has one.
    pub(super) fn only_child(&mut self, ix: VersionIx) -> VersionIx {
        VersionIx(self.version(ix).child_sum)
    }

    pub(super) fn remove_root(&mut self, root: VersionIx, child: VersionIx) {
        self.version(child).parent = None;
        self.remove(root);
    }
}
