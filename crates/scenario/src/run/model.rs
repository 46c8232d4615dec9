//! The plain interpreter: tensors as views of vectors, and functions that run at once. It knows nothing of recordings.

use crate::Fill;
use crate::mixed;
use crate::program::{Line, Op};
use crate::run::body::{Elements, Machine, Part, Second, dense};
use graphgrove::GeneratorState;
use graphgrove::philox::{draw, unit_f32};

/// A view of one of the interpreter's vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelTensor {
    pub(crate) storage: usize,
    pub(crate) first: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<u64>,
}

impl ModelTensor {
    pub(crate) fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Where each element is in the vector, in row-major order.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let dims: Vec<(u64, u64)> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).rev().collect();
        let first = self.first;
        (0..self.count()).map(move |number| {
            let step = |(rest, at): (u64, u64), &(size, stride): &(u64, u64)| {
                (rest / size, at + rest % size * stride)
            };
            dims.iter().fold((number, first), step).1 as usize
        })
    }
}

/// All vectors that there have been.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) storages: Vec<Vec<f32>>,
}

impl Model {
    /// A new vector, as a tensor without gaps.
    pub(crate) fn tensor(&mut self, shape: &[u64], values: Vec<f32>) -> ModelTensor {
        self.storages.push(values);
        ModelTensor {
            storage: self.storages.len() - 1,
            first: 0,
            shape: shape.to_vec(),
            strides: dense(shape),
        }
    }

    pub(crate) fn values(&self, tensor: &ModelTensor) -> Vec<f32> {
        let Some(storage) = self.storages.get(tensor.storage) else { return Vec::new() };
        tensor.places().map(|at| storage.get(at).copied().unwrap_or(f32::NAN)).collect()
    }

    pub(crate) fn set(&mut self, tensor: &ModelTensor, values: &[f32]) {
        let Some(storage) = self.storages.get_mut(tensor.storage) else { return };
        for (at, value) in tensor.places().zip(values) {
            if let Some(element) = storage.get_mut(at) {
                *element = *value;
            }
        }
    }

    /// The part of a tensor that a view is of.
    pub(crate) fn part(&self, of: &ModelTensor, part: &Part) -> Result<ModelTensor, String> {
        let window = part.window(&of.shape, &of.strides)?;
        let view = ModelTensor {
            storage: of.storage,
            first: of.first + window.first,
            shape: window.shape,
            strides: window.strides,
        };
        let length = self.storages.get(of.storage).map_or(0, Vec::len) as u64;
        let last: u64 =
            view.shape.iter().zip(&view.strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
        if view.count() > 0 && view.first + last >= length {
            return Err(format!("a view up to element {} of a tensor of {length}", view.first + last));
        }
        Ok(view)
    }

    /// What an operation makes of a tensor. The second operand is repeated as often as needed; one without elements is zero.
    fn computed(&self, a: &ModelTensor, op: &Elements<ModelTensor>) -> Vec<f32> {
        let second = |second: &Second<ModelTensor>| match second {
            Second::Number(number) => vec![*number],
            Second::Tensor(tensor) => self.values(tensor),
        };
        let at = |values: &[f32], i: usize| {
            i.checked_rem(values.len()).and_then(|i| values.get(i)).copied().unwrap_or(0.0)
        };
        let a = self.values(a).into_iter();
        match op {
            Elements::Unary(op) => a.map(|a| op.of(a)).collect(),
            Elements::Binary(op, b) => {
                let b = second(b);
                a.enumerate().map(|(i, a)| op.of(a, at(&b, i))).collect()
            }
            Elements::Mix(b, k) => {
                let (b, k) = (second(b), second(k));
                a.enumerate().map(|(i, a)| mixed(a, at(&b, i), at(&k, i))).collect()
            }
            Elements::Copy(b) => {
                let b = second(b);
                a.enumerate().map(|(i, _)| at(&b, i)).collect()
            }
        }
    }
}

/// Why the interpreter stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The line of the file, if a line is to blame.
    pub(crate) line: u32,
    pub(crate) why: String,
}

/// The interpreter running a function.
pub(crate) struct ModelRun<'m> {
    pub(crate) model: &'m mut Model,
    pub(crate) saved: &'m [ModelTensor],
    pub(crate) hosts: &'m [Option<Vec<f32>>],
    pub(crate) saves: Vec<ModelTensor>,
    /// Where the generator is.
    pub(crate) generator: GeneratorState,
}

impl Machine for ModelRun<'_> {
    type Tensor = ModelTensor;
    type Error = Stop;

    fn impossible(&mut self, line: &Line, why: String) -> Stop {
        Stop { line: line.place.line, why }
    }

    fn shape(&self, tensor: &ModelTensor) -> Vec<u64> {
        tensor.shape.clone()
    }

    fn elements(&mut self, a: &ModelTensor, op: &Elements<ModelTensor>) -> Result<ModelTensor, Stop> {
        let values = self.model.computed(a, op);
        Ok(self.model.tensor(&a.shape, values))
    }

    fn in_place(&mut self, to: &ModelTensor, op: &Elements<ModelTensor>) -> Result<(), Stop> {
        let values = self.model.computed(to, op);
        self.model.set(to, &values);
        Ok(())
    }

    fn matmul(&mut self, a: &ModelTensor, b: &ModelTensor) -> Result<ModelTensor, Stop> {
        let ([m, k], [_, n]) = (&a.shape[..], &b.shape[..]) else {
            return Err(Stop { line: 0, why: "a matrix product of no matrices".to_owned() });
        };
        let (m, k, n) = (*m as usize, *k as usize, *n as usize);
        let (x, y) = (self.model.values(a), self.model.values(b));
        let mut values = vec![0.0; m * n];
        for (at, value) in values.iter_mut().enumerate() {
            let (row, column) = (at / n, at % n);
            for i in 0..k {
                *value += x[row * k + i] * y[i * n + column];
            }
        }
        Ok(self.model.tensor(&[m as u64, n as u64], values))
    }

    fn sum(&mut self, a: &ModelTensor) -> Result<ModelTensor, Stop> {
        let (last, rest) = a.shape.split_last().unwrap_or((&1, &[]));
        let values = self.model.values(a);
        let sums = (0..rest.iter().product::<u64>()).map(|row| {
            let row = (row * last) as usize;
            (0..*last as usize).fold(0.0, |sum, at| sum + values[row + at])
        });
        let sums = sums.collect();
        Ok(self.model.tensor(rest, sums))
    }

    fn fill(&mut self, shape: &[u64], fill: &Fill) -> Result<ModelTensor, Stop> {
        let values =
            contents(fill, shape.iter().product(), &mut || 0.0).map_err(|why| Stop { line: 0, why })?;
        Ok(self.model.tensor(shape, values))
    }

    fn empty(&mut self, shape: &[u64]) -> Result<ModelTensor, Stop> {
        // What is read before it is written is nobody's promise.
        let count = shape.iter().product::<u64>() as usize;
        Ok(self.model.tensor(shape, vec![f32::NAN; count]))
    }

    fn view(&mut self, of: &ModelTensor, part: &Part) -> Result<Result<ModelTensor, String>, Stop> {
        Ok(self.model.part(of, part))
    }

    fn saved(&mut self, index: u64) -> Result<ModelTensor, Stop> {
        let found = self.saved.get(index as usize).cloned();
        found.ok_or_else(|| Stop { line: 0, why: format!("the forward has saved no tensor {index}") })
    }

    fn upload(&mut self, input: usize, shape: &[u64]) -> Result<ModelTensor, Stop> {
        let mut values = self.hosts.get(input).cloned().flatten().unwrap_or_default();
        let count = shape.iter().product::<u64>() as usize;
        if values.len() < count {
            let why = format!("an upload of {count} elements from {}", values.len());
            return Err(Stop { line: 0, why });
        }
        values.truncate(count);
        Ok(self.model.tensor(shape, values))
    }

    fn draw(&mut self, shape: &[u64]) -> Result<ModelTensor, Stop> {
        let values = drawn(&mut self.generator, shape.iter().product());
        Ok(self.model.tensor(shape, values))
    }

    fn save(&mut self, tensor: &ModelTensor) {
        self.saves.push(tensor.clone());
    }

    fn effect(&mut self, _: &Op, _: Option<&ModelTensor>, _: u64) -> Result<(), Stop> {
        Ok(())
    }

    fn on(&mut self, _: Option<&str>) -> Result<(), Stop> {
        Ok(())
    }
}

/// The next numbers of a generator.
pub(crate) fn drawn(generator: &mut GeneratorState, count: u64) -> Vec<f32> {
    let first = generator.offset;
    generator.offset = first.wrapping_add(count);
    (0..count).map(|at| unit_f32(draw(generator.seed, first.wrapping_add(at))[0])).collect()
}

/// The contents of a new tensor. `random` gives one number after the other.
pub(crate) fn contents(
    fill: &Fill,
    count: u64,
    random: &mut impl FnMut() -> f32,
) -> Result<Vec<f32>, String> {
    match fill {
        Fill::Same(value) => Ok(vec![*value; count as usize]),
        Fill::Counting => Ok((0..count).map(|at| at as f32).collect()),
        Fill::Random => Ok((0..count).map(|_| random()).collect()),
        Fill::Values(values) if values.len() as u64 == count => Ok(values.clone()),
        Fill::Values(values) => Err(format!("{} values for a tensor of {count}", values.len())),
    }
}
