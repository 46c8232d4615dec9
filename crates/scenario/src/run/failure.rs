//! Why a run of a program ends before its end.

/// Why a run of a program ends before its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Failure {
    /// Something is not as it should be.
    #[error("line {line}: {why}")]
    Wrong {
        /// The line that ran.
        line: u32,
        /// What it is.
        why: String,
    },
    /// The program cannot be: shapes that do not fit, for instance.
    #[error("line {line}: {why}")]
    Impossible {
        /// The line that ran.
        line: u32,
        /// Why.
        why: String,
    },
}
