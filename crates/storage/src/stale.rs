//! Handles whose value is gone, and why.

use std::fmt;
use std::sync::Arc;

use crate::{Epoch, SlotIndex, Step};

/// What made handles stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What happened.
    pub event: Event,
    /// The step in which it happened.
    pub step: Step,
    /// The function whose call did it, where one is known.
    pub by: Option<Arc<str>>,
}

/// What happened to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A new step began, and the output's rule for it is [`OldOutput::Error`](crate::OldOutput::Error).
    StepBegan,
    /// The node ran again and wrote its outputs anew.
    RanAgain,
    /// The node's memory was given back, as when its recording is evicted.
    Released,
    /// The call that made it has failed, so it is no output of anything.
    CallFailed,
}

/// What the owner of a value can do so that it outlives such a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Choose [`OldOutput::CopyOut`](crate::OldOutput::CopyOut) or [`OldOutput::Keep`](crate::OldOutput::Keep) for the output.
    CopyOutOrKeep,
    /// Copy the value into memory of its own before the cause comes about.
    CopyBefore,
    /// Return the tensor from the function, or save it for the backward, and keep it no other way.
    Return,
}

/// A handle was used whose value is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The function that made the value.
    pub producer: Arc<str>,
    /// Which of its outputs.
    pub slot: SlotIndex,
    /// The run that made it.
    pub epoch: Epoch,
    /// The step in which it was made.
    pub made_in: Step,
    /// What became of it.
    pub cause: Cause,
}

impl Stale {
    /// What keeps such a value; never what brought the cause about.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self.cause.event {
            Event::StepBegan => Remedy::CopyOutOrKeep,
            Event::RanAgain | Event::Released => Remedy::CopyBefore,
            Event::CallFailed => Remedy::Return,
        }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { producer, slot, made_in, cause, .. } = self;
        match cause.event {
            Event::CallFailed => write!(f, "a tensor that {producer} has made in {made_in} is gone: ")?,
            _ => write!(f, "{slot} of {producer}, made in {made_in}, is gone: ")?,
        }
        match cause.event {
            Event::CallFailed => f.write_str("that call failed")?,
            Event::StepBegan => write!(f, "{} began", cause.step)?,
            Event::RanAgain => write!(f, "{producer} ran again in {}", cause.step)?,
            Event::Released => write!(f, "its memory was given back in {}", cause.step)?,
        }
        if let Some(by) = &cause.by {
            write!(f, " with {by}")?;
        }
        f.write_str(match self.remedy() {
            Remedy::CopyOutOrKeep => "; let the output be copied out or kept",
            Remedy::CopyBefore => "; copy the value before that",
            Remedy::Return => "; a function keeps nothing but what it returns or saves",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(event: Event, by: Option<&str>) -> Stale {
        Stale {
            producer: "F".into(),
            slot: SlotIndex::new(0),
            epoch: Epoch::new(1),
            made_in: Step::new(1),
            cause: Cause { event, step: Step::new(2), by: by.map(Into::into) },
        }
    }

    #[test]
    fn a_stale_handle_says_who_made_it_and_what_became_of_it() {
        assert_eq!(
            stale(Event::StepBegan, Some("G")).to_string(),
            "output 0 of F, made in step 1, is gone: step 2 began with G; let the output be copied out or kept"
        );
        assert_eq!(
            stale(Event::RanAgain, None).to_string(),
            "output 0 of F, made in step 1, is gone: F ran again in step 2; copy the value before that"
        );
        assert_eq!(
            stale(Event::Released, None).to_string(),
            "output 0 of F, made in step 1, is gone: its memory was given back in step 2; copy the value before that"
        );
    }
}
