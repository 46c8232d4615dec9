//! Size classes and the two-level bitmap that finds the next class with a hole in it.
//!
//! The classes are those of a floating-point number with four bits of mantissa, as in TLSF (Masmano et al., 2004): exact up to 32
//! granules, and a sixteenth of a power of two wide above. The bitmap answers "the smallest class at or above this one that is not
//! empty" with two words read.

/// Bits of mantissa of a class.
const MANTISSA: u32 = 4;
/// Classes of sizes below 2^32.
pub(super) const CLASSES: usize = ((32 - MANTISSA + 1) << MANTISSA) as usize;
const WORDS: usize = CLASSES.div_ceil(64);

/// The class of `size`: larger sizes never have a smaller class.
#[inline]
pub(super) fn class_of(size: u32) -> usize {
    // Setting the lowest bit of the first power of two with a full mantissa makes all smaller sizes their own class without a branch.
    let shift = (size | 1 << MANTISSA).ilog2() - MANTISSA;
    ((shift << MANTISSA) + (size >> shift)) as usize
}

/// The set of classes that hold a hole.
#[derive(Clone, Debug)]
pub(super) struct ClassSet {
    words: [u64; WORDS],
    /// Bit `w` says that `words[w]` is not zero.
    top: u64,
}

impl ClassSet {
    pub(super) fn new() -> Self {
        Self { words: [0; WORDS], top: 0 }
    }

    #[inline]
    pub(super) fn insert(&mut self, class: usize) {
        let word = class / 64;
        self.words[word] |= 1 << (class % 64);
        self.top |= 1 << word;
    }

    #[inline]
    pub(super) fn remove(&mut self, class: usize) {
        let word = class / 64;
        self.words[word] &= !(1 << (class % 64));
        if self.words[word] == 0 {
            self.top &= !(1 << word);
        }
    }

    /// The smallest class in the set that is larger than `class`.
    #[inline]
    pub(super) fn after(&self, class: usize) -> Option<usize> {
        let word = class / 64;
        // Two shifts, because a shift by 64 would be undefined for the last bit of a word.
        let rest = self.words[word] & ((!0 << (class % 64)) << 1);
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let tops = self.top & ((!0 << word) << 1);
        if tops == 0 {
            return None;
        }
        let word = tops.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The largest class in the set.
    pub(super) fn last(&self) -> Option<usize> {
        let word = 63_usize.checked_sub(self.top.leading_zeros() as usize)?;
        Some(word * 64 + 63 - self.words[word].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_with_sizes_and_are_exact_up_to_32() {
        for size in 0..32 {
            assert_eq!(class_of(size), size as usize);
        }
        let mut last = class_of(31);
        for shift in 5..32 {
            for step in 0..16_u32 {
                let size = (1_u32 << shift) + (step << (shift - 4));
                assert_eq!(class_of(size), last + 1, "size {size} opens a class");
                assert_eq!(class_of(size - 1), last, "size {} ends a class", size - 1);
                last += 1;
            }
        }
        assert!(class_of(u32::MAX) < CLASSES);
    }

    #[test]
    fn the_set_finds_the_next_and_the_last_class() {
        let mut set = ClassSet::new();
        assert_eq!(set.last(), None);
        assert_eq!(set.after(0), None);
        for class in [0, 63, 64, 130, CLASSES - 1] {
            set.insert(class);
        }
        let mut seen = vec![0];
        while let Some(next) = seen.last().and_then(|&class| set.after(class)) {
            seen.push(next);
        }
        assert_eq!(seen, [0, 63, 64, 130, CLASSES - 1]);
        set.remove(CLASSES - 1);
        set.remove(64);
        assert_eq!(set.last(), Some(130));
        assert_eq!(set.after(63), Some(130));
    }
}
