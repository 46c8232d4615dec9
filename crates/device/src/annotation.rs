//! What a pool tells a memory checker.

use crate::DevicePtr;

/// What a range of device memory is from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Annotation {
    /// The range was handed out under a label. Its contents are undefined until written.
    Acquired {
        /// Start of the range.
        at: DevicePtr,
        /// Length of the range in bytes.
        bytes: u64,
        /// What the range is for, as findings name it.
        label: &'static str,
    },
    /// The range was given back. Any access to it is a use after free until it is handed out again.
    Released {
        /// Start of the range.
        at: DevicePtr,
        /// Length of the range in bytes.
        bytes: u64,
    },
}
