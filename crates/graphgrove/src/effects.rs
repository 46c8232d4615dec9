//! Whether a call has changed anything that outlives it.

use std::cell::Cell;
use std::collections::BTreeMap;

use graphgrove_device::{ArgKind, Args, DevicePtr};

/// What a running function has done to memory that it was given, as far as anybody can tell. As long as it has done nothing, the call can
/// be thrown away and begun anew.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// A (start -> end) pair means that the call has got this memory for itself.
    own: BTreeMap<u64, u64>,
    has_written: bool,
    /// Whether there may be work of which nobody knows what it writes.
    has_unknown: Cell<bool>,
}

impl Effects {
    /// The call has got memory for itself.
    pub(crate) fn note_own(&mut self, at: DevicePtr, bytes: u64) {
        self.own.insert(at.get(), at.get().saturating_add(bytes));
    }

    /// Work was enqueued that writes to an address.
    pub(crate) fn note_write(&mut self, at: DevicePtr) {
        let before = self.own.range(..=at.get()).next_back();
        self.has_written |= before.is_none_or(|(_, end)| at.get() >= *end);
    }

    /// A kernel was enqueued.
    pub(crate) fn note_kernel(&mut self, args: &Args) {
        for (at, field) in args.fields().iter().enumerate() {
            match field.kind {
                ArgKind::Pointer(access) if access.writes() => {
                    self.note_write(args.pointer(at).unwrap_or(DevicePtr::NULL));
                }
                ArgKind::Blob => self.note_unknown(),
                ArgKind::Pointer(_) | ArgKind::Scalar => {}
            }
        }
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
        effects.note_write(DevicePtr::new(0x10ff));
        let elsewhere = DevicePtr::new(0x2000);
        effects.note_kernel(&Args::new().write(DevicePtr::new(0x1000)).read(elsewhere).scalar(0x2000_u64));
        assert!(effects.is_clean(true));
    }

    #[test]
    fn what_it_writes_to_other_memory_is() {
        for at in [0xfff, 0x1100, 0] {
            let mut effects = own();
            effects.note_write(DevicePtr::new(at));
            assert!(!effects.is_clean(false), "{at:#x}");
            let mut effects = own();
            effects.note_kernel(&Args::new().read_write(DevicePtr::new(at)));
            assert!(!effects.is_clean(false), "{at:#x}");
        }
    }

    #[test]
    fn unknown_work_of_a_function_that_writes_to_what_it_is_given_may_have_done_so() {
        let mut effects = own();
        effects.note_kernel(&Args::new().blob(&[1; 8]));
        assert!(effects.is_clean(false) && !effects.is_clean(true));
    }
}
