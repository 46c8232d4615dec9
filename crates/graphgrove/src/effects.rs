//! What a call writes to: whether that outlives it, and whether it may.

use std::cell::Cell;
use std::collections::BTreeMap;

use graphgrove_device::{ArgKind, Args, DevicePtr};

/// What a running function has done to memory that it was given, as far as anybody can tell. As long as it has done nothing, the call can
/// be thrown away and begun anew.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// A (start -> end) pair means that the call has got this memory for itself.
    own: BTreeMap<u64, u64>,
    /// Inputs that it may not write to, in the order of where they start, and those that it may.
    guarded: Vec<Guarded>,
    open: Vec<(u64, u64)>,
    has_written: bool,
    /// Whether there may be work of which nobody knows what it writes.
    has_unknown: Cell<bool>,
}

/// An input that its function does not say it writes to.
#[derive(Clone, Copy, Debug)]
struct Guarded {
    start: u64,
    end: u64,
    /// How far it and all before it reach, so that what lies behind them need not be compared with each.
    reach: u64,
    /// When it was noted: of several that an address lies in, the first is named.
    number: usize,
    input: InputOf,
}

/// An input as the function counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputOf {
    pub(crate) what: &'static str,
    pub(crate) index: usize,
}

impl Effects {
    /// The call has got memory for itself. What of its inputs lay there is gone.
    pub(crate) fn note_own(&mut self, at: DevicePtr, bytes: u64) {
        let (start, end) = (at.get(), at.get().saturating_add(bytes));
        self.own.insert(start, end);
        if self.guarded_up_to(end).last().is_some_and(|last| last.reach > start) {
            self.guarded.retain(|guarded| guarded.end <= start || end <= guarded.start);
        }
    }

    /// The inputs that it may not write to and that start before an address.
    fn guarded_up_to(&self, end: u64) -> &[Guarded] {
        let count = self.guarded.partition_point(|guarded| guarded.start < end);
        self.guarded.get(..count).unwrap_or_default()
    }

    /// The call has an input here, and may write to it or not. A replay would lose, or do to a copy, what it writes there undeclared.
    pub(crate) fn note_input(&mut self, at: DevicePtr, bytes: u64, input: InputOf, is_open: bool) {
        let (start, end) = (at.get(), at.get().saturating_add(bytes));
        match is_open {
            true => self.open.push((start, end)),
            false => {
                let number = self.guarded.len();
                self.guarded.push(Guarded { start, end, reach: end, number, input });
            }
        }
    }

    /// The call has no other inputs than those that were noted.
    pub(crate) fn has_all_inputs(&mut self) {
        self.guarded.sort_by_key(|guarded| guarded.start);
        let mut reach = 0;
        for guarded in &mut self.guarded {
            reach = reach.max(guarded.end);
            guarded.reach = reach;
        }
    }

    /// Work is about to be enqueued that writes to an address.
    ///
    /// # Errors
    /// The input there, if the call may not write to it.
    pub(crate) fn note_write(&mut self, at: DevicePtr) -> Result<(), InputOf> {
        let at = at.get();
        let near =
            self.guarded_up_to(at.saturating_add(1)).iter().rev().take_while(|guarded| guarded.reach > at);
        if let Some(guarded) = near.filter(|guarded| at < guarded.end).min_by_key(|guarded| guarded.number)
            && !self.open.iter().any(|(start, end)| (*start..*end).contains(&at))
        {
            return Err(guarded.input);
        }
        let before = self.own.range(..=at).next_back();
        self.has_written |= before.is_none_or(|(_, end)| at >= *end);
        Ok(())
    }

    /// A kernel is about to be enqueued.
    ///
    /// # Errors
    /// As [`note_write`](Self::note_write).
    pub(crate) fn note_kernel(&mut self, args: &Args) -> Result<(), InputOf> {
        for (at, field) in args.fields().iter().enumerate() {
            match field.kind {
                ArgKind::Pointer(access) if access.writes() => {
                    self.note_write(args.pointer(at).unwrap_or(DevicePtr::NULL))?;
                }
                ArgKind::Blob => self.note_unknown(),
                ArgKind::Pointer(_) | ArgKind::Scalar => {}
            }
        }
        Ok(())
    }

    /// Work may have been enqueued of which nobody knows what it writes.
    pub(crate) fn note_unknown(&self) {
        self.has_unknown.set(true);
    }

    /// Whether nothing that the call was given has changed. `mutates` says whether its function writes to what it is given at all.
    pub(crate) fn is_clean(&self, mutates: bool) -> bool {
        !(self.has_written || mutates && self.has_unknown.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Effects {
        let mut effects = Effects::default();
        effects.note_own(DevicePtr::new(0x1000), 0x100);
        effects
    }

    #[test]
    fn what_a_call_writes_to_memory_of_its_own_is_no_effect() {
        let mut effects = own();
        effects.note_write(DevicePtr::new(0x10ff)).unwrap();
        let elsewhere = DevicePtr::new(0x2000);
        let args = Args::new().write(DevicePtr::new(0x1000)).read(elsewhere).scalar(0x2000_u64);
        effects.note_kernel(&args).unwrap();
        assert!(effects.is_clean(true));
    }

    #[test]
    fn what_it_writes_to_other_memory_is() {
        for at in [0xfff, 0x1100, 0] {
            let mut effects = own();
            effects.note_write(DevicePtr::new(at)).unwrap();
            assert!(!effects.is_clean(false), "{at:#x}");
            let mut effects = own();
            effects.note_kernel(&Args::new().read_write(DevicePtr::new(at))).unwrap();
            assert!(!effects.is_clean(false), "{at:#x}");
        }
    }

    #[test]
    fn unknown_work_of_a_function_that_writes_to_what_it_is_given_may_have_done_so() {
        let mut effects = own();
        effects.note_kernel(&Args::new().blob(&[1; 8])).unwrap();
        assert!(effects.is_clean(false) && !effects.is_clean(true));
    }

    #[test]
    fn what_it_writes_to_an_input_that_is_not_open_is_refused_unless_the_input_is_gone() {
        let input = |index| InputOf { what: "input", index };
        let mut effects = own();
        effects.note_input(DevicePtr::new(0x2000), 0x100, input(0), false);
        effects.note_input(DevicePtr::new(0x2080), 0x100, input(1), true);
        effects.note_input(DevicePtr::new(0x1800), 0x100, input(2), false);
        effects.note_input(DevicePtr::new(0x1880), 0x80, input(3), false);
        effects.has_all_inputs();
        let mut write = |at: u64| effects.note_write(DevicePtr::new(at));
        assert_eq!([write(0x1fff), write(0x2000), write(0x207f)], [Ok(()), Err(input(0)), Err(input(0))]);
        assert_eq!([write(0x2080), write(0x20ff), write(0x2100)], [Ok(()); 3]);
        assert_eq!([write(0x17ff), write(0x18ff), write(0x1900)], [Ok(()), Err(input(2)), Ok(())]);
        let args = Args::new().read(DevicePtr::new(0x2000)).read_write(DevicePtr::new(0x2010));
        assert_eq!(effects.note_kernel(&args), Err(input(0)));
        effects.note_own(DevicePtr::new(0x2000), 0x10);
        assert_eq!(effects.note_kernel(&args), Ok(()));
    }
}
