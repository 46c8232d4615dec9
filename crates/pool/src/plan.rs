//! A layout decided before the first allocation, when all requests and their lifetimes are known.
//!
//! A recording makes the requests that its warm-up made. Knowing when each block is born and dies, its place can be chosen so that the
//! memory in use is at or near the least possible, the largest sum of bytes that are live at once. This is the dynamic storage
//! allocation problem, NP-hard in general (Garey and Johnson, 1979, SR2), and easy in practice: [`Planner`] tries many cheap ways and
//! keeps the best.
//!
//! - *List packing*: blocks in some order, each at the lowest place, or in the tightest gap, that is free for all of its life.
//! - *Skyline packing* (Sekiyama et al., "Profile-guided memory optimization for deep neural networks", 2018): always fill the lowest
//!   step of the skyline over time, with the longest-lived block that fits into it. The result is used as an order for list packing,
//!   which can only lower blocks, and which knows of alignment and of blocks that are there already.
//! - *Improvement* where the best is not good enough: blocks of a chain that reaches the peak are moved in the order.
//!
//! Everything is deterministic. [`Cursor`] serves requests from a plan and falls back to searching, with the reason, when a program
//! does not do what it did before; the plan is advice, and [`Ranges`](crate::ranges::Ranges) is what keeps blocks apart.

mod cursor;
mod improve;
mod order;
mod pack;
mod planner;
mod recorder;
mod skyline;

pub use cursor::{Cursor, Departure};
pub use order::{Order, Tie};
pub use pack::Fit;
pub use planner::{Method, Plan, Planner};
pub use recorder::Recorder;

/// One block to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its size in bytes.
    pub bytes: u64,
    /// The alignment of its offset in bytes.
    pub align: u64,
    /// When it is born. Time is counted in any unit that rises with every allocation and every free.
    pub birth: u32,
    /// When it dies, later than its birth: from then on its bytes may be another block's.
    pub death: u32,
}

impl Request {
    /// The death of a block that is live at the end.
    pub const SURVIVES: u32 = u32::MAX;
}

/// A block that is there already when a plan begins, and until it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it dies, in the time of the requests.
    pub death: u32,
}
