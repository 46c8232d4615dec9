//! What a scenario demands.

use std::cmp::Ordering;

use crate::program::words;
use crate::{Filter, Name, NewTensor, Number};

/// One line that begins with `expect`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Of which set-ups it is demanded. Without them values are demanded of all, and everything else of the main one.
    pub of: Option<Filter>,
    /// What is demanded.
    pub demand: Demand,
}

/// What is demanded.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// A tensor has the values of another one, up to so much.
    Values {
        /// The tensor.
        left: Name,
        /// The values.
        right: Values,
        /// How far each may be away; zero means that they are equal to the last bit.
        within: f32,
    },
    /// A number compares so with another one.
    Compare(Measure, Comparison, Measure),
    /// The value is gone.
    Stale(Name),
    /// The value is there.
    Readable(Name),
    /// Two tensors lie in the same storage.
    Shares(Name, Name),
    /// Two tensors lie in different ones.
    Apart(Name, Name),
    /// Calls of a function ran as they did for a reason with this in its text.
    Reason(Name, String),
    /// None did.
    NoReason(Name, String),
}

/// The values that a tensor has to have.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Those of this tensor.
    Of(Name),
    /// These.
    New(NewTensor),
}

/// A number that can be demanded.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// A counter of the engine, or of one function.
    Counter(Counter, Option<Name>),
    /// The address of a tensor, in bytes.
    Address(Name),
    /// A number, or what was noted; `n + 1` and so on.
    Number(Number),
}

words! {
    /// What is counted.
    Counter, "a counter" {
        /// Calls that went well.
        Calls => "calls",
        /// Calls that ran plainly inside of the pool.
        WarmUps => "warm-ups",
        /// Calls that were recorded.
        Recordings => "recordings",
        /// Calls that launched a recording.
        Replays => "replays",
        /// Replays for which the tree was not asked.
        Predicted => "predicted",
        /// Calls that ran plainly outside of the pool.
        Eager => "eager",
        /// Recordings that failed.
        Failures => "failures",
        /// Bytes that were copied out at new steps.
        Copied => "copied",
        /// Recordings that exist.
        Nodes => "nodes",
        /// Execs that exist on the device.
        Execs => "execs",
        /// Bytes that the driver holds for them, as the engine says.
        ExecBytes => "exec-bytes",
        /// Bytes that count against the budget, as the engine says: those of the pools of recordings, and those of execs.
        Budgeted => "budgeted",
        /// Backwards that may still run.
        Pending => "pending",
        /// Bytes that the pools of recordings hold of the device.
        Reserved => "reserved",
        /// Bytes that are live in them.
        Live => "live",
        /// The most bytes that were live in them.
        Peak => "peak",
        /// Bytes that are live outside of them: plain runs, and what was copied out.
        Outside => "outside",
        /// Bytes of the device that are in use, by anybody.
        Device => "device",
        /// Calls of the driver that the last call of the program made.
        Driver => "driver",
    }
}

words! {
    /// How two numbers compare.
    Comparison, "a comparison" {
        /// They are equal.
        Equal => "==",
        /// They are not.
        Unequal => "!=",
        /// The first is at most the second.
        AtMost => "<=",
        /// The first is at least the second.
        AtLeast => ">=",
        /// The first is less.
        Less => "<",
        /// The first is more.
        More => ">",
    }
}

impl Counter {
    /// All of them, as messages name them.
    pub(crate) fn all_words() -> String {
        let words: Vec<String> = Self::ALL.iter().map(|counter| format!("`{}`", counter.word())).collect();
        words.join(", ")
    }

    /// Whether it is counted for each function as well.
    #[must_use]
    pub const fn is_of_functions(self) -> bool {
        matches!(self, Self::Calls | Self::WarmUps | Self::Recordings | Self::Replays | Self::Eager)
    }
}

impl Comparison {
    /// Whether it holds.
    #[must_use]
    pub fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::AtMost => left.cmp(&right) != Ordering::Greater,
            Self::AtLeast => left.cmp(&right) != Ordering::Less,
            Self::Less => left < right,
            Self::More => left > right,
        }
    }
}

impl Demand {
    /// Whether it is about values, which have to be the same everywhere.
    #[must_use]
    pub const fn is_of_values(&self) -> bool {
        matches!(self, Self::Values { .. } | Self::Shares(..) | Self::Apart(..))
    }
}
