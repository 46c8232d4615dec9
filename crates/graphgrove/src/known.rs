//! What warm-ups have shown of calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use graphgrove_replay::Uses;
use graphgrove_tree::FunctionId;

/// Why a function is not recorded that hands out shared memory.
pub(crate) const NO_STORAGE_CACHE: &str = "its outputs share memory, and the engine has no storage cache";

/// What is known of the calls of a function with certain inputs.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) uses: Uses,
    /// Why it is not to be recorded: its outputs share memory in a way for which the engine lacks a layer, or it leaves memory in the
    /// pool.
    pub(crate) refused: Option<Arc<str>>,
}

/// A function, and all signatures of a call in one word.
pub(crate) type Key = (FunctionId, u64);

/// What the last warm-up of each kind of call has shown. Only so many are remembered, or ever new signatures would fill the memory
/// of the host.
pub(crate) struct WarmUps {
    shown: HashMap<Key, Known>,
    /// The keys, oldest first.
    order: VecDeque<Key>,
    most: usize,
}

impl WarmUps {
    pub(crate) fn remembering(most: usize) -> Self {
        Self { shown: HashMap::new(), order: VecDeque::new(), most: most.max(1) }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Known> {
        self.shown.get(key)
    }

    pub(crate) fn note(&mut self, key: Key, known: Known) {
        if self.shown.insert(key, known).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.shown.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphgrove_tree::{FunctionSpec, Options, Tree};

    #[test]
    fn the_oldest_is_forgotten_and_what_is_noted_again_is_not_counted_twice() {
        let function = Tree::new(Options::default()).add_function(FunctionSpec::new("f"));
        let mut known = WarmUps::remembering(2);
        for word in [1, 2, 2, 3] {
            known.note((function, word), Known::default());
        }
        assert!(known.get(&(function, 1)).is_none());
        assert!(known.get(&(function, 2)).is_some() && known.get(&(function, 3)).is_some());
        assert_eq!(known.order.len(), 2);
    }
}
