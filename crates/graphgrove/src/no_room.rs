//! What becomes of a warm-up that finds no room in the pool: it is thrown away, and the call runs plainly, if nothing has happened yet.

use graphgrove_device::{Device, DeviceError};
use graphgrove_pool::PoolError;

use crate::describe::Described;
use crate::effects::Effects;
use crate::grove::{Done, Grove, Request};
use crate::recorded::GivenUp;
use crate::{Arg, Error, Result};

/// How far a warm-up has come.
#[derive(Default)]
pub(crate) struct Attempt {
    pub(crate) effects: Effects,
    /// The inputs whose last handles it has let go of.
    pub(crate) given_up: Vec<GivenUp>,
    /// Whether the function has returned. From then on what it wrote is copied to where it belongs.
    pub(crate) is_over: bool,
}

impl Attempt {
    /// Whether the call can be run in another way after this error, as if nothing had been.
    pub(crate) fn may_run_plainly<D: Device>(&self, request: &Request<'_, D>, error: &Error) -> bool {
        let options = &request.data.options;
        let mutates = options.mutates_params || !options.mutates.is_empty();
        is_out_of_memory(error) && !self.is_over && self.effects.is_clean(mutates)
    }
}

impl<D: Device> Grove<D> {
    /// Runs a call plainly whose warm-up has found no room and was thrown away: what nobody needs goes back to the device first.
    pub(crate) fn run_without_room(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        described: &Described,
        attempt: &Attempt,
        error: &Error,
    ) -> Result<Done> {
        self.stats.failures += 1;
        // The plain run says what is wrong with a device that cannot even give memory back.
        let _ = self.pool.trim();
        let _ = self.plain.trim();
        // What the function has given back may have been written over since; what it has only dropped has not.
        let are_there = attempt.given_up.iter().all(|input| self.pool.is_live(input.block));
        if !are_there || self.bring_back(args, &attempt.given_up).is_err() {
            return Err(Error::InputsGone {
                function: request.data.name.to_string(),
                cause: error.to_string(),
            });
        }
        self.run_plainly(request, args, described, Some(error.to_string()))
    }
}

fn is_out_of_memory(error: &Error) -> bool {
    matches!(
        error,
        Error::Pool(PoolError::Exhausted(_) | PoolError::Device(DeviceError::OutOfMemory { .. }))
            | Error::Device(DeviceError::OutOfMemory { .. })
    )
}
