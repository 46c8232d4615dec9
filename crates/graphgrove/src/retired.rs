//! What is left of a grove that is gone.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_pool::pool::Pool;
use graphgrove_storage::Ledger;

use crate::budget::Budget;
use crate::grove::Grove;

/// The memory of a grove that is gone, under handles that are not.
pub(crate) struct Retired<D: Device> {
    ledger: Arc<Ledger>,
    pool: Pool<D>,
    serial: u64,
    budget: Arc<Budget>,
}

impl<D: Device> Drop for Retired<D> {
    fn drop(&mut self) {
        self.budget.forget(self.serial);
    }
}

impl<D: Device> Retired<D> {
    /// The bytes of its pool.
    pub(crate) fn budgeted(&self) -> u64 {
        self.pool.stats().ranges.reserved
    }

    /// Whether a handle is left.
    pub(crate) fn is_needed(&self) -> bool {
        !self.ledger.all_dead()
    }

    /// Applies the drops so far, and says whether a handle is left. If none is, the device hears nothing of this memory any more after
    /// what it has been told now: once it has run to here the memory can go.
    pub(crate) fn settle(&self) -> bool {
        let is_needed = self.is_needed();
        self.pool.settle();
        is_needed
    }
}

impl<D: Device> Grove<D> {
    /// As [`Retired::settle`].
    pub(crate) fn settle(&self) -> bool {
        let is_needed = !self.ledger.all_dead();
        self.pool.settle();
        is_needed
    }

    /// Forgets everything but the memory.
    pub(crate) fn retire(self) -> Retired<D> {
        let retired = Retired {
            serial: self.options.serial,
            ledger: self.ledger,
            pool: self.pool,
            budget: self.budget,
        };
        drop(self.replayer);
        retired.budget.note(retired.serial, retired.budgeted());
        retired
    }
}
