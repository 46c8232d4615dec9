//! A call, described as plain data.

use crate::{Address, FunctionId, ParamSetId, ParamVersion, Signature, SlotValue, TokenId};

/// Everything the tree needs to know about one call; it borrows, so describing a call allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The function that is called.
    pub function: FunctionId,
    /// What the call is to automatic differentiation.
    pub kind: CallKind,
    /// The parameters, if the function has any.
    pub params: Option<Params<'a>>,
    /// All other inputs, in the function's own order.
    pub inputs: &'a [Input],
}

impl<'a> Call<'a> {
    /// An inference call of `function` on `inputs`, without parameters.
    #[must_use]
    pub const fn inference(function: FunctionId, inputs: &'a [Input]) -> Self {
        Self { function, kind: CallKind::Inference, params: None, inputs }
    }

    /// A forward call of `function` on `inputs`, without parameters: it leaves a pending backward behind.
    #[must_use]
    pub const fn forward(function: FunctionId, inputs: &'a [Input]) -> Self {
        Self { function, kind: CallKind::Forward, params: None, inputs }
    }

    /// A backward call of `function` on `inputs`, without parameters, for the forward that `token` stands
    /// for.
    #[must_use]
    pub const fn backward(function: FunctionId, token: TokenId, inputs: &'a [Input]) -> Self {
        Self { function, kind: CallKind::Backward(token), params: None, inputs }
    }

    /// The same call with parameters.
    #[must_use]
    pub const fn with_params(self, params: Params<'a>) -> Self {
        Self { params: Some(params), ..self }
    }
}

/// What a call is to automatic differentiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Neither leaves nor consumes a pending backward.
    Inference,
    /// Leaves a pending backward.
    Forward,
    /// The last backward that this token's forward will have. A backward that will be followed by another one
    /// of the same forward is described as [`CallKind::Inference`], so that the token lives on.
    Backward(TokenId),
}

/// A [`CallKind`] without its token: the part of it that a recording depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// An inference call.
    Inference,
    /// A forward call.
    Forward,
    /// A backward call.
    Backward,
}

impl CallKind {
    /// The kind without its token.
    #[must_use]
    pub const fn phase(self) -> Phase {
        match self {
            Self::Inference => Phase::Inference,
            Self::Forward => Phase::Forward,
            Self::Backward(_) => Phase::Backward,
        }
    }

    /// The forward whose backward this is.
    #[inline]
    pub(crate) const fn token(self) -> Option<TokenId> {
        match self {
            Self::Backward(token) => Some(token),
            Self::Inference | Self::Forward => None,
        }
    }
}

/// The parameters of a call: inputs whose addresses are declared stable.
///
/// Set and version are a promise about the addresses: while both are what they were, so is every address, and
/// the tree looks at neither their number nor their values.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// The set.
    pub set: ParamSetId,
    /// The set's version.
    pub version: ParamVersion,
    /// The address of each parameter.
    pub addresses: &'a [Address],
}

/// An input that is not a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// What must be equal for a recording to fit.
    pub signature: Signature,
    /// Where the input comes from.
    pub source: Source,
    /// Whether the function writes to the input.
    pub mutated: bool,
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An output of the current path, already at its recorded address. It is compared by identity, not by
    /// address.
    Managed {
        /// The storage's own slot: a view or an alias is named by the slot that owns its storage.
        value: SlotValue,
        /// Whether the call holds the last handle, so that the storage dies when the call begins to run.
        given_up: bool,
    },
    /// A tensor from elsewhere, which is copied to a recorded address, or whose address is patched into the
    /// recording.
    Staged,
    /// Not a tensor: the signature is its value.
    Scalar,
}

impl Input {
    /// A tensor from elsewhere, to be copied in.
    #[must_use]
    pub const fn staged(signature: Signature) -> Self {
        Self { signature, source: Source::Staged, mutated: false }
    }

    /// A value that is no tensor: calls with another value need another recording.
    #[must_use]
    pub const fn scalar(value: u64) -> Self {
        Self { signature: Signature::new(value), source: Source::Scalar, mutated: false }
    }

    /// An output of the current path that the caller keeps.
    #[must_use]
    pub const fn managed(signature: Signature, value: SlotValue) -> Self {
        Self { signature, source: Source::Managed { value, given_up: false }, mutated: false }
    }

    /// An output of the current path whose last handle is moved into the call.
    #[must_use]
    pub const fn given_up(signature: Signature, value: SlotValue) -> Self {
        Self { signature, source: Source::Managed { value, given_up: true }, mutated: false }
    }

    /// The same input, written to by the function.
    #[must_use]
    pub const fn mutated(self) -> Self {
        Self { mutated: true, ..self }
    }
}
