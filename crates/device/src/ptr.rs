//! Raw device addresses.

use std::fmt;

/// An address in device memory, in bytes. Zero is null and belongs to no allocation.
///
/// It carries no ownership and no provenance: it is what a recorded graph has frozen into its nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePtr(u64);

impl DevicePtr {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// Wraps an address in bytes.
    #[must_use]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The address in bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is the null address.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on, or `None` if that passes the end of the address space.
    #[must_use]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }

    /// The distance in bytes from `base` to this address, or `None` if this address lies before it.
    #[must_use]
    pub const fn offset_from(self, base: Self) -> Option<u64> {
        self.0.checked_sub(base.0)
    }

    /// Whether the address is a multiple of `alignment` bytes. No address is a multiple of zero but zero itself.
    #[must_use]
    pub const fn is_aligned_to(self, alignment: u64) -> bool {
        self.0.is_multiple_of(alignment)
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePtr({:#x})", self.0)
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_past_the_end_of_the_address_space_gives_none() {
        assert_eq!(DevicePtr::new(u64::MAX).checked_add(1), None);
        assert_eq!(DevicePtr::new(16).checked_add(8), Some(DevicePtr::new(24)));
    }

    #[test]
    fn offsets_are_measured_forwards_only() {
        let base = DevicePtr::new(256);
        assert_eq!(DevicePtr::new(300).offset_from(base), Some(44));
        assert_eq!(base.offset_from(DevicePtr::new(300)), None);
    }

    #[test]
    fn alignment_counts_from_address_zero() {
        assert!(DevicePtr::new(512).is_aligned_to(256));
        assert!(!DevicePtr::new(516).is_aligned_to(16));
    }

    #[test]
    fn addresses_print_in_hexadecimal() {
        assert_eq!(DevicePtr::new(0x2a00).to_string(), "0x2a00");
        assert_eq!(format!("{:?}", DevicePtr::NULL), "DevicePtr(0x0)");
        assert!(DevicePtr::NULL.is_null());
    }
}
