//! Random scenarios: how they are made, how one that fails is made small, and the search.

mod draft;
mod lower;
mod search;
mod shrink;

pub use draft::{Draft, draft};
pub use search::{Found, Search};
pub use shrink::shrunk;
