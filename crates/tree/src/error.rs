//! Errors: every one of them leaves the tree as it was.

use crate::{Epoch, FunctionId, InputIndex, NodeId, Phase, SlotIndex, TokenId};
use thiserror::Error;

/// What was wrong with a request to a [`Tree`](crate::Tree). The tree is as it was before the request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// No such function is registered.
    #[error("function {function} is not registered")]
    UnknownFunction {
        /// The name that was given.
        function: FunctionId,
    },
    /// The node does not exist, any more or at all.
    #[error("node {node:?} does not exist")]
    UnknownNode {
        /// The name that was given.
        node: NodeId,
    },
    /// The forward's backward has already run, or its token was discarded.
    #[error("token {token:?} is not pending: its backward has run or was given up")]
    UnknownToken {
        /// The name that was given.
        token: TokenId,
    },
    /// A managed input's value is gone: its node is not on the current path, or has run again since.
    #[error("input {input} is a stale output: it is of run {given} of its node, {}", stale(*current))]
    StaleInput {
        /// The input.
        input: InputIndex,
        /// The node that wrote the value.
        node: NodeId,
        /// The run that wrote the value.
        given: Epoch,
        /// The run whose outputs are on the current path; none if the node is not on it.
        current: Option<Epoch>,
    },
    /// A managed input names an output that owns no storage of the pool.
    #[error("input {input} names output {slot}, which owns no storage")]
    NotASlot {
        /// The input.
        input: InputIndex,
        /// The output.
        slot: SlotIndex,
    },
    /// The path has moved on since the decision was taken.
    #[error("the path has moved on since this was decided")]
    StaleDecision,
    /// Another recording or warm-up is in progress.
    #[error("another recording or warm-up is in progress")]
    Busy,
    /// The node cannot run next: its parent is not on the current path.
    #[error("node {node:?} does not follow from the current path")]
    DoesNotFollow {
        /// The node.
        node: NodeId,
    },
    /// The call is not the one that the node records.
    #[error("node {node:?} records {recorded}, not {called}")]
    WrongFunction {
        /// The node.
        node: NodeId,
        /// The node's function.
        recorded: FunctionId,
        /// The function of the call.
        called: FunctionId,
    },
    /// The call is not of the kind that was decided, or that the node records.
    #[error("the call is {called:?}, and {expected:?} was expected")]
    WrongKind {
        /// The kind that was decided, or that the node records.
        expected: Phase,
        /// The kind of the call.
        called: Phase,
    },
    /// The call is a backward of another forward than the one that was decided.
    #[error("the call consumes token {called:?}, and {decided:?} was decided")]
    WrongToken {
        /// The token of the decided call.
        decided: TokenId,
        /// The token of the call.
        called: TokenId,
    },
    /// The node is a warm-up run, which has nothing that could be replayed.
    #[error("node {node:?} is a warm-up run, which cannot be replayed")]
    NotARecording {
        /// The node.
        node: NodeId,
    },
    /// An output is declared as an alias of something that it cannot be an alias of.
    #[error("output {output} is declared an alias of something without storage")]
    BadAlias {
        /// The output.
        output: SlotIndex,
    },
    /// The node is on the current path, or something below it is live, so it cannot be removed.
    #[error("node {node:?} is in use")]
    InUse {
        /// The node.
        node: NodeId,
    },
}

fn stale(current: Option<Epoch>) -> String {
    current.map_or_else(|| "which is not on the path".to_owned(), |epoch| format!("now in run {epoch}"))
}
