//! The unit in which offsets and sizes are counted.

use crate::error::PoolError;

/// The unit of all offsets and sizes: a power of two of bytes.
///
/// Sizes are rounded up to whole granules, and every offset is a multiple of the granule. Inside, 32-bit counts of granules keep the
/// tables small, so a region spans at most 2^32 - 1 granules: 2 TiB at the default of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granule {
    shift: u32,
}

impl Granule {
    /// 512 bytes: the rounding of `torch`'s caching allocator, and at least the alignment that `cuMemAlloc` promises.
    pub const DEFAULT: Self = Self { shift: 9 };

    /// The most granules that one region can span.
    pub(super) const MAX_COUNT: u32 = u32::MAX - 1;

    /// A granule of `bytes`.
    ///
    /// # Errors
    ///
    /// [`PoolError::BadAlignment`] if `bytes` is not a power of two.
    pub fn new(bytes: u64) -> Result<Self, PoolError> {
        if !bytes.is_power_of_two() {
            return Err(PoolError::BadAlignment { align: bytes });
        }
        Ok(Self { shift: bytes.trailing_zeros() })
    }

    /// The size of the granule in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// `count` granules in bytes.
    pub(super) fn to_bytes(self, count: u32) -> u64 {
        u64::from(count) << self.shift
    }

    /// The whole granules that hold `bytes`, or `None` if no region could hold them.
    pub(crate) fn ceil(self, bytes: u64) -> Option<u32> {
        let whole = bytes >> self.shift;
        let part = u64::from(whole << self.shift != bytes);
        u32::try_from(whole + part).ok().filter(|&count| count <= Self::MAX_COUNT)
    }

    /// The whole granules that fit in `bytes`, or `None` if that is more than a region can span.
    pub(super) fn floor(self, bytes: u64) -> Option<u32> {
        u32::try_from(bytes >> self.shift).ok().filter(|&count| count <= Self::MAX_COUNT)
    }

    /// The most bytes that one region can span.
    pub(crate) fn longest(self) -> u64 {
        self.to_bytes(Self::MAX_COUNT)
    }

    /// The alignment `align` in granules, at least one.
    pub(crate) fn alignment(self, align: u64) -> Result<u32, PoolError> {
        if !align.is_power_of_two() {
            return Err(PoolError::BadAlignment { align });
        }
        u32::try_from((align >> self.shift).max(1)).map_err(|_| PoolError::BadAlignment { align })
    }
}

impl Default for Granule {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_whole_granules() {
        let granule = Granule::DEFAULT;
        assert_eq!(granule.ceil(1), Some(1));
        assert_eq!(granule.ceil(512), Some(1));
        assert_eq!(granule.ceil(513), Some(2));
        assert_eq!(granule.to_bytes(3), 1536);
    }

    #[test]
    fn a_size_beyond_any_region_has_no_count() {
        assert_eq!(Granule::DEFAULT.ceil(u64::MAX), None);
        assert_eq!(Granule::DEFAULT.ceil((1 << 41) - 1024), Some(u32::MAX - 1));
        assert_eq!(Granule::DEFAULT.ceil((1 << 41) - 1023), None);
    }

    #[test]
    fn only_powers_of_two_are_granules_and_alignments() {
        assert!(matches!(Granule::new(0), Err(PoolError::BadAlignment { align: 0 })));
        assert!(matches!(Granule::new(48), Err(PoolError::BadAlignment { align: 48 })));
        assert!(matches!(Granule::DEFAULT.alignment(768), Err(PoolError::BadAlignment { align: 768 })));
        assert_eq!(Granule::DEFAULT.alignment(256).ok(), Some(1));
        assert_eq!(Granule::DEFAULT.alignment(2048).ok(), Some(4));
    }
}
