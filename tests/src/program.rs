//! Programs as plain data. Every number that names something is taken modulo how many of it there are, so that each program has a
//! meaning and shrinks well.

use graphgrove::{Mode, OldOutput};

/// A program: what is registered with the engine, and what is done with it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The functions, at least one.
    pub functions: Vec<FunctionSpec>,
    /// What each round does.
    pub steps: Vec<Step>,
    /// How many rounds there are.
    pub rounds: u8,
    /// Steps that are left out, each in one round: they make a round differ from the others.
    pub skips: Vec<(u8, u8)>,
    /// How many of the newest handles a round leaves to the next one.
    pub left: u8,
    /// How many of the newest pending backwards a round leaves to the next one.
    pub pending: u8,
    /// Whether the engine may keep only very few recordings.
    pub tight: bool,
    /// The seed of the simulated device.
    pub seed: u64,
}

/// A function: how many inputs it has, what it computes of them and what it returns.
#[derive(Clone, Debug)]
pub struct FunctionSpec {
    /// The tensors that it is called with, 1 to 3. A value that is no tensor comes behind them.
    pub inputs: u8,
    /// Its parameters, 0 to 2.
    pub params: u8,
    /// What it does, in order.
    pub ops: Vec<Op>,
    /// What it returns.
    pub outputs: Vec<Out>,
    /// What it saves for a backward.
    pub saves: Vec<u8>,
    /// What becomes of its outputs at a new step.
    pub old: OldOutput,
    /// How its calls run, if not as the engine says.
    pub mode: Option<Mode>,
}

/// One operation. Registers are numbered: the inputs, the parameters, and then what the operations before have made.
#[derive(Clone, Debug)]
pub enum Op {
    /// A new tensor, as long as the first one, from two.
    Mix(u8, u8, u32),
    /// As [`Mix`](Self::Mix), with the call's value in the place of the constant.
    MixValue(u8, u8),
    /// As [`Mix`](Self::Mix), of a register and what the forward has saved; of the register alone if it has saved nothing.
    MixSaved(u8, u8, u32),
    /// Changes the first tensor in place, by the second one.
    Accumulate(u8, u8, u32),
    /// A new tensor, as long as the first one, from it and from as many draws.
    Draw(u8),
    /// Work on two streams at once.
    Beside(Beside),
    /// A view of a tensor: every `step`-th element from one on.
    View(u8, View),
    /// Lets go of a register.
    Drop(u8),
}

/// Work on two streams at once. Each makes new registers and changes none; the call's own stream does not look at what the other one makes.
#[derive(Clone, Debug)]
pub struct Beside {
    /// What comes on the side stream.
    pub side: Vec<Made>,
    /// A register of those before that is let go of when the side stream has its work and the call's own has not.
    pub dropped: Option<u8>,
    /// What comes on the call's own stream.
    pub main: Vec<Made>,
}

/// An operation that makes a new tensor and changes none.
#[derive(Clone, Copy, Debug)]
pub enum Made {
    /// As [`Op::Mix`].
    Mix(u8, u8, u32),
    /// As [`Op::Draw`].
    Draw(u8),
}

/// Every `1 + step % 3`-th element from element `skip` on.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The first element, modulo how many there are.
    pub skip: u8,
    /// One less than the distance of the elements, modulo 3.
    pub step: u8,
}

/// One output.
#[derive(Clone, Copy, Debug)]
pub enum Out {
    /// A register, which may be an input, a parameter, a view of either, or returned already.
    Reg(u8),
    /// What the forward has saved; empty if it has saved nothing.
    Saved(u8),
    /// A tensor without elements.
    Empty,
}

/// What a program does. Handles are counted from the newest one.
#[derive(Clone, Debug)]
pub enum Step {
    /// Makes a tensor in memory of the caller's own, with so many elements.
    Own(u8),
    /// Calls a function.
    Call(Call),
    /// Calls a function as the backward of a forward.
    Backward(u8, Call),
    /// Drops the token of a backward.
    Discard(u8),
    /// Clones a handle.
    Clone(u8),
    /// Takes a view of a tensor.
    View(u8, View),
    /// Drops a handle.
    Drop(u8),
    /// Drops a handle on another thread.
    DropElsewhere(u8),
    /// Begins a step.
    BeginStep,
    /// Forgets all recordings.
    Reset,
    /// Seeds the generator.
    Seed(u8),
    /// Replaces a parameter by a tensor of the caller's, or by a new one.
    Replace {
        /// The set.
        set: u8,
        /// The parameter.
        param: u8,
        /// The handle whose tensor it becomes.
        by: Option<u8>,
    },
    /// Reads every value.
    Check,
}

/// A call of a function.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub function: u8,
    /// Its inputs; the last one stands for all that are missing.
    pub args: Vec<Arg>,
    /// The parameter set.
    pub set: u8,
    /// The value that is no tensor.
    pub value: u8,
    /// Whether the call is made on a stream of the caller's.
    pub elsewhere: bool,
    /// Whether the call is a forward. A backward's is not looked at.
    pub forward: bool,
    /// Which outputs are taken: one bit each.
    pub taken: u8,
}

/// An input.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A handle that the caller keeps.
    Kept(u8),
    /// A handle that the caller gives up.
    Given(u8),
}

/// How many parameters each set has.
pub const PARAMS: usize = 2;

/// How many parameter sets there are.
pub const SETS: usize = 2;

impl FunctionSpec {
    /// Which inputs are written to, and whether a parameter is.
    #[must_use]
    pub fn mutates(&self) -> (Vec<usize>, bool) {
        let (inputs, params) = (self.inputs as usize, self.params as usize);
        // What each register is a view of: an input, a parameter, or memory of the function's own.
        let mut roots: Vec<Option<usize>> = (0..inputs + params).map(Some).collect();
        let (mut mutated, mut mutates_params) = (Vec::new(), false);
        for op in &self.ops {
            match *op {
                Op::Mix(..) | Op::MixValue(..) | Op::MixSaved(..) | Op::Draw(_) => roots.push(None),
                Op::Beside(ref beside) => {
                    roots.extend(beside.side.iter().chain(&beside.main).map(|_| None));
                }
                Op::View(of, _) => roots.push(roots[of as usize % roots.len()]),
                Op::Accumulate(to, ..) => match roots[to as usize % roots.len()] {
                    Some(input) if input < inputs => mutated.push(input),
                    Some(_) => mutates_params = true,
                    None => {}
                },
                Op::Drop(_) => {}
            }
        }
        (mutated, mutates_params)
    }
}
