//! Why calls did not simply replay, counted.

use std::collections::BTreeMap;

use crate::Reason;

/// A ((function, reason) -> calls) pair means: so many calls of the function ran as they did for that reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reasons(BTreeMap<(String, String), u64>);

/// How many different reasons are remembered; those of later calls are counted together.
const REMEMBERED: usize = 256;

impl Reasons {
    pub(crate) fn add(&mut self, function: &str, why: impl ToString) {
        let why = why.to_string();
        let key = (function.to_owned(), why);
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&key) {
            *self.0.entry((function.to_owned(), "other reasons".to_owned())).or_default() += 1;
            return;
        }
        *self.0.entry(key).or_default() += 1;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (key, calls) in &other.0 {
            *self.0.entry(key.clone()).or_default() += calls;
        }
    }

    pub(crate) fn sorted(self) -> Vec<Reason> {
        let reasons = self.0.into_iter().map(|((function, why), calls)| Reason { function, why, calls });
        let mut reasons: Vec<Reason> = reasons.collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.calls));
        reasons
    }
}
