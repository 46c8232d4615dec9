//! Where something stands in a file.

use std::fmt;

/// A line and a column, both counted from 1; a column counts characters.
///
/// All places are equal, so that two programs are equal if they say the same, whatever lines they say it on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
