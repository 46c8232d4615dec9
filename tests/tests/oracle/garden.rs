//! A device, an engine and functions of one kernel, for tests of one behaviour each.

use std::sync::Arc;

use graphgrove::{Context, Engine, EngineBuilder, Function, FunctionOptions, Layers, Result, Tensor, args};
use graphgrove_device::{Device, Memory};
use graphgrove_sim::SimDevice;
use graphgrove_tests::body::Machine;
use graphgrove_tests::graveyard::Graveyard;
use graphgrove_tests::ground::Ground;
use graphgrove_tests::kernels::{Kernels, Running, accumulated, mixed};

/// Elements of every tensor.
pub(crate) const N: usize = 8;

pub(crate) struct Garden {
    pub(crate) device: Arc<SimDevice>,
    pub(crate) engine: Engine<SimDevice>,
    pub(crate) kernels: Kernels<SimDevice>,
    pub(crate) yard: Graveyard<SimDevice>,
}

impl Garden {
    pub(crate) fn new(builder: EngineBuilder) -> Self {
        let device = Arc::new(SimDevice::builder().seed(3).build());
        let engine = builder.build(Arc::clone(&device)).unwrap();
        let kernels = device.kernels();
        Self { device, engine, kernels, yard: Graveyard::default() }
    }

    /// With every layer, and with the reference path.
    pub(crate) fn both() -> [Self; 2] {
        [Layers::all(), Layers::prefix(3)]
            .map(|layers| Self::new(Engine::<SimDevice>::builder().layers(layers)))
    }

    /// A tensor of the caller's own.
    pub(crate) fn tensor(&self, value: u32) -> Tensor {
        self.yard.tensor(&self.device, &[value; N])
    }

    pub(crate) fn value(&self, tensor: &Tensor) -> u32 {
        self.yard.settle(&self.device);
        let mut bytes = [0; 4];
        self.device.read(tensor.address().unwrap(), &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// A function of one kernel: [`mixed`] of its two inputs.
    pub(crate) fn mix(&self, name: &'static str) -> Function<SimDevice> {
        self.function(name, FunctionOptions::new(), |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            Ok(vec![running.mix(&a, &b, 1)?])
        })
    }

    /// A function that changes its first input in place, and returns nothing.
    pub(crate) fn accumulate(&self, name: &'static str) -> Function<SimDevice> {
        self.function(name, FunctionOptions::new().mutates([0]), |running| {
            let (to, b) = (running.context.take(0)?, running.context.take(1)?);
            running.accumulate(&to, &b, 1)?;
            Ok(Vec::new())
        })
    }

    pub(crate) fn function(
        &self,
        name: &'static str,
        options: FunctionOptions,
        body: impl Fn(&mut Running<'_, '_, SimDevice>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<SimDevice> {
        let kernels = self.kernels.clone();
        self.engine.function_with(name, options, move |context: &mut Context<'_, SimDevice>| {
            body(&mut Running { context, kernels: &kernels })
        })
    }

    /// Calls a function of two inputs and one output.
    pub(crate) fn one(&self, function: &Function<SimDevice>, a: &Tensor, b: &Tensor) -> Tensor {
        let [out] = function.call(args![a, b]).unwrap().into_array().unwrap();
        out
    }

    /// Ends with the checker's word, and with all memory given back.
    pub(crate) fn end(self) {
        let Self { device, engine, yard, .. } = self;
        drop(engine);
        yard.settle(&device);
        device.verdict().unwrap();
        assert_eq!(device.live_segments(), 0);
        let info = device.memory_info().unwrap();
        assert_eq!(info.free, info.total);
    }
}

/// What [`Garden::mix`] makes.
pub(crate) const fn mix_of(a: u32, b: u32) -> u32 {
    mixed(a, b, 1)
}

/// What [`Garden::accumulate`] leaves in its first input.
pub(crate) const fn sum_of(to: u32, b: u32) -> u32 {
    accumulated(to, b, 1)
}

/// Whether anything on the device captures.
pub(crate) fn is_capturing<D: Device>(engine: &Engine<D>) -> bool {
    use graphgrove_device::CaptureStatus;
    !matches!(engine.device().capture_status(engine.stream()), Ok(CaptureStatus::None))
}
