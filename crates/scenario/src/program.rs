//! A scenario as data.

pub use crate::function::{How, InPlace, Line, Made, Op, Room};
pub use crate::number::{Arithmetic, Number};
use crate::{Capability, Expectation, Function, Measure, Place, Setting};

/// A name that the file gives to something.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub place: Place,
}

impl Name {
    /// A name that stands nowhere.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: Place::default() }
    }
}

/// A whole scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// What the engine has to be able to do, beside what the words of the scenario need.
    pub requires: Vec<Capability>,
    /// Why the scenario is not run at all.
    pub skip: Option<String>,
    /// How it is run.
    pub settings: Vec<Setting>,
    /// The functions.
    pub functions: Vec<Function>,
    /// What is done.
    pub statements: Vec<Statement>,
}

/// The size of each dimension.
pub type Shape = Vec<Number>;

/// A tensor in memory of its own, with contents.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTensor {
    /// Its shape.
    pub shape: Shape,
    /// What is in it.
    pub fill: Fill,
    /// Whether it begins four bytes behind a multiple of sixteen.
    pub misaligned: bool,
    /// Where it stands.
    pub place: Place,
}

/// What is in a new tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// One value everywhere.
    Same(f32),
    /// These values.
    Values(Vec<f32>),
    /// Whole numbers from -4 to 4, other ones each time, the same for the same seed.
    Random,
    /// 0, 1, 2, ...
    Counting,
}

/// A part of a tensor. All numbers count elements.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// What it is a view of.
    pub of: Name,
    /// Where it begins.
    pub at: Option<Number>,
    /// For a tensor of one dimension: each how many elements.
    pub step: Option<Number>,
    /// Its shape.
    pub shape: Option<Shape>,
    /// Its strides; without them it has no gaps.
    pub strides: Option<Shape>,
}

/// What becomes of an output at a new step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Old {
    /// It goes stale.
    #[default]
    Error,
    /// It is copied out.
    Copy,
    /// It stays where it is.
    Keep,
}

/// How calls run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModeName {
    /// Plainly.
    Eager,
    /// With one pool a function.
    OnePool,
    /// In trees.
    Trees,
    /// In trees if that is faster. Of functions alone.
    Auto,
}

/// One statement of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Where it stands.
    pub place: Place,
    /// Whether it may fail, and is left out where a name that it needs holds nothing.
    pub tries: bool,
    /// What it does.
    pub what: What,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Gives a number a name.
    Size(Name, Number),
    /// Gives a random number from the first to the last one a name.
    Random(Name, Number, Number),
    /// Makes a parameter.
    Param(Name, NewTensor),
    /// Makes a stream of the caller's.
    Stream(Name),
    /// Makes host memory that the device can reach.
    Host(Name, NewTensor),
    /// Makes a tensor in memory of its own.
    Let(Name, NewTensor),
    /// Takes a view.
    View(Name, View),
    /// Makes another handle.
    Clone(Name, Name),
    /// Calls a function.
    Call(Call),
    /// Drops the token of a backward.
    Discard(Name),
    /// Drops handles, on another thread if that is said.
    Drop {
        /// What is dropped.
        names: Vec<Name>,
        /// Whether another thread does it.
        elsewhere: bool,
    },
    /// Begins a step.
    Step,
    /// Forgets all recordings.
    Reset,
    /// Shuts the engine down.
    ShutDown,
    /// Puts a parameter into other memory.
    Move(Name, MoveTo),
    /// Writes to the memory of a tensor, parameter or host buffer from the host.
    Write(Name, NewTensor),
    /// Plans a failure.
    Fault(FaultPlan),
    /// Forgets the failures that are still to come.
    ClearFaults,
    /// Compares every value now.
    Check,
    /// Goes on with another engine, counted from 1.
    UseEngine(Number),
    /// Enqueues work of the caller's own on a stream.
    Enqueue(InPlace, Name),
    /// Orders what a stream is given from now on behind what another one was given.
    Order {
        /// What comes first.
        first: Name,
        /// What comes behind.
        second: Name,
    },
    /// Runs a block again and again.
    Repeat {
        /// How often.
        times: Number,
        /// What the number of the turn is called, counted from 0.
        turn: Option<Name>,
        /// The block.
        body: Vec<Statement>,
    },
    /// Runs a block for each of several numbers.
    Each {
        /// What the number is called.
        name: Name,
        /// The numbers.
        over: Vec<Number>,
        /// The block.
        body: Vec<Statement>,
    },
    /// Runs one of several blocks, by the seed.
    Choose(Vec<Vec<Statement>>),
    /// Runs a block on several threads at once.
    Threads {
        /// How many.
        count: Number,
        /// What the number of the thread is called, counted from 0.
        number: Option<Name>,
        /// The block.
        body: Vec<Statement>,
    },
    /// Seeds the generator.
    Seed(Number),
    /// Draws from the generator outside of every function.
    Draw(Name, Shape),
    /// Gives the pool's memory back and keeps the recordings.
    Suspend,
    /// Takes the memory again.
    Resume,
    /// Demands something.
    Expect(Expectation),
    /// Remembers a measure under a name.
    Note(Name, Measure),
}

/// Where a parameter goes.
#[derive(Clone, Debug, PartialEq)]
pub enum MoveTo {
    /// Into other memory, with the same contents.
    Same,
    /// Into other memory, with other contents.
    New(NewTensor),
    /// It becomes this tensor.
    Tensor(Name),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What the outputs are called; those without a name are not taken.
    pub outputs: Vec<Option<Name>>,
    /// What kind of call it is.
    pub kind: CallKind,
    /// The function.
    pub function: Name,
    /// What it brings.
    pub args: Vec<Arg>,
    /// The stream, if it is not the engine's.
    pub stream: Option<Name>,
    /// How it has to fail.
    pub fails: Option<Fails>,
}

/// What a call leaves, or takes up.
#[derive(Clone, Debug, PartialEq)]
pub enum CallKind {
    /// Nothing is left for a backward.
    Plain,
    /// The token of the backward is called so.
    Forward(Name),
    /// The backward of the forward whose token is called so.
    Backward(Name),
}

/// What a call brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A tensor that the caller keeps; or a parameter, a number or host memory.
    Keep(Name),
    /// A tensor that the caller gives up.
    Give(Name),
    /// A new tensor, which nobody else holds.
    New(NewTensor),
    /// New host memory.
    Host(NewTensor),
    /// A number.
    Number(Number),
}

/// How a call has to fail.
#[derive(Clone, Debug, PartialEq)]
pub struct Fails {
    /// The kind of error.
    pub kind: ErrorKind,
    /// What its text has in it.
    pub text: Option<String>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$each:meta])* $variant:ident => $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// What they are, in a word.
            pub const WHAT: &'static str = $what;

            /// The word for it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What a word stands for.
            #[must_use]
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The kinds of errors.
    ErrorKind, "a kind of error" {
        /// Any error.
        Any => "any",
        /// The value of an input is gone.
        Stale => "stale",
        /// There is no memory for it.
        NoMemory => "no-memory",
        /// The device has refused something, or is broken.
        Device => "device",
        /// Memory outlived the function that is no output.
        Survivors => "survivors",
        /// A strict engine refuses a plain run.
        Skipped => "skipped",
        /// A recording failed, and the inputs were given up.
        InputsGone => "inputs-gone",
        /// An output cannot be a parameter.
        UnstableParameter => "unstable-parameter",
        /// The engine was shut down.
        ShutDown => "shut-down",
        /// Something belongs to another engine.
        Foreign => "foreign",
        /// The function itself returned an error.
        Failed => "failed",
        /// The function panicked.
        Panicked => "panicked",
        /// An error of another kind.
        Other => "other",
    }
}

/// A failure that is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// What goes wrong.
    pub kind: FaultKind,
    /// With which call of the driver; none means any.
    pub call: Option<graphgrove_device::Call>,
    /// With the how manieth, counted from 1.
    pub nth: Number,
}

words! {
    /// What goes wrong.
    FaultKind, "a kind of fault" {
        /// The device has no memory.
        NoMemory => "no-memory",
        /// The driver refuses.
        Refuse => "refuse",
        /// Every open capture becomes invalid.
        Invalidate => "invalidate",
        /// The device breaks.
        Poison => "poison",
    }
}

impl Old {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Copy => "copy",
            Self::Keep => "keep",
        }
    }
}

impl ModeName {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::OnePool => "one-pool",
            Self::Trees => "trees",
            Self::Auto => "auto",
        }
    }

    /// Those that a set-up can have.
    pub const OF_SETUPS: [Self; 3] = [Self::Trees, Self::OnePool, Self::Eager];

    /// What a word stands for, among those that a set-up can have.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::OF_SETUPS.into_iter().find(|mode| mode.word() == word)
    }
}
