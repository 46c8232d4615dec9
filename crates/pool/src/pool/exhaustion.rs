//! That there is no more memory, with everything that helps to see why.

use std::fmt;

use super::report::Holder;

/// What keeps a pool from growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The pool's own byte limit.
    Budget {
        /// The limit.
        bytes: u64,
    },
    /// The device's memory.
    Device {
        /// Bytes free on the device when it refused.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { bytes } => write!(f, "the budget is {bytes}"),
            Self::Device { free, total } => write!(f, "the device has {free} of {total} free"),
        }
    }
}

/// A request that cannot be served, and who holds the memory instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhaustion {
    /// Bytes asked for.
    pub asked: u64,
    /// What stands in the way.
    pub limit: Limit,
    /// Bytes that the pool has from the device.
    pub reserved: u64,
    /// Bytes in use.
    pub live: u64,
    /// The largest free run in bytes.
    pub largest_free: u64,
    /// Who holds what, most bytes first.
    pub holders: Vec<Holder>,
}

impl fmt::Display for Exhaustion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, limit, reserved, live, largest_free, holders } = self;
        write!(
            f,
            "no memory for {asked} bytes, {limit}: {live} of {reserved} reserved bytes are in use, \
             the largest free run has {largest_free}"
        )?;
        match holders.first() {
            Some(Holder { owner, label, bytes, .. }) => {
                write!(f, ", most by {owner} `{label}` ({bytes} bytes)")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Owner;

    #[test]
    fn a_shortage_names_the_limit_and_who_holds_most() {
        let exhaustion = Exhaustion {
            asked: 5000,
            limit: Limit::Budget { bytes: 8192 },
            reserved: 8192,
            live: 4096,
            largest_free: 2048,
            holders: vec![Holder { owner: Owner::Output, label: "logits", blocks: 2, bytes: 4096 }],
        };
        assert_eq!(
            exhaustion.to_string(),
            "no memory for 5000 bytes, the budget is 8192: 4096 of 8192 reserved bytes are in use, \
             the largest free run has 2048, most by output `logits` (4096 bytes)"
        );
        let limit = Limit::Device { free: 1, total: 2 };
        assert_eq!(limit.to_string(), "the device has 1 of 2 free");
    }
}
