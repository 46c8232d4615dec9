//! Philox4x32-10, the counter-based generator that draws are made with.
//!
//! A draw is a function of a seed and of the draw's number, so a kernel computes any of them without those before it, in any order and in as
//! many threads as it likes (J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11).
//! These are plain functions for kernels of the simulated device and for checks; a CUDA kernel computes the same with the
//! functions of [`CUDA`], or with `curand_Philox4x32_10` of cuRAND.

/// The same in CUDA C++, to be put before the source of a kernel: `uint4 philox_draw(seed, number)` and
/// `float philox_unit_f32(word)`. It needs no header.
pub const CUDA: &str = include_str!("philox.cu");

/// By what the words of the counter are multiplied.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// By how much the words of the key grow with each round: the golden ratio, and the square root of 3 less 1.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of the bijection: the random words at `counter` of the stream `key`.
#[must_use]
pub const fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    let [mut first, mut second] = key;
    let mut round = 0;
    while round < 10 {
        let left = MULTIPLIERS[0] as u64 * a as u64;
        let right = MULTIPLIERS[1] as u64 * c as u64;
        (a, b, c, d) =
            ((right >> 32) as u32 ^ b ^ first, right as u32, (left >> 32) as u32 ^ d ^ second, left as u32);
        first = first.wrapping_add(WEYL[0]);
        second = second.wrapping_add(WEYL[1]);
        round += 1;
    }
    [a, b, c, d]
}

/// The 128 bits of draw `number` of a seed: the number is the low half of the counter, and the seed is the key.
#[must_use]
pub const fn draw(seed: u64, number: u64) -> [u32; 4] {
    philox4x32_10([number as u32, (number >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

/// A random word as a number from 0 up to, but without, 1: its upper 24 bits, which a `f32` holds exactly.
#[must_use]
pub const fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 / (1_u32 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the file `kat_vectors` of Random123, which comes with the paper.
    #[test]
    fn known_answers_come_out() {
        let known = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, words) in known {
            assert_eq!(philox4x32_10(counter, key), words);
        }
    }

    #[test]
    fn a_draw_is_the_block_at_its_number_in_the_stream_of_its_seed() {
        let (seed, number) = (0x299f_31d0_a409_3822, 0x85a3_08d3_243f_6a88);
        let block = philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0, 0], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(draw(seed, number), block);
        assert_ne!(draw(seed, number), draw(seed, number + 1));
        assert_ne!(draw(seed, number), draw(seed + (1 << 32), number));
    }

    #[test]
    fn unit_numbers_are_below_one_and_even() {
        assert_eq!((unit_f32(0), unit_f32(u32::MAX)), (0.0, 1.0 - 1.0 / 16_777_216.0));
        let mean = (0..4096).flat_map(|number| draw(7, number)).map(unit_f32).sum::<f32>() / 16384.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
