//! What keeps a command from doing its work. A red test or a finding is no error of the command.

use std::path::PathBuf;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no layer `{name}`; the layers are {known}")]
    UnknownLayer { name: String, known: String },
    #[error("layer `{name}` has no folder {folder} yet")]
    AbsentLayer { name: String, folder: &'static str },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("`{program}` does not start: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("`{target}` of {package} was not built")]
    NotBuilt { package: &'static str, target: &'static str },
    #[error("the output of `{program}` cannot be read: {source}")]
    Output { program: String, source: std::io::Error },
    #[error("`{program}` was ended: {status}")]
    Ended { program: String, status: std::process::ExitStatus },
    #[error(transparent)]
    Shell(#[from] xshell::Error),
}
