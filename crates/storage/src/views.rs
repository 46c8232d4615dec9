//! Views of tensors. Each holds the storage that it views, and none copies.

use std::ops::Range;
use std::sync::Arc;

use crate::layout::Dims;
use crate::{Error, Layout, Tensor};

impl Tensor {
    /// The elements `range` of a dimension, every `step`-th of them.
    ///
    /// # Errors
    /// [`Error::NoSuchDim`], [`Error::BadRange`], [`Error::Stale`]
    pub fn slice(&self, dim: usize, range: Range<u64>, step: u64) -> Result<Self, Error> {
        let size = self.size_of(dim)?;
        let Range { start, end } = range;
        if step == 0 || start > end || end > size {
            return Err(Error::BadRange { start, end, step, size });
        }
        let (mut shape, mut strides) = self.dims();
        let stride = strides.get(dim).copied().unwrap_or(0);
        let count = (end - start).div_ceil(step);
        if let (Some(size), Some(by)) = (shape.get_mut(dim), strides.get_mut(dim)) {
            *size = count;
            // With at most one element left the stride is never used, and its product may be too large to write down.
            *by = if count > 1 { stride.checked_mul(step).ok_or(Error::TooLarge)? } else { stride };
        }
        self.view(&shape, &strides, if count == 0 || self.layout().is_empty() { 0 } else { start * stride })
    }

    /// The elements at one index of a dimension, without that dimension.
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub fn select(&self, dim: usize, index: u64) -> Result<Self, Error> {
        let size = self.size_of(dim)?;
        if index >= size {
            return Err(Error::BadRange { start: index, end: index.saturating_add(1), step: 1, size });
        }
        let (mut shape, mut strides) = self.dims();
        shape.remove(dim);
        let stride = strides.remove(dim);
        self.view(&shape, &strides, if self.layout().is_empty() { 0 } else { index * stride })
    }

    /// The same elements with two dimensions exchanged.
    ///
    /// # Errors
    /// [`Error::NoSuchDim`], [`Error::Stale`]
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self, Error> {
        self.size_of(a)?;
        self.size_of(b)?;
        let (mut shape, mut strides) = self.dims();
        shape.swap(a, b);
        strides.swap(a, b);
        self.view(&shape, &strides, 0)
    }

    /// The same elements with the dimensions in another order: dimension `i` of the view is dimension `order[i]`.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::NoSuchDim`], [`Error::NotAPermutation`], [`Error::Stale`]
    pub fn permute(&self, order: &[usize]) -> Result<Self, Error> {
        let layout = self.layout();
        if order.len() != layout.rank() {
            return Err(Error::Rank { given: order.len(), expected: layout.rank() });
        }
        let (mut shape, mut strides) = (Dims::new(), Dims::new());
        for (at, &dim) in order.iter().enumerate() {
            shape.push(self.size_of(dim)?);
            strides.push(layout.strides().get(dim).copied().unwrap_or(0));
            if order.iter().take(at).any(|&earlier| earlier == dim) {
                return Err(Error::NotAPermutation { dim });
            }
        }
        self.view(&shape, &strides, 0)
    }

    /// The same elements, dimensions of size 1 repeated up to the given shape. New dimensions go in front.
    ///
    /// # Errors
    /// [`Error::Rank`] for fewer dimensions, [`Error::BadExpand`], [`Error::TooLarge`], [`Error::Stale`]
    pub fn expand(&self, shape: &[u64]) -> Result<Self, Error> {
        let layout = self.layout();
        let Some(new) = shape.len().checked_sub(layout.rank()) else {
            return Err(Error::Rank { given: shape.len(), expected: layout.rank() });
        };
        let mut strides = Dims::from_elem(0, new);
        for ((&from, &to), &stride) in layout.shape().iter().zip(shape.iter().skip(new)).zip(layout.strides())
        {
            if from != to && from != 1 {
                return Err(Error::BadExpand { from, to });
            }
            strides.push(if from == to { stride } else { 0 });
        }
        self.view(shape, &strides, 0)
    }

    /// The same elements in another shape, where strides for it exist.
    ///
    /// # Errors
    /// [`Error::ElementCount`], [`Error::NotViewable`] where only a copy would do, [`Error::Stale`]
    pub fn reshape(&self, shape: &[u64]) -> Result<Self, Error> {
        let layout = self.layout();
        let target = Layout::contiguous(layout.dtype(), shape)?;
        if target.elements() != layout.elements() {
            return Err(Error::ElementCount { from: layout.elements(), to: target.elements() });
        }
        if layout.is_contiguous() {
            return self.with_layout(target, 0);
        }
        let strides = strides_for(layout, shape).ok_or(Error::NotViewable)?;
        self.view(shape, &strides, 0)
    }

    /// Whether the elements lie without gaps, the last dimension running fastest.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout().is_contiguous()
    }

    fn size_of(&self, dim: usize) -> Result<u64, Error> {
        let layout = self.layout();
        layout.shape().get(dim).copied().ok_or(Error::NoSuchDim { dim, rank: layout.rank() })
    }

    fn dims(&self) -> (Dims, Dims) {
        (self.shape().into(), self.strides().into())
    }

    /// A view that begins `skip` elements on.
    fn view(&self, shape: &[u64], strides: &[u64], skip: u64) -> Result<Self, Error> {
        self.with_layout(Layout::strided(self.dtype(), shape, strides)?, skip)
    }

    fn with_layout(&self, layout: Layout, skip: u64) -> Result<Self, Error> {
        let offset = self.offset_bytes() + skip * self.dtype().bytes();
        Self::with(self.storage().clone(), Arc::new(layout), offset)
    }
}

/// Strides by which the elements of a layout, which has some, can be walked in another shape. Runs of dimensions that lie
/// without gaps between them are walked as one; each has to be the product of whole dimensions of the new shape.
fn strides_for(layout: &Layout, shape: &[u64]) -> Option<Dims> {
    let mut strides = Dims::from_elem(1, shape.len());
    let mut new = shape.iter().zip(&mut strides).rev();
    let mut old =
        layout.shape().iter().zip(layout.strides()).rev().filter(|&(&size, _)| size != 1).peekable();
    while let Some((&size, &stride)) = old.next() {
        let mut run = size;
        while let Some((&more, _)) = old.next_if(|&(_, &outer)| stride.checked_mul(run) == Some(outer)) {
            run *= more;
        }
        let mut covered = 1;
        while covered < run {
            let (&part, at) = new.next()?;
            *at = stride * covered;
            covered *= part;
        }
        if covered != run {
            return None;
        }
    }
    new.all(|(&size, _)| size == 1).then_some(strides)
}
