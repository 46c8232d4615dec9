//! A newly opened device with what the checks need of it: kernels, buffers, recordings.

use super::violation::{equal, succeeds};
use super::{Harness, TestKernel, Verdict, Violation};
use crate::{
    Args, Capture, CaptureGuard, CaptureId, CaptureMode, CaptureStatus, DevicePtr, Graphs, LaunchDims,
    Memory, NodeId, Result, SegmentMemory, Streams, Work,
};

pub(super) type StreamOf<H> = <<H as Harness>::Device as Streams>::Stream;
pub(super) type EventOf<H> = <<H as Harness>::Device as Streams>::Event;
pub(super) type SegmentOf<H> = <<H as Harness>::Device as Memory>::Segment;
pub(super) type HostOf<H> = <<H as Harness>::Device as Memory>::HostBuffer;
pub(super) type KernelOf<H> = <<H as Harness>::Device as Work>::Kernel;
pub(super) type GraphOf<H> = <<H as Harness>::Device as Capture>::Graph;
pub(super) type ExecOf<H> = <<H as Harness>::Device as Graphs>::Exec;

/// How many words a buffer of [`Rig::filled`] has: more than one block of threads, and not a multiple of one.
pub(super) const WORDS: u32 = 1000;

/// How long a slow kernel takes at least, in microseconds, where the device has a clock: long against what enqueuing
/// costs, so that work which does not wait for it overtakes it.
const SLOW_MICROSECONDS: u32 = 20_000;

/// A newly opened device, its kernels made before any capture opens: making one can be refused inside of a capture.
pub(super) struct Rig<'h, H: Harness> {
    pub(super) harness: &'h H,
    pub(super) device: H::Device,
    kernels: Vec<KernelOf<H>>,
}

/// A segment with known contents.
pub(super) struct Buffer<H: Harness> {
    pub(super) segment: SegmentOf<H>,
}

impl<H: Harness> Buffer<H> {
    pub(super) fn at(&self) -> DevicePtr {
        self.segment.base()
    }

    /// The address `bytes` behind the start.
    pub(super) fn after(&self, bytes: u64) -> DevicePtr {
        DevicePtr::new(self.segment.base().get().wrapping_add(bytes))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segment.bytes()
    }

    fn words(&self) -> u32 {
        u32::try_from(self.segment.bytes() / 4).unwrap_or(u32::MAX)
    }
}

impl<'h, H: Harness> Rig<'h, H> {
    pub(super) fn open(harness: &'h H) -> Verdict<Self> {
        let device = succeeds("opening the device", harness.open())?;
        let mut kernels = Vec::new();
        for kernel in TestKernel::ALL {
            kernels.push(succeeds("making a kernel", harness.kernel(&device, kernel))?);
        }
        Ok(Self { harness, device, kernels })
    }

    pub(super) fn kernel(&self, kernel: TestKernel) -> &KernelOf<H> {
        &self.kernels[kernel as usize]
    }

    pub(super) fn stream(&self) -> Verdict<StreamOf<H>> {
        succeeds("creating a stream", self.device.create_stream())
    }

    pub(super) fn two_streams(&self) -> Verdict<(StreamOf<H>, StreamOf<H>)> {
        Ok((self.stream()?, self.stream()?))
    }

    pub(super) fn event(&self) -> Verdict<EventOf<H>> {
        succeeds("creating an event", self.device.create_event())
    }

    /// A new event, recorded on the stream.
    pub(super) fn recorded(&self, stream: &StreamOf<H>) -> Verdict<EventOf<H>> {
        let event = self.event()?;
        succeeds("recording an event", self.device.record_event(&event, stream))?;
        Ok(event)
    }

    /// Makes the later work of `stream` wait for what is enqueued on `other` now.
    pub(super) fn order(&self, other: &StreamOf<H>, stream: &StreamOf<H>) -> Verdict {
        let event = self.recorded(other)?;
        succeeds("waiting for an event", self.device.wait_event(stream, &event))
    }

    /// A buffer of [`WORDS`] words, each of which is `value`.
    pub(super) fn filled(&self, value: u32) -> Verdict<Buffer<H>> {
        self.buffer(&value.to_le_bytes().repeat(WORDS as usize))
    }

    /// A buffer that holds the bytes.
    pub(super) fn buffer(&self, contents: &[u8]) -> Verdict<Buffer<H>> {
        let segment = succeeds("allocating a buffer", self.device.allocate(contents.len() as u64))?;
        succeeds("writing a buffer", self.device.write(segment.base(), contents))?;
        Ok(Buffer { segment })
    }

    pub(super) fn contents(&self, buffer: &Buffer<H>) -> Verdict<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(buffer.bytes()).unwrap_or(0)];
        succeeds("reading a buffer", self.device.read(buffer.at(), &mut bytes))?;
        Ok(bytes)
    }

    /// Demands that every word of the buffer is `value`, as far as the device has come.
    pub(super) fn expect_words(&self, step: &str, buffer: &Buffer<H>, value: u32) -> Verdict {
        let contents = self.contents(buffer)?;
        for (place, word) in contents.chunks_exact(4).enumerate() {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(word);
            let seen = u32::from_le_bytes(bytes);
            if seen != value {
                let seen = format!("{seen} in word {place}");
                return Err(Violation::at(step, format!("{value} in every word"), seen));
            }
        }
        Ok(())
    }

    /// Demands that the buffer holds exactly these bytes.
    pub(super) fn expect_bytes(&self, step: &str, buffer: &Buffer<H>, expected: &[u8]) -> Verdict {
        let contents = self.contents(buffer)?;
        match contents.iter().zip(expected).position(|(seen, expected)| seen != expected) {
            None => equal(step, contents.len(), expected.len()),
            Some(place) => Err(Violation::at(
                step,
                format!("{} at byte {place}", expected[place]),
                contents[place].to_string(),
            )),
        }
    }

    /// Waits for the stream, then demands that every word of the buffer is `value`.
    pub(super) fn finish_words(
        &self,
        stream: &StreamOf<H>,
        step: &str,
        buffer: &Buffer<H>,
        value: u32,
    ) -> Verdict {
        self.finish(stream)?;
        self.expect_words(step, buffer, value)
    }

    pub(super) fn finish(&self, stream: &StreamOf<H>) -> Verdict {
        succeeds("waiting for a stream", self.device.synchronize_stream(stream))
    }

    pub(super) fn launch(
        &self,
        stream: &StreamOf<H>,
        kernel: TestKernel,
        args: &Args,
    ) -> Result<Option<NodeId>> {
        self.device.launch(stream, self.kernel(kernel), LaunchDims::for_elements(WORDS), args)
    }

    /// Enqueues `buffer[i] = value`.
    pub(super) fn store(
        &self,
        stream: &StreamOf<H>,
        buffer: &Buffer<H>,
        value: u32,
    ) -> Result<Option<NodeId>> {
        self.launch(stream, TestKernel::Store, &store_args(buffer, value))
    }

    /// Enqueues `buffer[i] += value`.
    pub(super) fn add(&self, stream: &StreamOf<H>, buffer: &Buffer<H>, value: u32) -> Result<Option<NodeId>> {
        self.launch(stream, TestKernel::Add, &add_args(buffer, value))
    }

    /// Enqueues `buffer[i] += value`, slowly.
    pub(super) fn slow_add(
        &self,
        stream: &StreamOf<H>,
        buffer: &Buffer<H>,
        value: u32,
    ) -> Result<Option<NodeId>> {
        self.launch(stream, TestKernel::SlowAdd, &add_args(buffer, value).scalar(SLOW_MICROSECONDS))
    }

    /// Enqueues `to[i] = from[i]` as a kernel.
    pub(super) fn copy(
        &self,
        stream: &StreamOf<H>,
        from: &Buffer<H>,
        to: &Buffer<H>,
    ) -> Result<Option<NodeId>> {
        self.launch(
            stream,
            TestKernel::Copy,
            &Args::new().read(from.at()).write(to.at()).scalar(from.words()),
        )
    }

    pub(super) fn begin(
        &self,
        stream: &StreamOf<H>,
        mode: CaptureMode,
    ) -> Verdict<CaptureGuard<'_, H::Device>> {
        succeeds("beginning a capture", CaptureGuard::begin(&self.device, stream, mode))
    }

    /// Records what `body` enqueues on the stream, in a thread-local capture.
    pub(super) fn record(&self, stream: &StreamOf<H>, body: impl FnOnce() -> Verdict) -> Verdict<GraphOf<H>> {
        let capture = self.begin(stream, CaptureMode::ThreadLocal)?;
        body()?;
        succeeds("ending a capture", capture.end())
    }

    /// Records as [`record`](Rig::record) and instantiates.
    pub(super) fn exec(&self, stream: &StreamOf<H>, body: impl FnOnce() -> Verdict) -> Verdict<ExecOf<H>> {
        let graph = self.record(stream, body)?;
        self.instantiate(&graph)
    }

    pub(super) fn instantiate(&self, graph: &GraphOf<H>) -> Verdict<ExecOf<H>> {
        succeeds("instantiating a graph", self.device.instantiate(graph))
    }

    pub(super) fn run(&self, exec: &mut ExecOf<H>, stream: &StreamOf<H>) -> Verdict {
        succeeds("launching an exec", self.device.launch_exec(exec, stream))
    }

    /// Runs something on a thread of its own and waits for it.
    pub(super) fn on_another_thread<T: Send>(&self, work: impl FnOnce(&H::Device) -> T + Send) -> Verdict<T> {
        let device = &self.device;
        std::thread::scope(|scope| scope.spawn(move || work(device)).join())
            .map_err(|_| Violation::at("work on another thread", "no panic", "a panic"))
    }

    /// Demands that the capture is active on the stream.
    pub(super) fn expect_active(&self, step: &str, stream: &StreamOf<H>, capture: CaptureId) -> Verdict {
        let status = succeeds("asking for the capture", self.device.capture_status(stream))?;
        equal(step, status, CaptureStatus::Active(capture))
    }

    /// Demands that the capture is invalidated on the stream.
    pub(super) fn expect_invalidated(&self, step: &str, stream: &StreamOf<H>, capture: CaptureId) -> Verdict {
        let status = succeeds("asking for the capture", self.device.capture_status(stream))?;
        equal(step, status, CaptureStatus::Invalidated(capture))
    }

    /// Demands that the stream is part of no capture, and that it runs work.
    pub(super) fn expect_usable(&self, step: &str, stream: &StreamOf<H>) -> Verdict {
        let status = succeeds("asking for the capture", self.device.capture_status(stream))?;
        equal(step, status, CaptureStatus::None)?;
        let buffer = self.filled(1)?;
        equal(step, self.add(stream, &buffer, 1)?, None)?;
        self.finish_words(stream, step, &buffer, 2)
    }
}

/// The arguments of [`TestKernel::Store`] for a whole buffer.
pub(super) fn store_args<H: Harness>(buffer: &Buffer<H>, value: u32) -> Args {
    Args::new().write(buffer.at()).scalar(buffer.words()).scalar(value)
}

/// The arguments of [`TestKernel::Add`] for a whole buffer.
pub(super) fn add_args<H: Harness>(buffer: &Buffer<H>, value: u32) -> Args {
    Args::new().read_write(buffer.at()).scalar(buffer.words()).scalar(value)
}
