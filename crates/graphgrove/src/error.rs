//! What can go wrong in a call.

use graphgrove_device::DeviceError;
use graphgrove_pool::PoolError;

/// The result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused or broke.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The pool has no room.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The tree refused a transition, which it does only if the engine described the call wrongly.
    #[error(transparent)]
    Tree(#[from] graphgrove_tree::Error),
    /// An output was used after another run had taken its memory.
    #[error("the output of {function} is stale: its memory was taken by a later run")]
    Stale {
        /// The function that made the output.
        function: String,
    },
    /// The call would end a path on which outputs are live, which have to be copied out of the pool first. That is not there yet;
    /// dropping them before the call lets it run.
    #[error("a call of {function} ends a path on which {outputs} outputs are live")]
    LiveOutputs {
        /// The function that was called.
        function: String,
        /// How many outputs are live, the inputs of the call included.
        outputs: usize,
    },
    /// A function returned a buffer that it does not own, or the same one twice.
    #[error("{function} returned a buffer that is not its own")]
    ForeignBuffer {
        /// The function.
        function: String,
    },
}
