//! Who took the handles of a slot: names for what otherwise is a number.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::{Epoch, SlotIndex};

/// Where in the program a handle of a slot's memory was handed out.
///
/// Clones and views of it are not followed: whoever has one got it from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taker {
    /// The function whose output was taken, which need not be the one that made the memory.
    pub producer: Arc<str>,
    /// The output that was taken.
    pub output: SlotIndex,
    /// The line that took it.
    pub at: &'static Location<'static>,
    /// How often that happened in this run of the slot's node.
    pub times: u64,
}

impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { producer, output, at, times } = self;
        write!(f, "{output} of {producer} was taken at {at}")?;
        if *times > 1 { write!(f, ", {times} times") } else { Ok(()) }
    }
}

/// The takers of the slots of one sheet, in one run.
#[derive(Default)]
pub(crate) struct Takers {
    /// The run. Notes of an earlier one are forgotten with the first of the next, so that a run without notes pays nothing.
    epoch: Epoch,
    /// A (slot, taker) pair means: the taker has been given a handle of the slot. A place in the program is there once, so
    /// the list does not grow with the calls.
    notes: Vec<(SlotIndex, Taker)>,
}

impl Takers {
    /// Notes that a handle of a slot was handed out in a run.
    pub(crate) fn note(&mut self, slot: SlotIndex, epoch: Epoch, taker: Taker) {
        if self.epoch != epoch {
            self.notes.clear();
            self.epoch = epoch;
        }
        let same = |other: &Taker| {
            (&other.producer, other.output, other.at) == (&taker.producer, taker.output, taker.at)
        };
        match self.notes.iter_mut().find(|(of, other)| *of == slot && same(other)) {
            Some((_, known)) => known.times += taker.times,
            None => self.notes.push((slot, taker)),
        }
    }

    /// Who was given handles of a slot in a run.
    pub(crate) fn of(&self, slot: SlotIndex, epoch: Epoch) -> Vec<Taker> {
        let notes = self.notes.iter().filter(|(of, _)| self.epoch == epoch && *of == slot);
        notes.map(|(_, taker)| taker.clone()).collect()
    }
}
