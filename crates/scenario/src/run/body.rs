//! What a function computes, told once for the engine and for the plain interpreter.

use std::collections::HashMap;

use crate::program::{How, InPlace, Line, Made, Op, Room};
use crate::{Binary, Fill, Function, Number, Operand, Shape, Unary, View};

/// The second operand of an operation, resolved.
#[derive(Clone, Debug)]
pub(crate) enum Second<T> {
    Tensor(T),
    Number(f32),
}

/// An operation on elements, resolved.
#[derive(Clone, Debug)]
pub(crate) enum Elements<T> {
    Unary(Unary),
    Binary(Binary, Second<T>),
    Mix(Second<T>, Second<T>),
    /// The second operand alone.
    Copy(Second<T>),
}

/// A view, with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) step: Option<u64>,
    pub(crate) shape: Option<Vec<u64>>,
    pub(crate) strides: Option<Vec<u64>>,
}

/// Where a view lies: its first element, counted in elements from the tensor's first one, its shape and its strides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<u64>,
}

impl Part {
    /// The window of a tensor of this shape and these strides. A view begins no later than its tensor ends.
    pub(crate) fn window(&self, shape: &[u64], strides: &[u64]) -> Result<Window, String> {
        if let Some(wanted) = &self.shape {
            let strides = self.strides.clone().unwrap_or_else(|| dense(wanted));
            if strides.len() != wanted.len() {
                return Err(format!("{} strides for {} dimensions", strides.len(), wanted.len()));
            }
            return Ok(Window { first: self.at, shape: wanted.clone(), strides });
        }
        let ([size], [stride]) = (shape, strides) else {
            if self.at == 0 && self.step.is_none() {
                return Ok(Window { first: 0, shape: shape.to_vec(), strides: strides.to_vec() });
            }
            return Err(format!("a part of a tensor of {} dimensions needs a shape", shape.len()));
        };
        let step = self.step.unwrap_or(1).max(1);
        let at = self.at.min(*size);
        Ok(Window {
            first: at * stride,
            shape: vec![(size - at).div_ceil(step)],
            strides: vec![stride * step],
        })
    }
}

/// Strides without gaps.
pub(crate) fn dense(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        if let (Some(inner), Some(size)) = (strides.get(dim).copied(), shape.get(dim))
            && let Some(outer) = strides.get_mut(dim - 1)
        {
            *outer = inner * size;
        }
    }
    strides
}

/// What can run a function's operations.
pub(crate) trait Machine {
    type Tensor: Clone;
    type Error;

    /// A program that cannot be.
    fn impossible(&mut self, line: &Line, why: String) -> Self::Error;
    fn shape(&self, tensor: &Self::Tensor) -> Vec<u64>;
    fn elements(
        &mut self,
        a: &Self::Tensor,
        op: &Elements<Self::Tensor>,
    ) -> Result<Self::Tensor, Self::Error>;
    fn in_place(&mut self, to: &Self::Tensor, op: &Elements<Self::Tensor>) -> Result<(), Self::Error>;
    /// Of `[m, k]` and `[k, n]`.
    fn matmul(&mut self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    fn sum(&mut self, a: &Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    fn fill(&mut self, shape: &[u64], fill: &Fill) -> Result<Self::Tensor, Self::Error>;
    fn empty(&mut self, shape: &[u64]) -> Result<Self::Tensor, Self::Error>;
    fn view(&mut self, of: &Self::Tensor, part: &Part) -> Result<Result<Self::Tensor, String>, Self::Error>;
    fn saved(&mut self, index: u64) -> Result<Self::Tensor, Self::Error>;
    fn upload(&mut self, input: usize, shape: &[u64]) -> Result<Self::Tensor, Self::Error>;
    fn draw(&mut self, shape: &[u64]) -> Result<Self::Tensor, Self::Error>;
    fn save(&mut self, tensor: &Self::Tensor);
    /// What has no result: what waits, fails or hides something.
    fn effect(&mut self, op: &Op, tensor: Option<&Self::Tensor>, number: u64) -> Result<(), Self::Error>;
    /// Begins to work on a side stream, or on the main one.
    fn on(&mut self, side: Option<&str>) -> Result<(), Self::Error>;
}

/// What a name of a function holds.
#[derive(Clone, Debug)]
pub(crate) enum Register<T> {
    Tensor(T),
    Number(u64),
    /// The place of a host input among the inputs.
    Host(usize),
}

/// Runs a function. `registers` has its inputs and the constants of the program.
pub(crate) fn run<M: Machine>(
    function: &Function,
    machine: &mut M,
    registers: HashMap<String, Register<M::Tensor>>,
) -> Result<Vec<M::Tensor>, M::Error> {
    let mut running = Running { machine, registers };
    for line in &function.body {
        running.line(line)?;
    }
    let mut outputs = Vec::with_capacity(function.outputs.len());
    for output in &function.outputs {
        if let Some(Register::Tensor(tensor)) = running.registers.get(&output.text) {
            outputs.push(tensor.clone());
        }
    }
    Ok(outputs)
}

struct Running<'m, M: Machine> {
    machine: &'m mut M,
    registers: HashMap<String, Register<M::Tensor>>,
}

impl<M: Machine> Running<'_, M> {
    fn line(&mut self, line: &Line) -> Result<(), M::Error> {
        self.machine.on(line.side.as_ref().map(|side| side.text.as_str()))?;
        match &line.op {
            Op::Let(name, made) => {
                let tensor = self.made(line, made)?;
                self.registers.insert(name.text.clone(), Register::Tensor(tensor));
                Ok(())
            }
            Op::InPlace(op) => {
                let to = self.tensor(line, &op.to.text)?;
                let elements = self.how(line, op)?;
                self.machine.in_place(&to, &elements)
            }
            Op::Drop(name) => {
                self.registers.remove(&name.text);
                Ok(())
            }
            Op::Save(name) => {
                let tensor = self.tensor(line, &name.text)?;
                self.machine.save(&tensor);
                Ok(())
            }
            Op::Hide(name) => {
                let tensor = self.tensor(line, &name.text)?;
                self.machine.effect(&line.op, Some(&tensor), 0)
            }
            Op::Foreign(bytes) | Op::Scratch(bytes, _) => {
                let bytes = self.number(line, bytes)?;
                self.machine.effect(&line.op, None, bytes)
            }
            Op::Fork(_)
            | Op::Join(_)
            | Op::HostWait
            | Op::Fail(_)
            | Op::Panic(_)
            | Op::DropCallers(_)
            | Op::Poll => self.machine.effect(&line.op, None, 0),
        }
    }

    fn made(&mut self, line: &Line, made: &Made) -> Result<M::Tensor, M::Error> {
        match made {
            Made::Unary(op, a) => {
                let a = self.tensor(line, &a.text)?;
                self.machine.elements(&a, &Elements::Unary(*op))
            }
            Made::Binary(op, a, b) => {
                let (a, b) = (self.tensor(line, &a.text)?, self.second(line, b)?);
                self.machine.elements(&a, &Elements::Binary(*op, b))
            }
            Made::Mix(a, b, k) => {
                let a = self.tensor(line, &a.text)?;
                let (b, k) = (self.second(line, b)?, self.second(line, k)?);
                self.machine.elements(&a, &Elements::Mix(b, k))
            }
            Made::MatMul(a, b) => {
                let (a, b) = (self.tensor(line, &a.text)?, self.tensor(line, &b.text)?);
                let shapes = (self.machine.shape(&a), self.machine.shape(&b));
                if !matches!((&shapes.0[..], &shapes.1[..]), ([_, k], [also, _]) if k == also) {
                    let why = format!("a matrix product of {:?} and {:?}", shapes.0, shapes.1);
                    return Err(self.machine.impossible(line, why));
                }
                self.machine.matmul(&a, &b)
            }
            Made::Sum(a) => {
                let a = self.tensor(line, &a.text)?;
                if self.machine.shape(&a).is_empty() {
                    return Err(self
                        .machine
                        .impossible(line, "sums of a tensor without dimensions".to_owned()));
                }
                self.machine.sum(&a)
            }
            Made::Copy(a) => {
                let a = self.tensor(line, &a.text)?;
                self.machine.elements(&a, &Elements::Copy(Second::Tensor(a.clone())))
            }
            Made::New(tensor) => {
                let shape = self.shape(line, &tensor.shape)?;
                self.machine.fill(&shape, &tensor.fill)
            }
            Made::Empty(Room::Of(shape)) => {
                let shape = self.shape(line, shape)?;
                self.machine.empty(&shape)
            }
            Made::Empty(Room::Like(like)) => {
                let like = self.tensor(line, &like.text)?;
                let shape = self.machine.shape(&like);
                self.machine.empty(&shape)
            }
            Made::View(view) => {
                let of = self.tensor(line, &view.of.text)?;
                let part = self.part(line, view)?;
                match self.machine.view(&of, &part)? {
                    Ok(view) => Ok(view),
                    Err(why) => Err(self.machine.impossible(line, why)),
                }
            }
            Made::Saved(index) => self.machine.saved(*index),
            Made::Upload(name, shape) => match self.registers.get(&name.text) {
                Some(Register::Host(input)) => {
                    let input = *input;
                    let shape = self.shape(line, shape)?;
                    self.machine.upload(input, &shape)
                }
                _ => Err(self.machine.impossible(line, format!("`{name}` is no host memory"))),
            },
            Made::Draw(shape) => {
                let shape = self.shape(line, shape)?;
                self.machine.draw(&shape)
            }
        }
    }

    fn how(&mut self, line: &Line, op: &InPlace) -> Result<Elements<M::Tensor>, M::Error> {
        Ok(match &op.how {
            How::Unary(op) => Elements::Unary(*op),
            How::Binary(op, b) => Elements::Binary(*op, self.second(line, b)?),
            How::Mix(b, k) => Elements::Mix(self.second(line, b)?, self.second(line, k)?),
            How::Copy(b) => Elements::Copy(self.second(line, b)?),
        })
    }

    fn second(&mut self, line: &Line, operand: &Operand) -> Result<Second<M::Tensor>, M::Error> {
        match operand {
            Operand::Literal(value) => Ok(Second::Number(*value)),
            Operand::Name(name) => match self.registers.get(&name.text) {
                Some(Register::Number(number)) => Ok(Second::Number(*number as f32)),
                _ => self.tensor(line, &name.text).map(Second::Tensor),
            },
        }
    }

    fn tensor(&mut self, line: &Line, name: &str) -> Result<M::Tensor, M::Error> {
        match self.registers.get(name) {
            Some(Register::Tensor(tensor)) => Ok(tensor.clone()),
            _ => Err(self.machine.impossible(line, format!("`{name}` is no tensor"))),
        }
    }

    fn part(&mut self, line: &Line, view: &View) -> Result<Part, M::Error> {
        part(view, &mut |number| self.number(line, number))
    }

    fn shape(&mut self, line: &Line, shape: &Shape) -> Result<Vec<u64>, M::Error> {
        shape.iter().map(|number| self.number(line, number)).collect()
    }

    fn number(&mut self, line: &Line, number: &Number) -> Result<u64, M::Error> {
        let number = number.evaluate(&|name| match self.registers.get(name) {
            Some(Register::Number(number)) => Some(*number),
            _ => None,
        });
        number.map_err(|why| self.machine.impossible(line, why))
    }
}

/// A view with its numbers.
pub(crate) fn part<E>(view: &View, number: &mut impl FnMut(&Number) -> Result<u64, E>) -> Result<Part, E> {
    let at = view.at.as_ref().map_or(Ok(0), &mut *number)?;
    let step = view.step.as_ref().map(&mut *number).transpose()?;
    let mut shape = |shape: &Shape| shape.iter().map(&mut *number).collect::<Result<Vec<u64>, E>>();
    let of = view.shape.as_ref().map(&mut shape).transpose()?;
    let strides = view.strides.as_ref().map(&mut shape).transpose()?;
    Ok(Part { at, step, shape: of, strides })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_without_a_shape_goes_to_the_end_in_steps() {
        let part = |at, step| Part { at, step, shape: None, strides: None };
        let window = part(2, Some(3)).window(&[9], &[2]).unwrap();
        assert_eq!(window, Window { first: 4, shape: vec![3], strides: vec![6] });
        assert_eq!(part(20, None).window(&[9], &[1]).unwrap().shape, [0]);
        assert!(part(1, None).window(&[3, 3], &[3, 1]).is_err());
        assert_eq!(part(0, None).window(&[3, 3], &[1, 3]).unwrap().strides, [1, 3]);
    }

    #[test]
    fn dense_strides_have_no_gaps() {
        assert_eq!(dense(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(dense(&[]), [0_u64; 0]);
    }
}
