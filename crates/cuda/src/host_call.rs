//! Host functions that a stream calls.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::shared::lock;

/// A host function. Two execs of one graph may reach it at the same time, so it is behind a lock.
pub(crate) struct HostCall(Mutex<Box<dyn FnMut() + Send>>);

impl HostCall {
    pub(crate) fn new(call: Box<dyn FnMut() + Send>) -> Self {
        Self(Mutex::new(call))
    }

    /// What the driver calls, with the address of a `HostCall`.
    ///
    /// # Safety
    /// `data` is the address of a live `HostCall`.
    pub(crate) unsafe extern "C" fn trampoline(data: *mut c_void) {
        // SAFETY: by the promise of this function.
        let call = unsafe { &*data.cast::<Self>() };
        // A panic may not cross into the driver. It has been reported by the panic hook, and there is nobody to hand it to.
        let _ = catch_unwind(AssertUnwindSafe(|| lock(&call.0)()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_driver_may_call_it_again_and_again_even_after_a_panic() {
        let count = Arc::new(AtomicU32::new(0));
        let inner = Arc::clone(&count);
        let call = HostCall::new(Box::new(move || {
            let before = inner.fetch_add(1, Ordering::Relaxed);
            assert_ne!(before, 1, "the second call panics on purpose");
        }));
        for _ in 0..3 {
            // SAFETY: the address is that of a live value.
            unsafe { HostCall::trampoline((&raw const call).cast_mut().cast()) };
        }
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
