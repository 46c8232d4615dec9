//! What keeps a trace from being played.

use std::path::PathBuf;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("no trace in {}", folder.display())]
    NoTrace { folder: PathBuf },
    #[error("unknown option {given}; there are --calls DIR, --json FILE and --explain")]
    UnknownOption { given: String },
    #[error("{option} needs a value")]
    NoValue { option: String },
    #[error("line {line}: {why}")]
    Line { line: usize, why: String },
    #[error("function {function}: {why}")]
    Function { function: usize, why: String },
    #[error("call {call}: {why}")]
    Call { call: usize, why: String },
    #[error("call {call}: {source}")]
    Engine { call: usize, source: graphgrove::Error },
    #[error(transparent)]
    Setup(#[from] graphgrove::Error),
    #[error(transparent)]
    Device(#[from] graphgrove_device::DeviceError),
}
