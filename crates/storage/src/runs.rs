//! The bytes of a strided layout, without what lies between them.

use smallvec::SmallVec;

use crate::Layout;

/// The bytes that the elements of a layout lie in: runs of equal length, at offsets from the first element that are sums of
/// multiples. What lies between the runs belongs to others.
///
/// With one repeat it is what a two-dimensional copy takes: a width, a height and a pitch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRuns {
    /// The bytes of one run.
    pub bytes: u64,
    /// How the run is repeated, the smallest stride first; empty for memory without gaps.
    pub repeats: SmallVec<[Repeat; 2]>,
}

/// One dimension in which runs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// How many there are, at least two.
    pub count: u64,
    /// The bytes from the start of one to the start of the next, more than the runs in between cover without gaps.
    pub stride: u64,
}

impl ByteRuns {
    /// How many runs there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        if self.bytes == 0 { 0 } else { self.repeats.iter().map(|repeat| repeat.count).product() }
    }

    /// Where each run begins, in bytes from the first element.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        (0..self.count()).map(|run| {
            let step = |(rest, offset): (u64, u64), repeat: &Repeat| {
                (rest / repeat.count, offset + rest % repeat.count * repeat.stride)
            };
            self.repeats.iter().fold((run, 0), step).1
        })
    }
}

impl Layout {
    /// The bytes that the elements lie in. Elements that share memory are there once, if their strides nest.
    ///
    /// It is what has to be copied of a tensor in a place whose gaps are somebody else's, as when a staged input is
    /// [copied back](crate::InputPlan::copied_back).
    #[must_use]
    pub fn byte_runs(&self) -> ByteRuns {
        let mut repeats: SmallVec<[Repeat; 2]> = SmallVec::new();
        if self.is_empty() {
            return ByteRuns { bytes: 0, repeats };
        }
        let mut dims: SmallVec<[Repeat; 4]> = self
            .shape()
            .iter()
            .zip(self.strides())
            .filter(|&(&size, &stride)| size > 1 && stride > 0)
            .map(|(&count, &stride)| Repeat { count, stride: stride * self.dtype().bytes() })
            .collect();
        dims.sort_unstable_by_key(|dim| (dim.stride, dim.count));
        let mut bytes = self.dtype().bytes();
        for dim in dims {
            match repeats.last_mut() {
                None if dim.stride <= bytes => bytes += dim.stride * (dim.count - 1),
                Some(last) if dim.stride == last.stride * last.count => last.count *= dim.count,
                _ => repeats.push(dim),
            }
        }
        ByteRuns { bytes, repeats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs(shape: &[u64], strides: &[u64]) -> ByteRuns {
        Layout::strided(DType::F32, shape, strides).unwrap().byte_runs()
    }

    fn repeats(of: &[(u64, u64)]) -> SmallVec<[Repeat; 2]> {
        of.iter().map(|&(count, stride)| Repeat { count, stride }).collect()
    }

    #[test]
    fn memory_without_gaps_is_one_run_whatever_its_shape() {
        for (shape, strides) in [
            (&[2, 3][..], &[3, 1][..]),
            (&[2, 3], &[1, 2]),
            (&[6], &[1]),
            (&[5, 6], &[0, 1]),
            (&[1, 6], &[99, 1]),
        ] {
            assert_eq!(runs(shape, strides), ByteRuns { bytes: 24, repeats: repeats(&[]) });
        }
        assert_eq!(runs(&[], &[]).bytes, 4);
        assert_eq!(runs(&[4, 3], &[2, 1]).bytes, 4 * 9, "windows that overlap cover all of it");
    }

    #[test]
    fn columns_are_a_width_a_height_and_a_pitch() {
        let columns = runs(&[10, 2], &[8, 1]);
        assert_eq!(columns, ByteRuns { bytes: 8, repeats: repeats(&[(10, 32)]) });
        assert_eq!((columns.count(), columns.offsets().nth(3)), (10, Some(96)));
        assert_eq!(
            runs(&[5, 2, 2], &[16, 8, 1]).repeats,
            repeats(&[(10, 32)]),
            "one pitch for both dimensions"
        );
        assert_eq!(runs(&[5, 2, 2], &[20, 8, 1]).repeats, repeats(&[(2, 32), (5, 80)]));
    }

    #[test]
    fn what_has_no_elements_has_no_runs() {
        for strides in [[8, 1], [u64::MAX, u64::MAX]] {
            let none = runs(&[0, 3], &strides);
            assert_eq!((none.bytes, none.count(), none.offsets().count()), (0, 0, 0));
        }
    }

    proptest! {
        #[test]
        fn the_runs_are_the_bytes_of_the_elements_and_no_others(
            shape in proptest::collection::vec(0_u64..4, 0..4), strides in [0_u64..12, 0..12, 0..12],
        ) {
            let layout = Layout::strided(DType::F16, &shape, &strides[..shape.len()]).unwrap();
            let mut elements = vec![0];
            for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
                elements = elements.iter().flat_map(|from| (0..size).map(move |i| from + i * stride)).collect();
            }
            let expected: BTreeSet<u64> = elements.iter().flat_map(|at| [2 * at, 2 * at + 1]).collect();
            let runs = layout.byte_runs();
            let given: BTreeSet<u64> = runs.offsets().flat_map(|at| at..at + runs.bytes).collect();
            prop_assert_eq!(given, expected);
        }
    }
}
