//! What a function computes, told once for the engine and for the model.

use crate::program::{FunctionSpec, Op, Out, View};

/// What can run a function's operations.
pub trait Machine {
    /// A tensor.
    type Tensor: Clone;
    /// What can go wrong.
    type Error;

    /// A new tensor as long as `a`.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn mix(&mut self, a: &Self::Tensor, b: &Self::Tensor, k: u32) -> Result<Self::Tensor, Self::Error>;

    /// Changes `to` in place.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn accumulate(&mut self, to: &Self::Tensor, b: &Self::Tensor, k: u32) -> Result<(), Self::Error>;

    /// A view.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn view(&mut self, of: &Self::Tensor, view: View) -> Result<Self::Tensor, Self::Error>;

    /// A tensor without elements.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn empty(&mut self) -> Result<Self::Tensor, Self::Error>;
}

/// What a function returns, and what it saves.
pub type Made<M> = (Vec<<M as Machine>::Tensor>, Vec<<M as Machine>::Tensor>);

/// Runs a function. `registers` are its inputs and then its parameters.
///
/// # Errors
/// The first error of an operation.
pub fn run<M: Machine>(
    spec: &FunctionSpec,
    machine: &mut M,
    registers: Vec<M::Tensor>,
    saved: &[M::Tensor],
    value: u32,
) -> Result<Made<M>, M::Error> {
    let mut registers: Vec<Option<M::Tensor>> = registers.into_iter().map(Some).collect();
    for op in &spec.ops {
        match *op {
            Op::Mix(a, b, k) => mix(machine, &mut registers, a, b, k)?,
            Op::MixValue(a, b) => mix(machine, &mut registers, a, b, value)?,
            Op::MixSaved(a, of, k) => {
                let made = match at(&registers, a) {
                    Some(a) => Some(machine.mix(&a, pick(saved, of).unwrap_or(&a), k)?),
                    None => None,
                };
                registers.push(made);
            }
            Op::Accumulate(to, b, k) => {
                if let (Some(to), Some(b)) = (at(&registers, to), at(&registers, b)) {
                    machine.accumulate(&to, &b, k)?;
                }
            }
            Op::View(of, view) => {
                let made = at(&registers, of).map(|of| machine.view(&of, view)).transpose()?;
                registers.push(made);
            }
            Op::Drop(register) => {
                let count = registers.len();
                registers[register as usize % count] = None;
            }
        }
    }
    let mut outputs = Vec::new();
    for out in &spec.outputs {
        let output = match *out {
            Out::Reg(register) => at(&registers, register),
            Out::Saved(of) => pick(saved, of).cloned(),
            Out::Empty => None,
        };
        outputs.push(match output {
            Some(output) => output,
            None => machine.empty()?,
        });
    }
    let saves = spec.saves.iter().filter_map(|register| at(&registers, *register)).collect();
    Ok((outputs, saves))
}

fn mix<M: Machine>(
    machine: &mut M,
    registers: &mut Vec<Option<M::Tensor>>,
    a: u8,
    b: u8,
    k: u32,
) -> Result<(), M::Error> {
    let made = match (at(registers, a), at(registers, b)) {
        (Some(a), Some(b)) => Some(machine.mix(&a, &b, k)?),
        _ => None,
    };
    registers.push(made);
    Ok(())
}

fn at<T: Clone>(registers: &[Option<T>], register: u8) -> Option<T> {
    pick(registers, register).cloned().flatten()
}

fn pick<T>(list: &[T], at: u8) -> Option<&T> {
    list.get((at as usize).checked_rem(list.len())?)
}
