//! How a pool obtains memory, and how much.

/// How much memory a pool obtains at once when it has no room.
///
/// Asking the device seldom and for large pieces keeps the pool's memory together: many small segments, interleaved with those of
/// others, cannot be put together again (pytorch/pytorch#196378). The sizes are those of `torch`'s caching allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Requests up to so many bytes are small.
    pub small_limit: u64,
    /// Bytes of a segment that a small request brings about.
    pub small: u64,
    /// Bytes of a segment that a larger request brings about. One of more than half of it gets a segment of its own size. A growing
    /// range is mapped, and given back, in pieces of at most this size.
    pub large: u64,
    /// Segments are multiples of so many bytes.
    pub unit: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { small_limit: 1 << 20, small: 2 << 20, large: 20 << 20, unit: 2 << 20 }
    }
}

impl Growth {
    /// How long a segment should be that is obtained for a request of `bytes`.
    #[must_use]
    pub fn segment(&self, bytes: u64) -> u64 {
        if bytes <= self.small_limit {
            self.small.max(bytes)
        } else if bytes <= self.large / 2 {
            self.large
        } else {
            bytes.checked_next_multiple_of(self.unit.max(1)).unwrap_or(bytes)
        }
    }
}

/// Whether a pool is one growing range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Range {
    /// Where the device can, a range as long as its memory; segments elsewhere.
    #[default]
    Auto,
    /// Segments only.
    Never,
    /// A range of so many bytes; segments once it is full, or where the device cannot.
    Bytes(u64),
}

/// How a pool is set up.
///
/// ```
/// use graphgrove_pool::pool::{PoolConfig, Range};
///
/// let config = PoolConfig { budget: Some(1 << 30), prime: 256 << 20, range: Range::Never, ..PoolConfig::default() };
/// assert_eq!(config.growth.segment(4096), 2 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolConfig {
    /// How much is obtained at once.
    pub growth: Growth,
    /// The most bytes that the pool may hold from the device; no limit if `None`.
    pub budget: Option<u64>,
    /// Bytes to obtain at the start, as one piece; 0 for none.
    pub prime: u64,
    /// Whether the pool is one growing range.
    pub range: Range,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_holds_its_request_and_comes_in_few_sizes() {
        let growth = Growth::default();
        let mib = 1 << 20;
        assert_eq!(growth.segment(1), 2 * mib);
        assert_eq!(growth.segment(mib), 2 * mib);
        assert_eq!(growth.segment(mib + 1), 20 * mib);
        assert_eq!(growth.segment(10 * mib), 20 * mib);
        assert_eq!(growth.segment(10 * mib + 1), 12 * mib);
        assert_eq!(growth.segment(31 * mib), 32 * mib);
    }

    #[test]
    fn a_segment_is_never_shorter_than_its_request_whatever_the_figures() {
        let growth = Growth { small_limit: 4096, small: 512, large: 1024, unit: 0 };
        for bytes in [1, 511, 512, 513, 4096, 4097, 9000, u64::MAX] {
            assert!(growth.segment(bytes) >= bytes, "{bytes}");
        }
    }
}
