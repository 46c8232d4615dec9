//! The CUDA device of graphgrove: the [device contract](graphgrove_device) through NVIDIA's driver API.
//!
//! The driver is loaded at run time, so the crate builds and tests on a machine without one; there
//! [`CudaDevice::open`] returns [`DeviceError::NoDevice`](graphgrove_device::DeviceError::NoDevice). Drivers from
//! CUDA 12.2 on work: functions that came later are looked up and done without.
//!
//! ```
//! use graphgrove_cuda::CudaDevice;
//! use graphgrove_device::{DeviceError, Memory};
//!
//! match CudaDevice::open(0) {
//!     Ok(device) => println!("{} bytes free", device.memory_info()?.free),
//!     Err(DeviceError::NoDevice { reason }) => println!("no GPU here: {reason}"),
//!     Err(error) => return Err(error),
//! }
//! # Ok::<(), DeviceError>(())
//! ```
//!
//! # What CUDA does that the contract leaves open
//!
//! * **A fault is for the life of the process.** After an illegal address the driver refuses the primary context even to
//!   a device that is opened anew.
//! * **A host address may be no fault.** Where the GPU reaches pageable host memory (Grace Hopper, Linux with HMM), work on
//!   an address that is live host memory reads and writes that memory. [`CudaDevice::reaches_host_memory`] says whether it
//!   does.
//! * **A wrong thread ends a capture.** `cuStreamEndCapture` on another thread than the capture was begun on reports
//!   [`WrongThread`](graphgrove_device::CaptureFailure::WrongThread), and the capture is over.
//! * **Mapping is always allowed.** Reserving, mapping and unmapping, blocking reads and writes and
//!   [`memory_info`](graphgrove_device::Memory::memory_info) are let through whatever captures are open, as long as no
//!   *blocking* stream captures.
//! * **Instantiating and destroying an exec are unsafe calls** in the sense of capture modes. Destruction is put off, as
//!   the contract says; [`instantiate`](graphgrove_device::Graphs::instantiate) is refused as an allocation would be.
//! * **A fork without work of its own** need not be joined.
//!
//! # Threads and contexts
//!
//! Calls bind the device's context to the calling thread and leave it bound. The fast path (launching work and execs on a
//! stream other than the null stream, and patching) does so only on the first call of a thread: a thread that has since
//! made another context current through other code calls [`CudaDevice::bind`] first.

mod async_memory;
mod blas;
mod capture;
mod capture_table;
mod compile;
mod context;
mod copy_node;
mod device;
mod ended_capture;
mod error;
mod event;
mod exec;
mod fields;
mod gather;
mod graph;
mod graphs;
mod host_buffer;
mod host_call;
mod kernel;
mod known_streams;
mod limits;
mod memory;
mod patched_uploads;
mod ptx;
mod raw;
mod recording;
mod reservation;
mod retire;
mod segment;
mod shared;
mod status;
mod stream;
mod streams;
mod symbols;
mod work;

pub use blas::{Blas, Gemm};
pub use device::CudaDevice;
pub use error::CudaError;
pub use event::Event;
pub use exec::Exec;
pub use graph::Graph;
pub use host_buffer::HostBuffer;
pub use kernel::{Kernel, Module};
pub use reservation::Reservation;
pub use segment::Segment;
pub use stream::Stream;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
