//! The oracle: tensors as views of plain vectors, and functions run on them at once.

use std::convert::Infallible;

use graphgrove::philox::draw;

use crate::body::{self, Lane, Machine};
use crate::kernels::{accumulated, mixed};
use crate::program::{FunctionSpec, View};

/// A view of one of the model's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelTensor {
    /// Which vector.
    pub storage: usize,
    /// The first element.
    pub offset: usize,
    /// How many elements.
    pub len: usize,
    /// Their distance.
    pub stride: usize,
}

impl ModelTensor {
    /// Where an element is in the vector.
    #[must_use]
    pub const fn index(&self, element: usize) -> usize {
        self.offset + element * self.stride
    }

    /// The part of the tensor that a view is of: the first element, how many, their distance.
    #[must_use]
    pub fn part(len: usize, view: View) -> (usize, usize, usize) {
        let step = 1 + view.step as usize % 3;
        let start = (view.skip as usize).checked_rem(len).unwrap_or(0);
        (start, (len - start).div_ceil(step), step)
    }
}

/// All vectors that there have been.
#[derive(Debug, Default)]
pub struct Model {
    /// The elements of each.
    pub storages: Vec<Vec<u32>>,
    /// The generator's seed.
    pub seed: u64,
    /// The number of its next draw.
    pub offset: u64,
}

impl Model {
    /// A new vector, as a tensor.
    pub fn tensor(&mut self, values: Vec<u32>) -> ModelTensor {
        let len = values.len();
        self.storages.push(values);
        ModelTensor { storage: self.storages.len() - 1, offset: 0, len, stride: 1 }
    }

    /// The elements of a tensor.
    #[must_use]
    pub fn values(&self, tensor: &ModelTensor) -> Vec<u32> {
        (0..tensor.len).map(|element| self.get(tensor, element)).collect()
    }

    /// Runs a function.
    pub fn run(
        &mut self,
        spec: &FunctionSpec,
        registers: Vec<ModelTensor>,
        saved: &[ModelTensor],
        value: u32,
    ) -> body::Results<Self> {
        let Ok(made) = body::run(spec, self, registers, saved, value);
        made
    }

    fn get(&self, tensor: &ModelTensor, element: usize) -> u32 {
        self.storages[tensor.storage][tensor.index(element)]
    }

    /// An element of a tensor that is repeated as often as needed; zero if it has none.
    fn wrapped(&self, tensor: &ModelTensor, element: usize) -> u32 {
        element.checked_rem(tensor.len).map_or(0, |element| self.get(tensor, element))
    }
}

impl Machine for Model {
    type Tensor = ModelTensor;
    type Error = Infallible;

    fn mix_on(
        &mut self,
        _lane: Lane,
        a: &ModelTensor,
        b: &ModelTensor,
        k: u32,
    ) -> Result<ModelTensor, Infallible> {
        let values = (0..a.len).map(|i| mixed(self.get(a, i), self.wrapped(b, i), k)).collect();
        Ok(self.tensor(values))
    }

    fn draw(&mut self, _lane: Lane, a: &ModelTensor) -> Result<ModelTensor, Infallible> {
        let word = |i: usize| draw(self.seed, self.offset + i as u64)[0];
        let values = (0..a.len).map(|i| mixed(self.get(a, i), word(i), 0)).collect();
        self.offset += a.len as u64;
        Ok(self.tensor(values))
    }

    fn fork(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn join(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn accumulate(&mut self, to: &ModelTensor, b: &ModelTensor, k: u32) -> Result<(), Infallible> {
        for i in 0..to.len {
            let value = accumulated(self.get(to, i), self.wrapped(b, i), k);
            self.storages[to.storage][to.index(i)] = value;
        }
        Ok(())
    }

    fn view(&mut self, of: &ModelTensor, view: View) -> Result<ModelTensor, Infallible> {
        let (start, len, step) = ModelTensor::part(of.len, view);
        Ok(ModelTensor {
            storage: of.storage,
            offset: of.offset + start * of.stride,
            len,
            stride: of.stride * step,
        })
    }

    fn empty(&mut self) -> Result<ModelTensor, Infallible> {
        Ok(self.tensor(Vec::new()))
    }
}
