//! Whether two strided tensors have memory in common.

use smallvec::SmallVec;

use crate::Layout;

/// How many partial sums are tried before the answer is that they overlap. Strides that nest need two a dimension or so;
/// others can have as many as there are elements.
const TRIES: u32 = 4096;

/// One dimension of two layouts that have the same strides.
#[derive(Clone, Copy)]
struct Dim {
    stride: i128,
    a: i128,
    b: i128,
}

/// Whether elements of `a`, which starts at byte `at_a`, and of `b`, at byte `at_b`, may share a byte. `false` is certain;
/// `true` is exact for layouts of the same strides that do not interleave in odd ways, and may be wrong otherwise.
pub(crate) fn may_overlap(a: &Layout, at_a: u64, b: &Layout, at_b: u64) -> bool {
    let ends_before = |at: u64, layout: &Layout, other: u64| at.saturating_add(layout.span_bytes()) <= other;
    if a.is_empty() || b.is_empty() || ends_before(at_a, a, at_b) || ends_before(at_b, b, at_a) {
        return false;
    }
    let bytes = i128::from(a.dtype().bytes());
    let distance = i128::from(at_b) - i128::from(at_a);
    if a.dtype().bytes() != b.dtype().bytes() || a.strides() != b.strides() || distance % bytes != 0 {
        return true;
    }
    let mut dims: SmallVec<[Dim; 4]> = a
        .strides()
        .iter()
        .zip(a.shape().iter().zip(b.shape()))
        .map(|(&stride, (&a, &b))| Dim { stride: stride.into(), a: a.into(), b: b.into() })
        .filter(|dim| (dim.a > 1 || dim.b > 1) && dim.stride != 0)
        .collect();
    dims.sort_unstable_by_key(|dim| std::cmp::Reverse(dim.stride));
    let mut tries = TRIES;
    reaches(distance / bytes, &dims, &mut tries)
}

/// Whether some index of `a` and some index of `b` are `distance` elements apart: whether there are whole numbers, each
/// between `-(b - 1)` and `a - 1` of its dimension, whose products with the strides add up to `distance`.
fn reaches(distance: i128, dims: &[Dim], tries: &mut u32) -> bool {
    let Some((dim, rest)) = dims.split_first() else { return distance == 0 };
    let (low, high) = rest
        .iter()
        .fold((0, 0), |(low, high), dim| (low - (dim.b - 1) * dim.stride, high + (dim.a - 1) * dim.stride));
    let first =
        (distance - high).div_euclid(dim.stride) + i128::from((distance - high).rem_euclid(dim.stride) != 0);
    let last = (distance - low).div_euclid(dim.stride);
    let (first, last) = (first.max(1 - dim.b), last.min(dim.a - 1));
    // Strides that nest leave one or two candidates; where there are more, the answer is not worth the search.
    if last - first > 3 {
        return true;
    }
    (first..=last).any(|n| match tries.checked_sub(1) {
        None => true,
        Some(left) => {
            *tries = left;
            reaches(distance - n * dim.stride, rest, tries)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn strided(shape: &[u64], strides: &[u64]) -> Layout {
        Layout::strided(DType::F32, shape, strides).unwrap()
    }

    #[test]
    fn columns_of_one_matrix_do_not_overlap_although_their_spans_do() {
        let columns = strided(&[10, 4], &[8, 1]);
        assert!(!may_overlap(&columns, 0, &columns, 16));
        assert!(may_overlap(&columns, 0, &columns, 12));
        assert!(may_overlap(&columns, 0, &columns, 32 * 3));
        let last = strided(&[10, 1], &[8, 1]);
        assert!(may_overlap(&last, 12, &columns, 0) && may_overlap(&columns, 0, &last, 12));
        assert!(!may_overlap(&last, 16, &columns, 0) && !may_overlap(&columns, 0, &last, 16));
        assert!(!may_overlap(&columns, 0, &columns, 32 * 10));
    }

    #[test]
    fn a_dimension_of_one_has_no_stride_to_speak_of() {
        let columns = |width| strided(&[3, width], &[4, 1]);
        assert!(!may_overlap(&columns(1), 0, &columns(3), 4));
        let thin = strided(&[3, 1, 2], &[4, 4, 1]);
        assert!(!may_overlap(&thin, 0, &thin, 8) && may_overlap(&thin, 0, &thin, 4));
    }

    #[test]
    fn a_dimension_that_repeats_its_elements_reaches_no_others() {
        let repeated = strided(&[3, 2], &[0, 4]);
        assert!(!may_overlap(&repeated, 0, &repeated, 4) && may_overlap(&repeated, 0, &repeated, 16));
    }

    #[test]
    fn strides_that_leave_four_candidates_are_told_apart() {
        // Both strides are even, so nothing is an odd number of elements away from anything else.
        let (three, four) = (strided(&[10, 3], &[8, 6]), strided(&[10, 4], &[8, 6]));
        assert!(!may_overlap(&three, 0, &four, 9 * 4) && !may_overlap(&four, 9 * 4, &three, 0));
    }

    #[test]
    fn what_cannot_be_compared_counts_as_overlapping() {
        let halves = Layout::strided(DType::F16, &[4], &[4]).unwrap();
        assert!(may_overlap(&strided(&[4], &[2]), 0, &halves, 4));
        assert!(may_overlap(&strided(&[4], &[2]), 0, &strided(&[4], &[2]), 2));
        assert!(may_overlap(&strided(&[4], &[2]), 0, &strided(&[2, 2], &[4, 2]), 4));
    }

    #[test]
    fn tensors_one_behind_the_other_do_not_overlap_whatever_their_strides() {
        let (a, b) = (strided(&[4], &[2]), strided(&[2, 2], &[4, 2]));
        assert!(!may_overlap(&a, 0, &b, 28) && !may_overlap(&a, 28, &b, 0));
        assert!(may_overlap(&a, 0, &b, 24) && may_overlap(&a, 24, &b, 0));
    }

    #[test]
    fn a_search_among_many_sums_ends_and_says_that_they_overlap() {
        // Each of the dimensions can be walked or not, and no way leads to an odd distance.
        let (many, one) = (strided(&[2; 30], &[2; 30]), strided(&[1; 30], &[2; 30]));
        assert!(may_overlap(&many, 0, &one, 31 * 4) && may_overlap(&one, 31 * 4, &many, 0));
        assert!(!may_overlap(&many, 0, &one, 61 * 4));
        // Strides that nest are told apart in as many dimensions as a tensor has.
        let nested: Vec<u64> = (0..12).map(|dim| 2 << dim).collect();
        let (many, one) = (strided(&[2; 12], &nested), strided(&[1; 12], &nested));
        assert!(!may_overlap(&many, 0, &one, 31 * 4) && may_overlap(&many, 0, &one, 30 * 4));
    }

    #[test]
    fn tensors_without_elements_overlap_nothing() {
        let empty = Layout::of::<f32>(&[0]).unwrap();
        let full = Layout::of::<f32>(&[8]).unwrap();
        assert!(!may_overlap(&empty, 4, &full, 0) && !may_overlap(&full, 0, &empty, 4));
    }

    fn bytes(layout: &Layout, at: u64) -> HashSet<u64> {
        let mut offsets = vec![0];
        for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
            offsets = offsets.iter().flat_map(|from| (0..size).map(move |i| from + i * stride)).collect();
        }
        offsets.iter().flat_map(|offset| (0..4).map(move |byte| at + 4 * offset + byte)).collect()
    }

    proptest! {
        #[test]
        fn the_answer_never_misses_a_shared_byte_and_is_exact_for_nested_strides(
            a in [0_u64..4, 0..4], b in [0_u64..4, 0..4], inner in 1_u64..3, pad in 0_u64..3, at in 0_u64..40, odd in 0_u64..4,
        ) {
            let strides = [inner * 3 + pad, inner];
            let (a, b) = (strided(&a, &strides), strided(&b, &strides));
            let at = 4 * at + if odd == 0 { 2 } else { 0 };
            let shared = bytes(&a, 20).intersection(&bytes(&b, at)).next().is_some();
            let said = may_overlap(&a, 20, &b, at);
            prop_assert!(said || !shared);
            if odd != 0 {
                prop_assert_eq!(said, shared);
            }
        }
    }
}
