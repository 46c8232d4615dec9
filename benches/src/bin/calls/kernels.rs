//! The kernels of the functions: they mix what they read into what they write, so that every value depends on all inputs.

use graphgrove_device::{Args, DevicePtr};
use graphgrove_sim::{SimDevice, SimKernel, View, kernels};

/// Every word at a multiple of this many is written and read, and the last one: enough to notice any overlap of blocks that
/// share a page, at a cost that does not depend on the sizes being hundreds of megabytes.
const STRIDE: usize = 512;

/// How many tensors one launch reads.
pub(crate) const FOLDED: usize = 32;

/// The kernels, whose numbers of elements count words of 8 bytes.
#[derive(Clone)]
pub(crate) struct Kernels {
    /// `(write sum, u64 value)`: starts a sum.
    pub(crate) start: SimKernel,
    /// `(read_write sum, u64 count, count times (read from, u64 words))`: mixes tensors into the sum.
    pub(crate) fold: SimKernel,
    /// `(read sum, write to, u64 words, u64 tag)`: fills a tensor with what follows from sum and tag.
    pub(crate) make: SimKernel,
    /// `(read sum, read_write to, u64 words)`: changes a tensor by what follows from the sum and from what it held.
    pub(crate) change: SimKernel,
    /// `(read from, u64 words, write sum)`: one word that stands for all of a tensor.
    pub(crate) digest: SimKernel,
}

impl Kernels {
    pub(crate) fn new(device: &SimDevice) -> Self {
        let fold = device.kernel("fold", |scope| {
            let (sum, count) = (scope.read_write::<u64>(0, 1)?, scope.scalar::<u64>(1)? as usize);
            let mut value = sum.get(0);
            for argument in (0..count).map(|at| 2 + 2 * at) {
                let words = scope.scalar::<u64>(argument + 1)? as usize;
                value = mix(value, digest(&scope.read::<u64>(argument, words)?));
            }
            sum.set(0, value);
            Ok(())
        });
        let make = device.kernel("make", |scope| {
            let (words, tag) = (scope.scalar::<u64>(2)? as usize, scope.scalar::<u64>(3)?);
            let value = mix(scope.read::<u64>(0, 1)?.get(0), tag);
            let to = scope.write::<u64>(1, words)?;
            for at in strided(words) {
                to.set(at, value ^ at as u64);
            }
            Ok(())
        });
        let change = device.kernel("change", |scope| {
            let words = scope.scalar::<u64>(2)? as usize;
            let sum = scope.read::<u64>(0, 1)?.get(0);
            let to = scope.read_write::<u64>(1, words)?;
            for at in strided(words) {
                to.set(at, mix(to.get(at), sum));
            }
            Ok(())
        });
        let digest = device.kernel("digest", |scope| {
            let words = scope.scalar::<u64>(1)? as usize;
            scope.write::<u64>(2, 1)?.set(0, digest(&scope.read::<u64>(0, words)?));
            Ok(())
        });
        Self {
            start: kernels::fill::<u64>(device),
            fold,
            make: make.with_arguments(4),
            change: change.with_arguments(3),
            digest: digest.with_arguments(3),
        }
    }
}

pub(crate) fn start(sum: DevicePtr, value: u64) -> Args {
    Args::new().write(sum).scalar(1_u32).scalar(value)
}

/// Arguments for [`Kernels::fold`], which reads pairs of an address and a number of words.
pub(crate) fn fold(sum: DevicePtr, tensors: &[(DevicePtr, u64)]) -> Args {
    let args = Args::new().read_write(sum).scalar(tensors.len() as u64);
    tensors.iter().fold(args, |args, (at, words)| args.read(*at).scalar(*words))
}

pub(crate) fn make(sum: DevicePtr, to: DevicePtr, words: u64, tag: u64) -> Args {
    Args::new().read(sum).write(to).scalar(words).scalar(tag)
}

/// Both words in one, in an order that matters. The finisher is that of `SplitMix64` (Steele, Lea and Flood, 2014).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut word = a.rotate_left(23) ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn strided(words: usize) -> impl Iterator<Item = usize> {
    (0..words).step_by(STRIDE).chain(words.checked_sub(1))
}

fn digest(from: &View<'_, u64>) -> u64 {
    strided(from.len()).fold(from.len() as u64, |sum, at| mix(sum, from.get(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_word_are_always_among_those_that_are_written() {
        assert_eq!(strided(0).count(), 0);
        for words in [1, 2, 511, 512, 513, 5_000] {
            let all: Vec<usize> = strided(words).collect();
            assert_eq!((all.first(), all.last()), (Some(&0), Some(&(words - 1))));
            assert!(all.windows(2).all(|pair| pair[1] - pair[0] <= STRIDE), "{words}");
        }
    }

    #[test]
    fn mixing_depends_on_both_words_and_on_their_order() {
        assert_ne!(mix(1, 2), mix(2, 1));
        assert_ne!(mix(1, 2), mix(1, 3));
        assert_ne!(mix(0, 0), 0);
    }
}
