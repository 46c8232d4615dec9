//! The bytes of a strided tensor, piece by piece.

use graphgrove_storage::Layout;

/// Bytes without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    /// Bytes from the first element on.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

/// The pieces of a layout, in ascending order, those that touch or overlap in one; none for a layout without elements.
pub(crate) fn of(layout: &Layout) -> Vec<Run> {
    let runs = layout.byte_runs();
    merge(runs.offsets().map(|at| Run { at, bytes: runs.bytes }).collect())
}

/// Sorts pieces and joins those that touch or overlap.
pub(crate) fn merge(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.at <= last.at + last.bytes => {
                last.bytes = last.bytes.max(run.at + run.bytes - last.at);
            }
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphgrove_storage::DType;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn strided(shape: &[u64], strides: &[u64]) -> Layout {
        Layout::strided(DType::F32, shape, strides).unwrap()
    }

    #[test]
    fn a_layout_without_gaps_is_one_piece_whatever_the_order_of_its_dimensions() {
        for layout in [strided(&[2, 3], &[3, 1]), strided(&[3, 2], &[1, 3]), strided(&[4, 6], &[0, 1])] {
            assert_eq!(of(&layout), [Run { at: 0, bytes: 24 }]);
        }
        assert_eq!(of(&strided(&[0, 3], &[3, 1])), []);
    }

    #[test]
    fn a_column_is_as_many_pieces_as_rows() {
        let column = strided(&[3, 1], &[4, 1]);
        assert_eq!(of(&column), [0, 16, 32].map(|at| Run { at, bytes: 4 }));
    }

    proptest! {
        #[test]
        fn the_pieces_are_exactly_the_bytes_of_the_elements(
            dims in prop::collection::vec((0_u64..4, 0_u64..9), 0..4),
        ) {
            let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
            let layout = strided(&shape, &strides);
            let mut starts = BTreeSet::from([0]);
            for (&size, &stride) in shape.iter().zip(&strides) {
                starts = starts.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
            }
            let bytes: BTreeSet<u64> = starts.iter().flat_map(|at| 4 * at..4 * at + 4).collect();
            let runs = of(&layout);
            let covered: Vec<u64> = runs.iter().flat_map(|run| run.at..run.at + run.bytes).collect();
            prop_assert_eq!(covered, bytes.into_iter().collect::<Vec<_>>());
            prop_assert!(runs.windows(2).all(|pair| pair[0].at + pair[0].bytes < pair[1].at));
        }
    }
}
