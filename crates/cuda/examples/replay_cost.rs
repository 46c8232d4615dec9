//! What a launch costs the host: bare driver calls beside the contract's, and the gather node by number of rows.
//!
//! Each call is timed alone with the device idle; medians of 2,000 after 200 to warm up. Run with
//! `cargo run --release -p graphgrove-cuda --example replay_cost`.

use std::error::Error;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use graphgrove_cuda::{CudaDevice, Exec, Stream};
use graphgrove_device::{
    Args, CaptureGuard, CaptureMode, DeviceError, DevicePtr, GatherRow, Graphs, LaunchDims, Memory, NodeId,
    SegmentMemory, StreamHandle, Streams, Work,
};

const PTX: &str = include_str!("../tests/support/kernels.ptx");
const CALLS: usize = 2000;
const WARM_UP: usize = 200;
const KERNELS: usize = 10;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Host time of a call and time until the device is idle again, in microseconds.
struct Cost {
    host: f64,
    done: f64,
}

impl Cost {
    fn measure(
        device: &CudaDevice,
        stream: &Stream,
        mut call: impl FnMut(usize) -> Outcome,
    ) -> Outcome<Self> {
        let (mut host, mut done) = (Vec::new(), Vec::new());
        for round in 0..WARM_UP + CALLS {
            let start = Instant::now();
            call(round)?;
            let returned = start.elapsed();
            device.synchronize_stream(stream)?;
            if round >= WARM_UP {
                host.push(returned);
                done.push(start.elapsed());
            }
        }
        Ok(Self { host: median(host), done: median(done) })
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_nanos() as f64 / 1000.0)
}

fn print(what: &str, cost: &Cost) {
    println!("{what:<44} {:>8.2} {:>8.2}", cost.host, cost.done);
}

fn main() -> Outcome {
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(DeviceError::NoDevice { reason }) => {
            println!("skipped: {reason}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("{}, driver {}", device.name()?, device.driver_version()?);
    println!("{:<44} {:>8} {:>8}", "us, median", "host", "done");
    let stream = device.create_stream()?;
    let memory = device.allocate(256 << 20)?;
    let at = |offset: u64| DevicePtr::new(memory.base().get() + offset);
    // SAFETY: the kernels that are used touch as many elements as they are told behind their pointer.
    let add = unsafe { device.load(PTX) }?.kernel("add")?;
    let args = Args::new().read_write(at(0)).scalar(256_u32).scalar(1_u32);
    let other = Args::new().read_write(at(4096)).scalar(256_u32).scalar(1_u32);

    let mut nodes = Vec::new();
    let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal)?;
    for _ in 0..KERNELS {
        nodes.extend(device.launch(&stream, &add, LaunchDims::for_elements(256), &args)?);
    }
    let graph = capture.end()?;
    let mut exec = device.instantiate(&graph)?;
    bare(&device, &stream, &add_function()?, at(0))?;
    let cost = Cost::measure(&device, &stream, |_| Ok(device.launch_exec(&mut exec, &stream)?))?;
    print("launch_exec, 10 kernels", &cost);
    let node = *nodes.first().ok_or("nothing was captured")?;
    let cost = Cost::measure(&device, &stream, |round| {
        device.patch_kernel(&mut exec, node, if round % 2 == 0 { &args } else { &other })?;
        Ok(device.launch_exec(&mut exec, &stream)?)
    })?;
    print("patch_kernel + launch_exec", &cost);

    for (rows, bytes) in
        [(1, 4096_u64), (8, 4096), (32, 4096), (128, 4096), (32, 256 << 10), (1, 64 << 20), (8, 8 << 20)]
    {
        let targets: Vec<_> =
            (0..rows).map(|row| GatherRow { to: at((1 << 20) + row * bytes), bytes }).collect();
        let sources = |shift: u64| -> Vec<DevicePtr> {
            (0..rows).map(|row| at((100 << 20) + row * bytes + shift)).collect()
        };
        let (mut with, gather) = record(&device, &stream, &targets, &sources(0), || {
            for _ in 0..KERNELS {
                device.launch(&stream, &add, LaunchDims::for_elements(256), &args)?;
            }
            Ok(())
        })?;
        let (one, two, odd) = (sources(0), sources(4096), [sources(1), sources(3)]);
        let name = format!("gather {rows} x {} KiB", bytes >> 10);
        let cost = Cost::measure(&device, &stream, |_| Ok(device.launch_exec(&mut with, &stream)?))?;
        print(&format!("{name}, not patched"), &cost);
        let cost = Cost::measure(&device, &stream, |_| patched(&device, &mut with, gather, &one, &stream))?;
        print(&format!("{name}, same addresses"), &cost);
        let cost = Cost::measure(&device, &stream, |round| {
            patched(&device, &mut with, gather, if round % 2 == 0 { &one } else { &two }, &stream)
        })?;
        print(&format!("{name}, all addresses change"), &cost);
        let cost = Cost::measure(&device, &stream, |round| {
            patched(&device, &mut with, gather, &odd[round % 2], &stream)
        })?;
        print(&format!("{name}, odd addresses change"), &cost);
    }
    Ok(())
}

fn record(
    device: &CudaDevice,
    stream: &Stream,
    rows: &[GatherRow],
    sources: &[DevicePtr],
    work: impl FnOnce() -> Outcome,
) -> Outcome<(Exec, NodeId)> {
    let capture = CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal)?;
    let gather = device.gather(stream, rows, sources)?.ok_or("nothing was captured")?;
    work()?;
    Ok((device.instantiate(&capture.end()?)?, gather))
}

fn patched(
    device: &CudaDevice,
    exec: &mut Exec,
    gather: NodeId,
    sources: &[DevicePtr],
    stream: &Stream,
) -> Outcome {
    device.patch_gather(exec, gather, sources)?;
    Ok(device.launch_exec(exec, stream)?)
}

fn check(code: sys::CUresult) -> Outcome {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{code:?}").into()) }
}

/// The `add` kernel without this crate.
fn add_function() -> Outcome<sys::CUfunction> {
    let text = std::ffi::CString::new(PTX)?;
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the text ends in a null byte, and the output outlives the call.
    check(unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) })?;
    // SAFETY: the module was loaded above, and stays so.
    check(unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) })?;
    Ok(function)
}

/// The same graph by driver calls alone: capture, instantiate, launch.
fn bare(device: &CudaDevice, stream: &Stream, add: &sys::CUfunction, at: DevicePtr) -> Outcome {
    let raw = stream.raw().get() as sys::CUstream;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is live.
    check(unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
    let (mut at, mut n, mut value) = (at.get(), 256_u32, 1_u32);
    let mut arguments = [(&raw mut at).cast(), (&raw mut n).cast(), (&raw mut value).cast()];
    for _ in 0..KERNELS {
        let (pointers, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel takes these three arguments, and the stream is live.
        check(unsafe { sys::cuLaunchKernel(*add, 1, 1, 1, 256, 1, 1, 0, raw, pointers, none) })?;
    }
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the capture was begun above, and the output outlives the call.
    check(unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) })?;
    // SAFETY: the graph was captured above, and the output outlives the call.
    check(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) })?;
    let cost = Cost::measure(device, stream, |_| {
        // SAFETY: exec and stream are live.
        check(unsafe { sys::cuGraphLaunch(exec, raw) })
    })?;
    print("bare cuGraphLaunch, 10 kernels", &cost);
    // SAFETY: the exec was made above and is destroyed once.
    check(unsafe { sys::cuGraphExecDestroy(exec) })?;
    // SAFETY: the graph was captured above and is destroyed once.
    check(unsafe { sys::cuGraphDestroy(graph) })
}
