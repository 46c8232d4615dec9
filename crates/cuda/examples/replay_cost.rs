//! What recordings and launches cost the host: bare driver calls beside the contract's, and the gather node by number and
//! size of its rows.
//!
//! Each call is timed alone with the device idle. The variants take turns, so that what the machine does besides meets all
//! of them; medians of 2,000 turns after 200 to warm up. Run with
//! `cargo run --release -p graphgrove-cuda --example replay_cost`.

use std::error::Error;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use graphgrove_cuda::{CudaDevice, Exec, Graph, Kernel, Stream};
use graphgrove_device::{
    Args, CaptureGuard, CaptureMode, DeviceError, DevicePtr, GatherRow, Graphs, LaunchDims, Memory,
    SegmentMemory, StreamHandle, Streams, Work,
};

const PTX: &str = include_str!("../tests/support/kernels.ptx");
const CALLS: usize = 2000;
const WARM_UP: usize = 200;
const RECORDINGS: usize = 50;
const KERNELS: usize = 10;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A call that is timed, and what its turns took.
struct Variant<'a> {
    name: String,
    call: Box<dyn FnMut(usize) -> Outcome + 'a>,
    host: Vec<Duration>,
    done: Vec<Duration>,
}

impl<'a> Variant<'a> {
    fn new(name: impl Into<String>, call: impl FnMut(usize) -> Outcome + 'a) -> Self {
        Self { name: name.into(), call: Box::new(call), host: Vec::new(), done: Vec::new() }
    }
}

/// Lets the variants take turns, and prints the median host time and the median time until the device is idle again.
fn measure(device: &CudaDevice, stream: &Stream, variants: &mut [Variant<'_>]) -> Outcome {
    for turn in 0..WARM_UP + CALLS {
        for variant in &mut *variants {
            let start = Instant::now();
            (variant.call)(turn)?;
            let returned = start.elapsed();
            device.synchronize_stream(stream)?;
            if turn >= WARM_UP {
                variant.host.push(returned);
                variant.done.push(start.elapsed());
            }
        }
    }
    for variant in variants {
        let (host, done) = (median(&mut variant.host), median(&mut variant.done));
        println!("{:<44} {host:>8.2} {done:>8.2}", variant.name);
    }
    Ok(())
}

/// The median in microseconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_nanos() as f64 / 1000.0)
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
    let bench = Bench::new(&device)?;
    println!("\n{:<44} {:>8} {:>8}", "launch, us", "host", "done");
    bench.launches()?;
    println!("\n{:<44} {:>8}", "recording and instantiating, us", "host");
    bench.recordings(10)?;
    bench.recordings(100)?;
    bench.recordings(1000)
}

struct Bench<'d> {
    device: &'d CudaDevice,
    stream: Stream,
    memory: graphgrove_cuda::Segment,
    add: Kernel,
    bare_add: sys::CUfunction,
}

impl<'d> Bench<'d> {
    fn new(device: &'d CudaDevice) -> Outcome<Self> {
        // SAFETY: the kernels that are used touch as many elements as they are told behind their pointer.
        let add = unsafe { device.load(PTX) }?.kernel("add")?;
        let (stream, memory) = (device.create_stream()?, device.allocate(256 << 20)?);
        Ok(Self { device, stream, memory, add, bare_add: add_function()? })
    }

    fn at(&self, offset: u64) -> DevicePtr {
        DevicePtr::new(self.memory.base().get() + offset)
    }

    fn args(&self, offset: u64) -> Args {
        Args::new().read_write(self.at(offset)).scalar(256_u32).scalar(1_u32)
    }

    /// Records a gather, if there are rows, and some kernels.
    fn record(&self, rows: &[GatherRow], sources: &[DevicePtr], kernels: usize) -> Outcome<Graph> {
        let capture = CaptureGuard::begin(self.device, &self.stream, CaptureMode::ThreadLocal)?;
        if !rows.is_empty() {
            self.device.gather(&self.stream, rows, sources)?;
        }
        for _ in 0..kernels {
            self.device.launch(&self.stream, &self.add, LaunchDims::for_elements(256), &self.args(0))?;
        }
        Ok(capture.end()?)
    }

    fn launches(&self) -> Outcome {
        let (device, stream) = (self.device, &self.stream);
        let bare = self.bare_recording(KERNELS)?;
        let raw = stream.raw().get() as sys::CUstream;
        let graph = self.record(&[], &[], KERNELS)?;
        let (mut plain, mut patched) = (device.instantiate(&graph)?, device.instantiate(&graph)?);
        let args = [self.args(0), self.args(4096)];
        let first = graphgrove_device::NodeId::new(0);
        let mut variants = vec![
            Variant::new("bare cuGraphLaunch, 10 kernels", |_| {
                // SAFETY: exec and stream are live.
                check(unsafe { sys::cuGraphLaunch(bare.exec, raw) })
            }),
            Variant::new("launch_exec, 10 kernels", |_| Ok(device.launch_exec(&mut plain, stream)?)),
            Variant::new("patch_kernel, launch_exec", |turn| {
                device.patch_kernel(&mut patched, first, &args[turn % 2])?;
                Ok(device.launch_exec(&mut patched, stream)?)
            }),
        ];
        let shapes =
            [(1, 4096), (8, 4096), (32, 4096), (128, 4096), (32, 256 << 10), (1, 64 << 20), (8, 8 << 20)];
        for (rows, bytes) in shapes {
            let targets: Vec<_> =
                (0..rows).map(|row| GatherRow { to: self.at((1 << 20) + row * bytes), bytes }).collect();
            let sources = |shift: u64| -> Vec<DevicePtr> {
                (0..rows).map(|row| self.at((100 << 20) + row * bytes + shift)).collect()
            };
            let graph = self.record(&targets, &sources(0), KERNELS)?;
            let name = format!("gather {rows} x {} KiB", bytes >> 10);
            let cases = [
                ("same addresses", [0, 0]),
                ("all addresses change", [0, 4096]),
                ("odd addresses change", [1, 3]),
            ];
            for (case, shifts) in cases {
                let mut exec: Exec = device.instantiate(&graph)?;
                let sources = shifts.map(sources);
                variants.push(Variant::new(format!("{name}, {case}"), move |turn| {
                    device.patch_gather(&mut exec, first, &sources[turn % 2])?;
                    Ok(device.launch_exec(&mut exec, stream)?)
                }));
            }
        }
        measure(device, stream, &mut variants)
    }

    fn recordings(&self, kernels: usize) -> Outcome {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..RECORDINGS {
            let start = Instant::now();
            let recording = self.bare_recording(kernels)?;
            bare.push(start.elapsed());
            drop(recording);
            let start = Instant::now();
            let graph = self.record(&[], &[], kernels)?;
            let exec = self.device.instantiate(&graph)?;
            ours.push(start.elapsed());
            drop((exec, graph));
        }
        println!("{:<44} {:>8.1}", format!("bare, {kernels} kernels"), median(&mut bare));
        println!("{:<44} {:>8.1}", format!("by the contract, {kernels} kernels"), median(&mut ours));
        Ok(())
    }

    /// The same graph by driver calls alone.
    fn bare_recording(&self, kernels: usize) -> Outcome<Bare> {
        let raw = self.stream.raw().get() as sys::CUstream;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live.
        check(unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
        let (mut at, mut n, mut value) = (self.at(0).get(), 256_u32, 1_u32);
        let mut arguments = [(&raw mut at).cast(), (&raw mut n).cast(), (&raw mut value).cast()];
        for _ in 0..kernels {
            let (pointers, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: the kernel takes these three arguments, and the stream is live.
            check(unsafe { sys::cuLaunchKernel(self.bare_add, 1, 1, 1, 256, 1, 1, 0, raw, pointers, none) })?;
        }
        let mut bare = Bare { graph: std::ptr::null_mut(), exec: std::ptr::null_mut() };
        // SAFETY: the capture was begun above, and the output outlives the call.
        check(unsafe { sys::cuStreamEndCapture(raw, &raw mut bare.graph) })?;
        // SAFETY: the graph was captured above, and the output outlives the call.
        check(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut bare.exec, bare.graph, 0) })?;
        Ok(bare)
    }
}

/// A graph and an exec by driver calls alone.
struct Bare {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: the exec was made for this value and is destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        // SAFETY: the graph was captured for this value and is destroyed once.
        let _ = unsafe { sys::cuGraphDestroy(self.graph) };
    }
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
