//! An engine on any device with functions of one kernel, for scenes that run on more than one kind of device.

use std::sync::Arc;

use graphgrove::{Engine, EngineBuilder, EngineStats, Function, Result, Tensor, args};

use crate::body::Machine;
use crate::ground::Ground;
use crate::kernels::{Kernels, Running, mixed};

/// Elements of every tensor.
pub const N: usize = 8;

/// What a scene is played on.
pub struct Scene<D: Ground> {
    /// The device.
    pub device: Arc<D>,
    /// The engine.
    pub engine: Engine<D>,
    /// The kernels.
    pub kernels: Kernels<D>,
}

impl<D: Ground> Scene<D> {
    /// An engine with all layers.
    #[must_use]
    pub fn new(device: &Arc<D>) -> Self {
        Self::with(device, EngineBuilder::default())
    }

    /// An engine as the builder says.
    #[must_use]
    pub fn with(device: &Arc<D>, builder: EngineBuilder) -> Self {
        let engine = builder.build(Arc::clone(device)).unwrap();
        Self { device: Arc::clone(device), engine, kernels: device.kernels() }
    }

    /// A function of the kernels.
    pub fn function(
        &self,
        name: &'static str,
        body: impl Fn(&mut Running<'_, '_, D>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Function<D> {
        let kernels = self.kernels.clone();
        self.engine.function(name, move |context| body(&mut Running { context, kernels: &kernels }))
    }

    /// A function that makes [`mix_of`] of its two inputs.
    pub fn mix(&self, name: &'static str) -> Function<D> {
        self.function(name, |running| {
            let (a, b) = (running.context.take(0)?, running.context.take(1)?);
            Ok(vec![running.mix(&a, &b, 1)?])
        })
    }

    /// A tensor of equal elements, from outside of every recording.
    #[must_use]
    pub fn tensor(&self, value: u32) -> Tensor {
        self.engine.tensor(&[N as u64], &[value; N]).unwrap()
    }

    /// The elements of a tensor, which have to be equal.
    #[must_use]
    pub fn value(&self, tensor: &Tensor) -> u32 {
        let values = self.engine.read::<u32>(tensor).unwrap();
        assert!(values.iter().all(|value| value == &values[0]), "{values:?}");
        values[0]
    }

    /// Calls a function of two inputs and one output.
    #[must_use]
    pub fn one(&self, function: &Function<D>, a: &Tensor, b: &Tensor) -> Tensor {
        let [out] = function.call(args![a, b]).unwrap().into_array().unwrap();
        out
    }

    /// What the engine has done.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.engine.stats().unwrap()
    }
}

/// What [`Scene::mix`] makes.
#[must_use]
pub const fn mix_of(a: u32, b: u32) -> u32 {
    mixed(a, b, 1)
}
