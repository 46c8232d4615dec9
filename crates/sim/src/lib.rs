//! A simulated CUDA device, to test GPU code without a GPU.
//!
//! [`SimDevice`] implements the whole of [`graphgrove_device::Device`]: memory, streams, events, captures, graphs. It really
//! executes, on host memory, and it is stricter than hardware:
//!
//! * **Order.** Work waits in its stream until something needs it. Then any work runs whose turn streams, events and graph
//!   edges allow, chosen from a [seed](SimBuilder::seed). A missing dependency shows as a wrong value for some seed, and as a
//!   [finding](Finding::Race) for every seed.
//! * **CUDA's rules.** Captures, memory nodes, updates and the null stream behave as driver 580 does on an H200, refusals and
//!   their consequences included. The rules are written down in [`graphgrove_device::Capture`], and checked by the suite
//!   [`graphgrove_device::contract`], which runs on both.
//! * **Memory.** A [checker](SimBuilder::checker) finds use after free, reads of what was never written, accesses out of
//!   bounds, misaligned accesses, races, and host memory that died before its copy ran. Each [`Finding`] names the kernel, the
//!   argument, the allocation, and the other access.
//! * **Failures.** [`Fault`]s make the k-th call of a kind fail, invalidate a capture, or poison the device.
//! * **Counts.** [`SimDevice::counts`] says how often each driver call was made, and a device in
//!   [null-launch mode](SimBuilder::null_launch) drops all work, so that what is left is the host's own cost.
//!
//! The same seed and the same calls give the same execution, addresses, values and findings, on every machine.
//!
//! # Writing a kernel
//!
//! A kernel is a closure that runs once a launch. It gets a [`KernelScope`], takes numbers from it by
//! [`scalar`](KernelScope::scalar), and [`View`]s of memory by [`read`](KernelScope::read), [`write`](KernelScope::write) and
//! [`read_write`](KernelScope::read_write). The argument indices are those of the launch's
//! [`Args`](graphgrove_device::Args).
//!
//! ```
//! use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory, Streams, Work};
//! use graphgrove_sim::SimDevice;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = SimDevice::new();
//! // (read x, write y, n): y[i] = x[i] / (1 + |x[i]|)
//! let softsign = device.kernel("softsign", |scope| {
//!     let n = scope.scalar::<u32>(2)? as usize;
//!     let (x, y) = (scope.read::<f32>(0, n)?, scope.write::<f32>(1, n)?);
//!     for i in 0..n {
//!         y.set(i, x.get(i) / (1.0 + x.get(i).abs()));
//!     }
//!     Ok(())
//! });
//!
//! let (x, y) = (device.allocate(256)?, device.allocate(256)?);
//! device.write(x.base(), &3.0_f32.to_le_bytes())?;
//! let stream = device.create_stream()?;
//! let args = Args::new().read(x.base()).write(y.base()).scalar(1_u32);
//! device.launch(&stream, &softsign, LaunchDims::for_elements(1), &args)?;
//! device.synchronize_stream(&stream)?;
//!
//! let mut bytes = [0; 4];
//! device.read(y.base(), &mut bytes)?;
//! assert_eq!(f32::from_le_bytes(bytes), 0.75);
//! # Ok(())
//! # }
//! ```
//!
//! [`kernels`] has a few ready-made ones.
//!
//! # In your own tests
//!
//! Write the code under test for any `D: Device`, hand it a [`SimDevice`], and end the test with
//! [`verdict`](SimDevice::verdict). Run it under several seeds: an order that is only right by luck fails one of them.
//!
//! ```
//! use graphgrove_device::{Device, DevicePtr, Memory, SegmentMemory, Streams};
//! use graphgrove_sim::{Finding, SimDevice};
//!
//! /// The code under test: fills a buffer on one stream and copies it on another, but forgets to order them.
//! fn fill_then_copy<D: Device>(device: &D, from: DevicePtr, to: DevicePtr) -> graphgrove_device::Result<()> {
//!     let (one, two) = (device.create_stream()?, device.create_stream()?);
//!     device.fill(&one, from, 7, 64)?;
//!     device.copy(&two, to, from, 64)?;
//!     device.synchronize()
//! }
//!
//! for seed in 0..8 {
//!     let device = SimDevice::builder().seed(seed).build();
//!     let memory = device.allocate(512).unwrap();
//!     let (from, to) = (memory.base(), memory.base().checked_add(256).unwrap());
//!     fill_then_copy(&device, from, to).unwrap();
//!     let found = device.verdict().unwrap_err();
//!     assert!(found.findings.iter().any(|finding| matches!(finding, Finding::Race { .. })));
//! }
//! ```
//!
//! # What it is not
//!
//! It does not run PTX, knows no warps or shared memory, and takes no time: kernels are checked at the granularity of the
//! views that they take, and races between the threads of one kernel are not seen.

mod access;
mod backing;
mod capture;
mod capture_state;
mod clock;
mod counters;
mod device;
mod element;
mod execute;
mod fault;
mod finding;
mod graph_memory;
mod graphs;
mod harness;
mod host;
mod host_call;
mod kernel;
pub mod kernels;
mod memory;
mod op;
mod program;
mod random;
mod run;
mod scheduler;
mod scope;
mod shadow;
mod space;
mod state;
mod stream;
mod work;

pub use access::POISON;
pub use capture::SimGraph;
pub use counters::CallCounts;
pub use device::{SimBuilder, SimDevice};
pub use element::Element;
pub use fault::{Failure, Fault};
pub use finding::{Finding, Findings, Site, Target};
pub use graphs::SimExec;
pub use harness::SimHarness;
pub use host::SimHostBuffer;
pub use kernel::SimKernel;
pub use memory::{SimReservation, SimSegment};
pub use scope::{KernelFault, KernelScope, View};
pub use stream::{SimEvent, SimStream};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
