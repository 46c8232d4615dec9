//! Atomics, locks and what threads have of their own: those of the standard library, or loom's where the code runs under its
//! model checker.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Locks, whether or not another holder panicked: what the locks of this crate guard is valid between any two
/// statements of a holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A static. Its value need not be a constant for loom, which makes it anew for each interleaving.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        static $name: $type = $value;
        #[cfg(loom)]
        loom::lazy_static! { static ref $name: $type = $value; }
    };
}
pub(crate) use global;

/// What each thread has one of, likewise.
macro_rules! per_thread {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        thread_local! { $(#[$meta])* static $name: $type = const { $value }; }
        #[cfg(loom)]
        loom::thread_local! { $(#[$meta])* static $name: $type = $value; }
    };
}
pub(crate) use per_thread;
