//! What is recorded of a node's outputs: shared, and never changed, by all sheets of its slab.

use std::sync::Arc;

use graphgrove_device::DevicePtr;

use crate::{Error, Layout, OutputClass, PlannedOutput, SlabId, SlotIndex};

/// The facts about a node's outputs, and what handing them back in bulk writes.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) id: SlabId,
    pub(crate) key: u64,
    pub(crate) producer: Arc<str>,
    pub(crate) outputs: Box<[PlannedOutput]>,
    /// The outputs that lie in slots of others, with those slots.
    siblings: Box<[(SlotIndex, SlotIndex)]>,
    /// Where each output's block lies and how far into it the output begins, apart from what the way of an output to its
    /// caller does not need.
    places: Box<[Place]>,
    /// What a run begins with, for 64 slots each.
    pub(crate) words: Box<[Begin]>,
    /// The outputs that are handed back and own none, as bits; empty without any.
    pub(crate) returned_aliases: Box<[u64]>,
    /// The slots that the backward holds, as bits.
    pub(crate) saved: Box<[u64]>,
    /// Whether the backward holds anything, be it a slot here or a storage from elsewhere.
    pub(crate) has_saved: bool,
    /// A (slot, n) pair means: the slot is held n times more than once when it is handed back.
    pub(crate) shared: Box<[(SlotIndex, u32)]>,
    /// The outputs whose handles are made from something that has to be brought.
    pub(crate) sourced: Box<[SlotIndex]>,
    /// The words of `own` that are not zero.
    pub(crate) own_words: u64,
}

/// What 64 slots begin a run with, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begin {
    /// The slots that outputs own.
    pub(crate) own: u64,
    /// The outputs that are handed back and own slots.
    pub(crate) returned: u64,
    /// The slots that have more than one holder from the beginning.
    pub(crate) shared: u64,
}

/// Where an output lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The start of its block; null without one.
    pub(crate) base: DevicePtr,
    /// The length of its block.
    pub(crate) bytes: u64,
    /// The bytes from the start of its block to its first element.
    pub(crate) offset: u64,
}

impl Place {
    pub(crate) const NONE: Self = Self { base: DevicePtr::NULL, bytes: 0, offset: 0 };
}

impl Table {
    pub(crate) fn new(key: u64, producer: Arc<str>, outputs: Vec<PlannedOutput>) -> Result<Self, Error> {
        let count =
            u32::try_from(outputs.len()).map_err(|_| Error::TooManyOutputs { count: outputs.len() })?;
        let count_of_words = outputs.len().div_ceil(64);
        let mut words = vec![Begin::default(); count_of_words];
        let (mut returned, mut saved) = (vec![0_u64; count_of_words], vec![0_u64; count_of_words]);
        let mut holds = vec![0_u32; outputs.len()];
        let mut has_saved = false;
        for (slot, output) in (0..count).map(SlotIndex::new).zip(&outputs) {
            check(slot, output, &outputs)?;
            let set = |words: &mut [u64], slot: SlotIndex| {
                if let Some(word) = words.get_mut(slot.word() as usize) {
                    *word |= slot.bit();
                }
            };
            let owner = match output.class {
                OutputClass::Fresh => {
                    if let Some(word) = words.get_mut(slot.word() as usize) {
                        word.own |= slot.bit();
                    }
                    Some(slot)
                }
                OutputClass::Sibling(owner) => Some(owner),
                _ => None,
            };
            if output.readers.caller() {
                set(&mut returned, slot);
                if let Some(count) = owner.and_then(|owner| holds.get_mut(owner.place())) {
                    *count += 1;
                }
            }
            if output.readers.backward() {
                has_saved = true;
                if let Some(owner) = owner {
                    set(&mut saved, owner);
                }
            }
        }
        refuse_shared_blocks(&outputs)?;
        let siblings = (0..count).map(SlotIndex::new).zip(&outputs).filter_map(|(slot, output)| {
            if let OutputClass::Sibling(owner) = output.class { Some((slot, owner)) } else { None }
        });
        let siblings = siblings.collect();
        let mut shared = Vec::new();
        for (slot, &returns) in (0..count).map(SlotIndex::new).zip(&holds) {
            let is_saved = saved.get(slot.word() as usize).is_some_and(|bits| bits & slot.bit() != 0);
            let extra = (returns + u32::from(is_saved)).saturating_sub(1);
            if extra > 0 {
                shared.push((slot, extra));
                if let Some(word) = words.get_mut(slot.word() as usize) {
                    word.shared |= slot.bit();
                }
            }
        }
        let sourced =
            (0..count).map(SlotIndex::new).zip(&outputs).filter(|(_, output)| output.class.needs_source());
        let sourced = sourced.map(|(slot, _)| slot).collect();
        let mut returned_aliases: Vec<u64> =
            returned.iter().zip(&words).map(|(returned, word)| returned & !word.own).collect();
        if returned_aliases.iter().all(|&bits| bits == 0) {
            returned_aliases.clear();
        }
        for (word, returned) in words.iter_mut().zip(&returned) {
            word.returned = returned & word.own;
        }
        let own_words = words.iter().filter(|word| word.own != 0).count() as u64;
        let places = outputs.iter().map(|output| {
            let (base, bytes) = output.block.unwrap_or((DevicePtr::NULL, 0));
            // The offset of an alias of what lies elsewhere may be negative, and is not asked for here.
            Place { base, bytes, offset: output.offset.cast_unsigned() }
        });
        let places = places.collect();
        Ok(Self {
            places,
            siblings,
            id: SlabId::next(),
            key,
            producer,
            outputs: outputs.into(),
            words: words.into(),
            returned_aliases: returned_aliases.into(),
            saved: saved.into(),
            has_saved,
            shared: shared.into(),
            sourced,
            own_words,
        })
    }

    pub(crate) fn output(&self, slot: SlotIndex) -> Option<&PlannedOutput> {
        self.outputs.get(slot.place())
    }

    pub(crate) fn layout(&self, slot: SlotIndex) -> Option<&Arc<Layout>> {
        self.output(slot)?.layout.as_ref()
    }

    /// Where an output lies.
    #[inline]
    pub(crate) fn place(&self, slot: SlotIndex) -> Place {
        self.places.get(slot.place()).copied().unwrap_or(Place::NONE)
    }

    /// The outputs that lie in a slot, its own among them.
    pub(crate) fn outputs_on(&self, slot: SlotIndex) -> impl Iterator<Item = SlotIndex> {
        let own = self.output(slot).is_some_and(|output| output.class == OutputClass::Fresh);
        let siblings = self.siblings.iter().filter(move |(_, owner)| *owner == slot);
        own.then_some(slot).into_iter().chain(siblings.map(|(sibling, _)| *sibling))
    }

    #[inline]
    pub(crate) fn owns(&self, slot: SlotIndex) -> bool {
        self.words.get(slot.word() as usize).is_some_and(|word| word.own & slot.bit() != 0)
    }
}

/// Rejects fresh outputs of which two would own the same memory, each believing that it is its own.
fn refuse_shared_blocks(outputs: &[PlannedOutput]) -> Result<(), Error> {
    let blocks =
        (0..).map(SlotIndex::new).zip(outputs).filter(|(_, output)| output.class == OutputClass::Fresh);
    let mut blocks: Vec<_> = blocks
        .filter_map(|(slot, output)| output.block.map(|(base, bytes)| (base.get(), bytes, slot)))
        .collect();
    blocks.sort_unstable();
    for pair in blocks.windows(2) {
        if let &[(base, bytes, a), (next, _, b)] = pair
            && next - base < bytes
        {
            return Err(Error::SharedBlock { a, b });
        }
    }
    Ok(())
}

/// Rejects an output that does not fit its class.
fn check(slot: SlotIndex, output: &PlannedOutput, outputs: &[PlannedOutput]) -> Result<(), Error> {
    let bad = Err(Error::BadOutput { output: slot });
    let in_block = |block: Option<(DevicePtr, u64)>| -> Result<(), Error> {
        let (Some((base, bytes)), Some(layout)) = (block, &output.layout) else { return bad.clone() };
        if base.checked_add(bytes).is_none() || bytes == 0 {
            return bad.clone();
        }
        let Ok(offset) = u64::try_from(output.offset) else { return bad.clone() };
        crate::storage::check_bounds(offset, layout.span_bytes(), bytes)
    };
    match output.class {
        OutputClass::Fresh => in_block(output.block),
        OutputClass::Sibling(owner) => match outputs.get(owner.place()) {
            Some(owned) if owner < slot && owned.class == OutputClass::Fresh => in_block(owned.block),
            _ => bad,
        },
        OutputClass::Empty if output.layout.as_ref().is_some_and(|layout| layout.is_empty()) => Ok(()),
        OutputClass::Empty => bad,
        OutputClass::NotTensor => Ok(()),
        _ if output.layout.is_none() => bad,
        _ => Ok(()),
    }
}
