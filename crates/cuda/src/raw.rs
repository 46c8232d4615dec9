//! Driver handles that may cross threads.

/// An opaque handle of the driver.
///
/// The driver only compares and looks up such a pointer; nothing here ever dereferences one.
#[derive(Debug)]
pub(crate) struct Raw<T>(pub(crate) *mut T);

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Raw<T> {}

impl<T> PartialEq for Raw<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Raw<T> {}

// SAFETY: the pointer is a number to this program, and the driver takes it from any thread. The objects that the driver
// does not guard itself (graphs and execs) are behind a mutex or `&mut` where they are used.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as for `Send`; a shared reference gives no more than a copy of the number.
unsafe impl<T> Sync for Raw<T> {}
