//! Calls that warm up again because something of a warm-up above them is needed.

use crate::{FunctionId, ParamSetId, Phase};
use std::collections::HashMap;

/// How many different calls are counted. Forgetting them lets a warm-up hold them back for longer, nothing else.
const COUNTED: usize = 1024;

/// What makes two calls turns of one loop: the function, the kind of call and the parameters. Calls of one function
/// for the layers of a model are not.
pub(crate) type Turn = (FunctionId, Phase, Option<ParamSetId>);

/// A (turn -> count) pair means: so many calls like this were held back on the current path.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBack(HashMap<Turn, u32>);

impl HeldBack {
    pub(crate) fn count(&self, turn: &Turn) -> u32 {
        self.0.get(turn).copied().unwrap_or(0)
    }

    /// Counts one more and returns how many there are.
    pub(crate) fn add(&mut self, turn: Turn) -> u32 {
        if self.0.len() >= COUNTED && !self.0.contains_key(&turn) {
            self.0.clear();
        }
        let count = self.0.entry(turn).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// A path begins.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_counted_by_itself_and_too_many_are_forgotten() {
        let turn = |set| (FunctionId::new(0), Phase::Inference, Some(ParamSetId::new(set)));
        let mut held = HeldBack::default();
        assert_eq!((held.add(turn(0)), held.add(turn(0)), held.add(turn(1))), (1, 2, 1));
        assert_eq!((held.count(&turn(0)), held.count(&turn(9))), (2, 0));
        (2..COUNTED as u64).for_each(|set| assert_eq!(held.add(turn(set)), 1));
        assert_eq!((held.add(turn(0)), held.0.len()), (3, COUNTED));
        assert_eq!((held.add(turn(COUNTED as u64)), held.count(&turn(0))), (1, 0));
        held.clear();
        assert_eq!(held.count(&turn(COUNTED as u64)), 0);
    }
}
