//! What a device has to bring along to be checked.

use crate::{Device, Result, Work};

/// A kernel that the checks launch. Every implementation supplies all of them.
///
/// Arguments are listed in order; `n` counts elements of 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestKernel {
    /// `()`: does nothing.
    Empty,
    /// `(write dst, u32 n, u32 value)`: `dst[i] = value`.
    Store,
    /// `(read_write p, u32 n, u32 value)`: `p[i] = p[i] + value`, wrapping.
    Add,
    /// `(read src, write dst, u32 n)`: `dst[i] = src[i]`.
    Copy,
    /// `(read x, read_write y, u32 n, f32 a)`: `y[i] = a * x[i] + y[i]`.
    Axpy,
    /// `(read_write p, u32 n, u32 value, u32 microseconds)`: as `Add`, but takes at least that long on a device that has a
    /// clock, so that missing orders show.
    SlowAdd,
}

impl TestKernel {
    /// Every kernel.
    pub const ALL: [Self; 6] = [Self::Empty, Self::Store, Self::Add, Self::Copy, Self::Axpy, Self::SlowAdd];
}

/// What a device has to bring along to be checked.
pub trait Harness {
    /// The device.
    type Device: Device;

    /// Opens the device anew. Every check runs on a device of its own, so that none sees what another left behind.
    ///
    /// # Errors
    /// Whatever keeps the device from being opened; every check is reported as failed then.
    fn open(&self) -> Result<Self::Device>;

    /// One of the kernels that the checks launch.
    ///
    /// # Errors
    /// Whatever keeps the kernel from being made.
    fn kernel(&self, device: &Self::Device, kernel: TestKernel) -> Result<<Self::Device as Work>::Kernel>;

    /// Why the check of that name cannot hold on this device, or `None` if it has to. Such a check is reported as skipped,
    /// with the reason.
    fn unsupported(&self, check: &str) -> Option<String>;

    /// What the device itself found wrong with the work that a check gave it, if it looks for such things.
    ///
    /// The checks are correct programs: they have no races, and read nothing that was never written. A device that
    /// complains of one is wrong, so the check is reported as failed.
    fn complaint(&self, _device: &Self::Device) -> Option<String> {
        None
    }
}
