//! What a function computes, told once for the engine and for the model.

use crate::program::{Beside, FunctionSpec, Made, Op, Out, View};

/// Where an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// On the stream of the call.
    Main,
    /// On a side stream that was forked from it.
    Side,
}

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
    fn mix_on(
        &mut self,
        lane: Lane,
        a: &Self::Tensor,
        b: &Self::Tensor,
        k: u32,
    ) -> Result<Self::Tensor, Self::Error>;

    /// A new tensor as long as `a`, on the stream of the call.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn mix(&mut self, a: &Self::Tensor, b: &Self::Tensor, k: u32) -> Result<Self::Tensor, Self::Error> {
        self.mix_on(Lane::Main, a, b, k)
    }

    /// A new tensor as long as `a`, from it and from as many draws.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn draw(&mut self, lane: Lane, a: &Self::Tensor) -> Result<Self::Tensor, Self::Error>;

    /// Begins a side stream.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn fork(&mut self) -> Result<(), Self::Error>;

    /// Joins the side stream.
    ///
    /// # Errors
    /// Whatever the machine says.
    fn join(&mut self) -> Result<(), Self::Error>;

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
pub type Results<M> = (Vec<<M as Machine>::Tensor>, Vec<<M as Machine>::Tensor>);

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
) -> Result<Results<M>, M::Error> {
    let mut registers: Vec<Option<M::Tensor>> = registers.into_iter().map(Some).collect();
    for op in &spec.ops {
        match *op {
            Op::Mix(a, b, k) => {
                let made = make(machine, Lane::Main, &registers, Made::Mix(a, b, k))?;
                registers.push(made);
            }
            Op::MixValue(a, b) => {
                let made = make(machine, Lane::Main, &registers, Made::Mix(a, b, value))?;
                registers.push(made);
            }
            Op::Draw(a) => {
                let made = make(machine, Lane::Main, &registers, Made::Draw(a))?;
                registers.push(made);
            }
            Op::Beside(ref beside) => work_beside(machine, &mut registers, beside)?,
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

fn work_beside<M: Machine>(
    machine: &mut M,
    registers: &mut Vec<Option<M::Tensor>>,
    beside: &Beside,
) -> Result<(), M::Error> {
    let before = registers.len();
    machine.fork()?;
    for op in &beside.side {
        let made = make(machine, Lane::Side, registers, *op)?;
        registers.push(made);
    }
    if let Some(dropped) = beside.dropped {
        registers[dropped as usize % before] = None;
    }
    for op in &beside.main {
        let made = make(machine, Lane::Main, &registers[..before], *op)?;
        registers.push(made);
    }
    machine.join()
}

/// The new register; none if one that it is made from was let go of.
fn make<M: Machine>(
    machine: &mut M,
    lane: Lane,
    registers: &[Option<M::Tensor>],
    made: Made,
) -> Result<Option<M::Tensor>, M::Error> {
    match made {
        Made::Mix(a, b, k) => match (at(registers, a), at(registers, b)) {
            (Some(a), Some(b)) => machine.mix_on(lane, &a, &b, k).map(Some),
            _ => Ok(None),
        },
        Made::Draw(a) => at(registers, a).map(|a| machine.draw(lane, &a)).transpose(),
    }
}

fn at<T: Clone>(registers: &[Option<T>], register: u8) -> Option<T> {
    pick(registers, register).cloned().flatten()
}

fn pick<T>(list: &[T], at: u8) -> Option<&T> {
    list.get((at as usize).checked_rem(list.len())?)
}
