//! Captures a small graph on the simulated device, replays it, and patches it to another input.
//!
//! `cargo run -p graphgrove-sim --example capture_and_replay`

use graphgrove_device::{
    Args, Call, Capture, CaptureGuard, CaptureMode, DevicePtr, GatherRow, Graphs, LaunchDims, Memory,
    SegmentMemory, Streams, Work,
};
use graphgrove_sim::{SimDevice, kernels};

const N: u32 = 8;
const BYTES: u64 = N as u64 * 4;

fn floats(device: &SimDevice, at: DevicePtr) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let mut bytes = vec![0; BYTES as usize];
    device.read(at, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn store(device: &SimDevice, at: DevicePtr, values: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(device.write(at, &bytes)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = SimDevice::builder().seed(42).build();
    let stream = device.create_stream()?;
    let square = kernels::map(&device, "square", |x: f32| x * x);
    let double = kernels::map(&device, "double", |x: f32| 2.0 * x);

    // Five buffers out of one segment: two inputs, the place that the graph reads its input from, a temporary, a result.
    let segment = device.allocate(5 * 256)?;
    let buffer = |i: u64| DevicePtr::new(segment.base().get() + 256 * i);
    let [first, second, staged, temporary, result] = [0, 1, 2, 3, 4].map(buffer);
    store(&device, first, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])?;
    store(&device, second, &[10.0; N as usize])?;

    // While the capture is open nothing runs: the work becomes nodes.
    let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal)?;
    let gather = device.gather(&stream, &[GatherRow { to: staged, bytes: BYTES }], &[first])?;
    let dims = LaunchDims::for_elements(N);
    device.launch(&stream, &square, dims, &Args::new().read(staged).write(temporary).scalar(N))?;
    device.launch(&stream, &double, dims, &Args::new().read(temporary).write(result).scalar(N))?;
    let graph = capture.end()?;
    let audit = device.audit(&graph)?;
    println!("captured: {audit}");
    audit.refuse_memory_nodes()?;
    let mut exec = device.instantiate(&graph)?;

    device.launch_exec(&mut exec, &stream)?;
    device.synchronize_stream(&stream)?;
    println!("replay on the first input:  {:?}", floats(&device, result)?);

    // The same exec on another input: one call changes where the gather node reads.
    let before = device.counts();
    if let Some(node) = gather {
        device.patch_gather(&mut exec, node, &[second])?;
    }
    device.launch_exec(&mut exec, &stream)?;
    let calls = device.counts().since(&before);
    device.synchronize_stream(&stream)?;
    println!("replay on the second input: {:?}", floats(&device, result)?);
    println!("driver calls of the second replay: {calls} ({} launches)", calls.of(Call::LaunchExec));

    // Nothing was read before it was written, nothing raced, nothing was used after it was freed.
    device.verdict()?;
    println!("the checker found nothing");
    Ok(())
}
