//! A device with a few buffers and kernels, as most tests want it.

use graphgrove_device::{
    Args, Capture, CaptureGuard, CaptureMode, DevicePtr, Graphs, LaunchDims, Memory, SegmentMemory, Streams,
    Work,
};
use graphgrove_sim::{
    Finding, SimBuilder, SimDevice, SimExec, SimGraph, SimKernel, SimSegment, SimStream, kernels,
};

/// Elements of every buffer.
pub(crate) const N: u32 = 16;
/// Bytes of every buffer.
pub(crate) const BYTES: u64 = N as u64 * 4;

pub(crate) struct Rig {
    pub(crate) device: SimDevice,
    pub(crate) a: SimStream,
    pub(crate) b: SimStream,
    pub(crate) fill: SimKernel,
    pub(crate) copy: SimKernel,
    pub(crate) add: SimKernel,
    segment: SimSegment,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(SimDevice::builder())
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self::with(SimDevice::builder().seed(seed))
    }

    pub(crate) fn with(builder: SimBuilder) -> Self {
        let device = builder.build();
        let add = device.kernel("add", |scope| {
            let (n, value) = (scope.scalar::<u32>(1)? as usize, scope.scalar::<u32>(2)?);
            let p = scope.read_write::<u32>(0, n)?;
            for i in 0..n {
                p.set(i, p.get(i).wrapping_add(value));
            }
            Ok(())
        });
        Self {
            a: device.create_stream().unwrap(),
            b: device.create_stream().unwrap(),
            fill: kernels::fill::<u32>(&device),
            copy: kernels::copy::<u32>(&device),
            add,
            segment: device.allocate(16 * BYTES).unwrap(),
            device,
        }
    }

    /// The address of one of 16 buffers.
    pub(crate) fn buffer(&self, index: u64) -> DevicePtr {
        DevicePtr::new(self.segment.base().get() + index * BYTES)
    }

    pub(crate) fn store(&self, stream: &SimStream, to: DevicePtr, value: u32) {
        let args = Args::new().write(to).scalar(N).scalar(value);
        self.device.launch(stream, &self.fill, LaunchDims::ONE, &args).unwrap();
    }

    pub(crate) fn add(&self, stream: &SimStream, to: DevicePtr, value: u32) {
        let args = Args::new().read_write(to).scalar(N).scalar(value);
        self.device.launch(stream, &self.add, LaunchDims::ONE, &args).unwrap();
    }

    pub(crate) fn copy(&self, stream: &SimStream, from: DevicePtr, to: DevicePtr) {
        let args = Args::new().read(from).write(to).scalar(N);
        self.device.launch(stream, &self.copy, LaunchDims::ONE, &args).unwrap();
    }

    /// Makes the second stream wait for the first.
    pub(crate) fn order(&self, first: &SimStream, second: &SimStream) {
        let event = self.device.create_event().unwrap();
        self.device.record_event(&event, first).unwrap();
        self.device.wait_event(second, &event).unwrap();
    }

    pub(crate) fn capture(&self, body: impl FnOnce()) -> SimGraph {
        let guard = CaptureGuard::begin(&self.device, &self.a, CaptureMode::ThreadLocal).unwrap();
        body();
        guard.end().unwrap()
    }

    pub(crate) fn exec(&self, body: impl FnOnce()) -> SimExec {
        self.device.instantiate(&self.capture(body)).unwrap()
    }

    pub(crate) fn launch(&self, exec: &mut SimExec, stream: &SimStream) {
        self.device.launch_exec(exec, stream).unwrap();
    }

    /// The first element of a buffer, after everything has run.
    pub(crate) fn value(&self, at: DevicePtr) -> u32 {
        self.device.synchronize().unwrap();
        let mut bytes = [0; 4];
        self.device.read(at, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Everything that the checker finds once all work has run.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.device.verdict().map_or_else(|found| found.findings, |()| Vec::new())
    }

    pub(crate) fn is_capturing(&self, stream: &SimStream) -> bool {
        self.device.capture_status(stream).unwrap() != graphgrove_device::CaptureStatus::None
    }
}
