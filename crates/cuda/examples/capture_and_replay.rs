//! Records a small step once and replays it: with other numbers, with staged inputs from other places, and after an update.
//!
//! Run with `cargo run --release -p graphgrove-cuda --example capture_and_replay`.

use std::error::Error;

use graphgrove_cuda::{CudaDevice, Kernel};
use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, DeviceError, DevicePtr, GatherRow, Graphs, LaunchDims, Memory,
    SegmentMemory, Streams, Work,
};

/// `y[i] = a * x[i] + y[i]`, written in PTX so that no compiler is needed.
const AXPY: &str = r"
.version 7.0
.target sm_52
.address_size 64
.visible .entry axpy(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a)
{
    .reg .pred %done;
    .reg .b32 %i, %n, %block, %thread;
    .reg .f32 %a, %p, %q;
    .reg .b64 %x, %y, %offset;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.u32 %n, [n];
    ld.param.f32 %a, [a];
    mov.u32 %block, %ctaid.x;
    mov.u32 %i, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %i, %thread;
    setp.ge.u32 %done, %i, %n;
    @%done bra END;
    cvta.to.global.u64 %x, %x;
    cvta.to.global.u64 %y, %y;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %x, %x, %offset;
    add.u64 %y, %y, %offset;
    ld.global.f32 %p, [%x];
    ld.global.f32 %q, [%y];
    fma.rn.f32 %q, %a, %p, %q;
    st.global.f32 [%y], %q;
END:
    ret;
}
";

const N: u32 = 1 << 16;
const BYTES: u64 = N as u64 * 4;

fn main() -> Result<(), Box<dyn Error>> {
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(DeviceError::NoDevice { reason }) => {
            println!("skipped: {reason}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("{}, driver {}", device.name()?, device.driver_version()?);
    // SAFETY: the kernel touches `n` elements behind each of its two pointers and nothing else.
    let axpy = unsafe { device.load(AXPY) }?.kernel("axpy")?;
    let stream = device.create_stream()?;
    let memory = device.allocate(4 * BYTES)?;
    let part = |index| DevicePtr::new(memory.base().get() + index * BYTES);
    let (input, output, first, second) = (part(0), part(1), part(2), part(3));
    for (at, value) in [(input, 0.0_f32), (output, 1.0), (first, 10.0), (second, 20.0)] {
        device.write(at, &value.to_le_bytes().repeat(N as usize))?;
    }

    // The input is staged: a gather node copies it from wherever the caller has it.
    let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal)?;
    let gather = device.gather(&stream, &[GatherRow { to: input, bytes: BYTES }], &[first])?;
    let node = launch(&device, &stream, &axpy, input, output, 2.0)?;
    let graph = capture.end()?;
    let audit = device.audit(&graph)?;
    audit.refuse_memory_nodes()?;
    println!("recorded {audit}");
    let (Some(gather), Some(node)) = (gather, node) else { return Err("nothing was captured".into()) };

    let mut exec = device.instantiate(&graph)?;
    let mut replay =
        |what: &str, change: &dyn Fn(&mut _) -> Result<(), DeviceError>| -> Result<(), DeviceError> {
            change(&mut exec)?;
            device.launch_exec(&mut exec, &stream)?;
            device.synchronize_stream(&stream)?;
            println!("{what:<45} output = {}", value(&device, output)?);
            Ok(())
        };
    replay("as recorded: 2 * 10 + 1", &|_| Ok(()))?;
    replay("staged from elsewhere: 2 * 20 + 21", &|exec| device.patch_gather(exec, gather, &[second]))?;
    replay("another factor: -3 * 20 + 61", &|exec| {
        device.patch_kernel(exec, node, &axpy_args(input, output, -3.0))
    })?;

    let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal)?;
    device.gather(&stream, &[GatherRow { to: input, bytes: BYTES }], &[output])?;
    launch(&device, &stream, &axpy, input, output, 1.0)?;
    let doubling = capture.end()?;
    replay("updated to another recording: 1 + 1", &|exec| device.update(exec, &doubling))?;
    Ok(())
}

fn axpy_args(x: DevicePtr, y: DevicePtr, a: f32) -> Args {
    Args::new().read(x).read_write(y).scalar(N).scalar(a)
}

fn launch(
    device: &CudaDevice,
    stream: &graphgrove_cuda::Stream,
    kernel: &Kernel,
    x: DevicePtr,
    y: DevicePtr,
    a: f32,
) -> Result<Option<graphgrove_device::NodeId>, DeviceError> {
    device.launch(stream, kernel, LaunchDims::for_elements(N), &axpy_args(x, y, a))
}

/// The value that every element of an array has.
fn value(device: &CudaDevice, at: DevicePtr) -> Result<f32, DeviceError> {
    let mut bytes = vec![0; BYTES as usize];
    device.read(at, &mut bytes)?;
    let mut values =
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let first = values.next().unwrap_or(f32::NAN);
    Ok(if values.all(|value| value == first) { first } else { f32::NAN })
}
