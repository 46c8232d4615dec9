//! Failures on demand.

use graphgrove_device::{Call, DeviceError};

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The call returns [`DeviceError::OutOfMemory`] and does nothing. The error does not say how many bytes were asked: it says
    /// zero.
    OutOfMemory,
    /// The call returns [`DeviceError::Driver`] with this number and does nothing.
    Driver(i32),
    /// The call invalidates every capture that is open, and then goes on as it would.
    InvalidateCaptures,
    /// The device is poisoned: the call and every later one return [`DeviceError::Fault`].
    Poison,
}

/// A failure that is planned for one call to come.
///
/// ```
/// use graphgrove_device::{Call, Memory};
/// use graphgrove_sim::{Failure, Fault, SimDevice};
///
/// let device = SimDevice::new();
/// device.inject(Fault::at(Call::Allocate, 2, Failure::OutOfMemory));
/// assert!(device.allocate(1024).is_ok());
/// assert!(device.allocate(1024).is_err());
/// assert!(device.allocate(1024).is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    call: Option<Call>,
    left: u64,
    failure: Failure,
}

impl Fault {
    /// The `nth` call of a kind from now on fails, counted from 1.
    #[must_use]
    pub const fn at(call: Call, nth: u64, failure: Failure) -> Self {
        Self { call: Some(call), left: nth, failure }
    }

    /// The `nth` call of any kind from now on fails, counted from 1. Destructions and aborted captures do not count: they cannot
    /// fail.
    #[must_use]
    pub const fn at_any(nth: u64, failure: Failure) -> Self {
        Self { call: None, left: nth, failure }
    }
}

/// The failures that are still to come.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan(Vec<Fault>);

impl FaultPlan {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts a call, and says what goes wrong with it.
    pub(crate) fn meet(&mut self, call: Call) -> Option<Failure> {
        if call == Call::AbortCapture {
            return None;
        }
        let mut due = None;
        self.0.retain_mut(|fault| {
            if fault.call.is_some_and(|planned| planned != call) {
                return true;
            }
            fault.left = fault.left.saturating_sub(1);
            if fault.left == 0 && due.is_none() {
                due = Some(fault.failure.clone());
                return false;
            }
            true
        });
        due
    }
}

impl Failure {
    pub(crate) fn error(&self, call: Call, free: u64, total: u64) -> Option<DeviceError> {
        match self {
            Self::OutOfMemory => Some(DeviceError::OutOfMemory { call, bytes: 0, free, total }),
            Self::Driver(code) => {
                Some(DeviceError::Driver { call, code: *code, name: "injected".to_owned() })
            }
            Self::InvalidateCaptures => None,
            Self::Poison => Some(DeviceError::Fault { cause: "injected".to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_met_once_at_its_count() {
        let mut plan = FaultPlan::default();
        plan.add(Fault::at(Call::Copy, 2, Failure::Poison));
        assert_eq!(plan.meet(Call::Copy), None);
        assert_eq!(plan.meet(Call::Fill), None);
        assert_eq!(plan.meet(Call::Copy), Some(Failure::Poison));
        assert_eq!(plan.meet(Call::Copy), None);
        assert!(plan.is_empty());
    }

    #[test]
    fn a_fault_at_any_call_counts_them_all() {
        let mut plan = FaultPlan::default();
        plan.add(Fault::at_any(2, Failure::Driver(1)));
        assert_eq!(plan.meet(Call::Copy), None);
        assert_eq!(plan.meet(Call::Fill), Some(Failure::Driver(1)));
    }

    #[test]
    fn two_faults_that_are_due_at_once_are_met_one_after_the_other() {
        let mut plan = FaultPlan::default();
        plan.add(Fault::at(Call::Copy, 1, Failure::Poison));
        plan.add(Fault::at(Call::Copy, 1, Failure::OutOfMemory));
        assert_eq!(plan.meet(Call::Copy), Some(Failure::Poison));
        assert_eq!(plan.meet(Call::Copy), Some(Failure::OutOfMemory));
    }
}
