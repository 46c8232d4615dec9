//! How often the driver was called.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use graphgrove_device::Call;

#[derive(Debug)]
pub(crate) struct Counters([AtomicU64; Call::COUNT]);

impl Counters {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Call::COUNT])
    }

    pub(crate) fn add(&self, call: Call) {
        self.0[call.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> CallCounts {
        CallCounts(std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}

/// How often each operation was called, whether it went well or not.
///
/// ```
/// use graphgrove_device::{Call, Memory};
/// use graphgrove_sim::SimDevice;
///
/// let device = SimDevice::new();
/// let before = device.counts();
/// let segment = device.allocate(4096).unwrap();
/// drop(segment);
/// let made = device.counts().since(&before);
/// assert_eq!((made.of(Call::Allocate), made.of(Call::Free), made.total()), (1, 1, 2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCounts([u64; Call::COUNT]);

impl CallCounts {
    /// How often one operation was called.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.0[call.index()]
    }

    /// How often the driver was called in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What has been called since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }
}

impl fmt::Display for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (call, count) in Call::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0) {
            write!(f, "{}{count} {call}", if first { "" } else { ", " })?;
            first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_since_a_snapshot_leave_out_what_came_before() {
        let counters = Counters::new();
        counters.add(Call::Copy);
        let before = counters.snapshot();
        counters.add(Call::Copy);
        counters.add(Call::Fill);
        let since = counters.snapshot().since(&before);
        assert_eq!((since.of(Call::Copy), since.of(Call::Fill), since.total()), (1, 1, 2));
        assert_eq!(since.to_string(), "1 copy, 1 fill");
    }
}
