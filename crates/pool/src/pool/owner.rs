//! What a block is for, as reports call it.

use std::fmt;

/// What a block is for. It decides nothing: it is there for reports, so that a shortage names who holds the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Owner {
    /// A result that outlives the recording.
    Output,
    /// What dies inside of the recording.
    Temporary,
    /// Scratch memory of a library.
    Workspace,
    /// The place where an input is copied to before the recorded work reads it.
    Staging,
    /// Nobody said.
    #[default]
    Unknown,
}

impl Owner {
    /// The owner in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Temporary => "temporary",
            Self::Workspace => "workspace",
            Self::Staging => "staging",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
