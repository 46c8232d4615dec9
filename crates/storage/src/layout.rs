//! Where the elements of a tensor lie, counted from its first element.

use std::fmt;

use smallvec::SmallVec;

use crate::signature::{Signature, Signer};
use crate::{DType, Element, Error};

pub(crate) type Dims = SmallVec<[u64; 4]>;

/// Element type, shape and strides, with a [`Signature`] of the three.
///
/// Strides are counted in elements, may be zero (an expanded dimension) and are never negative. The offset into the
/// storage is not part of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dtype: DType,
    shape: Dims,
    strides: Dims,
    elements: u64,
    span: u64,
    signature: Signature,
}

impl Layout {
    /// A layout without gaps, the last dimension running fastest.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the size in bytes is not a 64-bit number.
    pub fn contiguous(dtype: DType, shape: &[u64]) -> Result<Self, Error> {
        let mut strides = Dims::from_elem(1, shape.len());
        let mut stride = 1_u64;
        for (at, &size) in strides.iter_mut().zip(shape).rev() {
            *at = stride;
            // Where a stride is too large there are too many elements, which is refused below, or none.
            stride = stride.saturating_mul(size.max(1));
        }
        Self::strided(dtype, shape, &strides)
    }

    /// A layout of no elements, for what has no layout.
    pub(crate) fn nothing() -> Self {
        Self {
            dtype: DType::U8,
            shape: Dims::from_elem(0, 1),
            strides: Dims::from_elem(1, 1),
            elements: 0,
            span: 0,
            signature: Signer::new(0, 0).finish(),
        }
    }

    /// A layout without gaps of elements of the Rust type `T`.
    ///
    /// # Errors
    /// As [`contiguous`](Self::contiguous).
    pub fn of<T: Element>(shape: &[u64]) -> Result<Self, Error> {
        Self::contiguous(T::DTYPE, shape)
    }

    /// A layout with the given strides, in elements.
    ///
    /// # Errors
    /// [`Error::Rank`] unless there is one stride a dimension; [`Error::TooLarge`] if the number of elements, or the bytes
    /// from the first to the last of them, is not a 64-bit number.
    pub fn strided(dtype: DType, shape: &[u64], strides: &[u64]) -> Result<Self, Error> {
        if shape.len() != strides.len() {
            return Err(Error::Rank { given: strides.len(), expected: shape.len() });
        }
        let elements = shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        let elements = if shape.contains(&0) { 0 } else { elements.ok_or(Error::TooLarge)? };
        let last = shape.iter().zip(strides).try_fold(0_u64, |last, (&size, &stride)| {
            last.checked_add(size.saturating_sub(1).checked_mul(stride)?)
        });
        let span = if elements == 0 {
            0
        } else {
            let past = last.and_then(|last| last.checked_add(1)).ok_or(Error::TooLarge)?;
            past.checked_mul(dtype.bytes()).ok_or(Error::TooLarge)?
        };
        elements.checked_mul(dtype.bytes()).ok_or(Error::TooLarge)?;
        let mut signer = Signer::new(dtype as u64, shape.len() as u64);
        for (&size, &stride) in shape.iter().zip(strides) {
            signer.add(size);
            signer.add(stride);
        }
        Ok(Self {
            dtype,
            shape: shape.into(),
            strides: strides.into(),
            elements,
            span,
            signature: signer.finish(),
        })
    }

    /// The type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each dimension.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The stride of each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[u64] {
        &self.strides
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    #[must_use]
    pub const fn elements(&self) -> u64 {
        self.elements
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The bytes from the start of the first element to the end of the last one, gaps included.
    #[must_use]
    pub const fn span_bytes(&self) -> u64 {
        self.span
    }

    /// Equal layouts have equal signatures, and different ones differ, but for one pair in 2^64.
    #[must_use]
    #[inline]
    pub const fn signature(&self) -> Signature {
        self.signature
    }

    /// Whether the elements lie without gaps, the last dimension running fastest. Strides of dimensions of size 1, and
    /// of tensors without elements, do not matter.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
                let fits = size == 1 || stride == expected;
                expected *= size;
                fits
            })
    }

    /// Whether two different indices reach the same element, as far as the strides tell: `false` is certain, `true` may
    /// be wrong for strides that interleave.
    #[must_use]
    pub fn may_overlap_itself(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut dims: SmallVec<[(u64, u64); 4]> = self
            .strides
            .iter()
            .copied()
            .zip(self.shape.iter().copied())
            .filter(|&(_, size)| size > 1)
            .collect();
        dims.sort_unstable();
        let mut reach = 0;
        dims.iter().any(|&(stride, size)| {
            let overlaps = stride <= reach;
            reach += stride * (size - 1);
            overlaps
        })
    }
}

/// As `f32[4, 8]`; the strides follow where there are gaps or another order.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.is_contiguous() { Ok(()) } else { write!(f, " with strides {:?}", self.strides) }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_layout_reads_as_its_type_and_shape_and_what_is_unusual_about_its_strides() {
        let layout = |shape: &[u64], strides: &[u64]| Layout::strided(DType::F32, shape, strides).unwrap();
        assert_eq!(layout(&[4, 8], &[8, 1]).to_string(), "f32[4, 8]");
        assert_eq!(layout(&[4, 8], &[1, 4]).to_string(), "f32[4, 8] with strides [1, 4]");
        assert_eq!(layout(&[], &[]).to_string(), "f32[]");
    }

    use super::*;

    #[test]
    fn a_contiguous_layout_runs_fastest_in_its_last_dimension() {
        let layout = Layout::of::<f32>(&[2, 3, 4]).unwrap();
        assert_eq!(layout.strides(), [12, 4, 1]);
        assert_eq!((layout.elements(), layout.span_bytes(), layout.rank()), (24, 96, 3));
        assert!(layout.is_contiguous() && !layout.is_empty());
        assert_eq!(layout.dtype(), DType::F32);
    }

    #[test]
    fn a_scalar_has_one_element_and_no_dimension() {
        let layout = Layout::of::<half::bf16>(&[]).unwrap();
        assert_eq!((layout.elements(), layout.span_bytes(), layout.rank()), (1, 2, 0));
        assert!(layout.is_contiguous());
    }

    #[test]
    fn a_layout_without_elements_spans_nothing_even_beside_huge_dimensions() {
        let layout = Layout::of::<f64>(&[u64::MAX, 0]).unwrap();
        assert_eq!((layout.elements(), layout.span_bytes()), (0, 0));
        assert!(layout.is_empty() && layout.is_contiguous() && !layout.may_overlap_itself());
    }

    #[test]
    fn strides_need_not_be_those_of_a_contiguous_layout() {
        let columns = Layout::strided(DType::I32, &[2, 3], &[1, 2]).unwrap();
        assert!(!columns.is_contiguous() && !columns.may_overlap_itself());
        let rows = Layout::strided(DType::I32, &[2, 3], &[5, 1]).unwrap();
        assert_eq!(rows.span_bytes(), 4 * 8);
        assert!(!rows.is_contiguous());
        let one_row = Layout::strided(DType::I32, &[1, 3], &[99, 1]).unwrap();
        assert!(one_row.is_contiguous());
    }

    #[test]
    fn an_expanded_dimension_overlaps_itself_and_a_window_may() {
        assert!(Layout::strided(DType::U8, &[4, 3], &[0, 1]).unwrap().may_overlap_itself());
        assert!(Layout::strided(DType::U8, &[4, 3], &[2, 1]).unwrap().may_overlap_itself());
        assert!(!Layout::strided(DType::U8, &[4, 3], &[3, 1]).unwrap().may_overlap_itself());
        assert!(!Layout::strided(DType::U8, &[1, 3], &[0, 1]).unwrap().may_overlap_itself());
    }

    #[test]
    fn sizes_that_no_memory_has_are_refused() {
        assert_eq!(Layout::of::<u8>(&[u64::MAX, 2]), Err(Error::TooLarge));
        assert_eq!(Layout::of::<f64>(&[u64::MAX / 4]), Err(Error::TooLarge));
        assert_eq!(Layout::strided(DType::U8, &[3], &[u64::MAX]), Err(Error::TooLarge));
        assert_eq!(Layout::strided(DType::U8, &[u64::MAX, 2], &[0, 0]), Err(Error::TooLarge));
        assert_eq!(Layout::strided(DType::U8, &[3], &[1, 1]), Err(Error::Rank { given: 2, expected: 1 }));
        // The bytes of its elements do not fit although the bytes that they lie in do.
        assert_eq!(Layout::strided(DType::F64, &[1 << 62], &[0]), Err(Error::TooLarge));
    }

    #[test]
    fn layouts_that_differ_have_different_signatures() {
        let layouts = [
            Layout::of::<f32>(&[2, 3]),
            Layout::of::<i32>(&[2, 3]),
            Layout::of::<f32>(&[3, 2]),
            Layout::of::<f32>(&[6]),
            Layout::of::<f32>(&[2, 3, 1]),
            Layout::strided(DType::F32, &[2, 3], &[1, 2]),
            Layout::of::<f32>(&[]),
        ]
        .map(Result::unwrap);
        for (i, a) in layouts.iter().enumerate() {
            for (j, b) in layouts.iter().enumerate() {
                assert_eq!(a.signature() == b.signature(), i == j, "{a:?} {b:?}");
            }
        }
    }
}
