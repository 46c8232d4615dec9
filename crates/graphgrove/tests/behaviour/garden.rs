//! An engine on a simulated device, functions of a few kernels, and a look at values.

use std::sync::Arc;

use graphgrove::{Context, Engine, EngineBuilder, Function, Layout, Storage, Tensor};
use graphgrove_device::{Args, LaunchDims, Memory, SegmentMemory, Streams};
use graphgrove_sim::{SimDevice, SimKernel, kernels};

pub(crate) const N: u64 = 32;

pub(crate) struct Garden {
    pub(crate) device: Arc<SimDevice>,
    pub(crate) engine: Engine<SimDevice>,
    add: SimKernel,
    mul: SimKernel,
}

pub(crate) fn layout() -> Layout {
    Layout::of::<f32>(&[N]).unwrap()
}

impl Garden {
    pub(crate) fn new(builder: EngineBuilder) -> Self {
        let device = Arc::new(SimDevice::builder().seed(7).build());
        let engine = builder.build(Arc::clone(&device)).unwrap();
        let add = kernels::zip::<f32>(&device, "add", |a, b| a + b);
        let mul = kernels::zip::<f32>(&device, "mul", |a, b| a * b);
        Self { device, engine, add, mul }
    }

    /// A tensor of the caller's own.
    pub(crate) fn tensor(&self, value: f32) -> Tensor {
        let segment = self.device.allocate(4 * N).unwrap();
        let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), N as usize).flatten().collect();
        self.device.write(segment.base(), &bytes).unwrap();
        let storage = Storage::outside(segment.base(), 4 * N, Box::new(segment));
        Tensor::new(storage, layout(), 0).unwrap()
    }

    /// A tensor in memory that may be given up while work still reads it.
    pub(crate) fn fresh(&self, value: f32) -> Tensor {
        self.engine.tensor(&[N], &[value; N as usize]).unwrap()
    }

    pub(crate) fn value(&self, tensor: &Tensor) -> f32 {
        self.device.synchronize().unwrap();
        let mut bytes = [0; 4];
        self.device.read(tensor.address().unwrap(), &mut bytes).unwrap();
        f32::from_le_bytes(bytes)
    }

    /// The sum of two inputs.
    pub(crate) fn add(&self, name: &'static str) -> Function<SimDevice> {
        self.zip(name, self.add.clone())
    }

    /// The product of two inputs.
    pub(crate) fn mul(&self, name: &'static str) -> Function<SimDevice> {
        self.zip(name, self.mul.clone())
    }

    /// A copy of its input, which it lets go of first if the call gives it up.
    pub(crate) fn copy(&self, name: &'static str) -> Function<SimDevice> {
        self.engine.function(name, |cx| Ok(vec![copied(cx)?]))
    }

    /// How deep each recording lies, roots at 0, in the order of the outline.
    pub(crate) fn depths(&self) -> Vec<usize> {
        let outline = self.engine.outline().unwrap();
        let nodes = outline.lines().filter(|line| line.starts_with("  ") && !line.ends_with("warm-up"));
        nodes.map(|line| (line.len() - line.trim_start().len()) / 2 - 1).collect()
    }

    /// How many blocks of the recordings' pool are live as far as the pool knows.
    pub(crate) fn live_blocks(&self) -> u32 {
        self.engine.stats().unwrap().pools[0].ranges.live_blocks
    }

    /// Whether any call has the words among its reasons.
    pub(crate) fn has_reason(&self, words: &str) -> bool {
        self.engine.reasons().unwrap().iter().any(|reason| reason.why.contains(words))
    }

    fn zip(&self, name: &'static str, kernel: SimKernel) -> Function<SimDevice> {
        self.engine.function(name, move |cx| {
            let out = cx.empty(layout())?;
            let args = zip_args(cx.input(0)?, cx.input(1)?, &out)?;
            cx.launch(&kernel, LaunchDims::for_elements(N as u32), &args)?;
            Ok(vec![out])
        })
    }
}

pub(crate) fn zip_args(a: &Tensor, b: &Tensor, out: &Tensor) -> graphgrove::Result<Args> {
    Ok(Args::new().read(a.address()?).read(b.address()?).write(out.address()?).scalar(N as u32))
}

/// What [`Garden::copy`] does.
pub(crate) fn copied(cx: &mut Context<'_, SimDevice>) -> graphgrove::Result<Tensor> {
    let from = cx.take(0)?;
    let out = cx.empty(from.layout().clone())?;
    cx.copy(&out, &from)?;
    Ok(out)
}
