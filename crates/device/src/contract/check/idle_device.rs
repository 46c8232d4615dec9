//! A device that does nothing, for tests of the checks themselves: it refuses every call, or nods to every call.

use crate::contract::{Harness, TestKernel};
use crate::{
    Args, Call, Capabilities, Capture, CaptureId, CaptureMode, CaptureStatus, DeviceError, DeviceId,
    DevicePtr, EventHandle, EventId, GatherRow, GraphAudit, Graphs, HostMemory, KernelHandle, LaunchDims,
    Memory, MemoryInfo, NodeId, Progress, RawStream, ReservedRange, Result, SegmentMemory, StreamHandle,
    StreamId, Streams, Work,
};

/// How the device answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// It says that it supports nothing.
    Refuses,
    /// It says that all is done, and does none of it.
    Nods,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct IdleHarness {
    pub(super) manner: Manner,
    pub(super) capabilities: Capabilities,
    pub(super) opens: bool,
    pub(super) complaint: Option<&'static str>,
}

impl IdleHarness {
    pub(super) fn new(manner: Manner) -> Self {
        Self { manner, capabilities: Capabilities::all(), opens: true, complaint: None }
    }
}

impl Harness for IdleHarness {
    type Device = IdleDevice;

    fn open(&self) -> Result<IdleDevice> {
        if !self.opens {
            return Err(DeviceError::NoDevice { reason: "none is plugged in".into() });
        }
        Ok(IdleDevice { manner: self.manner, capabilities: self.capabilities })
    }

    fn kernel(&self, _device: &IdleDevice, _kernel: TestKernel) -> Result<Handle> {
        Ok(Handle)
    }

    fn unsupported(&self, check: &str) -> Option<String> {
        (check == "what_no_device_can_do").then(|| "it cannot be done".to_owned())
    }

    fn complaint(&self, _device: &IdleDevice) -> Option<String> {
        self.complaint.map(str::to_owned)
    }
}

#[derive(Debug)]
pub(super) struct IdleDevice {
    manner: Manner,
    capabilities: Capabilities,
}

impl IdleDevice {
    fn answer<T>(&self, call: Call, value: T) -> Result<T> {
        match self.manner {
            Manner::Refuses => Err(DeviceError::Unsupported { call }),
            Manner::Nods => Ok(value),
        }
    }
}

/// Every handle of the device.
#[derive(Debug, Clone)]
pub(super) struct Handle;

/// Memory of the device, of which only the length is remembered.
#[derive(Debug, Clone)]
pub(super) struct Length(u64);

impl StreamHandle for Handle {
    fn id(&self) -> StreamId {
        StreamId::new(0)
    }

    fn device(&self) -> DeviceId {
        DeviceId::new(0)
    }

    fn raw(&self) -> RawStream {
        RawStream::new(0)
    }

    fn is_null(&self) -> bool {
        false
    }
}

impl EventHandle for Handle {
    fn id(&self) -> EventId {
        EventId::new(0)
    }

    fn device(&self) -> DeviceId {
        DeviceId::new(0)
    }
}

impl KernelHandle for Handle {
    fn device(&self) -> DeviceId {
        DeviceId::new(0)
    }

    fn name(&self) -> &str {
        "idle"
    }
}

impl SegmentMemory for Length {
    fn device(&self) -> DeviceId {
        DeviceId::new(0)
    }

    fn base(&self) -> DevicePtr {
        DevicePtr::new(0x1000)
    }

    fn bytes(&self) -> u64 {
        self.0
    }
}

impl ReservedRange for Length {
    fn device(&self) -> DeviceId {
        DeviceId::new(0)
    }

    fn base(&self) -> DevicePtr {
        DevicePtr::new(0x1000)
    }

    fn bytes(&self) -> u64 {
        self.0
    }

    fn mapped_bytes(&self) -> u64 {
        0
    }
}

impl HostMemory for Length {
    fn device(&self) -> DeviceId {
        DeviceId::new(0)
    }

    fn bytes(&self) -> usize {
        self.0 as usize
    }

    fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn write(&self, _offset: usize, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, _offset: usize, _data: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

impl Streams for IdleDevice {
    type Stream = Handle;
    type Event = Handle;

    fn id(&self) -> DeviceId {
        DeviceId::new(0)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn null_stream(&self) -> Handle {
        Handle
    }

    fn create_stream(&self) -> Result<Handle> {
        self.answer(Call::CreateStream, Handle)
    }

    fn create_blocking_stream(&self) -> Result<Handle> {
        self.answer(Call::CreateStream, Handle)
    }

    fn adopt_stream(&self, _raw: RawStream) -> Result<Handle> {
        self.answer(Call::AdoptStream, Handle)
    }

    fn synchronize(&self) -> Result<()> {
        self.answer(Call::SynchronizeDevice, ())
    }

    fn synchronize_stream(&self, _stream: &Handle) -> Result<()> {
        self.answer(Call::SynchronizeStream, ())
    }

    fn query_stream(&self, _stream: &Handle) -> Result<Progress> {
        self.answer(Call::QueryStream, Progress::Done)
    }

    fn create_event(&self) -> Result<Handle> {
        self.answer(Call::CreateEvent, Handle)
    }

    fn record_event(&self, _event: &Handle, _stream: &Handle) -> Result<()> {
        self.answer(Call::RecordEvent, ())
    }

    fn wait_event(&self, _stream: &Handle, _event: &Handle) -> Result<()> {
        self.answer(Call::WaitEvent, ())
    }

    fn query_event(&self, _event: &Handle) -> Result<Progress> {
        self.answer(Call::QueryEvent, Progress::Done)
    }

    fn synchronize_event(&self, _event: &Handle) -> Result<()> {
        self.answer(Call::SynchronizeEvent, ())
    }
}

impl Memory for IdleDevice {
    type Segment = Length;
    type Reservation = Length;
    type HostBuffer = Length;

    fn allocate(&self, bytes: u64) -> Result<Length> {
        self.answer(Call::Allocate, Length(bytes))
    }

    fn adopt_segment(&self, _base: DevicePtr, bytes: u64) -> Result<Length> {
        self.answer(Call::AdoptSegment, Length(bytes))
    }

    fn granularity(&self) -> u64 {
        4096
    }

    fn reserve(&self, bytes: u64) -> Result<Length> {
        self.answer(Call::Reserve, Length(bytes))
    }

    fn map(&self, _range: &mut Length, _offset: u64, _bytes: u64) -> Result<()> {
        self.answer(Call::Map, ())
    }

    fn unmap(&self, _range: &mut Length, _offset: u64, _bytes: u64) -> Result<()> {
        self.answer(Call::Unmap, ())
    }

    fn allocate_async(&self, _stream: &Handle, _bytes: u64) -> Result<DevicePtr> {
        self.answer(Call::AllocateAsync, DevicePtr::new(0x1000))
    }

    fn free_async(&self, _stream: &Handle, _address: DevicePtr) -> Result<()> {
        self.answer(Call::FreeAsync, ())
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.answer(Call::MemoryInfo, MemoryInfo { free: 1 << 30, total: 1 << 30 })
    }

    fn host_buffer(&self, bytes: usize) -> Result<Length> {
        self.answer(Call::AllocateHost, Length(bytes as u64))
    }

    fn write(&self, _to: DevicePtr, _data: &[u8]) -> Result<()> {
        self.answer(Call::Write, ())
    }

    fn read(&self, _from: DevicePtr, _data: &mut [u8]) -> Result<()> {
        self.answer(Call::Read, ())
    }
}

impl Work for IdleDevice {
    type Kernel = Handle;

    fn launch(
        &self,
        _stream: &Handle,
        _kernel: &Handle,
        _dims: LaunchDims,
        _args: &Args,
    ) -> Result<Option<NodeId>> {
        self.answer(Call::Launch, None)
    }

    fn copy(&self, _: &Handle, _to: DevicePtr, _from: DevicePtr, _bytes: u64) -> Result<Option<NodeId>> {
        self.answer(Call::Copy, None)
    }

    fn fill(&self, _: &Handle, _to: DevicePtr, _value: u8, _bytes: u64) -> Result<Option<NodeId>> {
        self.answer(Call::Fill, None)
    }

    fn upload(
        &self,
        _stream: &Handle,
        _to: DevicePtr,
        _from: &Length,
        _offset: usize,
        _bytes: usize,
    ) -> Result<Option<NodeId>> {
        self.answer(Call::Upload, None)
    }

    fn download(
        &self,
        _stream: &Handle,
        _to: &Length,
        _offset: usize,
        _from: DevicePtr,
        _bytes: usize,
    ) -> Result<Option<NodeId>> {
        self.answer(Call::Download, None)
    }

    fn gather_rows(&self) -> usize {
        16
    }

    fn gather(&self, _: &Handle, _rows: &[GatherRow], _sources: &[DevicePtr]) -> Result<Option<NodeId>> {
        self.answer(Call::Gather, None)
    }

    fn host_call(&self, _: &Handle, _call: Box<dyn FnMut() + Send>) -> Result<Option<NodeId>> {
        self.answer(Call::HostCall, None)
    }
}

impl Capture for IdleDevice {
    type Graph = Handle;

    fn begin_capture(&self, _stream: &Handle, _mode: CaptureMode) -> Result<CaptureId> {
        self.answer(Call::BeginCapture, CaptureId::new(0))
    }

    fn end_capture(&self, _stream: &Handle) -> Result<Handle> {
        self.answer(Call::EndCapture, Handle)
    }

    fn abort_capture(&self, _stream: &Handle) -> Result<()> {
        self.answer(Call::AbortCapture, ())
    }

    fn capture_status(&self, _stream: &Handle) -> Result<CaptureStatus> {
        self.answer(Call::CaptureStatus, CaptureStatus::None)
    }

    fn exchange_capture_mode(&self, _mode: CaptureMode) -> Result<CaptureMode> {
        self.answer(Call::ExchangeCaptureMode, CaptureMode::Global)
    }

    fn audit(&self, _graph: &Handle) -> Result<GraphAudit> {
        self.answer(Call::Audit, GraphAudit::default())
    }
}

impl Graphs for IdleDevice {
    type Exec = Handle;

    fn instantiate(&self, _graph: &Handle) -> Result<Handle> {
        self.answer(Call::Instantiate, Handle)
    }

    fn update(&self, _exec: &mut Handle, _graph: &Handle) -> Result<()> {
        self.answer(Call::Update, ())
    }

    fn upload_exec(&self, _exec: &mut Handle, _stream: &Handle) -> Result<()> {
        self.answer(Call::UploadExec, ())
    }

    fn launch_exec(&self, _exec: &mut Handle, _stream: &Handle) -> Result<()> {
        self.answer(Call::LaunchExec, ())
    }

    fn patch_kernel(&self, _exec: &mut Handle, _node: NodeId, _args: &Args) -> Result<()> {
        self.answer(Call::PatchKernel, ())
    }

    fn patch_gather(&self, _exec: &mut Handle, _node: NodeId, _sources: &[DevicePtr]) -> Result<()> {
        self.answer(Call::PatchGather, ())
    }

    fn patch_copy(&self, _exec: &mut Handle, _node: NodeId, _to: DevicePtr, _from: DevicePtr) -> Result<()> {
        self.answer(Call::PatchCopy, ())
    }

    fn patch_upload(
        &self,
        _exec: &mut Handle,
        _node: NodeId,
        _to: DevicePtr,
        _from: &Length,
        _offset: usize,
    ) -> Result<()> {
        self.answer(Call::PatchUpload, ())
    }

    fn exec_bytes(&self, _exec: &Handle) -> Option<u64> {
        None
    }
}
