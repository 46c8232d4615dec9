//! Notices: what a user should hear about once, not at every call.

use crate::FunctionId;
use crate::reasons::EagerReason;
use std::collections::HashSet;
use thiserror::Error;

/// Something about a function that is worth saying once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Notice {
    /// The function is called with many different signatures, and each costs a warm-up and a recording.
    #[error("{function} has warmed up with {count} different signatures, and each costs a recording")]
    ManySignatures {
        /// The function.
        function: FunctionId,
        /// The number of signatures so far.
        count: usize,
    },
    /// A path grows although the function's calls repeat, because backwards are pending on it.
    #[error("{function} keeps growing its path, because {pending} backwards are pending on it")]
    PendingBackwards {
        /// The function.
        function: FunctionId,
        /// The number of backwards that are pending on the path.
        pending: usize,
    },
    /// The function is warm but keeps warming up, because a backward is pending on a path with a warm-up above it
    /// and nothing is recorded below a warm-up. The next step ends that, and so does whoever runs or discards the
    /// backward. A live value without a pending backward holds back no more than
    /// [`Limits::loop_length`](crate::Limits::loop_length) calls, and there is no notice of it.
    #[error("{function} warms up at every call, because something that {holder} left behind is still needed")]
    HeldByWarmUp {
        /// The function.
        function: FunctionId,
        /// The function whose warm-up is still needed.
        holder: FunctionId,
    },
    /// The function ran eagerly, for this reason.
    #[error("{function} ran eagerly: {reason}")]
    RanEagerly {
        /// The function.
        function: FunctionId,
        /// The first reason of its kind.
        reason: EagerReason,
    },
}

impl Notice {
    /// The function that it is about.
    #[must_use]
    pub fn function(&self) -> FunctionId {
        self.topic().0
    }

    fn topic(&self) -> (FunctionId, Topic) {
        match self {
            Self::ManySignatures { function, .. } => (*function, Topic::ManySignatures),
            Self::PendingBackwards { function, .. } => (*function, Topic::PendingBackwards),
            Self::HeldByWarmUp { function, .. } => (*function, Topic::HeldByWarmUp),
            Self::RanEagerly { function, reason } => {
                (*function, Topic::RanEagerly(std::mem::discriminant(reason)))
            }
        }
    }
}

/// Collects notices and drops those that were made before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    fresh: Vec<Notice>,
    made: HashSet<(FunctionId, Topic)>,
}

/// What a notice is about, without its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Topic {
    ManySignatures,
    PendingBackwards,
    HeldByWarmUp,
    RanEagerly(std::mem::Discriminant<EagerReason>),
}

impl Notices {
    pub(crate) fn add(&mut self, notice: Notice) {
        if self.made.insert(notice.topic()) {
            self.fresh.push(notice);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.fresh)
    }

    /// Drops what there is to say of a function, and lets it be said again.
    pub(crate) fn forget(&mut self, function: FunctionId) {
        self.made.retain(|(about, _)| *about != function);
        self.fresh.retain(|notice| notice.topic().0 != function);
    }

    /// How many wait to be taken, and how many are not made again, for tests of leaks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.fresh.len(), self.made.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_made_once_per_function_and_topic() {
        let (f, g) = (FunctionId::new(0), FunctionId::new(1));
        let mut notices = Notices::default();
        let eager = |function, reason| Notice::RanEagerly { function, reason };
        let failing = |calls| EagerReason::RecordingsFail { calls };
        for notice in [
            eager(f, failing(3)),
            eager(f, failing(2)),
            eager(g, failing(2)),
            eager(f, EagerReason::KeyNotListed),
            Notice::ManySignatures { function: f, count: 9 },
            Notice::ManySignatures { function: f, count: 10 },
            Notice::PendingBackwards { function: f, pending: 1 },
        ] {
            notices.add(notice);
        }
        assert_eq!(
            notices.take(),
            [
                eager(f, failing(3)),
                eager(g, failing(2)),
                eager(f, EagerReason::KeyNotListed),
                Notice::ManySignatures { function: f, count: 9 },
                Notice::PendingBackwards { function: f, pending: 1 },
            ]
        );
        assert_eq!(notices.take(), []);
        notices.forget(f);
        notices.add(eager(g, failing(1)));
        notices.add(eager(f, failing(1)));
        assert_eq!(notices.take(), [eager(f, failing(1))]);
    }

    #[test]
    fn what_waits_to_be_taken_goes_with_its_function_and_no_other() {
        let about = |function| Notice::ManySignatures { function, count: 9 };
        let mut notices = Notices::default();
        [0, 1].map(FunctionId::new).map(about).into_iter().for_each(|notice| notices.add(notice));
        notices.forget(FunctionId::new(0));
        assert_eq!(notices.take(), [about(FunctionId::new(1))]);
    }
}
