//! Random choices, the same for the same seed.

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from the first to the last one.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        let count = last.saturating_sub(first).saturating_add(1);
        first + self.next() % count
    }

    /// A whole number from -4 to 4.
    pub(crate) fn small(&mut self) -> f32 {
        self.between(0, 8) as f32 - 4.0
    }
}
