//! A function as data, and what its operations make of elements.

use crate::{ModeName, Name, NewTensor, Number, Old, Place, Shape, View};

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: Name,
    /// What its calls bring.
    pub inputs: Vec<Name>,
    /// What it returns.
    pub outputs: Vec<Name>,
    /// What becomes of its outputs at a new step, if not as the scenario says.
    pub old: Option<Old>,
    /// How it runs, if not as the set-up says.
    pub mode: Option<ModeName>,
    /// What it does.
    pub body: Vec<Line>,
}

/// One line of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Where it stands.
    pub place: Place,
    /// The side stream that it runs on.
    pub side: Option<Name>,
    /// What it does.
    pub op: Op,
}

/// What a line of a function does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Makes a tensor.
    Let(Name, Made),
    /// Writes to a tensor.
    InPlace(InPlace),
    /// Lets go of a tensor.
    Drop(Name),
    /// Saves a tensor for the backward.
    Save(Name),
    /// Begins a side stream, behind what was enqueued so far.
    Fork(Name),
    /// Orders what comes behind a side stream.
    Join(Name),
    /// Waits for the device, as whatever reads on the host does.
    HostWait,
    /// Returns an error.
    Fail(When),
    /// Panics.
    Panic(When),
    /// Holds a tensor beyond the end of the function.
    Hide(Name),
    /// Allocates so many bytes in stream order, without asking the engine.
    Foreign(Number),
    /// Lets go of what the caller calls so.
    DropCallers(Name),
    /// Uses so many bytes of memory for a while.
    Scratch(Number, When),
    /// Lets another thread ask whether earlier work is over.
    Poll,
}

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each time.
    Always,
    /// When the body runs for so many a time, counted from 1. A replay does not run it.
    Run(u64),
}

/// How a line of a function makes a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Of one tensor, element by element.
    Unary(Unary, Name),
    /// Of two, or of one and a number, element by element.
    Binary(Binary, Name, Operand),
    /// `(31 a + 7 b + k) mod 65521`, element by element.
    Mix(Name, Operand, Operand),
    /// A matrix product.
    MatMul(Name, Name),
    /// The sums along the last dimension.
    Sum(Name),
    /// A copy without gaps.
    Copy(Name),
    /// A new tensor with contents.
    New(NewTensor),
    /// A new tensor of undefined contents.
    Empty(Room),
    /// A part of a tensor, in the same memory.
    View(View),
    /// What the forward has saved.
    Saved(u64),
    /// A tensor that is copied from memory of the host.
    Upload(Name, Shape),
    /// A tensor that is drawn from the generator.
    Draw(Shape),
}

/// How large a new tensor is.
#[derive(Clone, Debug, PartialEq)]
pub enum Room {
    /// Of this shape.
    Of(Shape),
    /// Of the shape that another one has.
    Like(Name),
}

/// What writes to a tensor. The tensor is the first operand as well.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlace {
    /// What is done.
    pub how: How,
    /// What is written to.
    pub to: Name,
}

/// What is done in place.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// `neg! x`
    Unary(Unary),
    /// `add! x b`
    Binary(Binary, Operand),
    /// `mix! x b k`
    Mix(Operand, Operand),
    /// `copy! x b`
    Copy(Operand),
}

/// What is done to one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-a`
    Neg,
    /// `max(a, 0)`
    Relu,
    /// `a a`
    Square,
}

/// What is done to two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
}

/// The second operand of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A tensor, or a value that the call brings.
    Name(Name),
    /// A number.
    Literal(f32),
}

impl Unary {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Neg, Self::Relu, Self::Square];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Neg => "neg",
            Self::Relu => "relu",
            Self::Square => "square",
        }
    }

    /// What it makes of an element.
    #[must_use]
    pub fn of(self, a: f32) -> f32 {
        match self {
            Self::Neg => -a,
            // Two zeros of different signs have an order of their own for each compiler, so it is said here.
            Self::Relu => {
                if a > 0.0 {
                    a
                } else {
                    0.0
                }
            }
            Self::Square => a * a,
        }
    }
}

impl Binary {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Add, Self::Sub, Self::Mul, Self::Min, Self::Max];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// What it makes of two elements.
    #[must_use]
    pub fn of(self, a: f32, b: f32) -> f32 {
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            // The first of two zeros; what is no number gives way to the other, as `f32::min` and `f32::max` have it.
            Self::Min if b < a || a.is_nan() => b,
            Self::Max if b > a || a.is_nan() => b,
            Self::Min | Self::Max => a,
        }
    }
}

/// What `mix` makes of two elements and a number.
#[must_use]
pub fn mixed(a: f32, b: f32, k: f32) -> f32 {
    (31.0 * a + 7.0 * b + k).rem_euclid(65521.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel of any device can do the same, to the last bit.
    #[test]
    fn zeros_of_both_signs_and_what_is_no_number_have_an_order() {
        let bits = |value: f32| value.to_bits();
        assert_eq!([-0.0, f32::NAN, -1.0].map(|a| bits(Unary::Relu.of(a))), [0; 3]);
        for op in [Binary::Min, Binary::Max] {
            assert_eq!(bits(op.of(-0.0, 0.0)), bits(-0.0));
            assert_eq!(bits(op.of(0.0, -0.0)), bits(0.0));
            assert_eq!([op.of(f32::NAN, 2.0), op.of(2.0, f32::NAN)], [2.0; 2]);
        }
        assert_eq!((Binary::Min.of(1.0, 2.0), Binary::Max.of(1.0, 2.0)), (1.0, 2.0));
    }
}
