//! One word that stands for a layout.

use std::fmt;

/// What must be equal for a recording to fit an input: element type, shape and strides, folded into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature(u64);

impl Signature {
    /// Stands where no layout is known. No layout has it.
    pub(crate) const UNKNOWN: Self = Self(0);

    /// The word.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sig{:016x}", self.0)
    }
}

/// Folds words into a signature. Each word goes through a multiplication of 64 by 64 bits whose two halves are folded, so
/// every bit of it reaches every bit of the result, and the order of the words matters.
pub(crate) struct Signer(u64);

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

impl Signer {
    pub(crate) const fn new(kind: u64, length: u64) -> Self {
        let mut signer = Self(SECOND);
        signer.add(kind);
        signer.add(length);
        signer
    }

    pub(crate) const fn add(&mut self, word: u64) {
        // The odd constant keeps a factor from being zero for small words, which would forget the state.
        self.0 = fold(self.0 ^ word.wrapping_mul(SECOND).wrapping_add(FIRST), FIRST).rotate_left(23) ^ word;
    }

    pub(crate) const fn finish(self) -> Signature {
        match fold(self.0 ^ FIRST, SECOND) {
            0 => Signature(SECOND), // Zero is what stands for no layout.
            word => Signature(word),
        }
    }
}

const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn sign(words: &[u64]) -> u64 {
        let mut signer = Signer::new(7, words.len() as u64);
        for &word in words {
            signer.add(word);
        }
        signer.finish().get()
    }

    #[test]
    fn small_words_in_any_order_do_not_collide() {
        let mut seen = HashSet::new();
        for a in 0..64 {
            for b in 0..64 {
                for c in 0..64 {
                    assert!(seen.insert(sign(&[a, b, c])), "{a} {b} {c}");
                }
            }
        }
    }

    #[test]
    fn every_bit_of_a_word_reaches_about_half_of_the_result() {
        for bit in 0..64 {
            let flipped = (sign(&[1 << bit, 5]) ^ sign(&[0, 5])).count_ones();
            assert!((12..=52).contains(&flipped), "bit {bit}: {flipped}");
            let of_last = sign(&[5, 1 << bit]) ^ sign(&[5, 0]);
            assert_ne!(of_last & 0xF_FFFF, 0, "bit {bit} reaches the low ones, by which tables look");
        }
    }

    #[test]
    fn a_signature_prints_as_one_word() {
        assert_eq!(Signature(0x2a).to_string(), "sig000000000000002a");
    }
}
