//! The tiny kernel that graphs are made of, and tensors for it.

use std::error::Error;

use graphgrove_cuda::{CudaDevice, Kernel};
use graphgrove_device::{Args, DevicePtr, LaunchDims, Memory, SegmentMemory};
use graphgrove_storage::{Layout, Storage, Tensor};

/// `y[i] = i + x[0]` for 32 elements, written in PTX so that no compiler is needed.
pub(crate) const ADD: &str = r"
.version 7.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y)
{
    .reg .b32 %i;
    .reg .f32 %a, %b;
    .reg .b64 %x, %y, %offset;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    cvta.to.global.u64 %x, %x;
    cvta.to.global.u64 %y, %y;
    mov.u32 %i, %tid.x;
    cvt.rn.f32.u32 %a, %i;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %y, %y, %offset;
    ld.global.f32 %b, [%x];
    add.f32 %a, %a, %b;
    st.global.f32 [%y], %a;
    ret;
}
";

/// Bytes of a staged input.
pub(crate) const INPUT: u64 = 4096;
/// Bytes between outputs; the kernel writes the first 128 of them.
pub(crate) const OUTPUT: u64 = 512;
/// How the kernel is launched.
pub(crate) const DIMS: LaunchDims = LaunchDims { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0 };

/// Loads the kernel.
pub(crate) fn load(device: &CudaDevice) -> Result<Kernel, Box<dyn Error>> {
    // SAFETY: the kernel reads one element behind its first pointer and writes 32 behind its second.
    Ok(unsafe { device.load(ADD) }?.kernel("add")?)
}

pub(crate) fn args(x: DevicePtr, y: DevicePtr) -> Args {
    Args::new().read(x).write(y)
}

/// What the kernel writes.
pub(crate) fn output() -> Result<Layout, graphgrove_storage::Error> {
    Layout::of::<f32>(&[32])
}

/// A tensor in memory of its own.
pub(crate) fn tensor(device: &CudaDevice, value: f32) -> Result<Tensor, Box<dyn Error>> {
    let segment = device.allocate(INPUT)?;
    device.write(segment.base(), &value.to_le_bytes().repeat(INPUT as usize / 4))?;
    let storage = Storage::outside(segment.base(), INPUT, Box::new(segment));
    Ok(Tensor::new(storage, Layout::of::<f32>(&[INPUT / 4])?, 0)?)
}
