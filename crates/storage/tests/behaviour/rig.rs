//! A small engine's worth of glue for tests: a simulated device, blocks on it, slabs over them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graphgrove_device::{Annotation, DevicePtr, Memory, SegmentMemory, Streams, Work};
use graphgrove_sim::{SimDevice, SimSegment, SimStream};
use graphgrove_storage::{
    Cause, Error, Event, HandedBack, Layout, Ledger, OutputClass, Owner, PlannedOutput, Slab, SlotIndex,
    Step, Storage, Tensor,
};

/// Counts how many of the owners that it made are alive.
#[derive(Clone, Default)]
pub(crate) struct Census(Arc<AtomicUsize>);

struct Counted(Census);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Census {
    pub(crate) fn owner(&self) -> Owner {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::new(Counted(self.clone()))
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) const BLOCK: u64 = 512;

pub(crate) fn slot(number: u32) -> SlotIndex {
    SlotIndex::new(number)
}

pub(crate) fn step(number: u64) -> Step {
    Step::new(number)
}

pub(crate) fn began(number: u64) -> Cause {
    Cause { event: Event::StepBegan, step: step(number), by: Some("G".into()) }
}

/// A block's worth of floats.
pub(crate) fn floats(count: u64) -> Layout {
    Layout::of::<f32>(&[count]).unwrap()
}

/// A planned output in block `number` of a region that nobody reads.
pub(crate) fn fresh(number: u64) -> PlannedOutput {
    PlannedOutput::fresh(DevicePtr::new(0x10_0000 + BLOCK * number), BLOCK, floats(8))
}

/// A slab with `count` fresh outputs.
pub(crate) fn slab_of(count: u64) -> Slab {
    slab(&Ledger::new(), (0..count).map(fresh).collect())
}

pub(crate) fn slab(ledger: &Arc<Ledger>, outputs: Vec<PlannedOutput>) -> Slab {
    Slab::new(ledger, "F", 7, outputs).unwrap()
}

pub(crate) fn no_source(_: SlotIndex, _: OutputClass) -> Option<Tensor> {
    None
}

/// Hands the outputs of a slab without aliases back.
pub(crate) fn run(slab: &mut Slab, number: u64) -> HandedBack {
    slab.hand_back(step(number), no_source).unwrap()
}

/// Hands the outputs back and takes all.
pub(crate) fn take(slab: &mut Slab, number: u64) -> Vec<Tensor> {
    let mut back = run(slab, number);
    back.outputs.take_all().flatten().collect()
}

/// A tensor of the caller's own.
pub(crate) fn outside(address: u64, count: u64) -> Tensor {
    let storage = Storage::unowned(DevicePtr::new(address), 4 * count);
    Tensor::new(storage, floats(count), 0).unwrap()
}

/// A simulated device with blocks that are annotated, so that it finds whoever reads a block after its death.
pub(crate) struct Rig {
    pub(crate) device: SimDevice,
    pub(crate) stream: SimStream,
    segment: Arc<SimSegment>,
    next: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let device = SimDevice::new();
        let stream = device.create_stream().unwrap();
        let segment = Arc::new(device.allocate(1 << 20).unwrap());
        Self { device, stream, segment, next: 0 }
    }

    /// A block that was never handed out before.
    pub(crate) fn block(&mut self) -> DevicePtr {
        let at = self.segment.base().checked_add(self.next).unwrap();
        self.next += BLOCK;
        self.acquire(at);
        at
    }

    pub(crate) fn acquire(&self, at: DevicePtr) {
        let annotation = Annotation::Acquired { at, bytes: BLOCK, label: "block" };
        self.device.annotate(&self.stream, annotation).unwrap();
    }

    pub(crate) fn release(&self, at: DevicePtr) {
        self.device.annotate(&self.stream, Annotation::Released { at, bytes: BLOCK }).unwrap();
    }

    /// What to keep so that the memory stays.
    pub(crate) fn keeper(&self) -> impl Any + Send + Sync {
        Arc::clone(&self.segment)
    }

    pub(crate) fn write(&self, at: DevicePtr, value: u8) {
        self.device.fill(&self.stream, at, value, BLOCK).unwrap();
    }

    /// Every byte of the tensor, which is contiguous.
    pub(crate) fn read(&self, tensor: &Tensor) -> Result<Vec<u8>, Error> {
        let at = tensor.address()?;
        self.device.synchronize_stream(&self.stream)?;
        let mut bytes = vec![0; tensor.layout().span_bytes() as usize];
        self.device.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The one byte that all bytes of the tensor are.
    pub(crate) fn value(&self, tensor: &Tensor) -> Result<u8, Error> {
        let bytes = self.read(tensor)?;
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
        Ok(bytes[0])
    }

    pub(crate) fn verdict(&self) {
        self.device.synchronize().unwrap();
        self.device.verdict().unwrap();
    }
}
