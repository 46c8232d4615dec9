//! A plain model of the allocator: a sorted map of live blocks, and rules written out without any cleverness.

use std::collections::{BTreeMap, HashMap};

use graphgrove_pool::PoolError;
use graphgrove_pool::ranges::{
    Block, BlockId, CheckpointId, Granule, RangeStats, Ranges, RegionId, RegionKind, Survivors,
};

/// A granule so large that the sizes of which the rule speaks are a few of them.
pub(crate) const GRANULE: u64 = 1 << 20;

/// The length of a workspace: holes of half of it are spared by requests of a quarter of it.
const WORKSPACE: u64 = 32 << 20;

/// A (region, offset) -> block pair means that the block starts there.
pub(crate) type Live = BTreeMap<(RegionId, u64), Block>;

/// One step of a program. Numbers that pick something are taken modulo what there is to pick from.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Alloc { bytes: u64, align: u64 },
    AllocAt { region: usize, offset: u64, bytes: u64 },
    Free { pick: usize },
    FreeStale { pick: usize },
    AddRegion { grows: bool, len: u64 },
    Resize { region: usize, len: u64 },
    RemoveRegion { region: usize },
    Checkpoint,
    Discard { pick: usize },
    Restore { pick: usize },
    RestoreExcept { pick: usize, dead: Vec<usize>, kept: Vec<usize> },
    RestoreOnly { pick: usize, live: Vec<usize> },
}

/// The allocator under test and the model, kept in step.
pub(crate) struct Pair {
    pub(crate) ranges: Ranges,
    regions: BTreeMap<RegionId, (RegionKind, u64)>,
    live: Live,
    /// Every block there ever was, by name.
    seen: HashMap<BlockId, Block>,
    names: Vec<BlockId>,
    pub(crate) checkpoints: Vec<(CheckpointId, Live)>,
    peak_live: u64,
    peak_reserved: u64,
}

fn overlaps(live: &Live, region: RegionId, offset: u64, bytes: u64) -> bool {
    live.values().any(|other| {
        other.region == region && other.offset < offset + bytes && offset < other.offset + other.bytes
    })
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self {
            ranges: Ranges::new(Granule::new(GRANULE).unwrap()),
            regions: BTreeMap::new(),
            live: Live::new(),
            seen: HashMap::new(),
            names: Vec::new(),
            checkpoints: Vec::new(),
            peak_live: 0,
            peak_reserved: 0,
        }
    }

    pub(crate) fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
            self.compare();
        }
    }

    /// Free runs as (bytes, region, offset, is a tail).
    fn runs(&self) -> Vec<(u64, RegionId, u64, bool)> {
        let mut runs = Vec::new();
        for (&region, &(kind, len)) in &self.regions {
            let mut at = 0;
            for block in self.live.values().filter(|block| block.region == region) {
                if block.offset > at {
                    runs.push((block.offset - at, region, at, false));
                }
                at = block.offset + block.bytes;
            }
            if len > at {
                runs.push((len - at, region, at, kind == RegionKind::Growing));
            }
        }
        runs
    }

    /// Where a request must go, and by how much the first growing region is too short for it to go to the tail instead of a large hole.
    fn expected(&self, bytes: u64, align: u64) -> (Option<(RegionId, u64)>, Option<u64>) {
        let runs = self.runs();
        let place = |&(_, region, offset, _): &(u64, RegionId, u64, bool)| {
            let start: u64 = offset.next_multiple_of(align);
            (region, start, start + bytes)
        };
        let fits = |run: &&(u64, RegionId, u64, bool)| place(run).2 <= run.2 + run.0;
        let in_stretch = |from: u64, end: u64| end <= from.next_multiple_of(WORKSPACE);
        let best = |bytes: u64| runs.iter().filter(|run| !run.3 && run.0 >= bytes).min();
        let hole = best(bytes).filter(fits).or_else(|| best(bytes + align - GRANULE));
        let mut tails = runs.iter().filter(|run| run.3).filter(fits);
        let spared = hole.is_some_and(|run| run.0 >= WORKSPACE / 2 && bytes <= WORKSPACE / 4);
        let beside = tails.clone().find(|run| spared && in_stretch(run.2, place(run).2));
        let missing = || {
            let (&first, &(_, len)) =
                self.regions.iter().find(|(_, region)| region.0 == RegionKind::Growing)?;
            let from = self.used(first);
            let end = from.next_multiple_of(align) + bytes;
            (in_stretch(from, end) && end > len).then(|| end - len)
        };
        let missing = if spared && beside.is_none() { missing() } else { None };
        let found = beside.or(hole).or_else(|| tails.next());
        (found.map(|run| (place(run).0, place(run).1)), missing)
    }

    /// Where the last live block of a region ends.
    fn used(&self, region: RegionId) -> u64 {
        let blocks = self.live.values().filter(|block| block.region == region);
        blocks.map(|block| block.offset + block.bytes).max().unwrap_or(0)
    }

    fn stats(&self) -> RangeStats {
        let reserved = self.regions.values().map(|region| region.1).sum::<u64>();
        let live = self.live.values().map(|block| block.bytes).sum::<u64>();
        let runs = self.runs();
        RangeStats {
            reserved,
            peak_reserved: self.peak_reserved,
            live,
            peak_live: self.peak_live,
            free: reserved - live,
            largest_free: runs.iter().map(|run| run.0).max().unwrap_or(0),
            live_blocks: self.live.len() as u32,
            free_runs: runs.len() as u32,
        }
    }

    /// Everything that can be seen of the allocator must agree with the model, and its own books with each other.
    fn compare(&mut self) {
        self.ranges.audit().unwrap();
        let live: Vec<Block> = self.ranges.live_blocks().collect();
        assert_eq!(live, self.live.values().copied().collect::<Vec<_>>());
        self.peak_live = self.peak_live.max(live.iter().map(|block| block.bytes).sum());
        self.peak_reserved = self.peak_reserved.max(self.regions.values().map(|region| region.1).sum());
        assert_eq!(self.ranges.stats(), self.stats());
        let runs: Vec<_> = self.ranges.free_runs().map(|run| (run.bytes, run.region, run.offset)).collect();
        assert_eq!(runs, self.runs().iter().map(|run| (run.0, run.1, run.2)).collect::<Vec<_>>());
        let covered: u64 = self.ranges.spans().map(|span| span.bytes).sum();
        assert_eq!(covered, self.ranges.stats().reserved, "free + live = capacity");
        for block in &live {
            assert_eq!(self.ranges.block(block.id), Some(*block));
            assert_eq!(self.ranges.block_at(block.region, block.offset + block.bytes - 1), Some(*block));
        }
    }

    fn add(&mut self, block: Block) {
        assert!(
            !overlaps(&self.live, block.region, block.offset, block.bytes),
            "{block:?} overlaps a live block"
        );
        let known = self.seen.insert(block.id, block);
        assert_eq!(known, None, "a name is given once");
        self.names.push(block.id);
        self.live.insert((block.region, block.offset), block);
    }

    fn region(&self, pick: usize) -> Option<RegionId> {
        let count = self.regions.len();
        (count > 0).then(|| self.regions.keys().copied().nth(pick % count).unwrap())
    }

    fn pick_live(&self, pick: usize) -> Option<Block> {
        let count = self.live.len();
        (count > 0).then(|| *self.live.values().nth(pick % count).unwrap())
    }

    /// Mostly blocks that are live or remembered, and now and then a stale one.
    fn pick_names(&self, picks: &[usize]) -> Vec<BlockId> {
        let (known, stale): (Vec<_>, Vec<_>) =
            self.names.iter().partition(|&&name| self.ranges.remembers(name));
        let pick = |pick: &usize| {
            let from = if pick.is_multiple_of(32) { &stale } else { &known };
            from.get(pick / 32 % from.len().max(1)).copied()
        };
        picks.iter().filter_map(pick).collect()
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Alloc { bytes, align } => {
                let size = bytes.next_multiple_of(GRANULE);
                let (place, missing) = self.expected(size, align.max(GRANULE));
                assert_eq!(self.ranges.spares_by_growing(bytes, align), missing);
                if missing.is_some() {
                    assert_eq!(self.ranges.alloc_sparing(bytes, align), Ok(None));
                }
                let found = if missing.is_none() && bytes.is_multiple_of(2) {
                    self.ranges.alloc_sparing(bytes, align).map(Option::unwrap)
                } else {
                    self.ranges.alloc(bytes, align)
                };
                match (found, place) {
                    (Ok(block), Some(place)) => {
                        assert_eq!(((block.region, block.offset), block.bytes), (place, size));
                        self.add(block);
                    }
                    (Err(PoolError::NoRoom { asked, largest_free, free, .. }), None) => {
                        let stats = self.stats();
                        assert_eq!((asked, largest_free, free), (bytes, stats.largest_free, stats.free));
                    }
                    (got, want) => {
                        panic!("asked for {bytes} aligned to {align}: {got:?} instead of {want:?}")
                    }
                }
            }
            Op::AllocAt { region, offset, bytes } => {
                let Some(region) = self.region(region) else { return };
                let size = bytes.next_multiple_of(GRANULE);

                let free =
                    offset + size <= self.regions[&region].1 && !overlaps(&self.live, region, offset, size);
                match self.ranges.alloc_at(region, offset, bytes) {
                    Ok(block) if free => {
                        assert_eq!((block.region, block.offset, block.bytes), (region, offset, size));
                        self.add(block);
                    }
                    Err(PoolError::Occupied { .. }) if !free => {}
                    other => panic!("{region}+{offset} free: {free}, got {other:?}"),
                }
            }
            Op::Free { pick } => {
                let Some(block) = self.pick_live(pick) else { return };
                assert_eq!(self.ranges.free(block.id), Ok(block));
                self.live.remove(&(block.region, block.offset));
            }
            Op::FreeStale { pick } => {
                let Some(&block) = self.pick_names(&[pick.wrapping_mul(32)]).first() else { return };
                if !self.live.values().any(|other| other.id == block) {
                    assert_eq!(self.ranges.free(block), Err(PoolError::NotLive { block }));
                }
            }
            Op::AddRegion { grows, len } => {
                let kind = if grows { RegionKind::Growing } else { RegionKind::Fixed };
                let region = self.ranges.add_region(kind, len).unwrap();
                assert_eq!(self.regions.insert(region, (kind, len)), None);
            }
            Op::Resize { region, len } => {
                let Some(region) = self.region(region) else { return };
                let used = self.used(region);
                assert_eq!(self.ranges.used_end(region), Some(used));
                let want = match self.regions[&region].0 {
                    RegionKind::Fixed => Err(PoolError::FixedRegion { region }),
                    RegionKind::Growing if used > len => Err(PoolError::TailInUse { region, used, len }),
                    RegionKind::Growing => Ok(()),
                };
                assert_eq!(self.ranges.resize_region(region, len), want);
                if want.is_ok() {
                    self.regions.insert(region, (RegionKind::Growing, len));
                }
            }
            Op::RemoveRegion { region } => {
                let Some(region) = self.region(region) else { return };
                let within = |block: &Block| block.region == region;
                let live = self.live.values().filter(|block| within(block)).count() as u32;
                let remembered = self.names.iter().filter(|&&name| {
                    within(&self.seen[&name])
                        && self.ranges.remembers(name)
                        && self.ranges.block(name).is_none()
                });
                let remembered = remembered.count() as u32;
                let held = live + remembered > 0;
                let want = if held {
                    Err(PoolError::RegionInUse { region, live, remembered })
                } else {
                    Ok(self.regions[&region].1)
                };
                assert_eq!(self.ranges.remove_region(region), want);
                if !held {
                    self.regions.remove(&region);
                }
            }
            Op::Checkpoint => {
                let checkpoint = self.ranges.checkpoint();
                self.checkpoints.push((checkpoint, self.live.clone()));
            }
            Op::Discard { pick } => {
                if self.checkpoints.is_empty() {
                    return;
                }
                let (checkpoint, _) = self.checkpoints.swap_remove(pick % self.checkpoints.len());
                self.ranges.discard(checkpoint).unwrap();
                if self.checkpoints.iter().all(|(other, _)| *other != checkpoint) {
                    assert_eq!(self.ranges.discard(checkpoint), Err(PoolError::NoCheckpoint { checkpoint }));
                    let restored = self.ranges.restore(checkpoint, Survivors::AsRecorded);
                    assert_eq!(restored, Err(PoolError::NoCheckpoint { checkpoint }));
                }
            }
            Op::Restore { pick } => self.restore(pick, Survivors::AsRecorded),
            Op::RestoreExcept { pick, ref dead, ref kept } => {
                let (dead, kept) = (self.pick_names(dead), self.pick_names(kept));
                self.restore(pick, Survivors::Except { dead: &dead, kept: &kept });
            }
            Op::RestoreOnly { pick, ref live } => {
                let mut names = self.pick_names(live);
                names.extend(live.iter().filter_map(|&pick| Some(self.pick_live(pick)?.id)));
                self.restore(pick, Survivors::Only(&names));
            }
        }
    }

    fn restore(&mut self, pick: usize, survivors: Survivors<'_>) {
        if self.checkpoints.is_empty() {
            return;
        }
        let (checkpoint, recorded) = &self.checkpoints[pick % self.checkpoints.len()];
        let want = self.expected_restore(recorded, survivors);
        // A checkpoint that nobody holds may still be kept as a fork, so what is remembered is asked, not modelled.
        assert_eq!(self.ranges.restore(*checkpoint, survivors).map(drop), want.clone().map(drop));
        if let Ok(live) = want {
            self.live = live;
        }
    }

    fn expected_restore(&self, recorded: &Live, survivors: Survivors<'_>) -> Result<Live, PoolError> {
        let mut live = recorded.clone();
        let kept = match survivors {
            Survivors::AsRecorded => &[],
            Survivors::Except { kept, .. } | Survivors::Only(kept) => kept,
        };
        let dead: Vec<BlockId> = match survivors {
            Survivors::AsRecorded => Vec::new(),
            Survivors::Except { dead, .. } => dead.to_vec(),
            Survivors::Only(_) => Vec::new(),
        };
        if let Some(&block) = kept.iter().chain(&dead).find(|&&block| !self.ranges.remembers(block)) {
            return Err(PoolError::NotLive { block });
        }
        let only = matches!(survivors, Survivors::Only(_));
        live.retain(|_, block| if only { kept.contains(&block.id) } else { !dead.contains(&block.id) });
        for &name in kept.iter().filter(|&name| !dead.contains(name)) {
            let block = self.seen[&name];
            if live.get(&(block.region, block.offset)) == Some(&block) {
                continue;
            }
            if overlaps(&live, block.region, block.offset, block.bytes) {
                return Err(PoolError::Overlap { block: name, region: block.region, offset: block.offset });
            }
            live.insert((block.region, block.offset), block);
        }
        for (&region, &(kind, len)) in &self.regions {
            let used = live.values().filter(|block| block.region == region);
            let needed = used.map(|block| block.offset + block.bytes).max().unwrap_or(0);
            if kind == RegionKind::Growing && needed > len {
                return Err(PoolError::RegionTooShort { region, len, needed });
            }
        }
        Ok(live)
    }
}
