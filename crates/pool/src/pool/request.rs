//! What is asked for when a block is.

use super::owner::Owner;

/// A block to be made: how large, how aligned, for whom, and by which name reports and memory checkers call it.
///
/// ```
/// use graphgrove_pool::pool::{Owner, Request};
///
/// let request = Request::bytes(4096).owner(Owner::Workspace).label("matmul scratch").align(1024);
/// assert_eq!((request.bytes, request.align), (4096, 1024));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes, at least one.
    pub bytes: u64,
    /// The alignment of the address in bytes, a power of two.
    pub align: u64,
    /// What the block is for.
    pub owner: Owner,
    /// Its name in reports and findings.
    pub label: &'static str,
}

impl Request {
    /// The alignment that every block has: what suits every vector access, and what `cuMemAlloc` gives in practice.
    pub const ALIGN: u64 = 512;

    /// A request for `bytes`, of nobody in particular.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self { bytes, align: Self::ALIGN, owner: Owner::Unknown, label: "pool block" }
    }

    /// Says what the block is for.
    #[must_use]
    pub const fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Names the block.
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// Asks for an alignment in bytes. Less than [`ALIGN`](Request::ALIGN) changes nothing.
    #[must_use]
    pub const fn align(mut self, align: u64) -> Self {
        self.align = align;
        self
    }
}
