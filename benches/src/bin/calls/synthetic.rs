//! The trace that comes with the workspace.

/// A small made-up trace in the format of the recorded ones: a training step of three functions with every kind of output, an
/// evaluation in between, and one forward whose backward never runs. What it says that calls became follows from the rules of
/// `torch`, and was not measured.
pub(crate) const TRACE: &str = include_str!("../../../traces/synthetic.calls");
