//! The checks that every device must pass.
//!
//! A device that offers the traits of this crate keeps them if it passes [`run`]. Each [`Check`] states one rule, mostly one
//! of CUDA's, with its place in the CUDA documentation, and finds out from outside whether the device keeps it: through
//! the traits alone, on a device opened for it. Where CUDA leaves something open, no check decides it.
//!
//! The implementer of a device brings a [`Harness`]: how to open the device, and the few [kernels](TestKernel) that the
//! checks launch. A rule that the device cannot keep is declared by [`Harness::unsupported`] and reported as skipped.
//!
//! ```no_run
//! # fn example<H: graphgrove_device::contract::Harness>(harness: H) {
//! use graphgrove_device::contract;
//!
//! let report = contract::run(&harness, "");
//! println!("{report}"); // The last line is `N passed, N failed, N skipped`.
//! assert!(report.is_green());
//! # }
//! ```
//!
//! No check relies on how fast a device is. Where a missing order has to show on hardware, a
//! [slow kernel](TestKernel::SlowAdd) stands in front of the work that must wait for it.

mod audit;
mod capture;
mod capture_allows;
mod capture_forbids;
mod capture_threads;
mod captured_events;
mod check;
mod deferred_destruction;
mod events;
mod foreign_handles;
mod forks;
mod gather;
mod gather_patch;
mod graphs;
mod harness;
mod host_buffers;
mod invalidation;
mod memory;
mod memory_nodes;
mod null_stream;
mod patch;
mod ranges;
mod report;
mod rig;
mod streams;
mod update;
mod upload_patch;
mod violation;
mod work;

pub use check::{Check, run, run_each};
pub use harness::{Harness, TestKernel};
pub use report::{Entry, Outcome, Report};
pub use violation::{Verdict, Violation};

/// Every check, by area, in the order in which [`run`] runs them.
#[must_use]
pub fn checks<H: Harness>() -> Vec<Check<H>> {
    [
        memory::checks(),
        ranges::checks(),
        host_buffers::checks(),
        streams::checks(),
        events::checks(),
        work::checks(),
        capture::checks(),
        forks::checks(),
        captured_events::checks(),
        null_stream::checks(),
        capture_forbids::checks(),
        capture_allows::checks(),
        invalidation::checks(),
        capture_threads::checks(),
        audit::checks(),
        graphs::checks(),
        memory_nodes::checks(),
        update::checks(),
        patch::checks(),
        gather::checks(),
        gather_patch::checks(),
        upload_patch::checks(),
        deferred_destruction::checks(),
        foreign_handles::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
