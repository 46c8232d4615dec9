//! Slabs: the outputs of one node, run after run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use graphgrove_device::DevicePtr;
use smallvec::SmallVec;

use crate::block::Owner;
use crate::hold::{Hold, SheetRef};
use crate::outputs::Outputs;
use crate::saved::SavedOutputs;
use crate::sheet::{Borrowed, Fate, Holders, Sheet};
use crate::stale::{Cause, Event};
use crate::storage::Spot;
use crate::sync::lock;
use crate::table::Table;
use crate::{
    Epoch, Error, Ledger, OutputClass, PlannedOutput, SlabId, SlotIndex, Step, Storage, Taker, Tensor,
    orphans,
};

/// Where a node's outputs live, made once when the node is recorded.
///
/// The slab belongs to whoever runs the node. Each run hands the outputs back anew, in an epoch of its own; every handle of
/// an earlier run that is still around is stale from then on. Dropping the slab [sweeps](Self::sweep) all of it and leaves its
/// handles valid: the memory is theirs for as long as the slab's [`Ledger`] keeps it.
pub struct Slab {
    sheet: SheetRef,
    /// Sheets with stale or moved handles, and sheets that had some: they are used again once nothing holds them. The next
    /// to be looked at is in front.
    retired: VecDeque<SheetRef>,
    epoch: Epoch,
    made_in: Step,
    /// The slots, as bits, that are neither stale nor moved in this run.
    valid: Box<[u64]>,
    /// The slots, as bits, that were live when their deaths were last asked for.
    seen: Box<[u64]>,
    /// Whether `valid` or `seen` is something else than the slots that outputs own, which is what a run begins with.
    is_marked: bool,
}

/// How many retired sheets a run looks at for one to use again.
const LOOKS: usize = 4;

/// How many retired sheets a sweep looks at.
const SWEPT: usize = 64;

/// What a run leaves: its outputs, and what its backward reads.
#[derive(Debug)]
pub struct HandedBack {
    /// The outputs, for the caller.
    pub outputs: Outputs,
    /// What the backward reads, for its token; none if it reads nothing.
    pub saved: Option<SavedOutputs>,
}

impl Slab {
    /// A slab for a node with these outputs. Nothing in it is live until its first run.
    ///
    /// `producer` is the function's name for reports, `key` any number by which the caller knows the node.
    ///
    /// # Errors
    /// [`Error::BadOutput`], [`Error::OutOfStorage`], [`Error::SharedBlock`], [`Error::TooManyOutputs`]
    pub fn new(
        ledger: &Arc<Ledger>,
        producer: impl Into<Arc<str>>,
        key: u64,
        outputs: Vec<PlannedOutput>,
    ) -> Result<Self, Error> {
        let table = Arc::new(Table::new(key, producer.into(), outputs)?);
        let words = table.words.len();
        orphans::sweep();
        Ok(Self {
            sheet: SheetRef::new(Sheet::new(table, Arc::clone(ledger))),
            retired: VecDeque::new(),
            epoch: Epoch::new(0),
            made_in: Step::new(0),
            valid: vec![0; words].into(),
            seen: vec![0; words].into(),
            is_marked: true,
        })
    }

    /// The identity of the slab.
    #[must_use]
    pub fn id(&self) -> SlabId {
        self.sheet.table.id
    }

    /// The number by which the caller knows the node.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.sheet.table.key
    }

    /// The function that makes the outputs.
    #[must_use]
    pub fn producer(&self) -> &str {
        &self.sheet.table.producer
    }

    /// The outputs, as recorded.
    #[must_use]
    pub fn outputs(&self) -> &[PlannedOutput] {
        &self.sheet.table.outputs
    }

    /// The last run; 0 before the first.
    #[must_use]
    #[inline]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Hands the outputs of a run back: they are live from here on, in a new epoch, and all older handles are stale.
    ///
    /// `source` is asked, in order, for what outputs are made from that lie in memory of others: for an alias of an input
    /// the input of this call, for an alias of an earlier slot any tensor on it, for a captured constant the constant.
    ///
    /// # Errors
    /// [`Error::NoSource`], [`Error::WrongSource`], [`Error::OutOfStorage`] and [`Error::BeforeStorage`] for a source without
    /// the bytes that the alias has, [`Error::TooLarge`], [`Error::Stale`] for a source that is stale,
    /// [`Error::Pinned`] for an output of the last run that is live and [pinned](Self::pinned).
    pub fn hand_back(
        &mut self,
        step: Step,
        source: impl FnMut(SlotIndex, OutputClass) -> Option<Tensor>,
    ) -> Result<HandedBack, Error> {
        let is_ready = self.sheet.table.sourced.is_empty() && self.sheet.is_free();
        let brought = if is_ready { None } else { self.make_ready(step, source)? };
        let sheet = &self.sheet;
        let epoch = Epoch::new(self.epoch.get() + 1);
        sheet.begin(epoch);
        if let Some(brought) = brought {
            *lock(&sheet.borrowed) = brought.borrowed;
            *lock(&sheet.saved_elsewhere) = brought.saved;
        }
        (self.epoch, self.made_in) = (epoch, step);
        if self.is_marked {
            for ((valid, seen), begin) in self.valid.iter_mut().zip(&mut self.seen).zip(&sheet.table.words) {
                (*valid, *seen) = (begin.own, begin.own);
            }
            self.is_marked = false;
        }
        // SAFETY: `begin` has just counted one reference for the outputs, and one for what is saved, if anything is.
        let (for_outputs, for_saved) =
            unsafe { (sheet.counted(), sheet.table.has_saved.then(|| sheet.counted())) };
        Ok(HandedBack { outputs: Outputs::new(for_outputs), saved: for_saved.map(SavedOutputs::new) })
    }

    /// Finds a free sheet, brings what lies in memory of others, and makes older handles stale.
    #[inline(never)]
    fn make_ready(
        &mut self,
        step: Step,
        source: impl FnMut(SlotIndex, OutputClass) -> Option<Tensor>,
    ) -> Result<Option<Brought>, Error> {
        let spare = (!self.sheet.is_free()).then(|| self.spare());
        let brought = match bring(spare.as_ref().unwrap_or(&self.sheet), source) {
            Ok(brought) => brought,
            Err(error) => {
                spare.into_iter().for_each(|sheet| self.retired.push_front(sheet));
                return Err(error);
            }
        };
        if let Some(sheet) = spare {
            // What was brought is dropped without a lock if this fails, since what owns its memory may be anybody's.
            if let Err(error) = self.invalidate(&Cause { event: Event::RanAgain, step, by: None }) {
                self.retired.push_front(sheet);
                return Err(error);
            }
            // In front, since the handles of the last run are more likely to go than those that are kept for long.
            self.retired.push_front(std::mem::replace(&mut self.sheet, sheet));
        }
        Ok(brought)
    }

    /// Hands the outputs of a recording back, the first run of its node.
    ///
    /// `recorded` is what the function returned, output by output. The blocks of fresh outputs become those of their slots:
    /// what owned them is returned, for the caller to keep for as long as the slot's block is not given back. Handles that
    /// the function left elsewhere count for the slots' liveness from here on, and go stale with them.
    ///
    /// # Errors
    /// As [`hand_back`](Self::hand_back), and [`Error::NotRecorded`] if a fresh output's tensor is missing or does not lie in
    /// the block that was planned for it: nobody would keep that block from being given back while the slot is live.
    pub fn hand_back_recorded(
        &mut self,
        step: Step,
        recorded: &[Option<Tensor>],
        source: impl FnMut(SlotIndex, OutputClass) -> Option<Tensor>,
    ) -> Result<(HandedBack, Vec<(SlotIndex, Owner)>), Error> {
        self.check_recorded(recorded)?;
        let back = self.hand_back(step, source)?;
        let owners = adopt(&back, recorded);
        Ok((back, owners))
    }

    /// Whether what a function returned lies where its outputs were planned: what [`hand_back_recorded`](Self::hand_back_recorded)
    /// asks first, for whoever has to know before the work is launched.
    ///
    /// # Errors
    /// [`Error::NotRecorded`], [`Error::Stale`]
    pub fn check_recorded(&self, recorded: &[Option<Tensor>]) -> Result<(), Error> {
        for slot in (0..self.words()).flat_map(|word| SlotIndex::in_word(word, self.own_word(word))) {
            let given = recorded.get(slot.place()).and_then(Option::as_ref).map(Tensor::storage);
            let block = given.and_then(Storage::unadopted).map(|block| (block.base, block.bytes));
            if block.is_none() || block != self.block(slot) {
                let given = given.map(Storage::id).transpose()?.flatten();
                return Err(Error::NotRecorded { output: slot, given });
            }
        }
        Ok(())
    }

    /// A sheet on which nothing is held.
    ///
    /// It looks at a few of the retired ones, and at the next few when it is asked again. If it looked at all, somebody who
    /// keeps an output of every run would make each run slower than the one before.
    fn spare(&mut self) -> SheetRef {
        for _ in 0..LOOKS.min(self.retired.len()) {
            match self.retired.pop_front() {
                Some(sheet) if sheet.is_sole() || sheet.is_over() => return sheet,
                held => self.retired.extend(held),
            }
        }
        SheetRef::new(Sheet::new(Arc::clone(&self.sheet.table), Arc::clone(&self.sheet.ledger)))
    }

    /// Makes every handle of the last run stale. The memory may be overwritten or given back from here on.
    ///
    /// # Errors
    /// [`Error::Pinned`] if somebody has the address of an output and cannot be told; no handle has become stale then.
    pub fn invalidate(&mut self, cause: &Cause) -> Result<(), Error> {
        if !self.any_live() {
            return Ok(());
        }
        let cause = Arc::new(cause.clone());
        let fates: Vec<_> = self.live().map(|slot| (slot, Fate::Gone(Arc::clone(&cause)))).collect();
        match self.settle(fates, true).first() {
            Some(&slot) => Err(Error::Pinned { slot }),
            None => Ok(()),
        }
    }

    /// Settles what became of slots of the last run, and returns those that are pinned instead; if `all` is set and there
    /// are any, nothing is settled.
    pub(crate) fn settle(&mut self, fates: Vec<(SlotIndex, Fate)>, all: bool) -> SmallVec<[SlotIndex; 1]> {
        if fates.is_empty() {
            return SmallVec::new();
        }
        let slots: SmallVec<[SlotIndex; 8]> = fates.iter().map(|(slot, _)| *slot).collect();
        let pinned = self.sheet.settle(self.epoch, self.made_in, fates, all);
        if pinned.is_empty() || !all {
            self.is_marked = true;
            for slot in slots.into_iter().filter(|slot| !pinned.contains(slot)) {
                if let Some(valid) = self.valid.get_mut(slot.word() as usize) {
                    *valid &= !slot.bit();
                }
            }
        }
        pinned
    }

    /// Whether a hold is one of the last run, and nothing of that run has become stale or was moved.
    #[inline]
    pub(crate) fn is_surely_of_last_run(&self, hold: &Hold) -> bool {
        hold.is_untouched_on(&self.sheet)
    }

    /// Whether a hold is one of the last run, and its value is where it was.
    #[inline]
    pub(crate) fn is_of_last_run(&self, hold: &Hold) -> bool {
        let sheet: &Sheet = &self.sheet;
        hold.is_untouched_on(sheet)
            || (std::ptr::eq(hold.sheet(), sheet) && matches!(hold.find(), Ok(Spot::Slot(_))))
    }

    /// Whether somebody has the address of a slot and cannot be told of a new one.
    #[must_use]
    pub fn is_pinned(&self, slot: SlotIndex) -> bool {
        self.is_live(slot) && self.sheet.is_pinned(slot)
    }

    /// A live slot whose address somebody has and cannot be told of a new one, the lowest; none if the node can run again.
    ///
    /// It is to be asked before the node's work is launched: when the outputs are handed back it is too late.
    #[must_use]
    pub fn pinned(&self) -> Option<SlotIndex> {
        self.live().find(|&slot| self.sheet.is_pinned(slot))
    }

    /// Lets go of copies that no handle reads any more, and of sheets that will not be used again, and puts right what the last
    /// handles have left to be [late](Ledger::all_dead). Returns how many copies.
    ///
    /// Copies that were made at the end of a step are the caller's memory; a handle's drop does not give them back,
    /// because it may happen anywhere. Of the runs of which handles are kept it looks at up to 64, and at the next ones when it
    /// is called again, so that it takes no longer the more are kept.
    pub fn sweep(&mut self) -> usize {
        let mut copies = self.sheet.sweep();
        // What the last holders of a word left undone is done when the slab runs again, and it may never.
        self.sheet.tidy();
        let mut spare = None;
        for _ in 0..SWEPT.min(self.retired.len()) {
            let Some(sheet) = self.retired.pop_front() else { break };
            copies += sheet.sweep();
            if !sheet.is_sole() && !sheet.is_over() {
                self.retired.push_back(sheet);
            } else if spare.is_none() {
                spare = Some(sheet);
            }
        }
        if let Some(sheet) = spare {
            self.retired.push_front(sheet);
        }
        copies
    }

    /// The live bits of 64 slots: bit `n` of word `w` is slot `64 * w + n`. What is stale or was copied out is dead here:
    /// nobody reaches the slot's memory any more.
    #[inline]
    #[must_use]
    pub fn live_word(&self, word: u32) -> u64 {
        self.valid.get(word as usize).map_or(0, |valid| self.sheet.held_word(word) & valid)
    }

    /// The slots of a word, as bits, that own blocks.
    #[must_use]
    pub fn own_word(&self, word: u32) -> u64 {
        self.sheet.table.words.get(word as usize).map_or(0, |begin| begin.own)
    }

    /// How many liveness words there are.
    #[must_use]
    #[inline]
    pub fn words(&self) -> u32 {
        self.valid.len() as u32
    }

    /// Whether a slot is live.
    #[must_use]
    pub fn is_live(&self, slot: SlotIndex) -> bool {
        self.live_word(slot.word()) & slot.bit() != 0
    }

    /// Whether any slot is live.
    #[must_use]
    #[inline]
    pub fn any_live(&self) -> bool {
        !self.sheet.is_sole() && (0..self.words()).any(|word| self.live_word(word) != 0)
    }

    /// The slots that are live, lowest first.
    pub fn live(&self) -> impl Iterator<Item = SlotIndex> {
        (0..self.words()).flat_map(|word| SlotIndex::in_word(word, self.live_word(word)))
    }

    /// The slots that have died since this was last asked, or since the last run: their blocks can be given back.
    ///
    /// A drop only clears a bit. Whoever owns the pool asks for the deaths when it is about to use the pool. A death counts
    /// as reported when the iterator has yielded it.
    pub fn died(&mut self) -> impl Iterator<Item = SlotIndex> {
        let mut word = 0;
        std::iter::from_fn(move || {
            while word < self.words() {
                let live = self.live_word(word);
                let seen = self.seen.get_mut(word as usize)?;
                if let Some(slot) = SlotIndex::in_word(word, *seen & !live).next() {
                    *seen &= !slot.bit();
                    self.is_marked = true;
                    return Some(slot);
                }
                word += 1;
            }
            None
        })
    }

    /// The block of a slot: its address and length in bytes. None if the output owns no slot.
    #[must_use]
    pub fn block(&self, slot: SlotIndex) -> Option<(DevicePtr, u64)> {
        self.sheet.table.owns(slot).then(|| self.sheet.table.output(slot)?.block).flatten()
    }

    /// Whether a live slot has one holder, which is a handle, and has had no other in this run: the short answer to
    /// [`holders`](Self::holders), where false says nothing.
    #[must_use]
    #[inline]
    pub fn is_sole_handle(&self, slot: SlotIndex) -> bool {
        self.sheet.is_sole_handle(slot) && self.is_live(slot)
    }

    /// Who keeps a slot alive in this run.
    #[must_use]
    pub fn holders(&self, slot: SlotIndex) -> Holders {
        if self.is_live(slot) { self.sheet.holders(slot) } else { Holders::default() }
    }

    /// Where in the program handles of a live slot were handed out in this run; empty unless the ledger
    /// [notes](Ledger::note_takers) it. Some of the handles may be gone: [`holders`](Self::holders) says how many are left.
    #[must_use]
    pub fn takers(&self, slot: SlotIndex) -> Vec<Taker> {
        if self.is_live(slot) { lock(&self.sheet.takers).of(slot, self.epoch) } else { Vec::new() }
    }
}

/// Handles of outputs in memory of others.
struct Brought {
    /// For the caller.
    borrowed: Vec<Borrowed>,
    /// For the backward.
    saved: Vec<(SlotIndex, Tensor)>,
}

/// Makes the handles of outputs in memory of others; none if there are no such outputs. The sheet is free.
///
/// They are laid on the sheet when the run begins, in the room that those of its last run left: nothing is there, and no
/// lock is held, while `source` runs, which is the caller's code and may end early.
fn bring(
    sheet: &Sheet,
    mut source: impl FnMut(SlotIndex, OutputClass) -> Option<Tensor>,
) -> Result<Option<Brought>, Error> {
    if sheet.table.sourced.is_empty() {
        return Ok(None);
    }
    let mut borrowed = std::mem::take(&mut *lock(&sheet.borrowed));
    let mut saved = std::mem::take(&mut *lock(&sheet.saved_elsewhere));
    for &output in &sheet.table.sourced {
        let Some(planned) = sheet.table.output(output) else { continue };
        let brought = source(output, planned.class).ok_or(Error::NoSource { output })?;
        let from = if let OutputClass::EarlierSlot { value, .. } = planned.class {
            let given = brought.storage().id()?;
            let is_right = brought
                .storage()
                .slot_value()?
                .is_some_and(|given| (given.slab, given.slot) == (value.slab, value.slot));
            if !is_right {
                return Err(Error::WrongSource { output, given });
            }
            0
        } else {
            brought.offset_bytes()
        };
        let layout = planned.layout.clone().ok_or(Error::BadOutput { output })?;
        let offset = from.checked_add_signed(planned.offset).ok_or(if planned.offset < 0 {
            Error::BeforeStorage { before: planned.offset.unsigned_abs() - from }
        } else {
            Error::TooLarge
        })?;
        let tensor = Tensor::with(brought.into_storage(), layout, offset)?;
        if planned.readers.backward() {
            saved.push((output, tensor.clone()));
        }
        if planned.readers.caller() {
            borrowed.push((output, Some(tensor)));
        }
    }
    Ok(Some(Brought { borrowed, saved }))
}

/// Makes the blocks of a recording's own tensors those of its slots, and returns what owned them.
///
/// Preconditions: nothing has been taken from or dropped of what was handed back; what is recorded for a slot lies in its
/// block.
fn adopt(back: &HandedBack, recorded: &[Option<Tensor>]) -> Vec<(SlotIndex, Owner)> {
    let sheet = back.outputs.sheet();
    let mut owners = Vec::new();
    for (slot, tensor) in (0..).map(SlotIndex::new).zip(recorded) {
        let block = tensor.as_ref().and_then(|tensor| tensor.storage().unadopted());
        let Some(block) = block.filter(|_| sheet.table.owns(slot)) else { continue };
        sheet.hold_again(slot);
        // SAFETY: `back` holds the slot, and nothing of it has been let go of; the holder taken over was added just now.
        let hold = unsafe { sheet.take_over(slot) };
        if let Some(owner) = block.adopt(hold) {
            owners.push((slot, owner));
        }
    }
    owners
}

impl Drop for Slab {
    fn drop(&mut self) {
        // Nobody can sweep any more: what is not let go of here waits for the last handle of its run.
        for sheet in self.retired.iter().chain([&self.sheet]) {
            sheet.sweep();
            let was_elsewhere = sheet.leave_home();
            sheet.tidy();
            // Whatever is held by now, another thread may be about to note at its home that it has let go.
            if was_elsewhere && !sheet.is_sole() {
                orphans::leave(sheet);
            }
        }
        orphans::sweep();
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live: Vec<_> = self.live().map(SlotIndex::get).collect();
        write!(f, "Slab({} of {}, {}, live {live:?})", self.id(), self.producer(), self.epoch)
    }
}
